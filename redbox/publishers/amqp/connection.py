"""One connection to a broker, with one channel in confirm mode."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from aiormq import Connection
from aiormq.channel import Channel
from aiormq.connection import TransportFactory
from aiormq.exceptions import ChannelInvalidStateError
from yarl import URL

from redbox.publishers.amqp.answers import Refusals, problem_of, waits
from redbox.publishers.amqp.messages import Message

CLOSE_SECONDS: Final = 2.0
DRAIN_BYTES: Final = 64 * 1024  # sent before the next event waits until the socket has taken them
_DISCARD: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time

BLOCKED: Final = "the broker accepts no events at present: it is low on memory or disk, and has blocked the connection"


class _Transport(TransportFactory):
    """Opens the socket and keeps it, so that a broker that does not answer cannot delay the end of a connection."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **_: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self._writer = await asyncio.open_connection(url.host, url.port, ssl=self._context)
        return reader, self._writer

    @property
    def unsent(self) -> int:
        """Bytes that this process still holds."""
        return 0 if self._writer is None else self._writer.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Closes the socket. Bytes that the broker has not received yet are discarded, also by the system."""
        if self._writer is None:
            return
        opened = self._writer.get_extra_info("socket")
        if opened is not None:  # TLS has none any more when it is closed
            with suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
        self._writer.transport.abort()


class BrokerConnection:
    """Sends messages, and waits for the answer to each. Never repeats one.

    A publish is never cancelled: aiormq would leave its confirm behind, and fail if the broker returned the event.
    """

    def __init__(self, url: URL, vhost: str, context: ssl.SSLContext | None, refusals: Refusals) -> None:
        self._transport = _Transport(context)
        self._connection = Connection(url, transport_factory=self._transport)
        self._connection.vhost = vhost  # not from the URL, where aiormq decodes it twice
        self._channel: Channel | None = None
        self._unconfirmed: set[asyncio.Task[Any]] = set()
        self._refusals = refusals
        self._unsent = 0  # bytes since the last wait for the socket

    @property
    def is_ready(self) -> bool:
        """Whether events can be sent. When the broker closes the channel, because of one event, the connection is not
        used any more: frames that aiormq has queued for the old channel would make the broker close it, too."""
        return self._connection.is_opened and self._channel is not None and not self._channel.is_closed

    @property
    def frame_max(self) -> int:
        """The most bytes of a frame; 0 for no limit."""
        return self._connection.connection_tune.frame_max or 0

    async def open(self) -> None:
        await self._connection.connect()
        channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        assert isinstance(channel, Channel)
        self._channel = channel

    async def is_blocked(self) -> bool:
        """Whether the broker has said that it reads no events for now."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await self._connection.ready()
            return False
        return True

    async def publish(self, exchange: str, messages: Sequence[Message], seconds: float) -> list[BaseException | None]:
        """Sends messages in order. Returns an outcome for each when all are answered, or after `seconds`."""
        channel = self._channel
        assert channel is not None
        outcomes: list[BaseException | None] = [None] * len(messages)
        sent: dict[asyncio.Task[Any], int] = {}
        for place, message in enumerate(messages):
            self._unsent += len(message.body) + 512  # and the properties
            wait = self._unsent > DRAIN_BYTES
            if wait:
                self._unsent = 0
            call = channel.basic_publish(
                message.body,
                exchange=exchange,
                routing_key=message.routing_key,
                properties=message.properties,
                mandatory=True,
                wait=wait,
            )
            task = asyncio.ensure_future(call)
            task.add_done_callback(self._answered)
            sent[task] = place
        if not sent:  # `wait` refuses an empty set
            return outcomes
        self._unconfirmed.update(sent)
        _, unconfirmed = await asyncio.wait(sent, timeout=seconds)
        late = await self._late(seconds) if unconfirmed else ""
        for task, place in sent.items():
            if task in unconfirmed:
                outcomes[place] = waits(late, messages[place])
            else:
                outcomes[place] = self._outcome(task, channel, messages[place])
        return outcomes

    async def _late(self, seconds: float) -> str:
        """Ends the wait for answers, and says why there are none.

        Only a connection that is known to be blocked is kept, so that later events are not sent. One that has not sent
        all events is closed: it would send them when the broker goes on.
        """
        if await self.is_blocked():
            if self._transport.unsent:
                self.abort()
            return BLOCKED
        self.abort()
        return f"the broker has not confirmed the event within {seconds:g} s"

    def _answered(self, task: asyncio.Task[Any]) -> None:
        self._unconfirmed.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, also if nobody waits for it any more

    def _outcome(self, task: asyncio.Task[Any], channel: Channel, message: Message) -> BaseException | None:
        # aiormq cancels it with the channel or the connection
        error = _reason_of_closing(channel) if task.cancelled() else task.exception()
        if error is None:
            return None
        if isinstance(error, ChannelInvalidStateError):  # not sent, because the channel was closed before
            error = _reason_of_closing(channel)
        self._refusals.learn(error, message.routing_key)
        return problem_of(error, message)

    def abort(self) -> None:
        """Ends the connection at once. Events without an answer are unavailable."""
        self._transport.abort()

    async def aclose(self) -> None:
        """Closes the connection in agreement with the broker, within two seconds."""
        # A broker that reads nothing would hold up the last bytes for ever; a cancelled close would wait for them too.
        limit = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self.abort)
        try:
            with suppress(Exception):
                await self._connection.close()
        finally:
            limit.cancel()
            self.abort()
        if self._unconfirmed:
            await asyncio.wait(self._unconfirmed, timeout=CLOSE_SECONDS)


def _reason_of_closing(channel: Channel) -> BaseException:
    closing = channel.closing
    found = closing.exception() if closing.done() and not closing.cancelled() else None
    return found if isinstance(found, Exception) else ConnectionError()  # it may be closed by a cancelled task
