"""Reads the events that a selection names, in pages or as ids."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from redbox.arguments import whole_number
from redbox.box.reports import Page
from redbox.box.selection import Selection, decode_cursor, encode_cursor
from redbox.events import Record, from_ms
from redbox.settings import BATCH_COUNT, PAGE_LIMIT, PAGE_LOOK, STEP_BYTES
from redbox.store.replies import START
from redbox.store.store import Store


async def page(store: Store, selection: Selection, limit: int, cursor: str | None) -> Page:
    """Up to `limit` records, and the cursor that continues the listing. Each step is bounded in work and in bytes."""
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
    """The ids of the selected events, some at a time."""
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
    """The selection as of now.

    Events that enter a state later are left out, or a bulk operation beside a running relay would never end. Within the
    millisecond of the start, the claim number tells which events were there before.
    """
    now, claims = await store.time_and_claims()
    start = from_ms(now)
    until = start if selection.until is None else min(selection.until, start)
    return msgspec.structs.replace(selection, until=until, claims=claims)
