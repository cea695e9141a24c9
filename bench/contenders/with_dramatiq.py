"""dramatiq uses threads: a hundred threads put, and 32 handle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import dramatiq
from contender import TASKS, Contender, Handle, main
from dramatiq.brokers.redis import RedisBroker

THREADS = 32


class Dramatiq(Contender):
    libraries = ("dramatiq", "redis", "hiredis")
    takes = str

    async def open(self) -> None:
        self.broker = RedisBroker(url=self.url)
        dramatiq.set_broker(self.broker)
        self.handle: Handle = lambda _: None

        def work(payload: str) -> None:
            self.handle(payload)

        self.actor = dramatiq.actor(work, actor_name="handle", broker=self.broker)

    async def close(self) -> None:
        self.broker.close()
        self.broker.client.connection_pool.disconnect()

    async def put(self, payload: str) -> None:
        self.actor.send(payload)

    async def _by_tasks(self, payloads: Sequence[str]) -> None:
        left = iter(payloads)

        def work() -> None:
            for payload in left:
                self.actor.send(payload)

        with ThreadPoolExecutor(TASKS) as threads:
            for done in [threads.submit(work) for _ in range(TASKS)]:
                done.result()

    async def consume(self, handle: Handle) -> None:
        self.handle = handle
        worker = dramatiq.Worker(self.broker, worker_threads=THREADS)
        worker.start()
        try:
            await asyncio.Event().wait()
        finally:
            worker.stop(timeout=2000)


if __name__ == "__main__":
    main(Dramatiq)
