"""Bounds the time that reading a body takes: no other request is served meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from redbox.arguments import counted
from redbox.errors import InvalidEvent, PayloadTooLarge
from redbox.settings import MAX_PAYLOAD

#: Bytes of an event that are read in any case, and bytes that it may have beside its payload: more than its headers and
#: metadata need, even if all of their characters are written as escapes.
SMALL: Final = 512 * 1024
_ESCAPED: Final = 6  # the most characters by which JSON writes one byte of a text
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_ABSENT: Final = msgspec.Raw(b"")


class _Event(msgspec.Struct):
    """The payload of an event; its other fields are skipped, which makes no objects of them."""

    payload: msgspec.Raw = _ABSENT
    payload_base64: msgspec.Raw = _ABSENT


class _CloudEvent(msgspec.Struct):
    """As `_Event`."""

    data: msgspec.Raw = _ABSENT
    data_base64: msgspec.Raw = _ABSENT


_event = msgspec.json.Decoder(_Event).decode
_cloud_event = msgspec.json.Decoder(_CloudEvent).decode


def elements(body: bytes, most: int) -> list[msgspec.Raw]:
    """The elements of a JSON array, but not more than `most` + 1 of them. Raises DecodeError."""
    if body.count(b",") < most:
        return _elements(body)
    found = msgspec.structs.astuple(_first_elements(most + 1).decode(body))
    return [element for element in found if element is not None]


@lru_cache(maxsize=4)
def _first_elements(count: int) -> msgspec.json.Decoder[msgspec.Struct]:
    """Reads the first elements of an array. Those after them are skipped: a list would have them all."""
    fields = [(f"element_{number}", msgspec.Raw, None) for number in range(count)]
    return msgspec.json.Decoder(msgspec.defstruct("Elements", fields, array_like=True))


def check_event(text: bytes | msgspec.Raw) -> None:
    """Refuses an event that would take long to read, and no event that could be stored. Raises InvalidEvent."""
    if len(text) > SMALL:
        _check(text, _event)


def check_cloud_event(text: bytes | msgspec.Raw) -> None:
    """As `check_event`, for a CloudEvent in the JSON format."""
    if len(text) > SMALL:
        _check(text, _cloud_event)


def _check(text: bytes | msgspec.Raw, outline: Callable[[bytes | msgspec.Raw], msgspec.Struct]) -> None:
    try:
        payloads = msgspec.structs.asdict(outline(text))
    except msgspec.ValidationError:
        return  # not an object, which the reader finds at its first byte
    except RecursionError:
        raise InvalidEvent("body", "is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidEvent("body", f"not JSON ({error})") from None
    for name, value in payloads.items():
        limit = MAX_PAYLOAD * _ESCAPED + 2 if bytes(memoryview(value)[:1]) == b'"' else MAX_PAYLOAD
        if len(value) > limit:
            raise PayloadTooLarge(name, f"is {counted(len(value), 'byte')} long; the limit is {MAX_PAYLOAD:,} bytes")
    beside = len(text) - sum(map(len, payloads.values()))
    if beside > SMALL:
        raise InvalidEvent("body", f"has {beside:,} bytes beside the payload; the limit is {SMALL:,} bytes")
