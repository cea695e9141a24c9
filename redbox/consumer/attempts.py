"""What guards for async code and for other code have in common: all but the calls of the client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar

from redbox.consumer.deliveries import Delivery
from redbox.consumer.records import LEASE, REMEMBER, Handling, Memory, Reply, has_begun, is_held, word
from redbox.errors import LeaseLost, UsageError


class AnyAttempt:
    """One attempt to handle an event, and what the replies of the server mean for it."""

    def __init__(self, client: Any, memory: Memory, handling: Handling) -> None:
        self._client = client
        self._memory = memory
        self._handling = handling
        self._first = False
        self._open = False  # begun, and neither finished nor lost

    def __bool__(self) -> bool:
        return self._first

    def _began(self, reply: Any) -> Self:
        self._first = self._open = has_begun(self._handling, reply)
        return self

    def _renewed(self, reply: Any) -> None:
        if word(reply[0]) is not Reply.BEGUN:
            self._lose("the event may be handled twice")

    def _finished(self, reply: Any) -> None:
        if word(reply) is Reply.LOST:
            self._lose("the event may be handled twice")

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError("there is nothing to do in this attempt: it has not begun, is a duplicate, or has ended")

    def _check_held(self, record: Any, fence: Any) -> None:
        if not is_held(self._handling, record, fence):
            self._lose("nothing was changed")

    def _lose(self, effect: str) -> NoReturn:
        self._open = False
        raise LeaseLost(
            f"event {self._handling.event_id} took longer than its lease, and another delivery of it began, or of a "
            f"later event of its ordering key; {effect}"
        )


@contextmanager
def only_queueing(pipe: Any) -> Iterator[Any]:
    """A pipeline for the block of a transaction. Its commands must not be carried out without the record, so its
    `execute` is refused. The pipeline is of whatever class the client has."""
    pipe.execute = _refuse
    try:
        yield pipe
    finally:
        del pipe.execute


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise UsageError("a transaction only queues commands; they are sent together with the record when the block ends")


A = TypeVar("A", bound=AnyAttempt)


class AnyGuard(Generic[A]):
    """A guard whose attempts have the class `_attempt`."""

    _attempt: ClassVar[type[Any]]

    def __init__(
        self, client: Any, *, name: str, lease: float | timedelta = LEASE, remember: float | timedelta = REMEMBER
    ) -> None:
        self._client = client
        self._memory = Memory(name, lease, remember)

    def once(
        self,
        event: Delivery | str,
        *,
        claim: int | None = None,
        source: str | None = None,
        ordering_key: str | None = None,
    ) -> A:
        """Returns an attempt to handle a delivery, or an event by its id; use it with `with` or `async with`."""
        handling = self._memory.handling(event, claim, source, ordering_key)
        attempt: A = self._attempt(self._client, self._memory, handling)
        return attempt
