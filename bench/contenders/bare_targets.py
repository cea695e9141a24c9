"""The client of each target in a loop of its own: batches whose acknowledgements are awaited together.

The headers are like redbox's, so that messages have the same size.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from brokers import EXCHANGE, QUEUE, STREAM, TOPIC, prepare
from contender import BATCH, BYTES, TASKS, Contender, Figures, main
from posts import HEADERS
from server import Stopwatch

PAYLOAD = b"x" * BYTES
#: Publishes this many events, and returns when all are acknowledged.
Publish = Callable[[int], Awaitable[None]]


class Client(Contender):
    libraries = ("aio-pika", "nats-py", "confluent-kafka", "aiohttp", "uvloop")

    async def targets(self, events: int) -> Figures:
        await prepare(self.variant, self.target)
        figures: Figures = await getattr(self, self.variant)(events)
        return figures

    async def rabbitmq(self, events: int) -> Figures:
        import aio_pika

        async with await aio_pika.connect(self.target) as connection, connection.channel() as channel:
            exchange = await channel.get_exchange(EXCHANGE)

            def message() -> aio_pika.Message:
                return aio_pika.Message(
                    PAYLOAD, headers=dict(HEADERS), message_id=str(uuid.uuid4()), delivery_mode=2, type="user.created"
                )

            async def publish(count: int) -> None:
                await asyncio.gather(*(exchange.publish(message(), QUEUE, mandatory=True) for _ in range(count)))

            return await self._measure(events, publish)

    async def nats(self, events: int) -> Figures:
        import nats

        client = await nats.connect(self.target)
        stream = client.jetstream(publish_async_max_pending=BATCH)

        async def publish(count: int) -> None:
            acks = [
                await stream.publish_async(
                    f"{STREAM}.user.created", PAYLOAD, headers={**HEADERS, "Nats-Msg-Id": str(uuid.uuid4())}
                )
                for _ in range(count)
            ]
            await asyncio.gather(*acks)

        try:
            return await self._measure(events, publish)
        finally:
            await client.close()

    async def kafka(self, events: int) -> Figures:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": urlsplit(self.target).netloc,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
            }
        )
        headers = [(name, value.encode()) for name, value in HEADERS.items()]

        async def publish(count: int) -> None:
            failed = []
            for _ in range(count):
                producer.produce(
                    TOPIC, PAYLOAD, headers=headers, on_delivery=lambda error, _: error and failed.append(error)
                )
            producer.flush(30)
            assert not failed, failed[0]

        return await self._measure(events, publish)

    async def http(self, events: int) -> Figures:
        import aiohttp

        connector = aiohttp.TCPConnector(limit=TASKS)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

            async def post(_: object) -> None:
                async with session.post(self.target, data=PAYLOAD, headers=HEADERS) as response:
                    await response.read()
                    assert response.status == 204

            self.put = post  # type: ignore[method-assign]

            async def publish(count: int) -> None:
                await self._by_tasks([PAYLOAD] * count)

            return await self._measure(events, publish, events)

    async def _measure(self, events: int, publish: Publish, batch: int = BATCH) -> Figures:
        await publish(BATCH)  # connects
        with Stopwatch(self.url) as watch:
            for start in range(0, events, batch):
                await publish(min(batch, events - start))
        return watch.per(events)


if __name__ == "__main__":
    main(Client)
