"""Services that run beside the engine: each is a class with `run_once`, and one loop schedules them all.

Any number of each may run at the same time, in relays or alone: `await serve(Reaper(box))`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Callable
from typing import Any, Final, Protocol
from uuid import uuid4

import anyio
import msgspec

from redbox import __version__
from redbox.box import Box
from redbox.box.reports import Swept
from redbox.errors import RedboxError, StoreError, UsageError
from redbox.relay.digest import Digest
from redbox.relay.report import BUCKETS, Histogram
from redbox.settings import BATCH_COUNT

logger = logging.getLogger("redbox.relay")

REAP_EVERY: Final = 5.0
SWEEP_EVERY: Final = 5.0
SWEEP_SOONEST: Final = 0.1
SWEEP_AIM: Final = 1000  # events that a run should find while many are published
SWEEP_SHARE: Final = 0.1  # maximum share of time for runs that remove nothing
BEAT_EVERY: Final = 5.0
LATENCY_BOUNDS_MS: Final = (*(bound * 1000 for bound in BUCKETS), float("inf"))
GAP: Final = 0.1  # minimum seconds between two runs of a service that is asked to run soon


class Service(Protocol):
    every: float

    async def run_once(self) -> Any: ...


async def serve(service: Service, digest: Digest | None = None) -> None:
    """Runs a service repeatedly until it is cancelled. While the store does not answer, it only logs that."""
    digest, name = digest or Digest(), type(service).__name__.lower()
    while True:
        try:
            await service.run_once()
            digest.store_answered(name)
        except StoreError as error:
            digest.store_failed(name, f"{name} got no answer from the store", error)
        # Spread, so that many relays do not run at the same moment.
        pause = service.every * random.uniform(0.8, 1.2)  # noqa: S311
        if isinstance(service, Prompted):
            await service.rest(pause)
        else:
            await anyio.sleep(pause)


class Prompted:
    """A service whose next run can be requested early."""

    def __init__(self) -> None:
        self._soon = asyncio.Event()

    def run_soon(self) -> None:
        """Requests the next run now, but at least `GAP` seconds after the last one."""
        self._soon.set()

    async def rest(self, seconds: float) -> None:
        """Waits between two runs: `seconds`, or `GAP` when `run_soon` was called."""
        await anyio.sleep(min(seconds, GAP))
        with anyio.move_on_after(seconds - GAP):
            await self._soon.wait()
        self._soon.clear()


class ReapResult(msgspec.Struct, frozen=True):
    """The number of expired claims that were returned to PENDING."""

    count: int


class Reaper:
    """Returns expired claims to PENDING."""

    def __init__(self, box: Box, *, every: float = REAP_EVERY) -> None:
        self._box = box
        self.every = _checked(every)

    async def run_once(self) -> ReapResult:
        count = 0
        while True:
            ids = await self._box.reap(limit=BATCH_COUNT)
            count += len(ids)
            if len(ids) < BATCH_COUNT:
                break
        if count:
            logger.warning("%d expired %s returned to PENDING", count, "claim" if count == 1 else "claims")
        return ReapResult(count)


class Sweeper(Prompted):
    """Removes PUBLISHED and DEAD events past their retention, as the box is set.

    A run removes all of them, in bounded steps. `every` is the maximum time between two runs, in seconds. The next run
    comes sooner after a run that removed many, and after its relay has published many events: so the box holds little
    more than its retention at any publish rate.
    """

    def __init__(self, box: Box, *, every: float = SWEEP_EVERY) -> None:
        super().__init__()
        self._box = box
        self._published = 0
        self._longest = self.every = _checked(every)
        self._ended: float | None = None

    async def run_once(self) -> Swept:
        began = time.monotonic()
        self._published = 0
        try:
            swept = await self._box.sweep()
        except StoreError:
            self.every = self._longest
            raise
        ended, removed = time.monotonic(), swept.published + swept.dead
        elapsed = self._longest if self._ended is None else ended - self._ended
        self._ended = ended
        wanted = elapsed * SWEEP_AIM / removed if removed else 2 * self.every
        # A run that removed nothing may have read many events that have to stay.
        at_least = SWEEP_SOONEST if removed else (ended - began) / SWEEP_SHARE
        self.every = max(at_least, min(wanted, self._longest))
        return swept

    def published(self, count: int) -> None:
        """The relay has published `count` more events."""
        self._published += count
        if self._published >= SWEEP_AIM:
            self.run_soon()


class Heartbeat(Prompted):
    """Reports to the box that a relay is alive, with its counts."""

    def __init__(self, box: Box, name: str, about: Callable[[], dict[str, str]], *, every: float = BEAT_EVERY) -> None:
        super().__init__()
        self._box = box
        self._name = name
        self._about = about
        self._instance = uuid4().hex
        self._warned = False
        self.every = _checked(every)

    async def run_once(self) -> None:
        about = {"host": socket.gethostname(), "pid": str(os.getpid()), "version": __version__, **self._about()}
        other = await self._box.beat(self._name, self._instance, about, fresh=2 * self.every)
        if other and not self._warned:
            logger.warning(
                "another relay named %r is alive (host %s, pid %s): give each relay its own name, or none",
                self._name, other.get("host"), other.get("pid"),
            )  # fmt: skip
        self._warned = bool(other)

    async def leave(self) -> None:
        """Removes the relay from the list of the box."""
        try:
            await self._box.beat(self._name, self._instance, {}, fresh=0, leaving=True)
        except RedboxError as error:
            logger.debug("the relay could not be removed from the list: %s", error)


class LossWatch:
    """Warns of events that claims found without their body or their hash: they are never delivered."""

    def __init__(self, box: Box, *, every: float = BEAT_EVERY) -> None:
        self._box = box
        self._known = 0
        self.every = _checked(every)

    async def run_once(self) -> int:
        """Returns how many such events the box has."""
        stats = await self._box.stats()
        if stats.lost > self._known:
            named = ", ".join(stats.lost_ids) + (", ..." if stats.lost > len(stats.lost_ids) else "")
            what = "event is lost: it is" if stats.lost == 1 else "events are lost: they are"
            logger.warning(
                "%d %s stored in part, and never delivered (%s); `redbox doctor` says what to do",
                stats.lost, what, named,
            )  # fmt: skip
        self._known = stats.lost
        return stats.lost


class RateRecorder:
    """Samples the totals of a box for the history of its rates, with the latencies of a relay's events since the last
    run. Latencies that the store did not take, or did not confirm, are left out."""

    def __init__(self, box: Box, latencies: Histogram | None = None, *, every: float = BEAT_EVERY) -> None:
        self._box = box
        self._latencies = latencies
        self._before = [] if latencies is None else list(latencies.counts)
        self.every = _checked(every)

    async def run_once(self) -> None:
        now = [] if self._latencies is None else list(self._latencies.counts)
        grown = [after - before for before, after in zip(self._before, now, strict=True)]
        self._before = now
        await self._box.desk.record_rates(latencies=dict(zip(LATENCY_BOUNDS_MS, grown, strict=False)))


def _checked(every: float) -> float:
    if not every > 0:
        raise UsageError("`every` must be a positive number of seconds")
    return every
