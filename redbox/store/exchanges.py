"""The exchanges of one box with its server: opens the wire, repeats what may be repeated, and reports failures.

A put and a read may be repeated after a broken connection. A claim or a settlement may not: nobody knows whether the
script ran before the reply was lost.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    ReadOnlyError,
    RedisError,
    TimeoutError,
)

from redbox import keys
from redbox.errors import ForeignKey, RedboxError, StoreUnavailable, UsageError
from redbox.store.connect import Endpoint
from redbox.store.errors import code, translate
from redbox.store.server.foreign import find_foreign, foreign_key_error, keys_of_box
from redbox.store.server.server_facts import LACK_QUESTIONS, ServerFacts
from redbox.store.wire.base import BlockingWait, Command, NotConnected, Talk, Wire
from redbox.store.wire.multiplexer import WAIT_PATIENCE

REPEAT_PAUSES: Final = (0.05, 0.25)  # seconds
OTHER_LOOP: Final = "this box is in use on another event loop; open one box per loop"
CLOSED: Final = "this box was closed; open it again with Box.open"


class _InFlight:
    """Counts exchanges in flight, on one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    async def ended(self) -> None:
        """Waits until no exchange is in flight."""
        while self._count:
            self._none.clear()
            await self._none.wait()


class Exchanges:
    """Sends commands to the server that holds a box. Connects when first used."""

    def __init__(self, endpoint: Endpoint, box: str) -> None:
        self.endpoint = endpoint
        self.box = box
        self._meta = keys.meta(box)
        self._wire: Wire | None = None
        self._opening = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = self._closed = False
        self._in_flight = _InFlight()

    # --- the wire ------------------------------------------------------------------------------------------------

    async def wire(self) -> Wire:
        """The wire to the server, opened at the first call, on the event loop of the caller."""
        self._ensure_not_closed()
        self._change_loop()
        wire = self._wire
        if wire is None:
            async with self._opening:
                self._ensure_not_closed()
                if self._wire is None:
                    self._wire = await self.endpoint.open()
                wire = self._wire
            self._ensure_not_closed()  # meanwhile: `close` waits for the wire, and closes it
        return wire

    @property
    def losses(self) -> int:
        """How many connections were lost so far."""
        return 0 if self._wire is None else self._wire.losses

    def ensure_open(self) -> None:
        """Raises UsageError for a new call on a box that is closed or closing."""
        if self._closing:
            raise UsageError(CLOSED)

    def _ensure_not_closed(self) -> None:
        if self._closed:
            raise UsageError(CLOSED)

    def begin_closing(self) -> None:
        """Refuses new calls from now on; calls that were accepted before can still make their exchanges."""
        self._closing = True

    def _change_loop(self) -> None:
        """Starts afresh on another event loop: connections, locks and exchanges belong to the loop they began on."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        in_use = self._wire is not None or self._opening.locked()
        if self._loop is not None and in_use and not self._loop.is_closed():
            raise UsageError(OTHER_LOOP)
        if self._wire is not None:
            self._wire.abandon()
        self._wire, self._loop, self._opening, self._in_flight = None, loop, asyncio.Lock(), _InFlight()

    async def close(self) -> None:
        """Waits for exchanges in flight and closes the connections. Nothing is sent after this call began."""
        self._closing = self._closed = True
        self._change_loop()
        await self._in_flight.ended()
        async with self._opening:
            wire, self._wire = self._wire, None
            if wire is not None:
                await wire.close()

    # --- exchanges -----------------------------------------------------------------------------------------------

    async def ask(
        self, commands: Sequence[Command], *, repeat: bool = False, wait: BlockingWait | None = None
    ) -> list[Any]:
        """Returns a reply for each command. Every failure is raised as a RedboxError, error replies too."""
        replies = await self.send(commands, repeat=repeat, wait=wait)
        for reply in replies:
            if isinstance(reply, Exception):
                raise await self.explain(reply) from reply
        return replies

    async def send(
        self, commands: Sequence[Command], *, repeat: bool, writes: bool = False, wait: BlockingWait | None = None
    ) -> list[Any]:
        """As `ask`, but error replies are returned as exceptions. `writes`: the commands may change the box."""
        wire = await self.wire()
        with self._in_flight:
            return await self._until_answered(wire, commands, repeat=repeat, writes=writes, wait=wait)

    async def _until_answered(
        self, wire: Wire, commands: Sequence[Command], *, repeat: bool, writes: bool, wait: BlockingWait | None
    ) -> list[Any]:
        now = asyncio.get_running_loop().time
        # A server that does not answer is not asked again for longer than an answer may take.
        deadline = math.inf if wire.read_timeout is None else now() + wire.read_timeout
        pauses = iter(REPEAT_PAUSES if repeat else ())
        failovers = iter(REPEAT_PAUSES)
        sent = False
        while True:
            try:
                replies = await wire.exchange(self._meta, commands, wait)
                pause = next(failovers, None) if isinstance(replies[0], ReadOnlyError) else None
                if pause is None:
                    return replies
                # A master that became a replica ran nothing, so any commands may be sent to the new master.
            except UnicodeEncodeError as error:
                raise UsageError(f"this text cannot be encoded as UTF-8: {error.object!a:.100}") from None
            except BusyLoadingError as error:
                raise await self.explain(error) from error
            except (RedisError, OSError) as error:
                sent = sent or not isinstance(error, NotConnected)
                lasting = not isinstance(error, ConnectionError | TimeoutError | OSError)
                pause = next(pauses, None) if now() < deadline else None
                if lasting or pause is None or isinstance(error, AuthenticationError):
                    raise self.translate(error, maybe=writes and sent) from error
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def session(self, wire: Wire) -> AsyncIterator[Talk]:
        """One connection for several exchanges; `close` waits for its end."""
        with self._in_flight:
            async with wire.session(self._meta) as talk:
                yield talk

    async def can_end_wait(self) -> bool:
        """Whether a wait on this server can be ended early."""
        wire = await self.wire()
        try:
            with self._in_flight:
                return await wire.can_end_wait(self._meta)
        except (RedisError, OSError) as error:
            raise self.translate(error, maybe=False) from error

    async def longest_wait(self, longest: float) -> float:
        """`longest`, or less where the connection would be given up before, in seconds."""
        patience = (await self.wire()).read_timeout
        return min(longest, (WAIT_PATIENCE if patience is None else patience) / 2)

    async def scan(self, pattern: str) -> list[bytes]:
        """Every matching key of the server, or of all nodes of a cluster. Repeated after a broken connection: one that
        was idle may have broken long ago."""
        pauses = iter(REPEAT_PAUSES)
        while True:
            try:
                wire = await self.wire()
                with self._in_flight:
                    return await wire.scan(pattern)
            except (RedisError, OSError) as error:
                lasting = not isinstance(error, ConnectionError | OSError)
                pause = None if lasting else next(pauses, None)
                if pause is None or isinstance(error, AuthenticationError | BusyLoadingError):
                    raise await self.explain(error) from error
            await asyncio.sleep(pause)

    def translate(self, error: Exception, *, maybe: bool) -> RedboxError:
        """A redis-py error as a RedboxError. `maybe`: the connection broke after something was sent."""
        return translate(error, where=self.endpoint.description, box=self.box, maybe=maybe)

    async def explain(self, reply: Exception) -> RedboxError:
        """An error reply as a RedboxError, with what the server says when asked: which key is foreign, if it is one
        that the box has once, or how far the server is with loading its data."""
        error = self.translate(reply, maybe=False)
        if code(reply) in {"LOADING", "MASTERDOWN"}:
            return await self.lack() or error
        if not isinstance(error, ForeignKey):
            return error
        try:
            found = await find_foreign(self.send, keys_of_box(self.box))
        except RedboxError:
            return error
        return foreign_key_error(found, where=self.endpoint.description, box=self.box) if found else error

    async def lack(self) -> StoreUnavailable | None:
        """The error of a server that may lack data: it is loading, or a replica without a link to its master. None if
        it has all, or does not say."""
        wire = await self.wire()
        try:
            with self._in_flight:
                facts = ServerFacts.read_lack(await wire.exchange(self._meta, LACK_QUESTIONS))
        except (RedisError, OSError):
            return None
        if not facts.lack:
            return None
        error = StoreUnavailable(f"{self.endpoint.description} {facts.lack}")
        error.answered = True
        return error
