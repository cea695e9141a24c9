"""`amqp://user:password@host:port/vhost/exchange`: one message per event, acknowledged by the broker's confirm."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any, ClassVar, Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote

from aiormq.exceptions import AMQPError, InvalidFrameError
from yarl import URL

from redbox.arguments import invalid, number, text, whole_number
from redbox.errors import InvalidURL, NotPublished, Unavailable
from redbox.events import Claim
from redbox.publishers.amqp.answers import Refusals
from redbox.publishers.amqp.connection import BLOCKED, BrokerConnection
from redbox.publishers.amqp.messages import (
    DEFAULT_ROUTING_KEY,
    PERSISTENT,
    TRANSIENT,
    Message,
    message_of,
    routing_key_of,
)
from redbox.publishers.base import Publisher, closed, not_open
from redbox.publishers.options import parse_flag, parse_number
from redbox.publishers.redaction import redactor
from redbox.urls import QUOTING, problem, read_host, read_url

URL_KIND: Final = "a valid amqp:// URL"
FORM: Final = "the URL of an exchange is amqp://user:password@host:port/vhost/exchange, with %2F for the vhost /"
PORTS: Final = {"amqp": 5672, "amqps": 5671}
DEFAULT_LOGIN: Final = "guest"
TIMEOUT: Final = 10.0
HEARTBEAT: Final = 10
CONNECT_SECONDS: Final = 5.0


class AMQPPublisher(Publisher):
    """Publishes to an exchange, many events in flight on one channel. Reconnects for the next attempt, never within
    one."""

    many: ClassVar[int] = 500

    def __init__(
        self,
        url: str,
        *,
        routing_key: str | None = None,
        persistent: bool | str = True,
        timeout: float | str = TIMEOUT,
        heartbeat: int | str = HEARTBEAT,
        ca_file: str | None = None,
    ) -> None:
        parts = read_url(url, URL_KIND)
        self._scheme = parts.scheme.lower()
        self._vhost, self._exchange = _read_path(parts)
        query = parse_qsl(parts.query, keep_blank_values=True)
        if [name for name, _ in query] not in ([], ["routing_key"]):
            raise problem(URL_KIND, "routing_key is the only option after the ?")
        template = routing_key if routing_key is not None else dict(query).get("routing_key", DEFAULT_ROUTING_KEY)
        self._routing_key = routing_key_of(template)
        self._delivery_mode = PERSISTENT if parse_flag("persistent", persistent) else TRANSIENT
        self._timeout = number("timeout", parse_number(timeout))
        if self._timeout <= 0:
            raise invalid("timeout", "must be more than 0 seconds")
        self._heartbeat = whole_number("heartbeat", parse_number(heartbeat), 0, 3600)
        self._tls = _tls(self._scheme, ca_file)
        login, _, where = parts.netloc.rpartition("@")
        host, port = read_host(where, PORTS[self._scheme], URL_KIND)
        if not host:
            raise InvalidURL(FORM)
        user, _, password = login.partition(":")
        self._redact = redactor([unquote(password)])
        self._url = URL.build(
            scheme=self._scheme,
            host=host,
            port=port,
            user=unquote(user) or DEFAULT_LOGIN,
            password=unquote(password) or DEFAULT_LOGIN,
            query={"heartbeat": self._heartbeat, "name": "redbox"},
        )
        self._target = f"{self._scheme}://{where}/{quote(self._vhost, safe='')}/{quote(self._exchange, safe='')}"
        self._refusals = Refusals()
        self._is_open = False
        self._connection: BrokerConnection | None = None
        self._opening: asyncio.Task[BrokerConnection] | None = None
        self._calls: set[asyncio.Task[Any]] = set()

    @property
    def target(self) -> str:
        return self._target

    async def open(self, box: str) -> None:
        self._url = self._url.update_query(name=f"redbox {box}")
        self._connection = self._opening = None  # those of another event loop cannot be used
        self._is_open = True

    async def aclose(self) -> None:
        self._is_open = False
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()
        if self._calls:
            await asyncio.wait(self._calls)

    async def publish(self, claim: Claim) -> None:
        (problem,) = await self.publish_many((claim,))
        if problem is not None:
            raise problem

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        if not self._is_open:
            raise not_open()
        # A cancelled caller leaves; the call itself goes on for at most the time limit, so that each confirm finds the
        # publish that it belongs to.
        call = asyncio.ensure_future(self._publish(claims))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return await asyncio.shield(call)

    async def _publish(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        outcomes: list[BaseException | None] = [None] * len(claims)
        if not claims:
            return outcomes
        try:
            connection = await self._ready()
        except NotPublished as error:
            return [error] * len(claims)
        messages: dict[int, Message] = {}
        for place, claim in enumerate(claims):
            try:
                message = message_of(
                    claim, self._routing_key(claim), delivery_mode=self._delivery_mode, frame_max=connection.frame_max
                )
                self._refusals.check(len(message.body), message.routing_key)
                messages[place] = message
            except NotPublished as error:
                outcomes[place] = error
        found = await connection.publish(self._exchange, list(messages.values()), self._timeout)
        for place, outcome in zip(messages, found, strict=True):
            outcomes[place] = outcome
        return outcomes

    async def _ready(self) -> BrokerConnection:
        """Returns the connection with an open channel. Calls that need a new one wait for the same attempt."""
        if not self._is_open:
            raise closed()
        connection = self._connection
        if connection is None or not connection.is_ready:
            if self._opening is None:
                self._opening = asyncio.ensure_future(self._open())
                self._opening.add_done_callback(self._opened)
            opening = self._opening
            await asyncio.wait([opening])
            if opening.cancelled():
                raise closed()
            connection = opening.result()
        if await connection.is_blocked():
            raise Unavailable(BLOCKED, excuse=True)
        return connection

    async def _open(self) -> BrokerConnection:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        connection = BrokerConnection(self._url, self._vhost, self._tls, self._refusals)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection.open()
        except TimeoutError:
            connection.abort()
            raise Unavailable(f"no connection to the broker within {CONNECT_SECONDS:g} s") from None
        except BaseException as error:
            connection.abort()
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Also a CancelledError: aiormq may cancel its own tasks, which must not look like a cancelled caller.
            raise Unavailable(self._redact(f"no connection to the broker: {self._reason(error)}")) from error
        self._connection = connection
        return connection

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, InvalidFrameError) and "Connection.OpenOk" in str(error):  # aiormq drops the answer itself
            return (
                f"it refused the vhost {self._vhost!r}: there is none of this name, the user has no access to it, or "
                "it has too many connections"
            )
        if isinstance(error, AMQPError):
            return str(error.args[-1]) if error.args else error.reason
        return str(error) or type(error).__name__

    def _opened(self, task: asyncio.Task[BrokerConnection]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # retrieved, also if every caller has left


def _read_path(parts: SplitResult) -> tuple[str, str]:
    """Returns vhost and exchange. As in all AMQP URLs, the first segment of the path is the vhost; / is written %2F, or
    left out."""
    segments = parts.path.split("/")[1:]
    if len(segments) > 2:
        raise problem(URL_KIND, f"{FORM}; {QUOTING}")
    vhost, exchange, *_ = (*map(unquote, segments), "", "")
    for each in (vhost, exchange):
        if len(each.encode(errors="replace")) > 255 or not each.isprintable():
            raise problem(URL_KIND, "vhost and exchange are names of at most 255 bytes")
    return vhost or "/", exchange


def _tls(scheme: str, ca_file: object) -> ssl.SSLContext | None:
    if scheme == "amqp":
        if ca_file is not None:
            raise invalid("ca_file", "is for amqps:// only")
        return None
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else text("ca_file", ca_file))
    except OSError as error:  # an SSLError is one
        raise invalid("ca_file", f"cannot be read: {error.strerror or error}") from None
