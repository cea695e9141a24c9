"""The history of a box's rates and latencies: a ring of samples in the store.

Relays, and the HTTP service, sample the totals of the box every few seconds (`record_rates`). A rate is the growth of
a total between two samples: however many processes sample, it is counted once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, Self

import msgspec

from redbox.arguments import number, shown, whole_number
from redbox.box.rates import FAILURES
from redbox.errors import UsageError
from redbox.events import from_ms
from redbox.store.store import Store

#: The windows, and seconds of one slot of the ring that holds each.
STEPS: Final = {"1h": 10, "24h": 60}
_WINDOWS: Final = {"1h": timedelta(hours=1), "24h": timedelta(hours=24)}
MOST_BUCKETS: Final = 64
_TOTALS: Final = ("put", "published", "retried", "dead", "expired")  # in the order of the script


class RateSample(msgspec.Struct, frozen=True, kw_only=True):
    """Events per second that were put, published, failed an attempt and died; None where a total was lost.

    `at` is the beginning of the slot. `p50_ms` and `p99_ms`: time from when an event was due, by default its put, until
    it was published, estimated from a histogram; None if none was published.
    """

    at: datetime
    put: float | None
    published: float | None
    failed: float | None
    dead: float | None
    p50_ms: float | None = None
    p99_ms: float | None = None


class RatesHistory(msgspec.Struct, frozen=True):
    """Samples in order of time, one for each `step` seconds between the first and the last that are known."""

    step: int
    samples: list[RateSample]


class _Stored(msgspec.Struct, frozen=True):
    """A slot as it is stored: the time of its last sample, in ms; the totals then; its latencies."""

    at: int
    totals: dict[str, int]
    latencies: dict[float, int]

    @classmethod
    def read(cls, raw: bytes) -> Self | None:
        """None for a slot that cannot be read."""
        try:
            numbers, buckets = [], {}
            for word in raw.decode().split():
                bound, colon, count = word.partition(":")
                if colon:
                    buckets[float(bound)] = int(count)
                else:
                    numbers.append(int(word))
            at, *totals = numbers
            return cls(at, dict(zip(_TOTALS, totals, strict=True)), buckets)
        except ValueError:
            return None


async def record_rates(store: Store, latencies: Mapping[float, int]) -> bool:
    """Samples the totals now. `latencies`: how many events to add to each bucket, by its upper bound in ms."""
    if not isinstance(latencies, Mapping):
        raise UsageError(f"latencies must be a mapping of upper bounds to counts, not {shown(latencies)}")
    whole_number("the number of latencies", len(latencies), 0, MOST_BUCKETS)
    for bound in latencies:
        if bound != math.inf:
            number("latencies", bound)
    buckets = [(f"{bound:g}", whole_number("latencies", count, 0)) for bound, count in latencies.items()]
    return await store.record_rates([(bound, count) for bound, count in buckets if count > 0])


async def rates_history(store: Store, window: str) -> RatesHistory:
    """The rates of the last hour ("1h") or day ("24h"). One read of at most about 200 KB."""
    step = STEPS.get(window) if isinstance(window, str) else None
    if step is None:
        raise UsageError(f"window {shown(window)}: use {' or '.join(STEPS)}")
    now, slots = await store.rates(step)
    since = now - _WINDOWS[window] // timedelta(milliseconds=1)
    return RatesHistory(step, list(_samples(map(_Stored.read, slots), step * 1000, since, now)))


def _samples(stored: Iterable[_Stored | None], step: int, since: int, now: int) -> Iterable[RateSample]:
    """The rates of each slot after `since`. A slot without a sample has the mean rate until the next one. Slots that
    are later than now were written before the server's clock was set back, and are left out."""
    known = sorted((each for each in stored if each is not None and each.at <= now), key=lambda each: each.at)
    for before, after in pairwise(known):
        first, last = before.at // step + 1, after.at // step
        for slot in range(max(first, since // step), last + 1):
            yield _sample(before, after, slot * step, latencies=after.latencies if slot == last else {})


def _sample(before: _Stored, after: _Stored, at: int, latencies: dict[float, int]) -> RateSample:
    seconds = (after.at - before.at) / 1000

    def rate(*names: str) -> float | None:
        grown = sum(after.totals[name] - before.totals[name] for name in names)
        return None if grown < 0 or seconds <= 0 else round(grown / seconds, 3)

    return RateSample(
        at=from_ms(at),
        put=rate("put"),
        published=rate("published"),
        failed=rate(*FAILURES),
        dead=rate("dead"),
        p50_ms=quantile(latencies, 0.5),
        p99_ms=quantile(latencies, 0.99),
    )


def quantile(buckets: Mapping[float, int], share: float) -> float | None:
    """The latency that this share of the events did not exceed: interpolated within its bucket, whose lower bound is
    taken to be two fifths of the upper one. Beyond the last bound, that bound."""
    rank, counted = share * sum(buckets.values()), 0
    for bound in sorted(buckets):
        if counted + buckets[bound] >= rank and buckets[bound]:
            if bound == float("inf"):
                break
            lower = 0.4 * bound
            return round(lower + (bound - lower) * (rank - counted) / buckets[bound], 3)
        counted += buckets[bound]
    finite = [bound for bound in buckets if bound < float("inf") and buckets[bound]]
    return max(finite) if finite else None
