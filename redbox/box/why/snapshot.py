"""What an explanation is made from, read in two script calls and, where needed, from the log and the server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from redbox.box.reports import RelayReport, Stats, decode_stats
from redbox.box.why.words import Clock
from redbox.events import from_ms
from redbox.store.damage import LAST_MS
from redbox.store.replies import EventLine, Located, LoggedEntry, Sighting
from redbox.store.store import Sought, Store

MOST_ENTRIES: Final = 3
MOST_PAUSED: Final = 1000


class PausedBy(msgspec.Struct, frozen=True):
    """Who paused a box or an ordering key, and why; `until` is None if it stays paused until it is resumed."""

    who: str = ""
    why: str = ""
    since: datetime | None = None
    until: datetime | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A box, and the events in question, at one moment.

    `log` are the newest entries about an event that does not exist. `server` is what INFO says about the server, for
    the explanation of a box. `paused_keys` are those of the ordering keys in question that are paused.
    """

    located: Located
    stats: Stats
    pause: PausedBy | None = None
    paused_keys: dict[str, PausedBy] = {}
    log: Sequence[LoggedEntry] = ()
    server: dict[str, str] = {}

    @property
    def clock(self) -> Clock:
        return Clock(from_ms(self.located.now))

    @property
    def box(self) -> str:
        return self.stats.box

    @property
    def alive(self) -> list[RelayReport]:
        """The relays with a recent heartbeat."""
        return [relay for relay in self.stats.relays if relay.alive]

    def relay(self, name: str | None) -> RelayReport | None:
        return next((relay for relay in self.stats.relays if relay.name == name), None)

    def sighting(self, event_id: str | None) -> Sighting | None:
        return next((each for each in self.located.sightings if each.event_id == event_id), None)

    def head_of(self, line: EventLine) -> Sighting | None:
        return self.sighting(line.head)


async def read_snapshot(store: Store, kind: Sought, name: str = "") -> Snapshot:
    """Reads what an explanation needs."""
    stats = decode_stats(store.box, await store.stats())
    located = await store.locate(kind, name)
    unknown = kind == "event" and not any(each.record for each in located.sightings)
    return Snapshot(
        located=located,
        stats=stats,
        pause=await _pause(store, stats),
        paused_keys=await _paused_keys(store, located),
        log=await store.log_about(name, MOST_ENTRIES) if unknown else (),
        server=await store.server_info() if kind == "box" else {},
    )


async def _pause(store: Store, stats: Stats) -> PausedBy | None:
    if not stats.paused:
        return None
    known: Any = getattr(stats, "pause", None)
    if known is not None:
        return PausedBy(known.who, known.why, known.since, known.until)
    for entry in await store.log_about("pause", 1, field="action"):
        return PausedBy(entry.fields.get("who", ""), entry.fields.get("why", ""), from_ms(entry.at))
    return PausedBy()


async def _paused_keys(store: Store, located: Located) -> dict[str, PausedBy]:
    """The pauses of the ordering keys of the events in question."""
    ends = {line.key: line.paused_until for each in located.sightings if (line := each.line) is not None}
    paused = {key: end for key, end in ends.items() if end is not None and end > located.now}
    if not paused:
        return {}
    read: Any = getattr(store, "paused_keys", None)
    known = {each.key: each for each in await read(MOST_PAUSED)} if read is not None else {}
    return {key: _paused_key(known.get(key), end) for key, end in paused.items()}


def _paused_key(known: Any, end: int) -> PausedBy:
    until = None if end >= LAST_MS else from_ms(end)
    if known is None:
        return PausedBy(until=until)
    return PausedBy(known.who, known.why, None if known.since is None else from_ms(known.since), until)
