"""EM-11, EM-14: last_error, published_at and the history of attempts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redbox import Box, Event, Outcome, keys
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import (
    claim_one,
    expire,
    fail,
    fields_of,
    known,
    put_and_claim,
    store_time,
)

# --- EM-11: last_error -----------------------------------------------------------------------------------------------


@pytest.mark.req("EM-11")
async def test_last_error_is_updated_on_every_failure(box: Box):
    claim = await put_and_claim(box)
    assert (await known(box, claim.event_id)).last_error is None
    await fail(box, claim, error="503 first")
    assert (await known(box, claim.event_id)).last_error == "503 first"
    await fail(box, await claim_one(box), error="Zoë said no: ×\n\tline 2")
    assert (await known(box, claim.event_id)).last_error == "Zoë said no: ×\n\tline 2"
    await claim_one(box, "relay-9")
    await expire(box)
    assert (await known(box, claim.event_id)).last_error == "lease expired while held by relay-9"
    await box.release(await claim_one(box))
    assert (await known(box, claim.event_id)).last_error == "lease expired while held by relay-9"
    await box.kill(await claim_one(box), reason="410 gone")
    assert (await known(box, claim.event_id)).last_error == "410 gone"


@pytest.mark.req("EM-11")
async def test_a_kill_without_a_reason_keeps_the_last_error(box: Box):
    claim = await put_and_claim(box)
    await fail(box, claim, error="503")
    await box.kill(await claim_one(box))
    assert (await known(box, claim.event_id)).last_error == "503"


@pytest.mark.req("EM-11")
async def test_each_claim_of_a_batch_gets_its_own_error_and_delay(box: Box):
    await box.put_many([Event("n") for _ in range(3)])
    claims = await box.claim("relay-1")
    assert await box.retry(claims, error=["a", "b", "c"], delay=[10, timedelta(seconds=20), 0.5]) == [True] * 3
    records = [await known(box, claim.event_id) for claim in claims]
    assert [record.last_error for record in records] == ["a", "b", "c"]
    delays = [(record.available_at - record.history[-1].at).total_seconds() for record in records]
    assert delays == [10, 20, 0.5]
    await advance(box, minutes=1)
    again = await box.claim("relay-1")
    assert await box.kill(again, reason=[f"died of {claim.event_id}" for claim in again]) == [True] * 3
    assert [(await known(box, claim.event_id)).last_error for claim in claims] == [
        f"died of {claim.event_id}" for claim in claims
    ]
    assert await check_invariants(box) == []


@pytest.mark.req("EM-11")
@pytest.mark.parametrize("how", ["retry", "kill", "operator"])
async def test_last_error_is_bounded(box: Box, how: str):
    claim = await put_and_claim(box)
    text = "é" * 5000
    if how == "retry":
        await fail(box, claim, error=text)
    elif how == "kill":
        await box.kill(claim, reason=text)
    else:
        await box.operate.kill([claim.event_id], who="ada", why=text)
    last_error = (await known(box, claim.event_id)).last_error
    assert last_error == ("killed by ada: " + text if how == "operator" else text)[:2000]
    assert len(last_error) == 2000


@pytest.mark.req("EM-11", "EM-14")
async def test_errors_in_the_history_are_cut_short_and_stay_readable(box: Box):
    claim = await put_and_claim(box)
    await fail(box, claim, error="a\tb\n" + "x" * 5000)
    await fail(box, await claim_one(box), error="x" * 199 + "é" * 10)
    first, second = (await known(box, claim.event_id)).history
    assert first.error == "a\tb\n" + "x" * 196
    assert second.error[:199] == "x" * 199
    assert len(second.error) <= 200


@pytest.mark.req("EM-11")
async def test_an_error_that_is_not_valid_unicode_can_be_stored(box: Box):
    """The text of an exception may contain lone surrogates, from file names and headers that were not UTF-8."""
    claim = await put_and_claim(box)
    assert await fail(box, claim, error="no such file: caf\udce9") == [True]
    assert str((await known(box, claim.event_id)).last_error).startswith("no such file: caf")


# --- EM-14: published_at and the history -----------------------------------------------------------------------------


@pytest.mark.req("EM-14")
async def test_published_at_is_set_exactly_while_published(box: Box):
    claim = await put_and_claim(box)
    assert (await known(box, claim.event_id)).published_at is None
    before = await store_time(box)
    await box.ack(claim)
    published = await known(box, claim.event_id)
    assert published.published_at is not None
    assert before <= published.published_at <= await store_time(box)
    assert (published.published_by, published.history) == ("relay-1", ())
    assert (
        await box.ack(claim) == await box.retry(claim) == await box.kill(claim) == await box.release(claim) == [False]
    )
    assert await box.operate.kill([claim.event_id], who="ada", why="x") == [Outcome.NOTLIVE]
    assert await box.operate.release([claim.event_id], who="ada", why="x") == [Outcome.NOTCLAIMED]
    assert await box.operate.reschedule([claim.event_id], who="ada", why="x") == [Outcome.NOTPENDING]
    assert await known(box, claim.event_id) == published
    await box.replay([claim.event_id])
    record = await known(box, claim.event_id)
    assert (record.published_at, record.published_by) == (None, None)
    assert await check_invariants(box) == []


@pytest.mark.req("EM-14")
async def test_the_history_before_a_replay_is_kept(box: Box):
    claim = await put_and_claim(box)
    await box.ack(claim)
    published_at = (await known(box, claim.event_id)).published_at
    before = await store_time(box)
    await box.replay([claim.event_id], who="ada", why="consumer lost it")
    published, replayed = (await known(box, claim.event_id)).history
    assert (published.at, published.outcome, published.by, published.number, published.error) == (
        published_at, "published", "relay-1", claim.number, "",
    )  # fmt: skip
    assert (replayed.outcome, replayed.by, replayed.number, replayed.error) == (
        "replayed", "ada", claim.number, "consumer lost it",
    )  # fmt: skip
    assert before <= replayed.at <= await store_time(box)
    await box.kill(await claim_one(box, "relay-2"), reason="422")
    await box.replay([claim.event_id], who="bob")
    outcomes = [(attempt.outcome, attempt.by) for attempt in (await known(box, claim.event_id)).history]
    assert outcomes == [
        ("published", "relay-1"), ("replayed", "ada"), ("died", "relay-2"), ("replayed", "bob"),
    ]  # fmt: skip


@pytest.mark.req("EM-14")
async def test_every_outcome_is_recorded_with_time_relay_and_reason(box: Box):
    await box.put(Event("n", event_id="one"))
    numbers = []
    before = await store_time(box)
    claim = await claim_one(box, "relay-1")
    numbers.append(claim.number)
    await fail(box, claim, error="503")
    claim = await claim_one(box, "relay-2")
    numbers.append(claim.number)
    await box.release(claim)
    claim = await claim_one(box, "relay-3")
    numbers.append(claim.number)
    await box.operate.release(["one"], who="ada", why="stuck")
    claim = await claim_one(box, "relay-4", lease=0.001)
    numbers.append(claim.number)
    assert await expire(box) == ["one"]
    claim = await claim_one(box, "relay-5")
    numbers.append(claim.number)
    await box.kill(claim, reason="422")
    await box.replay(["one"], who="ada", why="mended")
    await box.operate.kill(["one"], who="bob", why="poison")
    after = await store_time(box)
    record = await known(box, "one")
    history = [(attempt.outcome, attempt.by, attempt.error) for attempt in record.history]
    assert history == [
        ("retried", "relay-1", "503"),
        ("released", "relay-2", ""),
        ("released", "ada", "stuck"),
        ("expired", "relay-4", "lease expired while held by relay-4"),
        ("died", "relay-5", "422"),
        ("replayed", "ada", "mended"),
        ("died", "bob", "killed by bob: poison"),
    ]
    assert numbers == [1, 2, 3, 4, 5]
    assert [attempt.number for attempt in record.history] == [1, 2, 3, 4, 5, 5, 6]
    assert record.number == 6
    moments = [attempt.at for attempt in record.history]
    assert moments == sorted(moments)
    assert before <= moments[0]
    assert moments[-1] <= after
    assert await check_invariants(box) == []


@pytest.mark.req("EM-14")
async def test_the_history_keeps_the_last_eight_attempts(box: Box):
    await box.put(Event("n", event_id="one"))
    for n in range(1, 12):
        await fail(box, await claim_one(box, f"relay-{n}"), error=f"failure {n}")
    history = (await known(box, "one")).history
    assert [(attempt.number, attempt.by, attempt.error) for attempt in history] == [
        (n, f"relay-{n}", f"failure {n}") for n in (4, 5, 6, 7, 8, 9, 10, 11)
    ]
    await box.ack(await claim_one(box))
    await box.replay(["one"])
    history = (await known(box, "one")).history
    assert [attempt.outcome for attempt in history] == ["retried"] * 6 + ["published", "replayed"]
    assert await check_invariants(box) == []


@pytest.mark.req("EM-14")
async def test_every_attempt_in_the_history_says_how_long_it_took(box: Box):
    await box.put(Event("n", event_id="one"))
    claim = await claim_one(box)
    await advance(box, seconds=3)
    await fail(box, claim)
    claim = await claim_one(box)
    await advance(box, seconds=5)
    await box.release(claim)
    await claim_one(box)
    await advance(box, seconds=7)
    await box.operate.release(["one"], who="ada", why="stuck")
    await claim_one(box, lease=11)
    await advance(box, seconds=13)
    assert await box.reap() == ["one"]
    claim = await claim_one(box)
    await advance(box, seconds=17)
    await box.ack(claim)
    published = await known(box, "one")
    assert published.published_seconds is not None
    assert 17 <= published.published_seconds < 18
    await advance(box, hours=1)
    await box.replay(["one"])
    record = await known(box, "one")
    assert record.published_seconds is None
    await claim_one(box)
    await advance(box, seconds=19)
    await box.operate.kill(["one"], who="ada", why="poison")
    attempts = [(attempt.outcome, attempt.seconds) for attempt in (await known(box, "one")).history]
    assert [(outcome, seconds and int(seconds)) for outcome, seconds in attempts] == [
        ("retried", 3), ("released", 5), ("released", 7), ("expired", 13), ("published", 17), ("replayed", None),
        ("died", 19),
    ]  # fmt: skip
    assert attempts[4] == ("published", published.published_seconds)
    assert await check_invariants(box) == []


@pytest.mark.req("EM-14")
async def test_the_last_eight_attempts_keep_their_seconds(box: Box):
    await box.put(Event("n", event_id="one"))
    for seconds in range(1, 12):
        claim = await claim_one(box)
        await advance(box, seconds=seconds)
        await fail(box, claim)
    history = (await known(box, "one")).history
    assert [int(attempt.seconds or 0) for attempt in history] == [4, 5, 6, 7, 8, 9, 10, 11]
    assert len([name for name in await fields_of(box, "one") if name.startswith("began")]) == 8


@pytest.mark.req("EM-14")
async def test_a_step_without_an_attempt_has_no_seconds(box: Box):
    """A killed event that nobody held, a claim that only leads to the dead-letter target, a clock that was set back."""
    await box.put_many([Event("n", event_id=event_id) for event_id in ("held", "exhausted", "later")])
    claims = {claim.event_id: claim for claim in await box.claim("relay-1")}
    await advance(box, seconds=3)
    await fail(box, claims["held"])
    await fail(box, claims["exhausted"])
    # Earlier versions kept the claim of an event that returned to PENDING.
    await box._store.exchange([("HSET", keys.event(box.name, "held"), "claimed_at", "1")])
    await box.operate.kill(["held"], who="ada", why="poison")
    (exhausted,) = await box.claim("relay-1", attempts=1)
    assert (exhausted.event_id, exhausted.exhausted) == ("exhausted", True)
    await box.kill(exhausted)
    await box._store.exchange([("HSET", keys.event(box.name, "later"), "claimed_at", "9999999999999")])
    await fail(box, claims["later"])
    attempts = {
        record.event_id: [attempt.seconds and int(attempt.seconds) for attempt in record.history]
        async for record in box.list()
    }
    assert attempts == {"held": [3, None], "exhausted": [3, None], "later": [None]}


@pytest.mark.req("EM-14")
@pytest.mark.parametrize("damaged", ["", "1", "1:", ":5", "x:5", "1:x", "1:-5", "1:5:5", "9" * 400])
async def test_a_damaged_start_of_an_attempt_is_not_shown(box: Box, damaged: str):
    claim = await put_and_claim(box)
    await fail(box, claim, error="503")
    await box._store.exchange([("HSET", keys.event(box.name, claim.event_id), "began1", damaged)])
    record = await known(box, claim.event_id)
    assert [(attempt.error, attempt.seconds) for attempt in record.history] == [("503", None)]
    assert record.problem is None
