"""The actions of an operator, by event id. Each is recorded with who, when and why."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from redbox.arguments import event_ids, flag, one_of, shown, whole_number
from redbox.box.bulk.selection import Selection, select
from redbox.box.bulk.sweep import sweep
from redbox.box.inspect import Budget, at_most, selected_claims, up_to_now
from redbox.box.operations_log import IDS, action_token, part, read_log
from redbox.box.reports import Applied, LogEntry, Pause, PausedKey, Swept
from redbox.durations import Duration
from redbox.errors import ForeignKey, UsageError
from redbox.events import (
    Outcome,
    State,
    check_key,
    check_moment,
    duration_ms,
    from_ms,
    reason_text,
    stored_error_text,
    to_ms,
)
from redbox.settings import BATCH_COUNT, Settings, check_names, to_meta
from redbox.store.scripts.items import KillItem, SeenClaim
from redbox.store.scripts.steps import STEP_COUNT, batches
from redbox.store.store import Store

LINES_PER_STEP = 100

#: Action → the states in which it is possible, and the outcome in any other state.
_POSSIBLE: Final = {
    "kill": ((State.PENDING, State.CLAIMED), Outcome.NOTLIVE),
    "release": ((State.CLAIMED,), Outcome.NOTCLAIMED),
    "reschedule": ((State.PENDING,), Outcome.NOTPENDING),
    "drop": ((State.PUBLISHED, State.DEAD), Outcome.NOTTERMINAL),
}
#: Action → the outcome for an id that is given a second time.
_REPEATED: Final = {
    "kill": Outcome.NOTLIVE, "release": Outcome.NOTCLAIMED, "reschedule": Outcome.OK, "drop": Outcome.UNKNOWN,
}  # fmt: skip


_DONE: Final = {"kill": "killed", "reschedule": "rescheduled"}
BulkAction = Literal["kill", "reschedule"]
MOST_SELECTED: Final = 1_000_000  # ids of one `apply` by a filter, which are held in memory


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


def _pause_argument(duration: Duration | None, until: datetime | None) -> str:
    """The end of a pause as the script takes it."""
    if duration is not None and until is not None:
        raise UsageError("give either duration or until, not both")
    if until is not None:
        check_moment("until", until)
        return str(to_ms(until))
    return "" if duration is None else f"+{_positive_ms('duration', duration)}"


def _positive_ms(name: str, length: Duration) -> int:
    milliseconds = duration_ms(length, name)
    if milliseconds < 1:
        raise UsageError(f"{name} must be positive, not {shown(length)}")
    return milliseconds


def _ordering_key(key: str | None) -> str:
    if key is not None:
        check_key("key", key)
    return key or ""


async def _given(ids: list[str]) -> AsyncIterator[list[str]]:
    for batch in batches(ids):
        yield batch


def _outcomes(words: Iterable[bytes]) -> list[Outcome]:
    return [Outcome(word.decode()) for word in words]


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else from_ms(ms)


class Operate:
    """`box.operate`: actions by id; each returns an Outcome for each id. With `dry_run` it returns what the outcomes
    would be, and changes nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def kill(
        self, ids: Iterable[str], *, who: str, why: str, drop: bool = False, dry_run: bool = False
    ) -> list[Outcome]:
        """Marks PENDING or CLAIMED events as DEAD; a relay that holds one can no longer settle it."""
        why = reason_text("why", why)
        flag("drop", drop)
        reason = stored_error_text(f"killed by {who}: {why}")

        async def act(batch: list[str], token: str) -> list[bytes]:
            items = [KillItem(event_id, "", reason) for event_id in batch]
            return await self._store.kill("", items, who=who, why=why, drop=drop, token=token)

        return await self._each("kill", ids, who, act, dry_run)

    async def release(
        self,
        ids: Iterable[str],
        *,
        who: str,
        why: str,
        delay: float | timedelta | None = None,
        dry_run: bool = False,
    ) -> list[Outcome]:
        """Returns CLAIMED events to PENDING; their relays can no longer settle them."""
        why, wait = reason_text("why", why), None if delay is None else duration_ms(delay, "delay")

        async def act(batch: list[str], token: str) -> list[bytes]:
            claims = [SeenClaim(event_id) for event_id in batch]
            return await self._store.release("", claims, who=who, why=why, delay=wait, token=token)

        return await self._each("release", ids, who, act, dry_run)

    async def reschedule(
        self,
        ids: Iterable[str],
        *,
        who: str,
        why: str,
        delay: float | timedelta | None = None,
        available_at: datetime | None = None,
        dry_run: bool = False,
    ) -> list[Outcome]:
        """Gives PENDING events another available_at; without one they are due now."""
        why, available = reason_text("why", why), available_argument(delay, available_at)

        async def act(batch: list[str], token: str) -> list[bytes]:
            return await self._store.reschedule(batch, available=available, who=who, why=why, token=token)

        return await self._each("reschedule", ids, who, act, dry_run)

    async def drop(self, ids: Iterable[str], *, who: str, why: str, dry_run: bool = False) -> list[Outcome]:
        """Removes DEAD or PUBLISHED events for good."""
        why = reason_text("why", why)

        async def act(batch: list[str], token: str) -> list[bytes]:
            return await self._store.drop([SeenClaim(event_id) for event_id in batch], who=who, why=why, token=token)

        return await self._each("drop", ids, who, act, dry_run)

    async def apply(
        self,
        action: BulkAction,
        ids: Iterable[str] | None = None,
        *,
        who: str,
        why: str,
        delay: float | timedelta | None = None,
        available_at: datetime | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        budget: Budget | None = None,
        progress: Callable[[int], None] | None = None,
        **filters: Any,
    ) -> Applied:
        """Kills or reschedules many events: by ids, or by the filters of `list`, at most `limit` of them.

        By a filter it takes the events that can be changed: PENDING ones, for `kill` also CLAIMED ones if `state` says
        so. An event that changes meanwhile is refused. Recorded in the box's log as one entry. A `budget` bounds how
        many events are read to find them.
        """
        self._check(who)
        one_of("action", action, ("kill", "reschedule"))
        why, available = reason_text("why", why), available_argument(delay, available_at)
        if progress is not None and not callable(progress):
            raise UsageError("progress must be a function of a number of events")
        if (ids is None) == (not any(value is not None for value in filters.values())):
            raise UsageError(f"say what to {action}: ids, or a filter; all pending events: state='PENDING'")
        reason, token = stored_error_text(f"killed by {who}: {why}"), await action_token(self._store)
        report = Applied(action=action, dry_run=flag("dry_run", dry_run))
        most = None if limit is None else whole_number("limit", limit)
        found = _given(event_ids(ids)) if ids is not None else self._matching(action, filters, most, budget)
        async for batch in at_most(most, found):
            if dry_run:
                outcomes = await self._preview(action, batch)
            elif action == "kill":
                items = [KillItem(event_id, "", reason) for event_id in batch]
                outcomes = _outcomes(await self._store.kill("", items, who=who, why=why, token=token))
            else:
                outcomes = _outcomes(
                    await self._store.reschedule(batch, available=available, who=who, why=why, token=token)
                )
            report.add(batch, outcomes)
            if progress is not None:
                progress(report.matched)
        return report

    async def _matching(
        self, action: BulkAction, filters: dict[str, Any], most: int | None, budget: Budget | None
    ) -> AsyncIterator[list[str]]:
        """The ids of the events that a filter selects now. All are read before the first is changed: a change moves an
        event in the indexes, where it would be found again."""
        selection = select(**filters)
        if selection.state is None:
            selection = select(**filters, state=State.PENDING)
        if selection.state not in _POSSIBLE[action][0]:
            raise UsageError(f"only {' and '.join(_POSSIBLE[action][0])} events can be {_DONE[action]}")
        ids: dict[str, None] = {}
        async for found in at_most(most, selected_claims(self._store, selection, budget)):
            ids |= dict.fromkeys(each.event_id for each in found)
            if len(ids) > MOST_SELECTED:
                raise UsageError(f"more than {MOST_SELECTED:,} events match; narrow the filter")
        async for batch in _given(list(ids)):
            yield batch

    async def pause(
        self,
        *,
        who: str,
        why: str,
        duration: Duration | None = None,
        until: datetime | None = None,
        key: str | None = None,
    ) -> Pause:
        """Stops all claims, or with `key` those of one ordering key. Puts continue, and claims can be settled.

        Lasts for `duration` or `until` a time, by the store's clock, and then ends by itself; without them, until it
        is resumed. A second pause replaces the first. Raises UsageError for a time that has passed.
        """
        self._check(who)
        why, ordering_key = reason_text("why", why), _ordering_key(key)
        ending = _pause_argument(duration, until)
        reply = await self._store.pause(key=ordering_key, until=ending, who=who, why=why)
        if until is not None and reply.until is not None and reply.until <= reply.now:
            raise UsageError(f"until: {until.isoformat()} has passed by the store's clock; nothing was paused")
        return Pause(who, why, from_ms(reply.now), None if reply.until is None else from_ms(reply.until))

    async def resume(self, *, who: str, why: str, ramp: Duration | None = None, key: str | None = None) -> bool:
        """Ends the pause of the box, or with `key` that of one ordering key; returns whether it was paused.

        With `ramp`, all relays together claim 1 event a second at first, and exponentially more during that time; then
        the limit ends. Without it, an earlier ramp ends.
        """
        self._check(who)
        why, ordering_key = reason_text("why", why), _ordering_key(key)
        if ramp is not None and ordering_key:
            raise UsageError("give either key or ramp, not both: a ramp is for the whole box")
        length = None if ramp is None else _positive_ms("ramp", ramp)
        try:
            return await self._store.resume(key=ordering_key, ramp=length, who=who, why=why)
        except ForeignKey as error:
            if not ordering_key:
                raise
            raise ForeignKey(f"ordering key {shown(ordering_key)} cannot be resumed: {error}") from error

    async def paused_keys(self, limit: int = 100, *, key: str | None = None) -> list[PausedKey]:
        """The paused ordering keys, those whose pause ends first at the beginning; with `key` at most this one."""
        self._store.ensure_open()
        whole_number("limit", limit, 1, BATCH_COUNT)
        if key is None:
            entries = await self._store.paused_keys(limit)
        else:
            entry = await self._store.paused_key(_ordering_key(key))
            entries = [] if entry is None else [entry]
        return [PausedKey(each.key, each.who, each.why, _moment(each.since), _moment(each.until)) for each in entries]

    async def configure(self, *, who: str, why: str, reset: Iterable[str] = (), **changes: Any) -> Settings:
        """Changes settings of the box, for all of its users; `reset` names those that get their default again. Returns
        all settings."""
        defaults = dict.fromkeys(check_names(reset), "")
        twice = sorted(defaults.keys() & changes.keys())
        if twice:
            raise UsageError(f"{twice[0]}: give either a value or the default, not both")
        await self._configure("configure", {**to_meta(changes), **defaults}, who, why)
        return Settings.from_meta(await self._store.meta())

    async def reap(self, *, who: str, why: str, limit: int | None = None, dry_run: bool = False) -> list[str]:
        """Returns events whose lease has expired to PENDING, as relays do by themselves; returns their ids."""
        self._check(who)
        flag("dry_run", dry_run)
        left = None if limit is None else whole_number("limit", limit)
        ids: list[str] = []
        if dry_run:
            expired = await up_to_now(self._store, Selection(state=State.CLAIMED))
            async for found in selected_claims(self._store, expired):
                ids += [each.event_id for each in found]
            return ids[:left]
        token, why, more = await self._begin("reap", who, why), reason_text("why", why), True
        while more and (left is None or len(ids) < left):
            room = STEP_COUNT if left is None else min(STEP_COUNT, left - len(ids))
            step = await self._store.reap(limit=room, delay=0)
            ids, more = ids + step.ids, step.more
        await self._end("reap", token, who, why, len(ids), ids)
        return ids

    async def sweep(
        self, *, who: str, why: str, limit: int | None = None, dry_run: bool = False, **retention: Any
    ) -> Swept:
        """Removes PUBLISHED and DEAD events past their retention, as relays do by themselves.

        `retention` are settings such as keep_published=0, for this sweep only. `limit` bounds how many are removed.
        """
        self._check(who)
        changes = to_meta(retention)
        if dry_run:
            return await sweep(self._store, retention, limit=limit, dry_run=dry_run)
        detail = " ".join(f"{name}={value}" for name, value in changes.items())
        token, why = await self._begin("sweep", who, why, detail), reason_text("why", why)
        report = await sweep(self._store, retention, limit=limit, dry_run=dry_run)
        await self._end("sweep", token, who, why, report.published + report.dead)
        return report

    async def note(self, action: str, *, who: str, why: str, detail: str) -> None:
        """Records something that changes no event, such as the start of a job."""
        self._check(who)
        check_key("action", action)
        await self._begin(action, who, why, reason_text("detail", detail))

    async def log(
        self,
        limit: int = 100,
        *,
        action: str | None = None,
        who: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[LogEntry]:
        """The actions of operators, newest first: at most `limit` that match all filters.

        An action of several steps has the time of its last step and counts all of them. It matches if it was running at
        any time between `since` and `until`.
        """
        self._store.ensure_open()
        return await read_log(self._store, limit, action=action, who=who, since=since, until=until)

    async def _configure(self, action: str, changes: dict[str, str], who: str, why: str) -> None:
        self._check(who)
        why = reason_text("why", why)
        left = await self._store.configure(action, changes.items(), who=who, why=why, limit=LINES_PER_STEP)
        while left:  # lines that a dead head blocked, if the policy became "skip"
            left = await self._store.configure("configure", (), who="", why="", limit=LINES_PER_STEP)

    async def _each(
        self,
        action: str,
        ids: Iterable[str],
        who: str,
        act: Callable[[list[str], str], Awaitable[list[bytes]]],
        dry_run: bool,
    ) -> list[Outcome]:
        self._check(who)
        known = event_ids(ids)
        if flag("dry_run", dry_run):
            return await self._preview(action, known)
        token = await action_token(self._store) if len(known) > STEP_COUNT else ""
        return [each for batch in batches(known, BATCH_COUNT) for each in _outcomes(await act(batch, token))]

    async def _preview(self, action: str, ids: list[str]) -> list[Outcome]:
        """The outcomes that the action would have now."""
        states, otherwise = _POSSIBLE[action]
        outcomes: list[Outcome] = []
        acted: set[str] = set()
        for batch in batches(ids, BATCH_COUNT):
            for event_id, stored in zip(batch, await self._store.hashes(batch, bodies=False), strict=True):
                state = stored.fields.get(b"state", b"").decode(errors="replace")
                if event_id in acted:
                    outcomes.append(_REPEATED[action])
                elif not state:
                    outcomes.append(Outcome.UNKNOWN)
                elif state in states:
                    acted.add(event_id)
                    outcomes.append(Outcome.OK)
                else:
                    outcomes.append(otherwise)
        return outcomes

    async def _begin(self, action: str, who: str, why: str, detail: str = "") -> str:
        """Records an action before its first step, so that it is in the log even if the process is killed."""
        token, why = await action_token(self._store), reason_text("why", why)
        await self._store.write_log(action, who=who, why=why, count=0, detail=detail, token=part(token, 0))
        return token

    async def _end(self, action: str, token: str, who: str, why: str, count: int, ids: Sequence[str] = ()) -> None:
        if count:
            await self._store.write_log(action, who=who, why=why, count=count, ids=ids[:IDS], token=part(token, 1))

    def _check(self, who: str) -> None:
        self._store.ensure_open()
        if not who:
            raise UsageError("who: say who does this; every action of an operator is recorded")
        check_key("who", who)
