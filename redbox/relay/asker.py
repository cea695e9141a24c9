"""Asks the store for claims, and goes on asking while what it got is unpacked and published."""

from __future__ import annotations

import asyncio

from redbox.box import Box
from redbox.box.lifecycle import Packed
from redbox.relay.policy import Policy
from redbox.settings import BATCH_BYTES


class Asker:
    """One question to the store at a time. Whoever is cancelled waiting for its answer finds it here later: what the
    store has given out must not be forgotten."""

    def __init__(self, box: Box, name: str, policy: Policy) -> None:
        self._box = box
        self._name = name
        self._policy = policy
        self._asking: asyncio.Task[Packed] | None = None
        self._asked_at = 0.0

    @property
    def under_way(self) -> bool:
        return self._asking is not None

    def ask(self, limit: int, *, holding: int, size: int) -> None:
        """Asks for up to `limit` events; `holding` claims of `size` bytes are in hand."""
        self._asked_at = asyncio.get_running_loop().time()
        self._asking = asyncio.ensure_future(
            self._box.claim_packed(
                self._name,
                limit=limit,
                lease=self._policy.lease,
                attempts=self._policy.attempts,
                holding=holding,
                max_bytes=max(1, min(BATCH_BYTES, self._policy.buffer_bytes - size)),
            )
        )

    async def answer(self) -> tuple[Packed, float]:
        """What the store gave, and when it was asked."""
        assert self._asking is not None
        try:
            packed = await asyncio.shield(self._asking)
        except BaseException:
            if self._asking.done() and (self._asking.cancelled() or self._asking.exception() is not None):
                self._asking = None  # there is nothing to find later
            raise
        self._asking = None
        return packed, self._asked_at
