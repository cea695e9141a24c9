"""Reads the events of a body, by its media type."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec
from litestar.exceptions import HTTPException

from redbox.arguments import shown
from redbox.box.event_json import event_from_line
from redbox.errors import InvalidEvent
from redbox.events import Event
from redbox.service.cloudevents import BATCHED, STRUCTURED, from_binary, from_structured
from redbox.service.ingest.head import Head, unsupported

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
#: `curl -d` sends the type of a form, whatever the body is. A body without a type is read as JSON too.
JSON_TYPES: Final = frozenset({JSON, "application/x-www-form-urlencoded", ""})
_NDJSON_TYPES: Final = frozenset({NDJSON, "application/ndjson", "application/jsonl"})
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode

#: One event of a batch, as written, and how to read it. The second argument is the event_id of an event that has none.
Line = bytes | msgspec.Raw
ReadLine = Callable[[Line, str | None], Event]


def numbered_key(key: str | None, number: int) -> str | None:
    """The event_id of an event of a batch without one, from the Idempotency-Key of the batch."""
    return None if key is None else f"sha256-{hashlib.sha256(f'{number} {key}'.encode()).hexdigest()}"


def read_event(head: Head, body: bytes) -> Event:
    """The event of a request with one. Raises InvalidEvent, and HTTPException for an unknown format."""
    if head.media_type == STRUCTURED:
        return from_structured(body)
    if head.is_cloud_event:
        headers = head.texts()
        return from_binary(headers, headers.get("content-type"), body)
    if head.media_type not in JSON_TYPES:
        raise unsupported(
            f"content-type {shown(head.media_type)}",
            f"{JSON}, {STRUCTURED}, {BATCHED}, or any type with the headers of a CloudEvent; {NDJSON} is for "
            "/events:batch",
        )
    return read_line(body, head.idempotency_key)


def read_line(line: Line, default_id: str | None) -> Event:
    """The event of one JSON object. Raises InvalidEvent."""
    try:
        return event_from_line(line, default_id)
    except InvalidEvent:
        raise
    except ValueError as error:
        raise InvalidEvent("body", str(error)) from None


def _read_structured(line: Line, _: str | None) -> Event:
    return from_structured(line)


def read_batch(head: Head, body: bytes, most: int) -> tuple[list[Line], ReadLine]:
    """The events of a batch, and how to read each. Raises InvalidEvent if the batch as a whole is not readable."""
    kind = head.media_type
    if kind in _NDJSON_TYPES:
        lines: list[Line] = [line for line in body.split(b"\n") if line.strip()]
    elif kind == BATCHED or kind in JSON_TYPES:
        try:
            lines = list(_elements(body))
        except RecursionError:
            raise InvalidEvent("body", "is nested too deeply") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidEvent("body", f"not a JSON array of events ({error})") from None
    else:
        raise unsupported(f"content-type {shown(kind)}", f"{JSON} with an array, {NDJSON} or {BATCHED}")
    if len(lines) > most:
        raise HTTPException(
            detail=f"the batch has {len(lines):,} events; the limit is {most:,}",
            status_code=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
    return lines, _read_structured if kind == BATCHED else read_line
