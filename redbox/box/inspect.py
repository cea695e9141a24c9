"""Reads the events that a selection names, in pages, as ids, or without their bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final, TypeVar

import msgspec

from redbox.arguments import flag, shown, whole_number
from redbox.box.bulk.selection import Selection, decode_cursor, encode_cursor
from redbox.box.reports import Page
from redbox.errors import UsageError
from redbox.events import Record, State, from_ms, to_ms
from redbox.fingerprints import in_group
from redbox.keys import INDEXES, INDEXES_OF
from redbox.settings import BATCH_COUNT, PAGE_LIMIT, PAGE_LOOK, STEP_BYTES
from redbox.store.scripts.items import SeenClaim
from redbox.store.scripts.replies import START, ClaimPage, EventSummary, Position, RecordPage, SummaryPage
from redbox.store.scripts.steps import batches
from redbox.store.store import Store

SUMMARY_LOOK: Final = 250  # events that one step of a listing without bodies reads: each is returned, too
MOST_NEWEST: Final = 200  # events of a list of the newest
GET_COUNT: Final = 10  # events of one read by id, which is not bounded in bytes
Item = TypeVar("Item")
SomePage = TypeVar("SomePage", ClaimPage, SummaryPage)


class Budget:
    """How many events a search may read; None for all. `looked` is how many it has read, and `spent` whether it ended
    for that reason. With 0 nothing is read: only the arguments of the operation are checked."""

    def __init__(self, most: int | None = None) -> None:
        self._most = None if most is None else whole_number("look", most, 0)
        self.looked = 0
        self.spent = False

    def allows(self) -> bool:
        """Whether the next step may be read."""
        self.spent = self._most is not None and self.looked >= self._most
        return not self.spent

    def step(self, most: int) -> int:
        """How many events the next step may read, at most `most`."""
        return most if self._most is None else min(most, self._most - self.looked)


async def page(
    store: Store,
    selection: Selection,
    limit: int,
    cursor: str | None,
    look: int | None = None,
    *,
    payloads: bool = True,
    size: int | None = None,
) -> Page:
    """Up to `limit` records, and the cursor that continues the listing. Each step is bounded in work and in bytes.

    With `look`, the page ends after about that number of events were read, with fewer records, or none; with `size`,
    after events with about that number of bytes of payloads. Without `payloads`, none of them is kept.
    """
    whole_number("limit", limit)
    for name, most in (("look", look), ("size", size)):
        if most is not None:
            whole_number(name, most)
    flag("payloads", payloads)
    indexes = selection.indexes
    index, after = decode_cursor(cursor, indexes) if cursor else (indexes[0], START)
    records: list[Record] = []
    looked = held = 0
    for current in indexes[indexes.index(index) :]:
        more = True
        while more:
            found = await _step(store, selection, current, min(limit - len(records), PAGE_LIMIT), after)
            more, after = found.more, found.after
            records += found.records if payloads else map(_without_payload, found.records)
            looked += found.looked
            held += _payload_bytes(found.records) if payloads else 0
            full = len(records) >= limit or (size is not None and held >= size)
            if full or (look is not None and looked >= look):
                last = current == indexes[-1] and not more
                return Page(records, None if last else encode_cursor(current, after), looked)
        after = START
    return Page(records, None, looked)


async def listing(store: Store, selection: Selection, limit: int | None) -> AsyncIterator[Record]:
    """All selected events, page by page; at most `limit`."""
    left, cursor = None if limit is None else whole_number("limit", limit, 0), None
    while left is None or left > 0:
        store.ensure_open()
        found = await page(store, selection, PAGE_LIMIT if left is None else min(left, PAGE_LIMIT), cursor)
        for record in found.records:
            yield record
        cursor = found.cursor
        left = None if left is None else left - len(found.records)
        if cursor is None:
            return


async def newest(
    store: Store, state: State | None, limit: int, *, payloads: bool = True, size: int | None = None
) -> list[Record]:
    """The events that entered a state last, the newest first; of all states, those that were put last of these.

    With `size`, there are fewer if their payloads have more than about that number of bytes. Without `payloads`, none
    of them is kept.
    """
    whole_number("limit", limit, 1, MOST_NEWEST)
    if size is not None:
        whole_number("size", size)
    flag("payloads", payloads)
    found: list[Record] = []
    for index in INDEXES if state is None else INDEXES_OF[state]:
        held = 0
        for batch in batches(await store.newest(index, limit), GET_COUNT):
            read = await store.get([each.event_id for each in batch])
            records = [record for record in read if record is not None and state in (None, record.state)]
            found += records if payloads else map(_without_payload, records)
            held += _payload_bytes(records) if payloads else 0
            if size is not None and held >= size:
                break
    once = {record.event_id: record for record in found}  # one that changed its state meanwhile is in two indexes
    ordered = list(once.values())
    if state not in (State.DEAD, State.PUBLISHED):
        ordered.sort(key=lambda record: record.created_at, reverse=True)
    return _up_to(ordered[:limit], size)


def _up_to(records: list[Record], size: int | None) -> list[Record]:
    """The first of these, up to the one with which their payloads have `size` bytes."""
    held = 0
    for at, record in enumerate(records):
        held += _payload_bytes([record])
        if size is not None and held >= size:
            return records[: at + 1]
    return records


def _payload_bytes(records: Iterable[Record]) -> int:
    return sum(len(record.event.payload) for record in records)


def _without_payload(record: Record) -> Record:
    return msgspec.structs.replace(record, event=msgspec.structs.replace(record.event, payload=b""))


async def _step(store: Store, selection: Selection, index: str, limit: int, after: Position) -> RecordPage:
    if selection.group is None:
        return await _matching(store, selection, index, limit, after)
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
                return RecordPage(records, True, summary.position, found.looked)
        if _payload_bytes(records) >= STEP_BYTES and batch[-1] is not members[-1]:
            return RecordPage(records, True, batch[-1].position, found.looked)
    return RecordPage(records, found.more, found.after, found.looked)


async def _matching(store: Store, selection: Selection, index: str, limit: int, after: Position) -> RecordPage:
    """A step in which records are matched here. If there are more than `limit`, it is made again, up to the last of
    them, since only the store knows the position after an event."""
    step = PAGE_LIMIT if selection.needs_records else limit
    while True:
        found = await store.page(index, limit=step, look=PAGE_LOOK, size=STEP_BYTES, after=after, **selection.filters())
        matched = [at for at, record in enumerate(found.records) if selection.matches(record)]
        if len(matched) <= limit:
            return found._replace(records=[found.records[at] for at in matched])
        step = matched[limit - 1] + 1


def _still_in(record: Record, selection: Selection) -> bool:
    """Whether an event is still in the state and the error group that it was found in, and has the rest."""
    same_state = selection.state is None or record.state is selection.state
    same_group = selection.group is None or in_group(record.last_error, selection.group)
    return same_state and same_group and selection.matches(record)


def _checked(budget: Budget | None) -> Budget:
    if budget is None:
        return Budget()
    if not isinstance(budget, Budget):
        raise UsageError(f"budget must be a Budget, not {shown(budget)}")
    return budget


async def records(store: Store, selection: Selection, budget: Budget | None = None) -> AsyncIterator[list[Record]]:
    """The selected events, some at a time: at most about 1 MiB, or 10 events of an error group."""
    budget = _checked(budget)
    if selection.group is not None:
        without = msgspec.structs.replace(selection, phase=None, text=None)
        async for found_in_group in summaries(store, without, budget):
            for batch in batches(found_in_group, GET_COUNT):
                found = await store.get([each.event_id for each in batch])
                yield [record for record in found if record is not None and _still_in(record, selection)]
        return
    for index in selection.indexes:
        after, more = START, True
        while more and budget.allows():
            step = await _step(store, selection, index, PAGE_LIMIT, after)
            more, after = step.more, step.after
            budget.looked += step.looked
            yield step.records


async def _pages(
    read: Callable[..., Awaitable[SomePage]], selection: Selection, limit: int, look: int, budget: Budget
) -> AsyncIterator[SomePage]:
    """The pages of the selected events of all indexes, one after another."""
    for index in selection.indexes:
        after, more = START, True
        while more and budget.allows():
            found = await read(
                index,
                limit=limit,
                look=budget.step(look),
                size=STEP_BYTES,
                after=after,
                claims=selection.claims,
                **selection.filters(),
            )
            more, after = found.more, found.after
            budget.looked += found.looked
            yield found


async def summaries(
    store: Store, selection: Selection, budget: Budget | None = None
) -> AsyncIterator[list[EventSummary]]:
    """The selected events without their bodies, some at a time."""
    budget = _checked(budget)
    if selection.needs_records:
        async for whole in records(store, selection, budget):
            yield [_summary(record) for record in whole]
        return
    group = selection.group
    async for found in _pages(store.page_summaries, selection, SUMMARY_LOOK, SUMMARY_LOOK, budget):
        yield [each for each in found.summaries if group is None or in_group(each.last_error, group)]


def _summary(record: Record) -> EventSummary:
    event_id = record.event_id
    score = str(to_ms(record.entered_at)).encode()
    return EventSummary(
        Position(score, event_id.encode()), event_id, record.event.event_type, record.last_error or "", record.number
    )


async def selected_claims(
    store: Store, selection: Selection, budget: Budget | None = None
) -> AsyncIterator[list[SeenClaim]]:
    """The ids of the selected events with their claim numbers, some at a time."""
    budget = _checked(budget)
    if selection.group is not None or selection.needs_records:
        async for found_in_group in summaries(store, selection, budget):
            yield [SeenClaim(each.event_id, each.number) for each in found_in_group]
        return
    async for found in _pages(store.page_claims, selection, BATCH_COUNT, PAGE_LOOK, budget):
        yield found.seen


async def at_most(limit: int | None, found: AsyncIterator[list[Item]]) -> AsyncIterator[list[Item]]:
    """The first `limit` of what is found, some at a time; all without a limit."""
    left = limit
    async for items in found:
        if left is None:
            yield items
            continue
        yield items[:left]
        left -= len(items[:left])
        if not left:
            return


async def newest_part(store: Store, selection: Selection, index: str, count: int) -> tuple[Selection, bool]:
    """The selection among the newest `count` events of an index, and whether there are older ones that it selects from.
    More events are read if several have the time of the last of them."""
    until, since = (None if each is None else to_ms(each) for each in (selection.until, selection.since))
    scores = await store.scores_from_end(index, count, until)
    cut = len(scores) > 1 and (since is None or scores[1] >= since)
    return msgspec.structs.replace(selection, index=index, **({"since": from_ms(scores[0])} if cut else {})), cut


async def up_to_now(store: Store, selection: Selection) -> Selection:
    """The selection as of now.

    Events that enter a state later are left out, or a bulk operation beside a running relay would never end. Within the
    millisecond of the start, the claim number tells which events were there before.
    """
    now, claims = await store.time_and_claims()
    start = from_ms(now)
    until = start if selection.until is None else min(selection.until, start)
    return msgspec.structs.replace(selection, until=until, claims=claims)
