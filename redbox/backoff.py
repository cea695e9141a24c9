"""How long a failed event waits before it is tried again. Pure: nothing here sleeps or looks at a clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from redbox.durations import Duration, duration
from redbox.errors import UsageError
from redbox.events import Event

BASE: Final = 1.0
CAP: Final = 300.0

#: (event, how many attempts have failed, with this one; the error) → seconds
Delay = Callable[[Event, int, BaseException], Duration]


class Backoff:
    """A retry policy: seconds to wait after each failed attempt."""

    def __init__(self, delay: Delay, description: str = "custom") -> None:
        """A policy of your own: a function of (event, attempts, error) that returns seconds or a timedelta."""
        if not callable(delay):
            raise UsageError("Backoff takes a function of (event, attempts, error); see also Backoff.exponential")
        self._delay = delay
        self._description = description
        self.immediate = False  # it never waits

    @classmethod
    def exponential(cls, base: Duration = BASE, *, cap: Duration = CAP, jitter: bool = True) -> Backoff:
        """base × 2^(failures before this one), at most `cap`; with full jitter anything from 0 to that."""
        first, longest = duration("base", base), duration("cap", cap)
        if first <= 0 or longest < first:
            raise UsageError("base must be positive, and cap not smaller than base")

        def delay(_event: Event, attempts: int, _error: BaseException) -> float:
            most = min(longest, first * 2.0 ** min(attempts - 1, 64))
            return random.uniform(0, most) if jitter else most  # noqa: S311  # spreads load, hides nothing

        return cls(delay, f"exp:{first:g}s..{longest:g}s")

    @classmethod
    def fixed(cls, delay: Duration) -> Backoff:
        """The same delay each time; 0 tries again at once, and needs a limit of attempts."""
        every = duration("delay", delay)
        policy = cls(lambda _event, _attempts, _error: every, f"fixed:{every:g}s")
        policy.immediate = every == 0
        return policy

    def __call__(self, event: Event, attempts: int, error: BaseException) -> float:
        return duration("delay", self._delay(event, attempts, error))

    def __repr__(self) -> str:
        return f"Backoff({self._description})"
