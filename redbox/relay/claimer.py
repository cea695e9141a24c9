"""Asks the store for claims, and goes on asking while what it got is unpacked and published."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from redbox.box import Box
from redbox.errors import RedboxError
from redbox.relay.policy import Policy
from redbox.settings import BATCH_BYTES
from redbox.store.replies import Packed
from redbox.store.wire.base import BlockingWait

logger = logging.getLogger("redbox.relay")

#: How long ending a wait may take, in seconds. While the server's writes are paused, it takes until they are resumed.
END_LIMIT: Final = 0.4
#: How long the last claim of a relay may take when the relay ends, in seconds.
LAST_CLAIM_LIMIT: Final = 1.0
#: What a wait may use up of the leases that it brings, since it is not told when it ended.
WAIT_SHARE: Final = 1 / 6


class Answer(NamedTuple):
    """What the store gave; since when it is held, and when its leases end at the earliest. `probe`: it was asked for
    while the breaker was not closed."""

    packed: Packed
    since: float
    deadline: float
    probe: bool


class Asker:
    """One question to the store at a time. Whoever is cancelled waiting for its answer finds it here later: what the
    store has given out must not be forgotten."""

    def __init__(self, box: Box, name: str, policy: Policy) -> None:
        self._box = box
        self._name = name
        self._policy = policy
        self._asking: asyncio.Task[Packed] | None = None
        self._asked_at = 0.0
        self._wait: BlockingWait | None = None
        self._probe = False

    @property
    def under_way(self) -> bool:
        return self._asking is not None

    def ask(
        self,
        limit: int,
        *,
        holding: int,
        beside: str,
        size: int,
        wait: bool = False,
        probe: bool = False,
        spread: bool = False,
    ) -> None:
        """Asks for up to `limit` events; `holding` claims of `size` bytes are in hand. If one, `beside` is its id.

        `wait`: the question is answered when something may have become available, after the poll interval at the
        latest. `probe`: it is for a sample. `spread`: not the oldest events, but some from the oldest to the newest.
        """
        self._probe = probe
        self._asked_at = asyncio.get_running_loop().time()
        self._wait = BlockingWait() if wait else None
        self._asking = asyncio.ensure_future(
            self._box.claim_packed(
                self._name,
                limit=limit,
                lease=self._policy.lease,
                attempts=self._policy.attempts,
                holding=holding,
                beside=beside,
                max_bytes=max(1, min(BATCH_BYTES, self._policy.buffer_bytes - size)),
                longest=min(self._policy.poll, self._policy.lease * WAIT_SHARE),
                wait=self._wait,
                spread=spread,
            )
        )

    @property
    def ready(self) -> bool:
        """Whether the answer is here."""
        return self._asking is not None and self._asking.done()

    async def answered(self, within: float | None = None) -> None:
        """Waits for the answer; after `within` seconds, a blocking wait is ended."""
        assert self._asking is not None
        done, _ = await asyncio.wait((self._asking,), timeout=within)
        if not done:
            await self._end_wait()

    async def _end_wait(self) -> bool:
        """Ends a blocking wait early, so that the answer comes now; False if the server did not do so in time."""
        if self._wait is None or self.ready:
            return True
        try:
            async with asyncio.timeout(END_LIMIT):
                await self._box.end_wait(self._wait)
        except (TimeoutError, RedboxError) as error:
            logger.debug("a wait was not ended: %s", error)
            return False
        return True

    async def end(self) -> Answer | None:
        """Ends the question, and returns its answer if that comes soon.

        While the server's writes are paused, a wait cannot be ended: then its connection is closed. A claim that is
        carried out all the same returns to PENDING when its lease ends.
        """
        assert self._asking is not None
        if await self._end_wait():
            await asyncio.wait((self._asking,), timeout=LAST_CLAIM_LIMIT)
        if self.ready:
            return await self.answer()
        logger.warning("a claim was not answered; if it is carried out, its events wait until their leases end")
        abandoned, self._asking = self._asking, None
        abandoned.cancel()
        await asyncio.wait((abandoned,))
        return None

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
        return Answer(packed, since, self._asked_at + self._policy.lease, self._probe)
