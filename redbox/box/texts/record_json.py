"""Records as JSON, which `redbox put --many` reads again."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from redbox.events import Record
from redbox.payloads import is_json

_EVENT_FIELDS: Final = ("headers", "metadata", "partition_key", "ordering_key", "unique_key", "unique_scope")


def line_of(record: Record) -> bytes:
    """The record as one line of NDJSON."""
    return msgspec.json.encode(as_json(record)) + b"\n"


def as_json(record: Record, *, with_payload: bool = True) -> dict[str, Any]:
    """The whole record as one flat object: specification names, times in ISO 8601, the payload decoded if possible.

    `redbox put --many` reads it: `payload_base64` is present whenever `payload` does not hold the exact bytes. Without
    the payload, the object has neither.
    """
    event = record.event
    payload, content_type = event.encode()
    data: dict[str, Any] = {"event_id": record.event_id, "event_type": event.event_type}
    data |= {name: getattr(record, name) for name in Record.__struct_fields__ if name not in ("event", "history")}
    data |= {name: getattr(event, name) for name in _EVENT_FIELDS}
    data["history"] = record.history
    data["content_type"] = content_type
    if with_payload:
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
