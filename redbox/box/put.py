"""Puts: events are encoded, sent in chunks that one script call may take, and answered with receipts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, Literal, get_args

from msgspec import Struct

from redbox.arguments import one_of
from redbox.box.coalescer import Coalescer
from redbox.box.receipts import Receipts, chunks, refused
from redbox.errors import BatchRefused, Conflict, InvalidEvent, Refused, StoreError, UsageError
from redbox.events import Event, Receipt, as_event
from redbox.settings import BATCH_BYTES, BATCH_COUNT
from redbox.store.codec import EncodedEvent, encode_event
from redbox.store.exchanges import OTHER_LOOP
from redbox.store.server.durability import Durability
from redbox.store.store import PutMode, Store
from redbox.telemetry import current_traceparent

OnConflict = Literal["raise", "skip", "replace"]
OnBatchConflict = Literal["raise", "skip", "replace", "all_or_nothing"]
InTransaction = Literal["raise", "replace"]
_MODES: Final[dict[OnBatchConflict, PutMode]] = {
    "raise": "until", "skip": "each", "replace": "until", "all_or_nothing": "all",
}  # fmt: skip


class Puts:
    """The puts of one box."""

    def __init__(self, store: Store, durability: Durability, max_payload: int) -> None:
        self.receipts = Receipts(store.box, max_payload)
        self._store = store
        self._durability = durability
        self._max_payload = max_payload
        self._coalescers: dict[Durability, Coalescer] = {}

    def level(self, durability: str | None) -> Durability:
        """The durability of one put, by default that of the box."""
        return self._durability if durability is None else Durability.parse(durability)

    def encode(self, event: Event, traceparent: str | None, on_conflict: str) -> EncodedEvent:
        replace = on_conflict == "replace"
        if replace and event.unique_key is None:
            raise InvalidEvent("unique_key", 'on_conflict="replace" needs it: it names the event to replace')
        metadata = event.metadata
        if traceparent is not None and "traceparent" not in metadata:
            metadata = {**metadata, "traceparent": traceparent}
        return encode_event(event, self._max_payload, metadata, replace=replace)

    async def one(self, event: Event | Struct, on_conflict: OnConflict, durability: str | None) -> Receipt:
        one_of("on_conflict", on_conflict, get_args(OnConflict))
        event = as_event(event)
        encoded = self.encode(event, current_traceparent(), on_conflict)
        level = self.level(durability)
        if on_conflict == "replace":
            await self._store.permit_replacing()
        coalescer = self._coalescers.get(level)
        if coalescer is None or coalescer.loop is not asyncio.get_running_loop():
            coalescer = self._new_coalescer(level)
        try:
            return self.receipts.of(event, await coalescer.put(encoded), level)
        except Conflict as conflict:
            if on_conflict != "skip":
                raise
            return refused(event, conflict, level)
        except StoreError as error:  # a copy for this caller: it names the event to put again
            error.event_id = event.event_id
            error.with_effect(error.effect, f" (event_id {event.event_id})")
            raise

    async def many(
        self, events: Iterable[Event | Struct], on_conflict: OnBatchConflict, durability: str | None
    ) -> list[Receipt]:
        one_of("on_conflict", on_conflict, get_args(OnBatchConflict))
        level = self.level(durability)
        if isinstance(events, Struct | str | bytes) or not isinstance(events, Iterable):
            raise UsageError("put_many takes an iterable of events; for one event use put")
        traceparent = current_traceparent()
        encoded = [(event := as_event(item), self.encode(event, traceparent, on_conflict)) for item in events]
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
        if on_conflict == "replace":
            steps = [part for step in steps for part in _by_unique_key(step)]
            await self._store.permit_replacing()
        receipts: list[Receipt] = []
        for chunk in steps:
            try:
                replies = await self._store.put(_MODES[on_conflict], [each for _, each in chunk], level)
            except StoreError as error:
                error.after(len(receipts), receipts)
                raise
            if on_conflict == "all_or_nothing":
                self.receipts.raise_refusal([event for event, _ in chunk], replies, level)
            for (event, _), reply in zip(chunk, replies, strict=True):
                try:
                    receipts.append(self.receipts.of(event, reply, level))
                except Refused as refusal:
                    if on_conflict != "skip":
                        index = len(receipts)
                        message = f"event {index} of the batch was refused: {refusal}"
                        raise BatchRefused(message, receipts, index) from refusal
                    receipts.append(refused(event, refusal, level))
        return receipts

    async def drain(self) -> None:
        """Waits until every put that was accepted on this event loop is answered."""
        for coalescer in self._coalescers.values():
            if coalescer.loop is asyncio.get_running_loop():
                await coalescer.drain()

    def _new_coalescer(self, level: Durability) -> Coalescer:
        """A coalescer on this event loop. Puts that a closed loop left unanswered are forgotten."""
        before = self._coalescers.get(level)
        if before is not None and before.busy:
            raise UsageError(OTHER_LOOP)
        coalescer = self._coalescers[level] = Coalescer(self._store, level)
        return coalescer


def _by_unique_key(step: list[tuple[Event, EncodedEvent]]) -> Iterator[list[tuple[Event, EncodedEvent]]]:
    """Parts of a step, in order, in which no unique_key occurs twice. A call is repeated after a lost reply: if it had
    replaced one of its own events by another, which is delivered by then, the repeat would put the first one again."""
    part: list[tuple[Event, EncodedEvent]] = []
    keys: set[str | None] = set()
    for item in step:
        if item[0].unique_key in keys:
            yield part
            part, keys = [], set()
        part.append(item)
        keys.add(item[0].unique_key)
    yield part
