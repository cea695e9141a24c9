"""MQ-6: a put may replace the event that holds its unique key, as long as no relay has claimed that one."""

# ruff: noqa: PT012  # a transaction is a block of its own

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redbox import BatchRefused, Box, BoxFull, Conflict, Event, InvalidEvent, Phase, UsageError, keys
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.states.steps import ALL_LIVE, UNTOUCHED, one
from redbox.testing.conformance.states.test_unique_keys import TRUTH, bring_holder_to
from redbox.testing.conformance.steps import claim_one, contents, known, put_and_claim

pytestmark = pytest.mark.req("MQ-6")
#: Stages of a holder that no relay has claimed yet.
NEVER_CLAIMED = ("scheduled", "available", "waiting")


async def replace(box: Box, event_id: str, scope: str = ALL_LIVE, **fields: Any) -> str | None:
    receipt = await box.put(one(event_id, scope, **fields), on_conflict="replace")
    assert receipt.created
    return receipt.replaced


async def total(box: Box, name: str) -> int:
    return (await box.stats()).totals.get(name, 0)


@pytest.mark.req("EM-15", "PL-1", "PL-9")
@pytest.mark.parametrize(("stage", "all_live", "untouched"), TRUTH)
@pytest.mark.parametrize("scope", [ALL_LIVE, UNTOUCHED])
async def test_only_an_event_that_was_never_claimed_is_replaced(
    box: Box, stage: str, all_live: bool, untouched: bool, scope: str
):
    await bring_holder_to(box, stage)
    before, count = await contents(box), await box.count()
    held = all_live if scope == ALL_LIVE else untouched
    if held and stage not in NEVER_CLAIMED:
        with pytest.raises(Conflict) as conflict:
            await box.put(one("new", scope), on_conflict="replace")
        assert conflict.value.holder == "holder"
        totals = keys.counters(box.name)
        assert {**await contents(box), totals: None} == {**before, totals: None}
        return
    assert await replace(box, "new", scope) == ("holder" if held else None)
    assert await box.count() == count + (not held)
    assert (await box.get("holder") is None) == (held or stage == "deleted")
    assert await total(box, "replaced") == held
    assert (await known(box, "new")).state == "PENDING"
    assert await check_invariants(box) == []


async def test_nothing_of_a_replaced_event_is_left(box: Box):
    await box.put(one("old", delay=60, ordering_key="o"))
    await replace(box, "new")
    assert [key for key, value in (await contents(box)).items() if "old" in repr((key, value))] == []
    assert [claim.event_id for claim in await box.claim("relay-1")] == ["new"]
    assert (await box.stats()).totals["put"] == 2


async def test_debounce_the_delay_counts_from_the_last_put(box: Box):
    await box.put(one("first", delay=30))
    for number in range(3):
        await advance(box, seconds=20)
        await replace(box, f"next-{number}", delay=30)
        assert await box.claim("relay-1") == []
    await advance(box, seconds=31)
    assert (await claim_one(box)).event_id == "next-2"
    assert await total(box, "replaced") == 3
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-3")
async def test_beside_an_event_being_delivered_the_waiting_one_is_replaced(box: Box):
    """UNTOUCHED: the claimed one does not hold the key, the waiting one does."""
    flying = await put_and_claim(box, one("flying", UNTOUCHED))
    assert await replace(box, "waits", UNTOUCHED) is None
    assert await replace(box, "newer", UNTOUCHED) == "waits"
    with pytest.raises(Conflict) as conflict:  # ALL_LIVE: without `newer`, the claimed one would still hold the key
        await box.put(one("wide"), on_conflict="replace")
    assert conflict.value.holder == "flying"
    assert await box.get("newer") is not None
    await box.retry(flying, error="503", delay=0)
    await advance(box, seconds=1)
    with pytest.raises(Conflict) as conflict:  # due again after a retry, so it holds the key too
        await box.put(one("narrow", UNTOUCHED), on_conflict="replace")
    assert conflict.value.holder == "flying"
    assert await check_invariants(box) == []


@pytest.mark.req("OP-1")
async def test_the_new_event_joins_the_tail_of_its_line(box: Box):
    await box.put_many([one("head", ordering_key="o"), Event("n", event_id="next", ordering_key="o")])
    assert await replace(box, "new", ordering_key="o") == "head"
    order = []
    while claims := await box.claim("relay-1"):
        order += [claim.event_id for claim in claims]
        await box.ack(claims)
    assert order == ["next", "new"]
    assert await check_invariants(box) == []


@pytest.mark.parametrize("place", ["head", "middle", "tail", "only"])
async def test_a_line_goes_on_wherever_the_replaced_event_was(box: Box, place: str):
    line = {"head": ["old", "a", "b"], "middle": ["a", "old", "b"], "tail": ["a", "b", "old"], "only": ["old"]}[place]
    for event_id in line:
        fields = {"unique_key": "k"} if event_id == "old" else {}
        await box.put(Event("n", event_id=event_id, ordering_key="o", **fields))  # type: ignore[arg-type]
    assert await replace(box, "new", ordering_key="another") == "old"
    assert await check_invariants(box) == []
    seen = []
    while claims := await box.claim("relay-1"):
        seen += [claim.event_id for claim in claims if claim.event.ordering_key == "o"]
        await box.ack(claims)
    assert seen == [event_id for event_id in line if event_id != "old"]


async def test_a_paused_line_stays_paused(box: Box):
    await box.operate.pause(key="o", who="ada", why="x")
    await box.put_many([one("old", ordering_key="o"), Event("n", event_id="next", ordering_key="o")])
    assert await replace(box, "new", ordering_key="o") == "old"
    assert await box.claim("relay-1") == []
    assert await check_invariants(box) == []


async def test_putting_the_same_id_again_changes_nothing(box: Box):
    await replace(box, "a")
    receipt = await box.put(one("a"), on_conflict="replace")
    assert (receipt.created, receipt.replaced) == (False, None)
    assert (await total(box, "replaced"), await total(box, "repeated")) == (0, 1)


async def test_an_event_that_an_operator_brought_back_is_not_replaced(box: Box):
    await box.put(one("old"))
    await box.operate.kill(["old"], who="ada", why="x")
    await box.replay(["old"])
    with pytest.raises(Conflict):
        await box.put(one("new"), on_conflict="replace")
    assert await check_invariants(box) == []


# --- batches, concurrent puts and transactions -----------------------------------------------------------------------


async def test_in_a_batch_each_event_replaces_the_one_before(box: Box):
    await box.put(one("stored", ordering_key="o"))
    events = [one(event_id, ordering_key="o") for event_id in ("a", "b", "a", "c")]
    receipts = await box.put_many(events, on_conflict="replace")
    assert [(receipt.created, receipt.replaced) for receipt in receipts] == [
        (True, "stored"), (True, "a"), (True, "b"), (True, "a"),
    ]  # fmt: skip
    assert [record.event_id async for record in box.list()] == ["c"]
    assert (await total(box, "put"), await total(box, "replaced")) == (5, 4)
    assert await check_invariants(box) == []


async def test_a_repeated_batch_ends_the_same_way(box: Box):
    """As after a lost reply: the second time the first event replaces the last, and is replaced again."""
    events = [one("a"), one("b", delay=5)]
    for _ in range(2):
        await box.put_many(events, on_conflict="replace")
        assert [record.event_id async for record in box.list()] == ["b"]
        assert await check_invariants(box) == []


async def test_a_batch_stops_at_a_holder_that_was_claimed(box: Box):
    await put_and_claim(box, one("flying"))
    with pytest.raises(BatchRefused) as refusal:
        await box.put_many([Event("n", event_id="a", unique_key="x"), one("b")], on_conflict="replace")
    assert (refusal.value.index, [receipt.created for receipt in refusal.value.receipts]) == (1, [True])
    assert await check_invariants(box) == []


async def test_concurrent_puts_with_and_without_replacing_share_a_call(box: Box):
    await box.put(Event("n", unique_key="another"), on_conflict="replace")  # permissions are checked now
    outcomes = await asyncio.gather(
        box.put(one("a"), on_conflict="replace"), box.put(one("b")), box.put(one("c"), on_conflict="replace"),
        box.put(one("d"), on_conflict="skip"), *(box.put(Event("n")) for _ in range(3)), return_exceptions=True,
    )  # fmt: skip
    assert isinstance(outcomes[1], Conflict)
    assert [outcome.replaced for outcome in outcomes if not isinstance(outcome, BaseException)][:3] == [None, "a", None]
    assert outcomes[3].holder == "c"  # type: ignore[union-attr]
    assert await box.count() == 5
    assert await check_invariants(box) == []


@pytest.mark.req("PL-9")
@pytest.mark.parametrize("first", ["raise", "replace"])
@pytest.mark.parametrize("put_many", [False, True])
async def test_a_repeat_after_a_lost_reply_brings_no_replaced_event_back(
    box: Box, monkeypatch: pytest.MonkeyPatch, first: Any, put_many: bool
):
    """Each call is made twice, and what it put is published in between."""
    await box.put(Event("n", unique_key="another"), on_conflict="replace")  # permissions are checked now
    await box.ack(await claim_one(box))
    put, published = box._store.put, []

    async def twice(*arguments: Any) -> Any:
        replies = await put(*arguments)
        if any(event.event_id == "b" for event in arguments[1]):
            for claim in await box.claim("relay-1"):
                published.append(claim.event_id)
                await box.ack(claim)
        await put(*arguments)
        return replies

    monkeypatch.setattr(box._store, "put", twice)
    if put_many:
        await box.put_many([one("a"), one("b")], on_conflict="replace")
    else:
        await asyncio.gather(box.put(one("a"), on_conflict=first), box.put(one("b"), on_conflict="replace"))
    assert published == ["b"]
    assert await box.claim("relay-1") == []
    assert await check_invariants(box) == []


@pytest.mark.parametrize("put_many", [False, True])
async def test_the_first_call_of_a_script_that_the_server_lost(box: Box, put_many: bool):
    """As after a restart of the server: the call is refused with NOSCRIPT, and is sent again."""
    await box.put(one("old"))
    await box._store.exchange([("SCRIPT", "FLUSH")])
    if put_many:
        receipts = await box.put_many([one("a"), one("b")], on_conflict="replace")
    else:
        receipts = await asyncio.gather(*(box.put(one(each), on_conflict="replace") for each in ("a", "b")))
    assert [receipt.replaced for receipt in receipts] == ["old", "a"]
    assert [record.event_id async for record in box.list()] == ["b"]
    assert (await total(box, "put"), await total(box, "replaced")) == (3, 2)
    assert await check_invariants(box) == []


@pytest.mark.req("SC-9")
async def test_a_transaction_replaces(box: Box):
    await box.put(one("old", ordering_key="o"))
    async with box.transaction() as tx:
        tx.put(one("first"), on_conflict="replace")
        tx.put(one("second"), on_conflict="replace")
        tx.redis.set(tx.key("own"), "1")
    assert [receipt.replaced for receipt in tx.receipts] == ["old", "first"]
    assert [record.event_id async for record in box.list()] == ["second"]
    assert await total(box, "replaced") == 2
    await claim_one(box)
    with pytest.raises(Conflict):
        async with box.transaction() as tx:
            tx.put(one("third"), on_conflict="replace")
            tx.redis.set(tx.key("own"), "2")
    (value,) = await box._store.exchange([("GETDEL", tx.key("own"))])
    assert value == b"1"
    with pytest.raises(UsageError, match="on_conflict"):
        async with box.transaction() as tx:
            tx.put(one("third"), on_conflict="skip")  # type: ignore[arg-type]
    assert await check_invariants(box) == []


# --- limits and errors -----------------------------------------------------------------------------------------------


@pytest.mark.req("MQ-6", "SC-4")
@pytest.mark.parametrize("one_call", [True, False])
async def test_a_replacement_needs_no_room_also_in_a_box_that_is_more_than_full(box: Box, one_call: bool):
    """Nothing is removed for an event that is then refused."""
    await box.put_many([Event("other") for _ in range(4)])
    old = await box.put(Event("n", unique_key="u"))
    await box.operate.configure(max_pending=3, who="ada", why="test")
    if one_call:
        receipt = await box.put(Event("n", unique_key="u"), on_conflict="replace")
    else:
        (receipt,) = await box.put_many([Event("n", unique_key="u")], on_conflict="replace")
    assert receipt.replaced == old.event_id
    assert await box.get(old.event_id) is None
    assert await box.get(receipt.event_id) is not None
    assert await box.count() == 5


async def test_a_full_box_can_be_replaced_in(box: Box):
    await box.operate.configure(max_pending=1, who="ada", why="x")
    await box.put(one("old"))
    with pytest.raises(BoxFull):
        await box.put(Event("n", unique_key="another"), on_conflict="replace")
    assert await replace(box, "new") == "old"
    with pytest.raises(BoxFull):
        await box.put(Event("n"))
    assert await check_invariants(box) == []


async def test_without_a_unique_key_there_is_nothing_to_replace(box: Box):
    for call in (
        lambda: box.put(Event("n"), on_conflict="replace"),
        lambda: box.put_many([one("a"), Event("n")], on_conflict="replace"),
    ):
        with pytest.raises(InvalidEvent, match='unique_key: on_conflict="replace" needs it'):
            await call()
    assert await contents(box) == {}


async def test_a_box_with_a_replaced_event_is_not_missing_one(box: Box):
    await box.put(one("old", delay=60))
    await replace(box, "new", delay=60)
    assert (await known(box, "new")).phase == Phase.SCHEDULED
    explanation = await box.why()
    assert "missing" not in str(explanation).lower()
