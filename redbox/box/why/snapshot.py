"""What an explanation is made from, read in two script calls and, where needed, from the log and the server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from redbox import keys
from redbox.box.reports import LATELY, Pause, RelayReport, Stats, decode_stats
from redbox.box.why.words import Clock
from redbox.errors import ForeignKey, NotPermitted
from redbox.events import Event, Phase, Record, State, UniqueScope, from_ms, to_ms
from redbox.store.damage import LAST_MS, is_count
from redbox.store.scripts.replies import EventLine, Located, LoggedEntry, PausedEntry, Sighting
from redbox.store.scripts.steps import batches
from redbox.store.server.server_facts import ServerFacts
from redbox.store.store import Sought, Store

#: An event that became DEAD longer ago says nothing about the events of now.
RECENT: Final = timedelta(minutes=15)
MOST_ENTRIES: Final = 3
MOST_KILLS: Final = 100  # actions of operators
NAMED_KEYS: Final = 3  # paused ordering keys
SCAN_COUNT: Final = 1000
MOST_SCANS: Final = 20  # a look, not an audit: less than a second
READ_COUNT: Final = 100  # events in one call of examine


_PENDING: Final = keys.INDEXES_OF["PENDING"]


class Unindexed(msgspec.Struct, frozen=True):
    """Events in no index, which no relay finds. `missing` is how many the totals miss, `found` how many a look at the
    keys of the box found; `complete` says that it saw all keys."""

    missing: int
    found: int
    complete: bool


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A box, and the events in question, at one moment.

    `log` are the newest entries about an event that does not exist. `server` is what the server says about itself,
    for the explanation of a box, `first_paused` are some of its paused ordering keys, and `behind_paused` is how
    many events wait for these. `killed_lately` of the events that died lately were killed by operators.
    `paused_keys` are those of the ordering keys in question that are paused. `unique_holders` are the live events
    that hold the unique keys of the DEAD events in question, by the ids of these. `unindexed` is None if the totals
    of the box add up. `incomplete` are pending events of a box that a look at the ends of its indexes found without
    their hash or body.
    """

    located: Located
    stats: Stats
    pause: Pause | None = None
    paused_keys: dict[str, Pause] = {}
    first_paused: Sequence[tuple[str, Pause]] = ()
    behind_paused: int = 0
    killed_lately: int = 0
    unique_holders: dict[str, str] = {}
    log: Sequence[LoggedEntry] = ()
    server: ServerFacts | None = None
    unindexed: Unindexed | None = None
    incomplete: Sequence[str] = ()

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
    first_paused = await _first_paused(store) if kind == "box" and stats.paused_keys else []
    unknown = kind == "event" and not any(each.record for each in located.sightings)
    return Snapshot(
        located=located,
        stats=stats,
        pause=await _pause(store, stats),
        paused_keys=await _paused_keys(store, located),
        first_paused=first_paused,
        behind_paused=await _behind(store, [key for key, _ in first_paused]),
        killed_lately=await _killed_lately(store, stats) if kind == "box" else 0,
        unique_holders=await _unique_holders(store, located),
        log=await store.log_about(name, MOST_ENTRIES) if unknown else (),
        server=await store.server_facts() if kind == "box" else None,
        unindexed=await _unindexed(store, stats) if kind == "box" else None,
        incomplete=await _incomplete(store) if kind == "box" else (),
    )


def _missing(stats: Stats) -> int:
    """Events that were put, were not removed, and are in no index; not positive if totals were lost. The totals and the
    indexes were read at one moment. An id that a repair has forgotten is missing too."""
    totals = stats.totals
    removed = totals.get("swept", 0) + totals.get("dropped", 0) + totals.get("replaced", 0)
    return totals.get("put", 0) - removed - sum(stats.phases.values()) - stats.lost


async def _unindexed(store: Store, stats: Stats) -> Unindexed | None:
    """Looks for events in no index, if some must be."""
    missing = _missing(stats)
    if missing <= 0:
        return None
    prefix = f"{keys.prefix(store.box)}:e:".encode()
    cursor, ids = 0, set[bytes]()
    try:
        for _ in range(MOST_SCANS):
            cursor, names = await store.scan(cursor, SCAN_COUNT)
            ids.update(name.removeprefix(prefix) for name in names if name.startswith(prefix))
            if not cursor:
                break
        found = 0
        for batch in batches(sorted(ids), READ_COUNT):
            examined = await store.examine(batch)
            found += sum(bool(each.fields) and all(score is None for score in each.scores) for each in examined.events)
    except (ForeignKey, NotPermitted):
        return Unindexed(missing, 0, complete=False)
    return Unindexed(missing, found, complete=not cursor)


async def _incomplete(store: Store) -> list[str]:
    """Looks for pending events that no relay can deliver, and that none has met yet: a claim moves them to `lost`."""
    try:
        ids = {raw for index in _PENDING for raw in await store.index_ends(index, READ_COUNT // (2 * len(_PENDING)))}
        examined = (await store.examine(sorted(ids))).events if ids else []
    except (ForeignKey, NotPermitted):
        return []
    places = [keys.INDEXES.index(index) for index in _PENDING]
    found = [each for each in examined if any(each.scores[place] is not None for place in places)]
    return [each.event_id.decode(errors="replace") for each in found if not (each.fields and each.size)]


async def _pause(store: Store, stats: Stats) -> Pause | None:
    """The pause of the box. That of an earlier version says nothing about itself, but the log does."""
    if stats.pause is None or stats.pause.since is not None:
        return stats.pause
    for entry in await store.log_about("pause", 1, field="action"):
        return Pause(entry.fields.get("who", ""), entry.fields.get("why", ""), from_ms(entry.at), None)
    return stats.pause


async def _paused_keys(store: Store, located: Located) -> dict[str, Pause]:
    """The pauses of the ordering keys of the events in question."""
    ends = {line.key: line.paused_until for each in located.sightings if (line := each.line) is not None}
    paused = {key: end for key, end in ends.items() if end is not None and end > located.now}
    if not paused:
        return {}
    return {each.key: _paused_key(each) for each in await store.pauses_of(paused)}


async def _unique_holders(store: Store, located: Located) -> dict[str, str]:
    """Which live events keep the DEAD events in question from being replayed."""
    holders: dict[str, str] = {}
    for each in located.sightings:
        record = each.record
        if record is None or record.damaged or record.state is not State.DEAD or record.event.unique_key is None:
            continue
        for other in (await store.locate("unique", record.event.unique_key)).sightings:
            if other.event_id != each.event_id and _holds(other.record, record.event):
                holders[each.event_id] = other.event_id
                break
    return holders


def _holds(holder: Record | None, event: Event) -> bool:
    """Whether a live event holds the unique key of another one against it, as in lua/include/find_unique_holder.lua."""
    if holder is None or holder.state not in (State.PENDING, State.CLAIMED):
        return False
    if holder.damaged or holder.event.unique_key != event.unique_key:
        return False
    touched = holder.attempts > 0 and holder.phase is not Phase.AVAILABLE
    return event.unique_scope != UniqueScope.UNTOUCHED or not touched


async def _first_paused(store: Store) -> list[tuple[str, Pause]]:
    """The paused ordering keys whose pauses end first."""
    return [(each.key, _paused_key(each)) for each in await store.paused_keys(NAMED_KEYS)]


async def _killed_lately(store: Store, stats: Stats) -> int:
    """How many of the events that died lately were killed by operators, according to the log."""
    newest = stats.newest_dead
    if newest is None or newest > RECENT or not stats.died_lately:
        return 0
    since = to_ms(stats.at - newest - LATELY)
    entries = await store.log_about("kill", MOST_KILLS, field="action")
    counts = [entry.fields.get("count", "") for entry in entries if entry.at >= since]
    return sum(int(count) for count in counts if is_count(count))


async def _behind(store: Store, ordering_keys: Sequence[str]) -> int:
    """The pending events of these ordering keys."""
    count = 0
    for key in ordering_keys:
        line = await store.locate("line", key)
        head = line.sightings[0] if line.sightings else None
        count += line.members - (head is not None and bool(head.scores.keys() & {"claimed", "dead"}))
    return count


def _paused_key(entry: PausedEntry) -> Pause:
    since = None if entry.since is None else from_ms(entry.since)
    until = None if entry.until is None or entry.until >= LAST_MS else from_ms(entry.until)
    return Pause(entry.who, entry.why, since, until)
