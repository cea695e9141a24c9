"""PL: the lifecycle, and the fence of claims."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from redbox import Box, BoxPaused, Claim, Event, Outcome, Phase, Record, State, keys
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import fail


async def claim_one(box: Box, relay: str = "relay-1", **options) -> Claim:
    (claim,) = await box.claim(relay, limit=1, **options)
    return claim


async def put_and_claim(box: Box, relay: str = "relay-1", **options) -> Claim:
    await box.put(Event("user.created", {"id": 42}))
    return await claim_one(box, relay, **options)


async def look(box: Box, claim: Claim) -> Record:
    record = await box.get(claim.event_id)
    assert record is not None
    return record


@pytest.mark.req("PL-2", "PL-3", "EM-13", "EM-14", "DC-3")
async def test_claim_and_ack(box: Box):
    claim = await put_and_claim(box, lease=30.0)
    record = await look(box, claim)
    assert (record.state, record.claimed_by, record.number) == (State.CLAIMED, "relay-1", claim.number)
    assert record.claimed_at == claim.claimed_at
    assert record.lease_until == claim.claimed_at + timedelta(seconds=30)
    assert record.published_at is None
    assert await box.ack([claim]) == [True]
    record = await look(box, claim)
    assert (record.state, record.claimed_by, record.claimed_at) == (State.PUBLISHED, None, None)
    assert record.published_at is not None
    assert record.published_at >= claim.claimed_at
    assert record.published_by == "relay-1"
    assert (await box.stats()).totals == {"put": 1, "claimed": 1, "published": 1}
    assert await check_invariants(box) == []


@pytest.mark.req("PL-1", "EM-4")
@pytest.mark.parametrize("state", list(State))
async def test_every_illegal_transition_is_refused(box: Box, state: State):
    claim = await put_and_claim(box)
    way: dict[State, Any] = {
        State.PENDING: partial(box.retry, delay=60),
        State.PUBLISHED: box.ack,
        State.DEAD: box.kill,
    }
    if state in way:
        assert await way[state](claim) == [True]
    before = await look(box, claim)
    assert before.state is state

    async def operate(action: str) -> Outcome:
        (outcome,) = await getattr(box.operate, action)([claim.event_id], who="me", why="test")
        return outcome

    if state is not State.CLAIMED:
        for move in (box.ack, box.retry, box.kill, box.release, box.renew):
            assert await move(claim) == [False]
        assert await operate("release") is Outcome.NOTCLAIMED
    if state is not State.PENDING:
        assert await box.claim("relay-2") == []
        assert await operate("reschedule") is Outcome.NOTPENDING
    if state in (State.PENDING, State.CLAIMED):
        assert (await box.replay([claim.event_id])).refused == [(claim.event_id, Outcome.NOTTERMINAL, state)]
        assert await operate("drop") is Outcome.NOTTERMINAL
    else:
        assert await operate("kill") is Outcome.NOTLIVE
    assert await look(box, claim) == before
    assert await check_invariants(box) == []


@pytest.mark.req("PL-1", "RO-3")
async def test_operators_are_refused_with_a_reason(box: Box):
    claim = await put_and_claim(box)
    assert await box.operate.reschedule([claim.event_id, "none"], who="me", why="test") == [
        Outcome.NOTPENDING,
        Outcome.UNKNOWN,
    ]
    assert await box.release(claim) == [True]
    assert await box.operate.release([claim.event_id, "none"], who="me", why="test") == [
        Outcome.NOTCLAIMED,
        Outcome.UNKNOWN,
    ]
    assert await box.operate.kill(["none"], who="me", why="test") == [Outcome.UNKNOWN]
    assert await box.operate.drop(["none"], who="me", why="test") == [Outcome.UNKNOWN]
    assert (await look(box, claim)).state is State.PENDING


@pytest.mark.req("PL-2", "EM-12")
async def test_only_available_events_are_claimed(box: Box):
    await box.put(Event("later", delay=60))
    assert await box.claim("relay-1") == []
    await advance(box, seconds=59)
    assert await box.claim("relay-1") == []
    await advance(box, seconds=2)
    assert [claim.event.event_type for claim in await box.claim("relay-1")] == ["later"]


@pytest.mark.req("PL-4", "EM-11")
async def test_a_failure_makes_an_event_pending_with_a_delay(box: Box):
    claim = await put_and_claim(box)
    before = (await box.stats()).at
    assert await box.retry(claim, error="503 from shop", delay=60) == [True]
    record = await look(box, claim)
    assert (record.state, record.attempts, record.excused) == (State.PENDING, 1, 0)
    assert record.last_error == "503 from shop"
    assert timedelta(seconds=60) <= record.available_at - before < timedelta(seconds=65)
    assert (record.claimed_at, record.claimed_by, record.lease_until) == (None, None, None)
    assert await box.claim("relay-1") == []
    await advance(box, seconds=61)
    again = await claim_one(box)
    assert (again.event_id, again.attempts, again.number) == (claim.event_id, 2, claim.number + 1)
    assert await check_invariants(box) == []


@pytest.mark.req("PL-4", "RF-1")
async def test_a_retry_without_a_delay_is_available_a_millisecond_later(box: Box):
    claim = await put_and_claim(box)
    await box.retry(claim, error="503", delay=0)
    record = await look(box, claim)
    assert record.available_at - record.history[-1].at == timedelta(milliseconds=1)


@pytest.mark.req("PL-4", "SC-7")
async def test_an_expiry_makes_an_event_pending_at_once(box: Box):
    claim = await put_and_claim(box, lease=30)
    await advance(box, seconds=31)
    before = (await box.stats()).at
    assert await box.reap() == [claim.event_id]
    record = await look(box, claim)
    assert (record.state, record.attempts, record.expiries) == (State.PENDING, 1, 1)
    assert record.available_at >= before
    assert record.last_error == "lease expired while held by relay-1"
    assert (record.claimed_at, record.claimed_by) == (None, None)
    assert (await claim_one(box)).event_id == claim.event_id


@pytest.mark.req("PL-4")
async def test_an_expiry_with_a_delay(box: Box):
    claim = await put_and_claim(box, lease=30)
    await advance(box, seconds=31)
    assert await box.reap(delay=60) == [claim.event_id]
    assert await box.claim("relay-1") == []
    await advance(box, seconds=61)
    assert len(await box.claim("relay-1")) == 1


@pytest.mark.req("PL-5", "PL-9")
async def test_dead_stays_dead(box: Box):
    claim = await put_and_claim(box)
    assert await box.kill(claim, reason="422 unprocessable") == [True]
    record = await look(box, claim)
    assert (record.state, record.last_error, record.attempts) == (State.DEAD, "422 unprocessable", 1)
    assert record.died_at is not None
    await advance(box, days=400)
    assert await box.claim("relay-1") == []
    assert await box.reap() == []
    await box.sweep()
    after = await look(box, claim)
    assert (after.state, after.last_error) == (State.DEAD, "422 unprocessable")
    assert await check_invariants(box) == []


@pytest.mark.req("PL-9")
async def test_published_stays_published(box: Box):
    claim = await put_and_claim(box)
    await box.ack(claim)
    before = await look(box, claim)
    assert await box.claim("relay-1") == []
    assert await box.reap() == []
    assert await look(box, claim) == before


@pytest.mark.req("PL-5", "SC-5")
async def test_an_exhausted_event_is_claimed_to_be_killed(box: Box):
    await box.put(Event("poison"))
    for attempt in (1, 2):
        claim = await claim_one(box, attempts=2)
        assert (claim.attempts, claim.exhausted, claim.failures) == (attempt, False, attempt - 1)
        await fail(box, claim, error=f"failure {attempt}")
    # A relay without a limit, or with a higher one, would still publish it: the limit is that of the relay.
    claim = await claim_one(box, attempts=3)
    assert (claim.attempts, claim.exhausted) == (3, False)
    await fail(box, claim, error="failure 3")
    claim = await claim_one(box, attempts=2)
    assert (claim.attempts, claim.exhausted, claim.failures) == (3, True, 3)
    await box.kill(claim, reason="attempts used up")
    record = await look(box, claim)
    assert (record.state, record.attempts) == (State.DEAD, 3)
    assert await check_invariants(box) == []


@pytest.mark.req("PL-6")
@pytest.mark.parametrize("move", ["ack", "retry", "kill", "release", "renew"])
async def test_a_claim_that_is_no_longer_held_settles_nothing(box: Box, move: str):
    stale = await put_and_claim(box, lease=30)
    await advance(box, seconds=31)
    await box.reap()
    held = await claim_one(box, "relay-2")
    before = await look(box, held)
    assert await getattr(box, move)(stale) == [False]
    assert await look(box, held) == before
    assert (await box.stats()).totals["fenced"] == 1
    assert await box.ack(held) == [True]
    assert await check_invariants(box) == []


@pytest.mark.req("PL-6")
@pytest.mark.parametrize("move", ["ack", "retry", "kill", "release", "renew"])
async def test_a_relay_is_fenced_from_its_own_earlier_claim(box: Box, move: str):
    stale = await put_and_claim(box, "relay-1", lease=30)
    await advance(box, seconds=31)
    await box.reap()
    held = await claim_one(box, "relay-1")
    assert held.number > stale.number
    before = await look(box, held)
    assert await getattr(box, move)(stale) == [False]
    assert await look(box, held) == before


@pytest.mark.req("PL-6")
@pytest.mark.parametrize("move", ["ack", "retry", "kill", "release", "renew"])
async def test_another_relay_cannot_settle_by_number_alone(box: Box, move: str):
    held = await put_and_claim(box, "relay-1")
    forged = Claim(**{**{f: getattr(held, f) for f in held.__struct_fields__}, "claimed_by": "relay-2"})
    assert await getattr(box, move)(forged) == [False]
    assert (await look(box, held)).state is State.CLAIMED


@pytest.mark.req("PL-6")
@pytest.mark.parametrize("move", ["ack", "retry", "kill", "release"])
async def test_an_expired_claim_that_was_not_reaped_still_settles(box: Box, move: str):
    claim = await put_and_claim(box, lease=30)
    await advance(box, minutes=10)
    assert await getattr(box, move)(claim) == [True]
    assert await box.reap() == []
    assert await check_invariants(box) == []


@pytest.mark.req("PL-6")
async def test_claim_numbers_never_repeat(box: Box):
    event = Event("user.created", event_id="fixed")
    seen = []
    for _ in range(3):  # across replays, and after the event was removed and put again
        await box.put(event)
        claim = await claim_one(box)
        seen.append(claim.number)
        await box.ack(claim)
        await box.replay(["fixed"])
        claim = await claim_one(box)
        seen.append(claim.number)
        await box.ack(claim, delete=True)
    assert seen == sorted(set(seen))
    assert await box.get("fixed") is None


@pytest.mark.req("PL-6")
async def test_renewal_moves_the_end_of_the_lease(box: Box):
    claim = await put_and_claim(box, lease=30)
    await advance(box, seconds=20)
    assert await box.renew(claim, lease=30) == [True]
    await advance(box, seconds=20)
    assert await box.reap() == []
    await advance(box, seconds=11)
    assert await box.reap() == [claim.event_id]


@pytest.mark.req("PL-7")
async def test_a_relay_killed_after_its_claim(box: Box):
    await box.put_many([Event("n", n) for n in range(5)])
    lost = await box.claim("killed", lease=30)
    await advance(box, seconds=31)
    assert sorted(await box.reap()) == sorted(claim.event_id for claim in lost)
    found = await box.claim("survivor")
    assert sorted(claim.event.decode() for claim in found) == [0, 1, 2, 3, 4]
    assert await box.ack(found) == [True] * 5
    assert await check_invariants(box) == []


@pytest.mark.req("PL-7", "DS-1")
async def test_a_relay_killed_between_publish_and_ack_publishes_again(box: Box):
    published = []
    published.append((await put_and_claim(box, lease=30)).event_id)  # published, then killed before the ack
    await advance(box, seconds=31)
    await box.reap()
    again = await claim_one(box, "survivor")
    published.append(again.event_id)
    assert await box.ack(again) == [True]
    assert published[0] == published[1]  # a duplicate with the same event_id, never a loss


@pytest.mark.req("PL-7")
async def test_part_of_a_batch_fails(box: Box):
    await box.put_many([Event("n", n) for n in range(6)])
    claims = await box.claim("relay-1")
    assert await box.ack(claims[0:2]) == [True, True]
    assert await box.retry(claims[2:4], error=["a", "b"], delay=[10, 20]) == [True, True]
    assert await box.kill(claims[4:5], reason="no") == [True]
    assert await box.release(claims[5:6]) == [True]
    states = [(await look(box, claim)).state for claim in claims]
    assert states == ["PUBLISHED", "PUBLISHED", "PENDING", "PENDING", "DEAD", "PENDING"]
    first, second = await look(box, claims[2]), await look(box, claims[3])
    assert (first.last_error, second.last_error) == ("a", "b")
    assert timedelta(seconds=9) < second.available_at - first.available_at <= timedelta(seconds=10)
    assert await check_invariants(box) == []


@pytest.mark.req("PL-7", "PL-8", "SC-3")
async def test_many_relays_share_the_work(box: Box):
    await box.put_many([Event("n", n) for n in range(200)])
    delivered: list[int] = []

    async def relay(name: str) -> None:
        while claims := await box.claim(name, limit=7):
            delivered.extend(claim.event.decode(int) for claim in claims)
            assert await box.ack(claims) == [True] * len(claims)

    await asyncio.gather(*(relay(f"relay-{n}") for n in range(8)))
    assert sorted(delivered) == list(range(200))
    assert await check_invariants(box) == []


@pytest.mark.req("PL-8")
@pytest.mark.needs("server")
@pytest.mark.parametrize("hours", [-5, 5])
async def test_only_the_stores_clock_decides(box: Box, monkeypatch: pytest.MonkeyPatch, hours: int):
    real_time = time.time
    monkeypatch.setattr(time, "time", lambda: real_time() + hours * 3600)
    await box.put(Event("later", delay=60))
    claim = await put_and_claim(box, lease=30)
    assert abs(claim.claimed_at.timestamp() - real_time()) < 60
    assert await box.reap() == []
    assert await box.retry(claim, delay=10) == [True]
    record = await look(box, claim)
    assert abs(record.available_at.timestamp() - real_time()) < 60
    assert await box.claim("relay-2") == []


@pytest.mark.req("PL-7", "SC-7")
async def test_suspects_are_claimed_alone(box: Box):
    await box.put_many([Event("n", n) for n in range(3)])
    for _ in range(2):
        assert len(await box.claim("relay", lease=30)) == 3
        await advance(box, seconds=31)
        assert len(await box.reap()) == 3
    assert (await box.stats()).suspects == 3
    await box.put(Event("ordinary"))
    await advance(box, seconds=1)
    first = await box.claim("relay-1", limit=10)
    assert [claim.suspect for claim in first] == [True]
    # While one suspect is claimed, no other is, but ordinary events are.
    second = await box.claim("relay-2", limit=10)
    assert [(claim.event.event_type, claim.suspect) for claim in second] == [("ordinary", False)]
    assert await box.claim("relay-3") == []
    assert await box.ack(first) == [True]
    (third,) = await box.claim("relay-3", limit=10)
    assert third.suspect
    assert (third.attempts, third.excused) == (3, 2)  # two expiries beside other claims were excused
    await advance(box, seconds=31)
    assert await box.reap() != []  # claimed alone, so this expiry counts
    record = await look(box, third)
    assert (record.attempts, record.excused, record.expiries) == (3, 2, 3)
    assert await check_invariants(box) == []


@pytest.mark.req("PL-7")
async def test_a_suspect_with_a_reported_failure_is_ordinary_again(box: Box):
    await box.put(Event("n"))
    for _ in range(2):
        await claim_one(box, lease=30)
        await advance(box, seconds=31)
        await box.reap()
    suspect = await claim_one(box)
    assert suspect.suspect
    assert await box.release(suspect) == [True]
    suspect = await claim_one(box)
    assert suspect.suspect  # released before it started: that proves nothing
    await fail(box, suspect, error="503")
    record = await look(box, suspect)
    assert (record.expiries, record.suspect) == (0, False)
    assert not (await claim_one(box)).suspect
    assert await check_invariants(box) == []


@pytest.mark.req("PL-7", "SC-2")
async def test_older_events_are_claimed_before_a_suspect(box: Box):
    await box.put(Event("suspect"))
    for delay in (0, 300):
        await claim_one(box, lease=30)
        await advance(box, seconds=31)
        await box.reap(delay=delay)
    await box.put_many([Event("older", delay=100), Event("newer", delay=500)])
    await advance(box, seconds=600)
    seen = [[claim.event.event_type for claim in await box.claim("relay", limit=1)] for _ in range(3)]
    assert seen == [["older"], ["suspect"], ["newer"]]


@pytest.mark.req("PL-1", "RO-3")
async def test_a_paused_box_accepts_puts_and_settlements_but_no_claims(box: Box):
    claim = await put_and_claim(box)
    await box.operate.pause(who="me", why="maintenance")
    with pytest.raises(BoxPaused):
        await box.claim("relay-1")
    await box.put(Event("goes.on"))
    assert await box.ack(claim) == [True]
    assert (await box.stats()).paused
    await box.operate.resume(who="me", why="done")
    assert len(await box.claim("relay-1")) == 1
    assert [entry.action for entry in await box.operate.log()] == ["resume", "pause"]


async def destroy(box: Box, event_id: str) -> None:
    """Deletes an event but not its index entries, as no script does."""
    await box._store.exchange([("DEL", keys.event(box.name, event_id))])


@pytest.mark.req("SC-4")
async def test_an_id_without_an_event_is_set_aside_and_the_claim_continues(box: Box):
    gone, kept = await box.put_many([Event("gone"), Event("kept")])
    await destroy(box, gone.event_id)
    (claim,) = await box.claim("relay-1", limit=10)
    assert claim.event_id == kept.event_id
    stats = await box.stats()
    assert (stats.lost, stats.phases[Phase.AVAILABLE]) == (1, 0)
    assert await box.claim("relay-1") == []


@pytest.mark.req("SC-4", "SC-7")
async def test_an_id_without_an_event_is_set_aside_and_the_reap_continues(box: Box):
    gone, kept = await box.put_many([Event("gone"), Event("kept")])
    assert len(await box.claim("relay-1", lease=30)) == 2
    await advance(box, seconds=31)
    await destroy(box, gone.event_id)
    assert await box.reap() == [kept.event_id]
    stats = await box.stats()
    assert (stats.lost, stats.phases[Phase.IN_FLIGHT]) == (1, 0)


@pytest.mark.req("SC-4", "OP-1")
async def test_an_id_without_an_event_does_not_stop_its_line(box: Box):
    _, gone, kept = await box.put_many([Event(name, ordering_key="a") for name in ("head", "gone", "kept")])
    await destroy(box, gone.event_id)
    await box.ack(await claim_one(box))
    assert (await claim_one(box)).event_id == kept.event_id
    stats = await box.stats()
    assert (stats.lost, stats.waiting) == (1, 0)


@pytest.mark.req("SC-4")
async def test_an_event_without_a_body_is_set_aside(box: Box):
    receipt = await box.put(Event("bodiless"))
    await box._store.exchange([("DEL", keys.body(box.name, receipt.event_id))])
    assert await box.claim("relay-1") == []
    assert (await box.stats()).lost == 1


@pytest.mark.req("RO-3", "SC-4")
async def test_an_operator_can_kill_a_suspect(box: Box):
    await box.put(Event("n"))
    for _ in range(2):
        suspect = await claim_one(box, lease=30)
        await advance(box, seconds=31)
        await box.reap()
    assert await box.operate.kill([suspect.event_id], who="me", why="it kills relays") == [Outcome.OK]
    assert (await box.stats()).suspects == 0
    assert await box.claim("relay-1") == []
    assert await check_invariants(box) == []
