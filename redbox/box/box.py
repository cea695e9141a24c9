"""Box: what an application holds. Puts events, reads them, and makes every transition of their lifecycle."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from msgspec import Struct

from redbox.arguments import event_ids, flag, one_of, text, whole_number
from redbox.box import bulk
from redbox.box.claims import Lifecycle
from redbox.box.coalescer import Lane
from redbox.box.operate import Operate, available_argument, operator_name
from redbox.box.receipts import Receipts, chunks, refused
from redbox.box.reports import Page, Replayed, Stats, Swept, decode_stats
from redbox.box.selection import select
from redbox.box.transaction import Transaction
from redbox.durations import Duration
from redbox.errors import (
    BatchRefused,
    Conflict,
    Refused,
    StoreError,
    UsageError,
)
from redbox.events import Event, Receipt, Record, State, as_event, check_key, reason_text
from redbox.settings import (
    BATCH_BYTES,
    BATCH_COUNT,
    MAX_PAYLOAD,
    PAGE_LIMIT,
    Settings,
    to_meta,
)
from redbox.store import connect
from redbox.store.codec import EncodedEvent, encode_event
from redbox.store.durability import Durability
from redbox.store.exchanges import OTHER_LOOP
from redbox.store.store import PutMode, Store
from redbox.telemetry import current_traceparent

logger = logging.getLogger("redbox")

T = TypeVar("T")
Reason = str | BaseException
OnConflict = Literal["raise", "skip"]
OnBatchConflict = Literal["raise", "skip", "all_or_nothing"]
URL_VARIABLE: Final = "REDBOX_URL"
_UNSET: Any = object()


def default_url(url: str | None) -> str:
    """The given URL, or that of the environment."""
    found = os.environ.get(URL_VARIABLE) if url is None else url
    if found is None or found == "":
        raise UsageError(
            "no store: give a URL such as 'redis://localhost:6379/0' or client=your_redis, or set the environment "
            f"variable {URL_VARIABLE}"
        )
    return found


class Box(Lifecycle):
    """A named outbox on a Redis. Make one with `Box.open`; it connects when first used."""

    def __init__(self, store: Store, durability: str, max_payload: int) -> None:
        self._store = store
        self._durability = Durability.parse(durability)
        self._max_payload = max_payload
        self._receipts = Receipts(store.box, max_payload)
        self._lanes: dict[Durability, Lane] = {}
        self._closed = False
        self.operate = Operate(store, self._ensure_open)

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        name: str = "default",
        client: Any = None,
        durability: str = "server",
        max_payload: int = MAX_PAYLOAD,
    ) -> Box:
        """A box by URL, or on a `redis.asyncio` client of the application's own. No I/O happens yet.

        Without either, the URL is that of the environment variable REDBOX_URL.

        Of a client's connections the box keeps one, a relay that waits one more; a transaction takes one for a moment.

        `durability`: what a put waits for: "server" (as the server is configured), "fsync" or "replicas=N".
        """
        if client is None:
            url = default_url(url)
        elif url is not None:
            raise UsageError("give either a URL such as 'redis://localhost:6379/0' or client=your_redis, not both")
        whole_number("max_payload", max_payload, 1, BATCH_BYTES)
        endpoint = connect.from_url(url) if url is not None else connect.from_client(client)
        return cls(Store(endpoint, name), durability, max_payload)

    @property
    def name(self) -> str:
        return self._store.box

    @property
    def where(self) -> str:
        """The store in words, without secrets."""
        return self._store.where

    def __repr__(self) -> str:
        return f"Box({self.name!r} on {self._store.where})"

    async def __aenter__(self) -> Self:
        self._ensure_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Waits for what is under way, then closes redbox's own connections. A client that was given stays open.

        Of a call that makes several steps, such as a long put_many or replay, the step under way is finished.
        """
        self._closed = True
        for lane in self._lanes.values():
            if lane.loop is asyncio.get_running_loop():
                await lane.drain()
        await self._store.close()

    def _ensure_open(self) -> None:
        if self._closed:
            raise UsageError("this box was closed; open it again with Box.open")

    # --- putting -------------------------------------------------------------------------------------------------

    async def put(
        self, event: Event | Struct, *, on_conflict: OnConflict = "raise", durability: str | None = None
    ) -> Receipt:
        """Stores an event; returns when it is persisted. Concurrent puts share one round trip.

        Putting an id again with the same content changes nothing and is told by `created=False`.
        """
        self._ensure_open()
        one_of("on_conflict", on_conflict, ("raise", "skip"))
        event = as_event(event)
        encoded = self._encode(event, current_traceparent())
        level = self._level(durability)
        lane = self._lanes.get(level)
        if lane is None or lane.loop is not asyncio.get_running_loop():
            lane = self._new_lane(level)
        try:
            return self._receipts.of(event, await lane.put(encoded), level)
        except Conflict as conflict:
            if on_conflict == "raise":
                raise
            return refused(event, conflict, level)
        except StoreError as error:  # this caller's own copy: let it say what to put again
            error.event_id = event.event_id
            error.args = (f"{error.message} (event_id {event.event_id})",)
            raise

    async def put_many(
        self, events: Iterable[Event | Struct], *, on_conflict: OnBatchConflict = "raise", durability: str | None = None
    ) -> list[Receipt]:
        """Stores events in the order given; returns a receipt for each.

        "raise" stops at the first refusal with BatchRefused, which carries the receipts so far; "skip" puts as many as
        possible; "all_or_nothing" puts all or none, in one step, up to 1,000 events or 8 MiB.
        """
        self._ensure_open()
        one_of("on_conflict", on_conflict, ("raise", "skip", "all_or_nothing"))
        level = self._level(durability)
        if isinstance(events, Struct | str | bytes) or not isinstance(events, Iterable):
            raise UsageError("put_many takes an iterable of events; for one event use put")
        traceparent = current_traceparent()
        encoded = [(event := as_event(item), self._encode(event, traceparent)) for item in events]
        if on_conflict == "all_or_nothing":
            size = sum(len(each.body) for _, each in encoded)
            if len(encoded) > BATCH_COUNT or size > BATCH_BYTES:
                raise UsageError(
                    f"all_or_nothing takes up to {BATCH_COUNT:,} events or {BATCH_BYTES:,} bytes; "
                    "give fewer, or use another mode"
                )
            steps = [encoded] if encoded else []
        else:
            steps = chunks(encoded)
        modes: dict[OnBatchConflict, PutMode] = {"raise": "until", "skip": "each", "all_or_nothing": "all"}
        mode = modes[on_conflict]
        receipts: list[Receipt] = []
        for chunk in steps:
            try:
                replies = await self._store.put(mode, [each for _, each in chunk], level)
            except StoreError as error:
                error.after(len(receipts), receipts)
                raise
            if mode == "all":
                self._receipts.raise_refusal([event for event, _ in chunk], replies, level)
            for (event, _), reply in zip(chunk, replies, strict=True):
                try:
                    receipts.append(self._receipts.of(event, reply, level))
                except Refused as refusal:
                    if on_conflict != "skip":
                        index = len(receipts)
                        message = f"event {index} of the batch was refused: {refusal}"
                        raise BatchRefused(message, receipts, index) from refusal
                    receipts.append(refused(event, refusal, level))
        return receipts

    def _new_lane(self, level: Durability) -> Lane:
        """A lane on this event loop; puts that a closed loop left unanswered are forgotten."""
        before = self._lanes.get(level)
        if before is not None and before.busy:
            raise UsageError(OTHER_LOOP)
        lane = self._lanes[level] = Lane(self._store, level)
        return lane

    def transaction(self, *, durability: str | None = None) -> Transaction:
        """Events and the caller's own Redis writes in one MULTI/EXEC."""
        self._ensure_open()
        return Transaction(self._store, self._level(durability), self._encode, self._receipts)

    def _encode(self, event: Event, traceparent: str | None) -> EncodedEvent:
        metadata = event.metadata
        if traceparent is not None and "traceparent" not in metadata:
            metadata = {**metadata, "traceparent": traceparent}
        return encode_event(event, self._max_payload, metadata)

    def _level(self, durability: str | None) -> Durability:
        return self._durability if durability is None else Durability.parse(durability)

    # --- looking -------------------------------------------------------------------------------------------------

    async def get(self, event_id: str) -> Record | None:
        """Everything the box knows of one event, or None."""
        self._ensure_open()
        (record,) = await self._store.get([text("event_id", event_id)])
        return record

    async def page(self, *, limit: int = 100, cursor: str | None = None, **filters: Any) -> Page:
        """A slice of `list`, and a cursor to go on."""
        self._ensure_open()
        return await bulk.page(self._store, select(**filters), limit, cursor)

    async def stats(self) -> Stats:
        """Counts by phase, ages and totals, at one moment."""
        self._ensure_open()
        return decode_stats(self.name, await self._store.stats())

    async def settings(self) -> Settings:
        self._ensure_open()
        return Settings.from_meta(await self._store.meta())

    async def exists(self) -> bool:
        """Whether there is such a box: something was put into it, or it was configured."""
        self._ensure_open()
        return bool(await self._store.meta())

    async def names(self) -> list[str]:
        """The names of all boxes on the same server."""
        self._ensure_open()
        return await self._store.boxes()

    # --- bulk ----------------------------------------------------------------------------------------------------

    async def replay(
        self,
        ids: Sequence[str] | None = None,
        *,
        state: State | str | None = None,
        event_type: str | None = None,
        key: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        reset: bool = True,
        delay: Duration | None = None,
        force: bool = False,
        dry_run: bool = False,
        rate: float | None = None,
        who: str | None = None,
        why: str = "",
        progress: bulk.Progress | None = None,
    ) -> Replayed:
        """Sends PUBLISHED or DEAD events back to PENDING: by ids, or by filter (DEAD unless `state` says otherwise).

        All of them: `state="DEAD"` alone. Earlier attempts are excused and last_error is cleared unless `reset=False`.
        Refused, unless by `force`: one whose unique_key another event holds, or that another event was put in the place
        of. `rate` is events per second. Recorded in the box's log, by default under the name of the process' user.
        """
        self._ensure_open()
        filters = {
            "state": state, "event_type": event_type, "key": key, "error": error, "since": since, "until": until,
        }  # fmt: skip
        filtered = any(value is not None for value in filters.values())
        if (ids is None) == (not filtered):
            raise UsageError("say what to replay: ids, or a filter; all dead events: state='DEAD'")
        if who is not None and who != "":
            check_key("who", who)
        bulk.check_rate(rate)
        for name, value in (("reset", reset), ("force", force), ("dry_run", dry_run)):
            flag(name, value)
        if progress is not None and not callable(progress):
            raise UsageError("progress must be a function of the number of events done")
        if filters["state"] is None:
            filters["state"] = State.DEAD
        selection = select(**filters)
        if selection.state not in (State.PUBLISHED, State.DEAD):
            raise UsageError("only PUBLISHED and DEAD events can be replayed")
        return await bulk.replay(
            self._store,
            None if ids is None else event_ids(ids),
            selection,
            reset=reset,
            available=available_argument(delay, None),
            force=force,
            dry_run=dry_run,
            rate=rate,
            who=operator_name() if who is None else who,
            why=reason_text("why", why),
            durability=self._durability,
            progress=progress,
        )

    async def sweep(
        self,
        *,
        keep_published: Duration | None = _UNSET,
        keep_published_count: int | None = _UNSET,
        keep_dead: Duration | None = _UNSET,
        keep_dead_count: int | None = _UNSET,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Swept:
        """Removes PUBLISHED and DEAD events past their retention; what is not given comes from the box's settings.

        `limit` bounds how many are removed, PUBLISHED ones first.
        """
        self._ensure_open()
        flag("dry_run", dry_run)
        if limit is not None:
            whole_number("limit", limit, 0)
        given = {
            "keep_published": keep_published, "keep_published_count": keep_published_count,
            "keep_dead": keep_dead, "keep_dead_count": keep_dead_count,
        }  # fmt: skip
        changes = to_meta({name: value for name, value in given.items() if value is not _UNSET})
        settings = Settings.from_meta({**await self._store.meta(), **changes})
        keep = {
            State.PUBLISHED: (settings.keep_published, settings.keep_published_count),
            State.DEAD: (settings.keep_dead, settings.keep_dead_count),
        }
        return await bulk.sweep(self._store, keep=keep, dry_run=dry_run, limit=limit)

    # --- last in the class, since its name hides the builtin one -------------------------------------------------

    async def list(
        self,
        *,
        state: State | str | None = None,
        event_type: str | None = None,
        key: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Record]:
        """Records by state, and in order of time; `event_type` is a glob. Changes nothing.

        PENDING come in three groups: those a relay can take, those that wait behind the head of their line, suspects.

        An event that changes state meanwhile may be seen once, twice or not at all; one that does not, exactly once.
        """
        filters = {
            "state": state, "event_type": event_type, "key": key, "error": error, "since": since, "until": until,
        }  # fmt: skip
        left, cursor = None if limit is None else whole_number("limit", limit, 0), None
        while left is None or left > 0:
            found = await self.page(
                limit=PAGE_LIMIT if left is None else min(left, PAGE_LIMIT), cursor=cursor, **filters
            )
            for record in found.records:
                yield record
            cursor = found.cursor
            left = None if left is None else left - len(found.records)
            if cursor is None:
                return
