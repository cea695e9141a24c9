"""Fetches events by id in a task: few commands for many events, bounded in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from redbox.arguments import counted
from redbox.errors import StreamLost
from redbox.pipeline.source.connection import Connection
from redbox.pipeline.source.rows import STATE_OF, BatchBuilder, FetchedEvent
from redbox.settings import BATCH_BYTES
from redbox.store.damage import read_history
from redbox.store.scripts.replies import Fence, Fields, StoredEvent

FIRST_STEP: Final = 8  # bodies, while their size is not known
_STATE: Final = {index: state.value.encode() for index, state in STATE_OF.items()}


class Fetch:
    """Fetches events. Events that changed after a moment can be left out: then an event that moves between indexes
    while they are read does not appear twice."""

    def __init__(self, connection: Connection, moment: int = 0, claims: int = 0) -> None:
        self._connection = connection
        self._moment, self._claims = moment, claims
        self._step = FIRST_STEP

    def unchanged(self, index: str, ids: Sequence[str], builder: BatchBuilder) -> Iterator[list[FetchedEvent]]:
        """The events of an index that have not changed since the moment, in order."""
        for part, hashes in self._steps(ids, bodies=builder.with_body):
            events = [
                FetchedEvent(event_id, fields, body, index)
                for event_id, (fields, body) in zip(part, hashes, strict=True)
                if fields and not self._is_new(index, fields)
            ]
            incomplete = {event.event_id for event in events if _has_more(index, event.fields, builder)}
            if incomplete:
                events = self._with_history(events, incomplete)
            if events:
                yield events

    def wherever(self, ids: Sequence[str], builder: BatchBuilder) -> Iterator[list[FetchedEvent]]:
        """Events in any index."""
        for part, hashes in self._steps(ids, bodies=builder.with_body):
            bodies = {event_id: body for event_id, (fields, body) in zip(part, hashes, strict=True) if fields}
            events = self._pick(list(bodies)) if bodies else []
            for event in events:
                event.body = bodies[event.event_id]
            if events:
                yield events

    def held(self, members: Sequence[Fence], builder: BatchBuilder, *, strict: bool) -> Iterator[list[FetchedEvent]]:
        """Events that a stream holds by these claims. One that it no longer holds is an error, or else left out."""
        numbers = dict(members)
        for part, hashes in self._steps(list(numbers), bodies=builder.with_body):
            events: list[FetchedEvent] = []
            gone: list[FetchedEvent] = []
            for event_id, (fields, body) in zip(part, hashes, strict=True):
                ours = fields and fields[b"state"] == b"CLAIMED" and int(fields[b"claim"]) == numbers[event_id]
                (events if ours else gone).append(FetchedEvent(event_id, fields, body, "claimed"))
            if gone and strict:
                raise StreamLost(
                    f"others took {counted(len(gone), 'event')} of the stream's batch, such as {gone[0].event_id}; "
                    "to go on without such events set onLost to continue"
                )
            if builder.with_history:
                tried = [event.event_id for event in events if event.fields[b"attempts"] != b"1"]
                histories = {event.event_id: event.history for event in self._pick(tried)} if tried else {}
                for event in events:
                    event.history = histories.get(event.event_id, ())
            if events:
                yield events

    def _steps(self, ids: Sequence[str], *, bodies: bool) -> Iterator[tuple[Sequence[str], list[StoredEvent]]]:
        """Hashes and bodies, a step at a time; the size of a step follows from the largest body of the last one."""
        at = 0
        while at < len(ids):
            part = ids[at : at + self._step] if bodies else ids[at:]
            hashes = self._connection.run(self._connection.store.hashes, part, bodies=bodies)
            if bodies:
                hashes = self._whole(part, hashes)
            yield part, hashes
            at += len(part)
            if bodies:
                largest = max(len(body or b"") for _, body in hashes) or 1
                self._step = max(1, min(self._step * 8, BATCH_BYTES // largest))

    def _whole(self, ids: Sequence[str], hashes: list[StoredEvent]) -> list[StoredEvent]:
        """Reads hashes without a body once more: the event was either removed between the two reads, or is damaged."""
        torn = [event_id for event_id, (fields, body) in zip(ids, hashes, strict=True) if fields and body is None]
        if not torn:
            return hashes
        again = self._connection.run(self._connection.store.hashes, torn, bodies=True)
        seen = dict(zip(torn, again, strict=True))
        return [seen.get(event_id, known) for event_id, known in zip(ids, hashes, strict=True)]

    def _pick(self, ids: Sequence[str]) -> list[FetchedEvent]:
        return [
            FetchedEvent(each.event_id, each.fields, None, each.index, each.score, each.history)
            for each in self._connection.run(self._connection.store.read_states, ids)
        ]

    def _with_history(self, events: list[FetchedEvent], ids: set[str]) -> list[FetchedEvent]:
        picked = {event.event_id: event for event in self._pick(list(ids))}
        read = [self._again(event, picked) if event.event_id in ids else event for event in events]
        return [event for event in read if event is not None]

    def _again(self, event: FetchedEvent, picked: dict[str, FetchedEvent]) -> FetchedEvent | None:
        """The event with its history, read atomically; None if it has changed since the moment."""
        again = picked.get(event.event_id)
        if again is None or again.index != event.index or self._is_new(again.index, again.fields):
            return None
        latest = read_history(again.history[-1]) if again.index in _PENDING and again.history else None
        if latest is not None and latest.at > self._moment:
            return None
        again.body = event.body
        return again

    def _is_new(self, index: str, fields: Fields) -> bool:
        """Whether an event was put, or changed its state, after the moment.

        Every way out of PENDING takes a claim number, and the history records the ways back. For a terminal event only
        its end counts: the clock may have been set back since the put.
        """
        if fields[b"state"] != _STATE[index]:
            return True
        if index in ("published", "dead"):
            return int(fields[b"published_at" if index == "published" else b"died_at"]) > self._moment
        put_at = int(fields.get(b"restored_at") or fields[b"created_at"])
        return put_at > self._moment or int(fields.get(b"claim", b"0")) > self._claims


_PENDING: Final = tuple(index for index, state in STATE_OF.items() if state.value == "PENDING")


def _has_more(index: str, fields: Fields, builder: BatchBuilder) -> bool:
    """Whether the hash is not all there is to an event: a history, the end of a lease, a way back to PENDING."""
    if b"claim" not in fields:
        return builder.with_history and b"restored_at" in fields
    if index == "claimed":
        return builder.with_lease or builder.with_history
    if index == "published":  # the first attempt succeeded, and it was never replayed
        return builder.with_history and (fields.get(b"attempts") != b"1" or b"due_at" in fields)
    return builder.with_history or index in _PENDING
