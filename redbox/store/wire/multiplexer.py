"""A connection that everyone shares: commands go out as they come, and replies are handed out in the order asked.

redis-py opens it, with all it knows of addresses, TLS, logins and sentinels. From then on its socket is read and
written here, without a pool, a stream and a timer for each command, which were most of what a single put cost.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self
from uuid import uuid4

import anyio
import hiredis
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    DataError,
    InvalidResponse,
    ReadOnlyError,
    TimeoutError,
)

from redbox.store.attempt import SharedAttempt

Command = tuple[Any, ...]
#: How long a line may be silent on which somebody waits, where connections have no time limit of their own.
WAIT_PATIENCE: Final = 60.0
IDLE: Final = 2  # lines for waiting that are kept when nobody does

_INCOMPLETE: Final = object()


def pack(commands: Sequence[Command]) -> list[bytes]:
    """Commands as the server reads them."""
    try:
        return [hiredis.pack_command(command) for command in commands]  # redis-py's own packing is many times slower
    except TypeError as error:
        raise DataError(str(error)) from error


class NotConnected(ConnectionError):
    """No connection, so nothing was sent."""


class _Question:
    """Commands under way: how many replies are still to come, and who waits for them."""

    __slots__ = ("answer", "missing", "replies")

    def __init__(self, answer: asyncio.Future[list[Any]], missing: int) -> None:
        self.answer = answer
        self.missing = missing
        self.replies: list[Any] = []


class Line(asyncio.Protocol):
    """One connection for any number of exchanges at a time. Nothing on it may block: others would wait behind it."""

    def __init__(self, connection: Any, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport
        self._before = transport.get_protocol()
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=connection._parser.parse_error,  # noqa: SLF001  # the same errors as everywhere else
            notEnoughData=_INCOMPLETE,
        )
        self._loop = asyncio.get_running_loop()
        self.patience: float | None = connection.socket_timeout
        self._questions: deque[_Question] = deque()
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._writable: asyncio.Future[None] | None = None
        #: Whether new exchanges need another line: this one is broken, or leads to a server that became a replica.
        self.left = False

    @classmethod
    def over(cls, connection: Any) -> Self | None:
        """Takes over a connection that redis-py has opened; None if it has no socket of its own."""
        transport: Any = getattr(getattr(connection, "_writer", None), "transport", None)
        if not hasattr(transport, "set_protocol") or not hasattr(connection, "_parser"):
            return None
        line = cls(connection, transport)
        transport.set_protocol(line)
        if transport.is_closing():
            line.left = True
        return line

    @property
    def busy(self) -> bool:
        """Whether answers are still to come."""
        return bool(self._questions)

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """A reply for each command, error replies as exceptions. Whoever is cancelled meanwhile disturbs nobody."""
        packed = pack(commands)
        if self._writable is not None:
            await asyncio.shield(self._writable)
        if self.left:
            raise ConnectionError("the connection was closed")
        question = _Question(self._loop.create_future(), len(packed))
        if not self._questions:
            self._heard_at = self._loop.time()
            if self._timer is None and self.patience is not None:
                self._timer = self._loop.call_later(self.patience, self._look)
        self._questions.append(question)
        self._transport.write(packed[0] if len(packed) == 1 else b"".join(packed))
        return await question.answer

    def close(self) -> None:
        """Ends it; whoever still waits is told that the connection is gone."""
        self.left = True
        if self._loop.is_closed():
            self.hang_up()
        else:
            self._transport.abort()

    def hang_up(self) -> None:
        """Ends the connection without its event loop, which is closed."""
        with suppress(Exception):  # the socket may be gone, or of a kind that cannot be shut down
            self._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    async def give_back(self) -> Any:
        """Ends it, and returns redis-py's connection, which is as good as new."""
        self.close()
        await self._connection.disconnect(nowait=True)
        return self._connection

    # --- what the event loop calls -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                if not isinstance(reply, hiredis.PushNotification):  # those answer no question
                    self._take(reply)
        except (InvalidResponse, IndexError) as error:
            self._fail(ConnectionError(f"the server does not speak the Redis protocol: {error}"))
            self.close()

    def _take(self, reply: Any) -> None:
        question = self._questions[0]
        question.replies.append(reply)
        question.missing -= 1
        if isinstance(reply, ReadOnlyError):
            self.left = True  # after a failover: the next line finds the new master
        if question.missing:
            return
        self._questions.popleft()
        if not question.answer.done():
            broken = next((each for each in question.replies if isinstance(each, ConnectionError)), None)
            if broken is None:
                question.answer.set_result(question.replies)
            else:  # such as LOADING, or a login that has ended
                self.left = self.left or not isinstance(broken, BusyLoadingError)
                question.answer.set_exception(broken)
        if self.left and not self._questions:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.left = True
        if self._timer is not None:
            self._timer.cancel()
        self._fail(ConnectionError(f"the connection was closed: {exc}" if exc else "the connection was closed"))
        self.resume_writing()
        self._before.connection_lost(exc)  # redis-py may wait for it

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def _look(self) -> None:
        """Whether the server has been silent for too long. One timer serves all exchanges."""
        self._timer = None
        if not self._questions or self.patience is None:
            return
        left = self._heard_at + self.patience - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._fail(TimeoutError(f"no answer within {self.patience:g} s"))
            self.close()

    def _fail(self, error: Exception) -> None:
        questions, self._questions = self._questions, deque()
        for question in questions:
            if not question.answer.done():
                question.answer.set_exception(type(error)(*error.args))  # its own: raising one adds to its traceback


class Wait:
    """An exchange that may block, on a connection of its own; to cancel it closes that connection.

    `name` is unique: it names the key of this wait, into which a token is pushed to end it early.
    """

    def __init__(self) -> None:
        self.name = uuid4().hex
        self.over = False  # commands that were not sent yet will not be sent


class Way(NamedTuple):
    """How to get a connection of redis-py's that leads somewhere, and how to give it back."""

    where: str
    connect: Callable[[], Awaitable[Any]]
    release: Callable[[Any], Awaitable[None]]


class Lines:
    """The lines that a wire has open: for each place one that everyone shares, and one for each who waits there."""

    def __init__(self) -> None:
        self._shared: dict[str, tuple[Line, Way]] = {}
        self._idle: dict[str, list[tuple[Line, Way]]] = {}
        self._leaving: list[tuple[Line, Way]] = []
        self._waiting: set[Line] = set()
        self._opening: dict[str, SharedAttempt] = {}

    async def exchange(self, way: Way, commands: Sequence[Command], wait: Wait | None = None) -> list[Any] | None:
        """A reply for each command; None where connections have no socket. What may block has a line of its own."""
        if wait is not None:
            return await self._wait(way, commands, wait)
        line = self.shared(way.where) or await self._share(way)
        return None if line is None else await line.exchange(commands)

    def shared(self, where: str) -> Line | None:
        """The line there, if one is open."""
        opened = self._shared.get(where)
        return None if opened is None or opened[0].left else opened[0]

    async def _share(self, way: Way) -> Line | None:
        async with self._opening.setdefault(way.where, SharedAttempt()).turn():
            if line := self.shared(way.where):
                return line
            if way.where in self._shared:
                self._leaving.append(self._shared.pop(way.where))
            await self._close_finished()
            opened = await _open(way)
            if opened is not None:
                self._shared[way.where] = opened, way
            return opened

    async def can_end_wait(self, way: Way) -> bool:
        """Whether a wait there can be ended early: not without a socket."""
        line = await self._take(way)
        if line is None:
            return False
        await self._put_back(line, way)
        return True

    async def _wait(self, way: Way, commands: Sequence[Command], wait: Wait) -> list[Any] | None:
        line = await self._take(way)
        if line is None:
            return None
        self._waiting.add(line)
        try:
            if wait.over:
                raise NotConnected("the wait was ended before it began")
            return await line.exchange(commands)
        except BaseException:
            line.close()  # nobody reads what it would still be told
            raise
        finally:
            self._waiting.discard(line)
            with anyio.CancelScope(shield=True):
                await self._put_back(line, way)

    def abandon(self) -> None:
        """Ends the waits of a closed event loop: the claim behind one would take events that nobody publishes."""
        for line in self._waiting:
            line.hang_up()

    async def _put_back(self, line: Line, way: Way) -> None:
        idle = self._idle.setdefault(way.where, [])
        if line.left or len(idle) >= IDLE:
            await _close(line, way)
        else:
            idle.append((line, way))

    async def _take(self, way: Way) -> Line | None:
        idle = self._idle.get(way.where, [])
        while idle:
            line, opened_by = idle.pop()
            if not line.left:
                return line
            await _close(line, opened_by)
        opened = await _open(way)
        if opened is not None and opened.patience is None:
            opened.patience = WAIT_PATIENCE
        return opened

    async def close(self) -> None:
        opened = [*self._shared.values(), *self._leaving, *(each for idle in self._idle.values() for each in idle)]
        self._shared, self._leaving, self._idle = {}, [], {}
        for line, way in opened:
            await _close(line, way)

    async def _close_finished(self) -> None:
        """A line that is left answers what was asked on it, and is closed then."""
        finished = [each for each in self._leaving if not each[0].busy]
        self._leaving = [each for each in self._leaving if each[0].busy]
        for line, way in finished:
            await _close(line, way)


async def _open(way: Way) -> Line | None:
    connection = await way.connect()
    line = Line.over(connection)
    if line is None:
        await way.release(connection)
    return line


async def _close(line: Line, way: Way) -> None:
    await way.release(await line.give_back())
