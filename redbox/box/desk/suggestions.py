"""Values that complete what a person types into a filter: those of a bounded sample of events, as the filter takes
them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from redbox import keys
from redbox.arguments import one_of, text
from redbox.box.bulk.selection import LONGEST_FILTER
from redbox.box.reports import decode_stats
from redbox.errors import UsageError
from redbox.store.scripts.steps import batches
from redbox.store.store import Store

SAMPLED: Final = 100  # events at each end of an index
READ_AT_ONCE: Final = 250
#: What is asked for → the fields of an event that hold it. The names of relays are in their heartbeats.
FIELDS: Final = {
    "type": (b"event_type",), "key": (b"ordering_key", b"unique_key"), "error": (b"last_error",), "relay": (),
}  # fmt: skip


async def suggest(store: Store, field: str, prefix: str, limit: int) -> list[str]:
    """Values with this prefix, ignoring case, the most frequent of the sample first. For `error`, the prefix may be
    anywhere in the text, as in the filter; of a long text, a part that holds it is returned. An event type is returned
    as a glob: globs have no escape, so its `*` become `?`, which match least."""
    one_of("field", field, FIELDS)
    begin = text("prefix", prefix).lower()
    if len(begin) > LONGEST_FILTER:
        raise UsageError(f"prefix: must be at most {LONGEST_FILTER} characters")
    if field == "relay":
        names = [relay.name for relay in decode_stats(store.box, await store.stats()).relays]
        return sorted(name for name in names if name.lower().startswith(begin))[:limit]
    counts: Counter[str] = Counter()
    async for value in _values(store, field):
        if field == "error":
            at = value.lower().find(begin)
            if at >= 0:
                counts[_part(value, at, len(begin))] += 1
            continue
        ready = value.replace("*", "?") if field == "type" else value
        if ready.lower().startswith(begin) or value.lower().startswith(begin):
            counts[ready] += 1
    return [value for value, _ in sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:limit]]


def _part(value: str, at: int, length: int) -> str:
    """As much of an error as the filter takes, from its beginning if that holds what was found `at`."""
    first = 0 if at + length <= LONGEST_FILTER else at
    return value[first : first + LONGEST_FILTER].strip()


async def _values(store: Store, field: str) -> AsyncIterator[str]:
    ids = {raw: None for index in keys.INDEXES for raw in await store.index_ends(index, SAMPLED)}
    for batch in batches(ids, READ_AT_ONCE):
        for stored in await store.hashes([raw.decode(errors="replace") for raw in batch], bodies=False):
            for name in FIELDS[field]:
                value = stored.fields.get(name, b"").decode(errors="replace")
                if value:
                    yield value
