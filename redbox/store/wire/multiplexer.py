"""The multiplexer: one connection that all callers share.

Commands are sent as they come, and replies are handed out in the order of the commands.

redis-py opens the connection, because it knows addresses, TLS, logins and sentinels. After that its socket is read and
written here, without a pool, a stream and a timer for each command: those were most of the cost of a single put.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self

import anyio
import hiredis
from redis.exceptions import BusyLoadingError, ConnectionError, InvalidResponse, ReadOnlyError, TimeoutError

from redbox.store.attempt import SharedAttempt
from redbox.store.wire.base import BlockingWait, Command, NotConnected, pack

#: How long a blocked connection may be silent, in seconds, where connections have no read timeout of their own.
WAIT_PATIENCE: Final = 60.0
MOST_IDLE: Final = 2  # connections for waits that are kept open while nothing waits

_INCOMPLETE: Final = object()


class _PendingExchange:
    """Commands that were sent: how many replies are still missing, and the future of the caller."""

    __slots__ = ("future", "missing", "replies")

    def __init__(self, future: asyncio.Future[list[Any]], missing: int) -> None:
        self.future = future
        self.missing = missing
        self.replies: list[Any] = []


class Multiplexer(asyncio.Protocol):
    """One connection for any number of concurrent exchanges. A command that blocks would delay all of them."""

    def __init__(self, connection: Any, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport
        self._replaced_protocol = transport.get_protocol()
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=connection._parser.parse_error,  # noqa: SLF001  # the same errors as everywhere else
            notEnoughData=_INCOMPLETE,
        )
        self._loop = asyncio.get_running_loop()
        self.patience: float | None = connection.socket_timeout
        self._pending: deque[_PendingExchange] = deque()
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._writable: asyncio.Future[None] | None = None
        #: Whether new exchanges need another connection: this one is broken, or its server became a replica.
        self.retired = False

    @classmethod
    def take_over(cls, connection: Any) -> Self | None:
        """Takes over a connection that redis-py has opened; None if it has no socket of its own."""
        transport: Any = getattr(getattr(connection, "_writer", None), "transport", None)
        if not hasattr(transport, "set_protocol") or not hasattr(connection, "_parser"):
            return None
        multiplexer = cls(connection, transport)
        transport.set_protocol(multiplexer)
        if transport.is_closing():
            multiplexer.retired = True
        return multiplexer

    @property
    def busy(self) -> bool:
        """Whether replies are missing."""
        return bool(self._pending)

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Returns a reply for each command, error replies as exceptions. A cancelled caller does not affect others."""
        packed = pack(commands)
        if self._writable is not None:
            await asyncio.shield(self._writable)
        if self.retired:
            raise ConnectionError("the connection was closed")
        exchange = _PendingExchange(self._loop.create_future(), len(packed))
        if not self._pending:
            self._heard_at = self._loop.time()
            if self._timer is None and self.patience is not None:
                self._timer = self._loop.call_later(self.patience, self._check_silence)
        self._pending.append(exchange)
        self._transport.write(packed[0] if len(packed) == 1 else b"".join(packed))
        return await exchange.future

    def close(self) -> None:
        """Closes the connection; pending exchanges fail with a ConnectionError."""
        self.retired = True
        if self._loop.is_closed():
            self.shut_down()
        else:
            self._transport.abort()

    def shut_down(self) -> None:
        """Shuts the socket down without its event loop, which is closed."""
        with suppress(Exception):  # the socket may be gone, or of a kind that cannot be shut down
            self._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    async def give_back(self) -> Any:
        """Closes it and returns redis-py's connection object, which can connect again."""
        self.close()
        await self._connection.disconnect(nowait=True)
        return self._connection

    # --- called by the event loop --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                if not isinstance(reply, hiredis.PushNotification):  # no command asked for it
                    self._receive(reply)
        except (InvalidResponse, IndexError) as error:
            self._fail(ConnectionError(f"the server does not speak the Redis protocol: {error}"))
            self.close()

    def _receive(self, reply: Any) -> None:
        exchange = self._pending[0]
        exchange.replies.append(reply)
        exchange.missing -= 1
        if isinstance(reply, ReadOnlyError):
            self.retired = True  # after a failover: the next connection finds the new master
        if exchange.missing:
            return
        self._pending.popleft()
        if not exchange.future.done():
            broken = next((each for each in exchange.replies if isinstance(each, ConnectionError)), None)
            if broken is None:
                exchange.future.set_result(exchange.replies)
            else:  # such as LOADING, or a login that has ended
                self.retired = self.retired or not isinstance(broken, BusyLoadingError)
                exchange.future.set_exception(broken)
        if self.retired and not self._pending:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.retired = True
        if self._timer is not None:
            self._timer.cancel()
        self._fail(ConnectionError(f"the connection was closed: {exc}" if exc else "the connection was closed"))
        self.resume_writing()
        self._replaced_protocol.connection_lost(exc)  # redis-py may wait for it

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def _check_silence(self) -> None:
        """Fails all exchanges when the server has been silent for too long. One timer serves all of them."""
        self._timer = None
        if not self._pending or self.patience is None:
            return
        remaining = self._heard_at + self.patience - self._loop.time()
        if remaining > 0:
            self._timer = self._loop.call_later(remaining, self._check_silence)
        else:
            self._fail(TimeoutError(f"no answer within {self.patience:g} s"))
            self.close()

    def _fail(self, error: Exception) -> None:
        failed, self._pending = self._pending, deque()
        for exchange in failed:
            if not exchange.future.done():
                exchange.future.set_exception(type(error)(*error.args))  # its own: raising adds to its traceback


class Connector(NamedTuple):
    """How to get a redis-py connection to an address, and how to give it back."""

    address: str
    connect: Callable[[], Awaitable[Any]]
    release: Callable[[Any], Awaitable[None]]


class Multiplexers:
    """The open connections of a wire: for each address a shared one, and one for each caller that blocks there."""

    def __init__(self) -> None:
        self._shared: dict[str, tuple[Multiplexer, Connector]] = {}
        self._idle: dict[str, list[tuple[Multiplexer, Connector]]] = {}
        self._retired: list[tuple[Multiplexer, Connector]] = []
        self._blocked: set[Multiplexer] = set()
        self._opening: dict[str, SharedAttempt] = {}
        self._replaced = 0  # shared connections that were lost, and are no longer in `_shared`

    @property
    def losses(self) -> int:
        """How many shared connections were lost so far."""
        return self._replaced + sum(multiplexer.retired for multiplexer, _ in self._shared.values())

    async def exchange(
        self, connector: Connector, commands: Sequence[Command], wait: BlockingWait | None = None
    ) -> list[Any] | None:
        """A reply for each command; None where connections have no socket. A wait gets a connection of its own."""
        if wait is not None:
            return await self._wait(connector, commands, wait)
        multiplexer = self.shared(connector.address) or await self._share(connector)
        return None if multiplexer is None else await multiplexer.exchange(commands)

    def shared(self, address: str) -> Multiplexer | None:
        """The shared connection to an address, if one is open."""
        opened = self._shared.get(address)
        return None if opened is None or opened[0].retired else opened[0]

    async def _share(self, connector: Connector) -> Multiplexer | None:
        async with self._opening.setdefault(connector.address, SharedAttempt()).turn():
            if multiplexer := self.shared(connector.address):
                return multiplexer
            if connector.address in self._shared:
                self._retired.append(self._shared.pop(connector.address))
                self._replaced += 1
            await self._close_retired()
            opened = await _open(connector)
            if opened is not None:
                self._shared[connector.address] = opened, connector
            return opened

    async def can_end_wait(self, connector: Connector) -> bool:
        """Whether a wait there can be ended early: it cannot without a socket."""
        multiplexer = await self._take_idle(connector)
        if multiplexer is None:
            return False
        await self._put_back(multiplexer, connector)
        return True

    async def _wait(self, connector: Connector, commands: Sequence[Command], wait: BlockingWait) -> list[Any] | None:
        multiplexer = await self._take_idle(connector)
        if multiplexer is None:
            return None
        self._blocked.add(multiplexer)
        try:
            if wait.ended:
                raise NotConnected("the wait was ended before it began")
            return await multiplexer.exchange(commands)
        except BaseException:
            multiplexer.close()  # nobody reads its replies any more
            raise
        finally:
            self._blocked.discard(multiplexer)
            with anyio.CancelScope(shield=True):
                await self._put_back(multiplexer, connector)

    def abandon(self) -> None:
        """Ends the waits of a closed event loop: the claim behind one would take events that nobody publishes."""
        for multiplexer in self._blocked:
            multiplexer.shut_down()

    async def _put_back(self, multiplexer: Multiplexer, connector: Connector) -> None:
        idle = self._idle.setdefault(connector.address, [])
        if multiplexer.retired or len(idle) >= MOST_IDLE:
            await _close(multiplexer, connector)
        else:
            idle.append((multiplexer, connector))

    async def _take_idle(self, connector: Connector) -> Multiplexer | None:
        """An idle connection for a wait, or a new one; None where connections have no socket."""
        idle = self._idle.get(connector.address, [])
        while idle:
            multiplexer, opened_by = idle.pop()
            if not multiplexer.retired:
                return multiplexer
            await _close(multiplexer, opened_by)
        opened = await _open(connector)
        if opened is not None and opened.patience is None:
            opened.patience = WAIT_PATIENCE
        return opened

    async def close(self) -> None:
        opened = [*self._shared.values(), *self._retired, *(each for idle in self._idle.values() for each in idle)]
        self._replaced += len(self._shared)
        self._shared, self._retired, self._idle = {}, [], {}
        for multiplexer, connector in opened:
            await _close(multiplexer, connector)

    async def _close_retired(self) -> None:
        """Closes retired connections whose pending replies have arrived."""
        finished = [each for each in self._retired if not each[0].busy]
        self._retired = [each for each in self._retired if each[0].busy]
        for multiplexer, connector in finished:
            await _close(multiplexer, connector)


async def _open(connector: Connector) -> Multiplexer | None:
    connection = await connector.connect()
    multiplexer = Multiplexer.take_over(connection)
    if multiplexer is None:
        await connector.release(connection)
    return multiplexer


async def _close(multiplexer: Multiplexer, connector: Connector) -> None:
    await connector.release(await multiplexer.give_back())
