"""The circuit breaker: tells a target that is down, or rejects everything, from events that fail.

closed: publish. open: claim nothing until the pause is over. probing: one event is on its way to find out; a success
closes the breaker, a failure opens it again for twice as long.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from redbox.arguments import number, whole_number
from redbox.errors import Reject, Unavailable, UsageError
from redbox.relay.words import error_words

UNAVAILABLE: Final = 5
FAILURES: Final = 20
REJECTIONS: Final = 20
KINDS: Final = 1000  # of rejections that are told apart
PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0


class Circuit(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


class Breaker:
    """Opens after so many outcomes in a row without a success.

    `unavailable`: times the target was found down. `failures`: different events that failed, whatever the reason.
    `rejections`: rejections of one kind, such as HTTP 401. `pause`: seconds until the first probe, doubled up to
    `longest` by each that fails.
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
    ) -> None:
        limits = {"unavailable": unavailable, "failures": failures, "rejections": rejections}
        for name, limit in limits.items():
            whole_number(f"a breaker's {name}", limit)
        if not 0 < number("a breaker's pause", pause) <= number("a breaker's longest", longest):
            raise UsageError("a breaker's pause must be positive, and not longer than `longest`")
        self._limits = (unavailable, failures, rejections)
        self._first_pause, self._longest = pause, longest
        self._clock = clock
        self._pause = pause
        self._until = 0.0
        self._forget()
        self.circuit = Circuit.CLOSED
        self.reason = ""
        self.opened = 0  # how often

    def _forget(self) -> None:
        self._down = 0
        self._failed: set[str] = set()
        self._rejected: Counter[str] = Counter()

    @property
    def closed(self) -> bool:
        return self.circuit is Circuit.CLOSED

    def wait(self) -> float:
        """Seconds until an event may be claimed; 0 for now."""
        return max(0.0, self._until - self._clock()) if self.circuit is Circuit.OPEN else 0.0

    def probe(self) -> None:
        """An open breaker's pause is over, and one event is sent to find out."""
        self.circuit = Circuit.PROBING

    def succeeded(self) -> bool:
        """The target acknowledged something. True when that closed the breaker."""
        if self._down or self._failed or self._rejected:
            self._forget()
        if self.circuit is Circuit.CLOSED:
            return False
        self.circuit, self.reason, self._pause = Circuit.CLOSED, "", self._first_pause
        return True

    def failed(self, error: BaseException, event_id: str) -> bool:
        """It did not. True when that opened the breaker, for the first time or again."""
        if self.circuit is Circuit.OPEN:  # was on its way already when it opened
            return False
        if self.circuit is Circuit.PROBING:
            self._pause = min(2 * self._pause, self._longest)
            return self._open(self.reason)
        unavailable, failures, rejections = self._limits
        if isinstance(error, Reject):
            if len(self._rejected) > KINDS:
                self._rejected.clear()
            kind = _kind(error)
            self._rejected[kind] += 1
            if self._rejected[kind] >= rejections:
                return self._open(f"{rejections} rejections in a row: {kind}")
        else:
            self._failed.add(event_id)
            if isinstance(error, Unavailable):
                self._down += 1
            if self._down >= unavailable:
                return self._open(f"the target was unavailable {unavailable} times in a row: {error_words(error)}")
            if len(self._failed) >= failures:
                return self._open(f"{failures} events in a row failed, the last one with: {error_words(error)}")
        return False

    def _open(self, reason: str) -> bool:
        self._forget()
        self.circuit, self.reason, self._until = Circuit.OPEN, reason, self._clock() + self._pause
        self.opened += 1
        return True


def _kind(error: Reject) -> str:
    """What a publisher raises is not under our control: its kind may be missing, or anything at all."""
    try:
        return str(error.kind)
    except Exception:
        return error_words(error)
