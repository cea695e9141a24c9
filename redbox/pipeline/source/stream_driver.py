"""Drives a stream that drains a box: the part that keeps its batches in the store.

A batch is cut once, in Redis, and never changes: asked again for the same start, the driver returns the same batch.
Everything up to `start` is settled when the next batch is asked for and when one is planned, since Spark reports a
commit one batch late, never the last one, and none after a crash.

Spark keeps one Python process per query to drive it. That process may die at any line and be started again, and Spark
may ask the same thing twice: every step can be repeated, and the store fences a process that was replaced.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from redbox.errors import BoxPaused, Refused, StreamLost, StreamTaken, UsageError
from redbox.pipeline.source.connection import patiently
from redbox.pipeline.source.options import DrainOptions
from redbox.settings import BATCH_BYTES, BATCH_COUNT
from redbox.store import connect
from redbox.store.scripts.items import StreamBatch
from redbox.store.scripts.replies import Fence
from redbox.store.scripts.steps import batches
from redbox.store.store import Store

logger = logging.getLogger("redbox")

T = TypeVar("T")
ASK_AGAIN: Final = 1.0  # seconds between attempts to reclaim events that are not available
REPORT_AGAIN: Final = 60.0  # seconds between reports of them


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count:,} events"


def relay_of(stream: str) -> str:
    """The relay name under which a stream claims."""
    return f"stream:{stream}"


def new_owner() -> str:
    """A unique name for a driver."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


class StreamDriver:
    """Drives a stream: cuts its batches, keeps their leases, and settles what Spark has committed."""

    def __init__(self, options: DrainOptions) -> None:
        self._options = options
        self._relay = relay_of(options.stream)
        self._owner = options.owner or new_owner()
        self._store = Store(connect.from_url(options.at.url), options.at.box)
        self._lease = int(options.lease * 1000)
        self._cut = self._settled = self._goal = 0
        self._settling: Future[None] | None = None
        self._filling: Future[int] | None = None
        self._away: dict[int, list[str]] = {}  # members of each batch that are still to be reclaimed
        self._held = 0  # events that the stream held when this driver took it over
        self._asked = 0.0  # when it last tried to reclaim
        self._reported = -REPORT_AGAIN  # when it last reported missing members
        self._leased: dict[int, float] = {}  # when the leases of a batch began or were renewed
        self._loop = asyncio.new_event_loop()
        self._parent = os.getppid()
        self._thread = threading.Thread(target=self._loop.run_forever, name="redbox-stream", daemon=True)
        self._thread.start()
        self._holding: Future[None] | None = None  # set once this driver holds the stream

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Closes the connections; the leases stay as they are. Spark never calls it."""
        if self._holding is not None:
            self._holding.cancel()
        self._run(self._store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- called for Spark ----------------------------------------------------------------------------------------

    def time(self) -> int:
        return self._run(self._patiently(self._store.time))

    def next_batch(self, start: int, limit: int, until: int | None) -> int:
        """The number of the batch after `start`: one that was cut already, or a new one. Returns `start` when there is
        nothing to claim, or when an earlier batch cannot be reclaimed yet."""
        self._begin(start)
        if not self._is_whole(self._cut + 1):
            return start
        settled = self._settled
        batch = start + 1 if start < self._cut else self._cut_next(limit, until)
        self.settle(start)  # after the cut: so it runs while Spark works on the batch
        if batch == start:
            self.finish()  # the query may end here
            if self._settled > settled:  # their successors in their lines may be claimable now
                batch = self._cut_next(limit, until)
        return batch

    def _cut_next(self, limit: int, until: int | None) -> int:
        """Fills the open batch, and closes it unless it is empty. If it is full, more is likely to come: the next one
        is filled while Spark works on this one."""
        if self._filling is not None:
            filling, self._filling = self._filling, None
            filling.result()
        size = self._run(self._fill(limit, until))
        self._run(self._move("cut", self._cut + 1))
        if size >= limit:
            self._filling = asyncio.run_coroutine_threadsafe(self._fill(limit, until), self._loop)
        return self._cut

    def settle(self, upto: int) -> None:
        """Settles everything up to a batch that Spark has committed, while Spark goes on. Does nothing while a paused
        box holds back some of its events."""
        self._begin(upto)
        self._goal = max(self._goal, upto)
        if not self._is_whole(upto):
            return
        if self._settling is not None and self._settling.done():
            self.finish()
        if self._settling is None and self._settled < self._goal:
            self._settling = asyncio.run_coroutine_threadsafe(self._settle(), self._loop)

    def finish(self) -> None:
        """Waits until everything that is committed is settled; raises the error of a failed settlement."""
        while self._settling is not None:
            settling, self._settling = self._settling, None
            settling.result()
            if self._settled < self._goal:
                self._settling = asyncio.run_coroutine_threadsafe(self._settle(), self._loop)

    def settle_finally(self, upto: int, before: str = "") -> None:
        """Takes over a stream whose query has ended, settles everything up to a batch, and holds nothing further.

        With `before`, raises StreamTaken unless that owner still holds the stream.
        """

        async def settle_all() -> None:
            await self._own(upto, before)
            await self._check_claims(upto)
            await self._wait_for(upto)
            await self._settle()

        self._run(settle_all())

    def sizes(self, first: int, last: int) -> list[tuple[int, int]]:
        """The batches with their numbers of members, once all members are claimed by this stream. Waits for events that
        are not available yet, as long as the patience lasts."""
        self._run(self._wait_for(last))
        self.settle(first - 1)  # it may have waited for the same events

        async def count_all() -> list[tuple[int, int]]:
            return [(batch, await self._size(batch)) for batch in range(first, last + 1)]

        return self._run(count_all())

    def _begin(self, position: int) -> None:
        """Takes the stream over at the first call, if the checkpoint fits: a query with another checkpoint must not
        disturb the one with the right one. Later calls try again to reclaim what is missing."""
        if self._holding is None:
            self._run(self._adopt(position))
            self._holding = asyncio.run_coroutine_threadsafe(self._hold(), self._loop)
        self._check(position)
        if self._away and time.monotonic() - self._asked >= ASK_AGAIN:
            self._run(self._reclaim_away())

    def _is_whole(self, upto: int) -> bool:
        """Whether this stream holds all members of the batches up to this one."""
        return not any(batch <= upto for batch in self._away)

    def _check(self, position: int) -> None:
        """Raises UsageError unless the checkpoint belongs to this stream: then the two are at most one batch apart."""
        if not self._settled <= position <= self._cut:
            where = f"stream {self._options.stream!r} of box {self._options.at.box!r}"
            raise UsageError(
                f"this checkpoint does not fit: it is at batch {position}, and {where} has cut {self._cut} and "
                f"settled {self._settled}; use the checkpoint that the stream was started with, or another stream name"
            )

    # --- on the event loop ---------------------------------------------------------------------------------------

    def _batch(self, number: int) -> StreamBatch:
        return StreamBatch(self._options.stream, self._owner, number)

    async def _fill(self, limit: int, until: int | None) -> int:
        """Claims into the open batch until it is full or nothing is left; returns its size."""
        batch = self._cut + 1
        size, before = await self._size(batch), -1
        self._leased.setdefault(batch, time.monotonic())
        while before < size < limit:
            await self._claim(batch, min(limit - size, BATCH_COUNT), until)
            size, before = await self._size(batch), size
        return size

    async def _size(self, batch: int) -> int:
        return await self._patiently(lambda: self._store.member_count(self._options.stream, batch))

    async def _claim(self, batch: int, room: int, until: int | None) -> None:
        """Claims into the batch. A lost reply does no harm: the batch records what was claimed."""
        with suppress(BoxPaused):
            await self._patiently(
                lambda: self._store.cut_batch(self._batch(batch), self._relay, room, self._lease, BATCH_BYTES, until)
            )

    async def _settle(self) -> None:
        while self._settled < self._goal:
            batch, lost = self._settled + 1, 0
            while (gone := await self._patiently(lambda: self._settle_some(batch))) is not None:  # noqa: B023 - awaited
                lost += gone
            await self._move("settle", batch)
            self._leased.pop(batch, None)
            self._report(lost, f"when batch {batch} was settled: they are in the sink, and may be delivered again")

    async def _settle_some(self, batch: int) -> int | None:
        """Settles up to BATCH_COUNT members, which leave the batch; returns how many were lost, or None if empty."""
        members = await self._slice(batch, 0)
        if not members:
            return None
        words: list[bytes] = await self._store.settle_batch(self._batch(batch), self._relay, members)
        return sum(word != b"OK" for word in words)

    async def _slice(self, batch: int, first: int) -> list[Fence]:
        return await self._store.members(self._options.stream, batch, first, first + BATCH_COUNT - 1)

    async def _adopt(self, position: int) -> None:
        """Takes the stream over, and checks which of its events it still holds."""
        await self._own(position)
        await self._check_claims(self._cut + 1)  # the last one may be open: its cut was interrupted

    async def _own(self, position: int, before: str = "") -> None:
        await self._move("own", position, before)
        self._check(position)
        self._goal = max(self._goal, position)

    async def _check_claims(self, last: int) -> None:
        """Renews the claims of the batches up to the last one, and reclaims events whose leases have expired."""
        self._away, self._held = {}, 0
        for batch in range(self._settled + 1, last + 1):
            first = 0
            while members := await self._patiently(lambda: self._slice(batch, first)):  # noqa: B023 - awaited
                first += len(members)
                self._held += len(members)
                if gone := await self._renew(members):
                    self._away.setdefault(batch, []).extend(event_id for event_id, _ in gone)
        if self._away:
            await self._reclaim_away()

    async def _reclaim_away(self) -> None:
        """Claims again events that were returned to PENDING.

        A batch that Spark may have read must be repeated as it was, so it waits for events that are not available yet.
        A batch that is in the sink already waits only for the end of a pause.
        """
        self._asked = time.monotonic()
        back = lost = 0
        for batch, ids in list(self._away.items()):
            later: list[str] = []
            for some in batches(ids, BATCH_COUNT):
                words = await self._reclaim(batch, some)
                back, lost = back + words.count(b"OK"), lost + words.count(b"LEASELOST")
                waits = (b"PAUSED",) if batch <= self._goal else (b"PAUSED", b"NOTDUE")
                later += [event_id for event_id, word in zip(some, words, strict=True) if word in waits]
            self._away[batch] = later
            if not later:
                del self._away[batch]
        if back:
            whose = "whose lease" if back == 1 else "whose leases"
            logger.warning("stream %s reclaimed %s %s had expired", self._options.stream, _events(back), whose)
        self._report(lost, f"of {self._held:,} that it held: others claimed them after their leases had expired")
        if self._away and self._asked - self._reported >= REPORT_AGAIN:
            self._reported = self._asked
            logger.warning("%s", self._why_waiting())

    def _why_waiting(self) -> str:
        count, batch = sum(map(len, self._away.values())), min(self._away)
        return (
            f"stream {self._options.stream!r} waits for {_events(count)} of batch {batch} and later ones: "
            "released, and the box is paused or they are not available yet; resume the box, or reschedule them"
        )

    async def _wait_for(self, upto: int) -> None:
        deadline = time.monotonic() + self._options.patience
        while not self._is_whole(upto):
            if time.monotonic() + ASK_AGAIN > deadline:
                raise Refused(f"{self._why_waiting()}. The query can be started again at any time")
            await asyncio.sleep(ASK_AGAIN)
            await self._reclaim_away()

    async def _renew(self, members: list[Fence]) -> list[Fence]:
        """Renews the leases; returns the members that this stream no longer holds."""
        words = await self._patiently(lambda: self._store.renew(self._relay, self._lease, members))
        return [member for member, word in zip(members, words, strict=True) if word != b"OK"]

    async def _reclaim(self, batch: int, ids: list[str]) -> list[bytes]:
        """Claims events of a batch again; returns for each OK, LEASELOST, NOTDUE, LEFT or PAUSED."""
        try:
            words: list[bytes] = await self._patiently(
                lambda: self._store.reclaim(self._batch(batch), self._relay, self._lease, ids)
            )
        except BoxPaused:
            return [b"PAUSED"] * len(ids)
        return words

    async def _move(self, action: str, batch: int, before: str = "") -> None:
        cut, settled = await self._patiently(
            lambda: self._store.track_stream(action, self._options.stream, self._owner, batch, before)
        )
        self._cut, self._settled = max(self._cut, cut), max(self._settled, settled)  # one may overtake the other

    def _report(self, lost: int, how: str) -> None:
        if not lost:
            return
        sentence = f"stream {self._options.stream!r} lost {_events(lost)} {how}"
        if self._options.on_lost == "fail":
            raise StreamLost(f"{sentence}; to go on without such events set onLost to continue")
        logger.warning(sentence)

    async def _hold(self) -> None:
        """Renews the leases, also while Spark is busy or idle. Ends with the parent process, or when another driver
        has taken over."""
        while os.getppid() == self._parent:
            await asyncio.sleep(self._options.lease / 3)
            try:
                await self._store.track_stream("look", self._options.stream, self._owner)
                for batch in range(self._settled + 1, self._cut + 2):
                    await self._renew_batch(batch)
            except StreamTaken:
                return
            except Exception as error:  # the next turn may succeed, and the fence decides in the end
                logger.warning("the leases of stream %s were not renewed: %s", self._options.stream, error)

    async def _renew_batch(self, batch: int) -> None:
        """Renews the leases of a batch, unless they are young: most batches are settled before they need it."""
        now, first, leased = time.monotonic(), 0, self._leased.get(batch)
        if leased is not None and now - leased < self._options.lease / 3:
            return
        while members := await self._slice(batch, first):
            await self._store.renew(self._relay, self._lease, members)
            first += len(members)
        self._leased[batch] = now

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        return await patiently(self._options.patience, call)
