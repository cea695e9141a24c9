"""arq: a hundred jobs at once, without results. It polls: every half second by default, here faster when draining."""

from __future__ import annotations

from typing import Any

from arq import Worker, create_pool, func
from arq.connections import RedisSettings
from contender import TASKS, Contender, Handle, main


class Arq(Contender):
    libraries = ("arq", "redis", "hiredis", "uvloop")

    async def open(self) -> None:
        self.redis = await create_pool(RedisSettings.from_dsn(self.url))

    async def close(self) -> None:
        await self.redis.aclose()

    async def put(self, payload: bytes) -> None:
        await self.redis.enqueue_job("handle", payload)

    async def consume(self, handle: Handle) -> None:
        async def work(context: Any, payload: bytes) -> None:  # noqa: ARG001  # it is called with both
            handle(payload)

        worker = Worker(
            [func(work, name="handle")],
            redis_pool=self.redis,
            handle_signals=False,
            max_jobs=TASKS,
            keep_result=0,
            poll_delay=0.01 if self.question == "drain" else 0.5,
            log_results=False,
        )
        try:
            await worker.async_run()
        finally:
            await worker.close()


if __name__ == "__main__":
    main(Arq)
