"""The guard for code that is not async: handles each event once, although it may be delivered several times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from redis.exceptions import NoScriptError, RedisError, WatchError

from redbox.consumer.attempts import AnyAttempt, AnyGuard, only_queueing
from redbox.consumer.records import ABANDON, BEGIN, FINISH
from redbox.errors import DeliveryRefused
from redbox.store.scripts.registry import Script


class SyncAttempt(AnyAttempt):
    """One attempt to handle an event. Inside `with` it is true if there is something to do, and false if the
    event was handled before.

    Entering raises StaleDelivery or DeliveryInProgress. When the block ends, the event is remembered as handled. If the
    block raises, the next delivery may begin at once. If the process crashes, the next delivery may begin when the
    lease has ended. Leaving raises LeaseLost if another delivery began before the block ended.
    """

    def __enter__(self) -> Self:
        try:
            return self._began(self._run(BEGIN, self._handling.keys, self._memory.begin(self._handling)))
        except (RedisError, OSError, DeliveryRefused):
            raise
        except BaseException:  # an interrupt, or the time limit of a task: it may have begun, and nobody will handle it
            self._abandon()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._open:
            return
        self._open = False
        if kind is None:
            self._finished(self._run(FINISH, self._handling.keys[:1], self._memory.finish(self._handling)))
            return
        self._abandon()

    def renew(self) -> None:
        """Lets the lease begin again, for work that takes long. Raises LeaseLost if another delivery has begun."""
        self._check_open()
        self._renewed(self._run(BEGIN, self._handling.keys, self._memory.begin(self._handling)))

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A pipeline whose commands are carried out together with the record that the event was handled: all or none.

        They are sent when the block ends, not before. Raises LeaseLost, and carries out nothing, if another delivery
        has begun.
        """
        self._check_open()
        handling = self._handling
        with self._client.pipeline(transaction=True) as pipe:
            pipe.watch(*handling.keys)
            record = pipe.hmget(handling.record, "token", "until")
            self._check_held(record, pipe.get(handling.fence) if handling.fence else None)
            pipe.multi()
            with only_queueing(pipe):
                yield pipe
            pipe.execute_command("EVAL", FINISH.text, 1, handling.record, *self._memory.finish(handling))
            try:
                pipe.execute()
            except WatchError:
                self._lose("nothing was changed")
        self._open = False

    def _abandon(self) -> None:
        """Lets the next delivery begin at once. If that fails, the lease has to end."""
        with suppress(RedisError, OSError):
            self._run(ABANDON, self._handling.keys[:1], (self._handling.token,))

    def _run(self, script: Script, keys: tuple[str, ...], arguments: tuple[Any, ...]) -> Any:
        try:
            return self._client.evalsha(script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return self._client.eval(script.text, len(keys), *keys, *arguments)


class SyncGuard(AnyGuard[SyncAttempt]):
    """Remembers in Redis which events were handled.

    `client` is a `redis` client or cluster. `name` is that of the consumer: each consumer of the same events
    needs its own. `lease` is how long one handling may take, and `remember` how long an event is remembered after it
    was handled, in seconds. Exceptions of redis-py are passed on.
    """

    _attempt = SyncAttempt
