"""Decides what becomes of an event after an attempt: published, again later, back untried, or dead."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final, NamedTuple

from redbox.durations import LONGEST
from redbox.errors import NotPublished, Reject, RetryLater, Unavailable
from redbox.events import Claim
from redbox.relay.breaker import Breaker, Circuit
from redbox.relay.digest import Digest
from redbox.relay.error_text import error_words
from redbox.relay.policy import Policy
from redbox.relay.report import Tally
from redbox.relay.settler import Held, Settler

logger = logging.getLogger("redbox.relay")

#: Errors for which the target, and not the event, may be to blame.
_DOUBTFUL: Final = (Reject, Unavailable)

BROKEN_BACKOFF_DELAY: Final = 60.0
BURY_AGAIN: Final = 5.0  # seconds until the dead-letter target is tried again, at the least
UNDECIDED: Final = 200  # verdicts held back at most while the breaker is closed
BLAMED: Final = 10_000  # events remembered whose rejection blames the target


class Exhausted(NotPublished):
    """Its attempts are used up."""


class TooOld(NotPublished):
    """It was not published within its maximum age."""


class Interrupted(NotPublished):
    """The relay was stopped while it was being published; it may have arrived."""


class Verdict(NamedTuple):
    """How the attempt of an event ended; `excuse`: the target was to blame for it, at that moment."""

    held: Held
    error: BaseException
    excuse: bool


class Judge:
    """Applies the retry policy and the breaker, and hands the verdict to the settler.

    Death is final: the verdict over an event that was rejected, or whose last attempt found the target down, is held
    back until something speaks for the target: a success, or nothing left to try. While the breaker probes, every
    verdict is held back. If it opens, or the relay is stopped or its box paused, those events are returned with their
    attempt excused.
    """

    def __init__(
        self,
        policy: Policy,
        breaker: Breaker | None,
        settler: Settler,
        tally: Tally,
        digest: Digest,
        breaker_changed: Callable[[], None],
    ) -> None:
        self._policy = policy
        self._breaker = breaker
        self._settler = settler
        self._tally = tally
        self._digest = digest
        self._breaker_changed = breaker_changed
        self._verdicts: list[Verdict] = []
        self._acknowledged_at = -math.inf  # when the target last took an event
        self._blamed: dict[str, float] = {}  # event id: since when its rejections blame the target
        #: Called when the breaker begins to probe or opens: claims whose publish has not begun are released.
        self.give_back: Callable[[], None] = lambda: None
        #: Called for an event that a dead-letter target has to take before it may die.
        self.on_death: Callable[[Held], None] | None = None

    def hopeless(self, claim: Claim) -> NotPublished | None:
        """Why this event is not to be published any more, if so."""
        if claim.exhausted:
            return Exhausted()
        age, limit = claim.claimed_ms - claim.due_ms, self._policy.max_age
        if limit is not None and age > limit * 1000:
            return TooOld(f"not published within {limit:g} s; it is {age / 1000:.0f} s old")
        return None

    def published(self, held: Held) -> None:
        self._settler.ack(held)
        if self._blamed:
            self._blamed.pop(held.claim.event_id, None)
        self._acknowledged_at = asyncio.get_running_loop().time()
        if self._breaker is not None:
            doubted = self._breaker.doubting
            if self._breaker.succeeded(held.claim.event.event_type):
                self._closed(self._breaker, doubted=doubted)
            if self._verdicts:
                self.decide()

    def failed(self, held: Held, error: BaseException) -> None:
        if isinstance(error, Interrupted):
            self._settler.retry(held, 0.0, error, excuse=True)
            return
        self._tally.failed += 1
        self._write_failure(held.claim, error)
        verdict = Verdict(held, error, self._breaker is not None and self._is_target_to_blame(held, error))
        if self._breaker is None:
            self._decide(verdict)
            return
        if self._breaker.failed(error, held.claim):
            logger.debug("%s; a sample of other events is tried", self._breaker.reason)
            self.give_back()
        if self._breaker.circuit is Circuit.OPEN:
            self._again(held, error, excuse=True)  # the target is to blame, not the event
        elif self._breaker.circuit is Circuit.PROBING or (self._is_final(verdict) and isinstance(error, _DOUBTFUL)):
            self._verdicts.append(verdict)
            if len(self._verdicts) >= UNDECIDED and self._breaker.closed:
                self.decide()  # the kinds differ, or the breaker would probe: it is the events
        else:
            self._decide(verdict)

    def _is_final(self, verdict: Verdict) -> bool:
        """Whether the event dies."""
        held, error, excuse = verdict
        if excuse:
            return False
        if isinstance(error, Reject) and (self._breaker is None or not error_blames_target(error)):
            return True
        return self._policy.attempts is not None and held.claim.failures + 1 >= self._policy.attempts

    def _decide(self, verdict: Verdict) -> None:
        """The event is returned or dies, by the policy."""
        if self._is_final(verdict):
            self.doom(verdict.held, verdict.error)
        else:
            self._again(verdict.held, verdict.error, excuse=verdict.excuse)

    def _is_target_to_blame(self, held: Held, error: BaseException) -> bool:
        """Whether the attempt says nothing about the event.

        The target could not be reached, and took no other event during the attempt. (An event that makes its target
        fall over, while others get through, uses up its attempts.) Or it rejected the event for a reason that blames
        the target, for the first time, or without having taken another event since then.
        """
        if isinstance(error, Unavailable):
            return self._acknowledged_at < held.begun
        if not error_blames_target(error):
            return False
        first = self._blamed.get(held.claim.event_id)
        if first is None:
            if len(self._blamed) >= BLAMED:
                self._blamed.pop(next(iter(self._blamed)))
            self._blamed[held.claim.event_id] = asyncio.get_running_loop().time()
            return True
        return self._acknowledged_at < first

    def doom(self, held: Held, error: BaseException) -> None:
        """It dies; first the dead-letter target gets it, if there is one."""
        held.fate = error
        self._blamed.pop(held.claim.event_id, None)
        if self.on_death is None:
            self.buried(held)
        else:
            self.on_death(held)

    def buried(self, held: Held, objection: BaseException | None = None) -> None:
        """The dead-letter target has it, or will never take it."""
        reason = "" if isinstance(held.fate, Exhausted) or held.fate is None else error_words(held.fate)
        if objection is not None:
            words = error_words(objection)
            subject = "the dead-letter target rejected event"
            self._digest.write(logging.ERROR, subject, f"{subject} {held.claim.event_id}", words)
            reason = f"{reason or 'attempts used up'}; and the dead-letter target rejected it: {words}"
        text = f"event {held.claim.event_id} is dead"
        self._digest.write(logging.WARNING, "dead", text, reason or "its attempts are used up")
        self._settler.kill(held, reason)

    def unburied(self, held: Held, error: BaseException) -> None:
        """The dead-letter target did not take it: it stays alive until it does."""
        words = error_words(error)
        subject = "the dead-letter target did not take event"
        self._digest.write(logging.ERROR, subject, f"{subject} {held.claim.event_id}", words)
        failure = NotPublished(f"the dead-letter target did not take it: {words}")
        self._again(held, failure, excuse=False, least=BURY_AGAIN)

    def _write_failure(self, claim: Claim, error: BaseException) -> None:
        attempts = "" if self._policy.attempts is None else f" of {self._policy.attempts}"
        text = f"event {claim.event_id} failed (attempt {claim.failures + 1}{attempts})"
        self._digest.write(logging.WARNING, "failed", text, error_words(error))

    def decide(self) -> None:
        """Decides over the events whose verdicts are held back."""
        verdicts, self._verdicts = self._verdicts, []
        for verdict in verdicts:
            self._decide(verdict)

    def excuse(self) -> None:
        """Nothing spoke for the target: the events whose verdicts are held back are returned, their attempt excused."""
        verdicts, self._verdicts = self._verdicts, []
        for verdict in verdicts:
            self._again(verdict.held, verdict.error, excuse=True)

    @property
    def verdicts(self) -> int:
        """How many verdicts are held back."""
        return len(self._verdicts)

    @property
    def undecided(self) -> int:
        """How many events of ours wait for their verdict; a lease may have been lost meanwhile."""
        return sum(not verdict.held.lost for verdict in self._verdicts)

    def _closed(self, breaker: Breaker, *, doubted: bool) -> None:
        if not doubted:
            logger.info("the breaker is closed: the target acknowledges again")
            self._breaker_changed()
            self.excuse()  # the target may have come back after these were refused
        for event_type in sorted(breaker.isolated):
            text = f"events of type {event_type} keep failing while others are published"
            self._digest.write(logging.WARNING, f"isolated {event_type}", text, "they do not open the breaker")

    def opened(self, breaker: Breaker, *, doubted: bool) -> None:
        """The breaker has opened, after a series of failures (`doubted`) or again after a probe.

        After a probe, the oldest event dies whose rejection is about the event: so a box that holds nothing else does
        not stay as it is, and a target that rejects everything by mistake costs one event per probe.
        """
        logger.warning("the breaker is open, the next probe is in %.1f s: %s", breaker.wait(), breaker.reason)
        self._breaker_changed()
        if not doubted:
            rejected = [each for each in self._verdicts if isinstance(each.error, Reject) and self._is_final(each)]
            if rejected:
                oldest = min(rejected, key=lambda verdict: verdict.held.claim.due_ms)
                self._verdicts.remove(oldest)
                self.doom(oldest.held, oldest.error)
        self.excuse()
        self.give_back()

    def _again(self, held: Held, error: BaseException, *, excuse: bool, least: float = 0.0) -> None:
        delay = max(least, self._delay(held.claim, error))
        logger.debug("event %s goes back for %.3f s: %s", held.claim.event_id, delay, error_words(error))
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
            logger.exception("the backoff function failed for event %s", claim.event_id)
            delay = BROKEN_BACKOFF_DELAY
        return max(delay, _bounded(asked or 0.0))


def error_blames_target(error: BaseException) -> bool:
    """Whether it is a rejection that may have nothing to do with the event. An exception may lack every attribute."""
    return isinstance(error, Reject) and getattr(error, "blames_target", False) is True


def _asked(error: RetryLater | Unavailable) -> float | None:
    """The delay that a publisher asked for; none if it is missing or not a number."""
    try:
        return float(error.delay)
    except (AttributeError, TypeError, ValueError):
        return None


def _bounded(delay: float) -> float:
    return 0.0 if math.isnan(delay) else min(max(delay, 0.0), LONGEST)
