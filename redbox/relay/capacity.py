"""How many calls of a publisher a relay makes at once, and how many events each call takes."""

from __future__ import annotations

from typing import NamedTuple

from redbox.arguments import whole_number
from redbox.publishers.base import Publisher


class Capacity(NamedTuple):
    """`calls` that overlap at most, and `events` that each of them takes at most."""

    calls: int
    events: int


def capacity(publisher: Publisher, concurrency: int) -> Capacity:
    """What the publisher takes from a relay that would have `concurrency` events in flight.

    Two calls of many events overlap if the publisher allows it. Raises UsageError for a publisher that names an
    impossible number.
    """
    kind = type(publisher).__name__
    events = min(concurrency, whole_number(f"{kind}.at_once", publisher.at_once(concurrency)))
    many = whole_number(f"{kind}.many", publisher.many)
    calls = events
    if publisher.calls_at_once is not None:
        calls = min(events, whole_number(f"{kind}.calls_at_once", publisher.calls_at_once))
    many = min(many, events // min(2, calls))
    return Capacity(min(calls, events // many), many)
