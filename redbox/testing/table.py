"""Prints the requirements with the tests that prove them on each store."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from redbox.testing.requirements import REQUIREMENTS

EVERYWHERE = "any"
PROPERTY = "redbox-requirements"  # of a report: the lines and the store, also if another process ran the test


class Table:
    """A pytest plugin that collects the outcomes of tests by requirement line and store.

    `everything`: also print open lines, that is lines that no test has proven.
    """

    def __init__(self, *, everything: bool) -> None:
        self._everything = everything
        self._outcomes: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._reasons: dict[tuple[str, str], str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            lines = tuple(line for mark in item.iter_markers("req") for line in mark.args)
            unknown = [line for line in lines if line not in REQUIREMENTS]
            if unknown:
                raise pytest.UsageError(f"{item.nodeid} names requirement lines that do not exist: {unknown}")
            spec: Any = getattr(item, "callspec", None)
            store = spec.params.get("store", EVERYWHERE) if spec else EVERYWHERE
            item.user_properties.append((PROPERTY, [list(lines), str(store)]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found: Any = dict(report.user_properties).get(PROPERTY, ((), EVERYWHERE))
        lines, store = found
        if report.when == "call" or report.outcome != "passed":
            for line in lines:
                self._outcomes[line][store].append(report.outcome)
                if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
                    self._reasons[line, store] = report.longrepr[2].removeprefix("Skipped: ")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        stores = sorted({store for found in self._outcomes.values() for store in found} - {EVERYWHERE})
        write = terminalreporter.write_line
        terminalreporter.section("conformance")
        columns = (EVERYWHERE, *stores)
        widths = [max(8, len(store)) for store in columns]

        def row(line: str, cells: list[str], text: str) -> None:
            padded = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
            write(f"{line:6}  {'  '.join(padded)}  {text}")

        row("line", list(columns), "requirement")
        notes, open_lines = [], []
        for line, text in REQUIREMENTS.items():
            cells = [self._cell(line, store) for store in columns]
            if all(cell in ("", "n/a") for cell in cells):
                open_lines.append(line)
                if self._everything:
                    row(line, ["open", *cells[1:]], text)
            else:
                row(line, cells, text)
            notes += [
                f"{line} on {store}: n/a, {self._reasons[line, store]}"
                for store, cell in zip(columns, cells, strict=True)
                if cell == "n/a" and (line, store) in self._reasons
            ]
        write("")
        write("numbers: tests that passed; FAIL: at least one failed; open: not proven yet, which is not a failure")
        if self._everything:
            write(f"{len(REQUIREMENTS) - len(open_lines)} lines have tests; {len(open_lines)} are open")
            if open_lines:
                write(f"open: {', '.join(open_lines)}")
        for note in notes:
            write(note)

    def _cell(self, line: str, store: str) -> str:
        outcomes = self._outcomes.get(line, {}).get(store, [])
        if "failed" in outcomes:
            return "FAIL"
        passed = outcomes.count("passed")
        if passed:
            return str(passed)
        return "n/a" if outcomes else ""
