"""What a situation is, and the steps of several."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from redbox import Box, Breaker, Event, Relay, Situation, Unavailable
from redbox.testing.conformance.operations.steps import ADA
from redbox.testing.conformance.steps import expire

LIMIT: Final = 15.0


class Expected(msgspec.Struct):
    """An explanation: its situation, words of its sentences, and the beginnings of its commands."""

    situation: Situation
    words: tuple[str, ...]
    commands: tuple[str, ...] = ()
    event_id: str | None = "e"
    key: str | None = None
    unique_key: str | None = None


Scene = Callable[[Box, AsyncExitStack], Awaitable[Expected]]
SCENES: Final[dict[str, Scene]] = {}


def scene(make: Scene) -> Scene:
    SCENES[getattr(make, "__name__", "")] = make
    return make


def event(event_id: str = "e", **fields: Any) -> Event:
    return Event("order.paid", event_id=event_id, **fields)


async def alive(box: Box, name: str = "relay-1", **about: str) -> None:
    """A heartbeat, as a relay of this name would send it."""
    await box.beat(name, "1", {"host": "web-1", "target": "https://pay.example/", **about}, fresh=10)


async def seen(box: Box, condition: Callable[[Any], bool]) -> None:
    """Waits until the heartbeat of the only relay meets the condition."""
    async with asyncio.timeout(LIMIT):
        while not any(condition(relay) for relay in (await box.stats()).relays):  # noqa: ASYNC110  # in the store
            await asyncio.sleep(0.01)


async def block_lines(box: Box) -> None:
    await box.operate.configure(dead_head="block", **ADA)


async def make_suspect(box: Box, event_id: str = "e") -> None:
    await box.put(event(event_id))
    for _ in range(2):
        (claim,) = await box.claim("relay-1", limit=1, lease=10)
        assert claim.event_id == event_id
        await expire(box)


async def open_breaker(box: Box, stack: AsyncExitStack) -> None:
    """Runs a relay whose target is down, until its breaker is open."""

    async def down(_: Event) -> None:
        raise Unavailable("connection refused")

    breaker = Breaker(unavailable=2, pause=60, longest=60)
    await stack.enter_async_context(Relay(box, down, name="relay-1", breaker=breaker, beat_every=0.05))
    await box.put_many([event(f"tried-{n}") for n in range(9)])
    await seen(box, lambda relay: relay.breaker == "open")


def of_box(situation: Situation, *words: str, commands: tuple[str, ...] = ()) -> Expected:
    return Expected(situation, words, commands, event_id=None)
