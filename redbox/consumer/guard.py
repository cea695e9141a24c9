"""The guard for async code: handles each event once, although it may be delivered several times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

import anyio
from redis.exceptions import NoScriptError, RedisError, WatchError

from redbox.consumer.attempts import AnyAttempt, AnyGuard, only_queueing
from redbox.consumer.records import ABANDON, BEGIN, FINISH
from redbox.store.scripts.registry import Script

SHIELD_SECONDS: Final = 5.0


class Attempt(AnyAttempt):
    """One attempt to handle an event. Inside `async with` it is true if there is something to do, and false if the
    event was handled before.

    Entering raises StaleDelivery or DeliveryInProgress. When the block ends, the event is remembered as handled. If the
    block raises, the next delivery may begin at once. If the process crashes, the next delivery may begin when the
    lease has ended. Leaving raises LeaseLost if another delivery began before the block ended.
    """

    async def __aenter__(self) -> Self:
        try:
            return self._began(await self._begin())
        except asyncio.CancelledError:  # it may have begun, and nobody will handle it
            await self._abandon()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._open:
            return
        self._open = False
        if kind is None:  # also if the caller is cancelled now: the event was handled
            finish = self._run(FINISH, self._handling.keys[:1], self._memory.finish(self._handling))
            self._finished(await _to_the_end(finish))
            return
        await self._abandon()

    async def renew(self) -> None:
        """Lets the lease begin again, for work that takes long. Raises LeaseLost if another delivery has begun."""
        self._check_open()
        self._renewed(await self._begin())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A pipeline whose commands are carried out together with the record that the event was handled: all or none.

        They are sent when the block ends, not before. Raises LeaseLost, and carries out nothing, if another delivery
        has begun.
        """
        self._check_open()
        handling = self._handling
        async with self._client.pipeline(transaction=True) as pipe:
            await pipe.watch(*handling.keys)
            record = await pipe.hmget(handling.record, "token", "until")
            self._check_held(record, await pipe.get(handling.fence) if handling.fence else None)
            pipe.multi()
            with only_queueing(pipe):
                yield pipe
            pipe.execute_command("EVAL", FINISH.text, 1, handling.record, *self._memory.finish(handling))
            try:
                await pipe.execute()
            except WatchError:
                self._lose("nothing was changed")
        self._open = False

    async def _begin(self) -> Any:
        # To the end: a script that runs after that of `_abandon` would begin again.
        return await _to_the_end(self._run(BEGIN, self._handling.keys, self._memory.begin(self._handling)))

    async def _abandon(self) -> None:
        """Lets the next delivery begin at once, also for a cancelled caller. If that fails, the lease has to end."""
        with suppress(RedisError, OSError):
            await _to_the_end(self._run(ABANDON, self._handling.keys[:1], (self._handling.token,)))

    async def _run(self, script: Script, keys: tuple[str, ...], arguments: tuple[Any, ...]) -> Any:
        try:
            return await self._client.evalsha(script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._client.eval(script.text, len(keys), *keys, *arguments)


async def _to_the_end(call: Coroutine[Any, Any, Any]) -> Any:
    """Awaits a call to the server. A cancelled caller does not cancel it, but waits for its end, for at most five
    seconds."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _ended(task)
        raise


async def _ended(task: asyncio.Future[Any]) -> None:
    """Waits for a task, although the caller is cancelled, and may be cancelled again."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SHIELD_SECONDS
    with anyio.CancelScope(shield=True):  # cancels again and again, unlike asyncio
        while not task.done() and loop.time() < deadline:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=deadline - loop.time())
    task.cancel()


class Guard(AnyGuard[Attempt]):
    """Remembers in Redis which events were handled.

    `client` is a `redis.asyncio` client or cluster. `name` is that of the consumer: each consumer of the same events
    needs its own. `lease` is how long one handling may take, and `remember` how long an event is remembered after it
    was handled, in seconds. Exceptions of redis-py are passed on.
    """

    _attempt = Attempt
