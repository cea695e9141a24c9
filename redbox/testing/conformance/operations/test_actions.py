"""RO-3: actions of an operator on events and on the box."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redbox import Box, BoxPaused, Event, Outcome, Phase, State, keys
from redbox.errors import UsageError
from redbox.store.scripts.items import MarkItem, SeenClaim
from redbox.testing import check_invariants
from redbox.testing.conformance.operations.steps import ADA, listed, named, one_in_each_state
from redbox.testing.conformance.steps import (
    claim_one,
    contents,
    expire,
    fail,
    fields_of,
    known,
    make_dead,
    publish,
    put_and_claim,
    store_time,
)


@pytest.mark.req("RO-3")
async def test_reschedule(box: Box):
    await box.put_many([*named("a"), *named("b", delay=3600)])
    assert await box.operate.reschedule(["a"], delay=60, **ADA) == [Outcome.OK]
    (entry,) = await box.operate.log()
    record = await known(box, "a")
    assert timedelta(0) <= entry.at - (record.available_at - timedelta(seconds=60)) < timedelta(milliseconds=50)
    assert await box.claim("relay-1") == []
    assert await box.operate.reschedule(["b"], **ADA) == [Outcome.OK]
    assert (await claim_one(box)).event_id == "b"
    moment = await store_time(box) + timedelta(minutes=5)
    assert await box.operate.reschedule(["a"], available_at=moment, **ADA) == [Outcome.OK]
    assert (await known(box, "a")).available_at == moment
    before = await store_time(box)
    assert await box.operate.reschedule(["a"], available_at=datetime(2001, 1, 1, tzinfo=UTC), **ADA) == [Outcome.OK]
    assert before <= (await known(box, "a")).available_at <= await store_time(box)
    assert (await claim_one(box)).event_id == "a"
    with pytest.raises(UsageError, match="not both"):
        await box.operate.reschedule(["a"], delay=1, available_at=moment, **ADA)
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_reschedule_in_every_index_of_pending_events(box: Box):
    """After a failure, as a suspect, and behind the head of a line."""
    await box.retry(await put_and_claim(box, Event("n", event_id="retried")), error="503", delay=60)
    await put_and_claim(box, Event("n", event_id="suspect"))
    await box._store.exchange([("HSET", keys.event(box.name, "suspect"), "expiries", "1"),
                               ("ZADD", keys.claimed(box.name), 1, "suspect")])  # fmt: skip
    await box.reap()
    await box.put_many(named("head", "waiting", ordering_key="o"))
    ids = ["retried", "suspect", "waiting", "head"]
    assert await box.operate.reschedule(ids, delay=600, **ADA) == [Outcome.OK] * 4
    assert await check_invariants(box) == []
    for event_id in ids:
        record = await known(box, event_id)
        assert record.available_at > await store_time(box) + timedelta(seconds=500)
    stats = await box.stats()
    assert (stats.phases[Phase.RETRY_SCHEDULED], stats.phases[Phase.SCHEDULED], stats.waiting) == (2, 2, 1)
    assert await box.operate.reschedule(ids, **ADA) == [Outcome.OK] * 4
    assert (await box.stats()).phases[Phase.AVAILABLE] == 4
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_only_pending_events_are_rescheduled(box: Box):
    await one_in_each_state(box)
    before = await contents(box)
    outcomes = await box.operate.reschedule(["claimed", "published", "dead", "unknown"], delay=60, **ADA)
    assert outcomes == [Outcome.NOTPENDING, Outcome.NOTPENDING, Outcome.NOTPENDING, Outcome.UNKNOWN]
    after, log = await contents(box), keys.log(box.name)
    assert {**after, log: None} == {**before, log: None}


@pytest.mark.req("RO-3", "PL-6")
async def test_kill(box: Box):
    await one_in_each_state(box)
    outcomes = await box.operate.kill(
        ["pending", "claimed", "second", "later", "published", "dead", "unknown", "pending"], who="ada", why="poison"
    )
    assert outcomes == [Outcome.OK] * 4 + [Outcome.NOTLIVE, Outcome.NOTLIVE, Outcome.UNKNOWN, Outcome.NOTLIVE]
    before = await store_time(box)
    for event_id, attempts in (("pending", 0), ("claimed", 1), ("second", 0), ("later", 0)):
        record = await known(box, event_id)
        assert (record.state, record.attempts, record.last_error) == (State.DEAD, attempts, "killed by ada: poison")
        assert record.died_at is not None
        assert record.died_at <= before
        assert [(attempt.outcome, attempt.by, attempt.number) for attempt in record.history] == [
            ("died", "ada", record.number)
        ]
    assert (await box.stats()).totals["dead"] == 5
    assert [claim.event_id for claim in await box.claim("relay-1")] == ["first"]
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3", "PL-6")
@pytest.mark.parametrize("action", ["kill", "release"])
async def test_a_relay_is_fenced_after_an_operator_took_its_claim(box: Box, action: str):
    claim = await put_and_claim(box, Event("n", event_id="one"))
    assert await getattr(box.operate, action)(["one"], **ADA) == [Outcome.OK]
    before = await contents(box)
    for settle in (box.ack, box.retry, box.kill, box.release, box.renew):
        assert await settle(claim) == [False]
    after, totals = await contents(box), keys.counters(box.name)
    assert {**after, totals: None} == {**before, totals: None}
    if action == "kill":
        assert (await known(box, "one")).number > claim.number
        await box.replay(["one"])
    again = await claim_one(box)
    assert again.number > claim.number
    assert await box.ack(claim) == [False]
    assert await box.ack(again) == [True]
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_every_kill_has_its_own_claim_number(box: Box):
    await box.put_many(named("a", "b"))
    await box.operate.kill(["a", "b"], **ADA)
    assert [(await known(box, event_id)).number for event_id in "ab"] == [1, 2]
    await box.put(Event("n"))
    assert (await claim_one(box)).number == 3
    assert (await box.stats()).totals["claimed"] == 3  # the last claim number


@pytest.mark.req("RO-3")
async def test_release(box: Box):
    await one_in_each_state(box)
    outcomes = await box.operate.release(
        ["claimed", "pending", "published", "dead", "unknown", "claimed"], who="ada", why="stuck"
    )
    assert outcomes == [Outcome.OK, Outcome.NOTCLAIMED, Outcome.NOTCLAIMED, Outcome.NOTCLAIMED, Outcome.UNKNOWN,
                        Outcome.NOTCLAIMED]  # fmt: skip
    record = await known(box, "claimed")
    assert (record.state, record.attempts, record.excused, record.claimed_by) == (State.PENDING, 1, 1, None)
    assert record.available_at == record.created_at
    attempt = record.history[-1]
    assert (attempt.outcome, attempt.by, attempt.error) == ("released", "ada", "stuck")
    assert (await box.stats()).totals["released"] == 1
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_release_with_a_delay(box: Box):
    claim = await put_and_claim(box)
    assert await box.operate.release([claim.event_id], delay=60, **ADA) == [Outcome.OK]
    record = await known(box, claim.event_id)
    assert record.available_at - record.history[-1].at == timedelta(seconds=60)
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_drop(box: Box):
    await one_in_each_state(box)
    outcomes = await box.operate.drop(["dead", "published", "claimed", "pending", "unknown", "dead"], **ADA)
    assert outcomes == [Outcome.OK, Outcome.OK, Outcome.NOTTERMINAL, Outcome.NOTTERMINAL, Outcome.UNKNOWN,
                        Outcome.UNKNOWN]  # fmt: skip
    assert await box.get("dead") is None
    assert await box.get("published") is None
    assert not [key for key in await contents(box) if key.endswith((":dead", ":published"))]
    totals = (await box.stats()).totals
    assert (totals["dropped"], totals.get("swept", 0)) == (2, 0)
    assert (await box.put(Event("new", event_id="dead"))).created
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_a_drop_can_be_fenced_by_claim_number(box: Box):
    """A job that copies events and then removes them must not remove events that were replayed meanwhile."""
    await make_dead(box, *named("same", "changed"))
    seen = {event_id: (await known(box, event_id)).number for event_id in ("same", "changed")}
    await box.replay(["changed"])
    await box.kill(await claim_one(box))
    before = await contents(box)
    items = [SeenClaim("changed", seen["changed"]), SeenClaim("same", seen["same"] + 100), SeenClaim("unknown", 1)]
    assert await box._store.drop(items, who="", why="") == [b"CHANGED", b"CHANGED", b"UNKNOWN"]
    assert await contents(box) == before
    assert await box._store.drop([SeenClaim("same", seen["same"])], who="", why="") == [b"OK"]
    assert await listed(box) == ["changed"]
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_a_drop_can_leave_events_that_block_their_line(box: Box):
    await box.operate.configure(dead_head="block", **ADA)
    await make_dead(box, Event("n", event_id="head", ordering_key="k"))
    await make_dead(box, Event("n", event_id="free"))
    await box.put(Event("n", event_id="behind", ordering_key="k"))
    items = [SeenClaim("head"), SeenClaim("free")]
    assert await box._store.drop(items, who="", why="", heads=False) == [b"BLOCKING", b"OK"]
    assert sorted(await listed(box)) == ["behind", "head"]
    assert await box._store.drop([SeenClaim("head")], who="", why="") == [b"OK"]
    assert (await claim_one(box)).event_id == "behind"
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
async def test_a_box_can_be_set_to_sweep_only_archived_events(box: Box):
    await publish(box, *named("archived", "not"))
    number = (await known(box, "archived")).number
    assert await box._store.mark_event("archived", [MarkItem("archived", number, "run-1")]) == [b"OK"]
    await box.operate.configure(sweep="archived", **ADA)
    assert (await box.sweep(keep_published=0)).published == 1
    assert await listed(box) == ["not"]
    await box.operate.configure(sweep="all", **ADA)
    assert (await box.sweep(keep_published=0)).published == 1
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3", "RF-3")
async def test_a_mark_is_for_terminal_events_and_fenced_by_claim_number(box: Box):
    await one_in_each_state(box)
    await box.put(Event("n", event_id="again"))
    await box.operate.kill(["again"], **ADA)
    seen = {name: (await known(box, name)).number for name in ("published", "dead", "claimed", "pending", "again")}
    await box.replay(["again"])
    before = await contents(box)
    items = [MarkItem(name, seen[name], "x") for name in ("again", "claimed", "pending")]
    assert await box._store.mark_event("superseded_by", [*items, MarkItem("unknown", 1, "x")]) == [
        b"NOTTERMINAL"
    ] * 3 + [b"UNKNOWN"]
    await box.operate.kill(["again"], **ADA)
    between = await contents(box)
    wrong = [MarkItem("again", seen["again"], "x"), MarkItem("dead", seen["dead"] + 1, "x")]
    assert await box._store.mark_event("archived", wrong) == [b"CHANGED"] * 2
    assert await contents(box) == between != before
    marks = [
        MarkItem("dead", seen["dead"], "new-1"),
        MarkItem("dead", seen["dead"], "new-2"),
        MarkItem("published", seen["published"], "new-3"),
    ]
    assert await box._store.mark_event("archived", [MarkItem("dead", seen["dead"], "here")]) == [b"OK"]
    assert await box._store.mark_event("superseded_by", marks) == [b"OK"] * 3
    assert "archived" not in await fields_of(box, "dead")
    assert await box._store.mark_event("archived", [MarkItem("dead", seen["dead"], "there")]) == [b"CHANGED"]
    assert await box._store.mark_event("archived", [MarkItem("dead", (await known(box, "dead")).number, "there")]) == [
        b"OK"
    ]
    fields = await fields_of(box, "dead")
    assert (fields["superseded_by"], fields["archived"], fields["state"]) == ("new-2", "there", "DEAD")
    assert [(await known(box, name)).superseded_by for name in ("dead", "published", "again")] == [
        "new-2", "new-3", None,
    ]  # fmt: skip
    unmarked = {**await contents(box)}
    for name in ("dead", "published"):
        unmarked[keys.event(box.name, name)] = between[keys.event(box.name, name)]
    unmarked[keys.counters(box.name)] = between[keys.counters(box.name)]
    assert unmarked == between
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
@pytest.mark.parametrize("action", ["kill", "release", "reschedule", "drop"])
async def test_a_dry_run_reports_the_outcomes_and_changes_nothing(box: Box, action: str):
    await one_in_each_state(box)
    ids = ["pending", "claimed", "second", "later", "published", "dead", "unknown"]
    ids += ids
    before, act = await contents(box), getattr(box.operate, action)
    expected = await act(ids, **ADA, dry_run=True)
    assert await contents(box) == before
    assert await act(ids, **ADA) == expected


@pytest.mark.req("MQ-5", "RO-3")
async def test_a_setting_is_reset_to_its_default(box: Box):
    await box.operate.configure(**ADA, keep_dead=60, max_pending=7)
    settings = await box.operate.configure(**ADA, reset=["keep_dead"], max_pending=8)
    assert (settings.keep_dead, settings.max_pending) == (None, 8)
    assert "keep_dead" not in await box._store.meta()
    wrong: list[dict[str, Any]] = [{"reset": ["keep_daed"]}, {"reset": ["max_pending"], "max_pending": 1}]
    for changes in wrong:
        with pytest.raises(UsageError):
            await box.operate.configure(**ADA, **changes)


@pytest.mark.req("RO-3")
async def test_pause_stops_claims_and_nothing_else(box: Box):
    claims = [await put_and_claim(box) for _ in range(5)]
    await box.operate.pause(who="ada", why="target is down")
    before = await contents(box)
    with pytest.raises(BoxPaused, match="resume"):
        await box.claim("relay-1")
    assert await contents(box) == before
    assert (await box.put(Event("n"))).created
    assert await box.renew(claims[0]) == [True]
    assert await box.ack(claims[0]) == await fail(box, claims[1]) == await box.kill(claims[2]) == [True]
    assert await box.release(claims[3]) == [True]
    assert await expire(box) == [claims[4].event_id]
    assert (await box.replay([claims[0].event_id])).replayed == 1
    assert (await box.stats()).paused
    await box.operate.pause(who="ada", why="twice is once")
    await box.operate.resume(who="ada", why="up again")
    assert not (await box.stats()).paused
    assert len(await box.claim("relay-1")) == 5
    await box.operate.resume(who="ada", why="twice is once")
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_a_box_can_be_paused_before_its_first_event(box: Box):
    await box.operate.pause(who="ada", why="not yet")
    assert await box.exists()
    assert (await box.put(Event("n"))).created
    with pytest.raises(BoxPaused):
        await box.claim("relay-1")
