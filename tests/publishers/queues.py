"""A queue of RabbitMQ, and how a consumer reads events from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiormq
from pamqp.commands import Basic

from redbox.ids import new_id
from redbox.testing.publisher_contract import Arrived


class Queue:
    """A durable queue, bound to a durable topic exchange of the same name; it gets every event."""

    def __init__(self, channel: Any, name: str) -> None:
        self.exchange = self.name = name
        self.messages: list[Any] = []
        self._channel = channel

    async def arrived(self) -> list[Arrived]:
        """All events so far."""
        await self.read()
        return [read_message(message) for message in self.messages]

    async def read(self) -> None:
        while isinstance((message := await self._channel.basic_get(self.name, no_ack=True)).delivery, Basic.GetOk):
            self.messages.append(message)
            if message.delivery.message_count == 0:
                break

    async def declare(self, **arguments: Any) -> None:
        await self._channel.exchange_declare(self.exchange, exchange_type="topic", durable=True)
        await self._channel.queue_declare(self.name, durable=True, arguments=arguments)
        await self._channel.queue_bind(self.name, self.exchange, "#")

    async def delete(self) -> None:
        await self._channel.queue_delete(self.name)
        await self._channel.exchange_delete(self.exchange)


def read_message(message: Any) -> Arrived:
    properties = message.header.properties
    headers = dict(properties.headers)
    everything = repr([(name, getattr(properties, name)) for name in properties.attributes()]).encode()
    key = headers.pop("redbox-partition-key", None)
    return Arrived(
        properties.message_id, properties.message_type, message.body, headers, key, everything + message.body
    )


@asynccontextmanager
async def shop_queue(
    port: int, name: str | None = None, *, keep: bool = False, **arguments: Any
) -> AsyncIterator[Queue]:
    """A queue, by default a new one, which is deleted in the end. `arguments` are those of the queue, with _ for -."""
    connection = await aiormq.connect(f"amqp://guest:guest@127.0.0.1:{port}/")
    try:
        queue = Queue(await connection.channel(), name or f"shop/{new_id()}")
        await queue.declare(**{name.replace("_", "-"): value for name, value in arguments.items()})
        yield queue
        if not keep:
            await queue.delete()
    finally:
        await connection.close()
