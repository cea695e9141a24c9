"""taskiq on Redis Streams, its broker with acknowledgements: a hundred tasks at once, without results."""

from __future__ import annotations

from contender import TASKS, Contender, Handle, main
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker


class Taskiq(Contender):
    libraries = ("taskiq", "taskiq-redis", "redis", "hiredis", "uvloop")
    takes = str

    async def open(self) -> None:
        self.broker = RedisStreamBroker(self.url, consumer_id="0", max_connection_pool_size=2 * TASKS + 10)
        self.handle: Handle = lambda _: None

        async def work(payload: str) -> None:
            self.handle(payload)

        self.task = self.broker.register_task(work, task_name="handle")
        await self.broker.startup()

    async def close(self) -> None:
        await self.broker.shutdown()

    async def put(self, payload: str) -> None:
        await self.task.kiq(payload)

    async def consume(self, handle: Handle) -> None:
        self.handle = handle
        await run_receiver_task(self.broker, max_async_tasks=TASKS, max_prefetch=TASKS, validate_params=False)


if __name__ == "__main__":
    main(Taskiq)
