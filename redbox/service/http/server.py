"""Runs an application on uvicorn beside other work of the process: one socket, no signal handlers, an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import uvicorn

from redbox.errors import RedboxError, UsageError
from redbox.service import HOST
from redbox.service.http.certificates import certificate_warning
from redbox.service.http.connections import LimitedConnection
from redbox.service.http.descriptors import permitted_connections
from redbox.service.http.handshakes import TlsServer
from redbox.service.http.listening import BACKLOG, Address, is_loopback, listen
from redbox.service.http.pool import Limits, Pool

logger = logging.getLogger("redbox.service")

GRACE_SECONDS: Final = 5  # for requests in flight after the end was asked for
IDLE_SECONDS: Final = 30  # a kept connection without a request is closed
HANDSHAKE_SECONDS: Final = 10.0
CHECK_TICKS: Final = 5  # of a tenth of a second
REACHED_AT: Final = {"0.0.0.0": HOST, "::": "::1"}  # noqa: S104 - nobody can connect to these two


class _Uvicorn(uvicorn.Server):
    """uvicorn with limits of connections."""

    def __init__(self, config: uvicorn.Config, limits: Limits, tls: ssl.SSLContext | None) -> None:
        super().__init__(config)
        self._tls = tls
        self._pool = Pool(limits, self.server_state)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Only the command line handles signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = [await self._accept(each) for each in sockets or ()]
        self.started = True

    async def _accept(self, listener: socket.socket) -> Any:
        if self._tls is not None:
            return TlsServer(listener, self._tls, self._pool, self._connection, HANDSHAKE_SECONDS)
        return await asyncio.get_running_loop().create_server(self._connection, sock=listener, backlog=BACKLOG)

    def _connection(self) -> LimitedConnection:
        return LimitedConnection(self._pool, config=self.config, server_state=self.server_state, app_state={})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._pool.is_ending = True
        last = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._pool.end_all)
        await super().shutdown(sockets)
        last.cancel()

    async def on_tick(self, counter: int) -> bool:
        if counter % CHECK_TICKS == 0:
            self._pool.check(asyncio.get_running_loop().time())
        return await super().on_tick(counter)


class _Handling:
    """An application whose requests may be cancelled when the service ends. They have been answered by then, so uvicorn
    has nothing to log, nor to answer."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._app(scope, receive, send)


class HttpServer:
    """Serves an ASGI application while its `async with` block runs. With port 0 the system chooses one."""

    def __init__(self, app: Any, address: Address, limits: Limits | None = None) -> None:
        self._app = app
        self._address = address
        self._limits = Limits() if limits is None else limits
        self._tls: ssl.SSLContext | None = None
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.port = address.port
        self.loopback_only = True

    @property
    def url(self) -> str:
        """Where this machine reaches it."""
        host = REACHED_AT.get(self._address.host, self._address.host)
        return f"{self._address.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def __aenter__(self) -> Self:
        if self._address.certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
            self._tls.set_alpn_protocols(["http/1.1"])
            self.load_certificate()
        listeners = listen(self._address)
        self.port = listeners[0].getsockname()[1]
        self.loopback_only = all(is_loopback(each.getsockname()[0]) for each in listeners)
        config = uvicorn.Config(
            _Handling(self._app),
            log_config=None,
            access_log=False,
            lifespan="off",
            interface="asgi3",
            http="httptools",
            ws="none",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS + 1,  # for clients that do not read
        )
        permitted = permitted_connections(self._limits.connections)
        limits = msgspec.structs.replace(self._limits, connections=permitted)
        self._server = _Uvicorn(config, limits, self._tls)
        self._task = asyncio.create_task(self._server.serve(listeners), name="redbox http")
        while not self._server.started:
            if self._task.done():
                await self._task
                raise RedboxError(f"the HTTP server on {self.url} did not start")
            await asyncio.sleep(0.005)
        return self

    def load_certificate(self) -> None:
        """Reads the certificate and its key, for connections from now on; warns if it has expired, is not valid yet, or
        expires soon. Raises UsageError if they cannot be used; the ones read before stay in use."""
        certificate, key = self._address.certificate, self._address.key
        if certificate is None or self._tls is None:
            return
        try:
            # A copy is tried first: OpenSSL would use a new certificate with the old key.
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._tls):
                context.load_cert_chain(certificate, key, password=lambda: "")  # never asks on a terminal
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, FileNotFoundError | PermissionError) else str(error)
            files = certificate if key is None else f"{certificate} and {key}"
            raise UsageError(
                f"the certificate cannot be used: {reason} ({files}); --tls-cert and --tls-key are PEM files, and the "
                "key has no password"
            ) from error
        warning = certificate_warning(self._tls, certificate)
        if warning is not None:
            logger.warning("%s", warning)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._task is not None
        self._server.should_exit = True
        await self._task
