"""How much work one script call may do. While a script runs, the server answers no other client, so a call with many
events is made in steps, each a script of about ten milliseconds at most.

The unit of work is a plain event that is put, claimed or acknowledged: five to ten microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from redbox.events import Claim
from redbox.store.codec import EncodedEvent

T = TypeVar("T")
WORK: Final = 1000  # of one step
STEP_COUNT: Final = 100  # events of a step, where each takes about ten units
REPLACING: Final = 6  # of a put that may remove an event and promote the next one of its line
UNKNOWN: Final = 8  # of an ack whose keys are not known
_LONG: Final = 64  # characters of a key that take another unit


def put_work(event: EncodedEvent) -> int:
    """The work of putting an event: keys and times add to it, long keys more, and most the removal of another event."""
    options = event.options
    if not options:
        return 1
    return 2 + len(options) // _LONG + (REPLACING if event.replaces else 0)


def ack_work(claim: Claim) -> int:
    """The work of an ack: it promotes the next event of a line, and frees a unique key."""
    ordering, unique = claim.event.ordering_key, claim.event.unique_key
    work = 1
    if ordering is not None:
        work += 2 + len(ordering) // _LONG
    if unique is not None:
        work += 1 + len(unique) // _LONG
    return work


def first_step(items: Iterable[T], work: Callable[[T], int]) -> list[T]:
    """The first items that fit into one step, at least one."""
    return next(by_work((item, work(item)) for item in items), [])


def by_work(items: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Items, each given with its work, in steps."""
    step: list[T] = []
    total = 0
    for item, work in items:
        total += work
        if step and total > WORK:
            yield step
            step, total = [], work
        step.append(item)
    if step:
        yield step


def batches(items: Iterable[T], size: int = STEP_COUNT) -> Iterator[list[T]]:
    """Items in lists of `size`; the last may be shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
