"""Reads the events that a selection names, in pages, as ids, or without their bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from redbox.arguments import whole_number
from redbox.box.reports import Page
from redbox.box.selection import Selection, decode_cursor, encode_cursor
from redbox.events import Record, from_ms
from redbox.fingerprints import in_group
from redbox.settings import BATCH_COUNT, PAGE_LIMIT, PAGE_LOOK, STEP_BYTES
from redbox.store.items import SeenClaim
from redbox.store.replies import START, ClaimPage, EventSummary, Position, RecordPage, SummaryPage
from redbox.store.steps import batches
from redbox.store.store import Store

SUMMARY_LOOK: Final = 250  # events that one step of a listing without bodies reads: each is returned, too
GET_COUNT: Final = 10  # events of one read by id, which is not bounded in bytes
SomePage = TypeVar("SomePage", ClaimPage, SummaryPage)


async def page(store: Store, selection: Selection, limit: int, cursor: str | None) -> Page:
    """Up to `limit` records, and the cursor that continues the listing. Each step is bounded in work and in bytes."""
    whole_number("limit", limit)
    indexes = selection.indexes
    index, after = decode_cursor(cursor, indexes) if cursor else (indexes[0], START)
    records: list[Record] = []
    for current in indexes[indexes.index(index) :]:
        more = True
        while more:
            found = await _step(store, selection, current, min(limit - len(records), PAGE_LIMIT), after)
            more, after = found.more, found.after
            records += found.records
            if len(records) >= limit:
                last = current == indexes[-1] and not more
                return Page(records, None if last else encode_cursor(current, after))
        after = START
    return Page(records, None)


async def _step(store: Store, selection: Selection, index: str, limit: int, after: Position) -> RecordPage:
    if selection.group is None:
        return await store.page(index, limit=limit, look=PAGE_LOOK, size=STEP_BYTES, after=after, **selection.filters())
    found = await store.page_summaries(
        index, limit=SUMMARY_LOOK, look=SUMMARY_LOOK, size=STEP_BYTES, after=after, **selection.filters()
    )
    members = [each for each in found.summaries if in_group(each.last_error, selection.group)]
    records: list[Record] = []
    for batch in batches(members, GET_COUNT):
        for summary, record in zip(batch, await store.get([each.event_id for each in batch]), strict=True):
            if record is not None and _still_in(record, selection):
                records.append(record)
            if len(records) == limit:
                return RecordPage(records, True, summary.position)
    return RecordPage(records, found.more, found.after)


def _still_in(record: Record, selection: Selection) -> bool:
    """Whether an event is still in the state and the error group that it was found in."""
    same_state = selection.state is None or record.state is selection.state
    return same_state and (selection.group is None or in_group(record.last_error, selection.group))


async def records(store: Store, selection: Selection) -> AsyncIterator[list[Record]]:
    """The selected events, some at a time: at most about 1 MiB, or 10 events of an error group."""
    if selection.group is not None:
        async for found_in_group in summaries(store, selection):
            for batch in batches(found_in_group, GET_COUNT):
                found = await store.get([each.event_id for each in batch])
                yield [record for record in found if record is not None and _still_in(record, selection)]
        return
    for index in selection.indexes:
        after, more = START, True
        while more:
            step = await _step(store, selection, index, PAGE_LIMIT, after)
            more, after = step.more, step.after
            yield step.records


async def _pages(
    read: Callable[..., Awaitable[SomePage]], selection: Selection, limit: int, look: int
) -> AsyncIterator[SomePage]:
    """The pages of the selected events of all indexes, one after another."""
    for index in selection.indexes:
        after, more = START, True
        while more:
            found = await read(
                index,
                limit=limit,
                look=look,
                size=STEP_BYTES,
                after=after,
                claims=selection.claims,
                **selection.filters(),
            )
            more, after = found.more, found.after
            yield found


async def summaries(store: Store, selection: Selection) -> AsyncIterator[list[EventSummary]]:
    """The selected events without their bodies, some at a time."""
    group = selection.group
    async for found in _pages(store.page_summaries, selection, SUMMARY_LOOK, SUMMARY_LOOK):
        yield [each for each in found.summaries if group is None or in_group(each.last_error, group)]


async def selected_claims(store: Store, selection: Selection) -> AsyncIterator[list[SeenClaim]]:
    """The ids of the selected events with their claim numbers, some at a time."""
    if selection.group is not None:
        async for found_in_group in summaries(store, selection):
            yield [SeenClaim(each.event_id, each.number) for each in found_in_group]
        return
    async for found in _pages(store.page_claims, selection, BATCH_COUNT, PAGE_LOOK):
        yield found.seen


async def up_to_now(store: Store, selection: Selection) -> Selection:
    """The selection as of now.

    Events that enter a state later are left out, or a bulk operation beside a running relay would never end. Within the
    millisecond of the start, the claim number tells which events were there before.
    """
    now, claims = await store.time_and_claims()
    start = from_ms(now)
    until = start if selection.until is None else min(selection.until, start)
    return msgspec.structs.replace(selection, until=until, claims=claims)
