"""How an idle relay learns that there is work: by a hint, or by looking when something falls due."""

from __future__ import annotations

import asyncio

import anyio

from redbox.box import Box


class Waker:
    """Waits on the box's hints. They may get lost: nothing waits longer than the poll interval.

    The question to the server outlasts a wait that ends because something fell due: a server ends its own waits up to
    100 ms late, and giving up on one costs the connection.
    """

    def __init__(self, box: Box, poll: float) -> None:
        self._box = box
        self._poll = poll
        self._asking: asyncio.Task[bool] | None = None

    async def wait(self, due_in: float | None) -> None:
        """Until a hint comes, the next event is due, or it is time to look anyway."""
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
