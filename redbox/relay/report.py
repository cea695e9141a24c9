"""The counts and latencies of a relay."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from redbox.arguments import counted

if TYPE_CHECKING:
    from redbox.events import Claim
    from redbox.relay.claiming.held import Held

#: Upper bounds in seconds of the latency histograms.
BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
    120, 300, 600, 1200, 1800, 3600, 7200, 21600, 86400,
)  # fmt: skip
RATE_INTERVAL: Final = 1.0  # minimum seconds over which the publish rate is measured
#: Retries of this attempt and of later ones are counted together.
MOST_ATTEMPTS: Final = 10
MOST_UNDELIVERED: Final = 1000  # events of a drain that are remembered
UNDELIVERED_NAMED: Final = 3


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The outcomes of the events that a relay claimed.

    `retried`: returned to PENDING for another attempt. `dead`: rejected, or out of attempts or time. `released`:
    returned to PENDING without an attempt. `fenced`: the claim was lost before it was settled. `unsettled`: the store
    did not answer before the lease ended. `open`: why the breaker is open, if it is. `stuck`: why the last drain ended
    early, if all calls of the publisher hung. `undelivered`: which events the last drain tried and left PENDING, and
    why, if there are any.
    """

    claimed: int = 0
    published: int = 0
    retried: int = 0
    dead: int = 0
    released: int = 0
    fenced: int = 0
    unsettled: int = 0
    open: str = ""
    stuck: str = ""
    undelivered: str = ""


class Undelivered:
    """The events that a drain has tried and not delivered. An event beyond the first 1,000 is not remembered: it takes
    the place of one that is delivered when it is tried again."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self._last_error = ""

    def add(self, event_id: str, error: str) -> None:
        self._last_error = error
        if len(self._ids) < MOST_UNDELIVERED:
            self._ids[event_id] = None

    def remove(self, event_id: str) -> None:
        """The event was published, or is DEAD."""
        self._ids.pop(event_id, None)

    def clear(self) -> None:
        self._ids.clear()

    def __len__(self) -> int:
        return len(self._ids)

    def in_words(self) -> str:
        """Which events, and why; empty if there is none."""
        if not self._ids:
            return ""
        count, named = len(self._ids), sorted(self._ids)[:UNDELIVERED_NAMED]
        others = f" and {count - len(named):,} more" if count > len(named) else ""
        events = counted(count, "event")
        if count == MOST_UNDELIVERED:  # there may be others, which are not remembered
            events, others = f"{count:,} or more events", " and others"
        return f"{events} could not be delivered: {', '.join(named)}{others}; the last error was: {self._last_error}"


class Histogram:
    """Durations, counted by bucket. `listener` is called with each of them."""

    __slots__ = ("counts", "listener", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0
        self.listener: Callable[[float], None] | None = None

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds
        if self.listener is not None:
            self.listener(seconds)


class PublishRate:
    """Published events per second, between two readings that are at least a second apart."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before, self._since, self._rate = 0, clock(), 0.0

    def read(self, published: int) -> float:
        elapsed = self._clock() - self._since
        if elapsed >= RATE_INTERVAL:
            self._rate = (published - self._before) / elapsed
            self._before, self._since = published, self._clock()
        return self._rate


class Tally:
    """The running counts. `on_published` is called with the number of events that were just published, and `on_dead`
    with each event that was marked DEAD, and the reason."""

    def __init__(
        self,
        on_published: Callable[[int], None] = lambda _: None,
        on_dead: Callable[[Claim, str], None] | None = None,
    ) -> None:
        self._on_published = on_published
        self._on_dead = on_dead
        self.claimed = self.published = self.retried = self.dead = self.released = self.fenced = self.unsettled = 0
        self.stuck = ""
        self.undelivered = Undelivered()
        self.failed = 0  # failed attempts
        self.failures_in_row = 0  # those of them since the last success
        self.last_error = ""
        self.since_due = Histogram()  # from when an event was first due until it was published
        self.since_claimed = Histogram()
        self.retries_by_attempt: Counter[int] = Counter()  # by the attempt that failed, up to MOST_ATTEMPTS
        self.retry_delays = Histogram()

    def acked(self, settled: Sequence[Held]) -> None:
        now = asyncio.get_running_loop().time()
        for held in settled:
            self.published += 1
            self.failures_in_row = 0
            held_for = now - held.claimed_at
            self.since_claimed.add(held_for)
            self.since_due.add(max(0, held.claim.claimed_ms - held.claim.due_ms) / 1000 + held_for)
        self._on_published(len(settled))

    def killed(self, settled: Sequence[Held], reasons: Sequence[str]) -> None:
        """Counts events that were marked DEAD, each with its reason."""
        self.dead += len(settled)
        if self._on_dead is not None:
            for held, reason in zip(settled, reasons, strict=True):
                self._on_dead(held.claim, reason)

    def add_failure(self, error: str) -> None:
        """Counts a failed attempt."""
        self.failed += 1
        self.failures_in_row += 1
        self.last_error = error

    def will_retry(self, settled: Sequence[Held], delays: Sequence[float]) -> None:
        """Counts events that were returned to PENDING, each with its delay in seconds."""
        self.retried += len(settled)
        for held, delay in zip(settled, delays, strict=True):
            self.retries_by_attempt[min(held.claim.attempts, MOST_ATTEMPTS)] += 1
            self.retry_delays.add(delay)

    def summary(self, open_because: str) -> Summary:
        texts: dict[str, Any] = {"open": open_because, "stuck": self.stuck, "undelivered": self.undelivered.in_words()}
        counts: dict[str, Any] = {name: getattr(self, name) for name in Summary.__struct_fields__ if name not in texts}
        return Summary(**counts, **texts)
