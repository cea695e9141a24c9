"""The wire to the embedded server. Its server runs as long as a process uses it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

import anyio.to_thread
from redis.asyncio import Redis
from redis.asyncio.connection import UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from redbox.errors import StoreFull, UntrustedStore
from redbox.store.attempt import SharedAttempt
from redbox.store.embedded import server
from redbox.store.embedded.private_directory import DATA, check_link, check_peer
from redbox.store.embedded.start_failures import failed_write, missing_bytes
from redbox.store.wire.base import BlockingWait, Command, NotConnected
from redbox.store.wire.single import SingleWire

logger = logging.getLogger("redbox.store")


class _OwnServer(UnixDomainSocketConnection):
    """A connection that is used only if the server runs as this user, or as root."""

    async def _connect(self) -> None:
        async with asyncio.timeout(self.socket_connect_timeout):
            connected = socket.socket(socket.AF_UNIX)
            try:
                connected.setblocking(False)
                await asyncio.get_running_loop().sock_connect(connected, self.path)
                check_peer(connected, self.path)
                self._reader, self._writer = await asyncio.open_unix_connection(sock=connected)
            except BaseException:
                connected.close()
                raise
        await self.on_connect()


class EmbeddedWire(SingleWire):
    """The server in a directory. This process starts it again when it has ended."""

    def __init__(self, directory: str, socket: str) -> None:
        client = Redis(unix_socket_path=socket, retry=Retry(NoBackoff(), 0))
        client.connection_pool.connection_class = _OwnServer
        super().__init__(client)
        self._socket = socket
        self._directory = directory
        self._reviving, self._leaving = SharedAttempt(), SharedAttempt()

    @classmethod
    async def open(cls, directory: str) -> EmbeddedWire:
        """Starts or joins the server; raises UntrustedStore for a link that another user has made."""
        resolved = await asyncio.to_thread(_resolve, directory)
        acquisition = _Acquisition(resolved)
        try:
            path = await asyncio.to_thread(acquisition.acquire)  # anyio would keep a thread that a closed loop left
        except BaseException:  # cancelled, or its event loop was closed
            acquisition.abandon()
            raise
        return cls(resolved, path)

    async def exchange(self, key: str, commands: Sequence[Command], wait: BlockingWait | None = None) -> list[Any]:
        await self._leave_removed_directory()
        return await super().exchange(key, commands, wait)

    async def _connect(self) -> Any:
        await self._leave_removed_directory()
        try:
            return await super()._connect()
        except NotConnected as error:
            refused = error.__cause__ and error.__cause__.__cause__  # redis-py wraps every error in one of its own
            if isinstance(refused, UntrustedStore):
                raise refused from None
            raise

    async def _leave_removed_directory(self) -> None:
        """Starts another server when the directory was removed: nobody would find the files of the first one again."""
        if os.path.exists(self._socket):  # noqa: ASYNC240  # a microsecond
            return
        async with self._leaving.turn():
            if not os.path.exists(self._socket):  # noqa: ASYNC240
                await self._revive(None)
                await self._multiplexers.close()
                await self._client.connection_pool.disconnect()

    async def _revive(self, error: Exception | None) -> None:
        async with self._reviving.turn():
            await anyio.to_thread.run_sync(self._start_again, error is not None and not isinstance(error, NotConnected))

    def _start_again(self, broke: bool) -> None:
        """Starts the server again if it has ended. A write that fails is the one reason for which it ends by itself: if
        the disk is full, it is not started before that write would fit. `broke`: a connection did, so that the write
        was one of this process, and would fail again."""
        failed = failed_write(self._directory)
        missing = missing_bytes(self._directory, 0 if failed is None else failed.size)
        if missing:
            raise StoreFull(
                f"the disk that holds {self._directory} is full: free some space, at least {missing:,} bytes; nothing "
                "was acknowledged"
            )
        removed = not os.path.exists(os.path.join(self._directory, DATA))
        server.acquire(self._directory, accept_frozen=True)  # the caller has waited for its answer already
        server.release(self._directory)
        if removed:
            logger.error(
                "%s was removed while in use: the store there is new, and has none of the old events", self._directory
            )
        if broke and failed is not None:
            raise StoreFull(
                f"the server in {self._directory} ended, since it could not write, though the disk has room: is a "
                "quota or the limit of file sizes (ulimit -f) reached? Nothing was acknowledged (it said: "
                f"{failed.said})"
            )

    async def close(self) -> None:
        await super().close()
        await self._client.aclose()
        await anyio.to_thread.run_sync(server.release, self._directory)

    def abandon(self) -> None:
        super().abandon()
        server.release(self._directory)


class _Acquisition:
    """Acquires the embedded server in a thread. If its caller gives up meanwhile, the server is released again."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._acquired = self._abandoned = False

    def acquire(self) -> str:
        path = server.acquire(self._directory)
        with self._lock:
            self._acquired = True
            if self._abandoned:
                server.release(self._directory)
        return path

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            if self._acquired:
                server.release(self._directory)


def _resolve(directory: str) -> str:
    """The directory without links; raises UntrustedStore for a link that another user has made."""
    check_link(directory)
    return os.path.realpath(directory)
