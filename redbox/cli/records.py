"""Records as JSON, as lines of a table, and in words."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from redbox.durations import format_duration
from redbox.events import Phase, Record, State
from redbox.payloads import is_json

_EVENT_FIELDS: Final = ("headers", "metadata", "partition_key", "ordering_key", "unique_key", "unique_scope")


def as_json(record: Record) -> dict[str, Any]:
    """The whole record as one flat object: specification names, times in ISO 8601, the payload decoded if possible.

    `redbox put --many` reads it: `payload_base64` is present whenever `payload` does not hold the exact bytes.
    """
    event = record.event
    payload, content_type = event.encode()
    data: dict[str, Any] = {"event_id": record.event_id, "event_type": event.event_type}
    data |= {name: getattr(record, name) for name in Record.__struct_fields__ if name not in ("event", "history")}
    data |= {name: getattr(event, name) for name in _EVENT_FIELDS}
    data["history"] = record.history
    data["content_type"] = content_type
    data |= {"payload": None} if record.problem else _payload_json(payload, content_type)
    return data


def _payload_json(payload: bytes, content_type: str) -> dict[str, Any]:
    exact = {"payload_base64": base64.b64encode(payload).decode()}
    if is_json(content_type):
        compact = formatted(payload, indent=-1)
        if compact is not None:
            return {"payload": msgspec.Raw(compact)} | ({} if compact == payload else exact)
    if content_type.startswith("text/"):
        try:
            return {"payload": payload.decode()}
        except UnicodeDecodeError:
            pass
    return {"payload": None} | exact


def formatted(payload: bytes, *, indent: int) -> bytes | None:
    """The JSON text with other white space and every number unchanged; None if it is not JSON."""
    try:
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return msgspec.json.format(payload, indent=indent)


def iso(moment: datetime | None, *, brief: bool = False) -> str:
    """The time in ISO 8601 and UTC, to milliseconds or, if brief, seconds; empty for None."""
    if moment is None:
        return ""
    return moment.astimezone(UTC).isoformat(timespec="seconds" if brief else "milliseconds").replace("+00:00", "Z")


def phase_word(record: Record) -> str:
    """The phase, as `stats` counts it, with `waiting` for an event behind the head of its line; or DAMAGED."""
    if record.damaged:
        return "DAMAGED"
    return f"{record.phase.value} waiting" if record.waiting else record.phase.value


def entered(record: Record) -> datetime | None:
    """The time that listings are ordered by."""
    return {
        State.PENDING: record.available_at,
        State.CLAIMED: record.lease_until,
        State.PUBLISHED: record.published_at,
        State.DEAD: record.died_at,
    }[record.state]


def key_of(record: Record) -> str:
    """The ordering key, else the unique key."""
    return record.event.ordering_key or record.event.unique_key or ""


def phase_in_words(record: Record, now: datetime, paused: bool) -> str:
    """The phase of the event as a sentence, with the next step."""

    def since(moment: datetime | None) -> str:
        return format_duration(now - (moment or now))

    if record.damaged:
        published = record.phase is Phase.COMPLETED
        remedy = "it cannot be delivered: put it again from its source or the archive, with another id"
        return f"{record.problem}; {'it was published before' if published else remedy}"
    ahead = format_duration(record.available_at - now)
    if record.phase is Phase.COMPLETED:
        return f"published {since(record.published_at)} ago by {record.published_by or 'an unknown relay'}"
    if record.phase is Phase.DEAD and record.superseded_by:
        return f"died {since(record.died_at)} ago; superseded by event {record.superseded_by}"
    if record.phase is Phase.DEAD:
        return f"died {since(record.died_at)} ago; `redbox dead replay {record.event_id}` returns it to PENDING"
    if record.phase is Phase.IN_FLIGHT:
        assert record.lease_until is not None
        if record.lease_until > now:
            return f"claimed by {record.claimed_by}; the lease ends in {format_duration(record.lease_until - now)}"
        over = f"the lease ended {since(record.lease_until)} ago; the next reap returns it to PENDING"
        return f"claimed by {record.claimed_by}, but {over}"
    if record.waiting:
        due = "" if record.phase is Phase.AVAILABLE else f"due in {ahead}, and "
        return f"{due}waits behind the head of the line of ordering key {record.event.ordering_key!r}"
    if record.phase is Phase.SCHEDULED:
        return f"due in {ahead}"
    if record.phase is Phase.RETRY_SCHEDULED:
        return f"failed; the next attempt is in {ahead}"
    text = f"due for {since(record.available_at)}, and not claimed yet"
    if record.suspect:
        text += "; it is claimed alone, since two leases in a row expired"
    return text + ("; but the box is paused" if paused else "")
