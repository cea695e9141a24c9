"""Events from lines of NDJSON: written for `redbox put --many`, or printed by `redbox --json list`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

from redbox.arguments import shown
from redbox.durations import parse_duration
from redbox.errors import InvalidEvent, PayloadTooLarge
from redbox.events import Event, Record, State, is_event_id
from redbox.ids import new_id
from redbox.payloads import JSON, is_json
from redbox.settings import MAX_PAYLOAD

PAYLOAD_BASE64: Final = "payload_base64"
KNOWN: Final = (*Event.__struct_fields__, PAYLOAD_BASE64)
#: Fields of a printed record that are not fields of an event.
_OF_RECORDS: Final = frozenset(Record.__struct_fields__) - frozenset(KNOWN)
_NAMES: Final = tuple(f'"{name}"'.encode() for name in KNOWN)


class _PlainLine(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """The fields that nearly every event has at most. A line with any other is read by `_from_fields`."""

    event_type: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    event_id: str | None = None
    headers: msgspec.Raw | None = None
    metadata: msgspec.Raw | None = None
    partition_key: str | None = None
    ordering_key: str | None = None
    unique_key: str | None = None
    content_type: str | None = None


_plain_line = msgspec.json.Decoder(_PlainLine).decode
_named_texts = msgspec.json.Decoder(dict[str, str] | None).decode
_any_value = msgspec.json.Decoder().decode


def event_from_line(line: bytes | msgspec.Raw, default_id: str | None = None) -> Event:
    """The event of one line. Raises ValueError with the reason if the line is invalid.

    A JSON payload is stored as it is written in the line. `payload_base64` holds the bytes of any payload; if both are
    given they must have the same value, and the bytes are stored. Of a printed record only the event is read; its state
    in the other box is ignored. `default_id` is the event_id of a line that has none.
    """
    try:
        plain = _plain_line(line)
        if plain.content_type is None or is_json(plain.content_type):
            _any_value(plain.payload)
            refuse_repeated_fields(bytes(line))
            return _from_plain(plain, default_id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the other way says what is wrong
    return _from_fields(bytes(line), default_id)


def _from_plain(line: _PlainLine, default_id: str | None) -> Event:
    payload = bytes(line.payload)
    _check_size(payload)
    return Event(
        line.event_type,
        payload,
        event_id=_id_of(line, default_id),
        headers=_texts("headers", line.headers),
        metadata=_texts("metadata", line.metadata),
        partition_key=line.partition_key,
        ordering_key=line.ordering_key,
        unique_key=line.unique_key,
        content_type=line.content_type or JSON,
    )


def usable_id(text: str) -> str:
    """A text as an event_id: the text itself if it is valid as one, else a digest of it."""
    return text if is_event_id(text) else f"sha256-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def checked_payload(payload: bytes, content_type: str | None) -> bytes:
    """The payload. Raises InvalidEvent if it is too large, or is not JSON although its content type is."""
    _check_size(payload)
    if payload and content_type is not None and is_json(content_type):
        try:
            _any_value(payload)
        except RecursionError:
            raise InvalidEvent("payload", "is nested too deeply") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidEvent("payload", f"is not JSON, as its content type says: {error}") from None
    return payload


def _id_of(line: _PlainLine, default_id: str | None) -> str:
    if line.event_id is not None:
        return line.event_id
    return new_id() if default_id is None else default_id


def refuse_repeated_fields(line: bytes, names: Iterable[bytes] = _NAMES) -> None:
    """Refuses a line that has a field twice: programs differ in which one they take. `names`: all that it has, quoted.

    Raises InvalidEvent.
    """
    for quoted in names:
        if line.count(quoted) > 1:
            break
    else:
        if b"\\u00" not in line:  # a name can be written with escapes
            return
    outermost: list[tuple[str, Any]] = []

    def keep(pairs: list[tuple[str, Any]]) -> None:
        outermost[:] = pairs

    json.loads(line, object_pairs_hook=keep, parse_int=str, parse_float=str)
    repeated = _repeated(outermost)
    if repeated is not None:
        raise InvalidEvent(repeated, "is given more than once")


def _repeated(pairs: list[tuple[str, Any]]) -> str | None:
    """The first name that is repeated."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return None


def _texts(field: str, raw: msgspec.Raw | None) -> dict[str, str]:
    """The headers or metadata of an event. Raises InvalidEvent if a name is repeated."""
    found = None if raw is None else _named_texts(raw)
    if raw is not None and found is not None:
        _refuse_repeated_names(field, bytes(raw), found)
    return found or {}


def _refuse_repeated_names(field: str, raw: bytes, found: dict[str, Any]) -> None:
    if raw.count(b'"') == 4 * len(found):  # each name and each text has two
        return
    repeated = _repeated(json.loads(raw, object_pairs_hook=list))
    if repeated is not None:
        raise InvalidEvent(field, f"{shown(repeated)} is given more than once")


def _check_size(payload: bytes) -> None:
    """Refuses a payload that no box takes, here, where the line is known."""
    if len(payload) > MAX_PAYLOAD:
        raise PayloadTooLarge("payload", f"is {len(payload):,} bytes long; the limit is {MAX_PAYLOAD:,} bytes")


def _from_fields(line: bytes, default_id: str | None) -> Event:
    try:
        raw = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        fields = {name: msgspec.json.decode(value) for name, value in raw.items()}
        refuse_repeated_fields(line)
        for name in ("headers", "metadata"):
            if isinstance(fields.get(name), dict):
                _refuse_repeated_names(name, bytes(raw[name]), fields[name])
    except RecursionError:
        raise ValueError("not a JSON object with the fields of an event (it is nested too deeply)") from None
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
    if default_id is not None and fields.get("event_id") is None:
        fields["event_id"] = default_id
    event = Event(**{name: value for name, value in fields.items() if value is not None or name == "payload"})
    _check_size(event.encode()[0])
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
