"""The engine: claims events in batches, keeps the workers' buffer filled and the leases alive, and ends gracefully."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio

from redbox.box import Box
from redbox.errors import PASSING, BoxPaused, EmbeddedServerFailed, RedboxError, StoreError
from redbox.publishers.base import Publisher
from redbox.relay.breaker import Breaker, Circuit
from redbox.relay.claimer import Answer, Asker
from redbox.relay.digest import Digest
from redbox.relay.judge import Judge
from redbox.relay.ledger import Ledger
from redbox.relay.policy import Policy
from redbox.relay.report import Tally
from redbox.relay.settler import Held, Settler, pauses
from redbox.relay.wake import SOON, Waker
from redbox.relay.workers import Workers
from redbox.settings import BATCH_COUNT
from redbox.store.replies import Packed

logger = logging.getLogger("redbox.relay")

#: How much work to keep ready, in seconds of publishing at the speed of late: enough to never run dry, and not so much
#: that other relays stand idle while events wait here.
AHEAD: Final = 0.5
#: To drain, the store is asked again until the pauses between are longer than this; a relay that stays never gives up.
DRAIN_PATIENCE: Final = 1.0
SETTLE_GRACE: Final = 5.0
CANCEL_GRACE: Final = 2.0


class Engine:
    """One relay's claiming and publishing, for one run."""

    def __init__(
        self,
        box: Box,
        name: str,
        publisher: Publisher,
        dead: Publisher | None,
        policy: Policy,
        breaker: Breaker | None,
        tally: Tally,
        digest: Digest,
        breaker_changed: Callable[[], None],
    ) -> None:
        self._box = box
        self._name = name
        self._policy = policy
        self._breaker = breaker
        self._tally = tally
        self._digest = digest
        self._breaker_changed = breaker_changed
        self._asker = Asker(box, name, policy)
        self._waker = Waker(box, self._asker, policy.poll)
        self._ledger = Ledger()
        settler = Settler(box, tally, self._forget, delete=policy.delete, drop=policy.drop)
        self._settler = settler
        self._judge = Judge(policy, breaker, settler, tally, digest, breaker_changed)
        self.workers = Workers(
            publisher, dead, self._judge, settler, concurrency=policy.concurrency, time_limit=policy.time_limit
        )
        self._judge.give_back = self._give_back
        self.workers.on_quiet = self._ran_dry
        self.workers.on_all_stuck = self._give_up_for_now
        if dead is not None:
            self._judge.on_death = self.workers.bury
        self._few = asyncio.Event()
        self._few_are = 0
        self._stopping = False
        self._refused: BoxPaused | None = None
        self._paused = False
        self._more_in_hand = False  # when a sample was asked for, the relay held claims without an outcome
        self._answered = False  # the store has answered a claim at least once
        self._looked = False  # nothing was left to claim, and it waits for more
        self._waiting: anyio.CancelScope | None = None
        self._rate, self._rated_at, self._rated_done = 0.0, 0.0, 0

    @property
    def in_flight(self) -> int:
        """How many claims it holds."""
        return len(self._ledger)

    def stop(self) -> None:
        """Claims nothing more; `run` ends when what is under way has ended, or its grace time has."""
        self._stopping = True
        self._few.set()
        if self._waiting is not None:
            self._waiting.cancel()

    async def run(self, *, drain: bool = False) -> None:
        """Until it is stopped or, to drain, until nothing is available."""
        self._tally.stuck = ""
        if self._breaker is not None:
            self._breaker.dismiss()  # a doubt of an earlier run
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._settler.run)
                tasks.start_soon(self.workers.run)
                tasks.start_soon(self._renewing)
                await self._claiming(drain)
                await self._finish()
                tasks.cancel_scope.cancel()
        finally:
            await self._waker.aclose()
            await self._collect()
            if self._ledger:
                with anyio.move_on_after(CANCEL_GRACE, shield=True):
                    await self._let_go()
            if self._ledger:
                logger.warning("%d claims go back when their leases end", len(self._ledger))
                self._tally.unsettled += len(self._ledger)
        if self._refused is not None:
            raise self._refused

    # --- claiming ------------------------------------------------------------------------------------------------

    async def _claiming(self, drain: bool) -> None:
        task, waits = asyncio.current_task(), pauses()
        assert task is not None
        cancelled_before = task.cancelling()
        while not self._stopping:
            if task.cancelling() > cancelled_before:  # asyncio.wait_for may swallow it, before Python 3.12
                raise asyncio.CancelledError
            room = 0
            if not self._asker.under_way:
                there_is = await self._room_to_claim(drain)
                if there_is is None:
                    return
                if there_is < 1:
                    continue
                room = there_is
            was_empty, waited = not self._ledger, self._asker.under_way
            try:
                answer = await self._claim(room)
                if answer is None:
                    return
                found = answer.packed
            except BoxPaused as refusal:
                if drain:
                    self._refused = refusal  # to be told when what is under way has ended
                    return
                self._note_pause(True)
                if self._breaker is not None:
                    self._breaker.dismiss()
                await self._wait_for_more(None)
                continue
            except PASSING as error:
                pause = next(waits)
                never_started = isinstance(error, EmbeddedServerFailed) and not self._answered
                if never_started or (drain and pause > DRAIN_PATIENCE):
                    raise
                self._digest.store_failed(_part(waited), f"claiming again in {pause:.2f} s", error)
                await self._wait_for(anyio.sleep(pause))
                continue
            if waited or len(found):  # a claim that found nothing does not show that waiting works again
                waits = pauses()
            self._note_pause(False, waited or len(found) > 0)
            if self._breaker is not None and not self._breaker.closed:
                if drain and not len(found) and found.more_in != 0 and not self._breaker.doubting:
                    return
                if answer.probe:
                    await self._end_sample(self._breaker, len(found), found.more_in)
                continue
            if found.more_in == 0 or found.suspect:  # after one suspect may come the next
                continue
            if drain:
                if was_empty and not len(found) and not await _due_soon(found.more_in):
                    return
                await self._until_few(0)
            else:
                await self._wait_for_more(found.more_in)

    async def _room_to_claim(self, drain: bool) -> int | None:
        """How many events to claim now; 0 after waiting because there was no room, None to end a drain."""
        breaker = self._breaker
        if breaker is not None and breaker.wait() > 0:
            if drain:
                return None
            await self._wait_for(anyio.sleep(breaker.wait()))
            return 0
        room = self._room()
        if room < 1:
            if drain and self.workers.all_stuck:
                self._tally.stuck = _hanging(self.workers.size)
                return None
            probing = breaker is not None and breaker.circuit is Circuit.PROBING
            if breaker is not None and probing and (breaker.doubting or self._judge.verdicts):
                self._sample(breaker)
                await self._end_sample(breaker, 0, None)  # no more events can be held
                return 0
            self._decide_if_quiet()
            await self._wait_for(self.workers.thirsty.wait())
        return room

    def _note_pause(self, paused: bool, waits_work: bool = False) -> None:
        """The store has answered: the box is paused, or not."""
        self._answered = True
        self._digest.store_answered(_part(False))
        if waits_work:
            self._digest.store_answered(_part(True))
        if paused and not self._paused:
            logger.warning("the box is paused: waiting until it is resumed")
        elif self._paused and not paused:
            logger.info("the box is resumed")
        self._paused = paused

    async def _claim(self, room: int) -> Answer | None:
        """Claims up to `room` events, unless some are on their way already, and has them published; None when the
        relay was stopped before the store answered."""
        if not self._asker.under_way:
            if self._breaker is None or self._breaker.closed:
                self._asker.ask(room, **self._in_hand())
            else:
                size = self._sample(self._breaker)
                self._asker.ask(size, **self._in_hand(), probe=True, spread=self._breaker.first_sample)
        await self._wait_for(self._asker.answered())
        if not self._asker.ready:
            return None
        answer = await self._asker.answer()
        packed = answer.packed
        self._ask_ahead(packed)
        try:
            if self._asker.under_way:
                await asyncio.sleep(0)  # lets the question go out before the unpacking begins
        finally:
            helds = await self._hold(answer)
        ready = []
        for held in helds:
            hopeless = self._judge.hopeless(held.claim)
            if hopeless is not None:
                self._judge.doom(held, hopeless)
            elif self._stopping or self.workers.all_stuck or not self._may_publish(answer):
                self._settler.release(held)
            elif held.claim.suspect:
                await self._publish_alone(held, answer)
            else:
                ready.append(held)
        self.workers.add(ready)
        return answer

    def _ask_ahead(self, packed: Packed) -> None:
        """While this is unpacked and published, the store can look for the next."""
        closed = self._breaker is None or self._breaker.closed
        if packed.more_in != 0 or packed.suspect or self._stopping or not closed:
            return
        room = self._room(coming=len(packed))
        if room > 0:
            self._asker.ask(room, **self._in_hand(packed))

    def _in_hand(self, coming: Packed | None = None) -> dict[str, Any]:
        """What a claim is told of the claims that the relay holds, with those that are not unpacked yet."""
        count, size, only = len(self._ledger), self._ledger.bytes, self._ledger.only
        if coming is not None and len(coming):
            only = coming.first_id if count == 0 and len(coming) == 1 else ""
            count, size = count + len(coming), size + coming.size
        return {"holding": count, "size": size, "beside": only}

    async def _hold(self, answer: Answer) -> list[Held]:
        claims = await self._box.unpack(answer.packed)
        helds = [Held(claim, answer.since, answer.deadline) for claim in claims]
        self._ledger.add(helds)
        self._tally.claimed += len(helds)
        return helds

    async def _collect(self) -> list[Held]:
        """What is still on its way from the store is held too, to be given back."""
        if self._asker.under_way:
            with anyio.CancelScope(shield=True), suppress(RedboxError, asyncio.CancelledError):
                answer = await self._asker.end()
                return [] if answer is None else await self._hold(answer)
        return []

    def _is_open(self) -> bool:
        return self._breaker is not None and self._breaker.circuit is Circuit.OPEN

    # --- probing -------------------------------------------------------------------------------------------------

    def _may_publish(self, answer: Answer) -> bool:
        """Whether the breaker, which may have changed since the question, lets these events through."""
        closed = self._breaker is None or self._breaker.closed
        return closed or (answer.probe and not self._is_open())

    def _sample(self, breaker: Breaker) -> int:
        """Begins a probe; returns how many events to claim for it. Those that cannot be in flight at once would wait
        for each other: two are enough to see both ends of what is available."""
        self._more_in_hand = self._ledger.ours > self._judge.undecided
        was_open = self._is_open()
        size = breaker.probe()
        if was_open:
            self._breaker_changed()
        return size if breaker.doubting or not breaker.first_sample else min(size, max(2, self.workers.free))

    async def _end_sample(self, breaker: Breaker, found: int, due_in: float | None) -> None:
        """Waits until one event of a sample is published, or all have failed."""
        if not found and due_in == 0:
            return  # what was available was damaged; there is more
        if not found and not breaker.doubting and not self._judge.verdicts:
            await self._wait_for_more(due_in)
            return
        with anyio.move_on_after(breaker.patience()) as patience:
            await self._until_tried()
        doubted, hangs = breaker.doubting, patience.cancelled_caught
        if self._stopping or (doubted and self._more_in_hand and not hangs):
            return  # claims that were given back meanwhile may be the good ones: they can be sampled now
        if breaker.sample_failed(found, hangs=hangs):
            self._judge.opened(breaker, doubted=doubted)

    async def _publish_alone(self, held: Held, answer: Answer) -> None:
        """A suspect: relays died holding it. Everything else is finished first, so that if it happens again, only this
        one is to blame."""
        await self._until_few(1, more_to_try=True)
        if self._stopping or held.lost or self.workers.all_stuck or not self._may_publish(answer):
            self._settler.release(held)
            return
        asked_at = asyncio.get_running_loop().time()
        try:
            (ours,) = await self._box.renew(held.claim, lease=self._policy.lease, alone=True)
        except PASSING as error:
            logger.warning("a suspect is given back: %s", error)
            ours = False
        if not ours:
            self._settler.release(held)
            return
        held.deadline = asked_at + self._policy.lease
        logger.warning("event %s is published alone: relays died holding it", held.claim.event_id)
        self.workers.add([held])
        await self._until_tried()

    def _room(self, coming: int = 0) -> int:
        """How many events to claim now; 0 to wait until the buffer has shrunk."""
        self.workers.thirsty.clear()
        if self.workers.all_stuck:
            return 0
        if self._ledger.bytes >= self._policy.buffer_bytes:
            self.workers.low = len(self.workers.buffer) // 2
            return 0
        ready = max(1, self.workers.free, min(self._policy.buffer, int(self._speed() * AHEAD)))
        ready = min(ready, self._policy.buffer)
        waiting = len(self.workers.buffer) + coming
        self.workers.low = ready // 2
        return 0 if waiting > ready // 2 else min(self._policy.batch, ready - waiting)

    def _speed(self) -> float:
        """Events per second of late."""
        now, done = asyncio.get_running_loop().time(), self.workers.done
        elapsed = now - self._rated_at
        if elapsed > 0.1:
            latest = (done - self._rated_done) / elapsed
            self._rate, self._rated_at, self._rated_done = max(latest, self._rate / 2), now, done
        return self._rate

    async def _wait_for_more(self, due_in: float | None) -> None:
        """Until there may be something to claim: a hint, the next due time, or the poll interval."""

        async def hint() -> None:
            try:
                await self._waker.wait(due_in, room, **self._in_hand(), probe=probe)
            except PASSING as error:
                logger.warning("waiting without hints: %s", error)
                await anyio.sleep(self._policy.poll)

        if self._is_open():
            return  # the loop waits until it is time to probe
        self._looked = True
        self._decide_if_quiet()
        room = self._room()
        probe = self._breaker is not None and not self._breaker.closed
        if self._breaker is not None and probe:
            room = min(room, self._sample(self._breaker))
        await self._wait_for(hint() if room > 0 else self.workers.thirsty.wait())
        self._looked = False

    async def _wait_for(self, event: Awaitable[Any]) -> None:
        """Waits, but not longer than until the relay is stopped."""
        with anyio.CancelScope() as self._waiting:
            if self._stopping:
                self._waiting.cancel()
            await event
        self._waiting = None

    def _ran_dry(self) -> None:
        if self._looked or self._stopping:
            self._decide_if_quiet()

    def _decide_if_quiet(self, *, more_to_try: bool = False) -> None:
        """Nothing is in flight that may speak for the target. If nothing is left to try either, rejections held back
        count; if there is more, or the rest cannot be tried, their events are returned to PENDING, excused. A probe
        decides by itself."""
        in_flight = self._ledger.ours > self._judge.undecided  # without calls that were given up
        if (in_flight and not self.workers.quiet) or not self._judge.verdicts:
            return
        if more_to_try or self._stopping or self._paused or self.workers.all_stuck:
            self._judge.excuse()
        elif self._breaker is None or self._breaker.closed:
            self._judge.decide()

    # --- what is held --------------------------------------------------------------------------------------------

    def _forget(self, batch: list[Held]) -> None:
        """These are settled, or no longer ours."""
        self._ledger.remove(batch)
        if len(self._ledger) <= self._few_are:
            self._few.set()
        if not self.workers.buffer:
            self.workers.thirsty.set()

    async def _until_few(self, few: int, *, more_to_try: bool = False) -> None:
        """Waits until the relay holds at most `few` claims. Neither verdicts held back nor a publisher that never lets
        go of its event hold this up. `more_to_try`: other events wait for this: rejections held back are returned."""
        self._few_are = few
        while self._ledger.ours > few and not self._stopping:
            if not more_to_try and self._breaker is not None and self._breaker.doubting:
                return  # a sample is due
            self._decide_if_quiet(more_to_try=more_to_try)
            await self._fewer()

    async def _until_tried(self) -> None:
        """Waits until nothing is in flight, or an event of a probe is published; verdicts may still be held back."""
        self._few_are = 0
        probing = self._breaker is not None and not self._breaker.closed
        while self._ledger.ours > self._judge.undecided and not self._stopping:
            if probing and self._breaker is not None and self._breaker.closed:
                return
            await self._fewer()

    async def _fewer(self) -> None:
        """Waits until fewer claims may be in flight."""
        self._few.clear()
        self.workers.thirsty.clear()
        await _first_of(self._few.wait, self.workers.thirsty.wait)

    def _give_back(self) -> None:
        """What is not begun goes back untried."""
        for held in self.workers.take_back():
            self._settler.release(held)

    def _give_up_for_now(self) -> None:
        """No event can be published: those that have not begun are left to other relays."""
        logger.error("%s: nothing is claimed until a call ends", _hanging(self.workers.size))
        self._give_back()

    async def _renewing(self) -> None:
        """Renews leases that have used up a third: of events in the buffer, and of those whose publish takes long."""
        now, lease = asyncio.get_running_loop().time, self._policy.lease
        while True:
            await anyio.sleep(lease / 6)
            ageing = [held for held in self._ledger if held.deadline - now() < lease * 2 / 3 and not held.lost]
            for first in range(0, len(ageing), BATCH_COUNT):
                await self._renew(ageing[first : first + BATCH_COUNT])

    async def _renew(self, batch: list[Held]) -> None:
        asked_at = asyncio.get_running_loop().time()
        try:
            renewed = await self._box.renew([held.claim for held in batch], lease=self._policy.lease)
        except StoreError as error:
            logger.warning("leases could not be renewed: %s", error)
            return
        for held, ours in zip(batch, renewed, strict=True):
            if ours:
                held.deadline = asked_at + self._policy.lease
            elif held in self._ledger:  # not settled meanwhile
                held.lost = True
                text = f"the lease of event {held.claim.event_id} was lost"
                self._digest.write(logging.WARNING, "lease", text, "the claim is no longer ours")

    # --- the end -------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Gives back what was not begun, lets what is under way end within the grace time, and settles it."""
        self._stopping = True
        for held in await self._collect():
            self._settler.release(held)
        self._give_back()
        with anyio.move_on_after(self._policy.grace):
            while not self.workers.quiet:
                self.workers.thirsty.clear()
                await self.workers.thirsty.wait()
        self.workers.interrupt()
        self._judge.excuse()
        with anyio.move_on_after(SETTLE_GRACE):
            self._few_are = 0
            while self._ledger:
                self._few.clear()
                await self._few.wait()

    async def _let_go(self) -> None:
        """The relay was cancelled: what became of events is still told, and the rest goes back now instead of when its
        leases end."""
        with suppress(RedboxError):
            await self._settler.settle_all()
        helds = list(self._ledger)
        try:
            back = await self._box.release([held.claim for held in helds])
        except RedboxError as error:
            logger.warning("claims could not be given back: %s", error)
            return
        self._forget(helds)
        self._tally.released += sum(back)
        self._tally.fenced += len(back) - sum(back)


def _part(waited: bool) -> str:
    """Claims and waits apart: where only waiting is refused, claims that work do not end the trouble."""
    return "waits" if waited else "claims"


async def _due_soon(due_in: float | None) -> bool:
    """Waits for an event due within milliseconds, as after a retry without a delay; False when there is none."""
    if due_in is None or due_in > SOON:
        return False
    await anyio.sleep(due_in)
    return True


def _hanging(calls: int) -> str:
    hang = "1 call of the publisher hangs" if calls == 1 else f"{calls} calls of the publisher hang"
    return f"{hang}, and it takes no more at once"


async def _first_of(*waits: Callable[[], Awaitable[Any]]) -> None:
    """Waits for all of them, until the first has come."""
    async with anyio.create_task_group() as group:

        async def one(wait: Callable[[], Awaitable[Any]]) -> None:
            await wait()
            group.cancel_scope.cancel()

        for wait in waits:
            group.start_soon(one, wait)
