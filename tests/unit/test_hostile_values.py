"""Invalid values for every argument of every public call: it works, or raises a RedboxError with a message."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from redbox import Backoff, Box, Breaker, Event, RedboxError, Reject, Relay, RetryLater, Unavailable
from redbox import open_publisher as open_any_publisher
from redbox.box.operate import Operate
from redbox.sync import Box as SyncBox

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("redbox_runner")]

LONE = "caf\udce9"  # how Python decodes an argument that is not UTF-8


class Tagged(msgspec.Struct, tag=LONE):
    pass


class Untagged(msgspec.Struct):
    pass


VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**70, 10**400, -1.5, 0.0, 1.5, math.nan, math.inf, -math.inf, 1e308,
    "", " ", "x", "1", "nan", LONE, "\ud800", "a\x00b", "a\nb", "a\tb", "\u2028", "x" * 300, "ü" * 70_000, "skip",
    "DEAD", b"", b"x", b"\xff", bytearray(b"x"), [], ["x"], [1], [LONE], [None], [b"x"], ["x"] * 2000, (), {},
    {"x": "y"}, {1: 2}, {"x": LONE}, {LONE: "x"}, {"x": None}, set(), {"x"}, frozenset({1}), object(), str, 1j,
    range(3),
    timedelta.max, timedelta.min, timedelta(-1), timedelta(0), timedelta(seconds=1), timedelta(days=9999),
    datetime.max, datetime.min, datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC),
    datetime(2030, 1, 1), Event("a"), [Event("a")], Tagged(), Untagged(), ValueError("x"), ValueError(LONE), ValueError,
)  # fmt: skip

FILTERS = ["state", "event_type", "key", "error", "since", "until", "text"]
Call = Callable[..., Any]


def parameters(function: Call) -> list[str]:
    """Returns the names of the arguments; the filters of a page are those of a listing."""
    found = [each for each in inspect.signature(function).parameters.values() if each.name not in ("self", "cls")]
    names = [each.name for each in found if each.kind is not each.VAR_KEYWORD]
    if len(names) < len(found):
        names += FILTERS
    return names


def _can_be_shown(text: str) -> bool:
    return len(text) < 1000 and text.encode(errors="ignore").decode() == text


async def complaints(call: Call, good: dict[str, Any], names: list[str]) -> list[str]:
    """Returns the calls that raised a foreign exception, or one without a message."""
    found = []
    for name in names:
        for value in VALUES:
            try:
                result = call(**{**good, name: value})
                if inspect.isawaitable(result):
                    async with asyncio.timeout(10):
                        await result
            except RedboxError as error:
                if not str(error).strip() or not _can_be_shown(str(error)):
                    found.append(f"{name}={value!r:.60}: {type(error).__name__} says {error}")
            except Exception as error:
                found.append(f"{name}={value!r:.60}: {type(error).__name__}: {error}"[:300])
    return found


# --- what is made without a store --------------------------------------------------------------------------------


async def test_event(redbox_box: Box):
    async def put(**fields: Any) -> None:
        event = Event(**fields)
        await redbox_box.put(event, on_conflict="skip")
        async with redbox_box.transaction() as tx:
            tx.put(Event(**{**fields, "event_id": "other"}))

    assert await complaints(put, {"event_type": "a", "event_id": "e"}, list(Event.__struct_fields__)) == []


@pytest.mark.parametrize(
    "make", [Backoff.exponential, Backoff.fixed, Backoff, Breaker], ids=lambda make: make.__qualname__
)
async def test_policies(make: Call):
    good: dict[str, Any] = {"delay": 1} if make == Backoff.fixed else {"delay": lambda *_: 1} if make is Backoff else {}
    assert await complaints(make, good, [name for name in parameters(make) if name != "clock"]) == []


async def test_the_result_of_a_custom_policy():
    assert await complaints(lambda value: Backoff(lambda *_: value)(Event("a"), 1, ValueError()), {}, ["value"]) == []


@pytest.mark.parametrize("error", [Reject, RetryLater, Unavailable])
async def test_what_publishers_raise(error: type[RedboxError]):
    good = {"delay": 1} if error is RetryLater else {}

    def make(**arguments: Any) -> None:
        str(error(**arguments))

    assert await complaints(make, good, parameters(error.__init__)) == []


async def test_relay(redbox_box: Box):
    good = {"box": redbox_box, "publish": "null:"}
    names = parameters(Relay)
    assert await complaints(Relay, good, names) == []
    assert await complaints(Relay, {**good, "dead_to": "null:"}, ["dead_options"]) == []
    assert await complaints(Relay, {**good, "alerts_to": "null:"}, ["alerts_options", "alert_age"]) == []
    assert (
        await complaints(lambda value: Relay(redbox_box, "https://x", options={"timeout": value}), {}, ["value"]) == []
    )


async def test_publishers():
    assert await complaints(open_any_publisher, {}, ["target"]) == []
    targets = {
        "https://host/": ("cloudevents", "source", "secret", "authorization", "timeout", "max_connections"),
        "redis+stream://host/0/stream": ("maxlen", "max_connections"),
        "nats://host/x": (
            "stream", "msg_id", "source", "user", "password", "token", "credentials", "ca_file", "cert_file",
            "key_file", "inbox_prefix",
        ),
        "kafka://host/x": ("source", "timeout", "linger.ms", "sasl.password", "ssl.ca.location", "colour"),
    }  # fmt: skip
    for target, options in targets.items():
        assert await complaints(open_any_publisher, {"target": target}, list(options)) == []
    assert await complaints(open_any_publisher, {"target": print}, ["concurrency"]) == []


# --- the box -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Box, SyncBox])
async def test_open(kind: Any):
    assert await complaints(kind.open, {"url": "memory:"}, ["url", "name", "client", "durability", "max_payload"]) == []
    assert await complaints(kind.open, {}, ["client"]) == []


GOOD: dict[str, Any] = {
    "event": Event("a"), "events": [Event("a")], "event_id": "x", "relay": "relay-1", "ids": ["x"], "who": "ada",
    "why": "test", "instance": "i", "about": {"host": "h"}, "fresh": 1.0, "field": "type", "action": "kill",
    "detail": "d", "group": "g",
}  # fmt: skip
#: What relays use among themselves, what takes no arguments, and `list`, which is asked below.
OTHERS = {
    "aclose", "can_end_wait", "end_wait", "wait_for_hint", "unpack", "claim_packed",
    "exists", "list", "name", "names", "open", "settings", "stats", "transaction", "where", "operate",
    "check_durability",
}  # fmt: skip
METHODS = sorted(name for name in dir(Box) if not name.startswith("_") and name not in OTHERS)
ACTIONS = sorted(name for name in dir(Operate) if not name.startswith("_"))


def required(function: Call) -> dict[str, Any]:
    found = inspect.signature(function).parameters.values()
    return {each.name: GOOD[each.name] for each in found if each.default is each.empty and each.name in GOOD}


@pytest.mark.parametrize("name", METHODS)
async def test_box(redbox_box: Box, name: str):
    method = getattr(redbox_box, name)
    good = required(method)
    if name == "replay":
        good = {"ids": ["x"]}
        assert await complaints(method, {}, FILTERS) == []
    if "claims" in inspect.signature(method).parameters:
        await redbox_box.put_many([Event("a") for _ in range(3)])
        good["claims"] = await redbox_box.claim("relay-1")
    assert await complaints(method, good, parameters(method)) == []


@pytest.mark.parametrize("name", ACTIONS)
async def test_operate(redbox_box: Box, name: str):
    method = getattr(redbox_box.operate, name)
    names = [
        each
        for each in parameters(method)
        if each not in ("state", "event_type", "key", "error", "since", "until", "text")
    ]
    if name == "configure":
        names += list((await redbox_box.settings()).__struct_fields__)
    chosen = {"ids": ["x"]} if name == "apply" else {}
    assert await complaints(method, required(method) | chosen, names) == []
    assert await redbox_box.operate.log() is not None


async def test_list_and_transaction(redbox_box: Box):
    async def listed(**filters: Any) -> None:
        async with aclosing(redbox_box.list(**filters)) as found:
            async for _ in found:
                break

    async def transacted(event: Any = GOOD["event"], durability: Any = None, key: Any = "x") -> None:
        async with redbox_box.transaction(durability=durability) as tx:
            tx.put(event)
            tx.key(key)

    await redbox_box.put(Event("a"))
    assert await complaints(listed, {}, parameters(Box.list)) == []
    assert await complaints(transacted, {}, ["event", "durability", "key"]) == []


def test_the_box_for_code_that_is_not_async():
    with SyncBox.open("memory:") as box:
        good = {"put": {"event": Event("a")}, "put_many": {"events": [Event("a")]}, "get": {"event_id": "x"}}
        for name, arguments in good.items():
            method = getattr(box, name)
            assert asyncio.run(complaints(method, arguments, parameters(method))) == []
        names = parameters(Box.list)
        assert asyncio.run(complaints(lambda **filters: list(box.list(**filters)), {}, names)) == []
        assert asyncio.run(complaints(box.count, {}, names)) == []
        assert asyncio.run(complaints(box.replay, {"ids": ["x"]}, parameters(Box.replay))) == []

        def transacted(event: Any = GOOD["event"], durability: Any = None, key: Any = "x") -> None:
            with box.transaction(durability=durability) as tx:
                tx.put(event)
                tx.key(key)

        assert asyncio.run(complaints(transacted, {}, ["event", "durability", "key"])) == []
