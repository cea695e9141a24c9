"""docs/specification.md names existing requirement lines and tests; each test is marked with its line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from redbox.testing.requirements import REQUIREMENTS
from tests import statement

ROWS = statement.rows()


def test_there_is_a_row_for_each_sentence():
    assert len(ROWS) >= 204


def test_every_line_exists():
    assert [row.sentence for row in ROWS if not row.lines or not set(row.lines) <= set(REQUIREMENTS)] == []


def test_every_test_exists():
    known = statement.marked_tests()
    assert {test for row in ROWS for test in row.tests if test not in known} == set()


def test_every_test_carries_a_line_of_its_row():
    known = statement.marked_tests()
    assert [(row.lines, test) for row in ROWS for test in row.tests if not known[test].intersection(row.lines)] == []


def test_every_line_of_a_row_is_carried_by_a_test_of_that_row():
    known = statement.marked_tests()
    assert [
        (row.sentence, line)
        for row in ROWS
        if row.status != "open"
        for line in row.lines
        if not any(line in known[test] for test in row.tests)
    ] == []


def test_a_satisfied_sentence_has_a_test_and_an_open_one_has_none():
    assert [row.sentence for row in ROWS if bool(row.tests) == (row.status == "open")] == []


def test_a_deviation_has_its_reason():
    assert [row.sentence for row in ROWS if row.status == "deviates" and not row.notes] == []


def test_every_note_exists_and_is_used():
    notes = statement.notes()
    assert notes == list(range(1, len(notes) + 1))
    assert {note for row in ROWS for note in row.notes} == set(notes)


@pytest.mark.parametrize(("outcome", "proven"), [("passed", True), ("failed", False), ("skipped", False)])
def test_a_run_fails_unless_every_named_test_passed(outcome: str, proven: bool):
    ran = statement.Statement()
    for row in ROWS:
        for test in row.tests:
            report: Any = SimpleNamespace(nodeid=f"tests/test_some.py::{test}[memory]", when="call", outcome="passed")
            ran.pytest_runtest_logreport(report)
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK, config=SimpleNamespace())
    ran.pytest_sessionfinish(session)
    assert session.exitstatus == pytest.ExitCode.OK
    again: Any = SimpleNamespace(nodeid=f"tests/test_some.py::{ROWS[0].tests[0]}", when="call", outcome=outcome)
    alone = statement.Statement()
    alone.pytest_runtest_logreport(again)
    assert (ROWS[0].tests[0] not in alone.unproven()) is proven
    alone.pytest_sessionfinish(session)
    assert session.exitstatus == pytest.ExitCode.TESTS_FAILED  # the other tests of the document did not run
