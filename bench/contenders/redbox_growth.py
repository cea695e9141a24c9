"""The cost of put, claim and ack while a box grows, and beside many events that a relay must not touch.

Payloads have 16 bytes, so that millions fit into memory. Few enough events are measured that the server does not reach
the next power of two of its keys: there it doubles its key table, and a put costs up to twice as much meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from statistics import median
from typing import Any

from contender import BATCH, Figures, main
from server import Stopwatch
from with_redbox import Redbox

from redbox import Box, Event, keys

SIZES = (10_000, 100_000, 1_000_000, 5_000_000)
PAYLOAD = b"x" * 16
FILL = 1000  # events in one call
FILLERS = 3  # calls in flight
BATCHES = 1
REPEATS = 24
DRAINS = 4
CROWD = 100  # times as many as are drained
DAY = 86_400.0

Then = Callable[[int], Awaitable[None]]


class Growth(Redbox):
    patience = 280.0

    async def growth(self, events: int) -> Figures:
        """µs per event of put, and of claim and ack, in batches of 500, from 10 thousand pending events upwards.

        A small box on a second server is measured alternately, because a machine's speed drifts over minutes.
        """
        small = Box.open(self.beside, name="small")
        await _put(small, SIZES[0])
        steps: list[Figures] = []
        pending = 0
        for size in SIZES:
            if size > events:
                break
            await _put(self.box, size - pending)
            pending = size
            await asyncio.sleep(0.5)
            pairs = [(await _cost(self.url, self.box), await _cost(self.beside, small)) for _ in range(REPEATS)]
            steps.append(_step(size, pairs))
        await small.aclose()
        return {"steps": steps}

    async def crowded(self, events: int) -> Figures:
        """The rate of a drain beside many events that are `scheduled`, `dead` or `waiting`, and without them."""
        if self.variant == "scheduled":
            await _put(self.box, events, delay=DAY)
        elif self.variant == "dead":
            await _put(self.box, events, then=self._kill)
        elif self.variant == "waiting":
            await self.box.put(Event("small", PAYLOAD, ordering_key="blocked"))
            await self.box.claim("blocker", limit=1, lease=DAY)  # a claimed head blocks the others
            await _put(self.box, events, ordering_key="blocked")
        alone = copy(self)
        alone.url = self.beside
        await alone.open()
        drained = events // CROWD
        pairs = [((await self.drain(drained))["rate"], (await alone.drain(drained))["rate"]) for _ in range(DRAINS)]
        await alone.close()
        return {
            "rate": max(beside for beside, _ in pairs),
            "alone_rate": max(without for _, without in pairs),
            "ratio": round(median(beside / without for beside, without in pairs), 3),
        }

    async def _kill(self, count: int) -> None:
        await self.box.kill(await self.box.claim("killer", limit=count), reason="for the benchmark")


async def _put(box: Box, events: int, then: Then | None = None, **about: Any) -> None:
    """Puts many small events, with several calls in flight, and calls a function after each."""
    sizes = iter([FILL] * (events // FILL) + [events % FILL] * (events % FILL > 0))

    async def work() -> None:
        for size in sizes:
            await box.put_many([Event("small", PAYLOAD, **about) for _ in range(size)])
            if then:
                await then(size)

    await asyncio.gather(*(work() for _ in range(FILLERS)))


async def _plain(url: str, box: Box) -> Figures:
    """Writes the same keys with plain commands, in the same server and sorted set, and removes them again."""
    store, prefix, far = box._store, keys.prefix(box.name), 10**15  # noqa: SLF001  # behind the back of the box
    names = [f"{prefix}:plain:{number}" for number in range(BATCH)]
    commands: list[tuple[Any, ...]] = []
    for name in names:
        commands.append(("SET", f"{name}:b", PAYLOAD))
        commands.append(("HSET", f"{name}:e", "state", "PENDING", "event_type", "small", "created_at", far))
        commands.append(("ZADD", keys.pending(box.name), far, name))
    with Stopwatch(url) as plain:
        await store.exchange(commands)
    await store.exchange([("ZREM", keys.pending(box.name), *names)])
    await store.exchange([("UNLINK", f"{name}:b", f"{name}:e") for name in names])
    return {"plain_server_us": plain.per(BATCH)["server_us"]}


async def _cost(url: str, box: Box) -> Figures:
    events = BATCH * BATCHES
    batches = [[Event("small", PAYLOAD) for _ in range(BATCH)] for _ in range(BATCHES)]
    with Stopwatch(url) as put:
        for batch in batches:
            await box.put_many(batch)
    with Stopwatch(url) as claim_ack:
        for _ in range(BATCHES):
            claims = await box.claim("relay", limit=BATCH)
            assert len(claims) == BATCH
            await box.ack(claims)
    return {
        "put_us": round(put.seconds / events * 1e6, 2),
        "put_server_us": put.per(events)["server_us"],
        "claim_ack_us": round(claim_ack.seconds / events * 1e6, 2),
        "claim_ack_server_us": claim_ack.per(events)["server_us"],
        **await _plain(url, box),
    }


def _step(pending: int, pairs: list[tuple[Figures, Figures]]) -> Figures:
    """The cost in the large box, and its ratio to the cost in the small box a moment later."""
    figures = pairs[0][0]
    lowest = {name: min(large[name] for large, _ in pairs) for name in figures}
    times = {name: round(median(large[name] / small[name] for large, small in pairs), 3) for name in figures}
    return {"pending": pending, **lowest, "ratio": times}


if __name__ == "__main__":
    main(Growth)
