"""Walks over a whole box and checks it against the rules.

It finds every id, line and unique key of the box, in its indexes and in its key names. It reads each with all that
belongs to it at one moment, so that a box in use raises no false alarm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from redbox import keys
from redbox.audit.rules import Problem, check_body, check_event, check_line, check_member
from redbox.audit.snapshots import SORTED_SETS, EventSnapshot, KeyPage, as_text, raw_if_escaped, read_events, read_keys
from redbox.errors import ForeignKey
from redbox.settings import BATCH_BYTES, BATCH_COUNT
from redbox.store.scripts.replies import START, Examined, ExaminedEvent, Position
from redbox.store.scripts.steps import batches
from redbox.store.server.foreign import Foreign
from redbox.store.store import Store

READ_COUNT: Final = 100  # ids in one atomic read: a millisecond or two of the server's time
READ_BYTES: Final = 256 * 1024  # of bodies in the same read
SCAN_COUNT: Final = 1000

Kind = Literal["event", "line", "unique"]


class Name(NamedTuple):
    """An id, an ordering_key or a unique_key that occurs in the box."""

    kind: Kind
    raw: bytes


#: The sorted sets whose members are names, and of which kind.
NAME_KINDS: Final[dict[str, Kind]] = {**dict.fromkeys(SORTED_SETS, "event"), "blocked": "line", "paused": "line"}
#: The kinds of names in the key names of a box.
_KEY_KINDS: Final[dict[bytes, Kind]] = {
    b"e": "event",
    b"b": "event",
    b"h": "event",
    b"line": "line",
    b"unique": "unique",
}
#: The keys that a box has once with which names of each kind are read.
_READ_WITH: Final[dict[Kind, frozenset[str]]] = {
    "event": frozenset((*SORTED_SETS, "counters", "meta")),
    "line": frozenset(("blocked", "paused", "meta")),
    "unique": frozenset(("paused", "meta")),
}
_PLURALS: Final[dict[Kind, str]] = {"event": "events", "line": "lines", "unique": "unique keys"}


class IndexRange(msgspec.Struct, frozen=True):
    """The members of a sorted set after one position, up to and including another. `count` is how many there were when
    the set was split."""

    index: str
    after: Position
    last: Position
    count: int


class RangeStep(NamedTuple):
    """The first names of a range, and the rest of the range."""

    names: list[Name]
    rest: IndexRange | None


class ScanStep(NamedTuple):
    """Some names of a scan, and the cursor of the next step; 0 at the end."""

    names: list[Name]
    cursor: int


class SortedStep(NamedTuple):
    """Some names of a scan by what they need: events, lines and unique keys, and the ids of bodies and histories."""

    events: list[Name]
    keys: list[Name]
    leftovers: list[bytes]
    cursor: int


class ReadBatch(NamedTuple):
    """Names, and what was read about them; `examined` is None for keys, and if one of them is foreign. `bodies` has the
    bodies that were too large to be read with their events."""

    names: Sequence[Name]
    examined: Examined | None
    bodies: dict[bytes, bytes | None]


class Auditor:
    """Finds all names of a box, and checks them. Each call reads a bounded amount.

    `bodies=False` does not read the bodies of events.
    """

    def __init__(self, store: Store, *, bodies: bool = True) -> None:
        self._store = store
        self.without_body: set[str] = set()  # DEAD events that a repair has marked
        self._foreign: set[str] = set()  # names of the keys that a box has once, as far as `check_box` found them
        self._bodies = bodies
        self._prefix = f"{keys.prefix(store.box)}:".encode()

    # --- names ---------------------------------------------------------------------------------------------------

    async def split(self, index: str, size: int) -> list[IndexRange]:
        """Splits a sorted set into ranges of `size` members; into none if `check_box` found that it cannot be read."""
        if not self._foreign.isdisjoint(("meta", "counters")):
            return []
        ranges: list[IndexRange] = []
        after, full = START, True
        while full:
            found = await self._store.split_index(index, after=after, size=size, ranges=BATCH_COUNT)
            count, full = found.count, found.count == size * BATCH_COUNT
            for last in found.last:
                ranges.append(IndexRange(index, after, last, min(size, count)))
                after, count = last, count - size
        return ranges

    async def read(self, part: IndexRange) -> RangeStep:
        """Reads the first names of a range."""
        found = await self._store.list_ids(part.index, after=part.after, last=part.last, limit=SCAN_COUNT)
        names = [Name(NAME_KINDS[part.index], raw) for raw in found.ids]
        after, left = found.after, part.count - len(names)
        rest = IndexRange(part.index, after, part.last, left) if found.more else None
        return RangeStep(names, rest)

    async def scan(self, cursor: int) -> ScanStep:
        """Makes one step through the keys of the box; `cursor` is 0 for the first."""
        following, found = await self._store.scan(cursor, SCAN_COUNT)
        return ScanStep(list(self._names_in(found)), following)

    async def scan_sorted(self, cursor: int) -> SortedStep:
        """As `scan`, with the names sorted. An event is named by its hash alone: its body and history belong to it."""
        following, found = await self._store.scan(cursor, SCAN_COUNT)
        step = SortedStep([], [], [], following)
        events, leftovers, start = step.events.append, step.leftovers.append, len(self._prefix)
        for key in found:
            kind, named, raw = key[start:].partition(b":")
            if kind == b"e":
                events(Name("event", raw))
            elif kind in (b"b", b"h"):
                leftovers(raw)
            elif kind in _KEY_KINDS and named:
                step.keys.append(Name(_KEY_KINDS[kind], raw))
        return step

    async def without_event(self, ids: Sequence[bytes]) -> list[Name]:
        """Those of the ids that have no event."""
        return [Name("event", raw) for raw in await self._store.without_event(ids)]

    async def keys_of(self, events: Sequence[Name]) -> list[Name]:
        """The lines and unique keys of these events."""
        found: list[Name] = []
        for ordering, unique in await self._store.event_keys([event.raw for event in events]):
            found += [Name("line", ordering)] if ordering is not None else []
            found += [Name("unique", unique)] if unique is not None else []
        return found

    def _names_in(self, found: Iterable[bytes]) -> Iterator[Name]:
        for key in found:
            kind, named, raw = key.removeprefix(self._prefix).partition(b":")
            if kind in _KEY_KINDS and named:
                yield Name(_KEY_KINDS[kind], raw)

    # --- checks --------------------------------------------------------------------------------------------------

    async def check_box(self) -> list[Problem]:
        """Checks the keys that a box has once. A foreign one among them may hide the rules of events or lines."""
        found = {each.key.removeprefix(self._prefix).decode(): each for each in await self._store.foreign_keys()}
        self._foreign.update(found)
        return [
            Problem("foreign", None, None, f"{each}{_hidden_by(name)}; rename it, then repair the box")
            for name, each in sorted(found.items())
        ]

    def name_kinds(self) -> dict[str, Kind]:
        """NAME_KINDS, without a key that has a foreign type."""
        return {index: kind for index, kind in NAME_KINDS.items() if index not in self._foreign}

    def checkable(self, names: Iterable[Name]) -> list[Name]:
        """Those of the names that can be read in spite of the foreign keys that `check_box` found."""
        if not self._foreign:
            return list(names)
        return [name for name in names if self._foreign.isdisjoint(_READ_WITH[name.kind])]

    async def check(self, names: Iterable[Name]) -> list[Problem]:
        """Checks these names."""
        given = list(names)
        problems: list[Problem] = []
        for ids in batches((name.raw for name in given if name.kind == "event"), READ_COUNT):
            problems += await self._check_events(ids)
        for chosen in batches((name for name in given if name.kind != "event"), READ_COUNT):
            problems += await self._check_keys(chosen)
        return problems

    async def read_batch(self, names: Sequence[Name]) -> ReadBatch:
        """Reads what `check_batch` needs, and computes nothing: the next step can be sent before this one is checked.
        Names of keys are read by the check itself."""
        ids = [raw for kind, raw in names if kind == "event"]
        if not ids:
            return ReadBatch(names, None, {})
        try:
            examined = await self._store.examine(ids, bodies=READ_BYTES if self._bodies else 0)
        except ForeignKey:
            return ReadBatch(names, None, {})
        bodies: dict[bytes, bytes | None] = {}
        unread = [event for event in examined.events if event.body is None and event.size and event.fields]
        for group in _by_size(unread if self._bodies else ()):
            found = await self._store.bodies([event.event_id for event in group])
            bodies.update(zip((event.event_id for event in group), found, strict=True))
        return ReadBatch(names, examined, bodies)

    async def check_batch(self, batch: ReadBatch) -> list[Problem]:
        """Checks names that were read."""
        if batch.examined is None:
            return await self.check(batch.names)
        events = read_events(batch.examined)
        problems = [problem for event in events for problem in check_event(event)]
        self.without_body.update(event.event_id for event in events if event.is_dead_without_body)
        bodies = [event.body or batch.bodies.get(event.event_id) for event in batch.examined.events]
        return problems + await self._check_bodies(events, bodies)

    async def _check_events(self, ids: Sequence[bytes]) -> list[Problem]:
        batch = await self.read_batch([Name("event", each) for each in ids])
        if batch.examined is not None:
            return await self.check_batch(batch)
        if len(ids) > 1:
            return [problem for each in ids for problem in await self._check_events([each])]
        return [_foreign_event(ids[0], each) for each in await self._store.foreign_keys_of(ids[0])]

    async def _check_bodies(self, events: Sequence[EventSnapshot], bodies: Sequence[bytes | None]) -> list[Problem]:
        """Checks bodies. They never change, so a large one is not read with its event; but the event may have been
        dropped and put again since, so a problem counts only if it was not."""
        problems = {
            _raw_id(event): found
            for event, body in zip(events, bodies, strict=True)
            if body is not None and event.fields and (found := check_body(event, body))
        }
        if not problems:
            return []
        created = {_raw_id(event): event.fields.get("created_at") for event in events}
        return [
            problem
            for event in read_events(await self._store.examine(problems))
            if event.fields.get("created_at") == created[_raw_id(event)]
            for problem in problems[_raw_id(event)]
        ]

    async def _check_keys(self, names: Sequence[Name]) -> list[Problem]:
        problems: list[Problem] = []
        left = [(name, START) for name in names]
        while left:
            try:
                reply = await self._store.examine_keys(
                    limit=BATCH_COUNT, names=[(*name, *after) for name, after in left]
                )
            except ForeignKey:
                if len(names) > 1:
                    return [problem for each in names for problem in await self._check_keys([each])]
                # None if an event in it has the foreign type: that is a problem of the event.
                found = await self._store.foreign_sets(*names[0])
                return [Problem("foreign", None, as_text(names[0].raw), str(each)) for each in found]
            following = []
            for (name, after), page in zip(left, read_keys(reply), strict=True):
                problems += _check_page(name, page, first=after == START)
                if page.more:
                    following.append((name, page.after))
            left = following
        return problems


def _raw_id(event: EventSnapshot) -> bytes:
    return event.event_id.encode() if event.raw_id is None else event.raw_id


def _foreign_event(raw: bytes, foreign: Foreign) -> Problem:
    return Problem("foreign", as_text(raw), None, str(foreign), raw_if_escaped(raw))


def _hidden_by(name: str) -> str:
    """What cannot be checked while this key of the box has a foreign type, in words."""
    hidden = [_PLURALS[kind] for kind, read in _READ_WITH.items() if name in read]
    return f"; {' and '.join(hidden)} cannot be checked" if hidden else ""


def _check_page(name: Name, page: KeyPage, *, first: bool) -> list[Problem]:
    key = as_text(name.raw)
    problems = [problem for member in page.members for problem in check_member(name.kind, key, page.head, member)]
    if name.kind == "line" and first and page.was_read:
        problems += check_line(key, page)
    return problems


def _by_size(events: Iterable[ExaminedEvent]) -> Iterator[list[ExaminedEvent]]:
    """Groups events so that the bodies of a group can be read at once."""
    group: list[ExaminedEvent] = []
    size = 0
    for event in events:
        if group and size + event.size > BATCH_BYTES:
            yield group
            group, size = [], 0
        group.append(event)
        size += event.size
    if group:
        yield group
