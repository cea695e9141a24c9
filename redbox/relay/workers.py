"""The publishing side of a relay: a buffer of claimed events, and workers that publish them concurrently."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import anyio
import anyio.abc
import msgspec

from redbox.errors import NotPublished, Reject
from redbox.events import Claim, stored_event
from redbox.publishers.base import REASON_HEADER, Publisher
from redbox.relay.capacity import capacity
from redbox.relay.error_text import error_words
from redbox.relay.judge import Interrupted, Judge
from redbox.relay.settler import Held, Settler

logger = logging.getLogger("redbox.relay")

#: How long a worker may go on without letting others run: publishers that never wait would starve everything else.
TURN: Final = 0.005
AGAIN: Final = 0.02
GIVE_UP: Final = 2  # times the time limit
REASON_LENGTH: Final = 500


class TimeLimit(NotPublished):
    """The publisher did not end in time."""


class _Slot:
    """What one worker is doing: with which events, since when, and why it was told to stop. `cut_off`: its last call
    was cancelled, and may have left something running."""

    __slots__ = ("cut_off", "helds", "since", "stop", "task")

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.helds: list[Held] = []
        self.since: float | None = None
        self.stop: NotPublished | None = None
        self.cut_off = False


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
        self.size, self._many = capacity(publisher, concurrency)
        #: Calls of the dead-letter target that may overlap. At least half of the workers are left to the main target.
        self._dead_size = 0 if dead is None else min(capacity(dead, self.size).calls, max(1, self.size // 2))
        self._burying = 0  # calls of the dead-letter target that run
        self.dead_stuck = 0  # those of them that were cut off; no worker waits for them
        self._doomed: deque[Held] = deque()  # these wait until the dead-letter target can take them
        self._slots: list[_Slot] = []
        self._idle: list[asyncio.Future[None]] = []
        self._called = False  # a worker was woken, and has not begun yet
        self._group: anyio.abc.TaskGroup | None = None
        self._host: asyncio.Task[None] | None = None
        self.buffer: deque[Held] = deque()
        self.busy = 0
        self.stuck = 0  # workers whose last call was cut off and still runs
        self.done = 0
        #: Set when the buffer has shrunk to `low`, and when the last worker becomes idle.
        self.low = 0
        self.thirsty = asyncio.Event()
        #: Called when the last worker becomes idle.
        self.on_quiet: Callable[[], None] = lambda: None
        #: Called when the last worker becomes stuck.
        self.on_all_stuck: Callable[[], None] = lambda: None

    @property
    def free(self) -> int:
        """How many more events could be under way at once."""
        return (self.size - self.busy - self.stuck) * self._many

    @property
    def all_stuck(self) -> bool:
        return self.stuck >= self.size

    @property
    def quiet(self) -> bool:
        return not self.buffer and not self.busy and not self._doomed

    async def run(self) -> None:
        """Publishes until it is cancelled."""
        async with anyio.create_task_group() as group:
            self._group, self._host = group, asyncio.current_task()
            self._call()
            try:
                await self._watch()
            finally:
                self._group = None  # dead-letter calls that end later start no worker

    # --- the buffer ----------------------------------------------------------------------------------------------

    def add(self, helds: Iterable[Held]) -> None:
        self.buffer.extend(helds)
        self._call()

    def bury(self, held: Held) -> None:
        """Hands an event to the dead-letter target next; where one worker does everything, in its turn."""
        if self.size > 1:
            self.buffer.appendleft(held)
        else:
            self.buffer.append(held)
        self._call()

    def take_back(self) -> list[Held]:
        """What was not begun, and is not about to die."""
        back = [held for held in self.buffer if held.fate is None]
        doomed = [held for held in self.buffer if held.fate is not None]
        self.buffer.clear()
        self.buffer.extend(doomed)
        return back

    def _call(self) -> None:
        """Wakes or starts one worker, unless one is on its way. It calls the next if there is work left when it has
        begun: of publishers that never wait, one worker does it all, and the others need not be woken for nothing."""
        if self._called or not self.buffer:
            return
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():
                waiting.set_result(None)
                self._called = True
                return
        if self._group is not None and len(self._slots) < self.size:
            self._slots.append(slot := _Slot(None))  # type: ignore[arg-type]  # the task names itself
            self._group.start_soon(self._work, slot)
            self._called = True

    # --- a worker ------------------------------------------------------------------------------------------------

    async def _work(self, slot: _Slot) -> None:
        task = asyncio.current_task()
        assert task is not None
        slot.task = task
        now = asyncio.get_running_loop().time
        buffer, one_by_one, publish, judge = self.buffer, self._many == 1, self._publisher.publish, self._judge
        turn_ends = now() + TURN
        self._called = False
        while True:
            if not buffer:
                await self._undisturbed(self._rest(), task)
                self._called = False
                turn_ends = now() + TURN
                continue
            held = buffer.popleft()
            if buffer and not self._called:
                self._call()
            if len(buffer) <= self.low:
                self.thirsty.set()
            moment = now()
            if held.lost or moment >= held.deadline:
                self._settler.release(held)  # if nobody has reaped it yet, it goes back untried
            elif held.fate is not None:
                await self._bury(slot, held, moment)
            elif one_by_one:
                slot.helds = [held]
                slot.since = held.begun = moment
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
            if slot.cut_off:
                await self._let_end(slot, self._publisher.unfinished())
            if moment > turn_ends or task.cancelling():
                await self._undisturbed(asyncio.sleep(0), task)
                turn_ends = now() + TURN

    async def _publish_many(self, slot: _Slot, first: Held, moment: float) -> None:
        chunk, buffer = [first], self.buffer
        while buffer and len(chunk) < self._many:
            held = buffer[0]
            if held.fate is not None or held.lost or moment >= held.deadline:
                break
            chunk.append(buffer.popleft())
        for held in chunk:
            held.begun = moment
        if len(buffer) <= self.low:
            self.thirsty.set()
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
            self._ended(slot, len(chunk))

    async def _outcomes(self, slot: _Slot, chunk: list[Held]) -> list[BaseException | None]:
        try:
            outcomes = list(await self._publisher.publish_many([held.claim for held in chunk]))
            if len(outcomes) != len(chunk):
                raise NotPublished(f"the publisher told {len(outcomes)} outcomes for {len(chunk)} events")
        except BaseException as error:
            return [self._failure(slot, error)] * len(chunk)
        return outcomes

    async def _bury(self, slot: _Slot, held: Held, moment: float) -> None:
        """Hands an event to the dead-letter target, then lets it die."""
        if self._dead is None:
            self._judge.buried(held)
            return
        if self._burying >= self._dead_size:
            self._doomed.append(held)
            self._refuse_doomed()
            return
        slot.helds = [held]
        slot.since = moment
        self.busy += 1
        self._burying += 1
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
        unfinished = self._dead.unfinished() if slot.cut_off else None
        slot.cut_off = False
        if unfinished is None:
            self._dead_call_ended()
        else:  # the dead-letter target takes one event less until it ends; the worker is needed for the main target
            self.dead_stuck += 1
            self._refuse_doomed()
            unfinished.add_done_callback(self._stuck_dead_call_ended)

    def _stuck_dead_call_ended(self, _: asyncio.Future[Any]) -> None:
        self.dead_stuck -= 1
        self._dead_call_ended()

    def _dead_call_ended(self) -> None:
        self._burying -= 1
        if self._doomed:
            self.bury(self._doomed.popleft())

    def _refuse_doomed(self) -> None:
        """While every call of the dead-letter target hangs, doomed events are not kept waiting here."""
        while self._doomed and self.dead_stuck >= self._dead_size:
            self._judge.unburied(self._doomed.popleft(), TimeLimit("earlier calls have not ended yet"))
            self._tell_if_quiet()

    async def _let_end(self, slot: _Slot, unfinished: asyncio.Future[Any] | None) -> None:
        """A call of the main target that was cut off may run on, in a thread. Its worker takes no event until it has
        ended, so that no more run at once than the publisher can take."""
        slot.cut_off = False
        if unfinished is None:
            return
        self.stuck += 1
        if self.all_stuck:
            self.on_all_stuck()
        try:
            while not unfinished.done():
                await self._undisturbed(_end_of(unfinished), slot.task)
        finally:
            self.stuck -= 1
        self.thirsty.set()

    def _ended(self, slot: _Slot, events: int) -> None:
        slot.since = None
        self.busy -= 1
        self.done += events
        slot.stop = None
        self._tell_if_quiet()

    def _tell_if_quiet(self) -> None:
        if self.quiet:
            self.thirsty.set()
            self.on_quiet()

    def _failure(self, slot: _Slot, error: BaseException) -> BaseException:
        """What a publisher's exception means; raises what is meant for the relay itself."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        if isinstance(error, asyncio.CancelledError):
            if self._is_ending():
                raise error
            slot.cut_off = True
            return slot.stop or NotPublished("the publisher cancelled itself")
        return error

    def _is_ending(self) -> bool:
        """Whether the relay is being cancelled; or everything is, as when the event loop ends."""
        assert self._host is not None
        return anyio.current_effective_deadline() == -math.inf or self._host.cancelling() > 0

    async def _undisturbed(self, wait: Awaitable[None], task: asyncio.Task[None]) -> None:
        """Waits. A cancellation that a publisher left behind, or did not need any more, must not hit what comes next;
        before Python 3.13 even one that was taken back is delivered."""
        while task.cancelling():
            task.uncancel()
        try:
            await wait
        except asyncio.CancelledError:
            if self._is_ending():
                raise
            while task.cancelling():
                task.uncancel()

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
                    if now() - slot.since >= GIVE_UP * self._time_limit:
                        _give_up(slot.helds)
                        self.thirsty.set()

    def interrupt(self) -> None:
        """Ends what is under way; those events go back."""
        waiting = [*self._doomed, *self.buffer]  # for the dead-letter target; other events were taken back
        self._doomed.clear()
        self.buffer.clear()
        for held in waiting:
            self._judge.failed(held, Interrupted())
        for slot in self._slots:
            if slot.since is not None:
                self._stop(slot, Interrupted())

    def _stop(self, slot: _Slot, why: NotPublished) -> None:
        slot.stop = why
        slot.task.cancel()


async def _end_of(unfinished: asyncio.Future[Any]) -> None:
    await asyncio.wait((unfinished,))  # not cancelled when this is


def _give_up(helds: list[Held]) -> None:
    """The publisher holds on to these whatever it is told: their leases are left to end, so that others get them."""
    for held in helds:
        if not held.lost:
            held.lost = True
            logger.error("the publisher does not let go of event %s; its lease is left to end", held.claim.event_id)


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
