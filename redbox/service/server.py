"""Runs an application on uvicorn beside other work of the process: one socket, no signal handlers, an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import uvicorn

from redbox.errors import RedboxError

HOST: Final = "127.0.0.1"
GRACE_SECONDS: Final = 5  # for requests in flight after the end was asked for
IDLE_SECONDS: Final = 30  # a kept connection without a request is closed
BACKLOG: Final = 1024


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens. `host_option` and `port_option`: what an error advises to change."""

    host: str = HOST
    port: int = 0
    certificate: str | None = None
    key: str | None = None
    host_option: str = "--host"
    port_option: str = "--port"

    @property
    def scheme(self) -> str:
        return "http" if self.certificate is None else "https"


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Only the command line handles signals."""
        yield


class HttpServer:
    """Serves an ASGI application while its `async with` block runs. With port 0 the system chooses one."""

    def __init__(self, app: Any, address: Address) -> None:
        self._app = app
        self._address = address
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.port = address.port

    @property
    def url(self) -> str:
        host = self._address.host
        return f"{self._address.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def __aenter__(self) -> Self:
        listener = _listen(self._address)
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
            ssl_certfile=self._address.certificate,
            ssl_keyfile=self._address.key,
        )
        try:
            config.load()
        except (OSError, ValueError) as error:
            listener.close()
            raise RedboxError(f"the certificate or its key cannot be used: {error}") from error
        self._server = _Uvicorn(config)
        self._task = asyncio.create_task(self._server.serve([listener]), name="redbox http")
        while not self._server.started:
            if self._task.done():
                await self._task
                raise RedboxError(f"the HTTP server on {self.url} did not start")
            await asyncio.sleep(0.005)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._task is not None
        self._server.should_exit = True
        await self._task


def _listen(address: Address) -> socket.socket:
    """A socket that listens; an error says which option to change."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
    except (OSError, UnicodeError, OverflowError) as error:
        number = getattr(error, "errno", None)
        if isinstance(error, UnicodeError):
            reason = "it is not the name of a host"
        elif isinstance(error, socket.gaierror):
            reason = str(error.strerror).lower()
        else:
            reason = os.strerror(number).lower() if number else str(error)
        wrong_host = isinstance(error, socket.gaierror | UnicodeError) or number == errno.EADDRNOTAVAIL
        advice = address.host_option if wrong_host else f"{address.port_option}, 0 for any that is free"
        raise RedboxError(
            f"cannot listen on {address.host} port {address.port}: {reason}; choose another {advice}"
        ) from error
    listener.setblocking(False)
    return listener
