"""The wire to one server, to the master that sentinels name, or to an in-memory server."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
from redis.asyncio import Redis
from redis.exceptions import ConnectionError

from redbox.store.wire.base import (
    READ_TIMEOUT,
    BlockingWait,
    Command,
    Talk,
    cancellations,
    connecting,
    raise_cancellation,
    talk,
)
from redbox.store.wire.multiplexer import Connector, Multiplexers

ONLY_SERVER: Final = ""  # its address: there is no other


class SingleWire:
    """One server. Almost every exchange shares one connection; one that blocks has a connection of its own.

    A session takes a connection from redis-py's pool.

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
        self._multiplexers = Multiplexers()
        self._connector = Connector(ONLY_SERVER, self._connect, self._release)
        self._has_sockets = True  # an in-memory server has none
        self.shebang = shebang

    @asynccontextmanager
    async def session(self, key: str) -> AsyncIterator[Talk]:  # noqa: ARG002  # one server holds every key
        before = cancellations()
        try:
            connection = await self._connect()
            try:
                await raise_cancellation(before)
                yield partial(talk, connection)
            finally:
                with anyio.CancelScope(shield=True):  # a cancelled caller must not cost the pool a connection
                    await self._release(connection)
        except (ConnectionError, OSError) as error:
            await self._revive(error)
            raise

    async def _connect(self) -> Any:
        limit = None if self.read_timeout is None else self._preparing + self.read_timeout
        async with connecting(None if limit == math.inf else limit):
            return await self._client.connection_pool.get_connection()

    async def _release(self, connection: Any) -> None:
        await self._client.connection_pool.release(connection)

    async def _revive(self, error: Exception | None) -> None:
        """Called after a connection broke, or could not be made. An embedded server that has ended is started here."""

    async def can_end_wait(self, key: str) -> bool:  # noqa: ARG002  # one server holds every key
        return await self._multiplexers.can_end_wait(self._connector)

    async def exchange(self, key: str, commands: Sequence[Command], wait: BlockingWait | None = None) -> list[Any]:
        if self._has_sockets:
            try:
                replies = await self._multiplexers.exchange(self._connector, commands, wait)
            except (ConnectionError, OSError) as error:
                await self._revive(error)
                raise
            if replies is not None:
                return replies
            self._has_sockets = False
        async with self.session(key) as say:
            return await say(commands)

    async def follow(self, redirect: Exception) -> None:
        raise redirect  # one server never redirects

    async def scan(self, pattern: str) -> list[bytes]:
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
        return self._client.connection_pool.connection_kwargs.get("socket_timeout", READ_TIMEOUT)  # type: ignore[no-any-return]
