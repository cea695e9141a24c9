"""`redis+stream://host:port/db/stream`: one entry per event, acknowledged by the id of the entry."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, unquote, urlencode

import anyio
from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterDownError,
    ConnectionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from redbox.arguments import safe_message, whole_number
from redbox.errors import InvalidURL, NotPublished, Reject, Unavailable, UsageError
from redbox.events import Claim
from redbox.publishers.base import Publisher, closed, not_open, passed_on
from redbox.publishers.calls import chunks
from redbox.publishers.options import parse_number
from redbox.urls import option_problem, problem, read_host, read_url

URL_KIND: Final = "a valid redis+stream:// URL"
MAX_CONNECTIONS: Final = 16
CHUNK_BYTES: Final = 4 * 1024 * 1024

#: The server accepts no writes at the moment.
_UNAVAILABLE: Final = (
    ConnectionError,
    TimeoutError,
    OSError,
    OutOfMemoryError,
    ReadOnlyError,
    ClusterDownError,
    TryAgainError,
)
_UNAVAILABLE_CODES: Final = ("BUSY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "UNKILLABLE")
_NOT_LOGGED_IN: Final = "unauthenticated"  # the server refuses a long command without a login by its length
_TOO_LARGE: Final = ("invalid bulk length", "string exceeds maximum allowed size")


class RedisStreamPublisher(Publisher):
    """Adds events to a stream, many in one round trip; redis-py's retries are off."""

    many: ClassVar[int] = 500

    def __init__(
        self, url: str, *, maxlen: int | str | None = None, max_connections: int | str = MAX_CONNECTIONS
    ) -> None:
        parts = read_url(url, URL_KIND)
        database, _, stream = parts.path.removeprefix("/").partition("/")
        query = dict(parse_qsl(parts.query))
        limit = query.pop("maxlen", None) if maxlen is None else maxlen
        try:
            where = parts.netloc.rpartition("@")[2]
            if not read_host(where, 6379, URL_KIND)[0] or not database.isdecimal() or not stream:
                raise InvalidURL("the URL of a stream is redis+stream://host:port/db/stream")
            server = f"{parts.scheme.partition('+')[0]}://{parts.netloc}/{database}?{urlencode(query)}"
            self._pool = ConnectionPool.from_url(
                server,
                retry=Retry(NoBackoff(), 0),
                max_connections=2**31,  # a full pool would raise; `_slots` waits instead
                protocol=2,  # no push messages, so that data on an idle connection means that it is closed
            )
            self._pool.make_connection()  # so that an invalid option fails here
        except (ValueError, TypeError, RedisError) as error:
            if isinstance(error, UsageError):
                raise
            raise problem(URL_KIND, option_problem(error)) from None
        self._target = f"{parts.scheme}://{where}/{database}/{stream}"
        head: tuple[Any, ...] = ("XADD", unquote(stream).encode())
        if limit is not None:
            head += ("MAXLEN", "~", whole_number("maxlen", parse_number(limit)))
        self._command_start = (*head, "*")
        self.calls_at_once = self._max_connections = whole_number("max_connections", parse_number(max_connections))
        self._slots = asyncio.Semaphore(self._max_connections)
        self._is_open = False

    @property
    def target(self) -> str:
        return self._target

    async def open(self, box: str) -> None:  # noqa: ARG002  # the URL names the stream
        self._slots = asyncio.Semaphore(self._max_connections)
        self._pool.reset()  # connections of another event loop cannot be used
        self._is_open = True

    async def aclose(self) -> None:
        self._is_open = False
        await self._pool.aclose()

    async def publish(self, claim: Claim) -> None:
        (problem,) = await self.publish_many((claim,))
        if problem is not None:
            raise problem

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        if not self._is_open:
            raise not_open()
        outcomes: list[BaseException | None] = []
        commands = [(*self._command_start, *entry_fields(claim)) for claim in claims]
        try:
            async with self._slots:
                if not self._is_open:
                    raise closed()
                connection = await self._pool.get_connection()
                try:
                    for chunk in chunks(commands, lambda command: len(command[-1]), CHUNK_BYTES):
                        if not self._is_open:  # redis-py would connect again
                            raise closed()
                        await _send(connection, chunk, outcomes)
                finally:
                    with anyio.CancelScope(shield=True):  # a cancelled caller must not cost the pool a connection
                        await self._pool.release(connection)
                        if not self._is_open:
                            await connection.disconnect(nowait=True)
        except Unavailable as error:
            outcomes += [error] * (len(claims) - len(outcomes))
        except (RedisError, OSError) as error:
            # Events with a reply are settled; the outcome of the others is unknown.
            outcomes += [_problem(error)] * (len(claims) - len(outcomes))
        return outcomes


def entry_fields(claim: Claim) -> list[bytes]:
    """Returns the field names and values of an entry."""
    event = claim.event
    payload, content_type = event.encode()
    found = [b"event_id", claim.event_id.encode(), b"event_type", event.event_type.encode()]
    found += [b"content_type", content_type.encode(), b"created_at", b"%d" % claim.created_ms]
    if event.partition_key is not None:
        found += [b"partition_key", event.partition_key.encode()]
    if event.ordering_key is not None:
        found += [b"ordering_key", event.ordering_key.encode()]
    for name, text in passed_on(claim).items():
        found += [f"header:{name}".encode(), text.encode()]
    found += [b"payload", payload]
    return found


async def _send(connection: Any, commands: list[tuple[Any, ...]], outcomes: list[BaseException | None]) -> None:
    """Sends commands and appends an outcome for each reply. Closes a connection that has unread replies left."""
    try:
        await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        for _ in commands:
            try:
                await connection.read_response()
            except ResponseError as error:
                outcomes.append(_problem(error))
                if isinstance(error, ReadOnlyError):
                    connection.mark_for_reconnect()  # the next connection finds the new master after a failover
            else:
                outcomes.append(None)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await connection.disconnect(nowait=True)
        raise


def _problem(error: Exception) -> NotPublished:
    """Converts an error of redis-py or the server."""
    code = getattr(error, "status_code", None)
    message = f"{code} {safe_message(error)}" if code else safe_message(error) or type(error).__name__
    failure: NotPublished
    if isinstance(error, _UNAVAILABLE) or message.split(" ", 1)[0] in _UNAVAILABLE_CODES or _NOT_LOGGED_IN in message:
        failure = Unavailable(message)
    elif any(text in message for text in _TOO_LARGE):
        failure = Reject(message, kind="too large")
    else:
        failure = NotPublished(message)
    failure.__cause__ = error
    return failure
