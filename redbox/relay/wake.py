"""How an idle relay learns that there is work: by a hint, or by looking when something falls due."""

from __future__ import annotations

import asyncio
from typing import Final

import anyio

from redbox.box import Box
from redbox.relay.claimer import Asker

SOON: Final = 0.005  # not worth a question that has to be hurried


class Waker:
    """Waits on the box's hints. They may get lost: nothing waits longer than the poll interval.

    Where a wait can be ended before its time, the wait and the claim are one question, so that an event is claimed as
    soon as it is hinted at. Elsewhere the question outlasts a wait that ends because something fell due: a server ends
    its own waits up to 100 ms late, and giving up on one costs the connection.
    """

    def __init__(self, box: Box, asker: Asker, poll: float) -> None:
        self._box = box
        self._asker = asker
        self._poll = poll
        self._can_claim: bool | None = None
        self._asking: asyncio.Task[bool] | None = None

    async def wait(
        self, due_in: float | None, limit: int, *, holding: int, beside: str, size: int, probe: bool
    ) -> None:
        """Until a hint comes, the next event is due, or it is time to look anyway. Then up to `limit` events may be
        claimed already."""
        if due_in is not None and due_in < SOON:
            await asyncio.sleep(due_in)
            return
        if self._can_claim is None:
            self._can_claim = await self._box.can_end_wait()
        if self._can_claim:
            self._asker.ask(limit, holding=holding, beside=beside, size=size, wait=True, probe=probe)
            await self._asker.answered(due_in)
            return
        if self._asking is None:
            self._asking = asyncio.create_task(self._box.wait_for_hint(self._poll))
        longest = self._poll if due_in is None else min(self._poll, due_in)
        done, _ = await asyncio.wait((self._asking,), timeout=longest)
        if done:
            asked, self._asking = self._asking, None
            await asked  # raises what the store said

    async def aclose(self) -> None:
        """Asks no more."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait((asking,))
            if not asking.cancelled():
                asking.exception()  # nobody asks any more
