"""EM: the event model."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from redbox import Box, Claim, Event, IdReused, InvalidEvent, Outcome, Phase, Record, State, keys
from redbox.errors import BatchRefused, PayloadTooLarge
from redbox.store.codec import encode_restored
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import (
    body_of,
    bury,
    claim_one,
    contents,
    expire,
    fail,
    fields_of,
    known,
    publish,
    put_and_claim,
    store_time,
)

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def bring_to(box: Box, event: Event, stage: str) -> None:
    """Puts an event and brings it to a stage of its life."""
    await box.put(event)
    if stage == "scheduled":
        await box.operate.reschedule([event.event_id], delay=3600, who="ada", why="later")
    if stage in ("available", "scheduled"):
        return
    claim = await claim_one(box)
    if stage == "retried":
        await box.retry(claim, error="503", delay=60)
    elif stage == "published":
        await box.ack(claim)
    elif stage == "dead":
        await box.kill(claim, reason="422")


STAGES = ["available", "scheduled", "claimed", "retried", "published", "dead"]


# --- EM-1: event_id ----------------------------------------------------------------------------------------------


@pytest.mark.req("EM-1")
async def test_ids_are_uuid7_and_sort_in_the_order_they_were_made(box: Box):
    events = [Event("n") for _ in range(200)]
    ids = [event.event_id for event in events]
    assert {uuid.UUID(event_id).version for event_id in ids} == {7}
    assert len(set(ids)) == 200
    assert sorted(ids) == ids
    await box.put_many(events)
    assert [claim.event_id for claim in await box.claim("relay-1", limit=200)] == ids


@pytest.mark.req("EM-1")
async def test_an_id_of_the_callers_own_is_kept(box: Box):
    receipt = await box.put(Event("user.created", event_id="order:42/(a)"))
    assert (receipt.event_id, receipt.created, receipt.refused) == ("order:42/(a)", True, None)
    assert (await known(box, "order:42/(a)")).event.event_id == "order:42/(a)"
    assert (await claim_one(box)).event_id == "order:42/(a)"


@pytest.mark.req("EM-1")
@pytest.mark.parametrize("event_id", ["", "with space", "x" * 129, "ünï", "line\nbreak", 42, None])
def test_ids_that_cannot_be_are_refused(event_id: Any):
    with pytest.raises(InvalidEvent, match="event_id"):
        Event("user.created", event_id=event_id)


@pytest.mark.req("EM-1")
@pytest.mark.parametrize("stage", STAGES)
async def test_the_same_event_again_changes_nothing_at_any_stage(box: Box, stage: str):
    event = Event("user.created", {"id": 42}, event_id="one", headers={"a": "b", "c": "d"}, unique_key="k",
                  ordering_key="o")  # fmt: skip
    await bring_to(box, event, stage)
    before = await contents(box)
    again = await box.put(Event("user.created", {"id": 42}, event_id="one", headers={"c": "d", "a": "b"},
                                metadata={"try": "2"}, unique_key="k", ordering_key="o"))  # fmt: skip
    assert (again.event_id, again.created, again.refused, again.holder) == ("one", False, None, None)
    exactly = await box.put(event)
    assert (exactly.created, exactly.refused) == (False, None)
    after, totals = await contents(box), keys.counters(box.name)
    assert {**after, totals: None} == {**before, totals: None}
    assert (await box.stats()).totals["put"] == 1
    assert await check_invariants(box) == []


OTHER_CONTENT: list[tuple[str, dict[str, Any]]] = [
    ("event_type", {"event_type": "user.deleted"}),
    ("payload", {"payload": {"id": 43}}),
    ("content_type", {"content_type": "application/vnd.user+json"}),
    ("headers", {"headers": {"a": "c"}}),
    ("partition_key", {"partition_key": "q"}),
    ("ordering_key", {"ordering_key": "other"}),
    ("ordering_key", {"ordering_key": None}),
    ("unique_key", {"unique_key": "other"}),
    ("unique_key", {"unique_key": None}),
]


@pytest.mark.req("EM-1", "EM-15")
@pytest.mark.parametrize("stage", STAGES)
async def test_the_same_id_with_other_content_is_refused(box: Box, stage: str):
    content: dict[str, Any] = {"event_type": "user.created", "payload": {"id": 42}, "event_id": "one",
                               "headers": {"a": "b"}, "partition_key": "p", "ordering_key": "o",
                               "unique_key": "k"}  # fmt: skip
    await bring_to(box, Event(**content), stage)
    before, totals = await contents(box), keys.counters(box.name)
    for field, other in OTHER_CONTENT:
        with pytest.raises(IdReused) as refusal:
            await box.put(Event(**{**content, **other}))
        assert (refusal.value.event_id, refusal.value.difference) == ("one", field)
        assert field in str(refusal.value)
        (receipt,) = await box.put_many([Event(**{**content, **other})], on_conflict="skip")
        assert (receipt.event_id, receipt.created, receipt.refused, receipt.holder) == ("one", False, "id_reused", None)
    assert {**await contents(box), totals: None} == {**before, totals: None}
    assert await check_invariants(box) == []


@pytest.mark.req("EM-1")
async def test_an_id_twice_in_one_batch(box: Box):
    receipts = await box.put_many([Event("n", 1, event_id="one"), Event("n", 1, event_id="one", metadata={"a": "b"})])
    assert [receipt.created for receipt in receipts] == [True, False]
    assert [receipt.refused for receipt in receipts] == [None, None]
    assert (await box.stats()).totals == {"put": 1, "repeated": 1}
    assert await check_invariants(box) == []


@pytest.mark.req("EM-1")
@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("event_type", {"event_type": "m"}),
        ("payload", {"payload": 2}),
        ("ordering_key", {"ordering_key": "o"}),
        ("unique_key", {"unique_key": "k"}),
    ],
)
async def test_an_id_twice_in_one_batch_with_other_content(box: Box, field: str, other: dict[str, Any]):
    first: dict[str, Any] = {"event_type": "n", "payload": 1, "event_id": "one"}
    batch = [Event(**first), Event(**{**first, **other}), Event("last", event_id="two")]
    receipts = await box.put_many(batch, on_conflict="skip")
    assert [receipt.created for receipt in receipts] == [True, False, True]
    assert receipts[1].refused == "id_reused"
    record = await known(box, "one")
    assert (record.event.event_type, record.event.payload, record.event.ordering_key, record.event.unique_key) == (
        "n", b"1", None, None,
    )  # fmt: skip
    with pytest.raises(BatchRefused) as refusal:
        await box.put_many([Event(**{**fields, "event_id": "three"}) for fields in (first, {**first, **other})])
    assert (refusal.value.index, [receipt.created for receipt in refusal.value.receipts]) == (1, [True])
    assert isinstance(refusal.value.__cause__, IdReused)
    assert refusal.value.__cause__.difference == field
    assert await check_invariants(box) == []


@pytest.mark.req("EM-1", "EM-8")
@pytest.mark.parametrize("mode", ["raise", "skip", "all_or_nothing"])
async def test_a_batch_repeated_under_another_trace_is_the_same_batch(box: Box, mode: Any):
    """A producer that did not see the answer puts its batch again, from another span, with more behind it."""
    await box.put(Event("n", 1, event_id="one", metadata={"traceparent": TRACEPARENT}))
    receipts = await box.put_many([Event("n", 1, event_id="one"), Event("n", 2, event_id="two")], on_conflict=mode)
    assert [(receipt.created, receipt.refused) for receipt in receipts] == [(False, None), (True, None)]
    assert (await known(box, "two")).event.payload == b"2"
    assert (await known(box, "one")).event.metadata == {"traceparent": TRACEPARENT}
    assert await check_invariants(box) == []


@pytest.mark.req("EM-1", "EM-8")
async def test_a_transaction_repeated_under_another_trace_is_the_same(box: Box):
    await box.put(Event("n", 1, event_id="one", metadata={"traceparent": TRACEPARENT}))
    async with box.transaction() as tx:
        tx.put(Event("n", 1, event_id="one"))
        tx.put(Event("n", 2, event_id="two"))
    assert [receipt.created for receipt in tx.receipts] == [False, True]
    assert (await known(box, "one")).event.metadata == {"traceparent": TRACEPARENT}


@pytest.mark.req("EM-1")
async def test_ids_belong_to_their_box(open_box: Callable[..., Box]):
    here, there = open_box(), open_box()
    assert (await here.put(Event("n", 1, event_id="one"))).created
    assert (await there.put(Event("n", 2, event_id="one"))).created
    assert (await known(here, "one")).event.payload == b"1"
    assert (await known(there, "one")).event.payload == b"2"


# --- EM-2: event_type --------------------------------------------------------------------------------------------


@pytest.mark.req("EM-2")
@pytest.mark.parametrize("event_type", ["user.created", "user.created.v2", "x" * 255, "größe/geändert:1"])
async def test_event_types_come_back_as_they_were(box: Box, event_type: str):
    claim = await put_and_claim(box, Event(event_type))
    assert claim.event.event_type == event_type
    assert (await known(box, claim.event_id)).event.event_type == event_type


@pytest.mark.req("EM-2")
@pytest.mark.parametrize(
    "event_type",
    ["", " ", "user created", "user\tcreated", "user.created\n", "x" * 256, "zero\u200bwidth", None, 42, b"bytes"],
)
def test_event_types_that_cannot_be_are_refused(event_type: Any):
    with pytest.raises(InvalidEvent, match="event_type") as refusal:
        Event(event_type)
    assert refusal.value.field == "event_type"


# --- EM-3: payload -----------------------------------------------------------------------------------------------


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
async def test_what_the_caller_does_to_its_value_afterwards_does_not_matter(box: Box):
    value = {"id": 42}
    await box.put(Event("user.created", value))
    value["id"] = 43
    assert (await claim_one(box)).event.payload == b'{"id":42}'


@pytest.mark.req("EM-3")
async def test_payloads_that_cannot_be_stored_are_refused_before_anything_is(open_box: Callable[..., Box]):
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


# --- EM-4, EM-5, EM-6, EM-7 --------------------------------------------------------------------------------------


@pytest.mark.req("EM-4", "EM-13")
async def test_state_and_claim_fields_along_a_whole_life(box: Box):
    event_id = (await box.put(Event("user.created"))).event_id
    seen = []

    async def look() -> None:
        stored = await fields_of(box, event_id)
        record = await known(box, event_id)
        assert record.state == stored["state"]
        claim = (record.claimed_by, record.claimed_at is not None)
        assert claim == (("r", True) if stored["state"] == "CLAIMED" else (None, False))
        assert (record.lease_until is not None) == (stored["state"] == "CLAIMED")
        if stored["state"] != "PUBLISHED":  # a success leaves them, so that the hot path stays short
            kept = {"claimed_at", "claimed_by"} & stored.keys()
            assert kept == ({"claimed_at", "claimed_by"} if stored["state"] == "CLAIMED" else set())
        seen.append(stored["state"])
        assert await check_invariants(box) == []

    await look()
    claim = await claim_one(box, "r")
    await look()
    await fail(box, claim, error="503")
    await look()
    await box.release(await claim_one(box, "r"))
    await look()
    await claim_one(box, "r")
    await expire(box)
    await look()
    await box.ack(await claim_one(box, "r"))
    await look()
    await box.replay([event_id])
    await look()
    await box.kill(await claim_one(box, "r"))
    await look()
    await box.replay([event_id])
    await look()
    await claim_one(box, "r")
    await box.operate.release([event_id], who="ada", why="stuck")
    await look()
    await claim_one(box, "r")
    await box.operate.kill([event_id], who="ada", why="poison")
    await look()
    assert seen == [
        "PENDING", "CLAIMED", "PENDING", "PENDING", "PENDING", "PUBLISHED", "PENDING", "DEAD", "PENDING", "PENDING",
        "DEAD",
    ]  # fmt: skip
    assert set(State) == {"PENDING", "CLAIMED", "PUBLISHED", "DEAD"}


@pytest.mark.req("EM-5")
async def test_an_event_restored_from_an_archive_keeps_its_created_at(box: Box):
    """Only the store's own encoding for restores can ask for it. It is due now, and its age counts from now."""
    now = await store_time(box)
    event = Event("n", event_id="a", ordering_key="k", unique_key="u", unique_scope="UNTOUCHED")
    plain = Event("n", event_id="b")
    created_at = now - timedelta(days=3)
    arguments = [encode_restored(each, created_at) for each in (event, plain)]
    assert await box._store.put("each", arguments) == [b"CREATED", b"CREATED"]
    for each in (event, plain):
        record = await known(box, each.event_id)
        assert (record.created_at, record.phase) == (created_at, Phase.AVAILABLE)
        assert record.available_at >= now
        assert [entry.outcome for entry in record.history] == ["replayed"]
        assert (record.event.ordering_key, record.event.unique_key) == (each.ordering_key, each.unique_key)
        assert record.event.unique_scope == each.unique_scope
    assert await check_invariants(box) == []
    claims = await box.claim("relay")
    assert all(claim.due_at >= now for claim in claims)
    await box.retry(claims, error="no", delay=0)
    await advance(box, seconds=1)
    again = await box.claim("relay")
    assert len(again) == 2
    assert all(claim.due_at >= now - timedelta(seconds=1) for claim in again)


@pytest.mark.req("EM-5")
async def test_created_at_is_the_stores_time_of_the_put(box: Box):
    before = await store_time(box)
    ids = [(await box.put(Event("n"))).event_id, (await box.put(Event("n", delay=60))).event_id]
    after = await store_time(box)
    for event_id in ids:
        assert before <= (await known(box, event_id)).created_at <= after
    assert (await claim_one(box)).created_at == (await known(box, ids[0])).created_at


@pytest.mark.req("EM-6")
async def test_partition_key_reaches_the_relay_and_orders_nothing(box: Box):
    await box.put_many([Event(f"n{n}", partition_key="p") for n in range(3)])
    claims = await box.claim("relay-1")
    assert [(claim.event.event_type, claim.event.partition_key) for claim in claims] == [
        ("n0", "p"), ("n1", "p"), ("n2", "p"),
    ]  # fmt: skip
    record = await known(box, claims[0].event_id)
    assert (record.event.partition_key, record.event.ordering_key) == ("p", None)


@pytest.mark.req("EM-7")
async def test_ordering_key_puts_events_into_a_line(box: Box):
    first, second = (await box.put_many([Event("a", ordering_key="user 42"), Event("b", ordering_key="user 42")]))[:2]
    claim = await claim_one(box)
    assert (claim.event_id, claim.event.ordering_key) == (first.event_id, "user 42")
    record = await known(box, second.event_id)
    assert (record.waiting, record.event.ordering_key) == (True, "user 42")
    await box.ack(claim)
    assert not (await known(box, second.event_id)).waiting
    assert (await claim_one(box)).event_id == second.event_id
    assert await check_invariants(box) == []


@pytest.mark.req("EM-6", "EM-7", "EM-15")
@pytest.mark.parametrize("field", ["partition_key", "ordering_key", "unique_key"])
@pytest.mark.parametrize("value", ["", "x" * 256, "line\nbreak", 42])
def test_keys_that_cannot_be_are_refused(field: str, value: Any):
    with pytest.raises(InvalidEvent, match=field):
        Event("n", **{field: value})


# --- EM-8, EM-9: metadata and headers ----------------------------------------------------------------------------


@pytest.mark.req("EM-8", "EM-9")
async def test_metadata_and_headers_come_back_apart_and_as_they_were(box: Box):
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
async def test_the_trace_of_the_span_that_put_travels_in_the_metadata(box: Box):
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
    context, told = span.get_span_context(), claim.event.metadata["traceparent"]
    assert told.startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    assert int(told[-2:], 16) & 1, "the span is sampled"


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
def test_headers_that_cannot_be_are_refused(headers: Any):
    with pytest.raises(InvalidEvent, match="headers"):
        Event("n", headers=headers)


@pytest.mark.req("EM-8", "EM-9")
@pytest.mark.parametrize("field", ["headers", "metadata"])
async def test_texts_that_cannot_be_encoded_are_refused(box: Box, field: str):
    texts: dict[str, Any] = {field: {"x": "caf\udce9"}}
    with pytest.raises(InvalidEvent, match=field):
        await box.put(Event("n", **texts))
    assert await contents(box) == {}


# --- EM-10: attempts ---------------------------------------------------------------------------------------------


def tally(of: Claim | Record) -> tuple[int, int]:
    return of.attempts, of.excused


@pytest.mark.req("EM-10")
async def test_attempts_are_counted_in_the_claim(box: Box):
    event_id = (await box.put(Event("n"))).event_id
    assert tally(await known(box, event_id)) == (0, 0)
    claim = await claim_one(box)
    assert (tally(claim), claim.failures) == ((1, 0), 0)
    assert tally(await known(box, event_id)) == (1, 0)
    await fail(box, claim, error="503")
    assert tally(await known(box, event_id)) == (1, 0)
    claim = await claim_one(box)
    assert (tally(claim), claim.failures) == ((2, 0), 1)
    await box.ack(claim)
    assert tally(await known(box, event_id)) == (2, 0)
    assert await check_invariants(box) == []


@pytest.mark.req("EM-10")
async def test_what_is_given_back_is_excused(box: Box):
    claim = await put_and_claim(box)
    await box.release(claim)
    assert tally(await known(box, claim.event_id)) == (1, 1)
    claim = await claim_one(box, attempts=1)
    assert (tally(claim), claim.exhausted, claim.failures) == ((2, 1), False, 0)
    await box.operate.release([claim.event_id], who="ada", why="deploy")
    assert tally(await known(box, claim.event_id)) == (2, 2)
    claim = await claim_one(box, attempts=1)
    assert (tally(claim), claim.exhausted) == ((3, 2), False)
    await fail(box, claim, error="503")
    claim = await claim_one(box, attempts=1)
    assert (tally(claim), claim.exhausted, claim.failures) == ((3, 2), True, 1)
    assert await check_invariants(box) == []


@pytest.mark.req("EM-10")
async def test_an_expiry_alone_counts(box: Box):
    claim = await put_and_claim(box)
    assert await expire(box) == [claim.event_id]
    assert tally(await known(box, claim.event_id)) == (1, 0)
    assert (await claim_one(box, attempts=1)).exhausted
    assert await check_invariants(box) == []


@pytest.mark.req("EM-10")
async def test_an_expiry_in_company_is_excused(box: Box):
    await box.put_many([Event("n") for _ in range(3)])
    claims = await box.claim("relay-1")
    assert len(claims) == 3
    await expire(box)
    for claim in claims:
        assert tally(await known(box, claim.event_id)) == (1, 1)
    assert [(tally(claim), claim.exhausted) for claim in await box.claim("relay-1", attempts=1)] == [
        ((2, 1), False)
    ] * 3
    assert await check_invariants(box) == []


@pytest.mark.req("EM-10")
@pytest.mark.parametrize(("holding", "excused"), [(0, 0), (1, 1), (7, 1)])
async def test_what_the_relay_holds_already_is_company(box: Box, holding: int, excused: int):
    claim = await put_and_claim(box, holding=holding)
    await expire(box)
    assert tally(await known(box, claim.event_id)) == (1, excused)
    assert await check_invariants(box) == []


@pytest.mark.req("EM-10")
async def test_company_is_of_one_claim_not_of_the_next(box: Box):
    claim = await put_and_claim(box, holding=1)
    await fail(box, claim, error="503")
    await claim_one(box)
    await expire(box)
    assert tally(await known(box, claim.event_id)) == (2, 0)


@pytest.mark.req("EM-10")
async def test_a_failure_in_company_counts(box: Box):
    claim = await put_and_claim(box, holding=3)
    await fail(box, claim, error="503")
    assert tally(await known(box, claim.event_id)) == (1, 0)


@pytest.mark.req("EM-10", "SC-5")
async def test_attempts_are_used_up_at_the_limit_and_not_before(box: Box):
    await box.put(Event("n"))
    for failures in range(3):
        claim = await claim_one(box, attempts=3)
        assert (claim.attempts, claim.exhausted, claim.failures) == (failures + 1, False, failures)
        await fail(box, claim, error="503")
    claim = await claim_one(box, attempts=3)
    assert (claim.attempts, claim.exhausted, claim.failures) == (3, True, 3)
    assert tally(await known(box, claim.event_id)) == (3, 0)


@pytest.mark.req("EM-10")
@pytest.mark.parametrize("how", ["release", "operator", "expiry alone", "expiry in company", "retry"])
async def test_the_exhausted_stay_exhausted_and_are_not_counted_again(box: Box, how: str):
    claim = await put_and_claim(box)
    await fail(box, claim, error="503")
    for _ in range(3):
        claim = await claim_one(box, attempts=1, holding=1 if how == "expiry in company" else 0)
        assert (tally(claim), claim.exhausted) == ((1, 0), True)
        if how == "release":
            assert await box.release(claim) == [True]
        elif how == "operator":
            assert await box.operate.release([claim.event_id], who="ada", why="x") == [Outcome.OK]
        elif how == "retry":
            assert await fail(box, claim, error="no dead-letter target") == [True]
        else:
            assert await expire(box) == [claim.event_id]
        assert tally(await known(box, claim.event_id)) == (1, 0)
        assert await check_invariants(box) == []
    claim = await claim_one(box, attempts=2)
    assert (tally(claim), claim.exhausted) == ((2, 0), False)


@pytest.mark.req("EM-10")
async def test_an_exhausted_claim_leaves_no_mark_on_the_next(box: Box):
    """After an exhausted claim, a counted one that is given back is excused again."""
    claim = await put_and_claim(box)
    await fail(box, claim, error="503")
    await box.release(await claim_one(box, attempts=1))
    await box.release(await claim_one(box, attempts=5))
    assert tally(await known(box, claim.event_id)) == (2, 1)
    await claim_one(box, attempts=5, holding=1)
    await expire(box)
    assert tally(await known(box, claim.event_id)) == (3, 2)


@pytest.mark.req("EM-10")
async def test_excuses_add_up_over_releases_and_expiries(box: Box):
    claim = await put_and_claim(box, holding=1)
    await expire(box)
    await box.release(await claim_one(box))
    await claim_one(box, holding=1)
    await expire(box)
    assert tally(await known(box, claim.event_id)) == (3, 3)
    assert await check_invariants(box) == []


@pytest.mark.req("EM-10")
@pytest.mark.parametrize("written", [b"\x93\x02\xa1x\xc0", b"\x96\x02\xc4\x00\xc0\x80\xc0\x80"])
async def test_an_event_of_a_newer_redbox_is_given_back_unburned(box: Box, written: bytes):
    """A body of version 2, of another shape or of the same: this relay leaves it to one that can read it."""
    ids = [(await box.put(Event("n", n))).event_id for n in range(2)]
    await box._store.exchange([("SET", keys.body(box.name, ids[0]), written)])
    assert [claim.event_id for claim in await box.claim("relay-1", attempts=1)] == [ids[1]]
    stored = await fields_of(box, ids[0])
    assert (stored["state"], stored["attempts"], stored["excused"]) == ("PENDING", "1", "1")
    assert int(stored["available_at"]) - int(stored["created_at"]) >= 60_000
    record = await known(box, ids[0])
    assert "upgrade" in str(record.problem)
    assert [found.event_id async for found in box.list()] == ids
    assert (await known(box, ids[1])).problem is None
    assert await check_invariants(box) == []


# --- EM-11: last_error -------------------------------------------------------------------------------------------


@pytest.mark.req("EM-11")
async def test_last_error_is_updated_on_every_failure(box: Box):
    claim = await put_and_claim(box)
    assert (await known(box, claim.event_id)).last_error is None
    await fail(box, claim, error="503 first")
    assert (await known(box, claim.event_id)).last_error == "503 first"
    await fail(box, await claim_one(box), error="Zoë said no: ×\n\tline 2")
    assert (await known(box, claim.event_id)).last_error == "Zoë said no: ×\n\tline 2"
    await claim_one(box, "relay-9")
    await expire(box)
    assert (await known(box, claim.event_id)).last_error == "lease expired while held by relay-9"
    await box.release(await claim_one(box))
    assert (await known(box, claim.event_id)).last_error == "lease expired while held by relay-9"
    await box.kill(await claim_one(box), reason="410 gone")
    assert (await known(box, claim.event_id)).last_error == "410 gone"


@pytest.mark.req("EM-11")
async def test_killed_without_a_reason_keeps_the_last_error(box: Box):
    claim = await put_and_claim(box)
    await fail(box, claim, error="503")
    await box.kill(await claim_one(box))
    assert (await known(box, claim.event_id)).last_error == "503"


@pytest.mark.req("EM-11")
async def test_each_claim_of_a_batch_gets_its_own_error_and_delay(box: Box):
    await box.put_many([Event("n") for _ in range(3)])
    claims = await box.claim("relay-1")
    assert await box.retry(claims, error=["a", "b", "c"], delay=[10, timedelta(seconds=20), 0.5]) == [True] * 3
    records = [await known(box, claim.event_id) for claim in claims]
    assert [record.last_error for record in records] == ["a", "b", "c"]
    delays = [(record.available_at - record.history[-1].at).total_seconds() for record in records]
    assert delays == [10, 20, 0.5]
    await advance(box, minutes=1)
    again = await box.claim("relay-1")
    assert await box.kill(again, reason=[f"died of {claim.event_id}" for claim in again]) == [True] * 3
    assert [(await known(box, claim.event_id)).last_error for claim in claims] == [
        f"died of {claim.event_id}" for claim in claims
    ]
    assert await check_invariants(box) == []


@pytest.mark.req("EM-11")
@pytest.mark.parametrize("how", ["retry", "kill", "operator"])
async def test_last_error_is_bounded(box: Box, how: str):
    claim = await put_and_claim(box)
    text = "é" * 5000
    if how == "retry":
        await fail(box, claim, error=text)
    elif how == "kill":
        await box.kill(claim, reason=text)
    else:
        await box.operate.kill([claim.event_id], who="ada", why=text)
    last_error = (await known(box, claim.event_id)).last_error
    assert last_error == ("killed by ada: " + text if how == "operator" else text)[:2000]
    assert len(last_error) == 2000


@pytest.mark.req("EM-11", "EM-14")
async def test_errors_in_the_history_are_cut_short_and_stay_readable(box: Box):
    claim = await put_and_claim(box)
    await fail(box, claim, error="a\tb\n" + "x" * 5000)
    await fail(box, await claim_one(box), error="x" * 199 + "é" * 10)
    first, second = (await known(box, claim.event_id)).history
    assert first.error == "a\tb\n" + "x" * 196
    assert second.error[:199] == "x" * 199
    assert len(second.error) <= 200


@pytest.mark.req("EM-11")
async def test_an_error_that_is_not_clean_text_does_not_keep_a_relay_from_settling(box: Box):
    """Texts of exceptions may hold lone surrogates: file names and headers that were not UTF-8."""
    claim = await put_and_claim(box)
    assert await fail(box, claim, error="no such file: caf\udce9") == [True]
    assert str((await known(box, claim.event_id)).last_error).startswith("no such file: caf")


# --- EM-12: available_at -----------------------------------------------------------------------------------------


@pytest.mark.req("EM-12")
async def test_absent_means_now(box: Box):
    receipt = await box.put(Event("n"))
    record = await known(box, receipt.event_id)
    assert (record.available_at, record.phase) == (record.created_at, Phase.AVAILABLE)
    claim = await claim_one(box)
    assert claim.event.available_at == record.created_at


@pytest.mark.req("EM-12")
@pytest.mark.parametrize("delay", [60, 60.0, timedelta(minutes=1)])
async def test_a_delay_is_from_the_put(box: Box, delay: Any):
    receipt = await box.put(Event("n", delay=delay))
    record = await known(box, receipt.event_id)
    assert (record.available_at - record.created_at, record.phase) == (timedelta(seconds=60), Phase.SCHEDULED)
    await advance(box, seconds=50)
    assert await box.claim("relay-1") == []
    await advance(box, seconds=10)
    assert (await claim_one(box)).event_id == receipt.event_id
    assert await check_invariants(box) == []


@pytest.mark.req("EM-12")
async def test_a_delay_of_milliseconds(box: Box):
    receipt = await box.put(Event("n", delay=0.25))
    record = await known(box, receipt.event_id)
    assert record.available_at - record.created_at == timedelta(milliseconds=250)


@pytest.mark.req("EM-12")
async def test_parts_of_a_millisecond_are_never_too_early(box: Box):
    """The store counts in milliseconds: what does not fit is rounded up."""
    moment = await store_time(box) + timedelta(hours=1, microseconds=1)
    at, after = (await box.put_many([Event("n", available_at=moment), Event("n", delay=60.0001)]))[:2]
    assert (await known(box, at.event_id)).available_at == moment + timedelta(microseconds=999)
    record = await known(box, after.event_id)
    assert record.available_at - record.created_at == timedelta(seconds=60, milliseconds=1)


@pytest.mark.req("EM-12")
async def test_an_absolute_time(box: Box):
    moment = await store_time(box) + timedelta(hours=1)
    receipt = await box.put(Event("n", available_at=moment))
    assert (await known(box, receipt.event_id)).available_at == moment
    await advance(box, minutes=59)
    assert await box.claim("relay-1") == []
    await advance(box, minutes=1)
    assert (await claim_one(box)).event_id == receipt.event_id
    assert await check_invariants(box) == []


@pytest.mark.req("EM-12")
@pytest.mark.parametrize("moment", [datetime(2001, 1, 1, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)])
async def test_the_past_is_now(box: Box, moment: datetime):
    receipt = await box.put(Event("n", available_at=moment))
    record = await known(box, receipt.event_id)
    assert record.available_at == record.created_at
    assert (await claim_one(box)).event_id == receipt.event_id
    assert await check_invariants(box) == []


@pytest.mark.req("EM-12")
async def test_what_is_not_due_is_left_out_of_a_claim(box: Box):
    await box.put_many([Event("later", delay=60), Event("now"), Event("much-later", delay=3600)])
    assert [claim.event.event_type for claim in await box.claim("relay-1")] == ["now"]
    await advance(box, seconds=61)
    assert [claim.event.event_type for claim in await box.claim("relay-1")] == ["later"]


@pytest.mark.req("EM-12")
def test_times_that_cannot_be_are_refused():
    for fields in ({"delay": -1}, {"delay": float("nan")}, {"delay": float("inf")}, {"delay": "soon"},
                   {"delay": timedelta(days=3661)}, {"delay": timedelta(seconds=-1)}):  # fmt: skip
        with pytest.raises(InvalidEvent, match="delay"):
            Event("n", **fields)
    for moment in (datetime(2030, 1, 1), "2030-01-01", 1_900_000_000):  # noqa: DTZ001, RUF100  # naive on purpose
        with pytest.raises(InvalidEvent, match="available_at"):
            Event("n", available_at=moment)  # type: ignore[arg-type]
    with pytest.raises(InvalidEvent, match="not both"):
        Event("n", delay=1, available_at=datetime(2030, 1, 1, tzinfo=UTC))


@pytest.mark.req("EM-12")
async def test_an_operator_may_kill_a_scheduled_event(box: Box):
    receipt = await box.put(Event("n", delay=3600))
    assert await box.operate.kill([receipt.event_id], who="ada", why="cancelled") == [Outcome.OK]
    assert (await known(box, receipt.event_id)).state == State.DEAD
    await advance(box, hours=2)
    assert await box.claim("relay-1") == []
    assert await check_invariants(box) == []


# --- EM-14: published_at and the history -------------------------------------------------------------------------


@pytest.mark.req("EM-14")
async def test_published_at_is_set_exactly_while_published(box: Box):
    claim = await put_and_claim(box)
    assert (await known(box, claim.event_id)).published_at is None
    before = await store_time(box)
    await box.ack(claim)
    published = await known(box, claim.event_id)
    assert published.published_at is not None
    assert before <= published.published_at <= await store_time(box)
    assert (published.published_by, published.history) == ("relay-1", ())
    assert (
        await box.ack(claim) == await box.retry(claim) == await box.kill(claim) == await box.release(claim) == [False]
    )
    assert await box.operate.kill([claim.event_id], who="ada", why="x") == [Outcome.NOTLIVE]
    assert await box.operate.release([claim.event_id], who="ada", why="x") == [Outcome.NOTCLAIMED]
    assert await box.operate.reschedule([claim.event_id], who="ada", why="x") == [Outcome.NOTPENDING]
    assert await known(box, claim.event_id) == published
    await box.replay([claim.event_id])
    record = await known(box, claim.event_id)
    assert (record.published_at, record.published_by) == (None, None)
    assert await check_invariants(box) == []


@pytest.mark.req("EM-14")
async def test_what_happened_before_a_replay_is_kept(box: Box):
    claim = await put_and_claim(box)
    await box.ack(claim)
    published_at = (await known(box, claim.event_id)).published_at
    before = await store_time(box)
    await box.replay([claim.event_id], who="ada", why="consumer lost it")
    published, replayed = (await known(box, claim.event_id)).history
    assert (published.at, published.outcome, published.by, published.number, published.error) == (
        published_at, "published", "relay-1", claim.number, "",
    )  # fmt: skip
    assert (replayed.outcome, replayed.by, replayed.number, replayed.error) == (
        "replayed", "ada", claim.number, "consumer lost it",
    )  # fmt: skip
    assert before <= replayed.at <= await store_time(box)
    await box.kill(await claim_one(box, "relay-2"), reason="422")
    await box.replay([claim.event_id], who="bob")
    outcomes = [(attempt.outcome, attempt.by) for attempt in (await known(box, claim.event_id)).history]
    assert outcomes == [
        ("published", "relay-1"), ("replayed", "ada"), ("died", "relay-2"), ("replayed", "bob"),
    ]  # fmt: skip


@pytest.mark.req("EM-14")
async def test_every_outcome_is_told_with_when_by_whom_and_why(box: Box):
    await box.put(Event("n", event_id="one"))
    numbers = []
    before = await store_time(box)
    claim = await claim_one(box, "relay-1")
    numbers.append(claim.number)
    await fail(box, claim, error="503")
    claim = await claim_one(box, "relay-2")
    numbers.append(claim.number)
    await box.release(claim)
    claim = await claim_one(box, "relay-3")
    numbers.append(claim.number)
    await box.operate.release(["one"], who="ada", why="stuck")
    claim = await claim_one(box, "relay-4", lease=0.001)
    numbers.append(claim.number)
    assert await expire(box) == ["one"]
    claim = await claim_one(box, "relay-5")
    numbers.append(claim.number)
    await box.kill(claim, reason="422")
    await box.replay(["one"], who="ada", why="mended")
    await box.operate.kill(["one"], who="bob", why="poison")
    after = await store_time(box)
    record = await known(box, "one")
    told = [(attempt.outcome, attempt.by, attempt.error) for attempt in record.history]
    assert told == [
        ("retried", "relay-1", "503"),
        ("released", "relay-2", ""),
        ("released", "ada", "stuck"),
        ("expired", "relay-4", "lease expired while held by relay-4"),
        ("died", "relay-5", "422"),
        ("replayed", "ada", "mended"),
        ("died", "bob", "killed by bob: poison"),
    ]
    assert numbers == [1, 2, 3, 4, 5]
    assert [attempt.number for attempt in record.history] == [1, 2, 3, 4, 5, 5, 6]
    assert record.number == 6
    moments = [attempt.at for attempt in record.history]
    assert moments == sorted(moments)
    assert before <= moments[0]
    assert moments[-1] <= after
    assert await check_invariants(box) == []


@pytest.mark.req("EM-14")
async def test_the_history_holds_the_last_eight(box: Box):
    await box.put(Event("n", event_id="one"))
    for n in range(1, 12):
        await fail(box, await claim_one(box, f"relay-{n}"), error=f"failure {n}")
    history = (await known(box, "one")).history
    assert [(attempt.number, attempt.by, attempt.error) for attempt in history] == [
        (n, f"relay-{n}", f"failure {n}") for n in (4, 5, 6, 7, 8, 9, 10, 11)
    ]
    await box.ack(await claim_one(box))
    await box.replay(["one"])
    history = (await known(box, "one")).history
    assert [attempt.outcome for attempt in history] == ["retried"] * 6 + ["published", "replayed"]
    assert await check_invariants(box) == []


# --- EM-15: what never changes -----------------------------------------------------------------------------------


@pytest.mark.req("EM-15", "EM-5", "EM-3")
async def test_nothing_changes_the_immutable_part(box: Box):
    event = Event(
        "user.created", b"\x00\xffpayload", event_id="one", headers={"a": "b"}, metadata={"c": "d"},
        partition_key="p", ordering_key="o", unique_key="u", unique_scope="UNTOUCHED", content_type="a/b",
    )  # fmt: skip
    await box.put(event)
    immutable = ("event_type", "ordering_key", "unique_key", "unique_scope", "created_at")
    stored = await fields_of(box, "one")
    fixed = {name: stored[name] for name in immutable}
    assert {name: value for name, value in fixed.items() if name != "created_at"} == {
        "event_type": "user.created", "ordering_key": "o", "unique_key": "u", "unique_scope": "UNTOUCHED",
    }  # fmt: skip
    body = await body_of(box, "one")

    async def same() -> None:
        now = await fields_of(box, "one")
        assert {name: now.get(name) for name in immutable} == fixed
        assert await body_of(box, "one") == body
        record = await known(box, "one")
        told = record.event
        assert (told.event_type, told.payload, told.event_id, told.headers, told.metadata, told.partition_key) == (
            "user.created", b"\x00\xffpayload", "one", {"a": "b"}, {"c": "d"}, "p",
        )  # fmt: skip
        assert (told.ordering_key, told.unique_key, told.unique_scope, told.content_type) == (
            "o", "u", "UNTOUCHED", "a/b",
        )  # fmt: skip

    async def claimed() -> Claim:
        claim = await claim_one(box)
        assert (await known(box, "one")).event == claim.event
        await same()
        return claim

    await same()
    await box.operate.reschedule(["one"], who="ada", why="sooner")
    await same()
    await box.renew(await claimed())
    await same()
    await box.operate.release(["one"], who="ada", why="x")
    await same()
    await box.release(await claimed())
    await same()
    await box.retry(await claimed(), error="503")
    await box.operate.reschedule(["one"], who="ada", why="at once")
    await same()
    claim = await claimed()
    await box._store.exchange([("ZADD", keys.claimed(box.name), 1, "one")])  # advance() would move created_at
    assert await box.reap() == ["one"]
    assert await box.ack(claim) == [False]
    await same()
    await box.ack(await claimed())
    await same()
    await box.replay(["one"], who="ada", why="x")
    await same()
    await box.kill(await claimed(), reason="422")
    await same()
    await box.replay(["one"], reset=False, force=True)
    await same()
    await box.operate.kill(["one"], who="ada", why="x")
    await same()
    await box.operate.configure(dead_head="block", who="ada", why="x")
    await box.operate.pause(who="ada", why="x")
    await box.sweep(dry_run=True)
    await same()
    assert await check_invariants(box) == []


@pytest.mark.req("EM-15")
async def test_what_was_put_together_stays_apart(box: Box):
    """Events of one batch, with and without keys, each keep what is theirs."""
    batch = [
        Event("plain", 1, event_id="1"),
        Event("line", 2, event_id="2", ordering_key="o"),
        Event("unique", 3, event_id="3", unique_key="u", unique_scope="UNTOUCHED"),
        Event("both", 4, event_id="4", ordering_key="o", unique_key="v", delay=60),
        Event("later", 5, event_id="5", delay=60),
    ]
    await box.put_many(batch)
    told = []
    for event_id in "12345":
        record = await known(box, event_id)
        told.append((record.event.event_type, record.event.payload, record.event.ordering_key, record.event.unique_key,
                     record.event.unique_scope, record.waiting,
                     (record.available_at - record.created_at).total_seconds()))  # fmt: skip
    assert told == [
        ("plain", b"1", None, None, "ALL_LIVE", False, 0),
        ("line", b"2", "o", None, "ALL_LIVE", False, 0),
        ("unique", b"3", None, "u", "UNTOUCHED", False, 0),
        ("both", b"4", "o", "v", "ALL_LIVE", True, 60),
        ("later", b"5", None, None, "ALL_LIVE", False, 60),
    ]
    claims = await box.claim("relay-1")
    assert [(claim.event_id, claim.event.ordering_key, claim.event.unique_key, claim.event.unique_scope)
            for claim in claims] == [
        ("1", None, None, "ALL_LIVE"), ("2", "o", None, "ALL_LIVE"), ("3", None, "u", "UNTOUCHED"),
    ]  # fmt: skip
    assert await check_invariants(box) == []


@pytest.mark.req("EM-14", "EM-15")
async def test_terminal_records_tell_everything(box: Box):
    (published,) = await publish(box, Event("n", {"a": 1}))
    (dead,) = await bury(box, Event("n", {"a": 1}), reason="422")
    record = await known(box, published)
    assert (record.phase, record.attempts, record.died_at, record.last_error) == (Phase.COMPLETED, 1, None, None)
    record = await known(box, dead)
    assert (record.phase, record.attempts, record.published_at, record.last_error) == (Phase.DEAD, 1, None, "422")
    assert record.died_at is not None
    assert record.created_at <= record.died_at <= await store_time(box)
    assert [attempt.outcome for attempt in record.history] == ["died"]
