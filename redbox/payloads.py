"""Payloads: encoded once, when an event is put, and never changed afterwards."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from redbox.errors import InvalidEvent

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
TEXT: Final = "text/plain; charset=utf-8"
BYTES: Final = "application/octet-stream"

_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()
#: The first bytes of NaN, infinity and a few very large numbers in MessagePack.
_NAN: Final = b"\xcb\x7f"
_NEGATIVE: Final = b"\xcb\xff"


def is_json(content_type: str) -> bool:
    """Whether a content type is JSON, such as application/json or application/problem+json."""
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == JSON or media_type.endswith("+json")


def encode(payload: Any, content_type: str | None) -> tuple[bytes, str]:
    """Returns the bytes to store and their content type.

    bytes and str are stored unchanged, whatever the content type is. Any other value is encoded as JSON, or as
    MessagePack if that is the content type.
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
                text = payload.model_dump_json().encode()
                if b"null" in text or b"NaN" in text or b"Infinity" in text:
                    _check_model(payload)
                return text, content_type or JSON
            text = _json.encode(payload)
            if b"null" in text:  # msgspec writes null for NaN
                _check_numbers(payload)
            return text, content_type or JSON
        if content_type == MSGPACK:
            return _msgpack.encode(payload), content_type
    except InvalidEvent:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent("payload", f"cannot be encoded: {error}") from error
    raise InvalidEvent(
        "payload",
        f"a value of type {kind.__name__} cannot be encoded as {content_type}; give bytes, or leave content_type out",
    )


def _check_numbers(payload: Any) -> None:
    """Refuses NaN and infinity. Nearly every payload passes the fast check of its MessagePack form."""
    try:
        packed = _msgpack.encode(payload)
    except (TypeError, ValueError, OverflowError):  # such as an integer of more than 64 bits
        packed = None
    if packed is None or _NAN in packed or _NEGATIVE in packed:
        _refuse_not_finite(msgspec.to_builtins(payload, enc_hook=lambda _: None))


def _check_model(model: Any) -> None:
    """Refuses NaN and infinity in a pydantic model, unless it is configured to write them as strings."""
    if getattr(model, "model_config", {}).get("ser_json_inf_nan") != "strings":
        _refuse_not_finite(model.model_dump())


def _refuse_not_finite(value: Any) -> None:
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            left += value
        elif isinstance(value, float) and not math.isfinite(value):
            raise InvalidEvent("payload", "contains NaN or infinity, which JSON cannot express; use None or a string")


def decode(payload: bytes, content_type: str, into: Any) -> Any:
    """Decodes a payload by its content type into a value of type `into`."""
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
