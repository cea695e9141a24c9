"""SC-9: transactions."""

from __future__ import annotations

from typing import Any

import pytest

from redbox import Box, Conflict, Event, IdReused, State, keys
from redbox.errors import (
    BoxFull,
    PartlyCommitted,
)
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import (
    claim_one,
    contents,
    known,
)
from redbox.testing.conformance.store.steps import totals_of


async def own_value(box: Box, key: str) -> Any:
    (value,) = await box._store.exchange([("GET", key)])
    return value


@pytest.mark.req("SC-4", "SC-9", "SC-1")
async def test_a_transaction_commits_events_and_the_callers_writes_together(box: Box):
    async with box.transaction() as tx:
        key = tx.key("own")
        tx.redis.set(key, "1")
        ids = [tx.put(Event(f"n{n}", n, ordering_key="o")) for n in range(3)]
        tx.redis.incr(key)
    assert tx.results == [True, 2] or tx.results == [b"OK", 2]
    assert await own_value(box, key) == b"2"
    assert [(receipt.event_id, receipt.created) for receipt in tx.receipts] == [(event_id, True) for event_id in ids]
    assert (await claim_one(box)).event.event_type == "n0"
    await box._store.exchange([("DEL", key)])
    assert await check_invariants(box) == []


async def set_and_put(box: Box, *events: Event, then: Exception | None = None) -> None:
    """Runs a transaction that writes a key of the caller and puts events."""
    async with box.transaction() as tx:
        tx.redis.set(f"{keys.prefix(box.name)}:own", "1")
        for event in events:
            tx.put(event)
        if then is not None:
            raise then


@pytest.mark.req("SC-4", "SC-9")
async def test_a_transaction_whose_block_raises_writes_nothing(box: Box):
    with pytest.raises(RuntimeError, match="the application's own"):
        await set_and_put(box, Event("n"), then=RuntimeError("the application's own"))
    assert await contents(box) == {}


@pytest.mark.req("SC-4", "SC-9", "MQ-4", "EM-1")
@pytest.mark.parametrize("refusal", [Conflict, IdReused, BoxFull])
async def test_a_transaction_that_is_refused_writes_nothing(box: Box, refusal: type[Exception]):
    await box.put_many([Event("n", event_id="holder", unique_key="k"), Event("n", 1, event_id="taken")])
    if refusal is BoxFull:
        await box.operate.configure(max_pending=3, who="ada", why="small")
    bad = {
        Conflict: Event("n", unique_key="k"),
        IdReused: Event("n", 2, event_id="taken"),
        BoxFull: Event("n"),
    }[refusal]
    before = await contents(box)
    with pytest.raises(refusal):
        await set_and_put(box, Event("n", event_id="good"), bad)
    assert await contents(box) == before


@pytest.mark.req("SC-4", "EM-1")
async def test_a_transaction_can_be_repeated(box: Box):
    for created in (True, False):
        async with box.transaction() as tx:
            tx.put(Event("n", 1, event_id="one", unique_key="k"))
        assert [receipt.created for receipt in tx.receipts] == [created]
    assert (await totals_of(box))["put"] == 1
    assert await check_invariants(box) == []


@pytest.mark.req("SC-4", "SC-9")
async def test_a_failing_command_of_the_caller_is_reported(box: Box):
    await box._store.exchange([("HSET", f"{keys.prefix(box.name)}:own", "a", "1")])
    event = Event("n")

    async def transact() -> None:
        async with box.transaction() as tx:
            tx.redis.incr(f"{keys.prefix(box.name)}:own")
            tx.put(event)

    with pytest.raises(PartlyCommitted, match="your own command"):
        await transact()
    assert (await known(box, event.event_id)).state == State.PENDING
