"""The settler: settles claims in batches. Outcomes that arrive during one call are sent with the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import takewhile
from typing import Final, NamedTuple

from redbox.box import Box
from redbox.errors import PASSING, DurabilityNotReached
from redbox.relay.claiming.held import Held
from redbox.relay.claiming.ledger import Ledger
from redbox.relay.outcomes.error_text import error_text
from redbox.relay.report import Tally
from redbox.settings import BATCH_COUNT
from redbox.store.scripts.steps import STEP_COUNT, ack_work, first_step

logger = logging.getLogger("redbox.relay")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0


def pauses() -> Iterator[float]:
    """Seconds between two calls while the store does not answer; each is twice the one before, up to a limit."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)


class Retry:
    """How an event is retried: after `delay` seconds, because of `error`. `excuse`: the attempt does not count."""

    __slots__ = ("delay", "error", "excuse")

    def __init__(self, delay: float, error: BaseException, excuse: bool) -> None:
        self.delay = delay
        self.error = error
        self.excuse = excuse


class Kill(NamedTuple):
    """How an event is marked DEAD. `drop`: it is removed instead of kept."""

    reason: str
    drop: bool


class Settler:
    """Collects outcomes, and settles them in the store. A claim that is settled or lost leaves the ledger."""

    def __init__(self, box: Box, tally: Tally, ledger: Ledger, *, delete: bool, drop: bool) -> None:
        self._box = box
        self._tally = tally
        self._ledger = ledger
        self._delete, self._drop = delete, drop
        self._acks: list[Held] = []
        self._retries: list[tuple[Held, Retry]] = []
        self._kills: list[tuple[Held, Kill]] = []
        self._releases: list[Held] = []
        self._work = asyncio.Event()

    # --- outcomes; these only collect ----------------------------------------------------------------------------

    def ack(self, held: Held) -> None:
        self._acks.append(held)
        self._work.set()

    def retry(self, held: Held, delay: float, error: BaseException, *, excuse: bool) -> None:
        self._retries.append((held, Retry(delay, error, excuse)))
        self._work.set()

    def kill(self, held: Held, reason: str, *, keep: bool = False) -> None:
        """`keep`: the event is kept as DEAD, also by a relay that drops dead events."""
        self._kills.append((held, Kill(reason, drop=self._drop and not keep)))
        self._work.set()

    def release(self, held: Held) -> None:
        self._releases.append(held)
        self._work.set()

    def release_all(self, helds: Iterable[Held]) -> None:
        for held in helds:
            self.release(held)

    # --- settling ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Settles until it is cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            await self.settle_all()

    async def settle_all(self) -> None:
        """Settles the collected outcomes. If it is cancelled, outcomes that are not settled stay collected."""
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
        settled = await self._settle(batch, lambda: self._box.ack([held.claim for held in batch], delete=self._delete))
        self._tally.acked(settled)
        del self._acks[: len(batch)]

    async def _settle_retries(self) -> None:
        batch = self._retries[:STEP_COUNT]
        settled = await self._settle(
            [held for held, _ in batch],
            lambda: self._box.retry(
                [held.claim for held, _ in batch],
                error=[error_text(how.error) for _, how in batch],
                delay=[how.delay for _, how in batch],
                excuse=[how.excuse for _, how in batch],
            ),
        )
        delays = {id(held): how.delay for held, how in batch}
        self._tally.will_retry(settled, [delays[id(held)] for held in settled])
        del self._retries[: len(batch)]

    async def _settle_kills(self) -> None:
        drop = self._kills[0][1].drop
        batch = list(takewhile(lambda each: each[1].drop is drop, self._kills[:STEP_COUNT]))
        settled = await self._settle(
            [held for held, _ in batch],
            lambda: self._box.kill(
                [held.claim for held, _ in batch], reason=[how.reason for _, how in batch], drop=drop
            ),
        )
        reasons = {id(held): how.reason for held, how in batch}
        self._tally.killed(settled, [reasons[id(held)] for held in settled])
        del self._kills[: len(batch)]

    async def _settle_releases(self) -> None:
        batch = self._releases[:STEP_COUNT]
        settled = await self._settle(batch, lambda: self._box.release([held.claim for held in batch]))
        self._tally.released += len(settled)
        del self._releases[: len(batch)]

    async def _settle(self, batch: list[Held], call: Callable[[], Awaitable[list[bool]]]) -> list[Held]:
        """Returns the claims that were settled; the others were lost.

        The call is repeated while the store does not answer and a lease may still be valid: the fence makes that safe.
        If only the reply to the first call was lost, the second finds the claim gone, and counts it as fenced although
        it is settled.
        """
        loop, waits = asyncio.get_running_loop(), pauses()
        while True:
            try:
                settled = [held for held, done in zip(batch, await call(), strict=True) if done]
                self._tally.fenced += len(batch) - len(settled)
                break
            except DurabilityNotReached as error:  # the settlement itself was made
                logger.warning("settled, but not as durable as required: %s", error)
                settled = batch
                break
            except PASSING as error:
                if loop.time() >= max(held.deadline for held in batch):
                    self._tally.unsettled += len(batch)
                    events = "1 event" if len(batch) == 1 else f"{len(batch)} events"
                    logger.error("%s could not be settled before the lease ended: %s", events, error)
                    settled = []
                    break
                logger.warning("settling again after an error: %s", error)
            await asyncio.sleep(next(waits))
        self._ledger.forget(batch)
        return settled
