"""Looks at a whole box and judges it by the rules: every name that stands anywhere in it, each in one atomic look.

A box in use is judged right: an event is looked at with all that belongs to it at one moment, wherever it was found.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from redbox import keys
from redbox.audit import rules as audit
from redbox.audit.rules import Problem, Seen
from redbox.errors import ForeignKey
from redbox.settings import BATCH_BYTES, BATCH_COUNT
from redbox.store.replies import ExaminedKey
from redbox.store.steps import batches
from redbox.store.store import Store

LOOK: Final = 100  # ids in one atomic look: a millisecond or two of the server's time
SCAN: Final = 1000
Name = tuple[str, bytes]  # event, line or unique, and its id or key
Place = tuple[bytes, bytes]  # score and id
START: Final[Place] = (b"", b"")

#: The sorted sets of a box whose members name something, and what.
NAMING: Final = {**dict.fromkeys(audit.PLACES, "event"), "blocked": "line"}
_KINDS: Final = {b"e": "event", b"b": "event", b"h": "event", b"line": "line", b"unique": "unique"}


class Range(msgspec.Struct, frozen=True):
    """A part of a sorted set: what comes after one place, up to and with another; so many members when it was cut."""

    index: str
    after: Place
    last: Place
    count: int


class Examiner:
    """Finds all names of a box, and tells what is wrong with them. Bounded in what it reads at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._prefix = f"{keys.prefix(store.box)}:".encode()

    # --- names ---------------------------------------------------------------------------------------------------

    async def ranges(self, index: str, size: int) -> list[Range]:
        """All that a sorted set holds now, in ranges of so many members."""
        found: list[Range] = []
        after, full = START, True
        while full:
            ranges = await self._store.split_index(index, after=after, size=size, ranges=BATCH_COUNT)
            count, full = ranges.count, ranges.count == size * BATCH_COUNT
            for last in ranges.last:
                found.append(Range(index, after, last, min(size, count)))
                after, count = last, count - size
        return found

    async def slice(self, part: Range) -> tuple[Range | None, list[Name]]:
        """The first names of a range, and what is left of it."""
        found = await self._store.list_ids(part.index, after=part.after, last=part.last, limit=SCAN)
        names = [(NAMING[part.index], raw) for raw in found.ids]
        return (Range(part.index, found.after, part.last, part.count - len(names)) if found.more else None), names

    async def scan(self, cursor: int) -> tuple[int, list[Name]]:
        """One step through the keys of the box: where to go on, 0 at the end, and the names they tell."""
        following, found = await self._store.scan(cursor, SCAN)
        return following, list(self._named(found))

    def _named(self, found: Iterable[bytes]) -> Iterator[Name]:
        for key in found:
            kind, _, name = key.removeprefix(self._prefix).partition(b":")
            if kind in _KINDS and name:
                yield _KINDS[kind], name

    # --- judgement -----------------------------------------------------------------------------------------------

    async def judge(self, names: Iterable[Name]) -> list[Problem]:
        """What is wrong with these."""
        named = list(names)
        problems: list[Problem] = []
        for ids in batches((name for kind, name in named if kind == "event"), LOOK):
            problems += await self._events(ids)
        for chosen in batches((each for each in named if each[0] != "event"), LOOK):
            problems += await self._keys(chosen)
        return problems

    async def _events(self, ids: Sequence[bytes]) -> list[Problem]:
        try:
            events = audit.seen(await self._store.examine(ids))
        except ForeignKey:
            if len(ids) > 1:
                return [problem for each in ids for problem in await self._events([each])]
            return [Problem("foreign", audit.text(ids[0]), None, "one of its keys is not of redbox's kind")]
        problems = [problem for event in events for problem in audit.judge(event)]
        for readable in _by_size([event for event in events if event.fields and event.size]):
            problems += await self._bodies(readable)
        return problems

    async def _bodies(self, events: Sequence[Seen]) -> list[Problem]:
        """Bodies never change, so they need no atomic look; but an id may have been dropped and put anew since."""
        bodies = await self._store.bodies([event.event_id for event in events])
        read = [(event, body) for event, body in zip(events, bodies, strict=True) if body is not None]
        wrong = {event.event_id: (event, found) for event, body in read if (found := audit.judge_body(event, body))}
        if not wrong:
            return []
        still = {
            again.event_id: again.fields.get("created_at") for again in audit.seen(await self._store.examine(wrong))
        }
        return [
            problem
            for event_id, (event, found) in wrong.items()
            if still[event_id] == event.fields.get("created_at")
            for problem in found
        ]

    async def _keys(self, names: Sequence[Name]) -> list[Problem]:
        problems: list[Problem] = []
        left = [(kind, name, *START) for kind, name in names]
        while left:
            try:
                replies = await self._store.examine_keys(limit=BATCH_COUNT, names=left)
            except ForeignKey:
                if len(names) > 1:
                    return [problem for each in names for problem in await self._keys([each])]
                kind, name = names[0]
                told = f"the key of this {'line' if kind == 'line' else 'unique_key'} is not of redbox's kind"
                return [Problem("foreign", None, audit.text(name), told)]
            following = []
            for (kind, raw, score, _), reply in zip(left, replies, strict=True):
                problems += _judge_look(kind, audit.text(raw), reply, first=not score)
                if reply.more:
                    following.append((kind, raw, *reply.after))
            left = following
        return problems


def _judge_look(kind: str, name: str, look: ExaminedKey, *, first: bool) -> list[Problem]:
    head, state = (None if raw is None else audit.text(raw) for raw in (look.head, look.state))
    found = audit.members(look.members)
    problems = [problem for member in found for problem in audit.judge_member(kind, name, head, member)]
    untouched = look.more and not found  # the step was full before it came to this key
    if kind == "line" and first and not untouched:
        problems += audit.judge_head(name, head, state, look.blocked_at is not None)
    return problems


def _by_size(events: Iterable[Seen]) -> Iterator[list[Seen]]:
    """Events in groups whose bodies may be read at once."""
    group: list[Seen] = []
    size = 0
    for event in events:
        if group and size + event.size > BATCH_BYTES:
            yield group
            group, size = [], 0
        group.append(event)
        size += event.size
    if group:
        yield group


async def all_problems(store: Store) -> AsyncIterator[Problem]:
    """Everything that is wrong with a box, from one process. It remembers every name of the box meanwhile: a large one
    is for `redbox pipeline audit`."""
    examiner, done = Examiner(store), set[Name]()

    async def judge(names: list[Name]) -> list[Problem]:
        fresh = [name for name in dict.fromkeys(names) if name not in done]
        done.update(fresh)
        return await examiner.judge(fresh)

    for index in NAMING:
        for part in await examiner.ranges(index, BATCH_COUNT):
            left: Range | None = part
            while left is not None:
                left, names = await examiner.slice(left)
                for problem in await judge(names):
                    yield problem
    cursor, first = 0, True
    while cursor or first:
        cursor, names = await examiner.scan(cursor)
        first = False
        for problem in await judge(names):
            yield problem
