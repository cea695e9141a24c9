"""New events in the place of old ones: made by a function, put, and noted at the old; each step may be repeated."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

from redbox import payloads
from redbox.box.receipts import Receipts
from redbox.errors import Conflict, IdReused, InvalidEvent
from redbox.events import Event, State, UniqueScope, error_text, stored_event
from redbox.pipeline.source.connection import Connection
from redbox.settings import MAX_PAYLOAD
from redbox.store.codec import encode_event
from redbox.store.durability import SERVER

SUPERSEDES: Final = "supersedes"
#: What is read of an event to make another of it.
COLUMNS: Final = (
    "event_id", "claim", "event_type", "payload", "content_type", "headers", "metadata", "partition_key",
    "ordering_key", "unique_key", "unique_scope", "problem", "created_at", "seq",
)  # fmt: skip
_SHOWN: Final = (
    "event_type", "content_type", "headers", "metadata", "partition_key", "ordering_key", "unique_key", "available_at",
    "delay",
)  # fmt: skip
SHOWN_LENGTH: Final = 1000
PREVIEWS_OF_A_STEP: Final = 20


class Counts(msgspec.Struct):
    matched: int = 0
    patched: int = 0
    left: int = 0
    failed: int = 0
    refused: int = 0
    changed: int = 0


class Failure(msgspec.Struct):
    """Why an event stays as it is."""

    event_id: str
    reason: str


class Preview(msgspec.Struct):
    """An event before and after: its payload, and what else differs."""

    event_id: str
    new_id: str
    event_type: str
    before: dict[str, str]
    after: dict[str, str]


class Reissue:
    """A few events on their way to being superseded."""

    def __init__(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        self._connection, self._rows = connection, rows
        self._old: dict[str, tuple[Event, int]] = {}
        self._new: dict[str, Event] = {}  # by the id of the old one; what cannot be done falls out
        self._done: set[str] = set()  # of these, what an earlier try did
        self._counts = Counts(matched=len(rows))
        self.failures: list[Failure] = []

    # --- the steps ---------------------------------------------------------------------------------------------------

    def call(self, function: Callable[..., Any]) -> None:
        """What the function makes of each event. One that it raises for stays dead."""
        for row in self._rows:
            event_id, number = row["event_id"], row["claim"]
            if row["problem"]:
                self._counts.failed += 1
                self.failures.append(Failure(event_id, row["problem"]))
                continue
            old = _as_event(row)
            try:
                result = function(old)
                if result is None:
                    self._counts.left += 1
                    continue
                self._new[event_id] = successor(old, number, result)
                self._old[event_id] = old, number
            except Exception as error:
                own = error.message if isinstance(error, InvalidEvent) else f"{type(error).__name__}: {error}"
                self._counts.failed += 1
                self.failures.append(Failure(event_id, error_text(own)))

    def leave_changed(self) -> None:
        """Those that were replayed, or superseded, since they were read are left alone. What an earlier try
        of this step superseded is done, and not put again: it may have been delivered and be gone."""
        ids = list(self._new)
        found = self._connection.run(self._connection.store.hashes, ids, bodies=False) if ids else []
        for event_id, (fields, _) in zip(ids, found, strict=True):
            if fields.get(b"superseded_by") == self._new[event_id].event_id.encode():
                self._done.add(event_id)
                continue
            same = fields.get(b"state") == State.DEAD.value.encode()
            same = same and int(fields.get(b"claim", b"0")) == self._old[event_id][1]
            if not same or b"superseded_by" in fields:
                self._drop(event_id, "changed", "it was replayed, removed or superseded meanwhile")

    def put(self) -> None:
        """A new event that is there already, because an earlier run was ended before it could note it, counts as it
        is: the function may not return the same twice."""
        receipts = Receipts(self._connection.at.box, MAX_PAYLOAD)
        by_new = {event.event_id: old_id for old_id, event in self._new.items() if old_id not in self._done}
        to_put = [self._new[old_id] for old_id in by_new.values()]
        encoded = [(event, encode_event(event, MAX_PAYLOAD, event.metadata)) for event in to_put]
        for event, reply in self._connection.put(encoded):
            try:
                receipts.of(event, reply, SERVER)
            except IdReused:
                continue
            except Conflict as refusal:
                reason = f"unique_key {event.unique_key!r} is held by event {refusal.holder}"
                self._drop(by_new[event.event_id], "refused", reason)

    def mark(self) -> None:
        """Notes at the old ones what supersedes them, if they still are what was seen."""
        new = {old_id: event.event_id for old_id, event in self._new.items() if old_id not in self._done}
        items = [(old_id, self._old[old_id][1], new_id) for old_id, new_id in new.items()]
        replies = self._connection.run(self._connection.store.mark_event, "superseded_by", items) if items else []
        for (event_id, _, new_id), word in zip(items, replies, strict=True):
            if word != b"OK":
                reason = f"it was replayed or removed while {new_id} was put in its place; both may be delivered"
                self._drop(event_id, "changed", reason)

    # --- what came of it ---------------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        return msgspec.structs.replace(self._counts, patched=len(self._new))

    def ids(self) -> list[str]:
        return list(self._new)

    def previews(self) -> list[Preview]:
        return [
            _preview(self._old[event_id][0], event) for event_id, event in list(self._new.items())[:PREVIEWS_OF_A_STEP]
        ]

    def _drop(self, event_id: str, kind: str, reason: str) -> None:
        del self._new[event_id]
        setattr(self._counts, kind, getattr(self._counts, kind) + 1)
        self.failures.append(Failure(event_id, reason))


def successor(old: Event, number: int, result: Any) -> Event:
    """The event that takes the place of an old one. Its id follows from the old one's and its claim number, so that
    the same death is patched once, and the next one again."""
    if inspect.isawaitable(result) or inspect.isgenerator(result):
        raise InvalidEvent("result", "the function must return an Event, a payload or None, and not something to await")
    if isinstance(result, Event):
        made = {name: getattr(result, name) for name in Event.__struct_fields__}
    else:
        made = {name: getattr(old, name) for name in Event.__struct_fields__} | {"payload": result}
    made["payload"], made["content_type"] = payloads.encode(made["payload"], made["content_type"])
    made["metadata"] = {**made["metadata"], SUPERSEDES: old.event_id}
    made["event_id"] = new_id(old.event_id, number)
    event = Event(**made)
    encode_event(event, MAX_PAYLOAD, event.metadata)  # what is too large is told here
    return event


def new_id(event_id: str, number: int) -> str:
    text = blake2b(f"{number}/{event_id}".encode(), digest_size=16, person=b"redbox patch").hexdigest()
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-8{text[17:20]}-{text[20:]}"


def _as_event(row: Mapping[str, Any]) -> Event:
    event: Event = stored_event(
        event_type=row["event_type"],
        payload=row["payload"],
        event_id=row["event_id"],
        headers=row["headers"] or {},
        metadata=row["metadata"] or {},
        partition_key=row["partition_key"],
        ordering_key=row["ordering_key"],
        unique_key=row["unique_key"],
        unique_scope=UniqueScope(row["unique_scope"] or UniqueScope.ALL_LIVE),
        content_type=row["content_type"],
    )
    return event


def _preview(old: Event, new: Event) -> Preview:
    before, after = {"payload": shown(old.payload)}, {"payload": shown(new.payload)}
    for name in _SHOWN:
        was, now = getattr(old, name), getattr(new, name)
        if name == "metadata":
            now = {key: value for key, value in now.items() if key != SUPERSEDES}
        if was != now:
            before[name], after[name] = _text(was), _text(now)
    return Preview(old.event_id, new.event_id, new.event_type, before, after)


def shown(payload: bytes) -> str:
    """A payload for people: as text when it is text, else its size."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"{len(payload):,} bytes"
    if not all(char.isprintable() or char in "\r\n\t" for char in text):
        return f"{len(payload):,} bytes"
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}... ({len(payload):,} bytes)"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True) if isinstance(value, Mapping) else str(value)
