"""Helpers of the relay's tests, and a target that the test controls."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from redbox import Box, Event, Record, Relay, State, Summary
from redbox.testing import check_invariants

LIMIT = 60.0  # seconds: on a busy machine everything takes long
OUTCOMES = ("published", "retried", "dead", "released", "fenced", "unsettled")


async def until(condition: Callable[[], Any | Awaitable[Any]], complaint: str, seconds: float = LIMIT) -> None:
    """Waits for a condition; fails with `complaint` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        held = condition()
        if inspect.isawaitable(held):
            held = await held
        if held:
            return
        assert time.monotonic() < deadline, f"{complaint} within {seconds:g} s"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def running(*relays: Relay) -> AsyncIterator[list[asyncio.Task[Summary]]]:
    """Runs relays during the block; after it they are stopped and must end."""
    tasks = [asyncio.create_task(relay.run()) for relay in relays]
    try:
        yield tasks
    finally:
        for relay in relays:
            relay.stop()
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*tasks)


async def drained(relay: Relay) -> Summary:
    """The summary of a drain, which must end in time."""
    async with asyncio.timeout(LIMIT):
        return await relay.drain()


async def put(box: Box, count: int, **fields: Any) -> list[str]:
    """Events named e0, e1, ... with their number as payload."""
    events = [Event("n", number, event_id=f"e{number}", **fields) for number in range(count)]
    return [receipt.event_id for receipt in await box.put_many(events)]


async def known(box: Box, event_id: str = "e0") -> Record:
    record = await box.get(event_id)
    assert record is not None, f"there is no event {event_id}"
    return record


async def states(box: Box) -> dict[State, int]:
    """The number of events in each state; also checks the invariants of the box."""
    assert await check_invariants(box) == []
    found: dict[State, int] = {}
    async for record in box.list():
        found[record.state] = found.get(record.state, 0) + 1
    return found


def adds_up(summary: Summary) -> bool:
    return summary.claimed == sum(getattr(summary, outcome) for outcome in OUTCOMES)


class Target:
    """Records the events it gets; the test can make it raise, or wait at a gate."""

    def __init__(self, *, raises: Callable[[Event], BaseException | None] | BaseException | None = None) -> None:
        self.raises = raises
        self.tried: list[str] = []
        self.taken: list[str] = []
        self.now = self.most = 0  # calls that overlap
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, event: Event) -> None:
        self.tried.append(event.event_id)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
            error = self.raises(event) if callable(self.raises) else self.raises
            if error is not None:
                raise error
            self.taken.append(event.event_id)
        finally:
            self.now -= 1

    async def has_tried(self, count: int) -> None:
        await until(lambda: len(self.tried) >= count, f"{count} events were not tried, but {len(self.tried)}")

    async def has_taken(self, count: int) -> None:
        await until(lambda: len(self.taken) >= count, f"{count} events were not taken, but {len(self.taken)}")


def in_order(ids: Iterable[str], line: Callable[[str], Any]) -> bool:
    """Whether first deliveries are in the order of their numbers, line by line."""
    last: dict[Any, int] = {}
    for event_id in dict.fromkeys(ids):
        number = int(event_id[1:])
        if number < last.get(line(event_id), -1):
            return False
        last[line(event_id)] = number
    return True
