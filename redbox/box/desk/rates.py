"""Events per second: between two readings of a box, or as its relays report them."""

from __future__ import annotations

import msgspec

from redbox.box.reports import Stats

#: Totals of a box that count failed attempts: returned to PENDING, dead, or the lease expired.
FAILURES = ("retried", "dead", "expired")


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Events per second that were put, published and whose attempt failed; None where it is not known.

    `seconds` is the time between the two readings; None if the rates are those that the relays reported.
    """

    put: float | None = None
    published: float | None = None
    failed: float | None = None
    seconds: float | None = None


def rates_between(before: Stats, after: Stats) -> Rates:
    """The rates between two readings. Unknown if no time has passed, or if a total fell because the store lost data."""
    seconds = (after.at - before.at).total_seconds()
    if seconds <= 0:
        return Rates()

    def rate(*names: str) -> float | None:
        grown = sum(after.totals.get(name, 0) - before.totals.get(name, 0) for name in names)
        return None if grown < 0 else grown / seconds

    return Rates(put=rate("put"), published=rate("published"), failed=rate(*FAILURES), seconds=seconds)


def reported_rates(stats: Stats) -> Rates:
    """The rate at which living relays published before their last heartbeats, where they report it."""
    reported = [relay.rate for relay in stats.relays if relay.alive and relay.rate is not None]
    return Rates(published=sum(reported)) if reported else Rates()
