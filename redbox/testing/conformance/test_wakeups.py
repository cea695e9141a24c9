"""The basis of relays: hints, the next due time, heartbeats, and excused attempts."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

import pytest

from redbox import Box, Claim, Event, keys
from redbox.store.wire.base import BlockingWait
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import claim_one, expire, fail, known, make_dead, publish, put_and_claim


async def hinted(box: Box) -> bool:
    """Takes a hint. Returns whether there was one."""
    return await box.wait_for_hint(0.01)


class Found(NamedTuple):
    claims: list[Claim]
    more_in: float | None


async def look_for(box: Box, limit: int = 100) -> Found:
    packed = await box.claim_packed("relay-1", limit=limit, lease=30.0, attempts=None, holding=0)
    return Found(await box.unpack(packed), packed.more_in)


async def two_expiries(box: Box, *events: Event) -> None:
    """Makes events suspects."""
    await box.put_many(events)
    for _ in range(2):
        assert len(await box.claim("relay-1")) == len(events)
        await expire(box)


# --- ending a wait ---------------------------------------------------------------------------------------------


async def test_a_hint_ends_one_wait_and_expires(box: Box):
    """A wait that begins later finds it; without one it expires."""
    wait, other = BlockingWait(), BlockingWait()
    await box.end_wait(wait)
    store = box._store
    mine, others = keys.wait(box.name, wait.name), keys.wait(box.name, other.name)
    left, exists, hints = await store.exchange([("PTTL", mine), ("EXISTS", others), ("LLEN", keys.wake(box.name))])
    assert 0 < left <= 10_000
    assert (exists, hints) == (0, 0)
    began = time.monotonic()
    assert (await store.exchange([("BLPOP", mine, 5)]))[0][0].decode() == mine
    assert time.monotonic() - began < 2
    assert await store.exchange([("EXISTS", mine)]) == [0]
    assert not await box.exists()


# --- hints -----------------------------------------------------------------------------------------------------


async def test_a_put_gives_one_hint(box: Box):
    assert not await hinted(box)
    await box.put_many([Event("n"), Event("n")])
    await box.put(Event("n"))
    assert await hinted(box)
    assert not await hinted(box)


async def test_a_waiting_relay_is_woken_at_once(box: Box):
    waiting = asyncio.create_task(box.wait_for_hint(2.0))
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await box.put(Event("n"))
    assert await waiting
    assert time.monotonic() - began < 1.0


async def test_an_event_due_later_than_another_gives_no_hint(box: Box):
    await box.put(Event("n", delay=60))
    assert await hinted(box)
    await box.put(Event("n", delay=120))
    assert not await hinted(box)
    await box.put(Event("n", delay=30))
    assert await hinted(box)


async def test_one_hint_is_enough(box: Box):
    await box.put(Event("n", delay=60))
    await box.put(Event("n", delay=30))
    assert await hinted(box)
    assert not await hinted(box)


async def test_every_change_that_makes_an_event_available_gives_a_hint(box: Box):
    claim = await put_and_claim(box, Event("n", event_id="a"))
    for back in (box.retry, box.release):
        await hinted(box)
        await back(claim)
        assert await hinted(box)
        await advance(box, milliseconds=1)
        claim = await claim_one(box)
    await expire(box)
    assert await hinted(box)
    await box.operate.reschedule(["a"], delay=60, who="ada", why="later")
    await hinted(box)
    await box.operate.reschedule(["a"], who="ada", why="now")
    assert await hinted(box)
    await box.ack(await claim_one(box))
    assert not await hinted(box)
    await box.replay(["a"])
    assert await hinted(box)
    await box.operate.pause(who="ada", why="test")
    await hinted(box)
    await box.operate.resume(who="ada", why="test")
    assert await hinted(box)


@pytest.mark.req("OP-1")
@pytest.mark.parametrize("settle", ["ack", "kill"])
async def test_the_next_event_of_a_line_gives_a_hint_when_its_head_is_settled(box: Box, settle: str):
    await box.put_many([Event("n", ordering_key="o"), Event("n", ordering_key="o")])
    claim = await claim_one(box)
    await hinted(box)
    await getattr(box, settle)(claim)
    assert await hinted(box)
    assert len(await box.claim("relay-1")) == 1


async def test_the_next_event_of_a_line_gives_a_hint_when_its_dead_head_is_dropped(box: Box):
    await box.operate.configure(dead_head="block", who="ada", why="order matters")
    await box.put_many([Event("n", event_id="a", ordering_key="o"), Event("n", ordering_key="o")])
    await box.kill(await claim_one(box))
    await hinted(box)
    await box.operate.drop(["a"], who="ada", why="gone")
    assert await hinted(box)


async def test_a_claim_that_leaves_events_gives_another_hint(box: Box):
    await box.put_many([Event("n"), Event("n"), Event("n")])
    assert await hinted(box)
    await box.claim("relay-1", limit=2)
    assert await hinted(box)
    await box.claim("relay-2", limit=2)
    assert not await hinted(box)


# --- when there will be more -----------------------------------------------------------------------------------


async def test_a_claim_says_when_there_is_more(box: Box):
    found = await look_for(box)
    assert (found.claims, found.more_in) == ([], None)
    await box.put_many([Event("n"), Event("n"), Event("later", delay=60)])
    found = await look_for(box, limit=1)
    assert (len(found.claims), found.more_in) == (1, 0)
    found = await look_for(box)
    assert len(found.claims) == 1
    assert found.more_in is not None
    assert 50 < found.more_in <= 60


async def test_a_suspect_that_must_wait_for_another_does_not_count_as_more(box: Box):
    await two_expiries(box, Event("n"), Event("n"))
    found = await look_for(box)
    assert (len(found.claims), found.more_in) == (1, None)
    await box.ack(found.claims)
    found = await look_for(box)
    assert (len(found.claims), found.more_in) == (1, None)
    await box.release(found.claims, delay=60)
    found = await look_for(box)
    assert found.claims == []
    assert found.more_in is not None
    assert 50 < found.more_in <= 60


# --- excused, and alone ----------------------------------------------------------------------------------------


@pytest.mark.req("EM-10", "RF-4")
async def test_an_excused_failure_does_not_use_up_the_limit(box: Box):
    await box.put(Event("n", event_id="a"))
    for _ in range(5):
        claim = await claim_one(box, attempts=2)
        assert not claim.exhausted
        assert await fail(box, claim, error="the target is down", excuse=True) == [True]
    record = await known(box, "a")
    assert (record.attempts, record.excused, record.last_error) == (5, 5, "the target is down")
    for _ in range(2):
        assert await fail(box, await claim_one(box, attempts=2), error="500") == [True]
    assert (await claim_one(box, attempts=2)).exhausted
    assert await check_invariants(box) == []


async def test_excused_is_given_for_all_claims_or_for_each(box: Box):
    await box.put_many([Event("n", event_id="a"), Event("n", event_id="b")])
    await fail(box, await box.claim("relay-1"), excuse=[True, False])
    assert [(await known(box, id_)).excused for id_ in ("a", "b")] == [1, 0]


async def test_an_exhausted_claim_has_no_attempt_to_excuse(box: Box):
    await box.put(Event("n", event_id="a"))
    await fail(box, await claim_one(box))
    claim = await claim_one(box, attempts=1)
    assert claim.exhausted
    await fail(box, claim, excuse=True)
    record = await known(box, "a")
    assert (record.attempts, record.excused) == (1, 0)
    assert await check_invariants(box) == []


@pytest.mark.req("EM-10")
async def test_an_expiry_counts_once_the_relay_holds_nothing_else(box: Box):
    claims: list[Claim] = []
    for event_id in ("company", "alone"):
        await box.put(Event("n", event_id=event_id))
        claims += await box.claim("relay-1", holding=3)
    assert await box.renew(claims[1], alone=True) == [True]
    assert await box.renew(claims) == [True, True]
    await expire(box)
    assert [(await known(box, id_)).excused for id_ in ("company", "alone")] == [1, 0]


@pytest.mark.req("EM-10", "PL-7")
async def test_an_expiry_is_excused_when_other_claims_came_after_the_claim(box: Box):
    await put_and_claim(box, Event("n", event_id="first"), lease=30)
    assert await box.claim("relay-1", holding=1, beside="first") == []  # nothing came: still alone
    await box.put_many([Event("n", event_id=f"later-{n}") for n in range(5)])
    assert len(await box.claim("relay-1", holding=1, beside="first", lease=30)) == 5
    assert len(await expire(box)) == 6
    assert [record.excused async for record in box.list()] == [1] * 6
    assert await check_invariants(box) == []


@pytest.mark.req("EM-10")
async def test_an_expiry_counts_when_a_later_claim_was_empty_or_of_another_relay(box: Box):
    await put_and_claim(box, Event("n", event_id="first"), lease=30)
    assert await box.claim("relay-1", holding=1, beside="first") == []
    await box.put(Event("n", event_id="second"))
    assert len(await box.claim("relay-2", holding=1, beside="first", lease=30)) == 1  # not the one that holds it
    await expire(box)
    assert [(await known(box, event_id)).excused for event_id in ("first", "second")] == [0, 1]


# --- age -------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-5")
async def test_an_events_age_counts_from_when_it_was_first_due(box: Box):
    await box.put_many([Event("n", event_id="now"), Event("n", event_id="later", delay=3600)])
    await advance(box, hours=2)
    now, later = await box.claim("relay-1")
    assert now.due_at == now.created_at
    assert (later.due_at - later.created_at).total_seconds() == 3600
    await box.retry([now, later], delay=600)
    await advance(box, minutes=11)
    again = {claim.event_id: claim for claim in await box.claim("relay-1")}
    assert (again["later"].due_at - again["later"].created_at).total_seconds() == 3600
    assert again["now"].due_at == again["now"].created_at


@pytest.mark.req("RO-2")
@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("way", [make_dead, publish])
async def test_a_replay_resets_the_age_of_an_event(box: Box, way, reset: bool):
    (event_id,) = await way(box, Event("n"))
    await advance(box, days=3)
    await box.replay([event_id], reset=reset)
    claim = await claim_one(box)
    assert (claim.claimed_at - claim.due_at).total_seconds() < 60
    assert (claim.claimed_at - claim.created_at).days == 3


@pytest.mark.parametrize("tried", [False, True])
async def test_a_rescheduled_event_is_due_at_its_new_time(box: Box, tried: bool):
    await box.put(Event("n", event_id="a"))
    if tried:
        await fail(box, await claim_one(box))
    await box.operate.reschedule(["a"], delay=3600, who="ada", why="later")
    await advance(box, hours=1)
    claim = await claim_one(box)
    assert (claim.due_at - claim.created_at).total_seconds() == pytest.approx(3600, abs=60)


# --- heartbeats ------------------------------------------------------------------------------------------------


async def test_a_heartbeat_is_in_the_stats_until_the_relay_leaves(box: Box):
    assert (await box.stats()).relays == []
    about = {"host": "a", "pid": "7", "in_flight": "3", "breaker": "open", "reason": "HTTP 503"}
    assert await box.beat("relay-1", "one", about, fresh=15) == {}
    (relay,) = (await box.stats()).relays
    assert (relay.name, relay.host, relay.pid, relay.in_flight) == ("relay-1", "a", 7, 3)
    assert (relay.breaker, relay.reason) == ("open", "HTTP 503")
    assert relay.seen.total_seconds() < 60
    await box.beat("relay-1", "another", {}, fresh=15, leaving=True)
    assert len((await box.stats()).relays) == 1
    await box.beat("relay-1", "one", {}, fresh=15, leaving=True)
    assert (await box.stats()).relays == []


async def test_two_relays_with_one_name_are_reported(box: Box):
    await box.beat("relay-1", "one", {"host": "a"}, fresh=15)
    assert (await box.beat("relay-1", "two", {"host": "b"}, fresh=15))["host"] == "a"
    assert await box.beat("relay-1", "two", {"host": "b"}, fresh=15) == {}
    assert await box.beat("relay-1", "one", {"host": "a"}, fresh=0) == {}


async def test_a_relay_last_seen_in_the_future_does_not_count_as_a_namesake(box: Box):
    """The store's clock was set back, and the relay has sent no heartbeat since."""
    await box.beat("relay-1", "one", {"host": "a"}, fresh=15)
    await advance(box, hours=-3)
    assert await box.beat("relay-1", "two", {"host": "b"}, fresh=15) == {}


async def test_a_relay_without_a_heartbeat_for_a_day_is_forgotten(box: Box):
    await box.beat("relay-1", "one", {"host": "a"}, fresh=15)
    await advance(box, hours=23)
    await box.beat("relay-2", "two", {}, fresh=15)
    assert [relay.name for relay in (await box.stats()).relays] == ["relay-2", "relay-1"]
    await advance(box, hours=2)
    await box.beat("relay-3", "three", {}, fresh=15)
    assert [relay.name for relay in (await box.stats()).relays] == ["relay-3", "relay-2"]


async def test_a_heartbeat_changes_nothing_else(box: Box):
    await box.put(Event("n"))
    before = (await box.stats()).totals
    await box.beat("relay-1", "one", {}, fresh=15)
    assert (await box.stats()).totals == before
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_every_idle_relay_is_woken_by_a_pause(box: Box):
    """Each relay takes one hint; without it, the relay would act on outdated knowledge until its next claim."""
    for name in ("relay-1", "relay-2", "relay-3"):
        await box.beat(name, "an instance", {}, fresh=60)
    await box.operate.pause(who="ada", why="a test")
    assert [await box.wait_for_hint(5) for _ in range(3)] == [True] * 3
    assert not await box.wait_for_hint(0.01)
