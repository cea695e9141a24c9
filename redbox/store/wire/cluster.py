"""The wire to a Redis Cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

from redis.asyncio import RedisCluster
from redis.exceptions import ConnectionError, MovedError, RedisClusterException, TimeoutError

from redbox.store.attempt import SharedAttempt
from redbox.store.wire.base import (
    READ_TIMEOUT,
    BlockingWait,
    Command,
    NotConnected,
    Talk,
    connecting,
    redirection,
    talk,
)
from redbox.store.wire.multiplexer import Connector, Multiplexers

REDIRECTS: Final = 8
REDIRECT_PAUSE: Final = 0.05


class ClusterWire:
    """The node of a cluster that serves a key's slot; follows the slot when it moves."""

    shebang = True

    def __init__(self, client: RedisCluster, *, on_close: Callable[[], Any] | None = None) -> None:
        self._client = client
        self._on_close = on_close
        self._multiplexers = Multiplexers()
        self._stale = False  # the map of slots to nodes
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
        return await self._multiplexers.can_end_wait(self._connector(key))

    async def exchange(self, key: str, commands: Sequence[Command], wait: BlockingWait | None = None) -> list[Any]:
        await self._refresh()
        for _ in range(REDIRECTS):
            replies = await self._exchange_once(key, commands, wait)
            redirect = redirection(replies)
            if redirect is None:
                break
            await self.follow(redirect)
        return replies

    async def follow(self, redirect: Exception) -> None:
        """Follows a finished move of the slot. ASK is not followed: while a slot is moving, its box is on two nodes and
        complete on neither, so the caller tries again until the move is finished."""
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

    def _connector(self, key: str) -> Connector:
        node = self._node(key)

        async def release(connection: Any) -> None:
            node.release(connection)

        return Connector(node.name, partial(self._connect, node), release)

    async def _exchange_once(self, key: str, commands: Sequence[Command], wait: BlockingWait | None) -> list[Any]:
        connector = self._connector(key)
        try:
            replies = await self._multiplexers.exchange(connector, commands, wait)
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
            with suppress(ConnectionError):  # unread data or a closed socket: connect again, as redis-py's pool does
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
        await self._multiplexers.close()
        if self._on_close is not None:
            await self._on_close()

    def abandon(self) -> None:
        self._multiplexers.abandon()

    @property
    def losses(self) -> int:
        return self._multiplexers.losses

    @property
    def read_timeout(self) -> float | None:
        return self._client.connection_kwargs.get("socket_timeout", READ_TIMEOUT)  # type: ignore[no-any-return]
