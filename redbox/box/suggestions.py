"""Values that complete what a person types into a filter: those of a bounded sample of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from redbox import keys
from redbox.arguments import one_of, text
from redbox.box.reports import decode_stats
from redbox.box.selection import LONGEST_FILTER
from redbox.errors import UsageError
from redbox.store.steps import batches
from redbox.store.store import Store

SAMPLED: Final = 100  # events at each end of an index
READ_AT_ONCE: Final = 250
#: What is asked for → the fields of an event that hold it. The names of relays are in their heartbeats.
FIELDS: Final = {
    "type": (b"event_type",), "key": (b"ordering_key", b"unique_key"), "error": (b"last_error",), "relay": (),
}  # fmt: skip


async def suggest(store: Store, field: str, prefix: str, limit: int) -> list[str]:
    """Values with this prefix, ignoring case, the most frequent of the sample first. For `error`, the prefix may be
    anywhere in the text, as in the filter."""
    one_of("field", field, FIELDS)
    begin = text("prefix", prefix).lower()
    if len(begin) > LONGEST_FILTER:
        raise UsageError(f"prefix: must be at most {LONGEST_FILTER} characters")
    if field == "relay":
        names = [relay.name for relay in decode_stats(store.box, await store.stats()).relays]
        return sorted(name for name in names if name.lower().startswith(begin))[:limit]
    counts: Counter[str] = Counter()
    async for value in _values(store, field):
        lower = value.lower()
        if begin in lower if field == "error" else lower.startswith(begin):
            counts[value] += 1
    return [value for value, _ in sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:limit]]


async def _values(store: Store, field: str) -> AsyncIterator[str]:
    ids = {raw: None for index in keys.INDEXES for raw in await store.index_ends(index, SAMPLED)}
    for batch in batches(ids, READ_AT_ONCE):
        for stored in await store.hashes([raw.decode(errors="replace") for raw in batch], bodies=False):
            for name in FIELDS[field]:
                value = stored.fields.get(name, b"").decode(errors="replace")
                if value:
                    yield value
