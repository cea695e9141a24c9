"""RO-2: replay."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from redbox import Box, Event, Outcome, Phase, State, keys
from redbox.box import inspect
from redbox.box.bulk import pace
from redbox.errors import UsageError
from redbox.store.scripts.items import MarkItem, SeenClaim
from redbox.testing import advance, check_invariants
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

# --- RO-2: replay ----------------------------------------------------------------------------------------------------


@pytest.mark.req("RO-2")
@pytest.mark.parametrize("make", [publish, make_dead])
async def test_replay_one(box: Box, make: Callable[..., Any]):
    (event_id,) = await make(box, Event("n", {"a": 1}))
    before = await store_time(box)
    report = await box.replay([event_id])
    assert (report.matched, report.replayed, report.refused, report.dry_run) == (1, 1, [], False)
    record = await known(box, event_id)
    assert (record.state, record.phase, record.attempts, record.excused) == (State.PENDING, Phase.AVAILABLE, 1, 1)
    assert (record.last_error, record.published_at, record.died_at, record.published_by) == (None, None, None, None)
    assert before <= record.available_at <= await store_time(box)
    assert record.available_at == record.history[-1].at
    claim = await claim_one(box, attempts=1)
    assert (claim.event_id, claim.attempts, claim.exhausted, claim.event.payload) == (event_id, 2, False, b'{"a":1}')
    assert (claim.excused, claim.failures) == (1, 0)  # the limit of attempts starts again
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_a_replay_can_keep_attempts_and_last_error(box: Box):
    claim = await put_and_claim(box)
    await box.release(claim)
    await fail(box, await claim_one(box), error="503")
    await box.kill(await claim_one(box), reason="422")
    await box.replay([claim.event_id], reset=False)
    record = await known(box, claim.event_id)
    assert (record.state, record.attempts, record.excused, record.last_error) == (State.PENDING, 3, 1, "422")
    assert (await claim_one(box, attempts=2)).exhausted
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2", "EM-10", "MQ-1")
async def test_attempts_keep_growing_over_replays_and_earlier_ones_do_not_count(box: Box):
    claim = await put_and_claim(box, Event("n", event_id="one"))
    await fail(box, claim, error="503")
    await box.kill(await claim_one(box), reason="422")
    await box.replay(["one"], delay=60)
    record = await known(box, "one")
    assert (record.phase, record.attempts, record.excused, record.last_error) == (Phase.SCHEDULED, 2, 2, None)
    assert (await box.stats()).phases[Phase.SCHEDULED] == 1
    await advance(box, minutes=2)
    for failures, attempts in enumerate((3, 4)):
        claim = await claim_one(box, attempts=2)
        assert (claim.attempts, claim.excused, claim.failures, claim.exhausted) == (attempts, 2, failures, False)
        await fail(box, claim, error="503")
        await box.operate.reschedule(["one"], delay=60, **ADA)
        assert (await known(box, "one")).phase is Phase.RETRY_SCHEDULED
        assert (await box.stats()).phases[Phase.RETRY_SCHEDULED] == 1
        await advance(box, minutes=2)
    assert (await claim_one(box, attempts=2)).exhausted
    await box.operate.kill(["one"], **ADA)
    await box.replay(["one"], reset=False, delay=60)
    record = await known(box, "one")
    assert (record.phase, record.attempts, record.excused) == (Phase.RETRY_SCHEDULED, 4, 2)
    assert await check_invariants(box) == []
    await advance(box, minutes=2)
    assert (await claim_one(box, attempts=2)).exhausted


@pytest.mark.req("RO-2", "OP-1", "MQ-1")
async def test_a_replayed_event_is_treated_as_new_when_it_becomes_the_head_of_its_line(box: Box):
    ids = await make_dead(box, Event("n", event_id="one", ordering_key="o"))
    await box.put(Event("n", event_id="head", ordering_key="o"))
    await box.replay(ids, delay=3600)
    await box.operate.kill(["head"], **ADA)
    assert (await known(box, "one")).phase is Phase.SCHEDULED
    assert (await box.stats()).phases[Phase.SCHEDULED] == 1
    await box.operate.reschedule(["one"], delay=60, **ADA)
    assert (await known(box, "one")).phase is Phase.SCHEDULED
    assert (await box.stats()).phases[Phase.SCHEDULED] == 1
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_a_replay_resets_the_expiries(box: Box):
    """A suspect that became DEAD is not a suspect after its replay."""
    await put_and_claim(box, Event("n", event_id="one"))
    await expire(box)
    await claim_one(box)
    await expire(box)
    assert (await claim_one(box)).suspect
    await box.operate.kill(["one"], **ADA)
    assert (await known(box, "one")).expiries == 0
    await box.replay(["one"], reset=False)
    record = await known(box, "one")
    assert (record.suspect, record.expiries) == (False, 0)
    assert not (await claim_one(box)).suspect
    assert await check_invariants(box) == []


@pytest.mark.req("RF-3", "PL-8")
async def test_a_replay_clears_the_flags_of_the_last_claim(box: Box):
    """The event was exhausted and claimed alone; neither may affect its next attempt."""
    await box.put(Event("n", event_id="a"))
    for _ in range(2):
        (claim,) = await box.claim("relay", attempts=1)
        if not claim.exhausted:
            await fail(box, claim)
    assert claim.exhausted
    await box.kill(claim)
    await box.replay(["a"])
    assert not {"alone", "exhausted"} & (await fields_of(box, "a")).keys()
    (claim,) = await box.claim("relay", attempts=1, holding=1)
    await fail(box, claim, excuse=True)
    (claim,) = await box.claim("relay", attempts=1, holding=1, lease=1)
    assert not claim.exhausted
    await advance(box, seconds=2)
    assert await box.reap() == ["a"]  # beside other claims, so it is excused
    (claim,) = await box.claim("relay", attempts=1, holding=1)
    assert not claim.exhausted


@pytest.mark.req("RO-2")
@pytest.mark.parametrize("state", ["DEAD", "PUBLISHED"])
@pytest.mark.parametrize("way", ["filter", "group", "records"])
async def test_a_replay_leaves_an_event_that_another_one_replayed_meanwhile(
    box: Box, way: str, state: str, monkeypatch: pytest.MonkeyPatch
):
    """The event was published again before the replay got to it; a second delivery was not asked for."""
    await (make_dead if state == "DEAD" else publish)(box, *named("a", "b", "c"))
    ids = await listed(box, state=state)
    await box._store.exchange([("HSET", keys.event(box.name, each), "last_error", "HTTP 500") for each in ids])
    selection: dict[str, Any] = {"state": state, "group": "http 500"} if way == "group" else {"state": state}
    if way == "records":
        selection = {"ids": [await known(box, event_id) for event_id in ids]}
    last, replay = ids[-1], box._store.replay
    report = await box.replay(**selection, dry_run=True)
    assert (report.matched, report.refused) == (3, [])

    async def publish_and_replay(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        await box.replay([last])
        await box.ack(await claim_one(box))
        return await replay(*arguments, **options)

    monkeypatch.setattr(box._store, "replay", publish_and_replay)
    report = await box.replay(**selection)
    assert (report.matched, report.replayed, report.refused_count) == (3, 2, 1)
    assert report.refused == [(last, Outcome.CHANGED, str((await known(box, last)).number))]
    assert await listed(box, state="PUBLISHED") == [last]
    assert sorted(await listed(box, state="PENDING")) == sorted(ids[:-1])
    assert (await box.replay([last])).replayed == 1  # by its id, whatever happened to it
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_an_event_without_a_claim_number_is_replayed_by_filter(box: Box):
    await make_dead(box, *named("a", "b"))
    await box._store.exchange([("HDEL", keys.event(box.name, "a"), "claim")])
    report = await box.replay(state="DEAD")
    assert (report.replayed, report.refused) == (2, [])


@pytest.mark.req("RO-2")
async def test_a_replay_can_be_delayed(box: Box):
    ids = await make_dead(box, *named("a", "b"))
    await box.replay(ids, delay=timedelta(minutes=1))
    for event_id in ids:
        record = await known(box, event_id)
        assert (record.available_at - record.history[-1].at, record.phase) == (timedelta(minutes=1), Phase.SCHEDULED)
    assert await box.claim("relay-1") == []
    await advance(box, minutes=1)
    assert len(await box.claim("relay-1")) == 2
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_replay_many_by_filter(box: Box):
    await make_dead(box, Event("user.a", event_id="1", ordering_key="k"), Event("user.b", event_id="2"), reason="503")
    await make_dead(box, Event("order.a", event_id="3"), reason="503")
    await make_dead(box, Event("user.c", event_id="4"), reason="422")
    await publish(box, Event("user.p", event_id="5"))
    report = await box.replay(event_type="user.*", error="503")
    assert (report.matched, report.replayed, report.refused) == (2, 2, [])
    assert await listed(box, state="PENDING") == ["1", "2"]
    assert await listed(box, state="DEAD") == ["3", "4"]
    report = await box.replay(state="PUBLISHED", event_type="user.*")
    assert report.replayed == 1
    assert await listed(box, state="PENDING") == ["1", "2", "5"]
    assert (await box.replay(key="k")).matched == 0
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_replay_by_time(box: Box):
    for name in "abc":
        await make_dead(box, *named(name))
        await advance(box, hours=1)
    died_at = (await known(box, "b")).died_at
    assert (await box.replay(since=died_at, until=died_at)).replayed == 1
    assert await listed(box, state="DEAD") == ["a", "c"]
    assert (await box.replay(until=died_at)).replayed == 1
    assert await listed(box, state="DEAD") == ["c"]


@pytest.mark.req("RO-2")
@pytest.mark.parametrize(("make", "state"), [(publish, "PUBLISHED"), (make_dead, "DEAD")])
async def test_replay_all_in_bounded_steps(
    box: Box, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any], state: str
):
    monkeypatch.setattr(inspect, "BATCH_COUNT", 3)
    monkeypatch.setattr(pace, "BATCH_COUNT", 3)
    ids = await make(box, *named(*(f"e{n}" for n in range(8))))
    progress: list[int] = []
    report = await box.replay(state=state, progress=progress.append)
    assert (report.matched, report.replayed) == (8, 8)
    assert progress[-1] == 8
    assert progress == sorted(progress)
    assert await listed(box, state="PENDING") == ids
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_a_dry_run_replays_nothing(box: Box):
    await make_dead(box, *named("a", "b"))
    before = await contents(box)
    report = await box.replay(state="DEAD", dry_run=True, **ADA)
    assert (report.matched, report.replayed, report.refused, report.dry_run) == (2, 0, [], True)
    assert await contents(box) == before
    await box.put(Event("n", event_id="p"))
    before = await contents(box)
    report = await box.replay(["a", "p", "unknown", "a"], dry_run=True)
    assert (report.matched, report.replayed) == (4, 0)
    assert [refusal[:2] for refusal in report.refused] == [
        ("p", Outcome.NOTTERMINAL), ("unknown", Outcome.UNKNOWN), ("a", Outcome.NOTTERMINAL),
    ]  # fmt: skip
    assert await contents(box) == before


@pytest.mark.req("RO-2")
async def test_impossible_replays_are_reported(box: Box):
    await one_in_each_state(box)
    before = await contents(box)
    report = await box.replay(["claimed", "unknown", "pending", "second"])
    assert (report.matched, report.replayed) == (4, 0)
    assert report.refused == [
        ("claimed", Outcome.NOTTERMINAL, "CLAIMED"),
        ("unknown", Outcome.UNKNOWN, ""),
        ("pending", Outcome.NOTTERMINAL, "PENDING"),
        ("second", Outcome.NOTTERMINAL, "PENDING"),
    ]
    after, log = await contents(box), keys.log(box.name)
    assert {**after, log: None} == {**before, log: None}
    report = await box.replay(["dead", "claimed", "published", "dead"])
    assert (report.replayed, [refusal[:2] for refusal in report.refused]) == (
        2, [("claimed", Outcome.NOTTERMINAL), ("dead", Outcome.NOTTERMINAL)],
    )  # fmt: skip
    assert (await box.stats()).totals["replayed"] == 2
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_replays_without_a_selection_or_with_several_are_refused(box: Box):
    wrong: list[dict[str, Any]] = [
        {}, {"ids": ["a"], "state": "DEAD"}, {"state": "PENDING"}, {"state": "CLAIMED"}, {"ids": "one-id"},
        {"ids": ["a"], "rate": 0}, {"ids": ["a"], "rate": -1}, {"state": "nonsense"}, {"ids": ["a"], "delay": -1},
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(UsageError):
            await box.replay(**arguments)
    assert (await box.replay([])).matched == 0


@pytest.mark.req("RO-2")
async def test_a_rate_spreads_a_replay_over_time(box: Box):
    ids = await make_dead(box, *named("a", "b", "c", "d"))
    started = time.monotonic()
    report = await box.replay(ids, rate=10)  # two at a time, 0.2 s apart
    took = time.monotonic() - started
    assert report.replayed == 4
    assert 0.15 < took < 2
    moments = [(await known(box, event_id)).available_at for event_id in ids]
    assert moments[0] == moments[1] < moments[2] == moments[3]


@pytest.mark.req("RO-2")
async def test_a_dry_run_does_not_wait_for_its_rate(box: Box):
    ids = await make_dead(box, *named("a", "b", "c"))
    started = time.monotonic()
    assert (await box.replay(ids, rate=2, dry_run=True)).matched == 3
    assert time.monotonic() - started < 0.4


@pytest.mark.req("RO-2")
async def test_a_replay_covers_only_events_that_were_there_at_its_start(box: Box):
    """Events that become DEAD after the start, here ten seconds in the future, are left for the next replay."""
    await make_dead(box, *named("after"))
    await advance(box, seconds=-10)
    await make_dead(box, *named("before"))
    report = await box.replay(state="DEAD")
    assert (report.matched, report.replayed) == (1, 1)
    report = await box.replay(state="DEAD", until=await store_time(box) + timedelta(hours=1))
    assert report.matched == 0
    assert await listed(box, state="DEAD") == ["after"]
    assert (await box.replay(["after"])).replayed == 1


@pytest.mark.req("RO-2")
async def test_a_replay_ends_although_relays_kill_the_events_at_once(box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inspect, "BATCH_COUNT", 2)
    monkeypatch.setattr(pace, "BATCH_COUNT", 2)
    await make_dead(box, *named(*(f"e{n}" for n in range(6))))
    await advance(box, seconds=1)
    send, killed = box._store.replay, 0

    async def replay_and_die(*arguments: Any, **options: Any) -> Any:
        nonlocal killed
        replies = await send(*arguments, **options)
        killed += len(await box.kill(await box.claim("relay-1")))
        assert killed < 100, "the replay never ends"
        return replies

    monkeypatch.setattr(box._store, "replay", replay_and_die)
    assert (await box.replay(state="DEAD")).replayed == 6
    assert killed == 6


@pytest.mark.req("RO-2")
async def test_an_event_that_dies_again_in_the_millisecond_of_the_start_is_not_replayed_again(
    box: Box, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(inspect, "BATCH_COUNT", 2)
    monkeypatch.setattr(pace, "BATCH_COUNT", 2)
    await make_dead(box, *named(*(f"e{n}" for n in range(6))))
    await advance(box, seconds=1)
    send, start, killed = box._store.replay, await box._store.time(), 0

    async def replay_and_die(*arguments: Any, **options: Any) -> Any:
        nonlocal killed
        replies = await send(*arguments, **options)
        claims = await box.claim("relay-1")
        killed += len(await box.kill(claims))
        assert killed < 100, "the replay never ends"
        await box._store.exchange([("ZADD", keys.dead(box.name), start, claim.event_id) for claim in claims])
        return replies

    monkeypatch.setattr(box._store, "replay", replay_and_die)
    assert (await box.replay(state="DEAD")).replayed == 6
    assert killed == 6


@pytest.mark.req("RO-2")
async def test_an_event_that_died_just_before_a_replay_is_replayed(box: Box):
    for turn in range(5):
        await make_dead(box, *named(f"e{turn}"))
        assert (await box.replay(state="DEAD", delay=3600)).replayed == 1


@pytest.mark.req("RO-2")
async def test_a_replay_respects_the_line(box: Box):
    await make_dead(box, *named("old", ordering_key="o"))
    await box.put_many(named("head", "next", ordering_key="o"))
    await box.replay(["old"])
    seen = []
    while claims := await box.claim("relay-1"):
        seen += [claim.event_id for claim in claims]
        await box.ack(claims)
    assert seen == ["head", "next", "old"]


# --- RO-3: by hand ---------------------------------------------------------------------------------------------------


@pytest.mark.req("RO-2")
async def test_a_replay_can_be_fenced_by_claim_number(box: Box):
    await publish(box, *named("same", "changed"))
    seen = {event_id: (await known(box, event_id)).number for event_id in ("same", "changed")}
    await box.replay(["changed"])
    await box.ack(await claim_one(box))
    options: Any = {"reset": True, "available": "", "force": False, "dry": False, "who": "", "why": ""}
    items = [SeenClaim("changed", seen["changed"]), SeenClaim("same", seen["same"]), SeenClaim("unknown", 1)]
    now = str((await known(box, "changed")).number)
    replies = await box._store.replay(items, **options)
    assert replies == [(Outcome.CHANGED, now), (Outcome.OK, ""), (Outcome.UNKNOWN, "")]
    assert (await known(box, "changed")).state == "PUBLISHED"
    assert (await known(box, "same")).state == "PENDING"
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2", "RF-3")
@pytest.mark.parametrize("field", ["superseded_by", "archived"])
async def test_a_replay_removes_the_marks(box: Box, field: Any):
    await make_dead(box, *named("dead"))
    assert await box._store.mark_event(field, [MarkItem("dead", (await known(box, "dead")).number, "x")]) == [b"OK"]
    assert field in await fields_of(box, "dead")
    await box.replay(["dead"], force=True)
    assert field not in await fields_of(box, "dead")
    await box.kill(await claim_one(box))
    assert field not in await fields_of(box, "dead")


@pytest.mark.req("RO-2", "RF-3")
async def test_a_superseded_event_is_replayed_only_by_force(box: Box):
    await make_dead(box, *named("old", "other"))
    await box._store.mark_event("superseded_by", [MarkItem("old", (await known(box, "old")).number, "new")])
    before = await contents(box)
    for choice in ({"ids": ["old"]}, {"state": "DEAD", "dry_run": True}):
        report = await box.replay(**choice)
        assert (report.replayed, report.refused) == (0, [("old", Outcome.SUPERSEDED, "new")])
    assert await contents(box) == before
    assert (await box.replay(state="DEAD")).replayed == 1
    assert (await box.replay(["old"], force=True)).replayed == 1
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3", "SP-5", "SP-7")
async def test_superseding_takes_a_claim_number_so_that_earlier_copies_are_fenced(box: Box):
    await make_dead(box, *named("old"))
    seen = (await known(box, "old")).number
    for _ in range(2):  # the reply to the first may be lost
        assert await box._store.mark_event("superseded_by", [MarkItem("old", seen, "new")]) == [b"OK"]
        assert (await known(box, "old")).number == seen + 1
    assert await box._store.drop([SeenClaim("old", seen)], who="", why="", heads=False) == [b"CHANGED"]
    assert await box._store.mark_event("superseded_by", [MarkItem("old", seen, "newer")]) == [b"CHANGED"]
    assert (await put_and_claim(box, Event("n"))).number == seen + 2
    assert await check_invariants(box) == []
