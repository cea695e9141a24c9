"""Asks the store for claims, and goes on asking while what it got is unpacked and published."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from redbox.box import Box
from redbox.box.lifecycle import Packed
from redbox.relay.policy import Policy
from redbox.settings import BATCH_BYTES
from redbox.store.line import Wait

AGAIN: Final = 0.02
#: What a wait may use up of the leases that it brings, since it is not told when it ended.
WAIT_SHARE: Final = 1 / 6


class Answer(NamedTuple):
    """What the store gave; since when it is held, and when its leases end at the earliest."""

    packed: Packed
    since: float
    deadline: float


class Asker:
    """One question to the store at a time. Whoever is cancelled waiting for its answer finds it here later: what the
    store has given out must not be forgotten."""

    def __init__(self, box: Box, name: str, policy: Policy) -> None:
        self._box = box
        self._name = name
        self._policy = policy
        self._asking: asyncio.Task[Packed] | None = None
        self._asked_at = 0.0
        self._wait: Wait | None = None

    @property
    def under_way(self) -> bool:
        return self._asking is not None

    def ask(self, limit: int, *, holding: int, size: int, wait: bool = False) -> None:
        """Asks for up to `limit` events; `holding` claims of `size` bytes are in hand.

        `wait`: the question is answered when something may have become available, after the poll interval at the
        latest.
        """
        self._asked_at = asyncio.get_running_loop().time()
        self._wait = Wait(endable=True) if wait else None
        self._asking = asyncio.ensure_future(
            self._box.claim_packed(
                self._name,
                limit=limit,
                lease=self._policy.lease,
                attempts=self._policy.attempts,
                holding=holding,
                max_bytes=max(1, min(BATCH_BYTES, self._policy.buffer_bytes - size)),
                longest=min(self._policy.poll, self._policy.lease * WAIT_SHARE),
                wait=self._wait,
            )
        )

    async def answered(self, within: float | None) -> None:
        """Until there is an answer; a question that waits is told to do so no longer than this."""
        assert self._asking is not None
        done, _ = await asyncio.wait((self._asking,), timeout=within)
        if not done:
            await self.hurry()

    async def hurry(self) -> None:
        """Has a question that waits answered now."""
        while self._wait is not None and self._asking is not None and not self._asking.done():
            await self._wait.end()
            await asyncio.wait((self._asking,), timeout=AGAIN)

    async def answer(self) -> Answer:
        assert self._asking is not None
        try:
            packed = await asyncio.shield(self._asking)
        except BaseException:
            if self._asking.done() and (self._asking.cancelled() or self._asking.exception() is not None):
                self._asking = None  # there is nothing to find later
            raise
        self._asking = None
        since = self._asked_at if self._wait is None else asyncio.get_running_loop().time()
        return Answer(packed, since, self._asked_at + self._policy.lease)
