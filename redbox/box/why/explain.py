"""Reads a snapshot, then explains it."""

from __future__ import annotations

from redbox.box.why.box import explain_box
from redbox.box.why.event import explain_event
from redbox.box.why.explanation import Explanation
from redbox.box.why.key import explain_line, explain_unique
from redbox.box.why.snapshot import read_snapshot
from redbox.store.store import Store


async def explain(
    store: Store, event_id: str | None = None, *, key: str | None = None, unique_key: str | None = None
) -> Explanation:
    """Explains an event, the line of an ordering key, a unique key or, without any of them, the box."""
    if event_id is not None:
        return explain_event(await read_snapshot(store, "event", event_id), event_id)
    if key is not None:
        return explain_line(await read_snapshot(store, "line", key), key)
    if unique_key is not None:
        return explain_unique(await read_snapshot(store, "unique", unique_key), unique_key)
    return explain_box(await read_snapshot(store, "box"))
