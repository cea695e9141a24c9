"""CloudEvents 1.0: the binary mode of the HTTP binding, and the JSON format, single and batched."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from redbox.events import Claim, from_ms, is_reserved_header
from redbox.payloads import is_json
from redbox.publishers.base import ADDED_HEADERS, passed_on

SPEC_VERSION: Final = "1.0"
STRUCTURED: Final = "application/cloudevents+json; charset=utf-8"
BATCHED: Final = "application/cloudevents-batch+json; charset=utf-8"
HEADERS: Final = "redboxheaders"  # the extension with the headers of an event in a batch, as JSON

#: Characters that a header contains unescaped: printable ASCII except space, double quote and percent sign.
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_must_be_quoted = re.compile(f"[^{re.escape(_PLAIN)}]").search
_encode = msgspec.json.Encoder().encode


def attributes(claim: Claim, source: str) -> dict[str, str]:
    """Returns the attributes of an event by their CloudEvents names."""
    event = claim.event
    found = {
        "specversion": SPEC_VERSION,
        "id": claim.event_id,
        "type": event.event_type,
        "source": source,
        "time": _time(claim.created_ms),
    }
    if event.partition_key is not None:
        found["partitionkey"] = event.partition_key
    return found


def binary_headers(claim: Claim) -> dict[str, str]:
    """Returns the attributes of an event as headers, without those of `fixed_headers`. The body is the payload
    itself."""
    event = claim.event
    headers = {
        "ce-id": header_value(claim.event_id),
        "ce-type": header_value(event.event_type),
        "ce-time": _time(claim.created_ms),
    }
    if event.partition_key is not None:
        headers["ce-partitionkey"] = header_value(event.partition_key)
    return headers


def fixed_headers(source: str) -> dict[str, str]:
    """Returns the attributes that are the same for every event of a source, as headers."""
    return {"ce-specversion": SPEC_VERSION, "ce-source": header_value(source)}


def header_value(text: str) -> str:
    """Returns a text as CloudEvents writes it in a header: percent-encoded where it is not printable ASCII, and for
    spaces, double quotes and percent signs. So two texts never become one, although HTTP and NATS strip spaces."""
    return quote(text, safe=_PLAIN) if _must_be_quoted(text) else text


@lru_cache(maxsize=4096)  # events of one batch have the same time
def _time(ms: int) -> str:
    return from_ms(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def structured(claim: Claim, source: str) -> bytes:
    """Returns an event as one JSON document. A JSON payload is included byte for byte."""
    return _document(claim, attributes(claim, source))


def batched(claim: Claim, source: str) -> bytes:
    """Returns an event as one document of a batch. Headers are extensions: the request has those of no event. A JSON
    payload that begins or ends with spaces or line breaks is sent as base64, since a consumer would lose them."""
    extensions: dict[str, str] = {}
    headers: dict[str, str] = {}
    names: dict[str, str] = {}  # lowercase → as the event has it first
    for name, text in passed_on(claim).items():
        lower = name.lower()
        if lower in ADDED_HEADERS:
            extensions[lower.replace("-", "")] = text
        elif lower == "traceparent" and name not in claim.event.headers:
            extensions[lower] = text
        elif not is_reserved_header(name):  # refused by put, but an earlier version may have stored it
            known = names.setdefault(lower, name)
            headers[known] = f"{headers[known]}, {text}" if known in headers else text  # as HTTP joins repeated headers
    if headers:
        extensions[HEADERS] = _encode(headers).decode()
    payload, _ = claim.event.encode()
    return _document(claim, attributes(claim, source) | extensions, embed=payload == payload.strip())


def _document(claim: Claim, found: dict[str, str], embed: bool = True) -> bytes:
    payload, content_type = claim.event.encode()
    document: dict[str, Any] = {**found, "datacontenttype": content_type}
    if embed and is_json(content_type) and _is_valid(payload):
        document["data"] = msgspec.Raw(payload)
    else:
        document["data_base64"] = payload  # msgspec encodes bytes as base64
    return _encode(document)


def _is_valid(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        return False
    return True
