"""How long a failed event waits before its next attempt. Nothing here sleeps or reads a clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from redbox.durations import Duration, duration
from redbox.errors import UsageError
from redbox.events import Event

BASE: Final = 1.0
CAP: Final = 300.0

#: (event, number of failed attempts including this one, error) → delay; a number is in seconds
Delay = Callable[[Event, int, BaseException], Duration]


class Backoff:
    """A retry policy: seconds to wait after each failed attempt."""

    def __init__(self, delay: Delay, description: str = "custom") -> None:
        """`delay`: a function of (event, attempts, error) that returns seconds or a timedelta."""
        if not callable(delay):
            raise UsageError("Backoff takes a function of (event, attempts, error); see also Backoff.exponential")
        self._delay = delay
        self._description = description
        self.immediate = False  # the delay is always 0

    @classmethod
    def exponential(cls, base: Duration = BASE, *, cap: Duration = CAP, jitter: bool = True) -> Backoff:
        """base × 2^(earlier failures), at most `cap`. With full jitter, a random delay from 0 to that."""
        first, longest = duration("base", base), duration("cap", cap)
        if first <= 0 or longest < first:
            raise UsageError("base must be positive, and cap not smaller than base")

        def delay(_event: Event, attempts: int, _error: BaseException) -> float:
            most = min(longest, first * 2.0 ** min(attempts - 1, 64))
            return random.uniform(0, most) if jitter else most  # noqa: S311  # spreads load; not a secret

        return cls(delay, f"exp:{first:g}s..{longest:g}s")

    @classmethod
    def fixed(cls, delay: Duration) -> Backoff:
        """The same delay after each failure; 0 needs a limit of attempts."""
        every = duration("delay", delay)
        policy = cls(lambda _event, _attempts, _error: every, f"fixed:{every:g}s")
        policy.immediate = every == 0
        return policy

    def __call__(self, event: Event, attempts: int, error: BaseException) -> float:
        return duration("delay", self._delay(event, attempts, error))

    def __repr__(self) -> str:
        return f"Backoff({self._description})"
