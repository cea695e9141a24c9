"""MQ-4: a box that is full."""

from __future__ import annotations

import pytest

from redbox import BatchRefused, Box, BoxFull, Event, keys
from redbox.testing import check_invariants
from redbox.testing.conformance.states.steps import configure, make_suspect, one
from redbox.testing.conformance.steps import (
    contents,
)


@pytest.mark.req("MQ-4")
async def test_a_full_box_refuses_new_events_only(box: Box):
    await configure(box, max_pending=3)
    await box.put_many([Event("n", event_id="a"), Event("n", ordering_key="o"), Event("n", ordering_key="o")])
    before = await contents(box)
    with pytest.raises(BoxFull, match="3"):
        await box.put(Event("n", unique_key="k"))
    (receipt,) = await box.put_many([Event("n", event_id="b")], on_conflict="skip")
    assert (receipt.created, receipt.refused, receipt.holder) == (False, "box_full", None)
    with pytest.raises(BatchRefused) as refusal:
        await box.put_many([Event("n", event_id="a"), Event("n"), Event("n")], on_conflict="all_or_nothing")
    assert refusal.value.index == 1
    assert not (await box.put(Event("n", event_id="a"))).created
    after, totals = await contents(box), keys.counters(box.name)
    assert {**after, totals: None} == {**before, totals: None}
    await box.ack(await box.claim("relay-1", limit=1))
    assert (await box.put(Event("n"))).created
    with pytest.raises(BoxFull):
        await box.put(Event("n"))
    await configure(box, max_pending=0)
    assert (await box.put(Event("n"))).created
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4")
async def test_a_batch_fills_the_box_up_to_its_limit(box: Box):
    await make_suspect(box, delay=60)
    await configure(box, max_pending=3)
    receipts = await box.put_many([Event("n") for _ in range(4)], on_conflict="skip")
    assert [receipt.created for receipt in receipts] == [True, True, False, False]
    await box.claim("relay-1", limit=1)
    with pytest.raises(BatchRefused) as refusal:
        await box.put_many([Event("n"), Event("n")])
    assert (refusal.value.index, isinstance(refusal.value.__cause__, BoxFull)) == (1, True)
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4")
async def test_an_event_that_did_not_fit_holds_no_key(box: Box):
    await configure(box, max_pending=1)
    receipts = await box.put_many([Event("n", event_id="a"), one("b"), one("c")], on_conflict="skip")
    assert [(receipt.created, receipt.refused, receipt.holder) for receipt in receipts] == [
        (True, None, None), (False, "box_full", None), (False, "box_full", None),
    ]  # fmt: skip
