"""Events from lines of NDJSON: written for `redbox put --many`, or printed by `redbox --json list`."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any, Final

import msgspec

from redbox.arguments import shown
from redbox.durations import parse_duration
from redbox.errors import InvalidEvent
from redbox.events import Event, Record, State
from redbox.payloads import JSON, is_json
from redbox.settings import MAX_PAYLOAD

PAYLOAD_BASE64: Final = "payload_base64"
KNOWN: Final = (*Event.__struct_fields__, PAYLOAD_BASE64)
#: Fields of a printed record that are not fields of an event.
_OF_RECORDS: Final = frozenset(Record.__struct_fields__) - frozenset(KNOWN)


def event_from_line(line: bytes) -> Event:
    """The event of one line. Raises ValueError with the reason if the line is invalid.

    A JSON payload is stored as it is written in the line. `payload_base64` holds the bytes of any payload; if both are
    given they must have the same value, and the bytes are stored. Of a printed record only the event is read; its state
    in the other box is ignored.
    """
    try:
        raw = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        fields = {name: msgspec.json.decode(value) for name, value in raw.items()}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a JSON object with the fields of an event ({error})") from None
    if _OF_RECORDS & fields.keys():
        _keep_event_fields(fields)
    for name in fields:
        if name not in KNOWN:
            raise InvalidEvent(name, f"an event has no such field; it has {', '.join(KNOWN)}")
    encoded = fields.pop(PAYLOAD_BASE64, None)
    content_type = fields.get("content_type")
    if encoded is not None:
        payload = _decoded(encoded)
        if "payload" in fields and not _holds(payload, content_type, fields["payload"]):
            raise ValueError(
                f"payload and {PAYLOAD_BASE64} differ: remove {PAYLOAD_BASE64} to put payload, or "
                f"payload to put the bytes"
            )
        fields["payload"] = payload
    elif "payload" in raw and (content_type is None or (isinstance(content_type, str) and is_json(content_type))):
        fields["payload"] = bytes(raw["payload"])
        fields["content_type"] = content_type or JSON
    if isinstance(fields.get("delay"), str):
        try:
            fields["delay"] = parse_duration(fields["delay"])
        except ValueError as error:
            raise InvalidEvent("delay", str(error)) from None
    if isinstance(fields.get("available_at"), str):
        try:
            fields["available_at"] = datetime.fromisoformat(fields["available_at"])
        except ValueError:
            raise InvalidEvent("available_at", f"{shown(fields['available_at'])} is not a time in ISO 8601") from None
    event = Event(**{name: value for name, value in fields.items() if value is not None or name == "payload"})
    size = len(event.encode()[0])  # checked here, where the line number is known
    if size > MAX_PAYLOAD:
        raise InvalidEvent("payload", f"is {size:,} bytes long; the limit is {MAX_PAYLOAD:,} bytes")
    return event


def _keep_event_fields(fields: dict[str, Any]) -> None:
    """Removes the fields of a record that are not part of its event."""
    if fields.get("problem") is not None:
        raise ValueError(f"this event cannot be put: {fields['problem']}")
    if fields.get("state") != State.PENDING:
        fields.pop("available_at", None)  # this time has passed, and a relay's --max-age would count from it
    for name in _OF_RECORDS & fields.keys():
        del fields[name]


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise InvalidEvent(PAYLOAD_BASE64, "is not base64") from None


def _holds(encoded: bytes, content_type: Any, value: Any) -> bool:
    """Whether a printed payload and its bytes agree; redbox prints null for bytes that JSON cannot represent."""
    json_expected = isinstance(content_type, str) and is_json(content_type)
    try:
        decoded = msgspec.json.decode(encoded) if json_expected or value is not None else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        decoded = None
    if not json_expected and isinstance(value, str):
        return encoded == value.encode(errors="surrogatepass")
    return _same_json(decoded, value)


def _same_json(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal; unlike with ==, true is not 1."""
    pairs = [(left, right)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            pairs += [(value, other[name]) for name, value in one.items()]
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            pairs += zip(one, other, strict=True)
        elif isinstance(one, dict | list) or isinstance(one, bool) != isinstance(other, bool) or one != other:
            return False
    return True
