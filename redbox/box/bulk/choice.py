"""What a replay and a drop share: which events they take, and the arguments of both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final

from redbox.arguments import event_ids, flag
from redbox.box.bulk.selection import Selection, select
from redbox.box.inspect import Budget, selected_claims, up_to_now
from redbox.errors import UsageError
from redbox.events import Record, State
from redbox.settings import BATCH_COUNT
from redbox.store.scripts.items import SeenClaim
from redbox.store.scripts.steps import batches
from redbox.store.store import Store

Progress = Callable[[int], None]
_DONE: Final = {"replay": "replayed", "drop": "dropped"}


def chosen(
    ids: Sequence[str | Record] | None, filters: dict[str, Any], verb: str = "replay"
) -> list[SeenClaim] | Selection:
    """The events to replay or to drop: by ids or records, or by a filter, by default of DEAD events."""
    filtered = any(value is not None for value in filters.values())
    if (ids is None) == (not filtered):
        raise UsageError(f"say what to {verb}: ids, or a filter; all dead events: state='DEAD'")
    if ids is not None:
        return _seen(ids)
    selection = select(**{**filters, "state": State.DEAD if filters.get("state") is None else filters["state"]})
    if selection.state not in (State.PUBLISHED, State.DEAD):
        raise UsageError(f"only PUBLISHED and DEAD events can be {_DONE[verb]}")
    return selection


def _seen(events: Any) -> list[SeenClaim]:
    """Events by id, whatever their claim numbers, or as they were read."""
    if isinstance(events, str | bytes) or not isinstance(events, Iterable):
        events = event_ids(events)  # which refuses it
    given = list(events)
    numbers = {each.event_id: each.number for each in given if isinstance(each, Record)}
    ids = event_ids([each.event_id if isinstance(each, Record) else each for each in given])
    return [SeenClaim(event_id, numbers.get(event_id, "")) for event_id in ids]


async def claims_of(
    store: Store, events: list[SeenClaim] | Selection, budget: Budget | None = None
) -> AsyncIterator[list[SeenClaim]]:
    """The events, some at a time. Those of a filter have the claim numbers that they had when they were found, and are
    those of the start: later ones are left out. The `budget` is for those of a filter."""
    if isinstance(events, Selection):
        async for found in selected_claims(store, await up_to_now(store, events), budget):
            yield found
    else:
        for batch in batches(events, BATCH_COUNT):
            yield batch


def check_bulk(dry_run: Any, progress: Any) -> None:
    """Checks the arguments of every bulk operation."""
    flag("dry_run", dry_run)
    if progress is not None and not callable(progress):
        raise UsageError("progress must be a function of the number of events done")
