"""SC-1: put, and the durability of events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redbox import Box, Claim, Conflict, Event, IdReused, State
from redbox.errors import (
    DurabilityNotReached,
    DurabilityUnsupported,
    InvalidSetting,
)
from redbox.store.server import durability as levels
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import (
    body_of,
    claim_one,
    fields_of,
    known,
)
from redbox.testing.conformance.store.steps import totals_of


@pytest.mark.req("SC-1")
async def test_an_event_is_stored_when_put_returns(box: Box):
    assert not await box.exists()
    receipt = await box.put(Event("n", {"a": 1}, event_id="one"))
    assert (receipt.created, receipt.durability) == (True, "server")
    assert (await fields_of(box, "one"))["state"] == "PENDING"
    assert await body_of(box, "one")
    assert await box.exists()
    assert box.name in await box.names()
    assert await check_invariants(box) == []


@pytest.mark.req("SC-1")
async def test_concurrent_puts_each_get_their_own_receipt(box: Box):
    await box.put(Event("n", 1, event_id="taken"))
    answers = await asyncio.gather(
        box.put(Event("n", event_id="new")),
        box.put(Event("n", 2, event_id="taken")),
        box.put(Event("n", unique_key="k", event_id="first")),
        box.put(Event("n", unique_key="k", event_id="second")),
        box.put(Event("n", 1, event_id="taken")),
        return_exceptions=True,
    )
    new, reused, first, second, taken = answers
    assert not isinstance(new, BaseException)
    assert new.created
    assert isinstance(reused, IdReused)
    assert not isinstance(first, BaseException)
    assert first.created
    assert isinstance(second, Conflict)
    assert second.holder == "first"
    assert not isinstance(taken, BaseException)
    assert not taken.created
    assert (await totals_of(box))["put"] == 3
    assert await check_invariants(box) == []


@pytest.mark.req("SC-1")
async def test_no_event_is_visible_before_its_transaction_commits(box: Box):
    async with box.transaction() as tx:
        event_id = tx.put(Event("n"))
        assert await box.get(event_id) is None
        assert await box.claim("relay-1") == []
    assert (await claim_one(box)).event_id == event_id
    assert [(receipt.event_id, receipt.created) for receipt in tx.receipts] == [(event_id, True)]
    assert await check_invariants(box) == []


@pytest.mark.req("SC-1")
async def test_invalid_durabilities_are_refused(open_box: Callable[..., Box]):
    box = open_box()
    for name in ("replicas=0", "replicas=-1", "disk", "", "fsync "):
        with pytest.raises(InvalidSetting, match="durability"):
            await box.put(Event("n"), durability=name)
        with pytest.raises(InvalidSetting, match="durability"):
            open_box(durability=name)
    assert not await box.exists()


@pytest.mark.req("SC-1")
@pytest.mark.needs("server")
async def test_fsync_is_provided_or_refused_before_anything_is_written(box: Box):
    try:
        receipt = await box.put(Event("n", event_id="one"), durability="fsync")
    except DurabilityUnsupported:
        assert await box.get("one") is None
    else:
        assert (receipt.created, receipt.durability) == (True, "fsync")


@pytest.mark.req("SC-1", "SC-4")
@pytest.mark.needs("server")
async def test_missing_replicas_are_reported_and_the_event_may_exist(
    open_box: Callable[..., Box], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(levels, "TIMEOUT", 0.02)
    box = open_box(durability="replicas=99")
    event = Event("n", event_id="one")
    with pytest.raises(DurabilityNotReached):
        await box.put(event)
    receipt = await box.put(event, durability="server")
    assert (receipt.created, receipt.durability) == (False, "server")
    with pytest.raises(DurabilityNotReached):
        async with box.transaction() as tx:
            tx.put(Event("n", event_id="two", delay=60))
    assert (await known(box, "two")).state == State.PENDING

    async def settles(settle: Callable[[Claim], Awaitable[Any]], state: State) -> None:
        with pytest.raises(DurabilityNotReached):
            await settle(await claim_one(box))
        assert (await known(box, "one")).state == state

    await settles(box.retry, State.PENDING)
    await settles(box.release, State.PENDING)
    await settles(box.ack, State.PUBLISHED)
    with pytest.raises(DurabilityNotReached):
        await box.replay(["one"])
    await settles(box.kill, State.DEAD)
    assert await check_invariants(box) == []


@pytest.mark.req("SC-1")
@pytest.mark.needs("server")
async def test_a_relay_can_publish_an_event_before_its_durability_is_confirmed(
    open_box: Callable[..., Box], monkeypatch: pytest.MonkeyPatch
):
    """Only the return of put waits for the durability."""
    monkeypatch.setattr(levels, "TIMEOUT", 1.0)
    box = open_box()
    putting = asyncio.create_task(box.put(Event("n", event_id="one"), durability="replicas=99"))
    relay = open_box(name=box.name)
    claims: list[Claim] = []
    async with asyncio.timeout(10):
        while not claims:
            claims = await relay.claim("relay-1")
    assert not putting.done()
    assert await relay.ack(claims) == [True]
    with pytest.raises(DurabilityNotReached):
        await putting
    assert (await known(box, "one")).state is State.PUBLISHED
    receipt = await box.put(Event("n", event_id="one"))  # the error says to repeat it under the same id
    assert not receipt.created
