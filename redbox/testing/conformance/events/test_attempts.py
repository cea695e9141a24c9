"""EM-10: attempts, and those that are excused."""

from __future__ import annotations

import pytest

from redbox import Box, Claim, Event, Outcome, Record, keys
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import (
    claim_one,
    expire,
    fail,
    fields_of,
    known,
    put_and_claim,
)


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
async def test_a_released_attempt_is_excused(box: Box):
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
async def test_an_expiry_of_a_lone_claim_counts(box: Box):
    claim = await put_and_claim(box)
    assert await expire(box) == [claim.event_id]
    assert tally(await known(box, claim.event_id)) == (1, 0)
    assert (await claim_one(box, attempts=1)).exhausted
    assert await check_invariants(box) == []


@pytest.mark.req("EM-10")
async def test_an_expiry_beside_other_claims_is_excused(box: Box):
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
async def test_claims_that_the_relay_already_holds_excuse_an_expiry(box: Box, holding: int, excused: int):
    claim = await put_and_claim(box, holding=holding)
    await expire(box)
    assert tally(await known(box, claim.event_id)) == (1, excused)
    assert await check_invariants(box) == []


@pytest.mark.req("EM-10")
async def test_other_claims_excuse_the_current_claim_and_not_the_next(box: Box):
    claim = await put_and_claim(box, holding=1)
    await fail(box, claim, error="503")
    await claim_one(box)
    await expire(box)
    assert tally(await known(box, claim.event_id)) == (2, 0)


@pytest.mark.req("EM-10")
async def test_a_failure_beside_other_claims_counts(box: Box):
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
async def test_exhausted_events_stay_exhausted_and_are_not_counted_again(box: Box, how: str):
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
    """After an exhausted claim, a released attempt is excused again."""
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
async def test_an_event_of_a_newer_redbox_is_released_and_not_counted(box: Box, written: bytes):
    """A body of version 2, of the same or another shape: this relay leaves it to one that can read it."""
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
