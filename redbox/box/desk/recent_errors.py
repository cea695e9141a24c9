"""The errors of the newest dead events: a bounded sample, for a screen that is redrawn often."""

from __future__ import annotations

from collections import Counter

import msgspec

from redbox.fingerprints import fingerprint
from redbox.store.store import Store


class RecentError(msgspec.Struct, frozen=True, kw_only=True):
    """An error that `count` of the newest dead events have, or a similar one. `event_id` is the newest of them, and
    `error` its text."""

    error: str
    count: int
    event_id: str


async def recent_errors(store: Store, sample: int) -> list[RecentError]:
    """The errors of the newest `sample` dead events, the most frequent first. Similar ones are counted together."""
    counts: Counter[str] = Counter()
    newest: dict[str, tuple[str, str]] = {}
    for event in await store.newest("dead", sample):
        group = fingerprint(event.last_error)
        counts[group] += 1
        newest.setdefault(group, (event.last_error, event.event_id))
    return [
        RecentError(error=newest[group][0], count=count, event_id=newest[group][1])
        for group, count in counts.most_common()
    ]
