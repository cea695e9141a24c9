"""CloudEvents 1.0, as the HTTP binding and the JSON format write them."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec

from redbox.events import Claim
from redbox.payloads import is_json

STRUCTURED: Final = "application/cloudevents+json; charset=utf-8"

#: What a header may hold as it is: printable ASCII but the space, the double quote and the percent sign.
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_encode = msgspec.json.Encoder().encode


def attributes(claim: Claim, source: str) -> dict[str, str]:
    """The attributes of an event, by their CloudEvents names."""
    event = claim.event
    found = {
        "specversion": "1.0",
        "id": claim.event_id,
        "type": event.event_type,
        "source": source,
        "time": claim.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    if event.partition_key is not None:
        found["partitionkey"] = event.partition_key
    return found


def binary_headers(claim: Claim, source: str) -> list[tuple[bytes, bytes]]:
    """The attributes as headers; the payload is the body as it is."""
    return [
        (f"ce-{name}".encode(), quote(value, safe=_PLAIN).encode()) for name, value in attributes(claim, source).items()
    ]


def structured(claim: Claim, source: str) -> bytes:
    """The event as one JSON document; a payload that is JSON stands in it byte for byte."""
    payload, content_type = claim.event.encode()
    document: dict[str, Any] = {**attributes(claim, source), "datacontenttype": content_type}
    if is_json(content_type) and _is_valid(payload):
        document["data"] = msgspec.Raw(payload)
    else:
        document["data_base64"] = payload  # msgspec writes bytes so
    return _encode(document)


def _is_valid(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        return False
    return True
