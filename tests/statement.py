"""Reads docs/specification.md, and compares it with the tests as they are written and as they ran."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "specification.md"
TESTS = (ROOT / "tests", ROOT / "redbox" / "testing" / "conformance")
CONTRACT = ROOT / "redbox" / "testing" / "publisher_contract.py"

_STATUS = re.compile(r"(yes|deviates)(, notes? (?P<notes>\d+(?: and \d+)*))?|not used|open")
_CELLS = 4


class Row(NamedTuple):
    """A normative sentence: the requirement lines that cover it, the tests that prove it, and whether it holds."""

    sentence: str
    lines: list[str]
    tests: list[str]
    status: str
    notes: list[int]


def rows() -> list[Row]:
    """Every sentence of the document."""
    found = []
    for text in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if not text.startswith("|") or cells[0] == "sentence" or set(cells[0]) == {"-"}:
            continue
        if len(cells) != _CELLS or (status := _STATUS.fullmatch(cells[3])) is None:
            raise ValueError(f"not a row of the specification: {text}")
        notes = [int(number) for number in re.findall(r"\d+", status["notes"] or "")]
        lines = [line.strip() for line in cells[1].split(",")]
        found.append(Row(cells[0], lines, re.findall(r"`(\w+)`", cells[2]), cells[3].partition(",")[0], notes))
    return found


def notes() -> list[int]:
    """The numbers of the notes at the end."""
    text = DOCUMENT.read_text().partition("\n## Notes\n")[2]
    return [int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]


@cache
def marked_tests() -> dict[str, set[str]]:
    """Each test function by name, with the requirement lines that it carries. Reads the source; imports nothing."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (CONTRACT, *(path for folder in TESTS for path in folder.rglob("test_*.py"))):
        tree = ast.parse(path.read_text())
        everywhere = set(_marks(tree.body))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found[node.name] |= everywhere.union(*map(_lines, node.decorator_list))
    return found


def _marks(body: list[ast.stmt]) -> Iterator[str]:
    """Of `pytestmark`, which holds for a whole module."""
    for statement in body:
        if isinstance(statement, ast.Assign) and "pytestmark" in ast.dump(statement.targets[0]):
            yield from _lines(statement.value)


def _lines(tree: ast.expr) -> set[str]:
    """The arguments of every `pytest.mark.req(...)`."""
    return {
        str(argument.value)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "req"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }


class Statement:
    """A pytest plugin that fails a whole run in which a test of the specification did not pass."""

    def __init__(self) -> None:
        self._outcomes: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._outcomes[report.nodeid.rpartition("::")[2].partition("[")[0]].add(report.outcome)

    def unproven(self) -> list[str]:
        """Each test named in the document that failed somewhere, or passed nowhere."""
        named = dict.fromkeys(test for row in rows() for test in row.tests)
        return [test for test in named if "failed" in self._outcomes[test] or "passed" not in self._outcomes[test]]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):  # a process that runs only some of the tests
            return
        if self.unproven() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("specification")
        found = rows()
        told = ", ".join(f"{number} {status}" for status, number in Counter(row.status for row in found).items())
        terminalreporter.write_line(f"{len(found)} sentences: {told}")
        for test in self.unproven():
            terminalreporter.write_line(f"NOT PROVEN  {test}: it failed, or did not run")
