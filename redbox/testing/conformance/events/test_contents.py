"""EM-3, EM-8, EM-9: payload, metadata and headers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from redbox import Box, Claim, Event, InvalidEvent
from redbox.errors import PayloadTooLarge
from redbox.testing.conformance.steps import (
    TRACEPARENT,
    claim_one,
    contents,
    fail,
    known,
    put_and_claim,
)

# --- EM-3: payload ---------------------------------------------------------------------------------------------------


class UserCreated(msgspec.Struct, tag="user.created"):
    id: int
    name: str


USER = UserCreated(42, "Ada")


JSON, BINARY, TEXT = "application/json", "application/octet-stream", "text/plain; charset=utf-8"


#: what is put, the content type that is asked for, and what must be stored
PAYLOADS: list[tuple[Any, str | None, bytes, str]] = [
    (b"", None, b"", BINARY),
    (bytes(range(256)), None, bytes(range(256)), BINARY),
    (b'{"a": 1}\n', JSON, b'{"a": 1}\n', JSON),
    (b"\x00\xff", "image/png", b"\x00\xff", "image/png"),
    (bytearray(b"\x00\x01"), None, b"\x00\x01", BINARY),
    (memoryview(b"abc"), None, b"abc", BINARY),
    ("Zoë\r\n", None, b"Zo\xc3\xab\r\n", TEXT),
    ('{"id":42}', JSON, b'{"id":42}', JSON),
    ({"id": 42, "ok": None}, None, b'{"id":42,"ok":null}', JSON),
    ({"id": 42}, "application/cloudevents+json", b'{"id":42}', "application/cloudevents+json"),
    ({"id": 42}, "application/msgpack", b"\x81\xa2id\x2a", "application/msgpack"),
    ([1, 2.5, "x"], None, b'[1,2.5,"x"]', JSON),
    (None, None, b"null", JSON),
    (0, None, b"0", JSON),
    (datetime(2030, 1, 2, tzinfo=UTC), None, b'"2030-01-02T00:00:00Z"', JSON),
    (USER, None, b'{"type":"user.created","id":42,"name":"Ada"}', JSON),
]


@pytest.mark.req("EM-3")
async def test_payloads_are_stored_byte_for_byte(box: Box):
    wanted = [(stored, stored_type) for _, _, stored, stored_type in PAYLOADS]
    await box.put_many([Event("n", payload, content_type=asked) for payload, asked, _, _ in PAYLOADS])

    async def claimed() -> list[Claim]:
        claims = sorted(await box.claim("relay-1"), key=lambda claim: claim.event_id)
        assert [(claim.event.payload, claim.event.content_type) for claim in claims] == wanted
        assert {type(claim.event.payload) for claim in claims} == {bytes}
        return claims

    await fail(box, await claimed(), error="503")
    claims = await claimed()
    await box.ack(claims)
    records = [await known(box, claim.event_id) for claim in claims]
    assert [(record.event.payload, record.event.content_type) for record in records] == wanted
    await box.replay([claim.event_id for claim in claims])
    await claimed()


@pytest.mark.req("EM-3")
async def test_a_pydantic_model_is_stored_as_its_own_json(box: Box):
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("User", id=(int, ...), name=(str, "Ada"))
    claim = await put_and_claim(box, Event("user.created", model(id=42)))
    assert (claim.event.payload, claim.event.content_type) == (b'{"id":42,"name":"Ada"}', JSON)
    assert claim.event.decode(model) == model(id=42, name="Ada")


@pytest.mark.req("EM-3")
async def test_payloads_decode_by_their_content_type(box: Box):
    await box.put_many([Event("n", USER), Event("n", USER, content_type="application/msgpack"), Event("n", "text")])
    struct, packed, text = [claim.event for claim in await box.claim("relay-1")]
    assert struct.decode(UserCreated) == packed.decode(UserCreated) == USER
    assert struct.decode() == {"type": "user.created", "id": 42, "name": "Ada"}
    assert text.decode(str) == "text"
    with pytest.raises(InvalidEvent, match="payload"):
        text.decode(int)


@pytest.mark.req("EM-3")
async def test_a_tagged_struct_is_an_event(box: Box):
    await box.put(USER)
    claim = await claim_one(box)
    assert (claim.event.event_type, claim.event.decode(UserCreated)) == ("user.created", USER)


@pytest.mark.req("EM-3")
async def test_changing_a_payload_after_the_put_has_no_effect(box: Box):
    value = {"id": 42}
    await box.put(Event("user.created", value))
    value["id"] = 43
    assert (await claim_one(box)).event.payload == b'{"id":42}'


@pytest.mark.req("EM-3")
async def test_invalid_payloads_are_refused_before_anything_is_stored(open_box: Callable[..., Box]):
    box = open_box(max_payload=10)
    assert (await box.put(Event("n", b"0123456789"))).created
    with pytest.raises(PayloadTooLarge, match="payload"):
        await box.put(Event("n", b"0123456789a"))
    with pytest.raises(PayloadTooLarge):
        await box.put_many([Event("n", b""), Event("n", b"0123456789a")])
    for payload, content_type in ((object(), None), ("\udcff", None), ({"a": 1}, "image/png")):
        with pytest.raises(InvalidEvent, match="payload"):
            await box.put(Event("n", payload, content_type=content_type))
    assert (await box.stats()).totals == {"put": 1}


# --- EM-8, EM-9: metadata and headers --------------------------------------------------------------------------------


@pytest.mark.req("EM-8", "EM-9")
async def test_metadata_and_headers_are_returned_separately_and_unchanged(box: Box):
    headers = {"X-Tenant": "a b\tc", "x-tenant": "ünï", "traceparent": "theirs"}
    claim = await put_and_claim(box, Event("n", headers=headers, metadata={"source": "web", "": ""}))
    assert (claim.event.headers, claim.event.metadata) == (headers, {"source": "web", "": ""})
    record = await known(box, claim.event_id)
    assert (record.event.headers, record.event.metadata) == (headers, {"source": "web", "": ""})


@pytest.mark.req("EM-8", "EM-9")
async def test_headers_and_metadata_may_be_empty(box: Box):
    claim = await put_and_claim(box)
    assert (claim.event.headers, claim.event.metadata) == ({}, {})


@pytest.mark.req("EM-8")
async def test_the_trace_of_the_span_that_called_put_is_in_the_metadata(box: Box):
    trace = pytest.importorskip("opentelemetry.trace")
    context = trace.SpanContext(
        trace_id=0x0AF7651916CD43DD8448EB211C80319C,
        span_id=0xB7AD6B7169203331,
        is_remote=False,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )
    with trace.use_span(trace.NonRecordingSpan(context)):
        await box.put(Event("one", metadata={"source": "web"}))
        await box.put_many([Event("many")])
        await box.put(Event("theirs", metadata={"traceparent": "00-1-1-00"}))
        async with box.transaction() as tx:
            tx.put(Event("in a transaction".replace(" ", "-")))
    await box.put(Event("outside"))
    claims = await box.claim("relay-1")
    assert [(claim.event.event_type, claim.event.metadata) for claim in claims] == [
        ("one", {"source": "web", "traceparent": TRACEPARENT}),
        ("many", {"traceparent": TRACEPARENT}),
        ("theirs", {"traceparent": "00-1-1-00"}),
        ("in-a-transaction", {"traceparent": TRACEPARENT}),
        ("outside", {}),
    ]
    assert [claim.event.headers for claim in claims] == [{}] * 5


@pytest.mark.req("EM-8")
async def test_a_real_span_is_found(box: Box):
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    with sdk.TracerProvider().get_tracer("test").start_as_current_span("checkout") as span:
        claim = await put_and_claim(box)
    context, traceparent = span.get_span_context(), claim.event.metadata["traceparent"]
    assert traceparent.startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    assert int(traceparent[-2:], 16) & 1, "the span is sampled"


@pytest.mark.req("EM-9")
@pytest.mark.parametrize(
    "headers",
    [
        {"redbox-id": "1"}, {"Redbox-Anything": "1"}, {"ce-type": "1"}, {"CE-Source": "1"}, {"webhook-id": "1"},
        {"Content-Length": "1"}, {"host": "a"}, {"Transfer-Encoding": "chunked"}, {"content-type": "text/plain"},
        {"": "1"}, {"with space": "1"}, {"colon:": "1"}, {"ünï": "1"}, {"x": "line\nbreak"}, {"x": "\x00"},
        {"x": 1}, {1: "x"}, {"x": None}, {"x": "y" * 33_000}, [("x", "y")],
    ],
)  # fmt: skip
def test_invalid_headers_are_refused(headers: Any):
    with pytest.raises(InvalidEvent, match="headers"):
        Event("n", headers=headers)


@pytest.mark.req("EM-8", "EM-9")
@pytest.mark.parametrize("field", ["headers", "metadata"])
async def test_text_that_cannot_be_encoded_is_refused(box: Box, field: str):
    texts: dict[str, Any] = {field: {"x": "caf\udce9"}}
    with pytest.raises(InvalidEvent, match=field):
        await box.put(Event("n", **texts))
    assert await contents(box) == {}
