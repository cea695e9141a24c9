"""SC: what every store keeps to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redbox import Box, Claim, Conflict, Event, IdReused, Outcome, Phase, State, keys
from redbox.errors import (
    BoxFull,
    DurabilityNotReached,
    DurabilityUnsupported,
    InvalidSetting,
    PartlyCommitted,
    UsageError,
)
from redbox.store import durability as levels
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


async def totals_of(box: Box) -> dict[str, int]:
    return (await box.stats()).totals


# --- SC-1: put ---------------------------------------------------------------------------------------------------


@pytest.mark.req("SC-1")
async def test_what_put_has_told_is_there(box: Box):
    assert not await box.exists()
    receipt = await box.put(Event("n", {"a": 1}, event_id="one"))
    assert (receipt.created, receipt.durability) == (True, "server")
    assert (await fields_of(box, "one"))["state"] == "PENDING"
    assert await body_of(box, "one")
    assert await box.exists()
    assert box.name in await box.names()
    assert await check_invariants(box) == []


@pytest.mark.req("SC-1")
async def test_concurrent_puts_each_get_their_own_answer(box: Box):
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
async def test_nobody_sees_an_event_before_its_transaction_commits(box: Box):
    async with box.transaction() as tx:
        event_id = tx.put(Event("n"))
        assert await box.get(event_id) is None
        assert await box.claim("relay-1") == []
    assert (await claim_one(box)).event_id == event_id
    assert [(receipt.event_id, receipt.created) for receipt in tx.receipts] == [(event_id, True)]
    assert await check_invariants(box) == []


@pytest.mark.req("SC-1")
async def test_durabilities_that_cannot_be_are_refused(open_box: Callable[..., Box]):
    box = open_box()
    for name in ("replicas=0", "replicas=-1", "disk", "", "fsync "):
        with pytest.raises(InvalidSetting, match="durability"):
            await box.put(Event("n"), durability=name)
        with pytest.raises(InvalidSetting, match="durability"):
            open_box(durability=name)
    assert not await box.exists()


@pytest.mark.req("SC-1")
@pytest.mark.needs("server")
async def test_fsync_is_given_or_refused_before_anything_is_written(box: Box):
    try:
        receipt = await box.put(Event("n", event_id="one"), durability="fsync")
    except DurabilityUnsupported:
        assert await box.get("one") is None
    else:
        assert (receipt.created, receipt.durability) == (True, "fsync")


@pytest.mark.req("SC-1", "SC-4")
@pytest.mark.needs("server")
async def test_replicas_that_are_not_there_are_told_and_the_event_may_exist(
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
async def test_a_relay_may_publish_an_event_before_its_durability_is_confirmed(
    open_box: Callable[..., Box], monkeypatch: pytest.MonkeyPatch
):
    """Only the return of put waits."""
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
    receipt = await box.put(Event("n", event_id="one"))  # what the error advises: the id is known
    assert not receipt.created


# --- SC-2: claim -------------------------------------------------------------------------------------------------


@pytest.mark.req("SC-2")
async def test_oldest_available_first_whatever_the_order_of_puts(box: Box):
    now = await store_time(box)
    hours = [5, 1, 4, 2, 3]
    for hour in hours:
        await box.put(Event(f"h{hour}", available_at=now + timedelta(hours=hour)))
    await advance(box, hours=6)
    await box.put(Event("h6"))
    types = [claim.event.event_type for claim in await box.claim("relay-1")]
    assert types == ["h1", "h2", "h3", "h4", "h5", "h6"]
    assert await check_invariants(box) == []


async def sample(box: Box, limit: int) -> list[str]:
    packed = await box.claim_packed("relay", limit=limit, lease=30, attempts=None, holding=0, spread=True)
    return [claim.event_id for claim in await box.unpack(packed)]


@pytest.mark.req("SC-2", "RF-4")
async def test_a_sample_is_spread_from_the_newest_to_the_oldest(box: Box):
    """A relay that doubts its target must not see the oldest events only."""
    for number in range(10):
        await box.put(Event("n", event_id=f"e{number}"))
        await advance(box, seconds=1)
    await box.put(Event("n", event_id="later", delay=3600))
    assert await sample(box, 4) == ["e9", "e6", "e3", "e0"]
    assert await check_invariants(box) == []
    assert await sample(box, 1) == ["e8"]
    assert sorted(await sample(box, 500)) == ["e1", "e2", "e4", "e5", "e7"]
    assert await sample(box, 5) == []
    assert await check_invariants(box) == []


@pytest.mark.req("SC-2")
async def test_a_sample_takes_lost_ids_out_of_the_way(box: Box):
    for number in range(3):
        await box.put(Event("n", event_id=f"e{number}"))
        await advance(box, seconds=1)
    await box._store.exchange([("DEL", keys.event(box.name, "e1"))])
    assert sorted(await sample(box, 3)) == ["e0", "e2"]
    assert await sample(box, 3) == []
    assert (await box.stats()).lost == 1


@pytest.mark.req("SC-2")
async def test_a_sample_holds_a_suspect_only_when_there_is_nothing_else(box: Box):
    await box.put(Event("n", event_id="suspect"))
    for _ in range(2):
        await claim_one(box)
        await expire(box)
    await box.put_many([Event("n", event_id="e1"), Event("n", event_id="e2")])
    assert sorted(await sample(box, 5)) == ["e1", "e2"]
    assert await sample(box, 5) == ["suspect"]
    assert await check_invariants(box) == []


@pytest.mark.req("SC-2")
async def test_never_more_than_the_limit(box: Box):
    ids = [receipt.event_id for receipt in await box.put_many([Event("n") for _ in range(7)])]
    assert [claim.event_id for claim in await box.claim("relay-1", limit=1)] == ids[:1]
    assert [claim.event_id for claim in await box.claim("relay-1", limit=4)] == ids[1:5]
    assert [claim.event_id for claim in await box.claim("relay-1", limit=100)] == ids[5:]
    assert await box.claim("relay-1", limit=100) == []
    assert await check_invariants(box) == []


@pytest.mark.req("SC-2")
async def test_limits_that_cannot_be_are_refused(box: Box):
    await put_and_claim(box)
    before = await contents(box)
    for limit in (0, -1, 1001):
        with pytest.raises(UsageError, match="limit"):
            await box.claim("relay-1", limit=limit)
        with pytest.raises(UsageError, match="limit"):
            await box.reap(limit=limit)
    for lease in (0, -1):
        with pytest.raises(UsageError, match="lease"):
            await box.claim("relay-1", lease=lease)
    for relay in ("", "line\nbreak", "x" * 256):
        with pytest.raises(UsageError, match="relay"):
            await box.claim(relay)
    assert await contents(box) == before


@pytest.mark.req("SC-2")
async def test_claims_are_bounded_in_bytes_too_but_give_at_least_one(box: Box):
    ids = [receipt.event_id for receipt in await box.put_many([Event("n", b"x" * 1000) for _ in range(7)])]
    size = len(await body_of(box, ids[0]))
    assert size > 1000

    async def taken(max_bytes: int) -> list[str]:
        return [claim.event_id for claim in await box.claim("relay-1", max_bytes=max_bytes)]

    assert await taken(1) == ids[:1]
    assert await taken(2 * size - 1) == ids[1:2]
    assert await taken(2 * size) == ids[2:4]
    assert await taken(3 * size + 1) == ids[4:]
    assert await check_invariants(box) == []


@pytest.mark.req("SC-2")
async def test_a_claim_of_much_work_brings_fewer_and_says_that_there_are_more(box: Box):
    """A script that ran for long would hold up everybody else."""
    ids = [receipt.event_id for receipt in await box.put_many([Event("n", unique_key=f"u{n}") for n in range(500)])]
    packed = await box.claim_packed("relay-1", limit=1000, lease=30.0, attempts=None, holding=0)
    assert 100 <= len(packed) < 500
    assert packed.more_in == 0
    claims = await box.unpack(packed)
    while found := await box.claim("relay-1", limit=1000):
        claims += found
    assert [claim.event_id for claim in claims] == ids
    assert await check_invariants(box) == []


@pytest.mark.req("SC-2")
async def test_what_comes_back_is_sorted_by_its_new_time(box: Box):
    await box.put_many([Event("a"), Event("b"), Event("c")])
    first, second, third = await box.claim("relay-1")
    await box.retry([third, first, second], delay=[1, 3, 2])
    await advance(box, minutes=1)
    assert [claim.event.event_type for claim in await box.claim("relay-1")] == ["c", "b", "a"]


@pytest.mark.req("SC-2")
async def test_a_released_event_keeps_its_place(box: Box):
    await box.put(Event("a"))
    claim = await claim_one(box)
    await advance(box, minutes=1)
    await box.put(Event("b"))
    available_at = (await known(box, claim.event_id)).available_at
    await box.release(claim)
    assert (await known(box, claim.event_id)).available_at == available_at
    assert [claim.event.event_type for claim in await box.claim("relay-1")] == ["a", "b"]
    assert await check_invariants(box) == []


@pytest.mark.req("SC-2")
async def test_released_with_a_delay(box: Box):
    claim = await put_and_claim(box)
    await box.release(claim, delay=60)
    record = await known(box, claim.event_id)
    assert record.available_at - record.history[-1].at == timedelta(seconds=60)
    assert await box.claim("relay-1") == []
    await advance(box, seconds=61)
    assert (await claim_one(box)).event_id == claim.event_id
    assert await check_invariants(box) == []


async def claim_all(box: Box) -> list[Claim]:
    """What is available, in as many claims as it takes."""
    claims: list[Claim] = []
    while found := await box.claim("relay-1", limit=1000):
        claims += found
    return claims


@pytest.mark.req("SC-2", "SC-4")
@pytest.mark.needs("server")
async def test_a_full_batch_through_every_script(box: Box):
    """1,000 events with every kind of key: as much as one call may take."""
    events = [Event("n", n, ordering_key=f"o{n}", unique_key=f"u{n}") for n in range(1000)]
    ids = [event.event_id for event in events]
    assert all(receipt.created for receipt in await box.put_many(events, on_conflict="all_or_nothing"))
    claims = await claim_all(box)
    assert [claim.event_id for claim in claims] == ids
    assert await box.renew(claims) == [True] * 1000
    assert await box.release(claims) == [True] * 1000
    assert await fail(box, await claim_all(box), error="503") == [True] * 1000
    assert await box.ack(await claim_all(box)) == [True] * 1000
    assert (await box.replay(ids)).replayed == 1000
    assert await box.kill(await claim_all(box)) == [True] * 1000
    assert (await box.sweep(keep_dead=0)).dead == 1000
    assert {key.rpartition(":")[2] for key in await contents(box)} == {"meta", "counters", "log", "wake"}


# --- SC-3: no event in two hands ---------------------------------------------------------------------------------


@pytest.mark.req("SC-3")
async def test_relays_that_claim_together_never_share_an_event(box: Box):
    ids = {receipt.event_id for receipt in await box.put_many([Event("n") for _ in range(60)])}
    hands: dict[str, list[str]] = {f"relay-{n}": [] for n in range(8)}

    async def work(relay: str) -> None:
        while claims := await box.claim(relay, limit=3):
            assert {claim.claimed_by for claim in claims} == {relay}
            hands[relay] += [claim.event_id for claim in claims]

    await asyncio.gather(*(work(relay) for relay in hands))
    taken = [event_id for held in hands.values() for event_id in held]
    assert len(taken) == 60
    assert set(taken) == ids
    for relay, held in hands.items():
        for event_id in held[:2]:
            assert (await known(box, event_id)).claimed_by == relay
    assert await check_invariants(box) == []


@pytest.mark.req("SC-3")
async def test_a_living_lease_keeps_everyone_else_out(box: Box):
    claim = await put_and_claim(box, lease=30)
    for _ in range(2):
        await advance(box, seconds=25)
        assert await box.reap() == []
        assert await box.claim("relay-2") == []
        assert await box.claim("relay-1") == []
        assert await box.renew(claim, lease=30) == [True]
    assert await box.ack(claim) == [True]
    assert await check_invariants(box) == []


@pytest.mark.req("SC-3")
async def test_the_lease_is_as_long_as_asked_for(box: Box):
    claim = await put_and_claim(box, lease=timedelta(minutes=5))
    record = await known(box, claim.event_id)
    assert record.lease_until is not None
    assert record.lease_until - claim.claimed_at == timedelta(minutes=5)
    assert claim.lease_until == record.lease_until
    before = await store_time(box)
    assert await box.renew(claim, lease=60) == [True]
    after = await store_time(box)
    record = await known(box, claim.event_id)
    assert record.lease_until is not None
    assert before <= record.lease_until - timedelta(seconds=60) <= after
    assert record.claimed_at == claim.claimed_at


@pytest.mark.req("SC-3")
async def test_every_claim_has_a_number_of_its_own(box: Box):
    await box.put_many([Event("n") for _ in range(4)])
    claims = await box.claim("relay-1", limit=3)
    assert [claim.number for claim in claims] == [1, 2, 3]
    assert (await claim_one(box, "relay-2")).number == 4
    for claim in claims:
        assert (await known(box, claim.event_id)).number == claim.number
    await box.release(claims)
    assert [claim.number for claim in await box.claim("relay-1")] == [5, 6, 7]


# --- SC-4: updates -----------------------------------------------------------------------------------------------


@pytest.mark.req("SC-4")
@pytest.mark.parametrize("move", ["ack", "ack and delete", "retry", "kill", "kill and drop", "release"])
async def test_one_claim_twice_in_one_call_is_settled_once(box: Box, move: str):
    event = Event("n", ordering_key="o", unique_key="u", event_id="one")
    claim = await put_and_claim(box, event)
    await box.put_many([Event("next", ordering_key="o"), Event("last", ordering_key="o")])
    other = await put_and_claim(box)
    twice = [claim, other, claim]
    settled = {
        "ack": lambda: box.ack(twice),
        "ack and delete": lambda: box.ack(twice, delete=True),
        "retry": lambda: box.retry(twice, error="503", delay=60),
        "kill": lambda: box.kill(twice, reason="422"),
        "kill and drop": lambda: box.kill(twice, drop=True),
        "release": lambda: box.release(twice, delay=60),
    }[move]
    assert await settled() == [True, True, False]
    totals = await totals_of(box)
    counted = {"ack": "published", "ack and delete": "published", "retry": "retried", "release": "released"}
    assert totals[counted.get(move, "dead")] == 2
    assert totals["fenced"] == 1
    assert totals.get("swept", 0) == (2 if move == "ack and delete" else 0)
    assert totals.get("dropped", 0) == (2 if move == "kill and drop" else 0)
    record = await box.get("one")
    if record is not None:
        assert (record.attempts, record.excused) == (1, 1 if move == "release" else 0)
        assert len(record.history) == (0 if move == "ack" else 1)
    stats = await box.stats()
    assert stats.waiting == (2 if move in ("retry", "release") else 1)
    assert await check_invariants(box) == []


@pytest.mark.req("SC-4")
async def test_each_claim_of_a_mixed_batch_gets_its_own_answer(box: Box):
    """Living and gone claims, of two relays, in one call: answers in the order of the claims."""
    await box.put_many([Event("n") for _ in range(6)])
    ones, twos = await box.claim("one", limit=3), await box.claim("two", limit=3)
    await box.ack([ones[1], twos[0]])
    mixed = [twos[2], ones[0], twos[0], ones[1], ones[2], twos[1]]
    assert await box.renew(mixed, lease=60) == [True, True, False, False, True, True]
    assert await box.release(mixed[:2]) == [True, True]
    assert await fail(box, mixed, error="503") == [False, False, False, False, True, True]
    assert await box.ack(mixed) == [False] * 6
    assert await box.kill(mixed) == [False] * 6
    assert (await totals_of(box))["fenced"] == 2 + 4 + 6 + 6
    stats = await box.stats()
    assert (stats.phases[Phase.AVAILABLE], stats.phases[Phase.COMPLETED], stats.phases[Phase.IN_FLIGHT]) == (4, 2, 0)
    assert await box.ack([]) == await box.renew([]) == await box.kill([]) == []
    assert await check_invariants(box) == []


@pytest.mark.req("SC-4")
async def test_one_value_for_all_or_one_for_each(box: Box):
    await box.put_many([Event("n"), Event("n")])
    claims = await box.claim("relay-1")
    with pytest.raises(UsageError, match="error"):
        await fail(box, claims, error=["one"])
    with pytest.raises(UsageError, match="delay"):
        await box.retry(claims, delay=[1, 2, 3])
    with pytest.raises(UsageError, match="reason"):
        await box.kill(claims, reason=[])
    assert (await box.stats()).phases[Phase.IN_FLIGHT] == 2


async def scene(box: Box) -> dict[str, Any]:
    """One event in each state, each by its name, and the living claims."""
    await publish(box, Event("n", event_id="published"))
    await bury(box, Event("n", event_id="dead", ordering_key="o", unique_key="d"))
    claims = [
        await put_and_claim(box, Event("n", event_id="claimed", ordering_key="o", unique_key="c")),
        await put_and_claim(box, Event("n", event_id="expired"), lease=0.001),
    ]
    await put_and_claim(box, Event("n", event_id="suspect"))
    await box._store.exchange([("HSET", keys.event(box.name, "suspect"), "expiries", "1"),
                               ("ZADD", keys.claimed(box.name), 1, "suspect")])  # fmt: skip
    await box.reap(limit=1, delay=3600)
    await box.put(Event("n", event_id="pending", unique_key="p"))
    await box.put(Event("n", event_id="waiting", ordering_key="o"))
    await box.operate.pause(who="ada", why="so that there is a log")
    await box.operate.resume(who="ada", why="so that there is a log")
    await advance(box, seconds=1)
    return {"claimed": claims[0], "expired": claims[1]}


@pytest.mark.req("SC-4", "PL-7")
async def test_ids_without_an_event_are_set_aside_and_the_rest_goes_on(box: Box):
    store, name = box._store, box.name
    ids = [(await box.put(Event("n", n))).event_id for n in range(4)]
    await store.exchange([
        ("ZADD", keys.pending(name), 1, "ghost"),
        ("DEL", keys.body(name, ids[0])),
        ("HSET", keys.event(name, ids[1]), "state", "PUBLISHED"),
    ])  # fmt: skip
    assert [claim.event_id for claim in await box.claim("relay-1")] == ids[2:]
    stats = await box.stats()
    assert (stats.lost, set(stats.lost_ids)) == (3, {"ghost", ids[0], ids[1]})
    record = await box.get(ids[0])
    assert record is not None
    assert (record.damaged, record.problem) == (True, f"event {ids[0]} cannot be read: its stored body is missing")
    more = [f"more-{number}" for number in range(10)]
    await store.exchange([("ZADD", keys.lost(name), 1, each) for each in more])
    stats = await box.stats()
    assert (stats.lost, stats.lost_ids) == (13, more)  # bounded
    await store.exchange([("ZREM", keys.lost(name), *more)])
    (lost, pending) = await store.exchange([("ZRANGE", keys.lost(name), 0, -1), ("ZCARD", keys.pending(name))])
    assert {raw.decode() for raw in lost} == {"ghost", ids[0], ids[1]}
    assert pending == 0


@pytest.mark.req("SC-4", "PL-7")
async def test_a_claim_that_finds_only_lost_ids_takes_them_out_of_the_way(box: Box):
    store, name = box._store, box.name
    await store.exchange([("ZADD", keys.pending(name), 1, "ghost"), ("ZADD", keys.suspect(name), 0, "phantom")])
    assert await box.claim("relay-1") == []
    assert await box.claim("relay-1") == []
    stats = await box.stats()
    assert (stats.lost, stats.suspects, stats.phases[Phase.AVAILABLE], stats.totals.get("claimed", 0)) == (2, 0, 0, 0)
    assert (await put_and_claim(box)).number == 1


@pytest.mark.req("SC-4", "PL-7", "SC-7")
async def test_reaping_sets_lost_ids_aside_and_goes_on(box: Box):
    store, name = box._store, box.name
    claim = await put_and_claim(box)
    await store.exchange([("ZADD", keys.claimed(name), 1, "ghost")])
    assert await expire(box) == [claim.event_id]
    (lost, claimed) = await store.exchange([("ZRANGE", keys.lost(name), 0, -1), ("ZCARD", keys.claimed(name))])
    assert (lost, claimed) == ([b"ghost"], 0)
    assert (await totals_of(box))["expired"] == 1


@pytest.mark.req("SC-4", "OP-1")
async def test_a_line_goes_on_past_a_lost_id(box: Box):
    store, name = box._store, box.name
    ids = [(await box.put(Event("n", ordering_key="o"))).event_id for _ in range(4)]
    await store.exchange([("DEL", keys.event(name, ids[1]), keys.body(name, ids[1]))])
    await store.exchange([("DEL", keys.event(name, ids[2]), keys.body(name, ids[2]))])
    await box.ack(await claim_one(box))
    assert (await claim_one(box)).event_id == ids[3]
    (lost, waiting) = await store.exchange([("ZRANGE", keys.lost(name), 0, -1), ("ZCARD", keys.waiting(name))])
    assert ({raw.decode() for raw in lost}, waiting) == ({ids[1], ids[2]}, 0)


# --- SC-9: transactions ------------------------------------------------------------------------------------------


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
    """One transaction that writes a key of the caller's own and puts events."""
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
async def test_a_transaction_may_be_repeated(box: Box):
    for created in (True, False):
        async with box.transaction() as tx:
            tx.put(Event("n", 1, event_id="one", unique_key="k"))
        assert [receipt.created for receipt in tx.receipts] == [created]
    assert (await totals_of(box))["put"] == 1
    assert await check_invariants(box) == []


@pytest.mark.req("SC-4", "SC-9")
async def test_a_failing_command_of_the_callers_own_is_told(box: Box):
    await box._store.exchange([("HSET", f"{keys.prefix(box.name)}:own", "a", "1")])
    event = Event("n")

    async def transact() -> None:
        async with box.transaction() as tx:
            tx.redis.incr(f"{keys.prefix(box.name)}:own")
            tx.put(event)

    with pytest.raises(PartlyCommitted, match="your own command"):
        await transact()
    assert (await known(box, event.event_id)).state == State.PENDING


# --- SC-5: no policy in the store --------------------------------------------------------------------------------


@pytest.mark.req("SC-5")
async def test_without_a_limit_attempts_never_end(box: Box):
    await box.put(Event("n"))
    for attempt in range(1, 26):
        claim = await claim_one(box)
        assert (claim.attempts, claim.exhausted) == (attempt, False)
        await fail(box, claim, error="503")
    assert (await known(box, claim.event_id)).state == State.PENDING


@pytest.mark.req("SC-5")
async def test_each_claimer_brings_its_own_limit(box: Box):
    claim = await put_and_claim(box)
    for _ in range(2):
        await fail(box, claim, error="503")
        claim = await claim_one(box)
    await box.release(claim)  # 3 attempts, 1 excused
    claim = await claim_one(box, "strict", attempts=2)
    assert claim.exhausted
    await box.release(claim)
    claim = await claim_one(box, "patient", attempts=3)
    assert not claim.exhausted
    assert (claim.attempts, claim.excused) == (4, 1)


@pytest.mark.req("SC-5")
@pytest.mark.parametrize("delay", [0.001, 10, timedelta(days=30)])
async def test_the_delay_is_the_callers_to_the_millisecond(box: Box, delay: Any):
    claim = await put_and_claim(box)
    await box.retry(claim, error="503", delay=delay)
    record = await known(box, claim.event_id)
    wanted = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
    assert record.available_at - record.history[-1].at == wanted
    assert await check_invariants(box) == []


# --- SC-6: terminal events ---------------------------------------------------------------------------------------


@pytest.mark.req("SC-6", "PL-9")
async def test_terminal_events_stay_readable_and_are_never_eligible(box: Box):
    await publish(box, Event("user.created", {"id": 1}, event_id="published", ordering_key="o", unique_key="u"))
    await bury(box, Event("user.deleted", {"id": 2}, event_id="dead", ordering_key="o", unique_key="u"))
    await advance(box, hours=20)
    assert await box.reap() == []  # with nothing in flight, it forgets the longest lease
    before = await contents(box)
    assert await box.claim("relay-1") == []
    assert await box.reap() == []
    assert await box.sweep() == await box.sweep(keep_published=None, keep_published_count=1, keep_dead_count=1)
    assert await contents(box) == before
    for event_id, state, event_type in (
        ("published", State.PUBLISHED, "user.created"),
        ("dead", State.DEAD, "user.deleted"),
    ):
        record = await known(box, event_id)
        assert record.state == state
        moment = record.published_at or record.died_at
        assert moment is not None
        for filters in ({"state": state}, {"event_type": event_type}, {"since": moment, "state": state},
                        {"until": moment, "state": state}):  # fmt: skip
            assert [found async for found in box.list(**filters)] == [record]
    await advance(box, hours=5)
    assert (await box.sweep()).published == 1
    assert await box.get("published") is None
    assert (await known(box, "dead")).state == State.DEAD
    assert await check_invariants(box) == []


# --- SC-7: reaping -----------------------------------------------------------------------------------------------


@pytest.mark.req("SC-7")
async def test_reaping_is_bounded_and_takes_the_longest_expired_first(box: Box):
    ids = [(await box.put(Event("n"))).event_id for _ in range(5)]
    claims = await box.claim("relay-1")
    for claim, lease in zip(claims, (5, 1, 4, 2, 3), strict=True):
        await box.renew(claim, lease=lease)
    await advance(box, minutes=1)
    assert await box.reap(limit=2) == [ids[1], ids[3]]
    assert await box.reap(limit=2) == [ids[4], ids[2]]
    assert await box.reap(limit=2) == [ids[0]]
    assert await box.reap(limit=2) == []
    assert (await totals_of(box))["expired"] == 5
    assert len(await box.claim("relay-2")) == 5
    assert await check_invariants(box) == []


# The store's clock is set back: every stored moment is then further ahead than before.


@pytest.mark.req("SC-7", "PL-8")
async def test_a_dead_relays_claims_come_back_although_the_clock_was_set_back(box: Box):
    claim = await put_and_claim(box, lease=30)
    await advance(box, hours=-3)
    assert await box.reap() == []  # its relay may be alive, and gets as long as any lease to say so
    lease_until = (await known(box, claim.event_id)).lease_until
    assert lease_until is not None
    assert lease_until <= await store_time(box) + timedelta(seconds=30)
    await advance(box, seconds=31)
    assert await box.reap() == [claim.event_id]
    assert await box.ack(claim) == [False]
    assert await check_invariants(box) == []


@pytest.mark.req("SC-7", "PL-6")
async def test_a_living_relay_keeps_its_claims_although_the_clock_was_set_back(box: Box):
    claim = await put_and_claim(box, lease=30)
    await advance(box, hours=-3)
    await box.reap()
    await advance(box, seconds=20)
    assert await box.renew(claim, lease=30) == [True]
    await advance(box, seconds=20)
    assert await box.reap() == []
    assert await box.ack(claim) == [True]
    assert await check_invariants(box) == []


@pytest.mark.req("SC-7", "PL-6")
async def test_a_claim_whose_lease_was_shortened_still_settles_until_it_is_reaped(box: Box):
    claim = await put_and_claim(box, lease=30)
    await advance(box, hours=-3)
    await box.reap()
    await advance(box, minutes=5)
    assert await box.ack(claim) == [True]


@pytest.mark.req("SC-7")
@pytest.mark.parametrize("how", ["claim", "renew"])
async def test_the_longest_lease_that_was_given_is_never_shortened(box: Box, how: str):
    await box.put_many([Event("n"), Event("n")])
    long = await claim_one(box, limit=1, lease=3600 if how == "claim" else 30)
    await claim_one(box, limit=1, lease=10)
    if how == "renew":
        await box.renew(long, lease=3600)
    lease_until = (await known(box, long.event_id)).lease_until
    assert await box.reap() == []
    assert (await known(box, long.event_id)).lease_until == lease_until


@pytest.mark.req("SC-7")
async def test_a_long_lease_of_the_past_does_not_count_for_ever(box: Box):
    await box.ack(await put_and_claim(box, lease=100_000))
    assert await box.reap() == []  # nothing is claimed any more
    claim = await put_and_claim(box, lease=30)
    await advance(box, hours=-3)
    await box.reap()
    await advance(box, seconds=31)
    assert await box.reap() == [claim.event_id]


@pytest.mark.req("SC-7")
async def test_a_long_lease_of_the_past_does_not_count_on_a_box_that_is_never_idle(box: Box):
    long = await put_and_claim(box, lease=100_000)
    claim = await put_and_claim(box, lease=30)
    assert await box.ack(long) == [True]
    assert await box.reap() == []  # the other one is still claimed
    await advance(box, hours=-3)
    await box.reap()
    await advance(box, seconds=31)
    assert await box.reap() == [claim.event_id]


@pytest.mark.req("SC-7", "PL-6")
async def test_no_lease_is_shortened_while_the_clock_runs_on(box: Box):
    """However late in a lease a reap looks at it, and whichever lease comes next."""
    claim = await put_and_claim(box, lease=600)
    for passed, lease in ((590, 600), (599, 30), (29, 3600), (3500, 5), (1, 600)):
        await advance(box, seconds=passed)
        assert await box.reap() == []
        assert await box.renew(claim, lease=lease) == [True]
        lease_until = (await known(box, claim.event_id)).lease_until
        assert await box.reap() == []
        assert (await known(box, claim.event_id)).lease_until == lease_until


@pytest.mark.req("SC-7", "PL-6")
async def test_a_lease_keeps_what_is_left_of_it_when_the_clock_is_set_back_late(box: Box):
    """A reap shortly before the end of a lease lowers the longest lease; no relay loses time by that."""
    claim = await put_and_claim(box, lease=600)
    await advance(box, seconds=595)
    assert await box.reap() == []
    await advance(box, hours=-3)
    before = await store_time(box)
    assert await box.reap() == []
    lease_until = (await known(box, claim.event_id)).lease_until
    assert lease_until is not None
    assert timedelta(seconds=4) <= lease_until - before <= timedelta(seconds=300)


@pytest.mark.req("SC-7")
async def test_the_longest_lease_rarely_changes(box: Box):
    """Transactions watch the hash that holds it."""
    claim = await put_and_claim(box, lease=30)
    await box.reap()
    meta = await box._store.meta()
    for _ in range(3):
        await advance(box, seconds=14)
        await box.reap()
        assert await box._store.meta() == meta
        assert await box.renew(claim, lease=30) == [True]


@pytest.mark.req("SC-7")
@pytest.mark.parametrize("value", ["many", "nan", "inf", "-1", "1e300"])
async def test_a_longest_lease_that_cannot_be_read_ends_no_lease(box: Box, value: str):
    claim = await put_and_claim(box, lease=30)
    await box._store.exchange([("HSET", keys.meta(box.name), "longest_lease", value)])
    lease_until = (await known(box, claim.event_id)).lease_until
    assert await box.reap() == []
    assert await box.reap() == []
    assert (await known(box, claim.event_id)).lease_until == lease_until


@pytest.mark.req("SC-7")
async def test_many_leases_are_shortened_in_bounded_steps(box: Box):
    await box.put_many([Event("n") for _ in range(250)])
    await box.claim("relay-1", limit=250, lease=30)
    await advance(box, hours=-3)
    await box.reap(limit=220)
    await advance(box, seconds=31)
    assert len(await box.reap(limit=1000)) == 220
    await advance(box, seconds=31)
    assert len(await box.reap(limit=1000)) == 30


@pytest.mark.req("SC-7")
async def test_many_are_reaped_in_one_call_of_several_steps(box: Box):
    await box.put_many([Event("n") for _ in range(250)])
    await box.claim("relay-1", limit=250)
    await advance(box, minutes=1)
    assert len(await box.reap(limit=220)) == 220
    assert len(await box.reap(limit=1000)) == 30
    assert await check_invariants(box) == []


@pytest.mark.req("SC-2", "PL-6")
@pytest.mark.parametrize("move", ["ack", "retry", "kill", "release", "renew"])
async def test_many_claims_are_settled_in_several_steps_and_answered_in_order(box: Box, move: str):
    events = [Event("n", ordering_key=f"{n:0255}", unique_key=f"{n:0255}") for n in range(250)]
    await box.put_many(events)
    claims = await claim_all(box)
    gone = {0, 99, 100, 249}
    await box.release([claims[n] for n in sorted(gone)], delay=60)
    assert await getattr(box, move)(claims) == [n not in gone for n in range(250)]
    assert await check_invariants(box) == []


@pytest.mark.req("SC-7")
async def test_only_expired_claims_are_reaped(box: Box):
    dying = await put_and_claim(box, Event("dying"), lease=10)
    living = await put_and_claim(box, Event("living"), lease=100)
    renewed = await put_and_claim(box, Event("renewed"), lease=10)
    await box.renew(renewed, lease=100)
    await advance(box, seconds=20)
    before = {claim.event_id: await fields_of(box, claim.event_id) for claim in (living, renewed)}
    assert await box.reap() == [dying.event_id]
    for event_id, fields in before.items():
        assert await fields_of(box, event_id) == fields
    assert await box.ack([dying, living, renewed]) == [False, True, True]
    assert await check_invariants(box) == []


@pytest.mark.req("SC-7")
async def test_any_number_of_reapers_reap_each_claim_once(box: Box):
    ids = {receipt.event_id for receipt in await box.put_many([Event("n") for _ in range(24)])}
    await box.claim("relay-1")
    await advance(box, minutes=1)
    reaped = [event_id for found in await asyncio.gather(*(box.reap(limit=5) for _ in range(8))) for event_id in found]
    assert len(reaped) == 24
    assert set(reaped) == ids
    for event_id in list(ids)[:3]:
        record = await known(box, event_id)
        assert (record.attempts, record.excused, record.expiries, len(record.history)) == (1, 1, 1, 1)
    assert (await totals_of(box))["expired"] == 24
    assert await check_invariants(box) == []


@pytest.mark.req("SC-7", "PL-4")
async def test_the_reaped_are_eligible_at_once_or_after_the_delay(box: Box):
    claim = await put_and_claim(box)
    await expire(box)
    record = await known(box, claim.event_id)
    assert record.available_at == record.history[-1].at
    again = await claim_one(box)
    assert again.number > claim.number
    await expire(box, delay=timedelta(minutes=1))
    record = await known(box, claim.event_id)
    assert record.available_at - record.history[-1].at == timedelta(minutes=1)
    assert await box.claim("relay-1") == []
    await advance(box, minutes=1)
    assert (await claim_one(box)).attempts == 3
    assert await check_invariants(box) == []


# --- SC-8: reading -----------------------------------------------------------------------------------------------


@pytest.mark.req("SC-8")
async def test_reading_changes_nothing(box: Box):
    await scene(box)
    before = await contents(box)
    for event_id in ("published", "dead", "claimed", "expired", "suspect", "pending", "waiting", "unknown"):
        await box.get(event_id)
    assert len([record async for record in box.list()]) == 7
    for state in State:
        assert [record async for record in box.list(state=state)]
    page = await box.page(limit=2, event_type="n*", key="o", error="x")
    assert page.cursor is None
    await box.page(limit=3, cursor=(await box.page(limit=3)).cursor)
    await box.stats()
    await box.settings()
    await box.exists()
    await box.names()
    await box.operate.log()
    assert (await box.replay(state="DEAD", dry_run=True)).matched == 1
    assert (await box.sweep(keep_published=0, keep_dead=0, dry_run=True)).published == 1
    assert await contents(box) == before


@pytest.mark.req("SC-8")
async def test_reading_never_creates_a_box(box: Box):
    assert await box.get("one") is None
    assert [record async for record in box.list()] == []
    assert (await box.page()).records == []
    assert (await box.stats()).layout == 0
    assert not await box.exists()
    assert await box.operate.log() == []
    assert await box.claim("relay-1") == []
    assert await box.reap() == []
    assert (await box.sweep(keep_published=0, keep_dead=0)).published == 0
    assert await box.operate.kill(["one"], who="ada", why="x") == [Outcome.UNKNOWN]
    assert not await box.exists()


@pytest.mark.req("DC-3")
async def test_an_event_is_a_hash_whose_place_is_a_score(box: Box):
    """PENDING is scored by available_at, CLAIMED by the end of the lease; another relay cannot settle the claim."""
    await box.put(Event("user.created", event_id="one", delay=60))
    store, name = box._store, box.name
    event, pending, claimed = keys.event(name, "one"), keys.pending(name), keys.claimed(name)
    record = await known(box, "one")
    kind, score = await store.exchange([("TYPE", event), ("ZSCORE", pending, "one")])
    assert (kind, float(score)) == (b"hash", record.available_at.timestamp() * 1000)
    await advance(box, minutes=2)
    claim = await claim_one(box, lease=30.0)
    before, score = await store.exchange([("ZSCORE", pending, "one"), ("ZSCORE", claimed, "one")])
    assert (before, float(score)) == (None, claim.lease_until_ms)
    assert await box.ack(msgspec.structs.replace(claim, claimed_by="relay-2")) == [False]
    assert await box.ack(claim) == [True]
