"""Runs an application on uvicorn beside other work of the process: one socket, no signal handlers, an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import uvicorn

from redbox.errors import RedboxError, UsageError
from redbox.service.connections import Limited, Limits, Pool

HOST: Final = "127.0.0.1"
GRACE_SECONDS: Final = 5  # for requests in flight after the end was asked for
IDLE_SECONDS: Final = 30  # a kept connection without a request is closed
HANDSHAKE_SECONDS: Final = 10.0
CHECK_TICKS: Final = 5  # of a tenth of a second
BACKLOG: Final = 1024


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens. `certificate` and `key`: PEM files for TLS. `loopback_only`: other hosts are refused.
    `what`: is served there, for errors; `host_option` and `port_option`: what they advise to change."""

    host: str = HOST
    port: int = 0
    certificate: str | None = None
    key: str | None = None
    loopback_only: bool = False
    what: str = "HTTP"
    host_option: str = "--host"
    port_option: str = "--port"

    @property
    def scheme(self) -> str:
        return "http" if self.certificate is None else "https"


class NotLoopback(UsageError):
    """Without tokens, others could reach the service."""

    def __init__(self, address: Address) -> None:
        super().__init__(
            f"{address.host_option} {address.host}: without tokens, the service listens on {HOST} only, since everyone "
            "who reaches it could read and change all events; give tokens with --token-file FILE or $REDBOX_TOKENS, "
            "one per line: name scopes token"
        )


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
        loop = asyncio.get_running_loop()
        handshake = None if self._tls is None else HANDSHAKE_SECONDS
        self.servers = [
            await loop.create_server(
                self._connection, sock=each, ssl=self._tls, backlog=BACKLOG, ssl_handshake_timeout=handshake
            )
            for each in sockets or ()
        ]
        self.started = True

    def _connection(self) -> Limited:
        return Limited(self._pool, config=self.config, server_state=self.server_state, app_state={})

    async def on_tick(self, counter: int) -> bool:
        if counter % CHECK_TICKS == 0:
            self._pool.check(asyncio.get_running_loop().time())
        return await super().on_tick(counter)


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

    @property
    def url(self) -> str:
        host = self._address.host
        return f"{self._address.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def __aenter__(self) -> Self:
        if self._address.certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
            self._tls.set_alpn_protocols(["http/1.1"])
            self.load_certificate()
        listeners = _listen(self._address)
        self.port = listeners[0].getsockname()[1]
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            interface="asgi3",
            http="httptools",
            ws="none",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        self._server = _Uvicorn(config, self._limits, self._tls)
        self._task = asyncio.create_task(self._server.serve(listeners), name="redbox http")
        while not self._server.started:
            if self._task.done():
                await self._task
                raise RedboxError(f"the HTTP server on {self.url} did not start")
            await asyncio.sleep(0.005)
        return self

    def load_certificate(self) -> None:
        """Reads the certificate and its key, for connections from now on. Raises UsageError if they cannot be used; the
        ones read before stay in use."""
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._task is not None
        self._server.should_exit = True
        await self._task


def _listen(address: Address) -> list[socket.socket]:
    """Sockets that listen on all addresses of the host; an error says which option to change."""
    opened: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        problem: OSError | None = None
        for family, *_, where in sorted(set(found)):
            if address.loopback_only and not ipaddress.ip_address(str(where[0]).partition("%")[0]).is_loopback:
                raise NotLoopback(address)
            port = opened[0].getsockname()[1] if opened else address.port
            try:
                opened.append(_bind(family, (where[0], port, *where[2:]), alone=len(found) == 1))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                problem = error
        if not opened and problem is not None:
            raise problem
    except (OSError, UnicodeError, OverflowError) as error:
        _close(opened)
        raise _cannot_listen(address, error) from error
    except BaseException:
        _close(opened)
        raise
    return opened


def _close(listeners: list[socket.socket]) -> None:
    for each in listeners:
        each.close()


def _bind(family: int, where: Any, *, alone: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not alone:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _cannot_listen(address: Address, error: Exception) -> RedboxError:
    number = getattr(error, "errno", None)
    if isinstance(error, UnicodeError):
        reason = "it is not the name of a host"
    elif isinstance(error, socket.gaierror):
        reason = str(error.strerror).lower()
    else:
        reason = os.strerror(number).lower() if number else str(error)
    wrong_host = isinstance(error, socket.gaierror | UnicodeError) or number == errno.EADDRNOTAVAIL
    advice = address.host_option if wrong_host else f"{address.port_option}, 0 for any that is free"
    return RedboxError(
        f"{address.what} cannot be served on {address.host} port {address.port}: {reason}; choose another {advice}"
    )
