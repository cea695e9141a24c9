"""Connections of the HTTP server, with the limits that uvicorn does not have.

A client may be slow, silent or greedy: it sends a byte per second, headers without end, or reads no response. It must
not hold memory, nor keep others out. Times are checked twice a second, by `LimitedConnection.check`, and not by a timer
for each request: that would be slower than the rest of the reading.

A connection has one request at a time. Requests that are sent before the answer to the one before (pipelining) wait as
bytes, and while bytes wait nothing more is read: a client that does not read its answers is soon unable to send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from math import inf
from typing import Any, Final

from redbox.errors import MissingExtra

try:
    from uvicorn.protocols.http.flow_control import FlowControl
except ModuleNotFoundError as error:
    raise MissingExtra("the HTTP server", "metrics") from error

from redbox.service.http.headers import SECURITY
from redbox.service.http.parsing import ParsedConnection
from redbox.service.http.pool import ENDED_FOR_OTHERS, Pool, RequestPhase
from redbox.service.http.problems import problem_with

#: Seconds for a client to read its answer and close the connection, when the service ends.
ENDING_SECONDS: Final = 1.0


class _ResponseTransport(asyncio.Transport):
    """The transport of a connection for responses: `close` leaves a client that is still sending the time to read."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._close = close

    def write(self, data: Any) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._close()


class _HeldFlow(FlowControl):
    """The flow of a connection. While it is held, nothing is read, even if the application waits for a body: the one
    that it asks for has arrived."""

    is_held = False

    def hold(self) -> None:
        self.is_held = True
        self.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_held:
            super().resume_reading()


class LimitedConnection(ParsedConnection):
    """One connection."""

    flow: _HeldFlow

    _responses: asyncio.Transport

    def __init__(self, pool: Pool, **options: Any) -> None:
        super().__init__(**options)
        self.pool = pool
        self.phase = RequestPhase.IDLE
        self.since = self.loop.time()
        self._limits = self.pool.limits
        self._due = self.since + self._limits.head_seconds
        self._write_due = inf
        self._unused = 0  # bytes since the start of the request, or since the last that belonged to a body
        self._keep_alive = False  # whether the client asks for it in the newest request
        self._is_half_closed = False  # the client sends no more
        self.buffered = 0  # bytes of bodies, and of requests that wait
        self._waiting = b""  # requests that wait for the answer to the one before, and
        self._waiting_from = 0  # where they begin in it
        self._is_next_begun = False  # the parser has seen the start of the next request
        self._failure: tuple[HTTPStatus, str] | None = None  # what follows the answer to the request, and the end

    # --- the transport -------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = _HeldFlow(transport)
        self._responses = _ResponseTransport(transport, self._close_answered)
        if self.pool.is_full() and not self._make_room():
            self.phase = RequestPhase.HEAD  # so that it is answered
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open")
            self.transport.close()

    def _make_room(self) -> bool:
        self.phase = RequestPhase.RECEIVED  # not this one
        found = self.pool.evict(*ENDED_FOR_OTHERS)
        self.phase = RequestPhase.IDLE
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

    @property
    def unread_since(self) -> float:
        """Since when the client has not read what is to be sent; infinity if nothing is."""
        return self._write_due - self._limits.write_seconds

    def data_received(self, data: bytes) -> None:
        if self._waiting:
            self._waiting += data
            self._count(len(data))
        else:
            self._read(data, 0)

    def _read(self, data: bytes, begin: int) -> None:
        """Reads until a request is complete; what follows it waits."""
        most = self._limits.head_bytes
        while begin < len(data) and not self.transport.is_closing():
            if self.phase is RequestPhase.DISCARDED:
                self._discard(len(data) - begin)
                return
            if self.phase is RequestPhase.RECEIVED:
                self._wait(data, begin)
                return
            end = self._end_of_part(data, begin)
            if self.phase is RequestPhase.IDLE:
                self._begin()
            if self.phase is RequestPhase.HEAD:
                end = min(end, begin + most)
            part, begin = data[begin:end], end
            self._unused += len(part)
            self._unset_keepalive_if_required()
            self._parse(part)
            if self._unused >= most and self.phase in (RequestPhase.HEAD, RequestPhase.BODY):
                self._end(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the headers must be under {most:,} bytes")

    def _wait(self, data: bytes, begin: int) -> None:
        """Keeps what follows a request until that is answered."""
        self.flow.hold()
        if self._failure is not None:
            return  # it will not be read
        self._waiting, self._waiting_from = data, begin
        self._count(len(data) - begin)

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        """Keeps the connection open until the requests that have arrived are answered. Once a response has begun, the
        client counts as gone: a stream of events would not notice. TLS has no half-closed connections."""
        if self.phase is not RequestPhase.RECEIVED or self.cycle.response_started or self.scheme == "https":
            return False
        self._is_half_closed = True
        self.cycle.keep_alive = False
        return True

    # --- the request ---------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.phase = RequestPhase.HEAD
        self._unused = 0
        self.since = self.loop.time()
        self._due = self.since + self._limits.head_seconds

    def on_message_begin(self) -> None:
        if self.phase is RequestPhase.RECEIVED:  # it came with the one before, which is not answered
            self._is_next_begun = True
        elif self.phase is not RequestPhase.HEAD:
            self._begin()
        super().on_message_begin()

    def _begin_body(self) -> None:
        super()._begin_body()
        self.phase = RequestPhase.BODY
        self._unused = 0
        self._due = self.loop.time() + self._limits.body_seconds
        # Until the request is complete, a response to it ends the connection, and says so.
        self._keep_alive, self.cycle.keep_alive = self.cycle.keep_alive, False
        self.cycle.transport = self._responses

    def on_body(self, body: bytes) -> None:
        self._unused = 0
        super().on_body(body)
        self._count(len(body))

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() or self.phase is RequestPhase.DISCARDED:
            return
        super().on_message_complete()
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keep_alive
        self.phase = RequestPhase.RECEIVED
        self._due = inf
        self._rest()

    def on_response_complete(self) -> None:
        if self.phase is not RequestPhase.DISCARDED:
            self.flow.is_held = False
            super().on_response_complete()
            self._rest()
            self._go_on()

    def _rest(self) -> None:
        """Waits for the next request, once the newest one has arrived as a whole and was answered."""
        if self.phase is RequestPhase.RECEIVED and self.cycle.response_complete:
            self._release()
            if self._is_next_begun:
                self._is_next_begun = False
                self._begin()
            else:
                self.phase = RequestPhase.IDLE
                self.since = self.loop.time()

    def _go_on(self) -> None:
        """Reads the requests that waited for the answer to the one before."""
        waiting, self._waiting = self._waiting, b""
        if self.transport.is_closing():
            return
        if self._failure is not None:
            self.phase = RequestPhase.HEAD
            self._end(*self._failure)
        elif waiting:
            self._read(waiting, self._waiting_from)

    @property
    def droppable(self) -> int:
        """Bytes that need not be kept: of an incomplete request, or of requests that wait."""
        if self.phase is RequestPhase.BODY:
            return self.buffered
        return len(self._waiting) - self._waiting_from if self._waiting else 0

    def _count(self, size: int) -> None:
        self.buffered += size
        self.pool.buffered += size
        while self.pool.buffered > self._limits.bodies and self.pool.evict_largest():
            pass

    def _release(self) -> None:
        self.pool.buffered -= self.buffered
        self.buffered = 0

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
            if self.phase is RequestPhase.DISCARDED:
                self.transport.close()
            else:
                self._end(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time")

    def evict(self) -> None:
        """Closes the connection at once, in favour of others."""
        if self.phase is not RequestPhase.DISCARDED:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, _TOO_MUCH)
        self.transport.close()

    def abort(self) -> None:
        """Closes the connection at once, without what is still to be sent."""
        self._write_due = inf  # it is not chosen again
        self.transport.abort()

    def refuse(self) -> None:
        """Answers a request that is not complete, in favour of others."""
        self._end(HTTPStatus.SERVICE_UNAVAILABLE, _TOO_MUCH)

    def shutdown(self) -> None:
        """Ends the connection when the service ends: a request that has arrived is answered, half a one is refused."""
        self._keep_alive = False
        if self.phase is RequestPhase.DISCARDED:
            self.transport.close()
        elif self.phase is RequestPhase.BODY:
            self._end(HTTPStatus.SERVICE_UNAVAILABLE, "the service is ending; repeat the request")
        else:
            super().shutdown()

    def give_up(self) -> None:
        """Answers a request whose handler has not ended in time."""
        if self.phase is not RequestPhase.DISCARDED:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, _UNANSWERED)
        self.transport.close()

    def _end(self, status: HTTPStatus, detail: str) -> None:
        """Answers with a problem, if a request has begun and it is its turn, and closes the connection. A complete
        request is answered before."""
        if self.phase is RequestPhase.RECEIVED:
            dropped = self.droppable
            self.buffered -= dropped
            self.pool.buffered -= dropped
            self._waiting = b""
            self._failure = status, detail
            self.flow.hold()
        elif self._answer(status, detail):
            self._close_answered()
        else:
            self.transport.close()

    def _answer(self, status: HTTPStatus, detail: str) -> bool:
        """Answers with a problem, if a request has begun and it is its turn; whether it did. To the application,
        the client has disconnected."""
        self._due = inf
        self._release()
        if self.phase is RequestPhase.HEAD:
            its_turn = True
        else:
            its_turn = self.cycle is not None and not self.cycle.response_started
        if its_turn:
            self.transport.write(_response(status, detail))
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        return its_turn

    def _close_answered(self) -> None:
        """Closes the connection after a response, once its client has stopped sending, within limits.

        A socket that is closed with bytes that were not read is reset, and the client may lose the response.
        """
        self._release()
        is_sending = self.phase in (RequestPhase.HEAD, RequestPhase.BODY) or self._is_next_begun or self.flow.is_held
        if not is_sending or self._is_half_closed:
            self.transport.close()
            return
        self.phase = RequestPhase.DISCARDED
        self.since = self.loop.time()
        self._due = self.since + self._limits.discard_seconds
        self._unused = 0
        if self.pool.is_ending:  # nobody checks the time any more
            self.loop.call_later(ENDING_SECONDS, self.transport.close)
        self._waiting = b""
        self.flow.is_held = False
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _discard(self, size: int) -> None:
        self._unused += size
        if self._unused > self._limits.discard_bytes:
            self.transport.close()


_UNANSWERED: Final = "the service is ending, and the request took too long; an event may be stored or not: repeat it"
_TOO_MUCH: Final = "too much is being received; repeat the request later"


def _response(status: HTTPStatus, detail: str) -> bytes:
    problem = problem_with(status, detail)
    body = problem.encode()
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}".encode(),
        *(b"%s: %s" % each for each in (*problem.headers(body), *SECURITY)),
        b"connection: close",
    ]
    return b"\r\n".join([*lines, b"", body])
