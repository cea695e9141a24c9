"""A small HTTP server beside the relays, or of its own.

`/metrics` is for Prometheus. `/livez` reports that the process is alive, without a call of the store. `/readyz` reports
whether every relay runs and its store answers; `/healthz` is another name for it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec

from redbox.errors import RedboxError
from redbox.relay import metrics
from redbox.relay.metrics import STORE_SECONDS
from redbox.relay.relay import Relay

HOST: Final = "127.0.0.1"
MAX_REQUEST: Final = 8192
REQUEST_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 10.0
MAX_CONNECTIONS: Final = 32
PATHS: Final = ("/metrics", "/livez", "/readyz", "/healthz")
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


class Response(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes


class HttpServer(ABC):
    """Serves metrics and health while its `async with` block runs. With port 0 the system chooses one; `port` is the
    one in use. `host_option` and `port_option` are what an error advises to change."""

    host_option = "--host"
    port_option = "--port"

    def __init__(self, port: int, host: str = HOST) -> None:
        self._host = host
        self.port = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # one per connection
        self._answering: set[asyncio.Task[None]] = set()
        #: Connections whose request has not arrived yet, the longest idle first.
        self._idle: dict[asyncio.Task[None], None] = {}

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._accept, self._host, self.port, limit=MAX_REQUEST)
        except (OSError, OverflowError, UnicodeError) as error:
            number = getattr(error, "errno", None)
            if isinstance(error, UnicodeError):
                reason = "it is not the name of a host"
            elif isinstance(error, socket.gaierror):
                reason = str(error.strerror).lower()
            else:
                reason = os.strerror(number).lower() if number is not None and number > 0 else str(error)
            # From Python 3.13 on, asyncio skips addresses that are not available, and reports without a number.
            nothing_bound = isinstance(error, OSError) and number is None
            wrong_host = (
                isinstance(error, socket.gaierror | UnicodeError) or number == errno.EADDRNOTAVAIL or nothing_bound
            )
            advice = self.host_option if wrong_host else f"{self.port_option}, 0 for any that is free"
            raise RedboxError(
                f"metrics cannot be served on {self._host} port {self.port}: {reason}; choose another {advice}"
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @abstractmethod
    async def metrics(self) -> str:
        """The text of /metrics."""

    @abstractmethod
    async def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether /readyz reports success, and its report."""

    # --- one request per connection ------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._idle[task] = None
        try:
            if self._make_room():
                # The client has gone or is silent, or the relay ends: no other connection is affected.
                with suppress(OSError, TimeoutError, asyncio.CancelledError):
                    await self._handle(task, reader, writer)
        finally:
            self._idle.pop(task, None)
            self._answering.discard(task)
            self._tasks.discard(task)
            writer.close()

    def _make_room(self) -> bool:
        """Whether one more connection is accepted: if there are too many, the longest idle one is closed."""
        if len(self._idle) + len(self._answering) <= MAX_CONNECTIONS:
            return True
        longest, *others = self._idle
        if not others:  # all other connections are being answered
            return False
        del self._idle[longest]
        longest.cancel()
        return True

    async def _handle(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            head = b""
        self._idle.pop(task, None)
        self._answering.add(task)
        async with asyncio.timeout(ANSWER_SECONDS):
            method, path = _request(head)
            answer = await self._answer(method, path)
            lines = [
                f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
                f"Content-Type: {answer.content_type}",
                f"Content-Length: {len(answer.body)}",
                "Cache-Control: no-store",
                "Connection: close",
                *(["Allow: GET, HEAD"] if answer.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else answer.body))
            await writer.drain()

    async def _answer(self, method: str, path: str) -> Response:
        if not method:
            return _text(HTTPStatus.BAD_REQUEST, "not an HTTP request\n")
        if path not in PATHS:
            return _text(HTTPStatus.NOT_FOUND, f"the paths are {', '.join(PATHS)}\n")
        if method not in ("GET", "HEAD"):
            return _text(HTTPStatus.METHOD_NOT_ALLOWED, "use GET\n")
        if path == "/metrics":
            return Response(HTTPStatus.OK, metrics.CONTENT_TYPE, (await self.metrics()).encode())
        if path == "/livez":
            return Response(HTTPStatus.OK, JSON, b'{"status":"ok"}\n')
        healthy, report = await self.health()
        status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(status, JSON, msgspec.json.encode(report) + b"\n")


class Monitor(HttpServer):
    """Serves the metrics and the health of relays."""

    host_option = "--metrics-host"
    port_option = "--metrics-port"

    def __init__(self, relays: Sequence[Relay], port: int, host: str = HOST) -> None:
        super().__init__(port, host)
        self._relays = relays

    async def metrics(self) -> str:
        return await metrics.scrape(self._relays)

    async def health(self) -> tuple[bool, dict[str, Any]]:
        return await health(self._relays)


async def health(relays: Sequence[Relay]) -> tuple[bool, dict[str, Any]]:
    """Whether all relays run and their stores answer, with a report on each relay.

    An open breaker is reported, but counts as healthy: the target is down, not the relay.
    """
    problems = await asyncio.gather(*(_problem(relay) for relay in relays))
    reports = [
        {
            "box": relay.box.name,
            "relay": relay.name,
            "target": relay.target,
            "problem": problem or None,
            "breaker": relay.circuit.value,
            "breaker_reason": relay.summary().open or None,
            "in_flight": relay.in_flight,
        }
        for relay, problem in zip(relays, problems, strict=True)
    ]
    healthy = not any(problems)
    return healthy, {"status": "ok" if healthy else "failing", "relays": reports}


async def _problem(relay: Relay) -> str:
    if not relay.running:
        return "the relay is not running"
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await relay.box.settings()
    except RedboxError as error:
        return str(error)
    except TimeoutError:
        return f"the store did not answer within {STORE_SECONDS:g} s"
    return ""


def _request(head: bytes) -> tuple[str, str]:
    """Method and path of a request; empty if it is not one."""
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return "", ""
    return words[0], words[1].partition("?")[0]


def _text(status: HTTPStatus, text: str) -> Response:
    return Response(status, TEXT, text.encode())
