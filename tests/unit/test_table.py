"""The table of requirements distinguishes a line that failed from one that is open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from redbox.testing.requirements import REQUIREMENTS
from redbox.testing.table import Table


def printed(outcomes: dict[str, tuple[str, str]], *, everything: bool = True) -> dict[str, list[str]]:
    """The printed rows by their first word, after a run of tests with these (line, outcome)."""
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


def test_a_line_without_a_test_is_open_and_not_a_failure():
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


def test_open_lines_are_left_out_if_only_proven_ones_are_wanted():
    rows = printed({"a": ("PL-1", "passed")}, everything=False)
    assert "PL-1" in rows
    assert "PL-2" not in rows


def test_a_test_that_names_an_unknown_line_ends_the_run():
    with pytest.raises(pytest.UsageError, match="XX-1"):
        printed({"a": ("XX-1", "passed")})


PLANNED = (
    *("RO-6", "RO-7", "LM-1", "LM-2", "LM-3", "LM-4", "RT-1", "RT-2", "RT-3", "CK-1", "CK-2"),
    *("SF-1", "SF-2", "SF-3", "SF-4", "SF-5", "SF-6"),
)


@pytest.mark.parametrize("line", PLANNED)
def test_a_planned_line_is_listed_as_open_until_a_test_proves_it(line: str):
    rows = printed({"a": ("PL-1", "passed")})
    assert rows[line][0] == "open"
    assert " ".join(rows[line][1:]) == REQUIREMENTS[line]
    assert line in " ".join(rows["open:"]).split(", ")
    proven = printed({"a": (line, "passed")})
    assert proven[line][0] == "1"
    assert line not in " ".join(proven["open:"]).split(", ")


def test_every_line_says_something_that_can_be_violated():
    """At least a subject and a verb: four words."""
    assert [line for line, text in REQUIREMENTS.items() if len(text.split()) < 4] == []
