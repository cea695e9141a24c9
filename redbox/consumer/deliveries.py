"""Reads deliveries of redbox: CloudEvents over HTTP in binary mode, in the JSON format, and batched."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any, Final, TypeVar, overload
from urllib.parse import unquote

import msgspec

from redbox import payloads
from redbox.arguments import invalid, shown
from redbox.consumer.request import Headers, RequestHeaders
from redbox.errors import InvalidDelivery
from redbox.events import is_event_id
from redbox.payloads import BYTES, JSON, is_json
from redbox.publishers.base import ATTEMPT_HEADER, CLAIM_HEADER, ENCODING_HEADER, ORDERING_HEADER

STRUCTURED: Final = "application/cloudevents+json"
BATCHED: Final = "application/cloudevents-batch+json"
LARGEST: Final = 64 * 1024 * 1024  # of a body that is sent with gzip, in bytes

T = TypeVar("T")
_document = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_documents = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_value = msgspec.json.Decoder().decode


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery of an event.

    `claim` grows with each delivery of an event and, within one source, along an ordering key. `timestamp` is when the
    request was signed, in seconds since 1970. What the request did not say is None.
    """

    event_id: str
    event_type: str | None
    source: str | None
    payload: bytes
    content_type: str
    claim: int | None = None
    attempt: int | None = None
    ordering_key: str | None = None
    partition_key: str | None = None
    timestamp: int | None = None

    @overload
    def decode(self) -> Any: ...
    @overload
    def decode(self, into: type[T]) -> T: ...
    def decode(self, into: Any = Any) -> Any:
        """Returns the payload as a value; as a value of the type `into` if it is given."""
        return payloads.decode(self.payload, self.content_type, into)


def read(headers: Headers, body: bytes) -> Delivery:
    """Reads a delivery without verifying it, for consumers whose network or proxy says who the sender is.

    Raises InvalidDelivery.
    """
    return read_request(RequestHeaders(headers), body_bytes(body))


def read_batch(headers: Headers, body: bytes) -> list[Delivery]:
    """Reads the deliveries of a request, which may be a batch, without verifying it. Raises InvalidDelivery."""
    return read_requests(RequestHeaders(headers), body_bytes(body))


def body_bytes(body: Any) -> bytes:
    """Checks for the raw body of a request."""
    if not isinstance(body, bytes | bytearray | memoryview):
        raise invalid("body", f"must be the raw body in bytes, not {shown(type(body).__name__)}")
    return bytes(body)


def read_request(headers: RequestHeaders, body: bytes, timestamp: int | None = None) -> Delivery:
    """Reads a request with one event."""
    media_type = _media_type(headers)
    if media_type == BATCHED:
        raise InvalidDelivery("this is a batch; read it with verify_batch or read_batch")
    # A document is not encoded as the event is: that is a matter of its payload.
    content = _unpacked(headers, body, None if media_type == STRUCTURED else headers.get(ENCODING_HEADER))
    if media_type == STRUCTURED:
        return _from_document(_parsed(_document, content), headers, timestamp)
    return Delivery(
        event_id=_checked_id(headers.get("webhook-id") or unquote(headers.need("ce-id"))),
        event_type=_attribute(headers, "ce-type"),
        source=_attribute(headers, "ce-source"),
        payload=content,
        content_type=headers.text("content-type") or BYTES,
        claim=headers.number(CLAIM_HEADER),
        attempt=headers.number(ATTEMPT_HEADER),
        ordering_key=_ordering_key(headers),
        partition_key=_attribute(headers, "ce-partitionkey"),
        timestamp=timestamp,
    )


def read_requests(headers: RequestHeaders, body: bytes, timestamp: int | None = None) -> list[Delivery]:
    """Reads a request with one event or a batch."""
    if _media_type(headers) != BATCHED:
        return [read_request(headers, body, timestamp)]
    documents = _parsed(_documents, _unpacked(headers, body))
    return [_from_document(each, None, timestamp) for each in documents]


def is_batch(headers: RequestHeaders) -> bool:
    return _media_type(headers) == BATCHED


def _media_type(headers: RequestHeaders) -> str:
    return (headers.get("content-type") or "").partition(";")[0].strip().lower()


def _attribute(headers: RequestHeaders, name: str) -> str | None:
    """An attribute of a CloudEvent in a header, where it is percent-encoded."""
    value = headers.get(name)
    return None if value is None else unquote(value)


def _ordering_key(headers: RequestHeaders) -> str | None:
    value = headers.text(ORDERING_HEADER)
    return None if value is None else unquote(value)


def _unpacked(headers: RequestHeaders, body: bytes, own: str | None = None) -> bytes:
    """Undoes the compression by the publisher. The event's own encoding of the body is a part of its payload."""
    encoding = (headers.get("content-encoding") or "identity").lower()
    if encoding == "identity" or (own is not None and encoding == own.lower()):
        return body
    if encoding != "gzip":
        raise InvalidDelivery(f"the content-encoding {shown(encoding)} is not one that redbox sends")
    unpacking = zlib.decompressobj(wbits=31)
    try:
        content = unpacking.decompress(body, LARGEST)
    except zlib.error as error:
        raise InvalidDelivery("the body is not valid gzip") from error
    if not unpacking.eof or unpacking.unused_data:
        raise InvalidDelivery(f"the body is not one complete gzip of at most {LARGEST:,} bytes")
    return content


def _parsed(parse: Any, body: bytes) -> Any:
    try:
        return parse(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDelivery(f"the body is not CloudEvents in the JSON format ({error})") from None


def _from_document(document: dict[str, msgspec.Raw], headers: RequestHeaders | None, timestamp: int | None) -> Delivery:
    """Reads an event in the JSON format. What redbox adds to a single event is in the headers of its request; in a
    batch, each event has it as extensions."""
    data, encoded = document.pop("data", None), document.pop("data_base64", None)
    attributes = {name: _parsed(_value, bytes(value)) for name, value in document.items()}

    def text(name: str) -> str | None:
        value = attributes.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidDelivery(f"the attribute {name} must be text, not {shown(value)}")
        return value

    def number(name: str) -> int | None:
        value = attributes.get(name)
        if value is not None and (not isinstance(value, str) or not value.isdecimal() or len(value) > 18):
            raise InvalidDelivery(f"the attribute {name} must be a whole number as text, not {shown(value)}")
        return None if value is None else int(value)

    content_type = text("datacontenttype") or JSON
    event_id = _checked_id(text("id"))
    return Delivery(
        event_id=event_id,
        event_type=text("type"),
        source=text("source"),
        payload=_payload(data, encoded, content_type),
        content_type=content_type,
        claim=headers.number(CLAIM_HEADER) if headers else number("redboxclaim"),
        attempt=headers.number(ATTEMPT_HEADER) if headers else number("redboxattempt"),
        ordering_key=_ordering_key(headers) if headers else text("redboxorderingkey"),
        partition_key=text("partitionkey"),
        timestamp=timestamp,
    )


def _payload(data: msgspec.Raw | None, encoded: msgspec.Raw | None, content_type: str) -> bytes:
    if encoded is not None:
        try:
            return base64.b64decode(_parsed(_value, bytes(encoded)), validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise InvalidDelivery("data_base64 is not base64") from None
    if data is None:
        return b""
    if is_json(content_type):
        return bytes(data)
    value = _parsed(_value, bytes(data))
    return value.encode() if isinstance(value, str) else bytes(data)


def _checked_id(event_id: str | None) -> str:
    if event_id is None or not is_event_id(event_id):
        raise InvalidDelivery(f"{shown(event_id)} is not an event id" if event_id else "the event has no id")
    return event_id
