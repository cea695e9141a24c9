"""The dead-letter target: which events it receives before they are marked DEAD, and how many at once."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

import msgspec

from redbox.events import Claim, stored_event
from redbox.publishers.base import REASON_HEADER, Publisher
from redbox.relay.claiming.buffer import Buffer
from redbox.relay.claiming.capacity import capacity
from redbox.relay.claiming.held import Held
from redbox.relay.errors import TimeLimit
from redbox.relay.outcomes.error_text import error_text
from redbox.relay.outcomes.judge import Judge

REASON_LENGTH: Final = 500


class DeadLetters:
    """Limits the calls of the dead-letter target that overlap: at least half of `workers` are left to the main target.

    A call that was cut off and still runs occupies no worker, but counts until it has ended.
    """

    def __init__(self, publisher: Publisher, judge: Judge, buffer: Buffer, *, workers: int) -> None:
        self._publisher = publisher
        self._judge = judge
        self._buffer = buffer
        self._limit = min(capacity(publisher, workers).calls, max(1, workers // 2))
        self._running = 0
        self.stuck = 0  # running calls that were cut off
        self.waiting: deque[Held] = deque()  # events that wait for a call to end

    def admit(self, held: Held) -> bool:
        """Whether `publish` may be called now. If not, the event waits here until a call has ended."""
        if self._running >= self._limit:
            self.waiting.append(held)
            return False
        self._running += 1
        return True

    async def publish(self, held: Held) -> None:
        """Publishes an event that was admitted. `call_ended` must follow."""
        await self._publisher.publish(_with_reason(held))

    def call_ended(self, *, cut_off: bool) -> None:
        """A call has returned; `cut_off`: it was cancelled, and may still run."""
        unfinished = self._publisher.unfinished() if cut_off else None
        if unfinished is None:
            self._make_room()
        else:
            self.stuck += 1
            unfinished.add_done_callback(self._stuck_call_ended)

    def fail_waiting_if_stuck(self) -> bool:
        """While every call hangs, events do not wait here: their attempt fails. Returns whether one did."""
        failed = False
        while self.waiting and self.stuck >= self._limit:
            self._judge.dead_letter_failed(self.waiting.popleft(), TimeLimit("earlier calls have not ended yet"))
            failed = True
        return failed

    def _stuck_call_ended(self, _: asyncio.Future[Any]) -> None:
        self.stuck -= 1
        self._make_room()

    def _make_room(self) -> None:
        self._running -= 1
        if self.waiting:
            self._buffer.add_dead_letter(self.waiting.popleft())


def _with_reason(held: Held) -> Claim:
    """The claim with a header that says why the event is marked DEAD."""
    assert held.dead_reason is not None
    text = error_text(held.dead_reason)[:REASON_LENGTH].encode("ascii", "backslashreplace").decode()
    reason = "".join(char if char.isprintable() else " " for char in text)
    event = held.claim.event
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return msgspec.structs.replace(
        held.claim, event=stored_event(**{**fields, "headers": {**event.headers, REASON_HEADER: reason}})
    )
