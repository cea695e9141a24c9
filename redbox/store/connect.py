"""Turns a URL, or a client of the application, into a wire. Nothing here does I/O before `open`."""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import SplitResult, unquote

import msgspec
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import BlockingConnectionPool, ConnectionPool, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from redbox.errors import InvalidURL, MissingExtra, RedboxError, UsageError
from redbox.store.wire.base import READ_TIMEOUT, Wire
from redbox.store.wire.cluster import ClusterWire
from redbox.store.wire.single import SingleWire
from redbox.urls import check_name, describe_url, option_problem, problem, read_host, read_url

SCHEMES: Final = (
    "redis://", "rediss://", "unix://", "redis+cluster://", "redis+sentinel://", "embedded:<dir>", "memory:",
)  # fmt: skip
_WHAT: Final = "a valid store URL"
_LOCAL: Final = ("embedded", "memory")
_REMOTE: Final = (
    "redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel",
)  # fmt: skip


class Endpoint(msgspec.Struct, frozen=True):
    """The server of a box: its description without secrets, and how to open a wire to it."""

    description: str
    open: Callable[[], Awaitable[Wire]]

    def __repr__(self) -> str:
        return f"Endpoint({self.description})"


def describe(url: str) -> str:
    """The URL without its secrets; an invalid one is not repeated."""
    try:
        return from_url(url).description
    except (RedboxError, OSError):  # such as a working directory that was removed
        return "the store"


def _scheme(url: str) -> tuple[str, str]:
    """The scheme, and the text after its colon."""
    scheme, _, rest = url.partition(":") if isinstance(url, str) else ("", "", "")
    if scheme not in _LOCAL and not (scheme in _REMOTE and rest.startswith("//")):
        raise InvalidURL(f"this is not a store URL; use one of {', '.join(SCHEMES)}")
    if scheme in _LOCAL:
        check_name(scheme, rest)
    return scheme, rest


def from_url(url: str) -> Endpoint:
    """The endpoint that a URL names; raises InvalidURL."""
    scheme, rest = _scheme(url)
    if scheme == "embedded":
        return _embedded(rest.removeprefix("//"))
    if scheme == "memory":
        return _memory(rest.removeprefix("//"))
    parts = read_url(url, _WHAT)
    try:
        if scheme in ("redis", "rediss", "unix"):
            return _single(url, parts)
        if scheme in ("redis+cluster", "rediss+cluster"):
            return _cluster(parts, tls=scheme.startswith("rediss"))
        return _sentinel(parts, tls=scheme.startswith("rediss"))
    except InvalidURL:
        raise
    except UsageError as error:  # an option that redbox cannot work with
        raise problem(_WHAT, error.message) from None
    except (ValueError, TypeError, RedisError) as error:
        raise problem(_WHAT, option_problem(error)) from None


def from_client(client: Any) -> Endpoint:
    """The endpoint of a redis-py client that belongs to the application; redbox never closes it."""
    if not isinstance(client, Redis | RedisCluster):
        raise UsageError(
            f"client must be a redis.asyncio client, not {type(client).__module__}.{type(client).__name__}"
        )
    _check_encoder(client)

    async def open_wire() -> Wire:
        if isinstance(client, RedisCluster):
            return ClusterWire(client)
        return SingleWire(client, shebang=not _is_fake(client), preparing=_preparing(client.connection_pool))

    return Endpoint(f"the application's {type(client).__name__} client", open_wire)


def _preparing(pool: ConnectionPool) -> float:
    """How many seconds an application's pool may take before it connects, by the application's own limits."""
    if isinstance(pool, SentinelConnectionPool):
        return math.inf  # its sentinels have time limits and retries of their own
    if isinstance(pool, BlockingConnectionPool):
        return math.inf if pool.timeout is None else pool.timeout
    return 0.0


def _check_encoder(client: Redis | RedisCluster) -> None:
    encoder = client.get_encoder()
    if encoder.decode_responses:
        raise UsageError(
            "this client decodes responses (decode_responses=True), and payloads are bytes; "
            "give redbox a client without it"
        )
    if encoder.encoding.lower().replace("-", "") != "utf8":
        raise UsageError(f"this client encodes text as {encoder.encoding}; give redbox one that uses UTF-8")


def _is_fake(client: Redis) -> bool:
    return any(cls.__module__.startswith("fakeredis") for cls in type(client).__mro__)


def _no_retry() -> Retry:
    return Retry(NoBackoff(), 0)


def _single(url: str, parts: SplitResult) -> Endpoint:
    if parts.scheme != "unix":
        read_host(parts.netloc.rpartition("@")[2], 6379, _WHAT)
        _database(parts.path.removeprefix("/"))  # redis-py takes 0 for anything that is not a number
    options: dict[str, Any] = {"retry": _no_retry(), "decode_responses": False}
    check = Redis.from_url(url, **options)  # so that an invalid URL fails here and not at the first put
    check.connection_pool.make_connection()
    _check_encoder(check)

    async def open_wire() -> Wire:
        client = Redis.from_url(url, **options)
        return SingleWire(client, on_close=client.aclose)

    return Endpoint(describe_url(parts), open_wire)


def _database(text: str) -> int:
    """The number of the database; the text is not repeated, since it may be part of a password."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise problem(_WHAT, "the database must be a whole number, such as redis://host:6379/0")
    return int(text)


def _hosts(netloc: str, default_port: int) -> list[tuple[str, int]]:
    hosts = []
    for part in netloc.rpartition("@")[2].split(","):
        host, port = read_host(part, default_port, _WHAT)
        if not host:
            raise problem(_WHAT, "a host is missing")
        hosts.append((host, port or default_port))
    return hosts


def _credentials(netloc: str) -> dict[str, Any]:
    userinfo, found, _ = netloc.rpartition("@")
    if not found:
        return {}
    user, _, password = userinfo.partition(":")
    return {"username": unquote(user) or None, "password": unquote(password) or None}


def _options(query: str) -> dict[str, Any]:
    """Options after the `?`, by redis-py's names and with its types."""
    options: dict[str, Any] = dict(parse_url(f"redis://localhost?{query}"))
    options.pop("host", None)
    Redis(**options).connection_pool.make_connection()  # so that an invalid one fails here
    return options


def _cluster(parts: SplitResult, *, tls: bool) -> Endpoint:
    hosts = _hosts(parts.netloc, 6379)
    if parts.path.strip("/") not in ("", "0"):
        raise problem(_WHAT, "a cluster has only database 0; leave it out")
    options = {**_credentials(parts.netloc), **_options(parts.query), **({"ssl": True} if tls else {})}

    async def open_wire() -> Wire:
        client = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in hosts], retry=_no_retry(), **options
        )
        return ClusterWire(client, on_close=client.aclose)

    return Endpoint(describe_url(parts), open_wire)


def _sentinel(parts: SplitResult, *, tls: bool) -> Endpoint:
    hosts = _hosts(parts.netloc, 26379)
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise problem(_WHAT, "the name of the service is missing: redis+sentinel://host:port/service/db")
    options = {**_credentials(parts.netloc), **_options(parts.query), **({"ssl": True} if tls else {})}
    db = _database(database)
    # Sentinels are asked one after the other: one that does not answer must leave time for the next.
    limit: float = options.get("socket_timeout", READ_TIMEOUT)
    asking = {"retry": _no_retry(), "socket_timeout": limit, "socket_connect_timeout": limit}

    async def open_wire() -> Wire:
        sentinel = Sentinel(hosts, sentinel_kwargs={**asking, **({"ssl": True} if tls else {})})
        client = sentinel.master_for(service, db=db, retry=_no_retry(), **options)

        async def close() -> None:
            await client.aclose()
            for one in sentinel.sentinels:
                await one.aclose()

        return SingleWire(client, on_close=close, preparing=len(hosts) * limit)

    return Endpoint(describe_url(parts), open_wire)


def _embedded(directory: str) -> Endpoint:
    if not directory:
        raise InvalidURL("embedded: names no directory; use embedded:./data")
    place = os.path.join(os.getcwd(), directory)  # now: the process may change its working directory
    try:
        os.fsencode(place)
    except ValueError:
        raise InvalidURL("embedded: does not name a directory that can exist") from None
    if "\0" in place:
        raise InvalidURL("embedded: does not name a directory that can exist")

    async def open_wire() -> Wire:
        from redbox.store.embedded.wire import EmbeddedWire  # needs flock, which not every platform has

        return await EmbeddedWire.open(place)

    return Endpoint(f"embedded:{directory}", open_wire)


_shared_memory: dict[str, Any] = {}


def _memory(name: str) -> Endpoint:
    try:
        from fakeredis import FakeAsyncRedis, FakeServer
    except ImportError as error:
        raise MissingExtra("memory:", "testing") from error
    server = _shared_memory.setdefault(name, FakeServer(version=(7,))) if name else FakeServer(version=(7,))

    async def open_wire() -> Wire:
        client = FakeAsyncRedis(server=server)
        return SingleWire(client, shebang=False, on_close=client.aclose)

    return Endpoint(f"memory:{name}", open_wire)
