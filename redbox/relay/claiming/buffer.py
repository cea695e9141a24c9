"""The buffer: claims whose publish has not started, and the wake-ups of those who fill it and of the workers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from redbox.relay.claiming.held import Held


class Buffer:
    """A queue of claims. Taking one wakes the next worker, and asks for more when few are left.

    `dead_letters_first`: events for the dead-letter target are taken before all others.
    """

    def __init__(self, *, dead_letters_first: bool) -> None:
        self._dead_letters_first = dead_letters_first
        self._queue: deque[Held] = deque()
        self._idle: list[asyncio.Future[None]] = []  # workers that wait
        self._spare: asyncio.Future[None] | None = None  # waits for work that no worker is idle for
        self._woken = False  # a worker was woken or is being started, and has not begun yet
        self._refill_at = 0
        #: Set when more may be claimed: few events are left here, the workers have become idle, or a worker, or memory,
        #: has become free.
        self.refill = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    # --- filling -------------------------------------------------------------------------------------------------

    def add(self, helds: Iterable[Held]) -> None:
        self._queue.extend(helds)
        self._wake()

    def add_dead_letter(self, held: Held) -> None:
        """Adds an event for the dead-letter target."""
        if self._dead_letters_first:
            self._queue.appendleft(held)
        else:
            self._queue.append(held)
        self._wake()

    def withdraw(self) -> list[Held]:
        """Removes and returns the events that are to be published; events for the dead-letter target stay."""
        withdrawn = [held for held in self._queue if held.dead_reason is None]
        dead_letters = [held for held in self._queue if held.dead_reason is not None]
        self._queue.clear()
        self._queue.extend(dead_letters)
        return withdrawn

    def clear(self) -> list[Held]:
        """Removes and returns all events."""
        cleared = list(self._queue)
        self._queue.clear()
        return cleared

    def set_refill_level(self, level: int) -> None:
        """`refill` is set when an event is taken and at most `level` are left."""
        self._refill_at = level

    def request_refill_if_empty(self) -> None:
        if not self._queue:
            self.refill.set()

    # --- taking --------------------------------------------------------------------------------------------------

    def peek(self) -> Held | None:
        """The event that is taken next; None if the buffer is empty."""
        return self._queue[0] if self._queue else None

    def take(self) -> Held | None:
        """Removes and returns the next event; None if the buffer is empty."""
        queue = self._queue
        if not queue:
            return None
        held = queue.popleft()
        if queue and not self._woken:
            self._wake()
        if len(queue) <= self._refill_at:
            self.refill.set()
        return held

    async def wait(self) -> None:
        """Waits, as a worker, until it is woken because there is an event. `worker_begins` must follow."""
        idle = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        await idle

    async def wait_for_spare_work(self) -> None:
        """Waits for an event that no idle worker takes, so that another worker can be started."""
        self._spare = asyncio.get_running_loop().create_future()
        self._wake()
        await self._spare

    def worker_begins(self) -> None:
        """A worker that was woken or started is about to take an event."""
        self._woken = False

    def _wake(self) -> None:
        """Wakes one worker, unless one is about to begin. It wakes the next if events are left when it takes one: with
        publishers that never wait, one worker does everything, and no other is woken in vain."""
        if self._woken or not self._queue:
            return
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                self._woken = True
                return
        if self._spare is not None and not self._spare.done():
            self._spare.set_result(None)
            self._woken = True
