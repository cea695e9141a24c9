"""Connections of the HTTP server, with the limits that uvicorn does not have.

A client may be slow, silent or greedy: it sends a byte per second, headers without end, or reads no response. It must
not hold memory, nor keep others out. Times are checked twice a second, by `Limited.check`, and not by a timer for each
request: that would be slower than the rest of the reading.
"""

from __future__ import annotations

from enum import IntEnum
from http import HTTPStatus
from math import inf
from typing import Any, Final

import msgspec

from redbox.errors import MissingExtra

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.server import ServerState
except ModuleNotFoundError as error:
    raise MissingExtra("the HTTP server", "metrics") from error

from redbox.service.headers import SECURITY


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of connections. Times are in seconds, sizes in bytes.

    `connections`: at once; with one more, the one that is idle for longest is closed. `head`: of the request line and
    headers. `head_seconds`: from the first byte of a request, or from connecting, to the end of its headers.
    `body_seconds`: for a body. `bodies`: of all bodies that are being received or handled. `write_seconds`: without
    the client reading what was sent.
    """

    connections: int = 1000
    head: int = 32 * 1024
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    bodies: int = 256 * 1024 * 1024
    write_seconds: float = 60.0


class Phase(IntEnum):
    """Where the request of a connection is."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    RECEIVED = 3


class Pool:
    """What the connections of one server share: their limits, and the bytes of their bodies."""

    def __init__(self, limits: Limits, state: ServerState) -> None:
        self.limits = limits
        self.held = 0
        self._state = state

    @property
    def connections(self) -> list[Limited]:
        return [each for each in self._state.connections if isinstance(each, Limited)]

    def check(self, now: float) -> None:
        """Ends the connections that have been too slow."""
        for each in self.connections:
            each.check(now)

    def is_full(self) -> bool:
        return len(self._state.connections) > self.limits.connections

    def evict(self, *phases: Phase) -> bool:
        """Ends the connection that is in one of these phases for longest, idle ones first; whether there was one."""
        found = [each for each in self.connections if each.phase in phases and not each.transport.is_closing()]
        if not found:
            return False
        min(found, key=lambda each: (each.phase is Phase.BODY, each.since)).evict()
        return True


class Limited(HttpToolsProtocol):
    """One connection."""

    def __init__(self, pool: Pool, **options: Any) -> None:
        super().__init__(**options)
        self.pool = pool
        self.phase = Phase.IDLE
        self.since = self.loop.time()
        self._limits = self.pool.limits
        self._due = self.since + self._limits.head_seconds
        self._write_due = inf
        self._unused = 0  # bytes since the start of the request, or since the last that belonged to a body
        self._held = 0

    # --- the transport -------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.pool.is_full() and not self._make_room():
            self.phase = Phase.HEAD  # so that it is answered
            self._end(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open")

    def _make_room(self) -> bool:
        self.phase = Phase.RECEIVED  # not this one
        found = self.pool.evict(Phase.IDLE, Phase.HEAD, Phase.BODY)
        self.phase = Phase.IDLE
        return found

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        self._due = self._write_due = inf
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._write_due = self.loop.time() + self._limits.write_seconds
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_due = inf
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            if self.phase is Phase.IDLE:
                self._begin()
            most = self._limits.head
            part, data = (data[:most], data[most:]) if self.phase is Phase.HEAD else (data, b"")
            self._unused += len(part)
            super().data_received(part)
            if self._unused >= most and self.phase in (Phase.HEAD, Phase.BODY):
                self._end(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the headers must be under {most:,} bytes")

    # --- the request ---------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.phase = Phase.HEAD
        self._unused = 0
        self.since = self.loop.time()
        self._due = self.since + self._limits.head_seconds

    def on_message_begin(self) -> None:
        if self.phase is not Phase.HEAD:  # it came with the one before
            self._begin()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.phase = Phase.BODY
        self._unused = 0
        self._due = self.loop.time() + self._limits.body_seconds
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase is not Phase.BODY:  # trailers are not kept
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._unused = 0
        self._held += len(body)
        self.pool.held += len(body)
        super().on_body(body)
        while self.pool.held > self._limits.bodies and self.pool.evict(Phase.BODY):
            pass

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.phase = Phase.RECEIVED
        self._due = inf
        self._rest()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._rest()

    def _rest(self) -> None:
        """Waits for the next request, once the newest one has arrived as a whole and was answered."""
        if self.phase is Phase.RECEIVED and self.cycle.response_complete:
            self._release()
            self.phase = Phase.IDLE
            self.since = self.loop.time()

    def _release(self) -> None:
        self.pool.held -= self._held
        self._held = 0

    # --- the end -------------------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Ends the connection if its client has been too slow."""
        if self.transport.is_closing() and self._write_due == inf:
            self._write_due = now + self._limits.write_seconds  # the client may not read the rest
        if self.flow.read_paused:  # the service is slow, and not the client
            self._due = max(self._due, now + self._limits.head_seconds)
        if now >= self._write_due:
            self.transport.abort()
        elif now >= self._due and not self.transport.is_closing():
            self._end(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time")

    def evict(self) -> None:
        """Ends the connection in favour of others."""
        self._end(HTTPStatus.SERVICE_UNAVAILABLE, "too much is being received; repeat the request later")

    def send_400_response(self, msg: str) -> None:
        self._end(HTTPStatus.BAD_REQUEST, msg)

    def _end(self, status: HTTPStatus, detail: str) -> None:
        """Answers with a problem, if a request has begun and it is its turn, and closes the connection."""
        self._due = inf
        self._release()
        answering = self.cycle is not None and not self.cycle.response_complete
        if self.phase is Phase.HEAD:
            its_turn = not answering
        else:
            its_turn = answering and not self.cycle.response_started and not self.pipeline
        if its_turn:
            self.transport.write(_response(status, detail))
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """A client may ask for other protocols; it gets HTTP."""


_RETRY: Final = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.REQUEST_TIMEOUT)


def _response(status: HTTPStatus, detail: str) -> bytes:
    body = msgspec.json.encode(
        {"title": status.phrase, "status": status, "detail": detail, "error": status.name, "type": "about:blank"}
    )
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}".encode(),
        b"content-type: application/problem+json",
        b"content-length: %d" % len(body),
        b"connection: close",
        *([b"retry-after: 1"] if status in _RETRY else []),
        *(b"%s: %s" % each for each in SECURITY),
    ]
    return b"\r\n".join([*lines, b"", body])
