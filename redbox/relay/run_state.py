"""The state of one run that several parts of a relay read: draining, stopping, paused, out of events, or
held back by max_in_flight."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import anyio


class RunState:
    """Changed only by its methods."""

    def __init__(self) -> None:
        self.draining = False  # the run ends when nothing is available
        self.stopping = False  # nothing more is claimed
        self.paused = False  # at the last claim, the box was paused
        self.out_of_events = False  # the last claim left nothing to claim, and the relay waits for more
        self.slots_full = (
            False  # max_in_flight of the box holds back due events, and the relay waits for a claim to end
        )
        self._wait: anyio.CancelScope | None = None

    @property
    def waiting(self) -> bool:
        """Whether the relay is in `wait_for`."""
        return self._wait is not None

    def stop(self) -> None:
        """Ends the current wait, and every later one at once."""
        self.stopping = True
        if self._wait is not None:
            self._wait.cancel()

    def set_draining(self, draining: bool) -> None:
        self.draining = draining

    def set_paused(self, paused: bool) -> None:
        self.paused = paused

    def set_out_of_events(self, out_of_events: bool) -> None:
        self.out_of_events = out_of_events

    def set_slots_full(self, slots_full: bool) -> None:
        self.slots_full = slots_full

    async def wait_for(self, awaitable: Awaitable[Any]) -> None:
        """Waits until `awaitable` completes or the relay is stopped. One wait at a time."""
        with anyio.CancelScope() as self._wait:
            if self.stopping:
                self._wait.cancel()
            await awaitable
        self._wait = None
