"""The circuit breaker: distinguishes a target that is down, or rejects everything, from events that fail.

Closed: events are published. Probing: a sample of the available events is published; a success closes the breaker.
Open: nothing is claimed until the pause is over, then it probes again. After a series of failures the breaker probes at
once, and opens only if no event of the sample is published.
"""

from __future__ import annotations

import random as random_numbers
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from redbox.arguments import number, whole_number
from redbox.errors import Reject, Unavailable, UsageError
from redbox.events import Claim
from redbox.relay.outcomes.error_text import error_text

UNAVAILABLE: Final = 5
FAILURES: Final = 20
REJECTIONS: Final = 20
KINDS: Final = 1000  # kinds of failure that are counted separately
PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
JITTER: Final = 0.1  # the part of a pause that is random, so that relays of one target do not probe it together

SAMPLE: Final = 8  # events that a probe begins with
MOST_PROBED: Final = 512  # events of one probe, if the target answers
MOST_PROBED_AGAIN: Final = 64  # the same after it has opened, unless the target rejects all: it may be overloaded
PATIENCE: Final = 10  # maximum duration of a probe, in first pauses
DOWN: Final = "unavailable"  # the kind of failure of a target that is down


class Outage(NamedTuple):
    """A time in which a breaker was open: seconds since it opened, and since it closed."""

    opened: float
    closed: float


class Circuit(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


class Breaker:
    """Probes after a series of outcomes without a success, and opens when the probe fails.

    `unavailable`: how many times in a row the target is down before the breaker probes. `failures`: the same for
    different events that fail, for any reason; `rejections`: for rejections of one kind, such as HTTP 401. `pause`:
    seconds until the next probe; each probe that fails doubles it, up to `longest`. Each pause is shortened at random
    by up to 10 %.
    """

    def __init__(
        self,
        *,
        unavailable: int = UNAVAILABLE,
        failures: int = FAILURES,
        rejections: int = REJECTIONS,
        pause: float = PAUSE,
        longest: float = LONGEST_PAUSE,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        limits = {"unavailable": unavailable, "failures": failures, "rejections": rejections}
        for name, limit in limits.items():
            whole_number(f"a breaker's {name}", limit)
        if not 0 < number("a breaker's pause", pause) <= number("a breaker's longest", longest):
            raise UsageError("a breaker's pause must be positive, and not longer than `longest`")
        self._limits = (unavailable, failures, rejections)
        self._first_pause, self._longest = pause, longest
        self._clock = clock
        self._random = random
        self._pause = pause
        self._until = 0.0
        self._isolated: set[tuple[str, str]] = set()  # (event type, kind of failure)
        self._succeeded_at = -float("inf")
        self._forget()
        self._sample, self._grown = SAMPLE, False  # the size of the next sample; later ones of a probe are larger
        self._doubting = False
        self._probing_since = 0.0
        self._sampling = False  # a sample is being published, and none of it has succeeded
        self._outcomes = 0  # failures since the latest sample began
        self._reached = 0  # those of them in which the target answered
        self._tried = 0  # failures since probing began
        self._refused = 0  # those of them that were rejections
        self.circuit = Circuit.CLOSED
        self.reason = ""
        self.opened = 0  # how many times it has opened
        self._opened_at: float | None = None  # since then no event was published
        self._last_outage: tuple[float, float] | None = None  # when it opened and closed

    def _forget(self) -> None:
        self._down = 0
        self._failed: set[str] = set()
        self._rejected: Counter[str] = Counter()
        self._failing: set[tuple[str, str]] = set()

    @property
    def closed(self) -> bool:
        return self.circuit is Circuit.CLOSED

    @property
    def open_for(self) -> float | None:
        """Seconds since it opened, probes included; None if it is closed, or has not opened yet."""
        return None if self._opened_at is None else self._clock() - self._opened_at

    @property
    def last_outage(self) -> Outage | None:
        """The last time that it was open and has closed again; None if there was none."""
        if self._last_outage is None:
            return None
        now, (opened, closed) = self._clock(), self._last_outage
        return Outage(now - opened, now - closed)

    @property
    def doubting(self) -> bool:
        """Whether it probes after a series of failures, and has not opened yet."""
        return self.circuit is Circuit.PROBING and self._doubting

    @property
    def first_sample(self) -> bool:
        """Whether the next sample is the first of its probe, to be spread over all available events. Later samples are
        the oldest events, since events that were tried become available later."""
        return not self._grown

    @property
    def isolated(self) -> frozenset[str]:
        """The event types that keep failing while others are published; their failures do not open the breaker."""
        return frozenset(event_type for event_type, _ in self._isolated)

    def wait(self) -> float:
        """Seconds until events may be claimed; 0 for now."""
        return max(0.0, self._until - self._clock()) if self.circuit is Circuit.OPEN else 0.0

    # --- outcomes ------------------------------------------------------------------------------------------------

    def succeeded(self, event_type: str = "") -> bool:
        """The target acknowledged an event. Returns whether that closed the breaker."""
        was_closed = self.circuit is Circuit.CLOSED
        if was_closed:
            if self._isolated:
                self._succeeded_at = self._clock()
                self._isolated = {pair for pair in self._isolated if pair[0] != event_type}
        else:
            self._isolate(event_type)
            self.circuit, self.reason, self._pause = Circuit.CLOSED, "", self._first_pause
            self._sampling = self._doubting = False
            if self._opened_at is not None:
                self._last_outage = (self._opened_at, self._clock())
            self._opened_at = None
        if self._failing:
            self._forget()
        return not was_closed

    def _isolate(self, event_type: str) -> None:
        """An event of this type was published by a probe, so failures of other types are not the target's fault; except
        that it was down, which may have been before it came back."""
        self._succeeded_at = self._clock()
        self._isolated |= {pair for pair in self._failing if pair[1] != DOWN}
        self._isolated = {pair for pair in self._isolated if pair[0] != event_type}

    def failed(self, error: BaseException, claim: Claim) -> bool:
        """An event was not published. Returns whether that makes the breaker probe."""
        event_type, kind = claim.event.event_type, _kind(error)
        if len(self._failing) < KINDS:
            self._failing.add((event_type, kind))
        if self.circuit is Circuit.OPEN:  # was being published when it opened
            return False
        if self.circuit is Circuit.PROBING:
            self._tried += 1
            self._refused += isinstance(error, Reject)
            self._outcomes += 1
            self._reached += not isinstance(error, Unavailable)
            return False
        if (event_type, kind) in self._isolated:
            if self._clock() - self._succeeded_at <= self._longest:
                return False
            self._isolated.clear()  # no success for a long time: these types are no exception any more
        return self._count(error, claim.event_id, kind)

    def _count(self, error: BaseException, event_id: str, kind: str) -> bool:
        unavailable, failures, rejections = self._limits
        if isinstance(error, Reject):
            if len(self._rejected) > KINDS:
                self._rejected.clear()
            self._rejected[kind] += 1
            if self._rejected[kind] >= rejections:
                return self._doubt(f"{rejections} rejections in a row: {kind}")
        else:
            self._failed.add(event_id)
            if isinstance(error, Unavailable):
                self._down += 1
            if self._down >= unavailable:
                return self._doubt(f"the target was unavailable {unavailable} times in a row: {error_text(error)}")
            if len(self._failed) >= failures:
                return self._doubt(f"{failures} events in a row failed, the last one with: {error_text(error)}")
        return False

    def _doubt(self, reason: str) -> bool:
        self.reason, self._doubting = reason, True
        self._begin_probe()
        return True

    # --- probing -------------------------------------------------------------------------------------------------

    def _begin_probe(self) -> None:
        self.circuit, self._probing_since, self._sample = Circuit.PROBING, self._clock(), SAMPLE
        self._tried = self._refused = 0
        self._grown = False

    def probe(self) -> int:
        """Begins a sample; returns how many events to claim for it."""
        if self.circuit is Circuit.OPEN:
            self._forget()
            self._begin_probe()
        self._sampling, self._outcomes, self._reached = True, 0, 0
        return self._sample

    def patience(self) -> float | None:
        """Seconds that a sample may still take; None for no limit.

        There is a limit only while the breaker has not opened: other events wait for the outcome.
        """
        return self._patience() if self._doubting else None

    def _patience(self) -> float:
        return max(0.0, self._probing_since + PATIENCE * self._first_pause - self._clock())

    def dismiss(self) -> None:
        """Ends a probe after a series of failures that cannot be completed now, as when the box is paused."""
        if self.doubting:
            self._forget()
            self.circuit, self.reason, self._doubting, self._sampling = Circuit.CLOSED, "", False, False

    def sample_failed(self, size: int, *, hangs: bool = False) -> bool:
        """No event of a sample was published. Returns whether that opened the breaker; if not, another sample is due.

        A series of failures that the target answered may be a series of bad events: others are tried until none is
        left (a sample of `size` 0), or enough have failed. A sample proves nothing if none of its events was tried,
        since all were too old or damaged. `hangs`: the sample has not ended in time.
        """
        if self.circuit is not Circuit.PROBING or not self._sampling:
            return False
        if size and not self._outcomes and not hangs:
            return False
        most = MOST_PROBED if self._doubting or self._refused == self._tried else MOST_PROBED_AGAIN
        if size and self._reached and self._tried < most and self._patience():
            self._sample, self._grown = min(2 * self._sample, most - self._tried), True
            return False
        if not self._doubting:
            self._pause = min(2 * self._pause, self._longest)
        self._doubting = self._sampling = False
        self.circuit, self._until = Circuit.OPEN, self._clock() + self._pause * (1 - JITTER * self._random())
        self._isolated.clear()
        self.opened += 1
        if self._opened_at is None:
            self._opened_at = self._clock()
        return True


def _kind(error: BaseException) -> str:
    """The kind of a failure. A publisher's exception may hold anything, or lack every attribute."""
    if isinstance(error, Unavailable):
        return DOWN
    if not isinstance(error, Reject):
        return "failed"
    try:
        return str(error.kind)
    except Exception:
        return error_text(error)
