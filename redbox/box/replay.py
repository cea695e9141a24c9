"""Replay: returns PUBLISHED and DEAD events to PENDING, in bounded steps, each an atomic script."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from redbox.arguments import event_ids, flag, number, shown
from redbox.box.inspect import selected_ids, up_to_now
from redbox.box.reports import Replayed
from redbox.box.selection import Selection, select
from redbox.errors import UsageError
from redbox.events import Outcome, State, check_key
from redbox.settings import BATCH_COUNT
from redbox.store.durability import Durability
from redbox.store.items import SeenClaim
from redbox.store.steps import batches
from redbox.store.store import Store

Progress = Callable[[int], None]
SLOWEST: Final = 0.001  # events per second of a replay
FASTEST: Final = 1_000_000_000


def check_rate(rate: Any) -> None:
    """Events per second of a replay; None for no limit."""
    if rate is not None and not SLOWEST <= number("rate", rate) <= FASTEST:
        raise UsageError(f"rate must be between {SLOWEST} and {FASTEST:,} events per second, not {shown(rate)}")


def chosen(ids: Sequence[str] | None, filters: dict[str, Any]) -> list[str] | Selection:
    """The events to replay: ids, or a filter, by default of DEAD events."""
    filtered = any(value is not None for value in filters.values())
    if (ids is None) == (not filtered):
        raise UsageError("say what to replay: ids, or a filter; all dead events: state='DEAD'")
    if ids is not None:
        return event_ids(ids)
    selection = select(**{**filters, "state": State.DEAD if filters["state"] is None else filters["state"]})
    if selection.state not in (State.PUBLISHED, State.DEAD):
        raise UsageError("only PUBLISHED and DEAD events can be replayed")
    return selection


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """How events are replayed: `available` is a delay or a time as scripts take it, `rate` is in events per second."""

    reset: bool
    available: str
    force: bool
    dry_run: bool
    rate: float | None
    who: str
    why: str
    durability: Durability
    progress: Progress | None

    def __post_init__(self) -> None:
        check_rate(self.rate)
        for name in ("reset", "force", "dry_run"):
            flag(name, getattr(self, name))
        if self.progress is not None and not callable(self.progress):
            raise UsageError("progress must be a function of the number of events done")
        if self.who != "":
            check_key("who", self.who)

    async def run(self, store: Store, events: list[str] | Selection) -> Replayed:
        """Replays the events, or counts them in a dry run."""
        report, started = Replayed(dry_run=self.dry_run), time.monotonic()
        rate = None if self.dry_run else self.rate
        size = BATCH_COUNT if rate is None else max(1, min(BATCH_COUNT, int(rate / 5)))
        if isinstance(events, Selection):
            async for found in selected_ids(store, await up_to_now(store, events)):
                for batch in batches(found, size):
                    await self._step(store, batch, report, started)
        else:
            for batch in batches(events, size):
                await self._step(store, batch, report, started)
        return report

    async def _step(self, store: Store, batch: list[str], report: Replayed, started: float) -> None:
        if self.rate is not None and not self.dry_run:
            await asyncio.sleep(max(0.0, started + report.matched / self.rate - time.monotonic()))
        report.matched += len(batch)
        replies = await store.replay(
            [SeenClaim(event_id) for event_id in batch],
            reset=self.reset,
            available=self.available,
            force=self.force,
            dry=self.dry_run,
            who=self.who,
            why=self.why,
            durability=self.durability,
        )
        for event_id, reply in zip(batch, replies, strict=True):
            if reply.outcome is Outcome.OK:
                report.replayed += 0 if self.dry_run else 1
            else:
                report.refused.append((event_id, reply.outcome, reply.detail))
        if self.progress is not None:
            self.progress(report.matched)
