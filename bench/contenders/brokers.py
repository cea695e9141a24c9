"""What contenders publish to on each broker: a durable queue, a stream with file storage, and a topic."""

from __future__ import annotations

EXCHANGE, QUEUE, STREAM, TOPIC = "events", "events", "events", "events"


async def prepare(kind: str, url: str) -> None:
    """Makes it, if the broker does not do that by itself."""
    if kind == "rabbitmq":
        import aio_pika

        async with await aio_pika.connect(url) as connection, connection.channel() as channel:
            exchange = await channel.declare_exchange(EXCHANGE, durable=True)
            queue = await channel.declare_queue(QUEUE, durable=True)
            await queue.bind(exchange, QUEUE)
    elif kind == "nats":
        import nats

        client = await nats.connect(url)
        await client.jetstream().add_stream(name=STREAM, subjects=[f"{STREAM}.>"])
        await client.close()
