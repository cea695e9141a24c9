"""The pace of a bulk operation: how many events per second, growing from a trickle to the full rate at the start."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, Final

from redbox.arguments import number, shown
from redbox.errors import UsageError
from redbox.settings import BATCH_COUNT

SLOWEST: Final = 0.001  # events per second
FASTEST: Final = 1_000_000_000
STEPS_PER_SECOND: Final = 5


def check_rate(rate: Any) -> None:
    """Events per second of a replay; None for no limit."""
    if rate is not None and not SLOWEST <= number("rate", rate) <= FASTEST:
        raise UsageError(f"rate must be between {SLOWEST} and {FASTEST:,} events per second, not {shown(rate)}")


class Pace:
    """Spreads events over time: at most `rate` per second, and over the first `ramp` seconds less: the rate grows
    evenly from zero. Without a rate there is no limit."""

    def __init__(self, rate: float | None, ramp: float = 0.0) -> None:
        self._rate = rate
        self._ramp = ramp
        self._started = time.monotonic()

    def begin(self) -> None:
        """Counts time and events from now."""
        self._started = time.monotonic()

    def moment(self, done: int) -> float:
        """When the event after `done` others is to follow, in seconds after the start."""
        if self._rate is None:
            return 0.0
        in_ramp = self._rate * self._ramp / 2  # events of the ramp
        if done <= in_ramp:
            return math.sqrt(2 * self._ramp * done / self._rate)
        return self._ramp + (done - in_ramp) / self._rate

    def size(self, done: int) -> int:
        """How many events the next step may take: those of a fifth of a second, at least one."""
        if self._rate is None:
            return BATCH_COUNT
        now = min(1.0, self.moment(done) / self._ramp) if self._ramp else 1.0
        return max(1, min(BATCH_COUNT, int(self._rate * now / STEPS_PER_SECOND)))

    async def wait(self, done: int) -> None:
        """Waits until the event after `done` others may follow."""
        await asyncio.sleep(max(0.0, self._started + self.moment(done) - time.monotonic()))
