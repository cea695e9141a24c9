"""SAQ: a hundred jobs at once."""

from __future__ import annotations

from typing import Any

from contender import TASKS, Contender, Handle, main
from redis.asyncio import Redis
from saq import Worker
from saq.queue.redis import RedisQueue


class Saq(Contender):
    libraries = ("saq", "redis", "hiredis", "uvloop")
    takes = str

    async def open(self) -> None:
        redis = Redis.from_url(self.url, max_connections=2 * TASKS + 10)
        self.queue = RedisQueue(redis, max_concurrent_ops=TASKS)
        await self.queue.connect()

    async def close(self) -> None:
        await self.queue.disconnect()

    async def put(self, payload: str) -> None:
        await self.queue.enqueue("handle", payload=payload)

    async def consume(self, handle: Handle) -> None:
        async def work(context: Any, *, payload: str) -> None:  # noqa: ARG001  # it is called with both
            handle(payload)

        await Worker(self.queue, [("handle", work)], concurrency=TASKS).start()


if __name__ == "__main__":
    main(Saq)
