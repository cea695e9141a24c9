"""The claimer: claims events for a relay, and waits until there may be more to claim."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

import anyio

from redbox.box import Box
from redbox.errors import PASSING, RedboxError
from redbox.events import Claim
from redbox.relay.claiming.ledger import Holding
from redbox.relay.policy import Policy
from redbox.settings import BATCH_BYTES
from redbox.store.scripts.replies import Packed
from redbox.store.wire.base import BlockingWait

logger = logging.getLogger("redbox.relay")

SOON: Final = 0.005  # seconds; a blocking wait for less than this is not worth its call
#: Seconds that ending a blocking wait may take. While the server's writes are paused, it takes until they are resumed.
END_LIMIT: Final = 0.4
#: Seconds that the last claim of a relay may take when the relay ends.
LAST_CLAIM_LIMIT: Final = 1.0
#: How much of a lease a blocking wait may consume: its reply does not say when it ended.
WAIT_SHARE: Final = 1 / 6


class ClaimReply(NamedTuple):
    """The store's reply to a claim. `claimed_at`: when its claims were made; `deadline`: the earliest time at which
    their leases may end; both on the event loop's clock. `probe`: the breaker was not closed when it was sent."""

    packed: Packed
    claimed_at: float
    deadline: float
    probe: bool


class Claimer:
    """Sends one claim at a time. If the task that waits for the reply is cancelled, the reply is kept for the next
    caller: claims that the store has made must not be forgotten.

    An idle relay waits for a hint, which may get lost: it never waits longer than the poll interval. Where a blocking
    wait can be ended early, the wait and the claim are one call, so that an event is claimed as soon as it is hinted
    at. Elsewhere the wait for a hint outlasts a wait that ended because an event became due: a server ends its own
    waits up to 100 ms late, and abandoning one costs the connection.
    """

    def __init__(self, box: Box, name: str, policy: Policy) -> None:
        self._box = box
        self._name = name
        self._policy = policy
        self._call: asyncio.Task[Packed] | None = None
        self._called_at = 0.0
        self._probe = False
        self._wait: BlockingWait | None = None  # the blocking wait of the current call
        self._can_end_wait: bool | None = None  # not known before the first wait
        self._hint: asyncio.Task[bool] | None = None

    @property
    def poll(self) -> float:
        """The poll interval, in seconds."""
        return self._policy.poll

    # --- claiming ------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether a claim was sent whose reply has not been fetched."""
        return self._call is not None

    @property
    def replied(self) -> bool:
        """Whether the reply has arrived and has not been fetched."""
        return self._call is not None and self._call.done()

    def claim(
        self, limit: int, holding: Holding, *, wait: bool = False, probe: bool = False, spread: bool = False
    ) -> None:
        """Sends a claim of up to `limit` events; `holding` is what the relay holds already.

        `wait`: the store replies when something may have become available, after the poll interval at the latest.
        `probe`: the claim is for a sample. `spread`: not the oldest events, but some from the oldest to the newest.
        """
        self._probe = probe
        self._called_at = asyncio.get_running_loop().time()
        self._wait = BlockingWait() if wait else None
        self._call = asyncio.ensure_future(
            self._box.claim_packed(
                self._name,
                limit=limit,
                lease=self._policy.lease,
                attempts=self._policy.attempts,
                holding=holding.claims,
                beside=holding.only,
                max_bytes=max(1, min(BATCH_BYTES, self._policy.buffer_bytes - holding.bytes)),
                longest=min(self._policy.poll, self._policy.lease * WAIT_SHARE),
                wait=self._wait,
                spread=spread,
            )
        )

    async def wait_for_reply(self, seconds: float | None = None) -> None:
        """Waits until the reply has arrived; after `seconds`, a blocking wait is ended."""
        assert self._call is not None
        done, _ = await asyncio.wait((self._call,), timeout=seconds)
        if not done:
            await self._end_wait()

    async def reply(self) -> ClaimReply:
        """Waits for the reply and fetches it; raises the error that the claim ended with."""
        assert self._call is not None
        try:
            packed = await asyncio.shield(self._call)
        except BaseException:
            if self._call.done() and (self._call.cancelled() or self._call.exception() is not None):
                self._call = None  # there is no reply to keep
            raise
        self._call = None
        claimed_at = self._called_at if self._wait is None else asyncio.get_running_loop().time()
        return ClaimReply(packed, claimed_at, self._called_at + self._policy.lease, self._probe)

    async def unpack(self, reply: ClaimReply) -> list[Claim]:
        """The claims of a reply."""
        return await self._box.unpack(reply.packed)

    async def end_claim(self) -> ClaimReply | None:
        """Ends the pending claim, and returns its reply if that arrives in time.

        While the server's writes are paused, a blocking wait cannot be ended: then its connection is closed. Claims
        that the store makes all the same return to PENDING when their leases end.
        """
        assert self._call is not None
        if await self._end_wait():
            await asyncio.wait((self._call,), timeout=LAST_CLAIM_LIMIT)
        if self.replied:
            return await self.reply()
        logger.warning("the last claim was not answered; its events return to PENDING when their leases end")
        abandoned, self._call = self._call, None
        abandoned.cancel()
        await asyncio.wait((abandoned,))
        return None

    async def _end_wait(self) -> bool:
        """Ends a blocking wait early, so that the reply arrives now; False if the server did not do so in time."""
        if self._wait is None or self.replied:
            return True
        try:
            async with asyncio.timeout(END_LIMIT):
                await self._box.end_wait(self._wait)
        except (TimeoutError, RedboxError) as error:
            logger.debug("a blocking wait was not ended: %s", error)
            return False
        return True

    async def reap(self) -> bool:
        """Returns events whose leases have ended to PENDING; False if there were none."""
        try:
            return bool(await self._box.reap())
        except PASSING as error:  # the next claim reports it
            logger.debug("nothing was reaped: %s", error)
            return False

    # --- waiting -------------------------------------------------------------------------------------------------

    async def wait_for_events(self, due_in: float | None, limit: int, holding: Holding, *, probe: bool) -> None:
        """Waits until a hint comes, the next event is due in `due_in` seconds, or the poll interval is over. Then a
        claim of up to `limit` events may be pending."""
        if due_in is not None and due_in < SOON:
            await asyncio.sleep(due_in)
            return
        if self._can_end_wait is None:
            self._can_end_wait = await self._box.can_end_wait()
        if self._can_end_wait:
            self.claim(limit, holding, wait=True, probe=probe)
            await self.wait_for_reply(due_in)
            return
        if self._hint is None:
            self._hint = asyncio.create_task(self._box.wait_for_hint(self._policy.poll))
        longest = self._policy.poll if due_in is None else min(self._policy.poll, due_in)
        done, _ = await asyncio.wait((self._hint,), timeout=longest)
        if done:
            hint, self._hint = self._hint, None
            await hint  # raises the store's error

    async def stop_waiting(self) -> None:
        """Ends the wait for a hint."""
        hint, self._hint = self._hint, None
        if hint is not None:
            hint.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait((hint,))
            if not hint.cancelled():
                hint.exception()  # marks it as retrieved
