"""`redbox conform`: the conformance suite against a store."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.cli.session import Session, pass_session
from redbox.errors import MissingExtra, RedboxError

if TYPE_CHECKING:
    import pytest

SUITE: Final = "redbox.testing.conformance"
PLUGIN: Final = "redbox.testing.plugin"


@click.command("conform", context_settings={"ignore_unknown_options": True})
@click.argument("pytest_args", metavar="[-- PYTEST_ARGS]", nargs=-1, type=click.UNPROCESSED)
@pass_session
def conform_command(session: Session, /, pytest_args: tuple[str, ...]) -> None:
    """Run the conformance suite against the store.

    Prints each requirement with the tests that prove it. The tests create and remove their own boxes, named test-...;
    other boxes are not touched. Requires `pip install 'redbox-outbox[testing]'`. PYTEST_ARGS are passed to pytest.

    \b
    Examples:
      redbox --url redis://localhost:6379/15 conform
      redbox --url embedded:./data conform -- -k claim -x
      redbox --url memory: --json conform
    """
    try:
        import pytest
    except ImportError as error:
        raise MissingExtra("redbox conform", "testing") from error
    session.run(_reach(session))  # reports an unreachable store once, not once per test
    suite = _directory()
    results = _Results()
    arguments = [
        suite, "--redbox-url", session.url, "--redbox-table=proven", "-p", "no:cacheprovider",
        "-W", "ignore::pytest.PytestAssertRewriteWarning",  # redbox itself is imported already
        # ignores the pytest settings and conftest.py of the current directory
        "-c", os.devnull, "--rootdir", suite, "--confcutdir", suite,
        *(("-p", PLUGIN) if not _plugin_is_installed() else ()),
        *pytest_args,
    ]  # fmt: skip
    if session.output.as_json:
        with redirect_stdout(sys.stderr):
            code = pytest.main(arguments, plugins=[results])
        session.output.json({"url": session.where, "passed": code == 0, **results.as_dict()})
    else:
        code = pytest.main(arguments, plugins=[results])
    click.get_current_context().exit(0 if code == 0 else 1)


async def _reach(session: Session) -> None:
    async with session.open() as box:
        await box.exists()


def _directory() -> str:
    """The directory of the suite. pytest must be the first to import it, to rewrite its asserts."""
    from importlib.util import find_spec

    spec = find_spec(SUITE)
    if spec is None or not spec.submodule_search_locations:
        raise RedboxError(f"{SUITE} is missing from this installation; install redbox-outbox again")
    return spec.submodule_search_locations[0]


def _plugin_is_installed() -> bool:
    """Whether pytest finds the plugin by itself; it does not in a checkout that was never installed."""
    from importlib.metadata import entry_points

    return any(point.value == PLUGIN for point in entry_points(group="pytest11"))


class _Results:
    """A pytest plugin that counts outcomes and collects the failed tests."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._failures: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._counts[report.outcome] += 1
            if report.outcome == "failed":
                self._failures.append(report.nodeid)

    def as_dict(self) -> dict[str, Any]:
        return {"tests": dict(self._counts), "failures": self._failures}
