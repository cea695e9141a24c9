"""SC-7: expired claims are reaped."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redbox import Box, Event, keys
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import (
    claim_one,
    expire,
    fields_of,
    known,
    put_and_claim,
    store_time,
)
from redbox.testing.conformance.store.steps import totals_of


@pytest.mark.req("SC-7")
async def test_reaping_is_bounded_and_starts_with_the_longest_expired(box: Box):
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


# The store's clock is set back: every stored time is then further in the future.
@pytest.mark.req("SC-7", "PL-8")
async def test_claims_of_a_crashed_relay_expire_although_the_clock_was_set_back(box: Box):
    claim = await put_and_claim(box, lease=30)
    await advance(box, hours=-3)
    assert await box.reap() == []  # its relay may be running, and gets the longest lease to renew
    lease_until = (await known(box, claim.event_id)).lease_until
    assert lease_until is not None
    assert lease_until <= await store_time(box) + timedelta(seconds=30)
    await advance(box, seconds=31)
    assert await box.reap() == [claim.event_id]
    assert await box.ack(claim) == [False]
    assert await check_invariants(box) == []


@pytest.mark.req("SC-7", "PL-6")
async def test_a_running_relay_keeps_its_claims_although_the_clock_was_set_back(box: Box):
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
async def test_the_longest_lease_is_never_shortened(box: Box, how: str):
    await box.put_many([Event("n"), Event("n")])
    long = await claim_one(box, limit=1, lease=3600 if how == "claim" else 30)
    await claim_one(box, limit=1, lease=10)
    if how == "renew":
        await box.renew(long, lease=3600)
    lease_until = (await known(box, long.event_id)).lease_until
    assert await box.reap() == []
    assert (await known(box, long.event_id)).lease_until == lease_until


@pytest.mark.req("SC-7")
async def test_a_long_lease_in_the_past_does_not_count_for_ever(box: Box):
    await box.ack(await put_and_claim(box, lease=100_000))
    assert await box.reap() == []  # nothing is claimed any more
    claim = await put_and_claim(box, lease=30)
    await advance(box, hours=-3)
    await box.reap()
    await advance(box, seconds=31)
    assert await box.reap() == [claim.event_id]


@pytest.mark.req("SC-7")
async def test_a_long_lease_in_the_past_does_not_count_for_ever_in_a_busy_box(box: Box):
    long = await put_and_claim(box, lease=100_000)
    claim = await put_and_claim(box, lease=30)
    assert await box.ack(long) == [True]
    assert await box.reap() == []  # the other event is still claimed
    await advance(box, hours=-3)
    await box.reap()
    await advance(box, seconds=31)
    assert await box.reap() == [claim.event_id]


@pytest.mark.req("SC-7", "PL-6")
async def test_no_lease_is_shortened_while_the_clock_is_right(box: Box):
    """However late in a lease a reap runs, and whatever lease comes next."""
    claim = await put_and_claim(box, lease=600)
    for passed, lease in ((590, 600), (599, 30), (29, 3600), (3500, 5), (1, 600)):
        await advance(box, seconds=passed)
        assert await box.reap() == []
        assert await box.renew(claim, lease=lease) == [True]
        lease_until = (await known(box, claim.event_id)).lease_until
        assert await box.reap() == []
        assert (await known(box, claim.event_id)).lease_until == lease_until


@pytest.mark.req("SC-7", "PL-6")
async def test_a_lease_keeps_its_remaining_time_when_the_clock_is_set_back_late(box: Box):
    """A reap shortly before the end of a lease lowers the longest lease; no relay loses time."""
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
    """Transactions watch the hash in which it is stored."""
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
async def test_an_unreadable_longest_lease_ends_no_lease(box: Box, value: str):
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
async def test_one_call_reaps_many_claims_in_several_steps(box: Box):
    await box.put_many([Event("n") for _ in range(250)])
    await box.claim("relay-1", limit=250)
    await advance(box, minutes=1)
    assert len(await box.reap(limit=220)) == 220
    assert len(await box.reap(limit=1000)) == 30
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
async def test_reaped_events_are_eligible_at_once_or_after_the_delay(box: Box):
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
