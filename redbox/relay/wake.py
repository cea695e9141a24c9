"""How an idle relay learns that there is work: by a hint, or by looking when something falls due."""

from __future__ import annotations

from typing import Final

from redbox.box import Box

SHORTEST: Final = 0.001


class Waker:
    """Waits on the box's hints. They may get lost: nothing waits longer than the poll interval."""

    def __init__(self, box: Box, poll: float) -> None:
        self._box = box
        self._poll = poll

    async def wait(self, due_in: float | None) -> bool:
        """Until a hint comes (True), the next event is due, or it is time to look anyway."""
        longest = self._poll if due_in is None else min(self._poll, due_in)
        return await self._box.wait_for_hint(max(SHORTEST, longest))
