"""What an explanation is made from, read in two script calls and, where needed, from the log and the server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from redbox.box.reports import RelayReport, Stats, decode_stats
from redbox.box.why.words import Clock
from redbox.events import from_ms
from redbox.store.replies import LinePlace, Located, LoggedEntry, Sighting
from redbox.store.store import Sought, Store

MOST_ENTRIES: Final = 3


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

    def head_of(self, line: LinePlace) -> Sighting | None:
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
        log=await store.log_about(name, MOST_ENTRIES) if unknown else (),
        server=await store.server_info() if kind == "box" else {},
    )


async def _pause(store: Store, stats: Stats) -> PausedBy | None:
    if not stats.paused:
        return None
    known: Any = getattr(stats, "pause", None)
    if known is not None:
        return PausedBy(known.who, known.why, known.since, known.until)
    for entry in await store.log_about("pause", 1):
        return PausedBy(entry.fields.get("who", ""), entry.fields.get("why", ""), from_ms(entry.at))
    return PausedBy()
