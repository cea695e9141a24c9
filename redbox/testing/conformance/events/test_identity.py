"""EM-1, EM-2: event_id and event_type."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from redbox import Box, Event, IdReused, InvalidEvent, keys
from redbox.errors import BatchRefused
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import (
    TRACEPARENT,
    claim_one,
    contents,
    known,
    put_and_claim,
)


async def bring_to(box: Box, event: Event, stage: str) -> None:
    """Puts an event and brings it to a stage of the lifecycle."""
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


# --- EM-1: event_id --------------------------------------------------------------------------------------------------


@pytest.mark.req("EM-1")
async def test_ids_are_uuid7_and_sort_in_order_of_creation(box: Box):
    events = [Event("n") for _ in range(200)]
    ids = [event.event_id for event in events]
    assert {uuid.UUID(event_id).version for event_id in ids} == {7}
    assert len(set(ids)) == 200
    assert sorted(ids) == ids
    await box.put_many(events)
    assert [claim.event_id for claim in await box.claim("relay-1", limit=200)] == ids


@pytest.mark.req("EM-1")
async def test_an_id_given_by_the_caller_is_kept(box: Box):
    receipt = await box.put(Event("user.created", event_id="order:42/(a)"))
    assert (receipt.event_id, receipt.created, receipt.refused) == ("order:42/(a)", True, None)
    assert (await known(box, "order:42/(a)")).event.event_id == "order:42/(a)"
    assert (await claim_one(box)).event_id == "order:42/(a)"


@pytest.mark.req("EM-1")
@pytest.mark.parametrize("event_id", ["", "with space", "x" * 129, "ünï", "line\nbreak", 42, None])
def test_invalid_ids_are_refused(event_id: Any):
    with pytest.raises(InvalidEvent, match="event_id"):
        Event("user.created", event_id=event_id)


@pytest.mark.req("EM-1")
@pytest.mark.parametrize("stage", STAGES)
async def test_putting_the_same_event_again_changes_nothing_at_any_stage(box: Box, stage: str):
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
async def test_the_same_id_with_different_content_is_refused(box: Box, stage: str):
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
async def test_an_id_twice_in_one_batch_with_different_content(box: Box, field: str, other: dict[str, Any]):
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
async def test_a_batch_repeated_in_another_span_is_the_same_batch(box: Box, mode: Any):
    """A producer that did not get the receipts puts its batch again, in another span, with more events."""
    await box.put(Event("n", 1, event_id="one", metadata={"traceparent": TRACEPARENT}))
    receipts = await box.put_many([Event("n", 1, event_id="one"), Event("n", 2, event_id="two")], on_conflict=mode)
    assert [(receipt.created, receipt.refused) for receipt in receipts] == [(False, None), (True, None)]
    assert (await known(box, "two")).event.payload == b"2"
    assert (await known(box, "one")).event.metadata == {"traceparent": TRACEPARENT}
    assert await check_invariants(box) == []


@pytest.mark.req("EM-1", "EM-8")
async def test_a_transaction_repeated_in_another_span_is_the_same(box: Box):
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


# --- EM-2: event_type ------------------------------------------------------------------------------------------------


@pytest.mark.req("EM-2")
@pytest.mark.parametrize("event_type", ["user.created", "user.created.v2", "x" * 255, "größe/geändert:1"])
async def test_event_types_are_returned_unchanged(box: Box, event_type: str):
    claim = await put_and_claim(box, Event(event_type))
    assert claim.event.event_type == event_type
    assert (await known(box, claim.event_id)).event.event_type == event_type


@pytest.mark.req("EM-2")
@pytest.mark.parametrize(
    "event_type",
    ["", " ", "user created", "user\tcreated", "user.created\n", "x" * 256, "zero\u200bwidth", None, 42, b"bytes"],
)
def test_invalid_event_types_are_refused(event_type: Any):
    with pytest.raises(InvalidEvent, match="event_type") as refusal:
        Event(event_type)
    assert refusal.value.field == "event_type"
