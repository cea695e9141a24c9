"""FastStream on Redis Streams: a subscriber per message, or with the variant `batch` one for lists of messages."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from contender import BATCH, TASKS, Contender, Handle, main
from faststream.redis import RedisBroker, StreamSub
from redis.asyncio import Redis

STREAM, GROUP = "stream", "group"


class FastStream(Contender):
    libraries = ("faststream", "redis", "hiredis", "uvloop")

    async def open(self) -> None:
        self.broker = RedisBroker(self.url, logger=None, max_connections=TASKS + 10)
        await self.broker.connect()
        self.redis = Redis.from_url(self.url)

    async def close(self) -> None:
        await self.broker.stop()
        await self.redis.aclose()

    async def put(self, payload: bytes) -> None:
        await self.broker.publish(payload, stream=STREAM)

    async def put_many(self, payloads: Sequence[bytes]) -> None:
        async with self.redis.pipeline(transaction=False) as pipeline:
            for payload in payloads:
                await self.broker.publish(payload, stream=STREAM, pipeline=pipeline)
            await pipeline.execute()

    async def consume(self, handle: Handle) -> None:
        await self.redis.xgroup_create(
            STREAM, GROUP, "0", mkstream=True
        )  # FastStream's own group would start at the end
        batch = self.variant == "batch"
        source = StreamSub(STREAM, group=GROUP, consumer="consumer", batch=batch, max_records=BATCH)

        async def one(message: bytes) -> None:
            handle(message)

        async def many(messages: list[bytes]) -> None:
            for message in messages:
                handle(message)

        self.broker.subscriber(stream=source)(many if batch else one)
        await self.broker.start()
        await anyio.sleep_forever()


if __name__ == "__main__":
    main(FastStream)
