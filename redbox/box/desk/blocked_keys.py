"""Ordering keys whose lines do not move, since the event at the head is DEAD."""

from __future__ import annotations

from datetime import datetime

import msgspec

from redbox.events import from_ms
from redbox.store.scripts.steps import batches
from redbox.store.store import Store


class BlockedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A blocked ordering key: since when, the id of the dead event at its head, how many events wait behind it, and
    why, which is the last error of the head."""

    key: str
    since: datetime
    head: str
    waiting: int
    why: str


async def blocked_keys(store: Store, limit: int) -> list[BlockedKey]:
    """The blocked keys, the longest blocked first."""
    found: list[BlockedKey] = []
    for lines in batches(await store.blocked_lines(limit)):
        heads = await store.hashes([line.head for line in lines], bodies=False)
        found += [
            BlockedKey(
                key=line.key,
                since=from_ms(line.since),
                head=line.head,
                waiting=max(0, line.length - 1),
                why=head.fields.get(b"last_error", b"").decode(errors="replace"),
            )
            for line, head in zip(lines, heads, strict=True)
        ]
    return found
