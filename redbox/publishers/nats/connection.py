"""A connection to NATS that is used until it is lost: it neither reconnects nor buffers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final, NamedTuple

import anyio
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, SecureConnWantedError

from redbox.errors import NotPublished
from redbox.ids import new_id
from redbox.publishers.calls import Call
from redbox.publishers.nats.messages import Message
from redbox.publishers.nats.replies import answer, closed, logger, too_large, unanswered

CONNECT_SECONDS: Final = 5
CLOSE_SECONDS: Final = 2.0
PING_SECONDS: Final = 10  # a connection that no longer answers is closed after three of them
WARN_SECONDS: Final = 60.0

_publish_denied = re.compile(r'(?i)permissions violation for publish to "(.*)"').search
_subscription_denied = re.compile(r"(?i)permissions violation for subscription").search


class _Waiting(NamedTuple):
    """A message that was sent and is not acknowledged yet."""

    call: Call
    message: Message


class _Client(Client):
    """nats-py's client. It refuses to log in without TLS if the URL asks for TLS, and reports a lost connection at
    once: nats-py does not call its callback if the last write fails."""

    def __init__(self, connection: Connection, encrypted: bool) -> None:
        super().__init__()
        self._owner = connection
        self._encrypted = encrypted

    def _connect_command(self) -> bytes:
        if self._encrypted and not self._server_info.get("tls_required"):
            raise SecureConnWantedError
        return super()._connect_command()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        self._owner.lose(self.last_error)
        await super()._close(status, do_cbs)

    def abort(self) -> None:
        """Drops the connection. Closing it waits for a peer that may never read."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    @property
    def has_jetstream(self) -> bool:
        """What the server says about itself; another server of its cluster may have JetStream."""
        return bool(self._server_info.get("jetstream"))


class Connection:
    """A connection with an inbox for acknowledgements. Once it is lost, it is not used again."""

    def __init__(self, inbox_prefix: str, redact: Callable[[str], str], *, encrypted: bool) -> None:
        self._redact = redact
        self._client = _Client(self, encrypted)
        self._inbox = f"{inbox_prefix}.{new_id()}"
        self._numbers = count(1)
        self._waiting: dict[str, _Waiting] = {}
        self._lost = False
        self._last_problem: Exception | None = None
        self._warned = float("-inf")

    @property
    def is_usable(self) -> bool:
        return not self._lost and self._client.is_connected

    async def connect(self, options: dict[str, Any]) -> None:
        """Connects and subscribes to the inbox. Raises Unavailable."""
        try:
            await self._client.connect(
                **options,
                name="redbox",
                error_cb=self._on_error,
                allow_reconnect=False,
                max_reconnect_attempts=1,  # of the first connection: 0 would mean to try forever
                reconnect_time_wait=0,
                connect_timeout=CONNECT_SECONDS,
                ping_interval=PING_SECONDS,
                pending_size=0,  # nothing is kept for a later connection, and no write waits
            )
            await self._client.subscribe(f"{self._inbox}.*", cb=self._on_reply)
        except BaseException as error:
            await self.close()
            if not isinstance(error, Exception):
                raise
            why = self._last_problem or error
            if isinstance(why, ConnectionResetError | BrokenPipeError):  # its reason may have been cut off
                why = ConnectionResetError(f"{why}; the server closed the connection during the login")
            raise closed(why, self._redact) from error

    async def close(self) -> None:
        """Closes the connection, within two seconds."""
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
            await self._client.close()
        self._client.abort()

    async def send(
        self, messages: Sequence[Message], outcomes: list[BaseException | None], *, deadline: float, seconds: float
    ) -> None:
        """Sends messages and sets an outcome for each. Returns when each is acknowledged or has failed, at the
        `deadline` on the event loop's clock at the latest: `seconds` after the call began to send."""
        limit = self._client.max_payload
        fitting = [message for message in messages if message.size <= limit]
        for message in messages:
            if message.size > limit:
                outcomes[message.place] = too_large(message, limit)
        if not fitting:
            return
        call = Call(outcomes, len(fitting))
        tokens: list[str] = []
        try:
            for message in fitting:
                token = str(next(self._numbers))
                tokens.append(token)
                self._waiting[token] = _Waiting(call, message)
                try:
                    await self._client.publish(
                        message.subject, message.payload, f"{self._inbox}.{token}", message.headers
                    )
                except (Error, OSError) as error:
                    self._settle([token], closed(error, self._redact))
            await asyncio.wait([call.done], timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
            for token, message in zip(tokens, fitting, strict=True):
                self._settle([token], unanswered(message, seconds))
        finally:
            for token in tokens:
                self._waiting.pop(token, None)

    def lose(self, why: Exception | None) -> None:
        """Fails the messages that wait: their acknowledgements will not arrive."""
        self._lost = True
        self._settle(list(self._waiting), closed(why, self._redact))

    def _settle(self, tokens: Iterable[str], outcome: NotPublished | None) -> None:
        for token in tokens:
            waiting = self._waiting.pop(token, None)
            if waiting is not None:
                waiting.call.settle(waiting.message.place, outcome)

    async def _on_reply(self, reply: Msg) -> None:
        token = reply.subject.rpartition(".")[2]
        waiting = self._waiting.get(token)
        if waiting is None:
            return
        found = answer(reply, waiting.message, has_jetstream=self._client.has_jetstream)
        if found.duplicate and waiting.message.attempts == 1:
            self._warn(waiting.message)
        self._settle([token], found.outcome)

    def _warn(self, message: Message) -> None:
        """Says, at most once a minute, that a stream discarded an event that was never sent before."""
        now = anyio.current_time()
        if now >= self._warned + WARN_SECONDS:
            self._warned = now
            logger.warning(
                "the stream of subject %s already held a message with the id of this event, and stored no second one. "
                "If another box publishes the same events to this stream, give each box its own msg_id",
                message.subject,
                extra={"event_id": message.headers["ce-id"]},
            )

    async def _on_error(self, error: Exception) -> None:
        """Called by nats-py for errors that belong to no call."""
        self._last_problem = error
        found = str(error)
        if denied := _publish_denied(found):
            refused = [
                token for token, each in self._waiting.items() if each.message.subject.lower() == denied[1].lower()
            ]
            self._settle(refused, NotPublished(self._redact(f"NATS: {found.removeprefix('nats: ')}")))
        elif _subscription_denied(found):
            self.lose(error)  # no acknowledgement can arrive
            await self.close()
