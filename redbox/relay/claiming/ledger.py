"""The claims that a relay holds: how many, how many payload bytes, and how their leases are renewed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import anyio

from redbox.arguments import counted
from redbox.box import Box
from redbox.errors import StoreError
from redbox.events import Claim
from redbox.relay.claiming.buffer import Buffer
from redbox.relay.claiming.held import Held
from redbox.relay.digest import Digest
from redbox.settings import BATCH_COUNT
from redbox.store.scripts.replies import Packed

logger = logging.getLogger("redbox.relay")


class Holding(NamedTuple):
    """A summary of the held claims, for the next claim: their number, their bytes, and the event id if it is one."""

    claims: int
    bytes: int
    only: str


class Ledger:
    """Every claim from the moment it arrives until it is settled or lost.

    Claims are compared as objects. Neither the claim number nor the event id identifies one: a server that lost its
    data counts claims from 1 again, and the same event may be put again.
    """

    def __init__(self, box: Box, buffer: Buffer, digest: Digest, lease: float) -> None:
        self._box = box
        self._buffer = buffer
        self._digest = digest
        self._lease = lease
        self._helds: set[Held] = set()
        self.bytes = 0
        self._notify_at = 0
        self._shrunk = asyncio.Event()

    def __len__(self) -> int:
        return len(self._helds)

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._helds))

    def __contains__(self, held: Held) -> bool:
        return held in self._helds

    @property
    def owned(self) -> int:
        """The number of claims that are not lost."""
        return sum(not held.lost for held in self._helds)

    def holding(self, coming: Packed | None = None) -> Holding:
        """A summary of the held claims, and of `coming` claims that are not added yet."""
        only = next(iter(self._helds)).claim.event_id if len(self._helds) == 1 else ""
        if coming is None or not len(coming):
            return Holding(len(self._helds), self.bytes, only)
        only = coming.first_id if not self._helds and len(coming) == 1 else ""
        return Holding(len(self._helds) + len(coming), self.bytes + coming.size, only)

    def add(self, claims: Iterable[Claim], claimed_at: float, deadline: float) -> list[Held]:
        """Holds claims; both times are on the event loop's clock."""
        helds = [Held(claim, claimed_at, deadline) for claim in claims]
        for held in helds:
            self._helds.add(held)
            self.bytes += len(held.claim.event.payload)
        return helds

    def forget(self, helds: Iterable[Held]) -> None:
        """Removes claims that are settled or lost; others change nothing."""
        for held in helds:
            if held in self._helds:
                self._helds.remove(held)
                self.bytes -= len(held.claim.event.payload)
        if len(self._helds) <= self._notify_at:
            self._shrunk.set()
        self._buffer.request_refill_if_empty()

    def notify_at(self, count: int) -> asyncio.Event:
        """An event that is set when claims are forgotten and at most `count` are left. One waiter at a time."""
        self._notify_at = count
        self._shrunk.clear()
        return self._shrunk

    # --- renewing ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Renews each lease when a third of it has passed, until it is cancelled."""
        now, lease = asyncio.get_running_loop().time, self._lease
        while True:
            await anyio.sleep(lease / 6)
            ageing = [held for held in self._helds if held.deadline - now() < lease * 2 / 3 and not held.lost]
            for first in range(0, len(ageing), BATCH_COUNT):
                await self._renew(ageing[first : first + BATCH_COUNT])

    async def _renew(self, batch: list[Held]) -> None:
        asked_at = asyncio.get_running_loop().time()
        try:
            renewed = await self._box.renew([held.claim for held in batch], lease=self._lease)
        except StoreError as error:
            text = "%s could not be renewed (%s), trying again; an event whose lease expires is published again"
            logger.warning(text, counted(len(batch), "lease"), error)
            return
        for held, ours in zip(batch, renewed, strict=True):
            if ours:
                held.deadline = asked_at + self._lease
            elif held in self._helds:  # not settled meanwhile
                held.lost = True
                text = f"the lease of event {held.claim.event_id} was lost"
                why = "the claim is no longer ours; the event may be delivered twice"
                self._digest.write(logging.WARNING, "lease", text, why, held.claim.event_id)

    async def renew_alone(self, held: Held) -> bool:
        """Renews the lease of a suspect, and marks that it is published alone. False if the claim is lost."""
        asked_at = asyncio.get_running_loop().time()
        (ours,) = await self._box.renew(held.claim, lease=self._lease, alone=True)
        if ours:
            held.deadline = asked_at + self._lease
        return ours
