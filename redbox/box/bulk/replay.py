"""Replay: returns PUBLISHED and DEAD events to PENDING, in bounded steps, each an atomic script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Final, TypedDict

import msgspec

from redbox.arguments import flag, whole_number
from redbox.box.bulk.canary import MOST_CANARIES, CanaryWatch
from redbox.box.bulk.choice import Progress, check_bulk, claims_of
from redbox.box.bulk.pace import Pace, check_rate
from redbox.box.bulk.selection import Selection
from redbox.box.inspect import Budget, at_most
from redbox.box.operations_log import action_token
from redbox.box.reports import MOST_REFUSED, Replayed
from redbox.durations import Duration
from redbox.errors import UsageError
from redbox.events import Outcome, State, check_key
from redbox.store.scripts.items import SeenClaim
from redbox.store.server.durability import Durability
from redbox.store.store import Store

CANARY_WAIT: Final = 60.0


class ReplayOptions(TypedDict, total=False):
    """The options of `Box.replay`, which explains them."""

    state: State | str | None
    event_type: str | None
    key: str | None
    error: str | None
    since: datetime | None
    until: datetime | None
    created_since: datetime | None
    created_until: datetime | None
    group: str | None
    text: str | None
    reset: bool
    delay: Duration | None
    force: bool
    dry_run: bool
    rate: float | None
    ramp: Duration | None
    canary: int | None
    canary_wait: Duration
    who: str | None
    why: str
    progress: Progress | None
    limit: int | None
    budget: Budget | None
    watching: Progress | None


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
    budget: Budget | None = None
    watching: Progress | None = None

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if self.ramp is not None and self.rate is None:
            raise UsageError("ramp: needs a rate to grow to, in events per second")
        if self.canary is not None:
            whole_number("canary", self.canary, 1, MOST_CANARIES)
        for name in ("reset", "force"):
            flag(name, getattr(self, name))
        if self.limit is not None:
            whole_number("limit", self.limit)
        check_bulk(self.dry_run, self.progress)
        if self.watching is not None and not callable(self.watching):
            raise UsageError("watching must be a function of a number of events")
        if self.who != "":
            check_key("who", self.who)

    async def run(self, store: Store, events: list[SeenClaim] | Selection) -> Replayed:
        """Replays the events, or counts them in a dry run."""
        steps = _Steps(self, store, await action_token(store))
        await steps.run(at_most(self.limit, claims_of(store, events, self.budget)))
        return steps.report


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
