"""The table of requirements tells a line that failed from one that is only open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from redbox.testing.requirements import REQUIREMENTS
from redbox.testing.table import Table


def printed(outcomes: dict[str, tuple[str, str]], *, everything: bool = True) -> dict[str, list[str]]:
    """The printed rows by their first word, after tests with these (line, outcome) ran."""
    table = Table(everything=everything)
    items: list[Any] = [
        SimpleNamespace(
            nodeid=name, iter_markers=lambda _, line=line: [SimpleNamespace(args=(line,))], callspec=None,
            user_properties=[],
        )
        for name, (line, _) in outcomes.items()
    ]  # fmt: skip
    table.pytest_collection_modifyitems(items)
    for item, (name, (_, outcome)) in zip(items, outcomes.items(), strict=True):
        report: Any = SimpleNamespace(
            nodeid=name, when="call", outcome=outcome, longrepr=("", 0, "Skipped: no server"),
            user_properties=item.user_properties,
        )  # fmt: skip
        table.pytest_runtest_logreport(report)
    lines: list[str] = []
    table.pytest_terminal_summary(SimpleNamespace(write_line=lines.append, section=lines.append))
    return {line.split()[0]: line.split()[1:] for line in lines if line}


def test_a_line_that_no_test_names_is_open_and_no_failure():
    rows = printed({"a": ("PL-1", "passed")})
    assert rows["PL-1"][0] == "1"
    assert rows["PL-2"][0] == "open"
    assert rows["1"] == f"lines have tests; {len(REQUIREMENTS) - 1} are open".split()


def test_a_line_whose_tests_were_all_skipped_is_open_and_the_reason_is_printed():
    rows = printed({"a": ("SF-3", "skipped")})
    assert rows["SF-3"][:2] == ["on", "any:"]  # the note comes after the row
    assert rows["SF-3"][-2:] == ["no", "server"]


def test_a_line_with_one_failure_failed():
    rows = printed({"a": ("PL-1", "passed"), "b": ("PL-1", "failed")})
    assert rows["PL-1"][0] == "FAIL"


def test_open_lines_are_left_out_where_only_proven_ones_are_asked_for():
    rows = printed({"a": ("PL-1", "passed")}, everything=False)
    assert "PL-1" in rows
    assert "PL-2" not in rows


def test_a_test_that_names_a_line_that_does_not_exist_ends_the_run():
    with pytest.raises(pytest.UsageError, match="XX-1"):
        printed({"a": ("XX-1", "passed")})


def test_every_line_says_something_that_can_be_violated():
    """At least a subject and a verb: four words."""
    assert [line for line, text in REQUIREMENTS.items() if len(text.split()) < 4] == []
