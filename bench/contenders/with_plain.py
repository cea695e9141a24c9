"""Plain Redis Streams with redis-py: the baseline for everything that acknowledges.

Variants: `coalesced` sends the puts of one turn of the event loop as one pipeline; `xdel` also removes acknowledged
entries, as a queue would; `set` writes one key per event, without a stream.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from contender import BATCH, TASKS, Contender, Figures, Handle, main
from redis.asyncio import Redis
from server import Stopwatch, by_phase

STREAM, GROUP, CONSUMER = "stream", "group", "consumer"


class Plain(Contender):
    libraries = ("redis", "hiredis", "uvloop")

    async def open(self) -> None:
        self.redis = Redis.from_url(self.url, max_connections=TASKS + 10)
        self._numbers = itertools.count()
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._flusher: asyncio.Task[None] | None = None
        if self.variant == "coalesced":
            self.put = self._put_coalesced  # type: ignore[method-assign]
        elif self.variant == "set":
            self.put = self._set  # type: ignore[method-assign]

    async def close(self) -> None:
        await self.redis.aclose()

    async def put(self, payload: bytes) -> None:
        await self.redis.xadd(STREAM, {"payload": payload})

    async def put_many(self, payloads: Sequence[bytes]) -> None:
        pipeline = self.redis.pipeline(transaction=False)
        for payload in payloads:
            pipeline.xadd(STREAM, {"payload": payload})
        await pipeline.execute()

    async def consume(self, handle: Handle) -> None:
        await self.redis.xgroup_create(STREAM, GROUP, "0", mkstream=True)
        while True:
            entries = await self._read(block=1000)
            for _, fields in entries:
                handle(fields[b"payload"])
            if entries:
                await self._acknowledge([entry_id for entry_id, _ in entries])

    async def server_cpu(self, events: int) -> Figures:
        """The server's CPU time by phase, 500 events at a time."""
        with Stopwatch(self.url) as put:
            await self._fill(events)
        await self.redis.xgroup_create(STREAM, GROUP, "0")
        with Stopwatch(self.url) as claim:
            batches = [[entry_id for entry_id, _ in await self._read()] for _ in range(events // BATCH)]
        with Stopwatch(self.url) as ack:
            for ids in batches:
                await self._acknowledge(ids)
        return by_phase(events, put=put, claim=claim, ack=ack)

    async def _read(self, block: int | None = None) -> list[Any]:
        reply: Any = await self.redis.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=BATCH, block=block)
        if not reply:
            return []
        entries: list[Any] = reply[STREAM.encode()][0] if isinstance(reply, dict) else reply[0][1]
        return entries

    async def _acknowledge(self, ids: list[bytes]) -> None:
        if self.variant == "xdel":
            pipeline = self.redis.pipeline(transaction=False)
            pipeline.xack(STREAM, GROUP, *ids)
            pipeline.xdel(STREAM, *ids)
            await pipeline.execute()
        else:
            await self.redis.xack(STREAM, GROUP, *ids)

    async def _set(self, payload: bytes) -> None:
        await self.redis.set(f"event:{next(self._numbers)}", payload)

    async def _put_coalesced(self, payload: bytes) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((payload, answer))
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush())
        await answer

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            await self.put_many([payload for payload, _ in batch])
            for _, answer in batch:
                answer.set_result(None)
        self._flusher = None


if __name__ == "__main__":
    main(Plain)
