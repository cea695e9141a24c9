"""The history of a box's rates and latencies: a ring of samples in the store.

Relays, and the HTTP service, sample the totals of the box every few seconds (`record_rates`). A rate is the growth of
a total between two samples: however many processes sample, it is counted once. Samples are not taken at the ends of
slots; between two of them a total is taken to grow evenly. So the rates of all slots, each times its length, add up to
the growth of the total.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, Self

import msgspec

from redbox.arguments import number, shown, whole_number
from redbox.box.desk.rates import FAILURES
from redbox.errors import UsageError
from redbox.events import from_ms
from redbox.store.store import Store

#: The windows, and seconds of one slot of the ring that holds each.
STEPS: Final = {"1h": 10, "24h": 300}
_WINDOWS: Final = {"1h": timedelta(hours=1), "24h": timedelta(hours=24)}
MOST_BUCKETS: Final = 64
#: Each rate, and the totals whose growth it is.
_RATES: Final = {"put": ("put",), "published": ("published",), "failed": FAILURES, "dead": ("dead",)}
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


async def record_rates(store: Store, latencies: Mapping[float, int], *, new: bool = False) -> bool:
    """Samples the totals now. `latencies`: how many events to add to each bucket, by its upper bound in ms. `new`: the
    box did not exist when the caller last sampled it."""
    if not isinstance(latencies, Mapping):
        raise UsageError(f"latencies must be a mapping of upper bounds to counts, not {shown(latencies)}")
    whole_number("the number of latencies", len(latencies), 0, MOST_BUCKETS)
    for bound in latencies:
        if bound != math.inf:
            number("latencies", bound)
    buckets = [(f"{bound:g}", whole_number("latencies", count, 0)) for bound, count in latencies.items()]
    return await store.record_rates([(bound, count) for bound, count in buckets if count > 0], new=new)


async def rates_history(store: Store, window: str) -> RatesHistory:
    """The rates of the last hour ("1h") or day ("24h"). One read of at most about 70 KB."""
    step = STEPS.get(window) if isinstance(window, str) else None
    if step is None:
        raise UsageError(f"window {shown(window)}: use {' or '.join(STEPS)}")
    now, slots = await store.rates(step)
    since = now - _WINDOWS[window] // timedelta(milliseconds=1)
    return RatesHistory(step, list(_samples(map(_Stored.read, slots), step * 1000, since, now)))


class _Growth(msgspec.Struct, frozen=True):
    """Between two samples: their times in ms, and events per second for each rate; None where a total was lost."""

    since: int
    until: int
    rates: tuple[float | None, ...]

    @classmethod
    def between(cls, before: _Stored, after: _Stored, step: int) -> Self:
        since = before.at + 1 if (before.at + 1) % step == 0 else before.at  # the first sample is at the end of a slot
        seconds = (after.at - since) / 1000

        def rate(names: Iterable[str]) -> float | None:
            grown = sum(after.totals[name] - before.totals[name] for name in names)
            return None if grown < 0 or seconds <= 0 else grown / seconds

        return cls(since, after.at, tuple(rate(names) for names in _RATES.values()))


def _samples(stored: Iterable[_Stored | None], step: int, since: int, now: int) -> Iterable[RateSample]:
    """The rates of each slot after `since`; the newest slot has not ended. Slots that are later than now were written
    before the server's clock was set back, and are left out."""
    known = sorted((each for each in stored if each is not None and each.at <= now), key=lambda each: each.at)
    growths = [_Growth.between(before, after, step) for before, after in pairwise(known)]
    if not growths:
        return
    latencies = {each.at // step: each.latencies for each in known}
    at = 0  # the first growth that does not end before the slot
    for slot in range(max(known[0].at // step + 1, since // step), known[-1].at // step + 1):
        begin, end = slot * step, (slot + 1) * step
        while growths[at].until < begin:
            at += 1
        within = [each for each in growths[at : at + 3] if each.since < end]  # a slot has one sample
        rates = _mean(within, begin, end)
        buckets = latencies.get(slot, {})
        yield RateSample(at=from_ms(begin), **rates, p50_ms=quantile(buckets, 0.5), p99_ms=quantile(buckets, 0.99))


def _mean(growths: Sequence[_Growth], begin: int, end: int) -> dict[str, float | None]:
    """The mean rates of a slot."""
    shares = [min(each.until, end) - max(each.since, begin) for each in growths]
    if not any(shares):  # the last sample was taken as the slot began
        shares = [1] * len(shares)
    means: dict[str, float | None] = {}
    for name, *rates in zip(_RATES, *(each.rates for each in growths), strict=True):
        parts = [(rate, share) for rate, share in zip(rates, shares, strict=True) if share]
        lost = any(rate is None for rate, _ in parts)
        means[name] = None if lost else round(sum(rate * share for rate, share in parts) / sum(shares), 3)
    return means


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
