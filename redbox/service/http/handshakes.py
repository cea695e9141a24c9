"""Accepts connections with TLS. A handshake in progress counts as a connection that is idle.

asyncio's own server does not say how many clients have connected and not shaken hands yet, and cannot end one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

from redbox.service.http.connections import LimitedConnection
from redbox.service.http.pool import Handshake, Pool

logger = logging.getLogger("redbox.service")

RETRY_SECONDS: Final = 1.0  # after a connection could not be accepted


class TlsServer:
    """Accepts the connections of one socket, as the server of `asyncio.create_server` does."""

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext,
        pool: Pool,
        connection: Callable[[], LimitedConnection],
        seconds: float,
    ) -> None:
        """`seconds`: for a handshake."""
        self._listener = listener
        self._tls = tls
        self._pool = pool
        self._connection = connection
        self._seconds = seconds
        self._tasks = {asyncio.create_task(self._accept_all(), name="redbox accepts TLS")}

    def close(self) -> None:
        """Accepts no more connections, and ends handshakes."""
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listener.close()

    async def _accept_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except ConnectionError:
                continue  # the client is gone already
            except OSError as error:
                logger.warning("a connection could not be accepted: %s", error.strerror)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._pool.make_room()
            task = asyncio.create_task(self._shake_hands(accepted), name="redbox TLS handshake")
            handshake = Handshake(loop.time(), task)
            self._pool.handshakes.add(handshake)
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, handshake))
            await asyncio.sleep(0)  # starts it; and others get their turn, also while clients wait to be accepted

    async def _shake_hands(self, accepted: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client is gone, does not speak TLS, or is too slow
            await asyncio.get_running_loop().connect_accepted_socket(
                self._connection, accepted, ssl=self._tls, ssl_handshake_timeout=self._seconds
            )

    def _ended(self, handshake: Handshake, task: asyncio.Task[None]) -> None:
        self._pool.handshakes.discard(handshake)
        self._tasks.discard(task)
