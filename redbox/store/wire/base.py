"""The wire: sends commands to the server that holds a box and returns its replies.

redis-py's own retries are off, because repeating a claim or a settlement would be wrong. `store.exchange` decides what
may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol
from uuid import uuid4

import anyio
import hiredis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    DataError,
    MovedError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from redbox.store.errors import MOVED_UNDER_SCRIPT

Command = tuple[Any, ...]
Talk = Callable[[Sequence[Command]], Awaitable[list[Any]]]
READ_TIMEOUT: Final = 5.0  # seconds; redis-py's own default

#: The server did not run a command that it answered with one of these: the command may be sent again.
_REDIRECTIONS: Final = (MovedError, AskError, TryAgainError, ClusterDownError)


class NotConnected(ConnectionError):
    """There was no connection, so nothing was sent."""


class BlockingWait:
    """Marks an exchange that may block. It gets a connection of its own; cancelling it closes that connection.

    `name` is unique. It names the key of this wait: a token that is pushed into that key ends the wait early.
    """

    def __init__(self) -> None:
        self.name = uuid4().hex
        self.ended = False  # commands that were not sent yet are not sent any more


class Wire(Protocol):
    """Connects to the server, or to the node of a cluster, that holds a key."""

    #: Whether the server understands the `#!lua` line of a script.
    shebang: bool

    async def exchange(self, key: str, commands: Sequence[Command], wait: BlockingWait | None = None) -> list[Any]:
        """Sends the commands on one connection and returns a reply for each.

        An error reply is returned as an exception; a broken connection is raised. With a `wait`, a command may block,
        so the connection is not shared.
        """

    async def can_end_wait(self, key: str) -> bool:
        """Whether a wait can be ended early."""

    def session(self, key: str) -> AbstractAsyncContextManager[Talk]:
        """One connection for several exchanges, as a transaction needs it. The caller follows redirections."""

    async def follow(self, redirect: Exception) -> None:
        """Updates the location of the slot from a redirection."""

    async def scan(self, pattern: str) -> list[bytes]:
        """Every matching key of the server, or of all nodes."""

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """Gives up a wire whose event loop is closed."""

    @property
    def losses(self) -> int:
        """How many connections were lost so far. The server may have lost data with one."""

    @property
    def read_timeout(self) -> float | None:
        """How long a reply may take, in seconds."""


def redirection(replies: Sequence[Any]) -> Exception | None:
    """The reply that points to another node or asks to try again later, if there is one."""
    for reply in replies:
        if isinstance(reply, _REDIRECTIONS) or (isinstance(reply, ResponseError) and MOVED_UNDER_SCRIPT in str(reply)):
            return reply
    return None


@asynccontextmanager
async def connecting(limit: float | None = None) -> AsyncIterator[None]:
    """Raises a failure to connect as NotConnected, since nothing was sent. Takes at most `limit` seconds."""
    try:
        async with asyncio.timeout(limit):
            yield
    except (AuthenticationError, BusyLoadingError):
        raise
    except (ConnectionError, TimeoutError, OSError, RedisClusterException) as error:
        raise NotConnected(str(error) or "no connection in time") from error


def pack(commands: Sequence[Command]) -> list[bytes]:
    """The commands in the Redis protocol."""
    try:
        return [hiredis.pack_command(command) for command in commands]  # redis-py's own packing is many times slower
    except TypeError as error:
        raise DataError(str(error)) from error


def cancellations() -> int:
    """How often the current task has been cancelled."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def raise_cancellation(before: int) -> None:
    """Raises a cancellation since `before`, which redis-py can lose: it uses `asyncio.wait_for`, which on Python 3.11
    does not raise one that arrives when the awaited task has just ended."""
    if cancellations() > before:
        await asyncio.sleep(0)  # a cancelled scope of anyio cancels the task again here
        raise asyncio.CancelledError


async def talk(connection: Any, commands: Sequence[Command]) -> list[Any]:
    """Writes commands to a connection and reads a reply for each. A connection left with unread replies is closed."""
    packed, before = pack(commands), cancellations()
    try:
        await connection.send_packed_command(packed, check_health=False)
        await raise_cancellation(before)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response())
            except ResponseError as error:
                replies.append(error)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await connection.disconnect(nowait=True)
        raise
    if any(isinstance(reply, ReadOnlyError) for reply in replies):
        await connection.disconnect()  # after a failover: the next connection finds the new master
    return replies
