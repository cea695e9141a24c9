"""Reads the events of a body, by its media type."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from litestar.exceptions import HTTPException

from redbox.arguments import shown
from redbox.box.texts.event_json import event_from_line
from redbox.errors import InvalidEvent
from redbox.events import Event
from redbox.service.ingest.bounds import check_cloud_event, check_event, elements
from redbox.service.ingest.cloudevents import BATCHED, STRUCTURED, from_binary, from_structured
from redbox.service.ingest.request_headers import RequestHeaders, unsupported

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
#: `curl -d` sends the type of a form, whatever the body is. A body without a type is read as JSON too.
JSON_TYPES: Final = frozenset({JSON, "application/x-www-form-urlencoded", ""})
_NDJSON_TYPES: Final = frozenset({NDJSON, "application/ndjson", "application/jsonl"})

#: One event of a batch, as written, and how to read it. The second argument is the event_id of an event that has none.
EventText = bytes | msgspec.Raw
ReadText = Callable[[EventText, str | None], Event]


def numbered_key(key: str | None, number: int) -> str | None:
    """The event_id of an event of a batch without one, from the Idempotency-Key of the batch."""
    return None if key is None else f"sha256-{hashlib.sha256(f'{number} {key}'.encode()).hexdigest()}"


def read_event(headers: RequestHeaders, body: bytes) -> Event:
    """The event of a request with one. Raises InvalidEvent, and HTTPException for an unknown format."""
    if headers.media_type == STRUCTURED:
        return _read_structured(body)
    if headers.is_cloud_event:
        texts = headers.texts()
        return from_binary(texts, texts.get("content-type"), body)
    if headers.media_type not in JSON_TYPES:
        raise unsupported(
            f"content-type {shown(headers.media_type)}",
            f"{JSON}, {STRUCTURED}, {BATCHED}, or any type with the headers of a CloudEvent; {NDJSON} is for "
            "/events:batch",
        )
    return read_text(body, headers.idempotency_key)


def read_text(text: EventText, default_id: str | None) -> Event:
    """The event of one JSON object. Raises InvalidEvent."""
    check_event(text)
    try:
        event = event_from_line(text, default_id)
        _check_header_names(event.headers)
        return event
    except InvalidEvent:
        raise
    except ValueError as error:
        raise InvalidEvent("body", str(error)) from None


def _check_header_names(headers: Mapping[str, str]) -> None:
    """Refuses names that HTTP does not distinguish: a receiver would join their values, or take one of them."""
    names: dict[str, str] = {}
    for name in headers:
        other = names.setdefault(name.lower(), name)
        if other != name:
            raise InvalidEvent("headers", f"{shown(other)} and {shown(name)} differ only in upper and lower case")


def _read_structured(text: EventText, _: str | None = None) -> Event:
    check_cloud_event(text)
    return from_structured(text)


def read_batch(headers: RequestHeaders, body: bytes, most: int) -> tuple[list[EventText], ReadText]:
    """The events of a batch, and how to read each. Raises InvalidEvent if the batch as a whole is not readable."""
    kind = headers.media_type
    if kind in _NDJSON_TYPES:
        # A bounded number of parts: a body can consist of millions of empty lines. The rest is one more part.
        texts: list[EventText] = [line for line in body.split(b"\n", 2 * most + 1) if line.strip()]
    elif kind == BATCHED or kind in JSON_TYPES:
        try:
            texts = list(elements(body, most))
        except RecursionError:
            raise InvalidEvent("body", "is nested too deeply") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidEvent("body", f"not a JSON array of events ({error})") from None
    else:
        raise unsupported(f"content-type {shown(kind)}", f"{JSON} with an array, {NDJSON} or {BATCHED}")
    if len(texts) > most:
        raise HTTPException(
            detail=f"the batch has more than {most:,} events, which is the limit",
            status_code=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
    return texts, _read_structured if kind == BATCHED else read_text
