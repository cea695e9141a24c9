"""`redis+stream://host:port/db/stream`: one entry per event, acknowledged by the entry's id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
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
from redbox.publishers.base import Publisher, passed_on
from redbox.publishers.options import from_text
from redbox.urls import option_problem, problem, read_host, read_url

WHAT: Final = "a valid redis+stream:// URL"
MAX_CONNECTIONS: Final = 16
CHUNK_BYTES: Final = 4 * 1024 * 1024

#: The server takes nothing from anybody at the moment.
_UNAVAILABLE: Final = (
    ConnectionError,
    TimeoutError,
    OSError,
    OutOfMemoryError,
    ReadOnlyError,
    ClusterDownError,
    TryAgainError,
)
_UNAVAILABLE_WORDS: Final = ("BUSY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "UNKILLABLE")
_NOT_LOGGED_IN: Final = "unauthenticated"  # of a longer command, the server reads no more than its length
_TOO_LARGE: Final = ("invalid bulk length", "string exceeds maximum allowed size")


class RedisStreamPublisher(Publisher):
    """Adds events to a stream, many in one round trip; redis-py's retries are off."""

    many: ClassVar[int] = 500

    def __init__(
        self, url: str, *, maxlen: int | str | None = None, max_connections: int | str = MAX_CONNECTIONS
    ) -> None:
        parts = read_url(url, WHAT)
        database, _, stream = parts.path.removeprefix("/").partition("/")
        query = dict(parse_qsl(parts.query))
        limit = query.pop("maxlen", None) if maxlen is None else maxlen
        try:
            where = parts.netloc.rpartition("@")[2]
            if not read_host(where, 6379, WHAT)[0] or not database.isdecimal() or not stream:
                raise InvalidURL("a stream is named by redis+stream://host:port/db/stream")
            server = f"{parts.scheme.partition('+')[0]}://{parts.netloc}/{database}?{urlencode(query)}"
            self._pool = ConnectionPool.from_url(
                server,
                retry=Retry(NoBackoff(), 0),
                max_connections=2**31,  # `_places` waits where the pool would raise
                protocol=2,  # nothing is pushed then, so that data on an idle connection means it is closed
            )
            self._pool.make_connection()  # so that a wrong option fails here
        except (ValueError, TypeError, RedisError) as error:
            if isinstance(error, UsageError):
                raise
            raise problem(WHAT, option_problem(error)) from None
        self._target = f"{parts.scheme}://{where}/{database}/{stream}"
        head: tuple[Any, ...] = ("XADD", unquote(stream).encode())
        if limit is not None:
            head += ("MAXLEN", "~", whole_number("maxlen", from_text(limit)))
        self._head = (*head, "*")
        self.calls_at_once = self._most = whole_number("max_connections", from_text(max_connections))
        self._places = asyncio.Semaphore(self._most)

    @property
    def target(self) -> str:
        return self._target

    async def open(self, box: str) -> None:  # noqa: ARG002  # the URL names the stream
        self._places = asyncio.Semaphore(self._most)
        self._pool.reset()  # connections of another event loop are of no use

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def publish(self, claim: Claim) -> None:
        (problem,) = await self.publish_many((claim,))
        if problem is not None:
            raise problem

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        outcomes: list[BaseException | None] = []
        commands = [(*self._head, *fields(claim)) for claim in claims]
        try:
            async with self._places:
                connection = await self._pool.get_connection()
                try:
                    for chunk in _chunks(commands):
                        await _add(connection, chunk, outcomes)
                finally:
                    with anyio.CancelScope(shield=True):  # a cancelled caller must not cost the pool a connection
                        await self._pool.release(connection)
        except (RedisError, OSError) as error:
            # Those that were answered are; of the rest nobody knows.
            outcomes += [_problem(error)] * (len(claims) - len(outcomes))
        return outcomes


def fields(claim: Claim) -> list[bytes]:
    """The names and values of an entry."""
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


def _chunks(commands: list[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Commands in the order they came, about as much at once as is worth holding in memory a second time."""
    chunk: list[tuple[Any, ...]] = []
    size = 0
    for command in commands:
        length = len(command[-1])
        if chunk and size + length > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(command)
        size += length
    if chunk:
        yield chunk


async def _add(connection: Any, commands: list[tuple[Any, ...]], outcomes: list[BaseException | None]) -> None:
    """Sends commands and appends an outcome for each reply. A connection left with unread replies is closed."""
    try:
        await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        for _ in commands:
            try:
                await connection.read_response()
            except ResponseError as error:
                outcomes.append(_problem(error))
                if isinstance(error, ReadOnlyError):
                    connection.mark_for_reconnect()  # after a failover the next connection finds the new master
            else:
                outcomes.append(None)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await connection.disconnect(nowait=True)
        raise


def _problem(error: Exception) -> NotPublished:
    """What redbox's errors call this one of redis-py or the server."""
    word = getattr(error, "status_code", None)
    words = f"{word} {safe_message(error)}" if word else safe_message(error) or type(error).__name__
    failure: NotPublished
    if isinstance(error, _UNAVAILABLE) or words.split(" ", 1)[0] in _UNAVAILABLE_WORDS or _NOT_LOGGED_IN in words:
        failure = Unavailable(words)
    elif any(text in words for text in _TOO_LARGE):
        failure = Reject(words, kind="too large")
    else:
        failure = NotPublished(words)
    failure.__cause__ = error
    return failure
