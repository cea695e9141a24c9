"""Settles claims in batches: what comes together while one call is under way goes with the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from redbox.box import Box
from redbox.errors import PASSING, DurabilityNotReached
from redbox.events import Claim
from redbox.relay.error_text import error_words
from redbox.relay.report import Tally
from redbox.settings import BATCH_COUNT
from redbox.store.steps import STEP_COUNT, ack_work, first_step

logger = logging.getLogger("redbox.relay")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0


def pauses() -> Iterator[float]:
    """Seconds to wait while the store does not answer: twice as long each time."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)


class Held:
    """A claim in this relay's hands.

    `since`: when it was claimed; `begun`: when its publish began; `deadline`: when its lease ends at the earliest; all
    on this process's monotonic clock. `lost`: it is no longer ours. `fate`: why it dies instead of being published.
    """

    __slots__ = ("begun", "claim", "deadline", "fate", "lost", "since")

    def __init__(self, claim: Claim, since: float, deadline: float) -> None:
        self.claim = claim
        self.since = self.begun = since
        self.deadline = deadline
        self.lost = False
        self.fate: BaseException | None = None


class Retry:
    """How an event goes back: after how long, whether its attempt counts, and why."""

    __slots__ = ("delay", "error", "excuse")

    def __init__(self, delay: float, error: BaseException, excuse: bool) -> None:
        self.delay = delay
        self.error = error
        self.excuse = excuse


class Settler:
    """Takes outcomes, and tells the store. A claim that is settled, or lost, is forgotten."""

    def __init__(
        self, box: Box, tally: Tally, forget: Callable[[list[Held]], None], *, delete: bool, drop: bool
    ) -> None:
        self._box = box
        self._tally = tally
        self._forget = forget
        self._delete, self._drop = delete, drop
        self._acks: list[Held] = []
        self._retries: list[tuple[Held, Retry]] = []
        self._kills: list[tuple[Held, str]] = []
        self._releases: list[Held] = []
        self._work = asyncio.Event()

    # --- what is to become of an event; these only note it -------------------------------------------------------

    def ack(self, held: Held) -> None:
        self._acks.append(held)
        self._work.set()

    def retry(self, held: Held, delay: float, error: BaseException, *, excuse: bool) -> None:
        self._retries.append((held, Retry(delay, error, excuse)))
        self._work.set()

    def kill(self, held: Held, reason: str) -> None:
        self._kills.append((held, reason))
        self._work.set()

    def release(self, held: Held) -> None:
        self._releases.append(held)
        self._work.set()

    # --- telling the store ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Settles until it is cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            await self.settle_all()

    async def settle_all(self) -> None:
        """Settles what was noted. What was not told, since this was cancelled, stays noted."""
        while self._acks or self._retries or self._kills or self._releases:
            if self._acks:
                await self._settle_acks()
            if self._retries:
                await self._settle_retries()
            if self._kills:
                await self._settle_kills()
            if self._releases:
                await self._settle_releases()

    async def _settle_acks(self) -> None:
        batch = first_step(self._acks[:BATCH_COUNT], lambda held: ack_work(held.claim))
        settled = await self._until_told(
            batch, lambda: self._box.ack([held.claim for held in batch], delete=self._delete)
        )
        self._tally.acked(settled)
        del self._acks[: len(batch)]

    async def _settle_retries(self) -> None:
        batch = self._retries[:STEP_COUNT]
        settled = await self._until_told(
            [held for held, _ in batch],
            lambda: self._box.retry(
                [held.claim for held, _ in batch],
                error=[error_words(how.error) for _, how in batch],
                delay=[how.delay for _, how in batch],
                excuse=[how.excuse for _, how in batch],
            ),
        )
        self._tally.retried += len(settled)
        del self._retries[: len(batch)]

    async def _settle_kills(self) -> None:
        batch = self._kills[:STEP_COUNT]
        settled = await self._until_told(
            [held for held, _ in batch],
            lambda: self._box.kill(
                [held.claim for held, _ in batch], reason=[reason for _, reason in batch], drop=self._drop
            ),
        )
        self._tally.dead += len(settled)
        del self._kills[: len(batch)]

    async def _settle_releases(self) -> None:
        batch = self._releases[:STEP_COUNT]
        settled = await self._until_told(batch, lambda: self._box.release([held.claim for held in batch]))
        self._tally.released += len(settled)
        del self._releases[: len(batch)]

    async def _until_told(self, batch: list[Held], tell: Callable[[], Awaitable[list[bool]]]) -> list[Held]:
        """Those that were settled; the others were no longer ours.

        Repeated while the store does not answer and a lease may still hold: the fence makes that safe. If the first
        try was carried out and only its reply was lost, the second finds the claim gone, and that is counted as
        fenced, although it is settled.
        """
        loop, waits = asyncio.get_running_loop(), pauses()
        while True:
            try:
                settled = [held for held, done in zip(batch, await tell(), strict=True) if done]
                self._tally.fenced += len(batch) - len(settled)
                break
            except DurabilityNotReached as error:  # what it changed is there
                logger.warning("settled, but: %s", error)
                settled = batch
                break
            except PASSING as error:
                if loop.time() >= max(held.deadline for held in batch):
                    self._tally.unsettled += len(batch)
                    logger.error("%d events could not be settled before their leases ended: %s", len(batch), error)
                    settled = []
                    break
                logger.warning("settling again: %s", error)
            await asyncio.sleep(next(waits))
        self._forget(batch)
        return settled
