"""Mends a box: every problem of an audit is given to a script that reads it again, decides and writes in one step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Final

import msgspec

from redbox.audit.box_audit import Progress, audit_box, store_of
from redbox.audit.rules import Problem
from redbox.audit.snapshots import as_text
from redbox.audit.walk import Auditor, Name
from redbox.box import Box
from redbox.box.operate import operator_name
from redbox.box.operations_log import IDS, action_token, part
from redbox.errors import ForeignKey, StoreError
from redbox.events import UniqueScope, check_key, reason_text
from redbox.store.codec import decode_body
from redbox.store.scripts.items import KnownBody
from redbox.store.scripts.steps import batches
from redbox.store.store import Store

#: A mended event may show a problem that another one had hidden, so the mended names are checked again.
PASSES: Final = 5
_ESCAPED: Final = re.compile(rb"\\x([0-9a-f]{2})")


class Mended(msgspec.Struct, frozen=True):
    """What was done, or would be done, for one problem. `key` is the ordering_key or unique_key of the problem."""

    event_id: str | None
    key: str | None
    rule: str
    actions: tuple[str, ...]


class Repaired(msgspec.Struct):
    """The result of a repair: what was done to each id or key, and the problems that are left.

    `events` is how many events were audited. Problems are left if only a person can mend them (`damaged`, `newer`,
    `foreign`), or while a relay holds the event.
    """

    dry_run: bool = False
    events: int = 0
    mended: list[Mended] = []
    left: list[Problem] = []

    @property
    def by_rule(self) -> Counter[str]:
        """How many problems of each rule were mended."""
        return Counter(each.rule for each in self.mended)

    @property
    def ids(self) -> list[str]:
        """The ids of the events that were mended, each once."""
        return list(dict.fromkeys(each.event_id for each in self.mended if each.event_id is not None))


async def repair(
    box: Box, *, dry_run: bool = False, who: str | None = None, why: str = "", progress: Progress | None = None
) -> Repaired:
    """Audits the whole box, and mends what breaks a rule. May run while relays do.

    No event is lost: in doubt an event becomes PENDING, and may be delivered twice. An event that lost its body becomes
    DEAD. Recorded in the box's log as one entry, by default under the name of the user of this process. A repair that
    is interrupted leaves an entry too, once it has changed something.
    """
    store, who, why = store_of(box), who or operator_name(), reason_text("why", why)
    check_key("who", who)
    audit = audit_box(box, progress=progress)
    repairing = _Repair(store, dry_run, _LogEntry(store, who, why))
    await repairing.mend(audit)
    repairing.done.events = audit.events
    for _ in range(0 if dry_run else PASSES):
        names = repairing.to_check_again()
        if not names:
            break
        await repairing.mend(_checked(store, names))
    if not dry_run:
        await repairing.check_left()
    await repairing.entry.end(repairing.done)
    return repairing.done


async def _checked(store: Store, names: Iterable[Name]) -> AsyncIterator[Problem]:
    for batch in batches(names):
        for problem in await Auditor(store).check(batch):
            yield problem


class _LogEntry:
    """The entry of a repair in the log. It is begun before the first change, so that it is there even if the process is
    killed."""

    def __init__(self, store: Store, who: str, why: str) -> None:
        self._store = store
        self._who = who
        self._why = why
        self._token = ""

    @property
    def begun(self) -> bool:
        return bool(self._token)

    async def begin(self) -> None:
        token = await action_token(self._store)
        await self._store.write_log("repair", who=self._who, why=self._why, count=0, token=part(token, 0))
        self._token = token

    async def end(self, done: Repaired) -> None:
        if self.begun and done.mended:
            detail = ", ".join(f"{rule} {count}" for rule, count in done.by_rule.most_common())
            await self._store.write_log(
                "repair", who=self._who, why=self._why, count=len(done.ids), ids=done.ids[:IDS], detail=detail,
                token=part(self._token, 1),
            )  # fmt: skip


class _Repair:
    """One repair, of several passes."""

    def __init__(self, store: Store, dry: bool, entry: _LogEntry) -> None:
        self.done = Repaired(dry_run=dry)
        self.entry = entry
        self._store = store
        self._dry = dry
        self._changed = False  # in this pass
        self._names: dict[Name, None] = {}
        self._rows: dict[tuple[str | None, str], int] = {}  # event_id and rule → the last one in `done.mended`

    def to_check_again(self) -> list[Name]:
        """The names of all problems of the last pass; none if it changed nothing."""
        return list(self._names) if self._changed else []

    async def mend(self, problems: AsyncIterable[Problem]) -> None:
        """One pass: mends each problem, and notes those that are left."""
        self.done.left, self._names, self._changed = [], {}, False
        seen: dict[tuple[Name, bytes | None], tuple[str, ...]] = {}
        async for problem in problems:
            actions: tuple[str, ...] = ()
            for name, member in _targets(problem):
                if (name, member) not in seen:
                    seen[name, member] = await self._mend(name, member)
                actions += seen[name, member]
            self._count(problem, actions)

    async def check_left(self) -> None:
        """Checks the names of the problems that are left again: another repair, or a relay, may have mended them."""
        names = dict.fromkeys(name for problem in self.done.left for name, _ in _targets(problem))
        of_box = [problem for problem in self.done.left if problem.event_id is None and problem.key is None]
        found = [problem async for problem in _checked(self._store, names)]
        self.done.left = [*of_box, *dict.fromkeys(found)]

    def _count(self, problem: Problem, actions: tuple[str, ...]) -> None:
        self._names.update(dict.fromkeys(name for name, _ in _targets(problem)))
        if actions:
            self._changed = True
            self._add(Mended(problem.event_id, problem.key, problem.rule, actions))
        else:
            self.done.left.append(problem)

    def _add(self, mended: Mended) -> None:
        """Adds to the report. An event may break a rule in several places, as an id without an event in two indexes;
        that is one problem, and its actions are reported once."""
        place = mended.event_id, mended.rule
        before = self.done.mended[self._rows[place]] if place in self._rows and mended.event_id else None
        if before is None or (before.key and mended.key and before.key != mended.key):
            self._rows[place] = len(self.done.mended)
            self.done.mended.append(mended)
            return
        actions = tuple(dict.fromkeys(before.actions + mended.actions))
        self.done.mended[self._rows[place]] = Mended(mended.event_id, before.key or mended.key, mended.rule, actions)

    async def _mend(self, name: Name, member: bytes | None) -> tuple[str, ...]:
        try:
            if not self._dry and not self.entry.begun:
                if not await self._call(name, member, dry=True):
                    return ()  # nothing can be done here, so nothing is to be logged
                await self.entry.begin()
            return tuple(await self._call(name, member, dry=self._dry))
        except ForeignKey:
            return ()

    async def _call(self, name: Name, member: bytes | None, *, dry: bool) -> list[str]:
        if name.kind == "event":
            return await self._store.repair(name.raw, await read_body(self._store, name.raw), dry=dry)
        return await self._store.repair_key(name.kind, name.raw, member, dry=dry)


async def read_body(store: Store, raw: bytes) -> KnownBody:
    """What the body of an event says. The script compares what it finds with what was read here."""
    created_at, body = await store.created_and_body(raw)
    seen = "" if created_at is None else created_at.decode(errors="replace")
    if not body:
        return KnownBody(seen)
    try:
        event = decode_body(as_text(raw), body)
    except StoreError:
        return KnownBody(seen, len(body))
    scope = str(event.unique_scope or UniqueScope.ALL_LIVE) if event.unique_key else ""
    return KnownBody(seen, len(body), event.event_type, event.ordering_key or "", event.unique_key or "", scope)


def _targets(problem: Problem) -> Iterator[tuple[Name, bytes | None]]:
    """What has to be mended for a problem: the event first, then its membership in a line or a unique key. A problem
    does not say of which of them its key is the name; the script for the other finds nothing to do."""
    event_id = problem.raw_id
    if event_id is None and problem.event_id is not None:
        event_id = problem.event_id.encode()
    if event_id is not None:
        yield Name("event", event_id), None
    for key in _raw(problem.key):
        yield Name("line", key), event_id
        yield Name("unique", key), event_id


def _raw(key: str | None) -> list[bytes]:
    """The stored keys that a problem may mean: bytes that are not UTF-8 are escaped in its text."""
    if key is None:
        return []
    raw = key.encode(errors="surrogateescape")
    escaped = _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), raw)
    return [raw] if escaped == raw else [raw, escaped]
