"""SC-2, SC-3: claims and their leases."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redbox import Box, Event, keys
from redbox.errors import (
    UsageError,
)
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import (
    body_of,
    claim_one,
    contents,
    expire,
    fail,
    known,
    put_and_claim,
    store_time,
)
from redbox.testing.conformance.store.steps import claim_all

# --- SC-2: claim -----------------------------------------------------------------------------------------------------


@pytest.mark.req("SC-2")
async def test_claims_return_the_oldest_available_events_first(box: Box):
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
async def test_a_sample_is_spread_from_the_newest_to_the_oldest_event(box: Box):
    """A relay that probes its target must not get only the oldest events."""
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
async def test_a_sample_removes_lost_ids(box: Box):
    for number in range(3):
        await box.put(Event("n", event_id=f"e{number}"))
        await advance(box, seconds=1)
    await box._store.exchange([("DEL", keys.event(box.name, "e1"))])
    assert sorted(await sample(box, 3)) == ["e0", "e2"]
    assert await sample(box, 3) == []
    assert (await box.stats()).lost == 1


@pytest.mark.req("SC-2")
async def test_a_sample_has_a_suspect_only_if_there_is_nothing_else(box: Box):
    await box.put(Event("n", event_id="suspect"))
    for _ in range(2):
        await claim_one(box)
        await expire(box)
    await box.put_many([Event("n", event_id="e1"), Event("n", event_id="e2")])
    assert sorted(await sample(box, 5)) == ["e1", "e2"]
    assert await sample(box, 5) == ["suspect"]
    assert await check_invariants(box) == []


@pytest.mark.req("SC-2")
async def test_a_claim_never_returns_more_than_its_limit(box: Box):
    ids = [receipt.event_id for receipt in await box.put_many([Event("n") for _ in range(7)])]
    assert [claim.event_id for claim in await box.claim("relay-1", limit=1)] == ids[:1]
    assert [claim.event_id for claim in await box.claim("relay-1", limit=4)] == ids[1:5]
    assert [claim.event_id for claim in await box.claim("relay-1", limit=100)] == ids[5:]
    assert await box.claim("relay-1", limit=100) == []
    assert await check_invariants(box) == []


@pytest.mark.req("SC-2")
async def test_invalid_limits_are_refused(box: Box):
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
async def test_claims_are_bounded_in_bytes_but_return_at_least_one_event(box: Box):
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
async def test_an_expensive_claim_returns_fewer_events_and_says_that_there_are_more(box: Box):
    """A script that runs for long would block all other clients."""
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
async def test_retried_events_are_sorted_by_their_new_time(box: Box):
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
async def test_a_release_with_a_delay(box: Box):
    claim = await put_and_claim(box)
    await box.release(claim, delay=60)
    record = await known(box, claim.event_id)
    assert record.available_at - record.history[-1].at == timedelta(seconds=60)
    assert await box.claim("relay-1") == []
    await advance(box, seconds=61)
    assert (await claim_one(box)).event_id == claim.event_id
    assert await check_invariants(box) == []


@pytest.mark.req("SC-2", "SC-4")
@pytest.mark.needs("server")
async def test_a_full_batch_through_every_script(box: Box):
    """1,000 events with every kind of key: the most that one call takes."""
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


# --- SC-3: no event in two hands -------------------------------------------------------------------------------------


@pytest.mark.req("SC-3")
async def test_concurrent_relays_never_share_an_event(box: Box):
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
async def test_an_event_is_not_claimed_again_during_its_lease(box: Box):
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
async def test_the_lease_has_the_requested_length(box: Box):
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
async def test_every_claim_has_its_own_number(box: Box):
    await box.put_many([Event("n") for _ in range(4)])
    claims = await box.claim("relay-1", limit=3)
    assert [claim.number for claim in claims] == [1, 2, 3]
    assert (await claim_one(box, "relay-2")).number == 4
    for claim in claims:
        assert (await known(box, claim.event_id)).number == claim.number
    await box.release(claims)
    assert [claim.number for claim in await box.claim("relay-1")] == [5, 6, 7]
