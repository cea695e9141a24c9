"""Payloads: encoded once, decoded by their content type."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pydantic
import pytest

from redbox import Event, InvalidEvent


class Order(msgspec.Struct):
    id: int
    note: str = ""


class OrderModel(pydantic.BaseModel):
    id: int
    note: str = ""


@pytest.mark.req("EM-3")
@pytest.mark.parametrize(
    ("payload", "stored", "content_type"),
    [
        (b"\x00\xff raw", b"\x00\xff raw", "application/octet-stream"),
        (bytearray(b"raw"), b"raw", "application/octet-stream"),
        (memoryview(b"raw"), b"raw", "application/octet-stream"),
        ("grüße", b"gr\xc3\xbc\xc3\x9fe", "text/plain; charset=utf-8"),
        ('{"id": 42}', b'{"id": 42}', "text/plain; charset=utf-8"),
        ({"id": 42, "b": [1, None]}, b'{"id":42,"b":[1,null]}', "application/json"),
        ([1, 2], b"[1,2]", "application/json"),
        (42, b"42", "application/json"),
        (None, b"null", "application/json"),
        (Order(42), b'{"id":42,"note":""}', "application/json"),
        (OrderModel(id=42), b'{"id":42,"note":""}', "application/json"),
    ],
)
def test_each_kind_of_payload_is_stored(payload: Any, stored: bytes, content_type: str):
    assert Event("order.paid", payload).encode() == (stored, content_type)


@pytest.mark.req("EM-3")
@pytest.mark.parametrize("content_type", ["application/json", "image/png", "application/msgpack"])
def test_bytes_and_text_are_stored_unchanged_whatever_their_content_type(content_type: str):
    assert Event("order.paid", b"{ not json", content_type=content_type).encode() == (b"{ not json", content_type)
    assert Event("order.paid", "{ not json", content_type=content_type).encode() == (b"{ not json", content_type)


@pytest.mark.parametrize("content_type", ["application/json", "application/vnd.acme+json", "Application/JSON; v=1"])
def test_a_json_content_type_is_kept(content_type: str):
    event = Event("order.paid", {"id": 42}, content_type=content_type)
    assert event.encode() == (b'{"id":42}', content_type)
    assert event.decode(Order) == Order(42)


def test_message_pack():
    event = Event("order.paid", Order(42), content_type="application/msgpack")
    assert event.encode() == (b"\x82\xa2id\x2a\xa4note\xa0", "application/msgpack")
    assert event.decode(Order) == Order(42)
    assert event.decode() == {"id": 42, "note": ""}


@pytest.mark.parametrize(
    ("payload", "into", "value"),
    [
        (b"\x00\xff", bytes, b"\x00\xff"),
        ("grüße", str, "grüße"),
        ({"id": 42}, dict, {"id": 42}),
        ({"id": 42}, Order, Order(42)),
        ({"id": 42}, OrderModel, OrderModel(id=42)),
        (OrderModel(id=42, note="x"), OrderModel, OrderModel(id=42, note="x")),
        ([1, 2], list[int], [1, 2]),
    ],
)
def test_decode_reads_it_back(payload: Any, into: Any, value: Any):
    assert Event("order.paid", payload).decode(into) == value


def test_decode_without_a_type():
    assert Event("order.paid", {"id": 42}).decode() == {"id": 42}
    assert Event("order.paid", b"raw").decode() == b"raw"
    assert Event("order.paid", "text").decode() == "text"


@pytest.mark.parametrize(
    ("event", "into"),
    [
        (Event("order.paid", b"{ not json", content_type="application/json"), dict),
        (Event("order.paid", b"\xc1", content_type="application/msgpack"), dict),
        (Event("order.paid", b"\xff", content_type="text/plain"), str),
        (Event("order.paid", {"id": "many"}), Order),
        (Event("order.paid", {"id": "many"}), OrderModel),
        (Event("order.paid", b"raw"), int),
    ],
)
def test_a_payload_that_cannot_be_decoded_raises(event: Event, into: Any):
    with pytest.raises(InvalidEvent, match="payload: cannot be decoded as") as caught:
        event.decode(into)
    assert caught.value.field == "payload"
    assert caught.value.__cause__ is not None


class Opaque:
    pass


def endless() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize("payload", [Opaque(), {"key": Opaque()}, endless(), "\ud800", {"text": "\ud800"}])
def test_a_payload_that_cannot_be_encoded_is_refused(payload: Any):
    with pytest.raises(InvalidEvent) as caught:
        Event("order.paid", payload).encode()
    assert caught.value.field == "payload"


def test_a_value_with_a_foreign_content_type_is_refused():
    with pytest.raises(InvalidEvent, match="a value of type dict cannot be encoded as image/png; give bytes"):
        Event("order.paid", {"id": 42}, content_type="image/png").encode()


class Measurement(pydantic.BaseModel):
    value: float
    unit: str | None = None


class MeasurementStruct(msgspec.Struct):
    value: float


@pytest.mark.req("EM-3")
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda number: number,
        lambda number: {"a": [1, {"b": number}]},
        lambda number: (None, number),
        lambda number: {"big": 10**30, "a": number},
        lambda number: {"raw": msgspec.Raw(b"1"), "big": 10**30, "a": number},
        lambda number: Measurement(value=number),
        MeasurementStruct,
    ],
)
def test_numbers_that_json_cannot_express_are_refused(number: float, wrap: Callable[[float], Any]):
    with pytest.raises(InvalidEvent, match=r"^payload: contains NaN or infinity, which JSON cannot express") as caught:
        Event("order.paid", wrap(number)).encode()
    assert caught.value.field == "payload"


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        ([None, 1.5], b"[null,1.5]"),
        ({"text": "null", "max": 1.7976931348623157e308}, b'{"text":"null","max":1.7976931348623157e308}'),
        ({"big": 10**30, "a": None}, b'{"big":1000000000000000000000000000000,"a":null}'),
        ({"a": None, "raw": msgspec.Raw(b"1")}, b'{"a":null,"raw":1}'),
        (Measurement(value=1.5), b'{"value":1.5,"unit":null}'),
    ],
)
def test_null_is_allowed(payload: Any, stored: bytes):
    assert Event("order.paid", payload).encode()[0] == stored


def test_message_pack_accepts_them():
    event = Event("order.paid", [math.inf], content_type="application/msgpack")
    assert event.decode() == [math.inf]
