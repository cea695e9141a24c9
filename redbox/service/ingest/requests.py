"""What a request has to say about its events: their format, and the id of events that have none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Request
from litestar.datastructures import State
from litestar.exceptions import HTTPException

from redbox.arguments import shown
from redbox.box.event_json import event_from_line, usable_id
from redbox.errors import InvalidEvent
from redbox.events import Event
from redbox.service.cloudevents import BATCHED, STRUCTURED, from_binary, from_structured, is_binary

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
#: `curl -d` sends the type of a form, whatever the body is. A body without a type is read as JSON too.
JSON_TYPES: Final = frozenset({JSON, "application/x-www-form-urlencoded", ""})
_NDJSON_TYPES: Final = frozenset({NDJSON, "application/ndjson", "application/jsonl"})
_UTF8: Final = frozenset({"utf-8", "utf8", "us-ascii"})
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode

#: One event of a batch, as written, and how to read it. The second argument is the event_id of an event that has none.
Line = bytes | msgspec.Raw
ReadLine = Callable[[Line, str | None], Event]


def media_type(request: Request[Any, Any, State]) -> str:
    """The media type of the body. Refuses one with a charset other than UTF-8."""
    given = request.headers.get("content-type", "")
    if ";" not in given:
        return given.strip().lower()
    kind, *parameters = given.lower().split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip(' "') not in _UTF8 and not is_binary(request.headers):
            raise unsupported(f"charset {shown(value)}", "UTF-8")
    return kind.strip()


def unsupported(given: str, supported: str) -> HTTPException:
    return HTTPException(
        detail=f"{given} is not supported here; send {supported}", status_code=HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    )


def idempotency_key(request: Request[Any, Any, State]) -> str | None:
    """The event_id that the header Idempotency-Key asks for. The quotes of a structured header are not part of it."""
    given = request.headers.get("idempotency-key")
    if given is None:
        return None
    key = given.strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not key:
        raise InvalidEvent("Idempotency-Key", "is empty; leave it out, or give a value that is unique to the event")
    return usable_id(key)


def numbered_key(key: str | None, number: int) -> str | None:
    """The event_id of an event of a batch without one, from the Idempotency-Key of the batch."""
    return None if key is None else f"sha256-{hashlib.sha256(f'{number} {key}'.encode()).hexdigest()}"


def is_batch(kind: str) -> bool:
    """Whether a media type is that of a batch wherever it is posted."""
    return kind == BATCHED


def read_event(request: Request[Any, Any, State], kind: str, body: bytes) -> Event:
    """The event of a request with one. Raises InvalidEvent, and HTTPException for an unknown format."""
    headers = request.headers
    if kind == STRUCTURED:
        return from_structured(body)
    if is_binary(headers):
        return from_binary(headers, headers.get("content-type"), body)
    if kind not in JSON_TYPES:
        raise unsupported(
            f"content-type {shown(kind)}",
            f"{JSON}, {STRUCTURED}, {BATCHED}, or any type with the headers of a CloudEvent; {NDJSON} is for "
            f"{request.url.path}:batch",
        )
    return read_line(body, idempotency_key(request))


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


def read_batch(kind: str, body: bytes, most: int) -> tuple[list[Line], ReadLine]:
    """The events of a batch, and how to read each. Raises InvalidEvent if the batch as a whole is not readable."""
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
