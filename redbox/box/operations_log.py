"""The operations log: one entry for one action of an operator, however many steps the action took.

Each step of an action writes its own entry in the script that changes the events, so the log is true even if a process
is killed between two steps. Entries of one action share a token, and the reader adds them up.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from secrets import token_hex
from typing import Final

import msgspec

from redbox.arguments import text, whole_number
from redbox.box.reports import LogEntry
from redbox.errors import UsageError
from redbox.events import check_moment, from_ms, to_ms
from redbox.store.damage import is_count
from redbox.store.scripts.replies import LoggedEntry
from redbox.store.store import Store

MOST_ENTRIES: Final = 1_000_000
IDS: Final = 20  # of one entry
_FIELDS: Final = ("action", "who", "why", "count", "ids", "detail")
_PART: Final = "#"


async def action_token(store: Store) -> str:
    """A token for an action of several steps. It holds the time of the start, where the reader stops looking for
    further steps."""
    return f"{await store.time()}-{token_hex(6)}"


def part(token: str, number: int) -> str:
    """The token of one entry that `write_log` writes: it writes a token only once."""
    return f"{token}{_PART}{number}"


async def read_log(
    store: Store,
    limit: int,
    *,
    action: str | None = None,
    who: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[LogEntry]:
    """The newest entries that match all filters, newest first. An action of several steps matches a time if it was
    running then; its entry counts all of its steps."""
    whole_number("limit", limit, 1, MOST_ENTRIES)
    matches = _filter(action, who, since, until)
    found: dict[str, _Action] = {}
    async for logged in store.log(limit):
        entry, token = _entry(logged), logged.fields.get("token", "").partition(_PART)[0]
        start = _start(token)
        if token in found:
            found[token].add(entry)
        elif len(found) < limit and matches(entry, logged.at if start is None else start):
            found[token or f" {len(found)}"] = _Action(entry, start)
        over = len(found) >= limit or (since is not None and entry.at < since)
        if over and all(each.start is None or each.start > logged.at for each in found.values()):
            break
    return [each.entry() for each in found.values()]


def _filter(
    action: str | None, who: str | None, since: datetime | None, until: datetime | None
) -> Callable[[LogEntry, int], bool]:
    """A test of the last step of an action, and of its start in ms."""
    for name, value in (("action", action), ("who", who)):
        if value is not None:
            text(name, value)
    for name, moment in (("since", since), ("until", until)):
        if moment is not None:
            check_moment(name, moment)
    if since is not None and until is not None and since > until:
        raise UsageError("since is after until, so no entry can match")

    def matches(entry: LogEntry, start: int) -> bool:
        return (
            (action is None or entry.action == action)
            and (who is None or entry.who == who)
            and (since is None or entry.at >= since)
            and (until is None or start <= to_ms(until))
        )

    return matches


class _Action:
    """An action, as its steps are read: the last one first."""

    def __init__(self, last: LogEntry, start: int | None) -> None:
        self.start = start
        self._steps = [last]

    def add(self, earlier: LogEntry) -> None:
        self._steps.append(earlier)

    def entry(self) -> LogEntry:
        last, steps = self._steps[0], self._steps[::-1]
        if len(steps) == 1:
            return last
        ids = [event_id for step in steps for event_id in step.ids]
        return msgspec.structs.replace(
            last,
            count=sum(step.count for step in steps),
            ids=tuple(ids[:IDS]),
            detail=next((step.detail for step in steps if step.detail), ""),
        )


def _start(token: str) -> int | None:
    """The time of the start in ms; None for an entry that is the only one of its action."""
    start, found, _ = token.partition("-")
    return int(start) if found and is_count(start) else None


def _entry(logged: LoggedEntry) -> LogEntry:
    fields = logged.fields
    whole = set(_FIELDS) <= fields.keys() and is_count(fields["count"])
    return LogEntry(
        at=from_ms(logged.at),
        action=fields.get("action", ""),
        who=fields.get("who", ""),
        why=fields.get("why", ""),
        count=int(fields["count"]) if whole else 0,
        ids=tuple(fields.get("ids", "").split()),
        detail=fields.get("detail", "") if whole else f"cannot be read in full: {fields}",
    )
