"""BullMQ's Python package with a pooled client: its default of one connection is much slower."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from bullmq import Queue, Worker
from contender import TASKS, Contender, Handle, main
from redis.asyncio import Redis

NAME = "bench"


class BullMQ(Contender):
    libraries = ("bullmq", "redis", "hiredis", "uvloop")
    takes = str

    async def open(self) -> None:
        self.redis = Redis.from_url(self.url, decode_responses=True, max_connections=2 * TASKS + 10)
        self.queue = Queue(NAME, {"connection": self.redis})

    async def close(self) -> None:
        await self.redis.aclose()

    async def put(self, payload: str) -> None:
        await self.queue.add("handle", {"payload": payload})

    async def put_many(self, payloads: Sequence[str]) -> None:
        await self.queue.addBulk([{"name": "handle", "data": {"payload": payload}} for payload in payloads])

    async def consume(self, handle: Handle) -> None:
        async def process(job: Any, token: str) -> None:  # noqa: ARG001  # it is called with both
            handle(job.data["payload"])

        # With a concurrency of 100, an idle worker asks for a hundred jobs whenever one arrives.
        places = 1 if self.question == "latency" else TASKS
        worker = Worker(NAME, process, {"connection": self.redis, "concurrency": places, "autorun": False})
        try:
            await worker.run()
        except asyncio.CancelledError:
            await worker.close(force=True)
            raise


if __name__ == "__main__":
    main(BullMQ)
