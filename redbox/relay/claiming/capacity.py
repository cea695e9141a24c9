"""How many calls of a publisher a relay makes at once, and how many events each call takes."""

from __future__ import annotations

from typing import NamedTuple

from redbox.arguments import whole_number
from redbox.publishers.base import Publisher


class Capacity(NamedTuple):
    """The maximum number of `calls` that overlap, and of `events` per call."""

    calls: int
    events: int


def capacity(publisher: Publisher, concurrency: int) -> Capacity:
    """The capacity of a publisher in a relay that publishes at most `concurrency` events at once.

    Two calls of many events overlap if the publisher allows it. Raises UsageError if the publisher gives an invalid
    number.
    """
    kind = type(publisher).__name__
    events = min(concurrency, whole_number(f"{kind}.at_once", publisher.at_once(concurrency)))
    many = whole_number(f"{kind}.many", publisher.many)
    calls = events
    if publisher.calls_at_once is not None:
        calls = min(events, whole_number(f"{kind}.calls_at_once", publisher.calls_at_once))
    many = min(many, events // min(2, calls))
    return Capacity(min(calls, events // many), many)
