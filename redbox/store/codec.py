"""Encodes events for scripts, and decodes events, claims and records from their replies.

The immutable part of an event is one versioned MessagePack array, the body. `put` writes it once, and it is never
rewritten. The event's hash holds the fields that scripts and filters need, and all fields that change.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from redbox.errors import NewerEvent, PayloadTooLarge, StoreError
from redbox.events import (
    Attempt,
    Claim,
    Event,
    Phase,
    Record,
    State,
    UniqueScope,
    duration_ms,
    from_ms,
    stored_event,
    to_ms,
)
from redbox.payloads import BYTES, JSON, MSGPACK, TEXT
from redbox.store.damage import mend_event, read_history, read_starts, score_ms
from redbox.store.scripts.replies import EventLine, Sighting

BODY_VERSION: Final = 1


class EncodedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as the put script takes it."""

    event_id: str
    event_type: str
    body: bytes
    content: int  # bytes of the body that make two events the same; metadata follows
    options: str  # times and keys, or ""

    @property
    def replaces(self) -> bool:
        """Whether it may replace the holder of its unique key."""
        return self.options.endswith(_REPLACE)

    @property
    def unique_key(self) -> str:
        """Its unique key; "" for none."""
        return self.options.split("\t")[2] if self.options else ""


class Body(msgspec.Struct, frozen=True, array_like=True):
    version: int
    event_type: str
    payload: bytes
    content_type: str | int  # a number for those in _CONTENT_TYPES
    headers: dict[str, str]
    partition_key: str | None
    ordering_key: str | None
    unique_key: str | None
    metadata: dict[str, str]  # two events are the same when everything before it is
    unique_scope: UniqueScope | None  # None is ALL_LIVE


#: The usual content types by number; never renumber them.
_CONTENT_TYPES: Final = {0: JSON, 1: BYTES, 2: TEXT, 3: MSGPACK}
_TYPE_NUMBERS: Final = {name: number for number, name in _CONTENT_TYPES.items()}
#: The fields that make two events the same, in the order in which a difference is reported.
_CONTENT: Final = (
    "event_type", "ordering_key", "unique_key", "payload", "content_type", "headers", "partition_key",
)  # fmt: skip
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Body).decode
_decode_many = msgspec.msgpack.Decoder(
    list[
        tuple[
            int, str, bytes, str | int, dict[str, str], str | None, str | None, str | None, dict[str, str], str | None
        ]
    ]
).decode  # tuples of Body's fields: faster than structs
_version = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
#: The first byte of a body: an array with ten fields.
_HEAD_OF_BODY: Final = bytes([0x90 + len(Body.__struct_fields__)])
#: After the four options of an event with a unique_key: no created_at, and that it replaces the holder of its key.
_REPLACE: Final = "\t\t1"
#: Bytes after the content in a body without metadata.
_PLAIN_END: Final = len(_encode({})) + len(_encode(None))


def encode_event(event: Event, max_payload: int, metadata: Mapping[str, str], *, replace: bool = False) -> EncodedEvent:
    """An event for the put script, which may `replace` the holder of its unique_key; raises PayloadTooLarge."""
    payload, content_type = event.encode()
    if len(payload) > max_payload:
        raise PayloadTooLarge(
            "payload",
            f"is {len(payload):,} bytes, and this box takes at most {max_payload:,}; "
            "store it elsewhere and send a reference, or raise max_payload",
        )
    own_metadata, scope = dict(metadata), None if event.unique_scope == UniqueScope.ALL_LIVE else UniqueScope.UNTOUCHED
    body = _encode(
        Body(
            BODY_VERSION,
            event.event_type,
            payload,
            _TYPE_NUMBERS.get(content_type, content_type),
            dict(sorted(event.headers.items())) if event.headers else {},
            event.partition_key,
            event.ordering_key,
            event.unique_key,
            own_metadata,
            scope,
        )
    )
    end = _PLAIN_END if not own_metadata and scope is None else len(_encode(own_metadata)) + len(_encode(scope))
    return EncodedEvent(event.event_id, event.event_type, body, len(body) - end, _options(event) + _REPLACE * replace)


def encode_plain(event_id: str, event_type: str, payload: bytes, content_type: str) -> EncodedEvent:
    """As `encode_event`, for an event with these fields only, which are not validated: for puts of millions."""
    kind = _TYPE_NUMBERS.get(content_type, content_type)
    body = _encode((BODY_VERSION, event_type, payload, kind, {}, None, None, None, {}, None))
    return EncodedEvent(event_id, event_type, body, len(body) - _PLAIN_END, "")


def encode_restored(event: Event, created_at: datetime) -> EncodedEvent:
    """As `encode_event`, for an archived event that is not in the box any more: it keeps its created_at, and its size
    is not limited again."""
    encoded = encode_event(event, sys.maxsize, event.metadata)
    options = encoded.options or f"\t\t\t{event.unique_scope}"
    return msgspec.structs.replace(encoded, options=f"{options}\t{to_ms(created_at)}")


def encode_copy(event: Event, metadata: dict[str, str]) -> EncodedEvent:
    """As `encode_event`, for a copy of an event that another box stores: it is available at once, and its size is not
    limited again."""
    payload, content_type = event.encode()
    scope = None if event.unique_scope == UniqueScope.ALL_LIVE else UniqueScope.UNTOUCHED
    headers, ordering, unique = dict(sorted(event.headers.items())), event.ordering_key, event.unique_key
    kind = _TYPE_NUMBERS.get(content_type, content_type)
    content = _encode((BODY_VERSION, event.event_type, payload, kind, headers, event.partition_key, ordering, unique))
    # The last two fields of the array follow its content; its first byte is the number of fields.
    body = b"".join((_HEAD_OF_BODY, content[1:], _encode(metadata), _encode(scope)))
    options = "" if ordering is None and unique is None else f"\t{ordering or ''}\t{unique or ''}\t{event.unique_scope}"
    return EncodedEvent(event.event_id, event.event_type, body, len(content), options)


def put_arguments(mode: str, events: Iterable[EncodedEvent]) -> list[Any]:
    """The arguments of the put script."""
    arguments: list[Any] = [mode]
    for event in events:
        arguments += (event.event_id, event.event_type, event.body, event.content, event.options)
    return arguments


def _options(event: Event) -> str:
    """The rarer fields of an event, for the put script; "" for none."""
    if event.delay is not None:
        available = f"+{duration_ms(event.delay, 'delay')}"
    elif event.available_at is not None:
        available = str(to_ms(event.available_at))
    elif event.ordering_key is None and event.unique_key is None:
        return ""
    else:
        available = ""
    return f"{available}\t{event.ordering_key or ''}\t{event.unique_key or ''}\t{event.unique_scope}"


def decode_body(event_id: str, body: bytes) -> Body:
    try:
        decoded = _decode(body)
        version = decoded.version
    except msgspec.DecodeError as error:
        version = _version_of(body)
        if version <= BODY_VERSION:
            what = "damaged" if body else "missing"
            raise StoreError(f"event {event_id} cannot be read: its stored body is {what}") from error
    if version > BODY_VERSION or (isinstance(decoded.content_type, int) and decoded.content_type not in _CONTENT_TYPES):
        raise NewerEvent(
            f"event {event_id} was written by a newer redbox (body version {version}, this one reads up to "
            f"{BODY_VERSION}); upgrade this redbox"
        )
    return decoded


def decode_bodies(raw: Sequence[bytes]) -> dict[str, tuple[Any, ...]] | None:
    """Many bodies at once, field by field; None if one cannot be read, and they must be decoded one by one."""
    try:
        bodies = _decode_many(b"\xdd" + len(raw).to_bytes(4, "big") + b"".join(raw))  # one array of all of them
    except msgspec.DecodeError:
        return None
    fields = dict(zip(Body.__struct_fields__, zip(*bodies, strict=True), strict=True))
    if max(fields["version"]) > BODY_VERSION:
        return None
    types = {kind: kind if isinstance(kind, str) else _CONTENT_TYPES.get(kind) for kind in set(fields["content_type"])}
    fields["content_type"] = tuple(map(types.__getitem__, fields["content_type"]))
    return None if None in types.values() else fields


def content_type_of(body: Body) -> str:
    return body.content_type if isinstance(body.content_type, str) else _CONTENT_TYPES[body.content_type]


def _version_of(body: bytes) -> int:
    try:
        return msgspec.msgpack.decode(_version(body)[0], type=int)
    except (msgspec.DecodeError, IndexError):
        return 0


def decode_claim(parts: Sequence[Any], relay: str, number: int, now: int, lease: int, suspect: bool) -> Claim:
    """One event of a claim's reply."""
    raw_id, raw, attempts, exhausted, created, available, excused, due = parts
    event_id = raw_id.decode()
    body = decode_body(event_id, raw)
    available_ms = int(available)
    event = stored_event(
        event_type=body.event_type,
        payload=body.payload,
        event_id=event_id,
        headers=body.headers,
        metadata=body.metadata,
        partition_key=body.partition_key,
        ordering_key=body.ordering_key,
        available_at=from_ms(available_ms),
        unique_key=body.unique_key,
        unique_scope=body.unique_scope or UniqueScope.ALL_LIVE,
        content_type=content_type_of(body),
    )
    return Claim(
        event, event_id, number, relay, attempts, int(excused or 0), exhausted == 1, suspect,
        int(created), int(due or available_ms), now, now + lease,
    )  # fmt: skip


def pairs(flat: Iterable[bytes]) -> dict[str, str]:
    """A flat list of names and values as a dict."""
    items = iter(flat)
    both = zip(items, items, strict=True)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in both}


def decode_record(described: list[Any], now: int) -> Record:
    """A record from the reply of the `describe` include."""
    raw_id, flat, raw, lease_end, index, history = described
    fields, event_id = pairs(flat), raw_id.decode(errors="replace")
    parts = (event_id, fields, raw, None if lease_end is None else score_ms(lease_end), index)
    try:
        return _record(*parts, history, now)
    except (ValueError, KeyError, OverflowError):
        readable = [entry for entry in history if read_history(entry)]
        wrong = mend_event(fields, claimed=lease_end is not None)
        problems = [f"{', '.join(wrong)} missing or damaged"] if wrong else []
        problems += ["an entry of its history is damaged"] if len(readable) < len(history) else []
        record = _record(*parts, readable, now)
        problem = record.problem or f"event {event_id} cannot be read in full: {'; '.join(problems)}"
        return msgspec.structs.replace(record, problem=problem, damaged=record.damaged or bool(wrong))


#: The indexes in the order of the `locate` script.
_LOCATED: Final = ("pending", "waiting", "suspect", "claimed", "published", "dead", "lost")


def decode_sighting(found: list[Any], now: int) -> Sighting:
    """An event of the reply of `locate`."""
    raw_id, described, scores, before, line = found
    place = None
    if line is not None:
        key, length, rank, blocked_at, head, paused_until = line
        place = EventLine(
            key=key.decode(errors="replace"),
            length=length,
            rank=rank,
            blocked_at=None if blocked_at is None else score_ms(blocked_at),
            head=None if head is None else head.decode(errors="replace"),
            paused_until=None if paused_until is None else score_ms(paused_until),
        )
    return Sighting(
        event_id=raw_id.decode(errors="replace"),
        record=None if described is None else decode_record(described, now),
        scores={index: score_ms(score) for index, score in zip(_LOCATED, scores, strict=True) if score is not None},
        before=before,
        line=place,
        exhausted=described is not None and b"exhausted" in described[1][::2],
    )


def _record(
    event_id: str,
    fields: dict[str, str],
    raw: bytes | None,
    lease_end: int | None,
    index: bytes,
    history: Sequence[bytes],
    now: int,
) -> Record:
    problem, damaged = None, False
    try:
        body = decode_body(event_id, raw or b"")
    except StoreError as error:  # one unreadable event must not hide the others from an operator
        body, problem = Body(0, "", b"", _TYPE_NUMBERS[BYTES], {}, None, None, None, {}, None), str(error)
        damaged = not isinstance(error, NewerEvent)
    state, attempts = State(fields["state"]), int(fields.get("attempts", 0))
    available_ms = int(fields.get("available_at", fields["created_at"]))
    available_at = from_ms(available_ms)

    def moment(name: str) -> Any:
        return from_ms(int(fields[name])) if name in fields else None

    published_seconds = None
    if state is State.PUBLISHED and "published_at" in fields and "claimed_at" in fields:
        published_seconds = _seconds(int(fields["claimed_at"]), int(fields["published_at"]))
    event = stored_event(
        event_type=fields["event_type"],
        payload=body.payload,
        event_id=event_id,
        headers=body.headers,
        metadata=body.metadata,
        partition_key=body.partition_key,
        ordering_key=fields.get("ordering_key"),
        available_at=available_at,
        unique_key=fields.get("unique_key"),
        unique_scope=UniqueScope(fields.get("unique_scope", UniqueScope.ALL_LIVE)),
        content_type=content_type_of(body),
    )
    return Record(
        event=event,
        event_id=event_id,
        state=state,
        phase=phase_of(state, attempts - int(fields.get("earlier_attempts", 0)), available_ms, now),
        created_at=from_ms(int(fields["created_at"])),
        available_at=available_at,
        attempts=attempts,
        excused=int(fields.get("excused", 0)),
        expiries=0 if state is State.PUBLISHED else int(fields.get("expiries", 0)),
        number=int(fields.get("claim", 0)),
        last_error=fields.get("last_error"),
        claimed_at=moment("claimed_at") if state is State.CLAIMED else None,
        claimed_by=fields.get("claimed_by") if state is State.CLAIMED else None,
        lease_until=None if lease_end is None else from_ms(lease_end),
        published_at=moment("published_at"),
        published_by=fields.get("claimed_by") if state is State.PUBLISHED else None,
        published_seconds=published_seconds,
        died_at=moment("died_at"),
        superseded_by=fields.get("superseded_by"),
        waiting=index == b"waiting",
        suspect=index == b"suspect",
        history=_history(history, fields),
        damaged=damaged,
        problem=problem,
    )


def phase_of(state: State, tried: int, available_at: int, now: int) -> Phase:
    """The phase; `tried` is how many attempts were made since the event was put or replayed."""
    if state is State.CLAIMED:
        return Phase.IN_FLIGHT
    if state is State.PUBLISHED:
        return Phase.COMPLETED
    if state is State.DEAD:
        return Phase.DEAD
    if available_at <= now:
        return Phase.AVAILABLE
    return Phase.RETRY_SCHEDULED if tried > 0 else Phase.SCHEDULED


def _history(entries: Sequence[bytes], fields: dict[str, str]) -> tuple[Attempt, ...]:
    if not entries:
        return ()
    starts = read_starts(fields)
    return tuple(_attempt(entry, starts) for entry in entries)


def _attempt(entry: bytes, starts: dict[int, int]) -> Attempt:
    read = read_history(entry)
    if read is None:
        raise ValueError("a damaged entry of the history")
    began = None if read.outcome == "replayed" else starts.get(read.number)  # its number is that of the last attempt
    return Attempt(from_ms(read.at), read.outcome, read.by, read.number, read.error, _seconds(began, read.at))


def _seconds(began: int | None, ended: int) -> float | None:
    """None if the start is not known, or if the clock was set back meanwhile."""
    return None if began is None or began > ended else (ended - began) / 1000


def difference(stored: bytes, event: Event, max_payload: int) -> str:
    """Which immutable field of an event differs from the one stored under its id. `stored` is the body, or the name of
    the field if the body is lost."""
    if stored in (b"event_type", b"ordering_key", b"unique_key"):
        return stored.decode()
    try:
        there = decode_body(event.event_id, stored)
    except StoreError:  # too large to be returned, or not readable here; but not the same
        return "payload"
    here = _decode(encode_event(event, max_payload, {}).body)
    return next((field for field in _CONTENT if getattr(there, field) != getattr(here, field)), "body")
