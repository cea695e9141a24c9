"""How many events per second does a relay publish to RabbitMQ, compared with a bare aio-pika loop?

`python -m bench.amqp [EVENTS] [ROUNDS]`; needs redis-server, rabbitmq-server and aio-pika. Both run in turn against the
same broker, with the same 512-byte events, persistent, to the same kind of durable queue, each confirmed. The bare loop
is 100 tasks, as many events as a relay has in flight by default; each task publishes one event after another.
"""

from __future__ import annotations

import asyncio
import sys
import time
from urllib.parse import quote

import aio_pika

from redbox import Box, Event, Relay
from redbox.events import Claim
from redbox.publishers.base import passed_on
from redbox.testing.claims import new_claim
from redbox.testing.plugin import new_box_name
from tests.publishers.queues import shop_queue
from tests.rabbitmq import broker
from tests.servers import redis_server

PAYLOAD = bytes(512)
TASKS = 100


async def bare_rate(port: int, events: int) -> float:
    """Events per second of a loop of aio-pika with as many events in flight as a relay."""
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")
    async with shop_queue(port) as queue, connection, connection.channel(on_return_raises=True) as channel:
        exchange = await channel.get_exchange(queue.exchange)
        claims = iter([new_claim(PAYLOAD) for _ in range(events)])

        async def loop() -> None:
            for claim in claims:
                await _publish(exchange, claim)

        began = time.perf_counter()
        await asyncio.gather(*(loop() for _ in range(TASKS)))
        return events / (time.perf_counter() - began)


async def _publish(exchange: aio_pika.abc.AbstractExchange, claim: Claim) -> None:
    message = aio_pika.Message(
        claim.event.payload,
        headers=dict(passed_on(claim)),
        content_type="application/octet-stream",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=claim.event_id,
        timestamp=claim.created_at,
        type=claim.event.event_type,
    )
    await exchange.publish(message, claim.event.event_type, mandatory=True)


async def relay_rate(port: int, redis_url: str, events: int) -> float:
    """Events per second of a relay with its defaults, from the first claim to the last acknowledgement."""
    async with shop_queue(port) as queue, Box.open(redis_url, name=new_box_name()) as box:
        for at in range(0, events, 500):
            await box.put_many([Event("user.created", PAYLOAD) for _ in range(min(500, events - at))])
        relay = Relay(box, f"amqp://127.0.0.1:{port}/%2F/{quote(queue.exchange, safe='')}")
        began = time.perf_counter()
        summary = await relay.drain()
        took = time.perf_counter() - began
        assert summary.published == events, summary
        return events / took


def main(events: int = 10_000, rounds: int = 3) -> None:
    with broker() as rabbitmq, redis_server(appendonly="yes", appendfsync="everysec") as redis:
        bare, relay = [], []
        for _ in range(rounds):
            bare.append(asyncio.run(bare_rate(rabbitmq.port, events)))
            relay.append(asyncio.run(relay_rate(rabbitmq.port, redis.url, events)))
            print(f"bare aio-pika {bare[-1]:8,.0f}/s   relay {relay[-1]:8,.0f}/s   {relay[-1] / bare[-1]:.2f}")
        print(f"best of {rounds}: {max(bare):,.0f}/s and {max(relay):,.0f}/s, ratio {max(relay) / max(bare):.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
