"""The actions of an operator, by event id. Each is recorded with who, when and why."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from redbox.arguments import event_ids, flag, whole_number
from redbox.box.reports import LogEntry
from redbox.errors import UsageError
from redbox.events import Outcome, check_key, check_moment, duration_ms, from_ms, reason_text, stored_error_text, to_ms
from redbox.settings import BATCH_COUNT, Settings, to_meta
from redbox.store.damage import is_count
from redbox.store.items import KillItem, SeenClaim
from redbox.store.replies import LoggedEntry
from redbox.store.steps import batches
from redbox.store.store import Store

LINES_PER_STEP = 100
MOST_ENTRIES = 1_000_000


def operator_name() -> str:
    """The user of this process and its host, for the log. The operating system names the user, not $USER."""
    return f"{_user_name()}@{socket.gethostname()}"


def _user_name() -> str:
    try:
        import pwd  # not on every platform
    except ImportError:
        return getpass.getuser()
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user id without a name, as in a container
        return f"uid-{os.getuid()}"


def available_argument(delay: float | timedelta | None, available_at: datetime | None) -> str:
    """A delay or a moment as the scripts take it."""
    if delay is not None and available_at is not None:
        raise UsageError("give either delay or available_at, not both")
    if available_at is not None:
        check_moment("available_at", available_at)
        return str(to_ms(available_at))
    return "" if delay is None else f"+{duration_ms(delay, 'delay')}"


class Operate:
    """`box.operate`: actions by id; each returns an Outcome for each id."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def kill(self, ids: Iterable[str], *, who: str, why: str, drop: bool = False) -> list[Outcome]:
        """Marks PENDING or CLAIMED events as DEAD; a relay that holds one can no longer settle it."""
        why = reason_text("why", why)
        flag("drop", drop)
        reason = stored_error_text(f"killed by {who}: {why}")
        return await self._each(
            ids,
            who,
            lambda batch: self._store.kill(
                "", [KillItem(id_, "", reason) for id_ in batch], who=who, why=why, drop=drop
            ),
        )

    async def release(
        self, ids: Iterable[str], *, who: str, why: str, delay: float | timedelta | None = None
    ) -> list[Outcome]:
        """Returns CLAIMED events to PENDING; their relays can no longer settle them."""
        why, wait = reason_text("why", why), None if delay is None else duration_ms(delay, "delay")
        return await self._each(
            ids,
            who,
            lambda batch: self._store.release("", [SeenClaim(id_) for id_ in batch], who=who, why=why, delay=wait),
        )

    async def reschedule(
        self,
        ids: Iterable[str],
        *,
        who: str,
        why: str,
        delay: float | timedelta | None = None,
        available_at: datetime | None = None,
    ) -> list[Outcome]:
        """Gives PENDING events another available_at; without one they are due now."""
        why, available = reason_text("why", why), available_argument(delay, available_at)
        return await self._each(
            ids, who, lambda batch: self._store.reschedule(batch, available=available, who=who, why=why)
        )

    async def drop(self, ids: Iterable[str], *, who: str, why: str) -> list[Outcome]:
        """Removes DEAD or PUBLISHED events for good."""
        why = reason_text("why", why)
        return await self._each(
            ids, who, lambda batch: self._store.drop([SeenClaim(id_) for id_ in batch], who=who, why=why)
        )

    async def pause(self, *, who: str, why: str) -> None:
        """Stops all claims until resumed. Puts go on, and claimed events can still be settled."""
        await self._configure("pause", {"paused": "1"}, who, why)

    async def resume(self, *, who: str, why: str) -> None:
        await self._configure("resume", {"paused": ""}, who, why)

    async def configure(self, *, who: str, why: str, **changes: Any) -> Settings:
        """Changes settings of the box, for all of its users; returns all settings."""
        await self._configure("configure", to_meta(changes), who, why)
        return Settings.from_meta(await self._store.meta())

    async def log(self, limit: int = 100) -> list[LogEntry]:
        """The actions of operators, newest first."""
        self._store.ensure_open()
        whole_number("limit", limit, 1, MOST_ENTRIES)
        return [_entry(each) for each in await self._store.log(limit)]

    async def _configure(self, action: str, changes: dict[str, str], who: str, why: str) -> None:
        self._check(who)
        why = reason_text("why", why)
        left = await self._store.configure(action, changes.items(), who=who, why=why, limit=LINES_PER_STEP)
        while left:  # lines that a dead head blocked, if the policy became "skip"
            left = await self._store.configure("configure", (), who="", why="", limit=LINES_PER_STEP)

    async def _each(self, ids: Iterable[str], who: str, act: Callable[[list[str]], Any]) -> list[Outcome]:
        self._check(who)
        replies: Sequence[bytes] = [word for batch in batches(event_ids(ids), BATCH_COUNT) for word in await act(batch)]
        return [Outcome(word.decode()) for word in replies]

    def _check(self, who: str) -> None:
        self._store.ensure_open()
        if not who:
            raise UsageError("who: say who does this; every action of an operator is recorded")
        check_key("who", who)


_ENTRY: Final = ("action", "who", "why", "count", "ids", "detail")


def _entry(logged: LoggedEntry) -> LogEntry:
    fields = logged.fields
    whole = set(_ENTRY) <= fields.keys() and is_count(fields["count"])
    return LogEntry(
        at=from_ms(logged.at),
        action=fields.get("action", ""),
        who=fields.get("who", ""),
        why=fields.get("why", ""),
        count=int(fields["count"]) if whole else 0,
        ids=tuple(fields.get("ids", "").split()),
        detail=fields.get("detail", "") if whole else f"cannot be read in full: {fields}",
    )
