"""Coalesces concurrent puts: everything put in one turn of the event loop goes to the server in one script call.

At most one call is under way, so that the order of puts is the order on the server, also when a connection breaks and
the call is repeated.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from typing import Any

from redbox.errors import RedboxError
from redbox.settings import BATCH_BYTES, BATCH_COUNT
from redbox.store.durability import Durability
from redbox.store.store import Store

Arguments = tuple[Any, ...]


class Lane:
    """The puts of one box at one level of durability."""

    def __init__(self, store: Store, durability: Durability) -> None:
        self._store = store
        self._durability = durability
        self._queue: deque[tuple[Arguments, asyncio.Future[list[Any]]]] = deque()
        self._flusher: asyncio.Task[None] | None = None

    async def put(self, arguments: Arguments) -> list[Any]:
        """The script's reply for this one event. Cancelling it leaves the others alone; the event may have been put."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Any]] = loop.create_future()
        self._queue.append((arguments, answer))
        if self._flusher is None:
            self._flusher = loop.create_task(self._flush())
        return await answer

    async def drain(self) -> None:
        """Waits until everything that was put is answered."""
        if self._flusher is not None:
            await asyncio.wait([self._flusher])

    async def _flush(self) -> None:
        batch: list[tuple[Arguments, asyncio.Future[list[Any]]]] = []
        try:
            while batch := self._next_batch():
                try:
                    replies = await self._store.put("each", [arguments for arguments, _ in batch], self._durability)
                except RedboxError as error:
                    _fail(batch, error)
                else:
                    for (_, answer), reply in zip(batch, replies, strict=True):
                        if not answer.done():
                            answer.set_result(reply)
        except BaseException as error:  # the loop is closing, or a defect: nobody may be left waiting
            _fail(
                [*batch, *self._queue], error if isinstance(error, Exception) else RedboxError("the put was cancelled")
            )
            self._queue.clear()
            raise
        finally:
            self._flusher = None

    def _next_batch(self) -> list[tuple[Arguments, asyncio.Future[list[Any]]]]:
        batch: list[tuple[Arguments, asyncio.Future[list[Any]]]] = []
        size = 0
        while self._queue and len(batch) < BATCH_COUNT:
            arguments, answer = self._queue[0]
            size += len(arguments[2])
            if batch and size > BATCH_BYTES:
                break
            self._queue.popleft()
            if not answer.done():  # cancelled before it was sent
                batch.append((arguments, answer))
        return batch


def _fail(batch: list[tuple[Arguments, asyncio.Future[list[Any]]]], error: Exception) -> None:
    for _, answer in batch:
        if not answer.done():
            own = copy.copy(error)  # each caller gets its own, since raising one adds to its traceback
            own.__cause__ = error.__cause__
            answer.set_exception(own)
