"""Listing, replay and sweep: many events, in bounded steps, each an atomic script."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from redbox.arguments import number, shown, whole_number
from redbox.box.reports import Page, Replayed, Swept
from redbox.box.selection import Selection, decode_cursor, encode_cursor
from redbox.errors import UsageError
from redbox.events import Outcome, Record, State, from_ms
from redbox.settings import BATCH_COUNT, PAGE_LIMIT, PAGE_LOOK, STEP_BYTES, SWEEP_COUNT
from redbox.store.durability import Durability
from redbox.store.replies import START
from redbox.store.store import Store

T = TypeVar("T")
Progress = Callable[[int], None]
SLOWEST: Final = 0.001  # events per second of a replay
FASTEST: Final = 1_000_000_000


def check_rate(rate: Any) -> None:
    """Events per second of a replay; None for no limit."""
    if rate is not None and not SLOWEST <= number("rate", rate) <= FASTEST:
        raise UsageError(f"rate must be between {SLOWEST} and {FASTEST:,} events per second, not {shown(rate)}")


def batches(items: Iterable[T], size: int = BATCH_COUNT) -> Iterable[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


async def page(store: Store, selection: Selection, limit: int, cursor: str | None) -> Page:
    """Up to `limit` records, and where to go on."""
    whole_number("limit", limit)
    indexes = selection.indexes
    index, after = decode_cursor(cursor, indexes) if cursor else (indexes[0], START)
    records: list[Record] = []
    for current in indexes[indexes.index(index) :]:
        more = True
        while more:
            room = min(limit - len(records), PAGE_LIMIT)
            found = await store.page(
                current, limit=room, look=PAGE_LOOK, size=STEP_BYTES, after=after, **selection.filters()
            )
            more, after = found.more, found.after
            records += found.records
            if len(records) >= limit:
                last = current == indexes[-1] and not more
                return Page(records, None if last else encode_cursor(current, after))
        after = START
    return Page(records, None)


async def selected_ids(store: Store, selection: Selection) -> AsyncIterator[list[str]]:
    """The ids of the selection, a slice at a time."""
    for index in selection.indexes:
        after, more = START, True
        while more:
            found = await store.page_ids(
                index,
                limit=BATCH_COUNT,
                look=PAGE_LOOK,
                size=STEP_BYTES,
                after=after,
                claims=selection.claims,
                **selection.filters(),
            )
            more, after = found.more, found.after
            yield [raw.decode(errors="replace") for raw in found.ids]


async def up_to_now(store: Store, selection: Selection) -> Selection:
    """The selection as it is now. What enters a state later is left out, or a bulk operation beside a running relay
    would never end; in the very millisecond of the start the claim number tells what was there before."""
    now, claims = await store.time_and_claims()
    start = from_ms(now)
    until = start if selection.until is None else min(selection.until, start)
    return Selection(**{**_fields(selection), "until": until, "claims": claims})


def _fields(selection: Selection) -> dict[str, Any]:
    return {name: getattr(selection, name) for name in selection.__struct_fields__}


async def replay(
    store: Store,
    ids: Sequence[str] | None,
    selection: Selection,
    *,
    reset: bool,
    available: str,
    force: bool,
    dry_run: bool,
    rate: float | None,
    who: str,
    why: str,
    durability: Durability,
    progress: Progress | None,
) -> Replayed:
    """Sends terminal events back to PENDING, `rate` of them per second."""
    report = Replayed(dry_run=dry_run)
    size = BATCH_COUNT if rate is None or dry_run else max(1, min(BATCH_COUNT, int(rate / 5)))
    started = time.monotonic()

    async def send(batch: list[str]) -> None:
        if rate is not None and not dry_run:
            await asyncio.sleep(max(0.0, started + report.matched / rate - time.monotonic()))
        report.matched += len(batch)
        replies = await store.replay(
            [(event_id, "") for event_id in batch],
            reset=reset,
            available=available,
            force=force,
            dry=dry_run,
            who=who,
            why=why,
            durability=durability,
        )
        for event_id, reply in zip(batch, replies, strict=True):
            if reply.outcome is Outcome.OK:
                report.replayed += 0 if dry_run else 1
            else:
                report.refused.append((event_id, reply.outcome, reply.detail))
        if progress is not None:
            progress(report.matched)

    if ids is not None:
        for batch in batches(ids, size):
            await send(batch)
    else:
        async for found in selected_ids(store, await up_to_now(store, selection)):
            for batch in batches(found, size):
                await send(batch)
    return report


async def sweep(
    store: Store,
    *,
    keep: dict[State, tuple[float | None, int | None]],
    dry_run: bool,
    limit: int | None,
) -> Swept:
    """Removes PUBLISHED and DEAD events past their retention: the too old ones, and the oldest ones beyond the count.

    In steps, each a short script: between two of them the server answers others.
    """
    report = Swept(dry_run=dry_run)
    left = limit
    for state, (age, count) in keep.items():
        after, more, removed = START, age is not None or count is not None, 0
        while more and left != 0:
            step = await store.sweep(
                state.value.lower(),
                age=None if age is None else int(age * 1000),
                keep=count,
                limit=SWEEP_COUNT if left is None else min(left, SWEEP_COUNT),
                dry=dry_run,
                after=after,
            )
            after, more = step.after, step.more
            removed += step.removed
            left = None if left is None else left - step.removed
        setattr(report, state.value.lower(), removed)
    return report
