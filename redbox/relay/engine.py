"""The engine: claims events in batches, keeps the workers' buffer filled and the leases alive, and ends gracefully."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import anyio

from redbox.box import Box
from redbox.box.lifecycle import Claimed
from redbox.errors import BoxPaused, StoreError, StoreFull, StoreUnavailable
from redbox.publishers.base import Publisher
from redbox.relay.breaker import Breaker
from redbox.relay.judge import Judge
from redbox.relay.policy import Policy
from redbox.relay.report import Tally
from redbox.relay.settler import Held, Settler, pauses
from redbox.relay.wake import Waker
from redbox.relay.workers import Workers
from redbox.settings import BATCH_BYTES, BATCH_COUNT

logger = logging.getLogger("redbox.relay")

#: How much work to keep ready, in seconds of publishing at the speed of late: enough to never run dry, and not so much
#: that other relays stand idle while events wait here.
AHEAD: Final = 0.5
SETTLE_GRACE: Final = 5.0
CANCEL_GRACE: Final = 2.0
#: What the store may say that passes by itself; everything else ends the relay.
PASSING: Final = (StoreUnavailable, StoreFull)


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
    ) -> None:
        self._box = box
        self._name = name
        self._policy = policy
        self._breaker = breaker
        self._tally = tally
        self._waker = Waker(box, policy.poll)
        self._held: dict[int, Held] = {}
        self._bytes = 0
        settler = Settler(box, tally, self._forget, delete=policy.delete, drop=policy.drop)
        self._settler = settler
        self._judge = Judge(policy, breaker, settler, tally)
        self.workers = Workers(
            publisher, dead, self._judge, settler, concurrency=policy.concurrency, time_limit=policy.time_limit
        )
        self._judge.on_open = self._give_back
        if dead is not None:
            self._judge.on_death = self.workers.add_first
        self._few = asyncio.Event()
        self._few_are = 0
        self._stopping = False
        self._waiting: anyio.CancelScope | None = None
        self._rate, self._rated_at, self._rated_done = 0.0, 0.0, 0

    @property
    def in_flight(self) -> int:
        """How many claims it holds."""
        return len(self._held)

    def stop(self) -> None:
        """Claims nothing more; `run` ends when what is under way has ended, or its grace time has."""
        self._stopping = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def run(self, *, drain: bool = False) -> None:
        """Until it is stopped or, to drain, until nothing is available."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._settler.run)
                tasks.start_soon(self.workers.run)
                tasks.start_soon(self._renewing)
                await self._claiming(drain)
                await self._finish()
                tasks.cancel_scope.cancel()
        finally:
            if self._held:
                with anyio.move_on_after(CANCEL_GRACE, shield=True):
                    await self._let_go()

    # --- claiming ------------------------------------------------------------------------------------------------

    async def _claiming(self, drain: bool) -> None:
        waits = pauses()
        while not self._stopping:
            if self._breaker is not None and not self._breaker.closed and (drain or self._breaker.wait() > 0):
                if drain:
                    return
                await self._wait_for(anyio.sleep(self._breaker.wait()))
                continue
            room = self._room()
            if room < 1:
                await self._wait_for(self.workers.thirsty.wait())
                continue
            was_empty = not self._held
            try:
                found = await self._claim(room)
            except BoxPaused:
                if drain:
                    raise
                await self._wait_for(self._waker.wait(None))
                continue
            except PASSING as error:
                pause = next(waits)
                logger.warning("claiming again in %.2f s: %s", pause, error)
                await self._wait_for(anyio.sleep(pause))
                continue
            waits = pauses()
            if self._breaker is not None and not self._breaker.closed:
                await self._until_few(0)
            if found.more_in == 0:
                continue
            if drain:
                if was_empty and not found.claims:
                    return
                await self._until_few(0)
            else:
                await self._wait_for_more(found)

    async def _claim(self, room: int) -> Claimed:
        """Claims up to `room` events, and has them published."""
        probing = self._breaker is not None and not self._breaker.closed
        if probing:
            self._breaker.probe()  # type: ignore[union-attr]
        asked_at = asyncio.get_running_loop().time()
        found = await self._box.claim_and_look(
            self._name,
            limit=1 if probing else room,
            lease=self._policy.lease,
            attempts=self._policy.attempts,
            holding=len(self._held),
            max_bytes=max(1, min(BATCH_BYTES, self._policy.buffer_bytes - self._bytes)),
        )
        deadline, ready = asked_at + self._policy.lease, []
        self._tally.claimed += len(found.claims)
        for claim in found.claims:
            held = self._held[claim.number] = Held(claim, asked_at, deadline)
            self._bytes += len(claim.event.payload)
            hopeless = self._judge.hopeless(claim)
            if hopeless is not None:
                self._judge.doom(held, hopeless)
            elif claim.suspect:
                await self._publish_alone(held)
            else:
                ready.append(held)
        self.workers.add(ready)
        return found

    async def _publish_alone(self, held: Held) -> None:
        """A suspect: relays died holding it. Everything else is finished first, so that if it happens again, only this
        one is to blame."""
        await self._until_few(1)
        if self._stopping or held.lost:
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
        await self._until_few(0)

    def _room(self) -> int:
        """How many events to claim now; 0 to wait until the buffer has shrunk."""
        self.workers.thirsty.clear()
        if self._bytes >= self._policy.buffer_bytes:
            self.workers.low = len(self.workers.buffer) // 2
            return 0
        ready = max(1, self.workers.free, min(self._policy.buffer, int(self._speed() * AHEAD)))
        ready = min(ready, self._policy.buffer)
        waiting = len(self.workers.buffer)
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

    async def _wait_for_more(self, found: Claimed) -> None:
        """Until there may be something to claim: a hint, the next due time, or the poll interval."""
        if self._judge.undecided and self.workers.quiet:
            self._judge.decide()
        if self._judge.undecided:  # something is still under way that may speak for the target, or against it
            await self._wait_for(self.workers.thirsty.wait())
        else:
            await self._wait_for(self._waker.wait(found.more_in))

    async def _wait_for(self, event: object) -> None:
        """Waits, but not longer than until the relay is stopped."""
        with anyio.CancelScope() as self._waiting:
            if self._stopping:
                self._waiting.cancel()
            try:
                await event  # type: ignore[misc]
            except PASSING as error:
                logger.warning("waiting without hints: %s", error)
                await anyio.sleep(self._policy.poll)
        self._waiting = None

    # --- what is held --------------------------------------------------------------------------------------------

    def _forget(self, batch: list[Held]) -> None:
        """These are settled, or no longer ours."""
        for held in batch:
            if self._held.pop(held.claim.number, None) is not None:
                self._bytes -= len(held.claim.event.payload)
        if len(self._held) <= self._few_are:
            self._few.set()
        if not self.workers.buffer:
            self.workers.thirsty.set()

    async def _until_few(self, few: int) -> None:
        """Until at most so many claims are held. Rejections held back do not hold this up."""
        self._few_are = few
        while len(self._held) > few and not self._stopping:
            if self.workers.quiet and self._judge.undecided:
                self._judge.decide()
            self._few.clear()
            self.workers.thirsty.clear()
            async with anyio.create_task_group() as first:  # whichever comes first
                first.start_soon(_then_cancel, self._few, first.cancel_scope)
                first.start_soon(_then_cancel, self.workers.thirsty, first.cancel_scope)

    def _give_back(self) -> None:
        """What is not begun goes back untried."""
        for held in self.workers.take_back():
            self._settler.release(held)

    async def _renewing(self) -> None:
        """Renews leases that have used up a third: of events in the buffer, and of those whose publishing takes long."""
        now, lease = asyncio.get_running_loop().time, self._policy.lease
        while True:
            await anyio.sleep(lease / 6)
            ageing = [held for held in self._held.values() if held.deadline - now() < lease * 2 / 3 and not held.lost]
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
            elif held.claim.number in self._held:  # not settled meanwhile
                held.lost = True
                logger.warning("the lease of event %s was lost", held.claim.event_id)

    # --- the end -------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Gives back what was not begun, lets what is under way end within the grace time, and settles it."""
        self._give_back()
        self._judge.decide()
        with anyio.move_on_after(self._policy.grace):
            while not self.workers.quiet:
                self.workers.thirsty.clear()
                await self.workers.thirsty.wait()
        self.workers.interrupt()
        with anyio.move_on_after(SETTLE_GRACE):
            self._few_are = 0
            while self._held:
                self._few.clear()
                await self._few.wait()

    async def _let_go(self) -> None:
        """The relay was cancelled: what it holds goes back now instead of when its leases end."""
        claims = [held.claim for held in self._held.values()]
        try:
            await self._box.release(claims)
        except StoreError as error:
            logger.warning("%d claims go back when their leases end: %s", len(claims), error)


async def _then_cancel(event: asyncio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
