"""The judge: decides what an attempt means for its event: PUBLISHED, retried, returned to PENDING, or DEAD."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from redbox.durations import LONGEST
from redbox.errors import NotPublished, Reject, RetryLater, Unavailable
from redbox.events import Claim
from redbox.relay.claiming.buffer import Buffer
from redbox.relay.claiming.held import Held
from redbox.relay.claiming.ledger import Ledger
from redbox.relay.digest import Digest
from redbox.relay.errors import Exhausted, Interrupted, TooOld
from redbox.relay.outcomes.breaker import Breaker, Circuit
from redbox.relay.outcomes.error_text import error_text
from redbox.relay.outcomes.settler import Settler
from redbox.relay.policy import Policy
from redbox.relay.report import Tally
from redbox.relay.run_state import RunState
from redbox.routing.routes import PartlyPublished

logger = logging.getLogger("redbox.relay")

#: Errors for which the target, and not the event, may be to blame.
_DOUBTFUL: Final = (Reject, Unavailable)

BROKEN_BACKOFF_DELAY: Final = 60.0
DEAD_LETTER_DELAY: Final = 5.0  # minimum seconds until the dead-letter target is tried again
MAX_PENDING: Final = 200  # verdicts pending while the breaker is closed
MAX_EXCUSED: Final = 20  # attempts of an event beside which no other can be tried
MAX_BLAMED: Final = 10_000  # events remembered whose rejection blames the target


class Verdict(NamedTuple):
    """How the attempt of an event failed. `excuse`: at that moment the target was to blame, not the event."""

    held: Held
    error: BaseException
    excuse: bool


class Activity(Protocol):
    """What the judge has to know about the workers."""

    @property
    def idle(self) -> bool: ...
    @property
    def all_stuck(self) -> bool: ...


class Judge:
    """Applies the retry policy and the breaker, and passes the outcome to the settler.

    DEAD is final: if an event was rejected, or its last attempt found the target down, its verdict stays pending until
    there is evidence about the target: another event is published, or no other event is left to try. While the breaker
    probes, every verdict is pending. If the breaker opens, or the relay is stopped or its box paused, the events of
    pending verdicts are retried with their attempt excused.
    """

    def __init__(
        self,
        policy: Policy,
        breaker: Breaker | None,
        state: RunState,
        ledger: Ledger,
        buffer: Buffer,
        settler: Settler,
        tally: Tally,
        digest: Digest,
        *,
        has_dead_letter_target: bool,
        breaker_changed: Callable[[], None],
    ) -> None:
        self._policy = policy
        self._breaker = breaker
        self._state = state
        self._ledger = ledger
        self._buffer = buffer
        self._settler = settler
        self._has_dead_letter_target = has_dead_letter_target
        self._tally = tally
        self._digest = digest
        self._breaker_changed = breaker_changed
        self._pending: list[Verdict] = []
        self._acknowledged_at = -math.inf  # when the target last acknowledged an event
        self._blamed: dict[str, float] = {}  # event id → since when its rejections blame the target

    # --- outcomes ------------------------------------------------------------------------------------------------

    def limit_reached(self, claim: Claim) -> NotPublished | None:
        """Why the event must not be published any more: its attempts or its age exceed the limit. None if it may be."""
        if claim.exhausted:
            return Exhausted()
        age, limit = claim.claimed_ms - claim.due_ms, self._policy.max_age
        if limit is not None and age > limit * 1000:
            return TooOld(f"not published within {limit:g} s; it is {age / 1000:.0f} s old")
        return None

    def published(self, held: Held) -> None:
        self._settler.ack(held)
        if self._tally.undelivered:
            self._tally.undelivered.remove(held.claim.event_id)
        if self._blamed:
            self._blamed.pop(held.claim.event_id, None)
        self._target_acknowledged(held)

    def _target_acknowledged(self, held: Held) -> None:
        self._acknowledged_at = asyncio.get_running_loop().time()
        if self._breaker is not None:
            doubted = self._breaker.doubting
            if self._breaker.succeeded(held.claim.event.event_type):
                self._breaker_closed(self._breaker, doubted=doubted)
            if self._pending:
                self.decide_pending()

    def failed(self, held: Held, error: BaseException) -> None:
        if isinstance(error, Interrupted):
            self._settler.retry(held, 0.0, error, excuse=True)
            return
        self._tally.add_failure(error_text(error))
        if isinstance(error, PartlyPublished):
            self._partly_published(held, error)
            return
        excuse = error_excuses(error) or (self._breaker is not None and self._is_target_to_blame(held, error))
        verdict = Verdict(held, error, excuse)
        self._write_failure(verdict)
        if self._breaker is None:
            self._apply(verdict)
            return
        if self._breaker.failed(error, held.claim):
            logger.debug("%s; a sample of other events is tried", self._breaker.reason)
            self._release_buffered()
        if self._breaker.circuit is Circuit.OPEN:
            self._retry(held, error, excuse=True)  # the target is to blame, not the event
        elif self._breaker.circuit is Circuit.PROBING or (self._is_final(verdict) and isinstance(error, _DOUBTFUL)):
            self._pending.append(verdict)
            if len(self._pending) >= MAX_PENDING and self._breaker.closed:
                self.decide_pending()  # the errors differ, or the breaker would probe: the events are to blame
        else:
            self._apply(verdict)

    def _partly_published(self, held: Held, error: PartlyPublished) -> None:
        """One destination of several took the event, so the target works: a destination that does not must not open the
        breaker for the others."""
        self._write_failure(Verdict(held, error, excuse=True))
        self._retry(held, error, excuse=True)
        self._target_acknowledged(held)

    def _is_final(self, verdict: Verdict) -> bool:
        """Whether the event is to be marked DEAD."""
        held, error, excuse = verdict
        if excuse:
            return False
        if isinstance(error, Reject) and (self._breaker is None or not error_blames_target(error)):
            return True
        return self._policy.attempts is not None and held.claim.failures + 1 >= self._policy.attempts

    def _apply(self, verdict: Verdict) -> None:
        if self._is_final(verdict):
            self.mark_dead(verdict.held, verdict.error)
        else:
            self._retry(verdict.held, verdict.error, excuse=verdict.excuse)

    def _is_target_to_blame(self, held: Held, error: BaseException) -> bool:
        """Whether the attempt says nothing about the event.

        Either the target was unavailable, and acknowledged no other event during the attempt. (An event that crashes
        its target, while others are published, uses up its attempts.) Or the target rejected the event for a reason
        that blames the target, and either did so for the first time or has acknowledged no other event since then.
        """
        if isinstance(error, Unavailable):
            return self._acknowledged_at < held.started_at
        if not error_blames_target(error):
            return False
        first = self._first_blamed(held)
        return first is None or self._acknowledged_at < first

    def _first_blamed(self, held: Held) -> float | None:
        """Since when failures of the event blame the target; None if this is the first."""
        first = self._blamed.get(held.claim.event_id)
        if first is None:
            if len(self._blamed) >= MAX_BLAMED:
                self._blamed.pop(next(iter(self._blamed)))
            self._blamed[held.claim.event_id] = asyncio.get_running_loop().time()
        return first

    def _write_failure(self, verdict: Verdict) -> None:
        claim = verdict.held.claim
        limit = "" if self._policy.attempts is None else f" of {self._policy.attempts}"
        which = "the attempt does not count" if verdict.excuse else f"attempt {claim.failures + 1}{limit}"
        text = f"event {claim.event_id} failed ({which})"
        self._digest.write(logging.WARNING, "failed", text, error_text(verdict.error), claim.event_id)

    def _retry(self, held: Held, error: BaseException, *, excuse: bool, least: float = 0.0) -> None:
        delay = max(least, self._delay(held.claim, error))
        event_id = held.claim.event_id
        logger.debug(
            "event %s is retried in %.3f s: %s", event_id, delay, error_text(error), extra={"event_id": event_id}
        )
        if self._state.draining:
            self._tally.undelivered.add(held.claim.event_id, error_text(error))
        self._settler.retry(held, delay, error, excuse=excuse)

    def _delay(self, claim: Claim, error: BaseException) -> float:
        asked = _asked(error) if isinstance(error, RetryLater | Unavailable) else None
        if isinstance(error, RetryLater) and asked is not None:
            return _bounded(asked)
        try:
            # A rejection that blames the target may last: its excused attempts make the delay grow too.
            failures = claim.attempts if error_blames_target(error) else claim.failures + 1
            delay = self._policy.backoff(claim.event, max(1, failures), error)
        except Exception:
            event_id = claim.event_id
            logger.exception("the backoff function failed for event %s", event_id, extra={"event_id": event_id})
            delay = BROKEN_BACKOFF_DELAY
        return max(delay, _bounded(asked or 0.0))

    # --- DEAD and the dead-letter target -------------------------------------------------------------------------

    def mark_dead(self, held: Held, reason: BaseException) -> None:
        """Marks the event DEAD, after the dead-letter target, if there is one, has received it."""
        held.dead_reason = reason
        self._blamed.pop(held.claim.event_id, None)
        if self._has_dead_letter_target:
            self._buffer.add_dead_letter(held)
        else:
            self._kill(held, _reason(held))

    def dead_letter_received(self, held: Held) -> None:
        self._kill(held, _reason(held))

    def dead_letter_rejected(self, held: Held, error: BaseException) -> None:
        """The dead-letter target will never take the event: it is marked DEAD all the same, and is not dropped."""
        text = error_text(error)
        subject, event_id = "the dead-letter target rejected event", held.claim.event_id
        self._digest.write(logging.ERROR, subject, f"{subject} {event_id}", text, event_id)
        reason = f"{_reason(held) or 'attempts used up'}; and the dead-letter target rejected it: {text}"
        self._kill(held, reason, keep=True)

    def dead_letter_failed(self, held: Held, error: BaseException) -> None:
        """The dead-letter target did not take the event: it is tried again later, and is not marked DEAD before."""
        text = error_text(error)
        subject, event_id = "the dead-letter target did not take event", held.claim.event_id
        self._digest.write(logging.ERROR, subject, f"{subject} {event_id}", text, event_id)
        failure = NotPublished(f"the dead-letter target did not take it: {text}")
        self._retry(held, failure, excuse=False, least=DEAD_LETTER_DELAY)

    def _kill(self, held: Held, reason: str, *, keep: bool = False) -> None:
        event_id = held.claim.event_id
        self._digest.write(
            logging.WARNING, "dead", f"event {event_id} is dead", reason or "its attempts are used up", event_id
        )
        self._tally.undelivered.remove(held.claim.event_id)
        self._settler.kill(held, reason, keep=keep)

    # --- pending verdicts ----------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """The number of pending verdicts."""
        return len(self._pending)

    @property
    def holds_others(self) -> bool:
        """Whether the relay holds claims other than those of the pending verdicts."""
        return self._ledger.owned > sum(not verdict.held.lost for verdict in self._pending)

    def decide_pending(self) -> None:
        """Applies the pending verdicts."""
        verdicts, self._pending = self._pending, []
        for verdict in verdicts:
            self._apply(verdict)

    def _decide_without_others(self) -> None:
        """The events of pending verdicts take up max_in_flight, so no other event can be tried beside them. Each is
        retried once, its attempt excused: others are tried meanwhile, and the breaker sees if they fail too."""
        verdicts, self._pending = self._pending, []
        for verdict in verdicts:
            # Not for ever: in a long backlog, an event may be forgotten before it is rejected again.
            if self._first_blamed(verdict.held) is None and verdict.held.claim.excused < MAX_EXCUSED:
                self._retry(verdict.held, verdict.error, excuse=True)
            else:
                self._apply(verdict)

    def excuse_pending(self) -> None:
        """There is no evidence about the target: the events of pending verdicts are retried, their attempt excused."""
        verdicts, self._pending = self._pending, []
        for verdict in verdicts:
            self._retry(verdict.held, verdict.error, excuse=True)

    def workers_idle(self, workers: Activity) -> None:
        """The last worker has become idle."""
        if self._state.out_of_events or self._state.stopping:
            self.decide_if_idle(workers)

    def decide_if_idle(self, workers: Activity, *, more_to_try: bool = False) -> None:
        """Decides the pending verdicts if no other held claim can give evidence about the target.

        They are applied if nothing is left to try either. If there is `more_to_try`, or the rest cannot be tried, they
        are excused. A probe decides by itself.
        """
        if not self._pending or (self.holds_others and not workers.idle):
            return
        if more_to_try or self._state.stopping or self._state.paused or workers.all_stuck:
            self.excuse_pending()
        elif self._breaker is None or self._breaker.closed:
            if self._state.slots_full:
                self._decide_without_others()
            else:
                self.decide_pending()

    # --- the breaker ---------------------------------------------------------------------------------------------

    def _breaker_closed(self, breaker: Breaker, *, doubted: bool) -> None:
        if not doubted:
            logger.info("the breaker is closed: the target acknowledges again")
            self._breaker_changed()
            self.excuse_pending()  # the target may have come back after these were refused
        for event_type in sorted(breaker.isolated):
            text = f"events of type {event_type} keep failing while others are published"
            self._digest.write(logging.WARNING, f"isolated {event_type}", text, "they do not open the breaker")

    def breaker_opened(self, breaker: Breaker, *, doubted: bool) -> None:
        """The breaker has opened, after a series of failures (`doubted`) or again after a probe.

        After a probe, the oldest event whose rejection is about the event is marked DEAD: so a box that holds nothing
        else makes progress, and a target that rejects everything by mistake costs one event per probe.
        """
        probe = "" if self._state.draining else f", the next probe is in {breaker.wait():.1f} s"  # a drain ends now
        logger.warning("the breaker is open%s: %s", probe, breaker.reason)
        self._breaker_changed()
        if not doubted:
            rejected = [each for each in self._pending if isinstance(each.error, Reject) and self._is_final(each)]
            if rejected:
                oldest = min(rejected, key=lambda verdict: verdict.held.claim.due_ms)
                self._pending.remove(oldest)
                self.mark_dead(oldest.held, oldest.error)
        self.excuse_pending()
        self._release_buffered()

    def _release_buffered(self) -> None:
        """Other events wait for the sample of a probe: they are returned to PENDING."""
        self._settler.release_all(self._buffer.withdraw())


def error_blames_target(error: BaseException) -> bool:
    """Whether the error is a rejection that may have nothing to do with the event. It may lack every attribute."""
    return isinstance(error, Reject) and getattr(error, "blames_target", False) is True


def error_excuses(error: BaseException) -> bool:
    """Whether the publisher says that the attempt never counts against the event."""
    return isinstance(error, RetryLater | Unavailable) and getattr(error, "excuse", False) is True


def _asked(error: RetryLater | Unavailable) -> float | None:
    """The delay that a publisher asked for, in seconds; None if it is missing or not a number."""
    try:
        return float(error.delay)
    except (AttributeError, TypeError, ValueError):
        return None


def _bounded(delay: float) -> float:
    return 0.0 if math.isnan(delay) else min(max(delay, 0.0), LONGEST)


def _reason(held: Held) -> str:
    """Why the event is DEAD, as it is stored; empty if its attempts are used up."""
    reason = held.dead_reason
    return "" if reason is None or isinstance(reason, Exhausted) else error_text(reason)
