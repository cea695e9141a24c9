"""The guard for async code: handles each event once, although it may be delivered several times."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

import anyio
from redis.exceptions import NoScriptError, RedisError, WatchError

from redbox.consumer.attempts import AnyAttempt, AnyGuard
from redbox.consumer.records import ABANDON, BEGIN, FINISH
from redbox.store.scripts.registry import Script

ABANDON_SECONDS: Final = 5.0


class Attempt(AnyAttempt):
    """One attempt to handle an event. Inside `async with` it is true if there is something to do, and false if the
    event was handled before.

    Entering raises StaleDelivery or DeliveryInProgress. When the block ends, the event is remembered as handled. If the
    block raises, the next delivery may begin at once. If the process crashes, the next delivery may begin when the
    lease has ended. Leaving raises LeaseLost if another delivery began before the block ended.
    """

    async def __aenter__(self) -> Self:
        return self._began(await self._run(BEGIN, self._handling.keys, self._memory.begin(self._handling)))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._open:
            return
        self._open = False
        record = self._handling.keys[:1]
        if kind is None:
            self._finished(await self._run(FINISH, record, self._memory.finish(self._handling)))
            return
        # Also for a cancelled caller, which would keep the event busy until the lease ends.
        with anyio.move_on_after(ABANDON_SECONDS, shield=True), suppress(RedisError, OSError):
            await self._run(ABANDON, record, (self._handling.token,))

    async def renew(self) -> None:
        """Lets the lease begin again, for work that takes long. Raises LeaseLost if another delivery has begun."""
        self._check_open()
        self._renewed(await self._run(BEGIN, self._handling.keys, self._memory.begin(self._handling)))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A pipeline whose commands are carried out together with the record that the event was handled: all or none.

        Raises LeaseLost, and carries out nothing, if another delivery has begun.
        """
        self._check_open()
        handling = self._handling
        async with self._client.pipeline(transaction=True) as pipe:
            await pipe.watch(*handling.keys)
            record = await pipe.hmget(handling.record, "token", "until")
            self._check_held(record, await pipe.get(handling.fence) if handling.fence else None)
            pipe.multi()
            yield pipe
            pipe.execute_command("EVAL", FINISH.text, 1, handling.record, *self._memory.finish(handling))
            try:
                await pipe.execute()
            except WatchError:
                self._lose("nothing was changed")
        self._open = False

    async def _run(self, script: Script, keys: tuple[str, ...], arguments: tuple[Any, ...]) -> Any:
        try:
            return await self._client.evalsha(script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._client.eval(script.text, len(keys), *keys, *arguments)


class Guard(AnyGuard[Attempt]):
    """Remembers in Redis which events were handled.

    `client` is a `redis.asyncio` client or cluster. `name` is that of the consumer: each consumer of the same events
    needs its own. `lease` is how long one handling may take, and `remember` how long an event is remembered after it
    was handled, in seconds. Exceptions of redis-py are passed on.
    """

    _attempt = Attempt
