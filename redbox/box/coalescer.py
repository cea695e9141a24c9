"""Coalesces concurrent puts: all puts of one turn of the event loop are sent in one or two calls.

Two calls may be in flight, so that the server works on one while this process prepares the other. Events with an
ordering key or other options are sent while no other call is in flight: so their order is the order on the server, even
when a connection breaks and the call is repeated.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from typing import Final

from redbox.errors import Effect, RedboxError, StoreUnavailable
from redbox.settings import BATCH_COUNT, STEP_BYTES
from redbox.store.codec import EncodedEvent
from redbox.store.scripts.replies import PutReply
from redbox.store.scripts.steps import WORK, put_work
from redbox.store.server.durability import Durability
from redbox.store.store import Store

QueuedPuts = list[tuple[EncodedEvent, asyncio.Future[PutReply]]]

AT_ONCE: Final = 2  # calls in flight
HALVED: Final = 50  # a queue of at least twice as many is sent in halves
SILENCE: Final = 0.3  # seconds; a call that fails after this time fails the puts queued behind it too


class Coalescer:
    """The puts of one box at one level of durability, on the event loop that it is made on."""

    def __init__(self, store: Store, durability: Durability) -> None:
        self.loop = asyncio.get_running_loop()
        self._store = store
        self._durability = durability
        self._queue: deque[tuple[EncodedEvent, asyncio.Future[PutReply]]] = deque()
        self._calls: set[asyncio.Task[None]] = set()
        self._alone = False  # no second call may be sent beside the one in flight
        self._soon = False  # `_begin` is scheduled for the end of this turn

    async def put(self, event: EncodedEvent) -> PutReply:
        """The script's reply for this event. Cancelling it does not affect others; the event may have been put."""
        answer: asyncio.Future[PutReply] = self.loop.create_future()
        self._queue.append((event, answer))
        if not self._soon and len(self._calls) < AT_ONCE:
            self._soon = True
            self.loop.call_soon(self._begin)
        return await answer

    @property
    def busy(self) -> bool:
        """Whether puts are unanswered on an event loop that still runs."""
        return bool(self._queue or self._calls) and not self.loop.is_closed()

    async def drain(self) -> None:
        """Waits until every put is answered."""
        while self._queue or self._calls:
            await (asyncio.wait(self._calls) if self._calls else asyncio.sleep(0))

    def _begin(self) -> None:
        """Sends queued events, as far as calls may be in flight."""
        self._soon = False
        while self._queue and len(self._calls) < AT_ONCE and not self._alone:
            alone = any(event.options for event, _ in self._queue)
            if alone and self._calls:
                return
            share = -(-len(self._queue) // (AT_ONCE - len(self._calls)))
            batch = self._next_batch(BATCH_COUNT if alone else max(HALVED, share))
            if batch:
                self._alone = alone
                call = self.loop.create_task(self._send(batch))
                self._calls.add(call)
                call.add_done_callback(self._ended)

    async def _send(self, batch: QueuedPuts) -> None:
        began = self.loop.time()
        try:
            replies = await self._store.put("each", [event for event, _ in batch], self._durability)
        except RedboxError as error:
            _fail(batch, error)
            if isinstance(error, StoreUnavailable) and self.loop.time() - began >= SILENCE:
                self._fail_queue(error)
        except GeneratorExit:  # its event loop was closed: no caller waits any more
            raise
        except BaseException as error:  # the loop is closing, or a defect: every caller must get an answer
            failure = error if isinstance(error, Exception) else RedboxError("the put was cancelled")
            _fail([*batch, *self._queue], failure)
            self._queue.clear()
            raise
        else:
            for (_, answer), reply in zip(batch, replies, strict=True):
                if not answer.done():
                    answer.set_result(reply)

    def _fail_queue(self, error: StoreUnavailable) -> None:
        """Fails queued puts after a long silence of the store, so that they do not wait for it batch by batch."""
        queued, self._queue = list(self._queue), deque()
        _fail(queued, copy.copy(error).with_effect(Effect.NOTHING_CHANGED))  # they were not sent

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._alone = False
        self._begin()

    def _next_batch(self, count: int) -> QueuedPuts:
        """The first events of the queue that one call may take.

        An event that replaces another is not sent in the same call: the call is repeated after a lost reply, and would
        put the replaced event again if its replacement was published meanwhile.
        """
        batch: QueuedPuts = []
        keys: set[str] = set()
        size = work = 0
        while self._queue and len(batch) < min(count, BATCH_COUNT):
            event, answer = self._queue[0]
            size += len(event.body)
            work += put_work(event)
            if batch and (size > STEP_BYTES or work > WORK or (event.replaces and event.unique_key in keys)):
                break
            self._queue.popleft()
            if not answer.done():  # cancelled before it was sent
                batch.append((event, answer))
                if event.options:
                    keys.add(event.unique_key)
        return batch


def _fail(batch: QueuedPuts, error: Exception) -> None:
    for _, answer in batch:
        if not answer.done():
            own = copy.copy(error)  # each caller gets its own, since raising one adds to its traceback
            own.__cause__ = error.__cause__
            answer.set_exception(own)
