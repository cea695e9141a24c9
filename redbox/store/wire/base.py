"""One exchange with the server that holds a box: commands out, replies in, on one connection.

redis-py's retries are left out, since repeating a claim or a settlement would be wrong. What may be repeated is decided
above, in the store.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Protocol

import anyio
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from redbox.store.attempt import SharedAttempt
from redbox.store.errors import MOVED_UNDER_SCRIPT
from redbox.store.wire.multiplexer import Command, Lines, NotConnected, Wait, Way, pack

Talk = Callable[[Sequence[Command]], Awaitable[list[Any]]]
HERE: Final = ""  # where the only line of a single server leads
READ_TIMEOUT: Final = 5.0  # seconds; redis-py's own default
REDIRECTS: Final = 8
REDIRECT_PAUSE: Final = 0.05


#: A command answered with one of these was not run: it may be sent again, elsewhere or later.
_REDIRECTIONS: Final = (MovedError, AskError, TryAgainError, ClusterDownError)


def redirection(replies: Sequence[Any]) -> Exception | None:
    """The reply that sends us elsewhere, or asks us to come back later."""
    for reply in replies:
        if isinstance(reply, _REDIRECTIONS) or (isinstance(reply, ResponseError) and MOVED_UNDER_SCRIPT in str(reply)):
            return reply
    return None


class Wire(Protocol):
    """A way to the server, or the node of a cluster, that holds a key."""

    #: Whether the server understands the `#!lua` line of a script.
    shebang: bool

    async def exchange(self, key: str, commands: Sequence[Command], wait: Wait | None = None) -> list[Any]:
        """Sends the commands on one connection and returns a reply for each; an error reply is returned as its
        exception, a broken connection is raised. `wait`: one of them may block, so nobody else may be behind it."""

    async def can_end_wait(self, key: str) -> bool:
        """Whether a wait can be ended early."""

    def session(self, key: str) -> AbstractAsyncContextManager[Talk]:
        """One connection for several exchanges, as a transaction needs; redirections are the caller's to follow."""

    async def follow(self, redirect: Exception) -> None:
        """Learns from a redirection where the slot is now."""

    async def scan(self, pattern: str) -> list[bytes]:
        """Every key of the server, or of all nodes, that matches."""

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """Lets go of a wire whose event loop is closed."""

    @property
    def read_timeout(self) -> float | None:
        """How long a reply may take, in seconds."""


@asynccontextmanager
async def connecting(limit: float | None = None) -> AsyncIterator[None]:
    """Tells a failure to connect, which sent nothing, from one that came later. It takes at most `limit` seconds."""
    try:
        async with asyncio.timeout(limit):
            yield
    except (AuthenticationError, BusyLoadingError):
        raise
    except (ConnectionError, TimeoutError, OSError, RedisClusterException) as error:
        raise NotConnected(str(error) or "no connection in time") from error


async def talk(connection: Any, commands: Sequence[Command]) -> list[Any]:
    """Writes commands to a connection and reads a reply for each. A connection left with unread replies is closed."""
    packed = pack(commands)
    try:
        await connection.send_packed_command(packed, check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response())
            except ResponseError as error:
                replies.append(error)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await connection.disconnect(nowait=True)
        raise
    if any(isinstance(reply, ReadOnlyError) for reply in replies):
        await connection.disconnect()  # after a failover: the next connection finds the new master
    return replies


class SingleWire:
    """One server, or the master that sentinels name, or an in-memory stand-in.

    Almost everything goes over one line; what blocks has a line of its own. A session gets a connection from redis-py's
    pool.

    `preparing` is how many seconds may pass before the pool begins to connect, because it asks sentinels or waits for a
    free connection; `math.inf` for no limit. Connecting may take the read timeout in addition.
    """

    def __init__(
        self,
        client: Redis,
        *,
        shebang: bool = True,
        on_close: Callable[[], Any] | None = None,
        preparing: float = 0.0,
    ) -> None:
        self._client = client
        self._on_close = on_close
        self._preparing = preparing
        self._lines = Lines()
        self._way = Way(HERE, self._connect, self._release)
        self._lineless = False  # an in-memory stand-in has no socket
        self.shebang = shebang

    @asynccontextmanager
    async def session(self, key: str) -> AsyncIterator[Talk]:  # noqa: ARG002  # one server holds every key
        try:
            connection = await self._connect()
            try:
                yield partial(talk, connection)
            finally:
                with anyio.CancelScope(shield=True):  # a cancelled caller must not cost the pool a connection
                    await self._release(connection)
        except (ConnectionError, OSError):
            await self._revive()
            raise

    async def _connect(self) -> Any:
        limit = None if self.read_timeout is None else self._preparing + self.read_timeout
        async with connecting(None if limit == math.inf else limit):
            return await self._client.connection_pool.get_connection()

    async def _release(self, connection: Any) -> None:
        await self._client.connection_pool.release(connection)

    async def _revive(self) -> None:
        """After a broken connection: where the server is ours, it is started again if it is gone."""

    async def can_end_wait(self, key: str) -> bool:  # noqa: ARG002  # one server holds every key
        return await self._lines.can_end_wait(self._way)

    async def exchange(self, key: str, commands: Sequence[Command], wait: Wait | None = None) -> list[Any]:
        if not self._lineless:
            try:
                replies = await self._lines.exchange(self._way, commands, wait)
            except (ConnectionError, OSError):
                await self._revive()
                raise
            if replies is not None:
                return replies
            self._lineless = True
        async with self.session(key) as say:
            return await say(commands)

    async def follow(self, redirect: Exception) -> None:
        raise redirect  # one server never redirects

    async def scan(self, pattern: str) -> list[bytes]:
        return [key async for key in self._client.scan_iter(match=pattern, count=1000)]

    async def close(self) -> None:
        await self._lines.close()
        if self._on_close is not None:
            await self._on_close()

    def abandon(self) -> None:
        self._lines.abandon()

    @property
    def read_timeout(self) -> float | None:
        return self._client.connection_pool.connection_kwargs.get("socket_timeout", READ_TIMEOUT)  # type: ignore[no-any-return]


class ClusterWire:
    """The node of a cluster that serves a key's slot; follows the slot when it moves."""

    shebang = True

    def __init__(self, client: RedisCluster, *, on_close: Callable[[], Any] | None = None) -> None:
        self._client = client
        self._on_close = on_close
        self._lines = Lines()
        self._stale = False
        self._refreshing = SharedAttempt()

    async def _refresh(self) -> None:
        if not self._stale and not getattr(self._client, "_initialize", True):
            return
        # Time to ask a second node, if the first is frozen.
        limit = None if self.read_timeout is None else 2 * self.read_timeout
        async with self._refreshing.turn(), connecting(limit):
            await self._client.initialize()
            if self._stale:
                await self._client.nodes_manager.initialize()
                self._stale = False

    async def can_end_wait(self, key: str) -> bool:
        await self._refresh()
        return await self._lines.can_end_wait(self._way(key))

    async def exchange(self, key: str, commands: Sequence[Command], wait: Wait | None = None) -> list[Any]:
        await self._refresh()
        for _ in range(REDIRECTS):
            replies = await self._over_line(key, commands, wait)
            redirect = redirection(replies)
            if redirect is None:
                break
            await self.follow(redirect)
        return replies

    async def follow(self, redirect: Exception) -> None:
        """Goes where a finished move went. While a slot is moving, a box is on two nodes and whole on neither: ASK is
        not followed, we wait until the move is done."""
        if isinstance(redirect, MovedError):  # which redis-py derives from AskError
            await self._client.nodes_manager.move_slot(redirect)
        else:
            await asyncio.sleep(REDIRECT_PAUSE)
            async with connecting(self.read_timeout):
                await self._client.nodes_manager.initialize()

    @asynccontextmanager
    async def session(self, key: str) -> AsyncIterator[Talk]:
        await self._refresh()
        async with self._connection(key) as connection:
            yield partial(talk, connection)

    def _way(self, key: str) -> Way:
        node = self._node(key)

        async def release(connection: Any) -> None:
            node.release(connection)

        return Way(node.name, partial(self._connect, node), release)

    async def _over_line(self, key: str, commands: Sequence[Command], wait: Wait | None) -> list[Any]:
        way = self._way(key)
        try:
            replies = await self._lines.exchange(way, commands, wait)
        except (ConnectionError, TimeoutError, OSError):
            self._stale = True
            raise
        assert replies is not None, "a node of a cluster has a socket"
        return replies

    def _node(self, key: str) -> Any:
        try:
            node = self._client.get_node_from_key(key)
        except RedisClusterException as error:
            self._stale = True
            raise NotConnected(str(error)) from error
        if node is None:
            raise NotConnected("no node of the cluster serves this box's slot")
        return node

    async def _connect(self, node: Any) -> Any:
        async with connecting():
            connection = node.acquire_connection()
        try:
            with suppress(ConnectionError):  # unread data or a closed socket: start afresh, as redis-py's own pool does
                if connection.is_connected and await connection.can_read():
                    await connection.disconnect()
            async with connecting(self.read_timeout):
                await connection.connect()
        except BaseException:
            node.release(connection)
            raise
        return connection

    @asynccontextmanager
    async def _connection(self, key: str) -> AsyncIterator[Any]:
        node = self._node(key)
        try:
            connection = await self._connect(node)
            try:
                yield connection
            finally:
                node.release(connection)
        except (ConnectionError, TimeoutError, OSError):
            self._stale = True
            raise

    async def scan(self, pattern: str) -> list[bytes]:
        await self._refresh()
        return [key async for key in self._client.scan_iter(match=pattern, count=1000)]

    async def close(self) -> None:
        await self._lines.close()
        if self._on_close is not None:
            await self._on_close()

    def abandon(self) -> None:
        self._lines.abandon()

    @property
    def read_timeout(self) -> float | None:
        return self._client.connection_kwargs.get("socket_timeout", READ_TIMEOUT)  # type: ignore[no-any-return]
