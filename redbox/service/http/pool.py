"""What the connections of one HTTP server share: their limits, and which of them is ended in favour of others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, cast

import msgspec

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from redbox.service.http.connections import LimitedConnection


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of connections. Times are in seconds, sizes in bytes.

    `connections`: at once, with those in the handshake for TLS; with one more, the one that is idle for longest is
    closed. `head_bytes`: of the request line and headers. `head_seconds`: from the first byte of a request, or from
    connecting, to the end of its headers. `body_seconds`: for a body. `bodies`: of all bodies that are being received
    or handled, and of all requests that wait for the one before. `write_seconds`: without the client reading what was
    sent; after `unread_seconds` of them the connection may be closed in favour of others. `discard_bytes` and
    `discard_seconds`: what a client may send, and how long, after its request was answered before it was complete; then
    the connection is closed.
    """

    connections: int = 1000
    head_bytes: int = 32 * 1024
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    bodies: int = 64 * 1024 * 1024
    write_seconds: float = 60.0
    unread_seconds: float = 5.0
    discard_bytes: int = 8 * 1024 * 1024
    discard_seconds: float = 5.0


class RequestPhase(IntEnum):
    """Where the request of a connection is. DISCARDED: it was answered before it was complete, and its rest is not
    used."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    RECEIVED = 3
    DISCARDED = 4


#: Phases in which a connection may be closed so that another can be opened.
ENDED_FOR_OTHERS: Final = (RequestPhase.DISCARDED, RequestPhase.IDLE, RequestPhase.HEAD, RequestPhase.BODY)


class Handshake(msgspec.Struct, frozen=True, eq=False):
    """A client that has connected at `since`, and whose handshake for TLS is a task."""

    since: float
    task: asyncio.Task[None]
    phase = RequestPhase.IDLE

    def evict(self) -> None:
        """Closes the connection, in favour of others."""
        self.task.cancel()


class Pool:
    """What the connections of one server share: their limits, the bytes of their bodies, and the clients that are not
    connections yet."""

    def __init__(self, limits: Limits, state: ServerState) -> None:
        self.limits = limits
        self.buffered = 0
        self.is_ending = False
        self.handshakes: set[Handshake] = set()
        self._state = state

    @property
    def connections(self) -> list[LimitedConnection]:
        return cast("list[LimitedConnection]", list(self._state.connections))

    def check(self, now: float) -> None:
        """Ends the connections that have been too slow."""
        for each in self.connections:
            each.check(now)

    def end_all(self) -> None:
        """Answers the requests that are left when the grace time is over, and ends their handlers."""
        for each in self.connections:
            each.give_up()
        for task in self._state.tasks:
            task.cancel()

    def is_full(self) -> bool:
        return len(self._state.connections) > self.limits.connections

    def make_room(self) -> None:
        """Ends a connection or a handshake if one more would be too many."""
        if len(self._state.connections) + len(self.handshakes) >= self.limits.connections:
            self.evict(*ENDED_FOR_OTHERS)

    def evict(self, *phases: RequestPhase) -> bool:
        """Ends the connection that is in one of these phases for longest, idle ones first, or a handshake; else the one
        whose client has not read its answer for longest. Returns whether there was one."""
        found: list[LimitedConnection | Handshake] = [*self._open(phases), *self.handshakes]
        if not found:
            return self._abort_unread()
        chosen = min(found, key=lambda each: (each.phase is RequestPhase.BODY, each.since))
        chosen.evict()
        if isinstance(chosen, Handshake):
            self.handshakes.discard(chosen)
        return True

    def _abort_unread(self) -> bool:
        """Aborts the connection whose client has not read for longest, if that is long enough; also one that is being
        closed, and still has bytes to send."""
        chosen = min(self.connections, key=lambda each: each.unread_since, default=None)
        if chosen is None or chosen.loop.time() < chosen.unread_since + self.limits.unread_seconds:
            return False
        chosen.abort()
        return True

    def evict_largest(self) -> bool:
        """Ends the incomplete request, or drops the waiting requests, with the most bytes; whether there were any."""
        found = [each for each in self.connections if each.droppable and not each.transport.is_closing()]
        if found:
            max(found, key=lambda each: each.droppable).refuse()
        return bool(found)

    def _open(self, phases: Sequence[RequestPhase]) -> list[LimitedConnection]:
        return [each for each in self.connections if each.phase in phases and not each.transport.is_closing()]
