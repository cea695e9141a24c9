"""The dispatcher: claims events and hands them to the workers, until the relay is stopped or the box is drained."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

import anyio

from redbox.durations import format_duration
from redbox.errors import PASSING, BoxPaused, EmbeddedServerFailed, RedboxError
from redbox.relay.claiming.claimer import SOON, Claimer, ClaimReply
from redbox.relay.claiming.demand import Demand
from redbox.relay.claiming.held import Held
from redbox.relay.claiming.ledger import Ledger
from redbox.relay.digest import Digest
from redbox.relay.outcomes.breaker import Circuit
from redbox.relay.outcomes.completion import Completion
from redbox.relay.outcomes.judge import Judge
from redbox.relay.outcomes.prober import Prober
from redbox.relay.outcomes.settler import Settler, pauses
from redbox.relay.report import Tally
from redbox.relay.run_state import RunState
from redbox.relay.workers import Workers
from redbox.store.scripts.replies import Packed

logger = logging.getLogger("redbox.relay")

#: A drain calls the store again until the pause between two calls exceeds this; a relay that stays never gives up.
DRAIN_PATIENCE: Final = 1.0
DRAIN_LOOK: Final = 5.0  # seconds until a drain that is limited looks again


class Dispatcher:
    """One loop: how many events to claim, the claim, then the workers; or a wait for more events."""

    def __init__(
        self,
        *,
        state: RunState,
        ledger: Ledger,
        claimer: Claimer,
        demand: Demand,
        workers: Workers,
        judge: Judge,
        settler: Settler,
        completion: Completion,
        prober: Prober,
        tally: Tally,
        digest: Digest,
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._claimer = claimer
        self._demand = demand
        self._workers = workers
        self._judge = judge
        self._settler = settler
        self._completion = completion
        self._prober = prober
        self._tally = tally
        self._digest = digest
        self._answered = False  # the store has answered a claim at least once
        self._found_full = False  # a drain found all places of max_in_flight taken by other relays
        self._logged_limit = False  # that a drain waits for the rate
        self._logged_pause = ""  # the message of the pause that was logged last

    async def run(self, *, drain: bool) -> None:
        """Runs until the relay is stopped or, to drain, until nothing is available. Raises BoxPaused if a box that is
        to be drained is paused."""
        task, delays = asyncio.current_task(), pauses()
        assert task is not None
        cancelled_before = task.cancelling()
        while not self._state.stopping:
            if task.cancelling() > cancelled_before:  # asyncio.wait_for may swallow it, before Python 3.12
                raise asyncio.CancelledError
            limit = 0
            if not self._claimer.pending:
                wanted = await self._events_to_claim(drain)
                if wanted is None:
                    return
                if wanted < 1:
                    continue
                limit = wanted
            held_nothing, waited = not self._ledger, self._claimer.pending
            try:
                reply = await self._claim(limit)
                if reply is None:
                    return
                found = reply.packed
            except BoxPaused as pause:
                if drain:
                    raise
                self._store_answered(pause)
                self._prober.dismiss()
                await self._wait_for_events(pause.ends_in)
                continue
            except PASSING as error:
                delay = next(delays)
                never_started = isinstance(error, EmbeddedServerFailed) and not self._answered
                if never_started or (drain and delay > DRAIN_PATIENCE):
                    raise
                self._digest.store_failed(_part(waited), f"claiming again in {delay:.2f} s", error)
                await self._state.wait_for(anyio.sleep(delay))
                continue
            if waited or len(found):  # a claim that found nothing does not show that waiting works again
                delays = pauses()
            self._store_answered(None, waits_too=waited or len(found) > 0)
            await self._reap_if_full(found, drain)
            if (breaker := self._prober.breaker) is not None:
                if drain and not len(found) and found.more_in != 0 and not _held_back(found) and not breaker.doubting:
                    return
                if reply.probe:
                    await self._end_sample(found)
                continue
            if found.more_in == 0 or found.suspect:  # one suspect may be followed by the next
                continue
            if drain:
                if not await self._may_drain_more(found, held_nothing):
                    return
            else:
                await self._wait_for_events(found.more_in, limited=found.limited, full=found.full)

    async def last_claims(self) -> list[Held]:
        """Ends a claim that is still pending; its events are held, to be returned to PENDING."""
        if self._claimer.pending:
            with anyio.CancelScope(shield=True), suppress(RedboxError, asyncio.CancelledError):
                reply = await self._claimer.end_claim()
                return [] if reply is None else await self._hold(reply)
        return []

    async def _may_drain_more(self, found: Packed, held_nothing: bool) -> bool:
        """Waits until a drain may claim again; False if nothing is available. `held_nothing`: no claim was held before
        the last one, so that no event can have returned to PENDING since."""
        if found.limited:
            wait = found.more_in or 0
            if wait > DRAIN_LOOK and not self._logged_limit:
                self._logged_limit = True
                text = "the rate of the box (max_rate, or a ramp) holds back due events; the next claim is in %s"
                logger.info(text, format_duration(wait))
            await self._state.wait_for(anyio.sleep(min(wait, DRAIN_LOOK)))  # a limit may be changed meanwhile
            return True
        if found.full:
            await self._wait_for_events(found.more_in, full=True)
            return True
        if held_nothing and not len(found) and not await _due_soon(found.more_in):
            # The leases of the relays whose places it waited for may have ended.
            return self._found_full and await self._claimer.reap()
        await self._completion.until_at_most(0)
        return True

    # --- before a claim ------------------------------------------------------------------------------------------

    async def _events_to_claim(self, drain: bool) -> int | None:
        """How many events to claim now; 0 after a wait because no more can be held, None to end a drain."""
        if self._prober.seconds_until_probe > 0:
            if drain:
                return None
            await self._state.wait_for(anyio.sleep(self._prober.seconds_until_probe))
            return 0
        events = self._demand.events()
        if events < 1:
            if drain and self._workers.all_stuck:
                self._tally.stuck = self._workers.stuck_text
                return None
            breaker = self._prober.breaker
            if breaker is not None and breaker.circuit is Circuit.PROBING and self._prober.can_end(breaker):
                self._prober.begin(breaker)
                await self._prober.end(breaker, 0)  # no more events can be held
                return 0
            self._judge.decide_if_idle(self._workers)
            await self._state.wait_for(self._workers.buffer.refill.wait())
        return events

    async def _wait_for_events(self, due_in: float | None, *, limited: bool = False, full: bool = False) -> None:
        """Waits until there may be something to claim: a hint, the next due time, or the poll interval. `limited`: the
        rate of the box holds back events that are due, so no verdict is decided for want of others to try. `full`: its
        max_in_flight does; verdicts are decided, because their events may be the ones that take it up."""

        async def wait() -> None:
            try:
                await self._claimer.wait_for_events(due_in, limit, self._ledger.holding(), probe=breaker is not None)
            except PASSING as error:
                logger.warning("cannot wait for hints (%s); polling every %g s instead", error, self._claimer.poll)
                await anyio.sleep(self._claimer.poll)

        if self._prober.is_open:
            return  # the loop waits until it is time to probe
        self._state.set_out_of_events(not limited)
        self._state.set_slots_full(full)
        if not limited:
            self._judge.decide_if_idle(self._workers)
        limit = self._demand.events()
        breaker = self._prober.breaker
        if breaker is not None:
            limit = min(limit, self._prober.begin(breaker))
        await self._state.wait_for(wait() if limit > 0 else self._workers.buffer.refill.wait())
        self._state.set_out_of_events(False)
        self._state.set_slots_full(False)

    # --- a claim -------------------------------------------------------------------------------------------------

    async def _claim(self, limit: int) -> ClaimReply | None:
        """Claims up to `limit` events, unless a claim is pending already, and dispatches them; None if the relay was
        stopped before the store answered."""
        if not self._claimer.pending:
            if (breaker := self._prober.breaker) is None:
                self._claimer.claim(limit, self._ledger.holding())
            else:
                size = self._prober.begin(breaker)
                self._claimer.claim(size, self._ledger.holding(), probe=True, spread=breaker.first_sample)
        await self._state.wait_for(self._claimer.wait_for_reply())
        if not self._claimer.replied:
            return None
        reply = await self._claimer.reply()
        self._claim_ahead(reply.packed)
        try:
            if self._claimer.pending:
                await asyncio.sleep(0)  # lets the next claim be sent before the unpacking begins
        finally:
            helds = await self._hold(reply)
        ready = []
        for held in helds:
            limit_reached = self._judge.limit_reached(held.claim)
            if limit_reached is not None:
                self._judge.mark_dead(held, limit_reached)
            elif not self._may_publish(reply):
                self._settler.release(held)
            elif held.claim.suspect:
                await self._publish_alone(held, reply)
            else:
                ready.append(held)
        self._workers.buffer.add(ready)
        return reply

    def _claim_ahead(self, packed: Packed) -> None:
        """While these events are unpacked and published, the store can look for the next."""
        if packed.more_in != 0 or packed.suspect or self._state.stopping or self._prober.breaker is not None:
            return
        events = self._demand.events(coming=len(packed))
        if events > 0:
            self._claimer.claim(events, self._ledger.holding(packed))

    async def _hold(self, reply: ClaimReply) -> list[Held]:
        claims = await self._claimer.unpack(reply)
        self._tally.claimed += len(claims)
        return self._ledger.add(claims, reply.claimed_at, reply.deadline)

    def _may_publish(self, reply: ClaimReply) -> bool:
        if self._state.stopping or self._workers.all_stuck:
            return False
        return self._prober.may_publish(probe=reply.probe)

    async def _publish_alone(self, held: Held, reply: ClaimReply) -> None:
        """Publishes a suspect: relays ended while they held it. All other events are finished first, so that only the
        suspect is to blame if it happens again."""
        await self._completion.until_at_most(1, more_to_try=True)
        if held.lost or not self._may_publish(reply):
            self._settler.release(held)
            return
        try:
            ours = await self._ledger.renew_alone(held)
        except PASSING as error:
            logger.warning("a suspect is returned to PENDING: %s", error, extra={"event_id": held.claim.event_id})
            ours = False
        if not ours:
            self._settler.release(held)
            return
        event_id = held.claim.event_id
        logger.warning(
            "event %s is published alone: relays ended while they held it", event_id, extra={"event_id": event_id}
        )
        self._workers.buffer.add([held])
        await self._completion.until_tried()

    # --- after a claim -------------------------------------------------------------------------------------------

    def _store_answered(self, pause: BoxPaused | None, *, waits_too: bool = False) -> None:
        """The store has answered a claim: the box is paused or not. `waits_too`: a blocking wait works as well."""
        self._answered = True
        self._digest.store_answered(_part(False))
        if waits_too:
            self._digest.store_answered(_part(True))
        if pause is not None and pause.message != self._logged_pause:  # also if another pause replaced it
            logger.warning("%s; waiting", pause.message)
        elif pause is None and self._state.paused:
            logger.info("the box is resumed")
        self._logged_pause = "" if pause is None else pause.message
        self._state.set_paused(pause is not None)

    async def _reap_if_full(self, found: Packed, drain: bool) -> None:
        """Other relays hold as many claims as max_in_flight allows, and may have ended: a drain has no reaper."""
        if drain and found.full and not self._ledger.owned:
            self._found_full = True
            await self._claimer.reap()

    async def _end_sample(self, found: Packed) -> None:
        breaker = self._prober.breaker
        assert breaker is not None
        if not len(found) and found.more_in == 0:
            return  # the available events were damaged; there are more
        if not len(found) and (found.limited or not self._prober.can_end(breaker)):
            await self._wait_for_events(found.more_in, limited=found.limited, full=found.full)
            return
        await self._prober.end(breaker, len(found))


def _part(waited: bool) -> str:
    """The part that got no answer: where only waits are refused, claims that work do not end the outage."""
    return "waits" if waited else "claims"


def _held_back(found: Packed) -> bool:
    """Whether a limit of the box holds back events that are due."""
    return found.limited or found.full


async def _due_soon(due_in: float | None) -> bool:
    """Waits for an event due within milliseconds, as after a retry without a delay; False if there is none."""
    if due_in is None or due_in > SOON:
        return False
    await anyio.sleep(due_in)
    return True
