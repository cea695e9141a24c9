"""SC-4, SC-5: settling, lost ids, and the absence of a retry policy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redbox import Box, Event, Phase, State, keys
from redbox.errors import (
    UsageError,
)
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import (
    claim_one,
    expire,
    fail,
    known,
    put_and_claim,
)
from redbox.testing.conformance.store.steps import claim_all, totals_of

# --- SC-4: updates ---------------------------------------------------------------------------------------------------


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
async def test_each_claim_of_a_mixed_batch_has_its_own_outcome(box: Box):
    """Held and lost claims of two relays in one call: outcomes in the order of the claims."""
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
async def test_options_are_given_for_all_claims_or_for_each(box: Box):
    await box.put_many([Event("n"), Event("n")])
    claims = await box.claim("relay-1")
    with pytest.raises(UsageError, match="error"):
        await fail(box, claims, error=["one"])
    with pytest.raises(UsageError, match="delay"):
        await box.retry(claims, delay=[1, 2, 3])
    with pytest.raises(UsageError, match="reason"):
        await box.kill(claims, reason=[])
    assert (await box.stats()).phases[Phase.IN_FLIGHT] == 2


@pytest.mark.req("SC-4", "PL-7")
async def test_ids_without_an_event_are_set_aside_and_the_others_are_processed(box: Box):
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
async def test_a_claim_that_finds_only_lost_ids_removes_them(box: Box):
    store, name = box._store, box.name
    await store.exchange([("ZADD", keys.pending(name), 1, "ghost"), ("ZADD", keys.suspect(name), 0, "phantom")])
    assert await box.claim("relay-1") == []
    assert await box.claim("relay-1") == []
    stats = await box.stats()
    assert (stats.lost, stats.suspects, stats.phases[Phase.AVAILABLE], stats.totals.get("claimed", 0)) == (2, 0, 0, 0)
    assert (await put_and_claim(box)).number == 1


@pytest.mark.req("SC-4", "PL-7", "SC-7")
async def test_reaping_sets_lost_ids_aside_and_continues(box: Box):
    store, name = box._store, box.name
    claim = await put_and_claim(box)
    await store.exchange([("ZADD", keys.claimed(name), 1, "ghost")])
    assert await expire(box) == [claim.event_id]
    (lost, claimed) = await store.exchange([("ZRANGE", keys.lost(name), 0, -1), ("ZCARD", keys.claimed(name))])
    assert (lost, claimed) == ([b"ghost"], 0)
    assert (await totals_of(box))["expired"] == 1


@pytest.mark.req("SC-4", "OP-1")
async def test_a_line_continues_past_a_lost_id(box: Box):
    store, name = box._store, box.name
    ids = [(await box.put(Event("n", ordering_key="o"))).event_id for _ in range(4)]
    await store.exchange([("DEL", keys.event(name, ids[1]), keys.body(name, ids[1]))])
    await store.exchange([("DEL", keys.event(name, ids[2]), keys.body(name, ids[2]))])
    await box.ack(await claim_one(box))
    assert (await claim_one(box)).event_id == ids[3]
    (lost, waiting) = await store.exchange([("ZRANGE", keys.lost(name), 0, -1), ("ZCARD", keys.waiting(name))])
    assert ({raw.decode() for raw in lost}, waiting) == ({ids[1], ids[2]}, 0)


# --- SC-5: no policy in the store ------------------------------------------------------------------------------------


@pytest.mark.req("SC-5")
async def test_without_a_limit_attempts_are_never_exhausted(box: Box):
    await box.put(Event("n"))
    for attempt in range(1, 26):
        claim = await claim_one(box)
        assert (claim.attempts, claim.exhausted) == (attempt, False)
        await fail(box, claim, error="503")
    assert (await known(box, claim.event_id)).state == State.PENDING


@pytest.mark.req("SC-5")
async def test_the_limit_of_attempts_is_an_argument_of_the_claim(box: Box):
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
async def test_the_delay_of_a_retry_is_exact_to_the_millisecond(box: Box, delay: Any):
    claim = await put_and_claim(box)
    await box.retry(claim, error="503", delay=delay)
    record = await known(box, claim.event_id)
    wanted = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
    assert record.available_at - record.history[-1].at == wanted
    assert await check_invariants(box) == []


# --- SC-7: reaping ---------------------------------------------------------------------------------------------------


@pytest.mark.req("SC-2", "PL-6")
@pytest.mark.parametrize("move", ["ack", "retry", "kill", "release", "renew"])
async def test_many_claims_are_settled_in_several_steps_with_outcomes_in_order(box: Box, move: str):
    events = [Event("n", ordering_key=f"{n:0255}", unique_key=f"{n:0255}") for n in range(250)]
    await box.put_many(events)
    claims = await claim_all(box)
    gone = {0, 99, 100, 249}
    await box.release([claims[n] for n in sorted(gone)], delay=60)
    assert await getattr(box, move)(claims) == [n not in gone for n in range(250)]
    assert await check_invariants(box) == []
