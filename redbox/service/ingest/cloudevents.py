"""Reads CloudEvents 1.0: the binary mode of the HTTP binding, and the JSON format, single and batched.

`id` becomes the event_id, `type` the event_type, `partitionkey` the partition_key, and `traceparent` and `tracestate`
become metadata. The extensions of redbox (`EXTENSIONS`) are fields of the event. All other attributes are kept as
headers with the prefix `cloudevents-`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from redbox.arguments import shown
from redbox.box.texts.event_json import checked_payload, refuse_repeated_fields, usable_id
from redbox.durations import parse_duration
from redbox.errors import InvalidEvent
from redbox.events import Event
from redbox.payloads import BYTES, JSON, is_json

STRUCTURED: Final = "application/cloudevents+json"
BATCHED: Final = "application/cloudevents-batch+json"
PREFIX: Final = "ce-"
HEADER_PREFIX: Final = "cloudevents-"
SPEC_VERSION: Final = "1.0"
REQUIRED: Final = ("id", "source", "type")
#: Extensions that are fields of the event. Names of attributes have only lowercase letters and digits.
EXTENSIONS: Final = {
    "partitionkey": "partition_key",
    "redboxorderingkey": "ordering_key",
    "redboxuniquekey": "unique_key",
    "redboxuniquescope": "unique_scope",
    "redboxdelay": "delay",
    "redboxavailableat": "available_at",
}
METADATA: Final = ("traceparent", "tracestate")
#: What another redbox says about its delivery, and not about the event.
DELIVERY: Final = ("redboxclaim", "redboxattempt", "redboxdeadreason")
#: The headers of an event that another redbox delivers in a batch, as JSON.
HEADERS: Final = "redboxheaders"
_OWN: Final = "redbox"
_FEW: Final = 16
_is_name = re.compile("[a-z0-9]{1,64}").fullmatch
_document = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_value = msgspec.json.Decoder().decode


def from_binary(headers: Mapping[str, str], content_type: str | None, body: bytes) -> Event:
    """The event of a request in binary mode: its attributes are headers, and its body is the payload.

    Raises InvalidEvent.
    """
    attributes = {
        name.removeprefix(PREFIX): _unquoted(name, value) for name, value in headers.items() if name.startswith(PREFIX)
    }
    if "datacontenttype" in attributes:
        raise InvalidEvent("ce-datacontenttype", "is the header content-type in binary mode")
    return _event(attributes, body, content_type)


def from_structured(body: bytes | msgspec.Raw) -> Event:
    """The event of a document in the JSON format. JSON data is kept byte for byte. Raises InvalidEvent."""
    try:
        document = _document(body)
        refuse_repeated_fields(bytes(body), _quoted(document))
        data = document.pop("data", None)
        encoded = document.pop("data_base64", None)
        values = {name: _value(value) for name, value in document.items()}
        text = None if data is None else _value(data)
        base64_text = None if encoded is None else _value(encoded)
    except RecursionError:
        raise InvalidEvent("body", "is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidEvent("body", f"not a CloudEvent in the JSON format ({error})") from None
    attributes = {name: _text(name, value) for name, value in values.items() if value is not None}
    content_type = attributes.pop("datacontenttype", None)
    if data is not None and base64_text is not None:
        raise InvalidEvent("data_base64", "give either data or data_base64, not both")
    if base64_text is not None:
        return _event(attributes, _decoded(base64_text), content_type)
    if data is None:
        return _event(attributes, b"", content_type)
    if content_type is None or is_json(content_type):
        return _event(attributes, bytes(data), content_type or JSON)
    if not isinstance(text, str):
        raise InvalidEvent("data", f"must be a string, since datacontenttype is {shown(content_type)}")
    return _event(attributes, text.encode(errors="surrogatepass"), content_type)


def _quoted(names: Collection[str]) -> list[bytes]:
    """The names as JSON writes them; a mark that every object has, if looking for each would take long."""
    if len(names) > _FEW:
        return [b'"']
    return [f'"{name}"'.encode(errors="surrogatepass") for name in names]


def _event(attributes: dict[str, str], payload: bytes, content_type: str | None) -> Event:
    for name in attributes:
        if not _is_name(name):
            raise InvalidEvent(name, "is not the name of an attribute: lowercase letters and digits only, at most 64")
    version = attributes.pop("specversion", None)
    if version != SPEC_VERSION:
        given = "is missing" if version is None else f"is {shown(version)}"
        raise InvalidEvent("specversion", f"{given}; this service reads {SPEC_VERSION}")
    for name in REQUIRED:
        if not attributes.get(name):
            raise InvalidEvent(name, "is missing; a CloudEvent has specversion, id, source and type")
    fields: dict[str, Any] = {"event_id": usable_id(attributes.pop("id"))}
    event_type = attributes.pop("type")
    for name, field in EXTENSIONS.items():
        if name in attributes:
            fields[field] = _READERS.get(field, _same)(name, attributes.pop(name))
    headers = _headers(attributes.pop(HEADERS, None))
    for name in DELIVERY:
        attributes.pop(name, None)
    for name in attributes:
        if name.startswith(_OWN):
            known = ", ".join(each for each in EXTENSIONS if each.startswith(_OWN))
            raise InvalidEvent(name, f"there is no such extension; there are {known}")
    fields["metadata"] = {name: attributes.pop(name) for name in METADATA if name in attributes}
    fields["headers"] = headers | {HEADER_PREFIX + name: value for name, value in attributes.items()}
    if not payload:
        content_type = BYTES if content_type is None or is_json(content_type) else content_type
    return Event(event_type, checked_payload(payload, content_type), content_type=content_type or BYTES, **fields)


def _headers(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    try:
        headers = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):
        raise InvalidEvent(HEADERS, "must be a JSON object of texts") from None
    names: list[str] = json.loads(text, object_pairs_hook=lambda pairs: [name.lower() for name, _ in pairs])
    if len(set(names)) != len(names):
        raise InvalidEvent(HEADERS, "has a name more than once; upper and lower case are the same")
    return headers


def _text(name: str, value: Any) -> str:
    """The canonical text of an attribute."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise InvalidEvent(name, f"must be a string, a number or a boolean, not {shown(value)}")


def _unquoted(name: str, value: str) -> str:
    try:
        return unquote(value.encode("latin-1").decode(), errors="strict")
    except UnicodeDecodeError:
        raise InvalidEvent(name, "is not UTF-8") from None


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise InvalidEvent("data_base64", "is not base64") from None


def _same(_: str, text: str) -> str:
    return text


def _duration(name: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidEvent(name, str(error)) from None


def _moment(name: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidEvent(name, f"{shown(text)} is not a time in ISO 8601") from None


_READERS: Final[dict[str, Callable[[str, str], Any]]] = {"delay": _duration, "available_at": _moment}
