"""The workers: they publish the events of the buffer concurrently."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable
from typing import Any, Final

import anyio

from redbox.errors import NotPublished, Reject
from redbox.publishers.base import Publisher
from redbox.relay.claiming.buffer import Buffer
from redbox.relay.claiming.capacity import Capacity
from redbox.relay.claiming.held import Held
from redbox.relay.errors import Interrupted, TimeLimit
from redbox.relay.outcomes.dead_letters import DeadLetters
from redbox.relay.outcomes.judge import Judge
from redbox.relay.outcomes.settler import Settler

logger = logging.getLogger("redbox.relay")

#: Seconds that a worker may run before it lets other tasks run: publishers that never wait would starve them.
TURN: Final = 0.005
#: Seconds between two cancellations of a publisher that ignores the first.
CANCEL_AGAIN: Final = 0.02
#: Time limits after which a publisher that ignores its cancellation loses the lease of its event.
ABANDON_AFTER: Final = 2


class _Slot:
    """One worker: the events it publishes, since when, and why it was cancelled. `cut_off`: its last call was
    cancelled, and may have left something running."""

    __slots__ = ("cancel_reason", "cut_off", "helds", "since", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None  # None until the worker has begun
        self.helds: list[Held] = []
        self.since: float | None = None
        self.cancel_reason: NotPublished | None = None
        self.cut_off = False


class Workers:
    """Publishes the events of the buffer. Workers are started as they are needed, up to `capacity.calls`."""

    def __init__(
        self,
        publisher: Publisher,
        dead_letters: DeadLetters | None,
        judge: Judge,
        settler: Settler,
        buffer: Buffer,
        *,
        capacity: Capacity,
        time_limit: float | None,
    ) -> None:
        self._publisher = publisher
        self.dead_letters = dead_letters
        self._judge = judge
        self._settler = settler
        self.buffer = buffer
        self._time_limit = time_limit
        self.size, self._events_per_call = capacity
        self._slots: list[_Slot] = []
        self._host: asyncio.Task[None] | None = None
        self.busy = 0  # workers that publish
        self.stuck = 0  # workers whose last call was cut off and still runs
        self.done = 0  # events whose publish has ended

    @property
    def free(self) -> int:
        """How many more events could be published at once."""
        return (self.size - self.busy - self.stuck) * self._events_per_call

    @property
    def all_stuck(self) -> bool:
        return self.stuck >= self.size

    @property
    def idle(self) -> bool:
        """Whether nothing is being published or waits to be."""
        return not self.busy and not len(self.buffer) and not (self.dead_letters and self.dead_letters.waiting)

    @property
    def stuck_text(self) -> str:
        """Why nothing can be published while all workers are stuck."""
        hang = "1 call of the publisher hangs" if self.size == 1 else f"{self.size} calls of the publisher hang"
        return f"{hang}, which is the most it takes at once"

    async def run(self) -> None:
        """Publishes until it is cancelled."""
        async with anyio.create_task_group() as group:
            self._host = asyncio.current_task()
            group.start_soon(self._enforce_time_limit)
            while len(self._slots) < self.size:
                await self.buffer.wait_for_spare_work()
                self._slots.append(slot := _Slot())
                group.start_soon(self._work, slot)

    # --- a worker ------------------------------------------------------------------------------------------------

    async def _work(self, slot: _Slot) -> None:
        task = slot.task = asyncio.current_task()
        assert task is not None
        now = asyncio.get_running_loop().time
        buffer, publish, judge = self.buffer, self._publisher.publish, self._judge
        one_by_one = self._events_per_call == 1
        turn_ends = now() + TURN
        buffer.worker_begins()
        while True:
            held = buffer.take()
            if held is None:
                await self._undisturbed(buffer.wait(), task)
                buffer.worker_begins()
                turn_ends = now() + TURN
                continue
            moment = now()
            if held.lost or moment >= held.deadline:
                self._settler.release(held)  # if its lease has not been reaped yet, the attempt does not count
            elif held.dead_reason is not None:
                await self._publish_dead_letter(slot, held, moment)
            elif one_by_one:
                slot.helds = [held]
                slot.since = held.started_at = moment
                self.busy += 1
                try:
                    await publish(held.claim)
                except BaseException as error:
                    judge.failed(held, self._failure(slot, error))
                else:
                    judge.published(held)
                finally:
                    self._call_ended(slot, 1)
            else:
                await self._publish_many(slot, held, moment)
            if slot.cut_off:
                await self._wait_for_unfinished(slot, task)
            if moment > turn_ends or task.cancelling():
                await self._undisturbed(asyncio.sleep(0), task)
                turn_ends = now() + TURN

    async def _publish_many(self, slot: _Slot, first: Held, moment: float) -> None:
        chunk = [first]
        while len(chunk) < self._events_per_call and (held := self.buffer.peek()) is not None:
            if held.dead_reason is not None or held.lost or moment >= held.deadline:
                break
            self.buffer.take()
            chunk.append(held)
        for held in chunk:
            held.started_at = moment
        slot.helds = chunk
        slot.since = moment
        self.busy += 1
        try:
            outcomes = await self._outcomes(slot, chunk)
            for held, outcome in zip(chunk, outcomes, strict=True):
                if outcome is None:
                    self._judge.published(held)
                else:
                    self._judge.failed(held, outcome)
        finally:
            self._call_ended(slot, len(chunk))

    async def _outcomes(self, slot: _Slot, chunk: list[Held]) -> list[BaseException | None]:
        try:
            outcomes = list(await self._publisher.publish_many([held.claim for held in chunk]))
            if len(outcomes) != len(chunk):
                raise NotPublished(f"the publisher returned {len(outcomes)} outcomes for {len(chunk)} events")
        except BaseException as error:
            return [self._failure(slot, error)] * len(chunk)
        return outcomes

    async def _publish_dead_letter(self, slot: _Slot, held: Held, moment: float) -> None:
        """Publishes an event to the dead-letter target; then it is marked DEAD."""
        dead_letters = self.dead_letters
        assert dead_letters is not None
        if dead_letters.admit(held):
            slot.helds = [held]
            slot.since = moment
            self.busy += 1
            try:
                await dead_letters.publish(held)
            except Reject as error:
                self._judge.dead_letter_rejected(held, error)
            except BaseException as error:
                failure = self._failure(slot, error)
                if isinstance(failure, Interrupted):
                    self._judge.failed(held, failure)
                else:
                    self._judge.dead_letter_failed(held, failure)
            else:
                self._judge.dead_letter_received(held)
            finally:
                self._call_ended(slot, 1)
            dead_letters.call_ended(cut_off=slot.cut_off)
            slot.cut_off = False  # this worker is needed for the main target
        if dead_letters.fail_waiting_if_stuck():
            self._report_if_idle()

    async def _wait_for_unfinished(self, slot: _Slot, task: asyncio.Task[None]) -> None:
        """A call of the main target that was cut off may still run, in a thread. Its worker takes no event until the
        call has ended, so that no more calls overlap than the publisher can take."""
        slot.cut_off = False
        unfinished = self._publisher.unfinished()
        if unfinished is None:
            return
        self.stuck += 1
        if self.all_stuck:
            logger.error("%s: nothing is claimed until a call ends", self.stuck_text)
            self._settler.release_all(self.buffer.withdraw())  # other relays can publish these
        try:
            while not unfinished.done():
                await self._undisturbed(_end_of(unfinished), task)
        finally:
            self.stuck -= 1
        self.buffer.refill.set()

    def _call_ended(self, slot: _Slot, events: int) -> None:
        slot.since = None
        self.busy -= 1
        self.done += events
        slot.cancel_reason = None
        self._report_if_idle()

    def _report_if_idle(self) -> None:
        if self.idle:
            self.buffer.refill.set()
            self._judge.workers_idle(self)

    # --- cancellations -------------------------------------------------------------------------------------------

    def _failure(self, slot: _Slot, error: BaseException) -> BaseException:
        """The failure for a publisher's exception; raises exceptions that are meant for the relay."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        if isinstance(error, asyncio.CancelledError):
            if self._is_ending():
                raise error
            slot.cut_off = True
            return slot.cancel_reason or NotPublished("the publisher cancelled itself")
        return error

    def _is_ending(self) -> bool:
        """Whether the relay is being cancelled, or every task is, as when the event loop ends."""
        assert self._host is not None
        return anyio.current_effective_deadline() == -math.inf or self._host.cancelling() > 0

    async def _undisturbed(self, wait: Awaitable[None], task: asyncio.Task[None]) -> None:
        """Waits. A cancellation that was meant for an earlier publish must not end the wait; before Python 3.13 even
        one that was withdrawn is delivered."""
        while task.cancelling():
            task.uncancel()
        try:
            await wait
        except asyncio.CancelledError:
            if self._is_ending():
                raise
            while task.cancelling():
                task.uncancel()

    async def _enforce_time_limit(self) -> None:
        """Cancels publishes that exceed the time limit."""
        limit = self._time_limit
        if limit is None:
            return
        now = asyncio.get_running_loop().time
        while True:
            oldest = min((slot.since for slot in self._slots if slot.since is not None), default=now())
            await asyncio.sleep(max(CANCEL_AGAIN, oldest + limit - now()))
            for slot in self._slots:
                if slot.since is not None and now() - slot.since >= limit:
                    was_cancelled = slot.cancel_reason is not None  # if the event loop lags, this is the first time
                    _cancel(slot, TimeLimit(f"the publisher did not return within {limit:g} s"))
                    if was_cancelled and now() - slot.since >= ABANDON_AFTER * limit:
                        _abandon(slot.helds)
                        self.buffer.refill.set()

    def interrupt(self) -> None:
        """Cancels every publish; the events are returned to PENDING."""
        waiting = self.buffer.clear()  # for the dead-letter target; other events were withdrawn
        if self.dead_letters is not None:
            waiting = [*self.dead_letters.waiting, *waiting]
            self.dead_letters.waiting.clear()
        for held in waiting:
            self._judge.failed(held, Interrupted())
        for slot in self._slots:
            if slot.since is not None:
                _cancel(slot, Interrupted())


def _cancel(slot: _Slot, reason: NotPublished) -> None:
    assert slot.task is not None
    slot.cancel_reason = reason
    slot.task.cancel()


async def _end_of(unfinished: asyncio.Future[Any]) -> None:
    await asyncio.wait((unfinished,))  # not cancelled when this is


def _abandon(helds: list[Held]) -> None:
    """The publisher ignores its cancellation: its leases are not renewed, so that other relays get the events."""
    for held in helds:
        if not held.lost:
            held.lost = True
            logger.error(
                "the publisher ignores its cancellation; the lease of event %s is not renewed", held.claim.event_id,
                extra={"event_id": held.claim.event_id},
            )  # fmt: skip
