"""Functions as publishers: async and plain, with one argument and with two, and invalid ones."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from redbox.errors import InvalidURL, Reject, UsageError
from redbox.publishers import Publisher
from redbox.publishers.null import NullPublisher
from redbox.publishers.registry import open_publisher
from redbox.testing.claims import new_claim
from tests.publishers.conftest import opened
from tests.relay.steps import until

got: list[tuple[Any, ...]] = []


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    got.clear()


async def one(event):
    got.append((event,))


async def two(event, claim):
    got.append((event, claim))


async def claim_if_given(event, claim=None):
    got.append((event,) if claim is None else (event, claim))


async def second_has_a_default(event, tries=3):
    got.append((event,) if tries == 3 else (event, tries))


def plain(event):
    got.append((event,))


def plain_two(event, claim, /):
    got.append((event, claim))


def gives_a_coroutine(event):
    return one(event)


async def named_before(name, event):
    got.append((event,))


class Shop:
    async def method(self, event):
        got.append((event,))

    def plain_method(self, event, claim):
        got.append((event, claim))

    async def __call__(self, event):
        got.append((event,))


class PlainShop:
    def __call__(self, event, claim):
        got.append((event, claim))


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (one, 1),
        (two, 2),
        (claim_if_given, 2),
        (second_has_a_default, 1),
        (plain, 1),
        (plain_two, 2),
        (gives_a_coroutine, 1),
        (Shop().method, 1),
        (Shop().plain_method, 2),
        (Shop(), 1),
        (PlainShop(), 2),
        (functools.partial(named_before, "x"), 1),
        (functools.partial(functools.partial(plain_two)), 2),
        (lambda *arguments: got.append(arguments), 1),
        (got.append, 0),
    ],
)
async def test_each_kind_of_function_gets_its_arguments(redbox_runner, function: Any, arguments: int):
    claim = new_claim()
    async with opened(function) as publisher:
        await publisher.publish(claim)
        assert "the function " in publisher.target
    assert got == [{0: claim.event, 1: (claim.event,), 2: (claim.event, claim)}[arguments]]


async def test_a_mock_works(redbox_runner):
    mock = AsyncMock()
    claim = new_claim()
    async with opened(mock) as publisher:
        await publisher.publish(claim)
    mock.assert_awaited_once_with(claim.event)


async def yields(event):
    yield event


def yields_plainly(event):
    yield event


def needs_a_name(event, *, name):
    pass


def takes_nothing():
    pass


def takes_three(event, claim, more):
    pass


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (yields, "must not yield"),
        (yields_plainly, "must not yield"),
        (Shop, "is a class"),
        (needs_a_name, r"must take \(event\) or \(event, claim\)"),
        (takes_nothing, "must take"),
        (takes_three, "must take"),
        (functools.partial(one, "event"), "must take"),
        (42, "a target is a URL, a function or a Publisher, not int"),
    ],
)
def test_invalid_functions_are_refused(function: Any, message: str):
    with pytest.raises(UsageError, match=message):
        open_publisher(function)


@pytest.mark.req("PC-4")
@pytest.mark.parametrize("kind", ["async", "plain", "awaitable"])
async def test_exceptions_of_the_function_are_raised(redbox_runner, kind: str):
    async def refuse(event):
        raise Reject("never", kind="no")

    def refuse_plainly(event):
        raise Reject("never", kind="no")

    def gives_a_refusal(event):
        return refuse(event)

    function = {"async": refuse, "plain": refuse_plainly, "awaitable": gives_a_refusal}[kind]
    async with opened(function) as publisher:
        with pytest.raises(Reject, match="never"):
            await publisher.publish(new_claim())
        assert [type(each) for each in await publisher.publish_many([new_claim()] * 2)] == [Reject, Reject]


async def test_a_function_that_returns_a_generator_fails(redbox_runner):
    for inner in (yields_plainly, yields):
        async with opened(lambda event, inner=inner: inner(event)) as publisher:
            with pytest.raises(TypeError, match="must not yield"):
                await publisher.publish(new_claim())


async def test_an_async_function_is_awaited_directly(redbox_runner):
    async with opened(one) as publisher:
        coroutine = publisher.publish(new_claim())
        assert coroutine.cr_code is one.__code__
        await coroutine


@pytest.mark.req("PC-3")
async def test_threads_of_cancelled_calls_count_against_the_limit(redbox_runner):
    """Functions that hang keep their slot, so that threads do not accumulate with each attempt."""
    leave, running, most = threading.Event(), 0, 0
    lock = threading.Lock()

    def hang(event):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        leave.wait(30)
        with lock:
            running -= 1

    async with opened(hang, concurrency="2") as publisher:
        try:
            for _ in range(4):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await asyncio.gather(*(publisher.publish(new_claim()) for _ in range(3)))
            assert most == 2
        finally:
            leave.set()
        async with asyncio.timeout(20):
            await asyncio.gather(*(publisher.publish(new_claim()) for _ in range(20)))
        await until(lambda: running == 0, "threads of cancelled calls do not end")
        assert most == 2


# --- by name ---------------------------------------------------------------------------------------------------

MODULE = """
from redbox.publishers.null import NullPublisher
called = []
def publish(event): called.append(event)
class Shop:
    async def publish(self, event): called.append(event)
shop = Shop()
ready = NullPublisher()
number = 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "redbox_shop").mkdir()
    (tmp_path / "redbox_shop" / "__init__.py").write_text("")
    (tmp_path / "redbox_shop" / "events.py").write_text(MODULE)
    (tmp_path / "redbox_shop" / "broken.py").write_text("import redbox_nothing")
    (tmp_path / "redbox_shop" / "wrong.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    for name in [name for name in sys.modules if name.startswith("redbox_shop")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("path", ["publish", "shop.publish"])
async def test_a_function_by_name(redbox_runner, module: None, path: str):
    claim = new_claim()
    async with opened(f"python:redbox_shop.events:{path}", concurrency=2) as publisher:
        await publisher.publish(claim)
    assert sys.modules["redbox_shop.events"].called == [claim.event]
    for name in [name for name in sys.modules if name.startswith("redbox_shop")]:
        del sys.modules[name]


def test_a_publisher_by_name(module: None):
    assert isinstance(open_publisher("python:redbox_shop.events:ready"), NullPublisher)
    with pytest.raises(UsageError, match="takes no options"):
        open_publisher("python:redbox_shop.events:ready", concurrency=2)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("python:", "write python:module:function"),
        ("python:redbox_shop.events", "write python:module:function"),
        ("python:redbox_shop.events:", "write python:module:function"),
        ("python:a/b.py:f", "write python:module:function"),
        ("python:redbox_nothing:f", "there is no module redbox_nothing"),
        ("python:redbox_shop.nothing:f", r"there is no module redbox_shop\.nothing"),
        ("python:redbox_shop.broken:f", "cannot be imported: No module named 'redbox_nothing'"),
        ("python:redbox_shop.wrong:f", "cannot be imported: ZeroDivisionError"),
        ("python:redbox_shop.events:nothing", "has no nothing"),
        ("python:redbox_shop.events:shop.nothing", r"has no shop\.nothing"),
        ("python:redbox_shop.events:number", "is of type int, not a function"),
        ("python:redbox_shop.events:Shop", "is a class"),
    ],
)
def test_invalid_names_are_refused(module: None, url: str, message: str):
    with pytest.raises(UsageError, match=message):
        open_publisher(url)


def test_a_publisher_is_returned_unchanged():
    publisher: Publisher = NullPublisher()
    assert open_publisher(publisher) is publisher
    with pytest.raises(UsageError, match="options are for URLs"):
        open_publisher(publisher, concurrency=1)
    with pytest.raises(UsageError, match="a function has no option 'x'; it has concurrency"):
        open_publisher(plain, x=1)
    assert issubclass(InvalidURL, UsageError)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (str.upper, "str.upper"),
        (dict.get, "dict.get"),
        (list.append, "list.append"),
        ([].append, "list.append"),
        (print, "builtins.print"),
        (functools.partial([].append), "list.append"),
    ],
)
def test_builtin_functions_have_a_name(function: Any, name: str):
    assert open_publisher(function).target == f"the function {name}"
