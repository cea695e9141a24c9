"""The publishing side of a relay: a buffer of claimed events, and workers that publish them concurrently."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable
from typing import Final

import anyio
import anyio.abc
import msgspec

from redbox.errors import NotPublished, Reject
from redbox.events import Claim, stored_event
from redbox.publishers.base import REASON_HEADER, Publisher
from redbox.relay.judge import Interrupted, Judge
from redbox.relay.settler import Held, Settler, error_words

#: How long a worker may go on without letting others run: publishers that never wait would starve everything else.
TURN: Final = 0.005
AGAIN: Final = 0.02
REASON_LENGTH: Final = 500


class TimeLimit(NotPublished):
    """The publisher did not end in time."""


class _Slot:
    """What one worker is doing: since when, and why it was told to stop."""

    __slots__ = ("since", "stop", "task")

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.since: float | None = None
        self.stop: NotPublished | None = None


class Workers:
    """Publishes what is added. Workers are started as they are needed, up to `size`."""

    def __init__(
        self,
        publisher: Publisher,
        dead: Publisher | None,
        judge: Judge,
        settler: Settler,
        *,
        concurrency: int,
        time_limit: float | None,
    ) -> None:
        self._publisher = publisher
        self._dead = dead
        self._judge = judge
        self._settler = settler
        self._time_limit = time_limit
        self._many = publisher.many
        # Of a publisher that takes many at once two calls overlap, unless just one event at a time is wanted.
        self.size = concurrency if self._many == 1 else 1 if concurrency == 1 else max(2, concurrency // self._many)
        self._slots: list[_Slot] = []
        self._idle: list[asyncio.Future[None]] = []
        self._group: anyio.abc.TaskGroup | None = None
        self.buffer: deque[Held] = deque()
        self.busy = 0
        self.done = 0
        #: Set when the buffer has shrunk to `low`, and when the last worker becomes idle.
        self.low = 0
        self.thirsty = asyncio.Event()

    @property
    def free(self) -> int:
        """How many more events could be under way at once."""
        return (self.size - self.busy) * self._many

    @property
    def quiet(self) -> bool:
        return not self.buffer and not self.busy

    async def run(self) -> None:
        """Publishes until it is cancelled."""
        async with anyio.create_task_group() as group:
            self._group = group
            self._call(len(self.buffer))
            await self._watch()

    # --- the buffer ----------------------------------------------------------------------------------------------

    def add(self, helds: Iterable[Held]) -> None:
        before = len(self.buffer)
        self.buffer.extend(helds)
        self._call(len(self.buffer) - before)

    def add_first(self, held: Held) -> None:
        self.buffer.appendleft(held)
        self._call(1)

    def take_back(self) -> list[Held]:
        """What was not begun, and is not about to die."""
        back = [held for held in self.buffer if held.fate is None]
        doomed = [held for held in self.buffer if held.fate is not None]
        self.buffer.clear()
        self.buffer.extend(doomed)
        return back

    def _call(self, events: int) -> None:
        """Wakes or starts workers for so many events more."""
        for _ in range(min(-(-events // self._many), self.size)):
            while self._idle:
                waiting = self._idle.pop()
                if not waiting.done():
                    waiting.set_result(None)
                    break
            else:
                if self._group is None or len(self._slots) >= self.size:
                    return
                self._slots.append(slot := _Slot(None))  # type: ignore[arg-type]  # the task names itself
                self._group.start_soon(self._work, slot)

    # --- a worker ------------------------------------------------------------------------------------------------

    async def _work(self, slot: _Slot) -> None:
        task = asyncio.current_task()
        assert task is not None
        slot.task = task
        now = asyncio.get_running_loop().time
        buffer, one_by_one, publish, judge = self.buffer, self._many == 1, self._publisher.publish, self._judge
        turn_ends = now() + TURN
        while True:
            if not buffer:
                await self._rest()
                turn_ends = now() + TURN
                continue
            held = buffer.popleft()
            if len(buffer) <= self.low:
                self.thirsty.set()
            moment = now()
            if held.fate is not None:
                await self._bury(slot, held, moment)
            elif held.lost or moment >= held.deadline:
                self._settler.release(held)  # if nobody has reaped it yet, it goes back untried
            elif one_by_one:
                slot.since = moment
                self.busy += 1
                try:
                    await publish(held.claim)
                except BaseException as error:
                    judge.failed(held, self._failure(slot, error))
                else:
                    judge.published(held)
                finally:
                    self._ended(slot, 1)
            else:
                await self._publish_many(slot, held, moment)
            if moment > turn_ends:
                await asyncio.sleep(0)
                turn_ends = now() + TURN

    async def _publish_many(self, slot: _Slot, first: Held, moment: float) -> None:
        chunk, buffer = [first], self.buffer
        while buffer and len(chunk) < self._many:
            held = buffer[0]
            if held.fate is not None or held.lost or moment >= held.deadline:
                break
            chunk.append(buffer.popleft())
        if len(buffer) <= self.low:
            self.thirsty.set()
        slot.since = moment
        self.busy += 1
        try:
            outcomes = list(await self._publisher.publish_many([held.claim for held in chunk]))
            if len(outcomes) != len(chunk):
                raise NotPublished(f"the publisher told {len(outcomes)} outcomes for {len(chunk)} events")
        except BaseException as error:
            outcomes = [self._failure(slot, error)] * len(chunk)
        finally:
            self._ended(slot, len(chunk))
        for held, outcome in zip(chunk, outcomes, strict=True):
            if outcome is None:
                self._judge.published(held)
            else:
                self._judge.failed(held, outcome)

    async def _bury(self, slot: _Slot, held: Held, moment: float) -> None:
        """Hands an event to the dead-letter target, then lets it die."""
        if self._dead is None:
            self._judge.buried(held)
            return
        slot.since = moment
        self.busy += 1
        try:
            await self._dead.publish(_with_reason(held))
        except Reject as error:
            self._judge.buried(held, error)
        except BaseException as error:
            failure = self._failure(slot, error)
            if isinstance(failure, Interrupted):
                self._judge.failed(held, failure)
            else:
                self._judge.unburied(held, failure)
        else:
            self._judge.buried(held)
        finally:
            self._ended(slot, 1)

    def _ended(self, slot: _Slot, events: int) -> None:
        slot.since = None
        self.busy -= 1
        self.done += events
        if slot.stop is not None:  # told to stop, but it ended by itself: the order must not hit what comes next
            slot.stop = None
            _forget_cancellation(slot.task)
        if not self.busy and not self.buffer:
            self.thirsty.set()

    def _failure(self, slot: _Slot, error: BaseException) -> BaseException:
        """What a publisher's exception means; raises what is meant for the relay itself."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        if isinstance(error, asyncio.CancelledError):
            if anyio.current_effective_deadline() == -math.inf:  # the relay is being cancelled
                raise error
            if slot.stop is not None:
                return slot.stop
            _forget_cancellation(slot.task)
            return NotPublished("the publisher cancelled itself")
        return error

    async def _rest(self) -> None:
        """Waits for work."""
        waiting = asyncio.get_running_loop().create_future()
        self._idle.append(waiting)
        await waiting

    # --- ending what takes too long ------------------------------------------------------------------------------

    async def _watch(self) -> None:
        if self._time_limit is None:
            await anyio.sleep_forever()
            return
        now = asyncio.get_running_loop().time
        while True:
            begun = [slot.since for slot in self._slots if slot.since is not None]
            # A publisher that ignores its end is told again, but not in a busy loop.
            await asyncio.sleep(max(AGAIN, min(begun, default=now()) + self._time_limit - now()))
            for slot in self._slots:
                if slot.since is not None and now() - slot.since >= self._time_limit:
                    self._stop(slot, TimeLimit(f"the publisher did not end within {self._time_limit:g} s"))

    def interrupt(self) -> None:
        """Ends what is under way; those events go back."""
        for slot in self._slots:
            if slot.since is not None:
                self._stop(slot, Interrupted())

    def _stop(self, slot: _Slot, why: NotPublished) -> None:
        slot.stop = why
        slot.task.cancel()


def _forget_cancellation(task: asyncio.Task[None]) -> None:
    while task.cancelling():
        task.uncancel()


def _with_reason(held: Held) -> Claim:
    """The claim as the dead-letter target gets it: its headers say why the event died."""
    assert held.fate is not None
    text = error_words(held.fate)[:REASON_LENGTH].encode("ascii", "backslashreplace").decode()
    reason = "".join(char if char.isprintable() else " " for char in text)
    event = held.claim.event
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return msgspec.structs.replace(
        held.claim, event=stored_event(**{**fields, "headers": {**event.headers, REASON_HEADER: reason}})
    )
