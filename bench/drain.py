"""How fast does one relay drain a box, beside a plain Redis Streams consumer? `python -m bench.drain [EVENTS]`

Each contender gets a fresh server with its append-only file on (`appendfsync everysec`) and payloads of 512 bytes. The
relay runs as by default, with its time limit, renewal, heartbeat and breaker, and a publisher that does nothing. The
best of several rounds counts, and what means something is the ratio: machines differ.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import redis.asyncio

from redbox import Box, Event, Relay
from tests.servers import redis_server

PAYLOAD = b"x" * 512
ROUNDS = 3
AT_ONCE = 500


async def streams(url: str, events: int) -> float:
    """XREADGROUP COUNT 500 and XACK, the floor under everything that acknowledges."""
    async with redis.asyncio.Redis.from_url(url) as client:
        for _ in range(0, events, AT_ONCE):
            pipeline = client.pipeline(transaction=False)
            for _ in range(AT_ONCE):
                pipeline.xadd("stream", {"payload": PAYLOAD})
            await pipeline.execute()
        await client.xgroup_create("stream", "group", "0")
        done, began = 0, time.perf_counter()
        while done < events:
            reply = await client.xreadgroup("group", "consumer", {"stream": ">"}, count=AT_ONCE)
            entries = reply[b"stream"][0] if isinstance(reply, dict) else reply[0][1]
            ids = [entry_id for entry_id, _ in entries]
            done += await client.xack("stream", "group", *ids)
        return events / (time.perf_counter() - began)


async def relay(url: str, events: int) -> float:
    """One relay process with an async function that does nothing."""

    left, done = events, asyncio.Event()

    async def publish(event: Event) -> None:  # noqa: ARG001
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async with Box.open(url, name="bench") as box:
        for _ in range(0, events, AT_ONCE):
            await box.put_many(Event("user.created", PAYLOAD) for _ in range(AT_ONCE))
        running = Relay(box, publish)
        began = time.perf_counter()
        async with running:
            await done.wait()
        assert running.summary().published == events  # settled too: leaving the block waits for it
        return events / (time.perf_counter() - began)


CONTENDERS: dict[str, Callable[[str, int], Awaitable[float]]] = {
    "plain Redis Streams": streams,
    "redbox relay": relay,
}


def main() -> None:
    events = int(sys.argv[1]) if sys.argv[1:] else 50_000
    best = dict.fromkeys(CONTENDERS, 0.0)
    for _ in range(ROUNDS):
        for name, run in CONTENDERS.items():
            with redis_server(appendonly="yes", appendfsync="everysec") as server:
                best[name] = max(best[name], asyncio.run(run(server.url, events)))
    for name, rate in best.items():
        print(f"{name:24}{rate:10,.0f} events/s{rate / best['plain Redis Streams']:8.0%}")


if __name__ == "__main__":
    main()
