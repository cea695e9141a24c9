"""streaQ: a hundred tasks at once, without results."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from contender import TASKS, Contender, Handle, main
from streaq import Worker


class Streaq(Contender):
    libraries = ("streaq", "coredis", "uvloop")

    async def open(self) -> None:
        self.worker, self.task = self._worker(lambda _: None)
        self._open = AsyncExitStack()
        await self._open.enter_async_context(self.worker)

    async def close(self) -> None:
        await self._open.aclose()

    async def put(self, payload: bytes) -> None:
        await self.task.enqueue(payload)

    async def put_many(self, payloads: Sequence[bytes]) -> None:
        await self.worker.enqueue_many([self.task.enqueue(payload) for payload in payloads])

    async def consume(self, handle: Handle) -> None:
        worker, _ = self._worker(handle)
        await worker.run_async()

    def _worker(self, handle: Handle) -> tuple[Worker[Any], Any]:
        worker: Worker[Any] = Worker(redis_url=self.url, concurrency=TASKS, handle_signals=False)

        async def work(payload: bytes) -> None:
            handle(payload)

        return worker, worker.task(name="handle", ttl=0)(work)


if __name__ == "__main__":
    main(Streaq)
