"""Replay: returns PUBLISHED and DEAD events to PENDING, in bounded steps, each an atomic script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from secrets import token_hex
from typing import Any, Final

import msgspec

from redbox.arguments import event_ids, flag, whole_number
from redbox.box.canary import MOST_CANARIES, CanaryWatch
from redbox.box.inspect import at_most, selected_claims, up_to_now
from redbox.box.pace import Pace, check_rate
from redbox.box.reports import MOST_REFUSED, Replayed
from redbox.box.selection import Selection, select
from redbox.errors import UsageError
from redbox.events import Outcome, Record, State, check_key
from redbox.store.durability import Durability
from redbox.store.items import SeenClaim
from redbox.store.store import Store

Progress = Callable[[int], None]
CANARY_WAIT: Final = 60.0


def chosen(
    ids: Sequence[str | Record] | None, filters: dict[str, Any], verb: str = "replay"
) -> list[SeenClaim] | Selection:
    """The events to replay or to drop: by ids or records, or by a filter, by default of DEAD events."""
    filtered = any(value is not None for value in filters.values())
    if (ids is None) == (not filtered):
        raise UsageError(f"say what to {verb}: ids, or a filter; all dead events: state='DEAD'")
    if ids is not None:
        return _seen(ids)
    selection = select(**{**filters, "state": State.DEAD if filters.get("state") is None else filters["state"]})
    if selection.state not in (State.PUBLISHED, State.DEAD):
        raise UsageError(f"only PUBLISHED and DEAD events can be {_DONE[verb]}")
    return selection


def _seen(events: Any) -> list[SeenClaim]:
    """Events by id, whatever their claim numbers, or as they were read."""
    if isinstance(events, str | bytes) or not isinstance(events, Iterable):
        events = event_ids(events)  # which refuses it
    given = list(events)
    numbers = {each.event_id: each.number for each in given if isinstance(each, Record)}
    ids = event_ids([each.event_id if isinstance(each, Record) else each for each in given])
    return [SeenClaim(event_id, numbers.get(event_id, "")) for event_id in ids]


_DONE: Final = {"replay": "replayed", "drop": "dropped"}


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """How events are replayed: `available` is a delay or a time as scripts take it, `rate` is in events per second,
    `ramp`, `delay` and `canary_wait` in seconds. `limit` is the most events that are replayed, in the order of the
    listing. `watching` is called with the number of canary events when the replay begins to wait for them."""

    reset: bool
    available: str
    delay: float
    force: bool
    dry_run: bool
    rate: float | None
    ramp: float | None
    canary: int | None
    canary_wait: float
    who: str
    why: str
    durability: Durability
    progress: Progress | None
    limit: int | None = None
    watching: Progress | None = None

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if self.ramp is not None and self.rate is None:
            raise UsageError("ramp: needs a rate to grow to, in events per second")
        if self.canary is not None:
            whole_number("canary", self.canary, 1, MOST_CANARIES)
        for name in ("reset", "force", "dry_run"):
            flag(name, getattr(self, name))
        if self.limit is not None:
            whole_number("limit", self.limit)
        for name in ("progress", "watching"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise UsageError(f"{name} must be a function of a number of events")
        if self.who != "":
            check_key("who", self.who)

    async def run(self, store: Store, events: list[SeenClaim] | Selection) -> Replayed:
        """Replays the events, or counts them in a dry run."""
        steps = _Steps(self, store, f"{await store.time()}-{token_hex(6)}")
        await steps.run(at_most(self.limit, _claims(store, events)))
        return steps.report


async def _claims(store: Store, events: list[SeenClaim] | Selection) -> AsyncIterator[list[SeenClaim]]:
    if isinstance(events, Selection):
        async for found in selected_claims(store, await up_to_now(store, events)):
            yield found
    else:
        yield events


class _Steps:
    """One replay: its steps share a token, so that they are one entry of the log."""

    def __init__(self, replay: Replay, store: Store, token: str) -> None:
        self.report = Replayed(dry_run=replay.dry_run)
        self._replay = replay
        self._store = store
        self._token = token
        self._pace = Pace(None) if replay.dry_run else Pace(replay.rate, replay.ramp or 0.0)
        self._paced = 0  # events before those that the pace counts

    async def run(self, found: AsyncIterator[list[SeenClaim]]) -> None:
        wanted = 0 if self._replay.dry_run else self._replay.canary or 0
        watch = await CanaryWatch.begin(self._store) if wanted else None
        canaries: list[str] = []
        async for items in found:
            left = items
            while left:
                if watch is not None:
                    batch, left = left[: wanted - len(canaries)], left[wanted - len(canaries) :]
                    canaries += await self._step(batch)
                    if len(canaries) == wanted:
                        if not await self._passed(watch, canaries):
                            return
                        watch = None
                    continue
                size = self._pace.size(self.report.matched - self._paced)
                batch, left = left[:size], left[size:]
                await self._pace.wait(self.report.matched - self._paced)
                await self._step(batch)
        if watch is not None and canaries:
            await self._passed(watch, canaries)

    async def _passed(self, watch: CanaryWatch, canaries: list[str]) -> bool:
        if self._replay.watching is not None:
            self._replay.watching(len(canaries))
        self.report.canary = await watch.settled(canaries, self._replay.delay + self._replay.canary_wait)
        self._paced = self.report.matched
        self._pace.begin()
        return self.report.canary.passed

    async def _step(self, items: list[SeenClaim]) -> list[str]:
        """Replays events; returns the ids of those that were not refused."""
        replay, report, done = self._replay, self.report, list[str]()
        report.matched += len(items)
        replies = await self._store.replay(
            items,
            reset=replay.reset,
            available=replay.available,
            force=replay.force,
            dry=replay.dry_run,
            who=replay.who,
            why=replay.why,
            token=self._token,
            durability=replay.durability,
        )
        for (event_id, _), reply in zip(items, replies, strict=True):
            if reply.outcome is Outcome.OK:
                done.append(event_id)
                continue
            report.refused_count += 1
            report.conflicts += reply.outcome is Outcome.CONFLICT
            if len(report.refused) < MOST_REFUSED:
                report.refused.append((event_id, reply.outcome, reply.detail))
        report.replayed += 0 if replay.dry_run else len(done)
        if replay.progress is not None:
            replay.progress(report.matched)
        return done
