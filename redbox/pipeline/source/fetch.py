"""Reads events by id in a task: few commands for many events, bounded in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from redbox.errors import StreamLost
from redbox.pipeline.source.connection import Connection
from redbox.pipeline.source.rows import STATE_OF, Found, Rows
from redbox.settings import BATCH_BYTES
from redbox.store.damage import read_history
from redbox.store.replies import Fence, Fields, StoredEvent

FIRST_STEP: Final = 8  # of bodies whose size is not known
_STATE: Final = {index: state.value.encode() for index, state in STATE_OF.items()}


class Fetch:
    """Reads events. Those that changed after a moment can be left out: then nothing that moves from index to index
    while several of them are read comes twice."""

    def __init__(self, connection: Connection, moment: int = 0, claims: int = 0) -> None:
        self._connection = connection
        self._moment, self._claims = moment, claims
        self._step = FIRST_STEP

    def unchanged(self, index: str, ids: Sequence[str], rows: Rows) -> Iterator[list[Found]]:
        """Those events of an index that are as they were at the moment, in order."""
        for part, hashes in self._steps(ids, bodies=rows.with_body):
            events = [
                Found(event_id, fields, body, index)
                for event_id, (fields, body) in zip(part, hashes, strict=True)
                if fields and not self._is_new(index, fields)
            ]
            told = {event.event_id for event in events if _has_more(index, event.fields, rows)}
            if told:
                events = self._with_history(events, told)
            if events:
                yield events

    def wherever(self, ids: Sequence[str], rows: Rows) -> Iterator[list[Found]]:
        """Events in whatever index they are."""
        for part, hashes in self._steps(ids, bodies=rows.with_body):
            bodies = {event_id: body for event_id, (fields, body) in zip(part, hashes, strict=True) if fields}
            events = self._pick(list(bodies)) if bodies else []
            for event in events:
                event.body = bodies[event.event_id]
            if events:
                yield events

    def held(self, members: Sequence[Fence], rows: Rows, *, strict: bool) -> Iterator[list[Found]]:
        """Events that a stream holds by these claims. One that it does not hold any more is an error, or left out."""
        numbers = dict(members)
        for part, hashes in self._steps(list(numbers), bodies=rows.with_body):
            events: list[Found] = []
            gone: list[Found] = []
            for event_id, (fields, body) in zip(part, hashes, strict=True):
                ours = fields and fields[b"state"] == b"CLAIMED" and int(fields[b"claim"]) == numbers[event_id]
                (events if ours else gone).append(Found(event_id, fields, body, "claimed"))
            if gone and strict:
                raise StreamLost(
                    f"{len(gone)} events of the stream's batch were taken by others, {gone[0].event_id} among them; "
                    "to go on without them set onLost to continue"
                )
            if rows.with_history:
                tried = [event.event_id for event in events if event.fields[b"attempts"] != b"1"]
                histories = {event.event_id: event.history for event in self._pick(tried)} if tried else {}
                for event in events:
                    event.history = histories.get(event.event_id, ())
            if events:
                yield events

    def _steps(self, ids: Sequence[str], *, bodies: bool) -> Iterator[tuple[Sequence[str], list[StoredEvent]]]:
        """Hashes and bodies of as many at a time as the bodies read so far allow."""
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
        """Without events that were removed after their hash and before their body was read: a second look tells them
        from those that are damaged."""
        torn = [event_id for event_id, (fields, body) in zip(ids, hashes, strict=True) if fields and body is None]
        if not torn:
            return hashes
        again = self._connection.run(self._connection.store.hashes, torn, bodies=True)
        seen = dict(zip(torn, again, strict=True))
        return [seen.get(event_id, known) for event_id, known in zip(ids, hashes, strict=True)]

    def _pick(self, ids: Sequence[str]) -> list[Found]:
        return [
            Found(each.event_id, each.fields, None, each.index, each.score, each.history)
            for each in self._connection.run(self._connection.store.read_states, ids)
        ]

    def _with_history(self, events: list[Found], told: set[str]) -> list[Found]:
        picked = {event.event_id: event for event in self._pick(list(told))}
        read = [self._again(event, picked) if event.event_id in told else event for event in events]
        return [event for event in read if event is not None]

    def _again(self, event: Found, picked: dict[str, Found]) -> Found | None:
        """The event with its history, read in one step; None when it has changed since the moment."""
        again = picked.get(event.event_id)
        if again is None or again.index != event.index or self._is_new(again.index, again.fields):
            return None
        latest = read_history(again.history[-1]) if again.index in _PENDING and again.history else None
        if latest is not None and latest.at > self._moment:
            return None
        again.body = event.body
        return again

    def _is_new(self, index: str, fields: Fields) -> bool:
        """Whether it was put or changed its state after the moment. Every way out of PENDING takes a claim number; the
        ways back are told by the history. Of what has ended only the end counts: the clock may have stepped back
        since the put."""
        if fields[b"state"] != _STATE[index]:
            return True
        if index in ("published", "dead"):
            return int(fields[b"published_at" if index == "published" else b"died_at"]) > self._moment
        put_at = int(fields.get(b"restored_at") or fields[b"created_at"])
        return put_at > self._moment or int(fields.get(b"claim", b"0")) > self._claims


_PENDING: Final = tuple(index for index, state in STATE_OF.items() if state.value == "PENDING")


def _has_more(index: str, fields: Fields, rows: Rows) -> bool:
    """Whether there is more to know of an event than its hash: a history, the end of a lease, a way back to PENDING."""
    if b"claim" not in fields:
        return rows.with_history and b"restored_at" in fields
    if index == "claimed":
        return rows.with_lease or rows.with_history
    if index == "published":  # the first attempt succeeded, and it was never replayed
        return rows.with_history and (fields.get(b"attempts") != b"1" or b"due_at" in fields)
    return rows.with_history or index in _PENDING
