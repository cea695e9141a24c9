"""The pytest plugin: the fixture `redbox_box`, and the options and hooks of the conformance suite.

It is loaded in every pytest run where redbox is installed, so it imports redbox only when a fixture is used.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from redbox import Box

pytest.register_assert_rewrite("redbox.testing.conformance", "redbox.testing.publisher_contract")

_names = (f"test-{os.getpid()}-{number}" for number in itertools.count())


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("redbox")
    group.addoption("--redbox-url", action="append", default=[], help="a store to run the conformance suite against")
    group.addoption(
        "--redbox-table",
        nargs="?",
        const="all",
        choices=("all", "proven"),
        help="print the requirements with the tests that prove them: all, or only those with a test in this run",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "req(*ids): the requirement lines that a test proves")
    config.addinivalue_line(
        "markers", "needs(feature): a feature that the store must have for this test, such as server"
    )
    if config.getoption("--redbox-table"):
        from redbox.testing.table import Table

        everything = config.getoption("--redbox-table") == "all"
        config.pluginmanager.register(Table(everything=everything), "redbox-table")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs async tests of the conformance suite, and any async test with `redbox_box`, without another plugin."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or "redbox_runner" not in pyfuncitem.fixturenames:
        return None
    runner = pyfuncitem.funcargs["redbox_runner"]
    assert isinstance(runner, asyncio.Runner)
    wanted = inspect.signature(pyfuncitem.obj).parameters
    runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted if name in pyfuncitem.funcargs}))
    return True


@pytest.fixture
def redbox_runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def redbox_box(redbox_runner: asyncio.Runner) -> Iterator[Box]:
    """A fresh box in memory, running the real scripts."""
    from redbox import Box

    box = Box.open("memory:", name="test")
    yield box
    redbox_runner.run(box.aclose())


def new_box_name() -> str:
    """Returns a box name that is unique among all tests on the same server."""
    return next(_names)
