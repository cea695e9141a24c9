"""Payloads: encoded once, when an event is put; after that they are bytes that nobody touches."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from redbox.errors import InvalidEvent

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
TEXT: Final = "text/plain; charset=utf-8"
BYTES: Final = "application/octet-stream"

_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()


def is_json(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == JSON or media_type.endswith("+json")


def encode(payload: Any, content_type: str | None) -> tuple[bytes, str]:
    """The bytes to store and their content type.

    bytes and str are taken as they are, whatever the content type says of them; any other value is encoded as JSON,
    or as MessagePack when the content type asks for it.
    """
    kind = type(payload)
    if isinstance(payload, bytes):
        return bytes(payload), content_type or BYTES
    if isinstance(payload, str):
        try:
            return payload.encode(), content_type or TEXT
        except UnicodeEncodeError as error:
            raise InvalidEvent("payload", f"this text cannot be encoded as UTF-8: {error}") from error
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload), content_type or BYTES
    try:
        if content_type is None or is_json(content_type):
            if hasattr(payload, "model_dump_json"):
                return payload.model_dump_json().encode(), content_type or JSON
            return _json.encode(payload), content_type or JSON
        if content_type == MSGPACK:
            return _msgpack.encode(payload), content_type
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent("payload", f"cannot be encoded: {error}") from error
    raise InvalidEvent(
        "payload", f"a {kind.__name__} cannot be encoded as {content_type}; give bytes, or leave content_type out"
    )


def decode(payload: bytes, content_type: str, into: Any) -> Any:
    """The payload as a value of type `into`, read by its content type."""
    try:
        if hasattr(into, "model_validate_json"):
            return into.model_validate_json(payload)
        if is_json(content_type):
            return msgspec.json.decode(payload, type=into)
        if content_type == MSGPACK:
            return msgspec.msgpack.decode(payload, type=into)
        value: Any = payload.decode() if content_type.startswith("text/") else payload
        return msgspec.convert(value, into)
    except ValueError as error:  # msgspec's, pydantic's and Unicode's errors are all ValueErrors
        raise InvalidEvent("payload", f"cannot be decoded as {content_type}: {error}") from error
