"""MQ: phases, unique keys, and what is kept for how long."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any, Literal

import pytest

from redbox import BatchRefused, Box, BoxFull, Conflict, Event, Outcome, Phase, Settings, State, keys
from redbox.box import sweep as sweeping
from redbox.errors import InvalidSetting, UsageError
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import (
    bury,
    claim_one,
    contents,
    expire,
    fail,
    known,
    publish,
    put_and_claim,
)

ALL_LIVE, UNTOUCHED = "ALL_LIVE", "UNTOUCHED"
Mode = Literal["raise", "skip", "all_or_nothing"]


def one(event_id: str, scope: str = ALL_LIVE, **fields: Any) -> Event:
    """An event with the unique key k."""
    return Event("n", event_id=event_id, unique_key="k", unique_scope=scope, **fields)


async def configure(box: Box, **settings: Any) -> Settings:
    return await box.operate.configure(who="ada", why="a test", **settings)


# --- MQ-1: phases ------------------------------------------------------------------------------------------------


def phases(**counts: int) -> dict[Phase, int]:
    return {phase: counts.get(phase.value.lower(), 0) for phase in Phase}


@pytest.mark.req("MQ-1", "RO-1")
async def test_an_empty_box_counts_nothing(box: Box):
    stats = await box.stats()
    assert (stats.box, stats.phases, stats.totals, stats.layout) == (box.name, phases(), {}, 0)
    assert (stats.waiting, stats.suspects, stats.overdue, stats.blocked, stats.lost, stats.paused) == (
        0, 0, 0, 0, 0, False,
    )  # fmt: skip
    assert {stats.oldest_available, stats.next_due, stats.oldest_waiting, stats.first_lease_ends, stats.oldest_dead,
            stats.oldest_completed} == {None}  # fmt: skip
    assert stats.settings == Settings()


@pytest.mark.req("MQ-1")
async def test_the_phases_of_one_event(box: Box):
    async def phase() -> Phase:
        record = await known(box, "one")
        assert {name: count for name, count in (await box.stats()).phases.items() if count} == {record.phase: 1}
        return record.phase

    await box.put(Event("n", event_id="one", delay=60))
    assert await phase() == Phase.SCHEDULED
    await advance(box, seconds=61)
    assert await phase() == Phase.AVAILABLE
    claim = await claim_one(box)
    assert await phase() == Phase.IN_FLIGHT
    await box.retry(claim, error="503", delay=60)
    assert await phase() == Phase.RETRY_SCHEDULED
    await advance(box, seconds=61)
    assert await phase() == Phase.AVAILABLE
    await claim_one(box, lease=1)
    await advance(box, seconds=2)
    assert await phase() == Phase.IN_FLIGHT
    await box.reap(delay=60)
    assert await phase() == Phase.RETRY_SCHEDULED
    await advance(box, seconds=61)
    await box.release(await claim_one(box), delay=60)
    assert await phase() == Phase.RETRY_SCHEDULED
    await box.operate.reschedule(["one"], who="ada", why="now")
    assert await phase() == Phase.AVAILABLE
    await box.kill(await claim_one(box))
    assert await phase() == Phase.DEAD
    await box.replay(["one"], delay=60)
    assert await phase() == Phase.SCHEDULED
    await box.operate.reschedule(["one"], who="ada", why="now")
    await box.ack(await claim_one(box))
    assert await phase() == Phase.COMPLETED
    await box.replay(["one"], delay=60, reset=False)
    assert await phase() == Phase.RETRY_SCHEDULED
    await box.operate.kill(["one"], who="ada", why="enough")
    assert await phase() == Phase.DEAD
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-1", "RO-1")
async def test_every_phase_at_once_with_those_that_wait_in_their_phase(box: Box):
    await publish(box, *(Event("completed") for _ in range(6)))
    await bury(box, *(Event("dead") for _ in range(5)))
    await box.put_many([Event("failed") for _ in range(7)])
    failed = await box.claim("relay-1")
    await fail(box, failed, error="503", delay=[60, 60, 60, 60, 0, 0, 0])
    await box.put_many([Event("scheduled", delay=60) for _ in range(8)])
    await box.put_many([Event("line", ordering_key="o", delay=n) for n in (0, 60, 0)])
    await box.put_many([Event("held", ordering_key="p", delay=n) for n in (60, 0)])
    assert (await box.stats()).phases == phases(
        completed=6, dead=5, retry_scheduled=4, available=3 + 2 + 1, scheduled=8 + 1 + 1
    )  # fmt: skip
    await box.claim("relay-1", limit=2, lease=100)
    await box.claim("relay-2", limit=1, lease=0.001)
    await advance(box, seconds=1)
    stats = await box.stats()
    assert stats.phases == phases(
        completed=6, dead=5, retry_scheduled=4, available=1 + 2, scheduled=9 + 1, in_flight=3
    )  # fmt: skip
    assert (stats.waiting, stats.overdue, stats.suspects, stats.blocked) == (3, 1, 0, 0)
    await advance(box, minutes=2)
    assert (await box.stats()).phases == phases(completed=6, dead=5, available=1 + 4 + 9 + 3, in_flight=3)
    assert (await box.stats()).overdue == 3
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-1", "RO-1")
async def test_the_phases_of_the_stats_add_up_to_those_of_the_records(box: Box):
    """Also of those that wait behind the head of their line, whatever they have been through."""
    await publish(box, Event("n"), Event("n", ordering_key="p"))
    dead = await bury(box, Event("n", ordering_key="o"), Event("n"))
    await box.put_many([Event("n", ordering_key="o", delay=delay) for delay in (0, 0, 60, 0)])
    await box.put_many([Event("n", ordering_key="p", delay=delay) for delay in (60, 60, 0)])
    await box.put_many([Event("n"), Event("n", delay=60)])
    await box.replay(dead[:1], reset=False, delay=60)  # was tried, and waits
    await box.put(Event("n"))
    await box.claim("relay-1", limit=1, lease=600)

    async def agree() -> None:
        records = [record async for record in box.list()]
        stats = await box.stats()
        counted = Counter(record.phase for record in records)
        assert stats.phases == {phase: counted[phase] for phase in Phase}
        assert sum(stats.phases.values()) == len(records) == 14
        waiting = Counter(record.phase for record in records if record.waiting)
        assert (stats.waiting, stats.waiting_due) == (waiting.total(), waiting[Phase.AVAILABLE])
        assert stats.waiting > 0
        assert await check_invariants(box) == []

    await agree()
    assert (await known(box, dead[0])).phase is Phase.RETRY_SCHEDULED
    assert (await known(box, dead[0])).waiting
    await advance(box, minutes=2)
    await agree()
    for _ in range(4):
        await box.ack(await box.claim("relay-2", limit=2))
        await agree()


@pytest.mark.req("MQ-1", "RO-1")
async def test_ages(box: Box):
    (completed,) = await publish(box, Event("completed"))
    (dead,) = await bury(box, Event("dead"))
    await advance(box, hours=1)
    await publish(box, Event("completed"))
    await bury(box, Event("dead"))
    claim = await put_and_claim(box, Event("claimed"), lease=300)
    await put_and_claim(box, Event("claimed"), lease=400)
    first = (await box.put(Event("line", ordering_key="o"))).event_id
    second = (await box.put(Event("line", ordering_key="o"))).event_id
    await advance(box, seconds=10)
    await box.put_many([Event("line", ordering_key="o"), Event("later", delay=90)])
    soon = (await box.put(Event("soon", delay=60))).event_id
    stats = await box.stats()

    def ago(moment: Any) -> timedelta:
        return stats.at - moment

    assert stats.oldest_completed == ago((await known(box, completed)).published_at)
    assert stats.oldest_dead == ago((await known(box, dead)).died_at)
    assert stats.oldest_available == ago((await known(box, first)).available_at)
    assert stats.oldest_waiting == ago((await known(box, second)).available_at)
    assert stats.first_lease_ends == -ago((await known(box, claim.event_id)).lease_until)
    assert stats.next_due == -ago((await known(box, soon)).available_at)
    assert timedelta(hours=1) < (stats.oldest_dead or timedelta(0)) < timedelta(hours=1, minutes=1)
    assert timedelta(seconds=10) <= (stats.oldest_available or timedelta(0)) < timedelta(seconds=40)
    assert timedelta(seconds=30) < (stats.next_due or timedelta(0)) <= timedelta(seconds=60)
    assert timedelta(seconds=260) < (stats.first_lease_ends or timedelta(0)) <= timedelta(seconds=290)


async def make_suspect(box: Box, event_id: str = "suspect", delay: float = 0) -> None:
    """An event whose lease ended twice in a row, in a box where nothing else is available."""
    await put_and_claim(box, Event("n", event_id=event_id))
    await expire(box)
    await claim_one(box)
    await expire(box, delay=delay)
    assert (await known(box, event_id)).suspect


@pytest.mark.req("MQ-1")
async def test_suspects_are_counted_in_their_phase_and_apart(box: Box):
    await make_suspect(box)
    await advance(box, hours=1)
    await box.put(Event("n"))
    stats = await box.stats()
    assert (stats.phases, stats.suspects) == (phases(available=2), 1)
    assert (stats.oldest_available or timedelta(0)) >= timedelta(hours=1)
    assert [record.event_id async for record in box.list(state="PENDING")][-1] == "suspect"
    await box.operate.reschedule(["suspect"], delay=60, who="ada", why="later")
    stats = await box.stats()
    assert (stats.phases, stats.suspects) == (phases(available=1, retry_scheduled=1), 1)
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-1", "RO-1")
async def test_a_suspect_that_is_due_later_is_the_next_due(box: Box):
    """Whoever sleeps until the next event is due must not sleep past a suspect."""
    await make_suspect(box, delay=60)
    stats = await box.stats()
    assert stats.next_due == (await known(box, "suspect")).available_at - stats.at
    await box.put(Event("n", delay=30))
    assert timedelta(0) < ((await box.stats()).next_due or timedelta(0)) <= timedelta(seconds=30)


@pytest.mark.req("MQ-1", "RO-1")
async def test_lifetime_totals(box: Box):
    await box.put_many([Event("n", event_id=f"e{n}") for n in range(8)])
    await box.put(Event("n", event_id="e0"))
    claims = await box.claim("relay-1")
    await box.ack(claims[:3])
    await box.retry(claims[3], error="503", delay=60)
    await box.release(claims[4], delay=60)
    await box.kill(claims[5:7])
    await box.ack(claims[:2])
    await expire(box)
    await box.replay(["e0", "e5"])
    await box.operate.kill(["e0"], who="ada", why="x")
    await box.operate.drop(["e0"], who="ada", why="x")
    await box.sweep(keep_published=0)
    assert (await box.stats()).totals == {
        "put": 8, "repeated": 1, "claimed": 9, "published": 3, "retried": 1, "released": 1, "dead": 3, "fenced": 2,
        "expired": 1, "replayed": 2, "swept": 2, "dropped": 1,
    }  # fmt: skip
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-1")
async def test_paused_and_blocked_are_shown(box: Box):
    await configure(box, dead_head="block")
    await box.put_many([Event("n", ordering_key="o"), Event("n", ordering_key="o")])
    await box.kill(await claim_one(box))
    await box.operate.pause(who="ada", why="x")
    stats = await box.stats()
    assert (stats.blocked, stats.waiting, stats.paused, stats.layout) == (1, 1, True, 1)
    assert stats.settings == Settings(dead_head="block")
    await box.operate.resume(who="ada", why="x")
    assert not (await box.stats()).paused


# --- MQ-2, MQ-3: the two scopes ----------------------------------------------------------------------------------


async def bring_holder_to(box: Box, stage: str) -> None:
    """An event "holder" with the unique key k, at a stage of its life."""
    line: dict[str, Any] = {"ordering_key": "o"} if stage == "waiting" else {}
    if line:
        await box.put(Event("head", **line))
    await box.put(one("holder", **line, delay=60 if stage == "scheduled" else None))
    if stage in ("scheduled", "available", "waiting"):
        return
    claim = await claim_one(box, lease=5)
    if stage in ("retry scheduled", "retry due", "in flight again"):
        await box.retry(claim, error="503", delay=30)
    if stage in ("retry due", "in flight again"):
        await advance(box, seconds=31)
    if stage == "in flight again":
        await claim_one(box)
    if stage == "released":
        await box.release(claim)
    if stage == "released for later":
        await box.release(claim, delay=30)
    if stage in ("overdue", "expired", "expired for later"):
        await advance(box, seconds=6)
    if stage in ("expired", "expired for later"):
        await box.reap(delay=30 if "later" in stage else 0)
    if stage == "dead":
        await box.kill(claim)
    if stage in ("published", "replayed", "replayed for later"):
        await box.ack(claim)
    if stage in ("replayed", "replayed for later"):
        await box.replay(["holder"], delay=30 if "later" in stage else None)
    if stage == "replayed with its attempts for later":
        await box.ack(claim)
        await box.replay(["holder"], delay=30, reset=False)
    if stage == "deleted":
        await box.ack(claim, delete=True)


#: stage of the holder, whether it holds the key against ALL_LIVE, and against UNTOUCHED
TRUTH = [
    ("scheduled", True, True),
    ("available", True, True),
    ("waiting", True, True),
    ("in flight", True, False),
    ("overdue", True, False),
    ("retry scheduled", True, False),
    ("retry due", True, True),
    ("in flight again", True, False),
    ("released", True, True),
    ("released for later", True, False),
    ("expired", True, True),
    ("expired for later", True, False),
    ("dead", False, False),
    ("published", False, False),
    ("replayed", True, True),
    ("replayed for later", True, True),
    ("replayed with its attempts for later", True, False),
    ("deleted", False, False),
]


@pytest.mark.req("MQ-2", "MQ-3", "MQ-4")
@pytest.mark.parametrize(("stage", "all_live", "untouched"), TRUTH)
async def test_what_holds_a_key_against_which_scope(box: Box, stage: str, all_live: bool, untouched: bool):
    await bring_holder_to(box, stage)
    before = await contents(box)
    for scope, refused in ((ALL_LIVE, all_live), (UNTOUCHED, untouched)):
        if refused:
            with pytest.raises(Conflict) as conflict:
                await box.put(one("asker", scope))
            assert (conflict.value.event_id, conflict.value.holder) == ("asker", "holder")
            assert "'k'" in str(conflict.value)
            assert await box.get("asker") is None
    after, totals = await contents(box), keys.counters(box.name)
    assert {**after, totals: None} == {**before, totals: None}
    assert (await box.put(Event("n", unique_key="another"))).created
    if not untouched:
        assert (await box.put(one("asker", UNTOUCHED))).created
        assert (await known(box, "asker")).event.unique_scope == UNTOUCHED
    if not all_live:
        await box.operate.kill(["asker"], who="ada", why="out of the way")
        assert (await box.put(one("second-asker", ALL_LIVE))).created
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-2", "MQ-3")
async def test_the_scope_of_the_one_who_asks_decides(box: Box):
    await put_and_claim(box, one("holder", UNTOUCHED))
    with pytest.raises(Conflict):
        await box.put(one("wide"))
    assert (await box.put(one("narrow", UNTOUCHED))).created
    with pytest.raises(Conflict) as conflict:
        await box.put(one("another", UNTOUCHED))
    assert conflict.value.holder == "narrow"
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-3")
@pytest.mark.parametrize("fate", ["published", "dead", "deleted", "in flight", "retry scheduled"])
async def test_a_retry_delay_that_has_passed_is_back_in_scope_whatever_came_in_between(box: Box, fate: str):
    first = await put_and_claim(box, one("first", UNTOUCHED))
    await box.retry(first, error="503", delay=60)
    assert (await box.put(one("second", UNTOUCHED))).created
    second = await claim_one(box, lease=3600)
    if fate == "retry scheduled":
        await box.retry(second, error="503", delay=3600)
    elif fate == "dead":
        await box.kill(second)
    elif fate != "in flight":
        await box.ack(second, delete=fate == "deleted")
    await advance(box, seconds=61)
    with pytest.raises(Conflict) as conflict:
        await box.put(one("third", UNTOUCHED))
    assert conflict.value.holder == "first"
    await box.ack(await claim_one(box))
    assert (await box.put(one("third", UNTOUCHED))).created
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-3")
async def test_the_end_of_a_retry_delay_follows_an_operator(box: Box):
    await box.retry(await put_and_claim(box, one("first", UNTOUCHED)), error="503", delay=60)
    await box.operate.reschedule(["first"], who="ada", why="now")
    with pytest.raises(Conflict):
        await box.put(one("second", UNTOUCHED))
    await box.operate.reschedule(["first"], delay=60, who="ada", why="later")
    assert (await box.put(one("second", UNTOUCHED))).created
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-3")
async def test_a_scheduled_event_holds_its_key_however_it_is_rescheduled(box: Box):
    await box.put(one("first", UNTOUCHED))
    await box.operate.reschedule(["first"], delay=3600, who="ada", why="later")
    with pytest.raises(Conflict):
        await box.put(one("second", UNTOUCHED))
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-2")
async def test_a_key_is_free_once_every_holder_is_gone(box: Box):
    """Two events share a key after an UNTOUCHED put: ALL_LIVE waits for both."""
    first = await put_and_claim(box, one("first", UNTOUCHED))
    second = await put_and_claim(box, one("second", UNTOUCHED))
    for claim in (first, second):
        with pytest.raises(Conflict) as conflict:
            await box.put(one("third"))
        assert conflict.value.holder == claim.event_id
        await box.ack(claim)
    assert (await box.put(one("third"))).created
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-2", "MQ-4")
async def test_operators_free_keys_too(box: Box):
    await box.put(one("first"))
    await box.operate.kill(["first"], who="ada", why="x")
    assert (await box.put(one("second"))).created
    await box.kill(await claim_one(box), drop=True)
    assert (await box.put(one("third"))).created
    assert await check_invariants(box) == []


# --- MQ-4: refusals, batches and replays -------------------------------------------------------------------------


@pytest.mark.req("MQ-4")
async def test_skip_tells_the_holder_instead_of_raising(box: Box):
    await box.put(one("holder"))
    receipt = await box.put(one("asker"), on_conflict="skip")
    assert (receipt.event_id, receipt.created, receipt.refused, receipt.holder) == (
        "asker", False, "conflict", "holder",
    )  # fmt: skip
    assert await box.get("asker") is None
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4")
async def test_an_unknown_mode_is_refused(box: Box):
    with pytest.raises(UsageError, match="on_conflict"):
        await box.put_many([Event("n")], on_conflict="ignore")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="on_conflict"):
        await box.put(Event("n"), on_conflict="rasie")  # type: ignore[arg-type]


@pytest.mark.req("MQ-4")
async def test_a_batch_that_skips_puts_as_many_as_possible(box: Box):
    await box.put_many([one("holder"), Event("n", 1, event_id="taken")])
    receipts = await box.put_many(
        [
            Event("n", event_id="a"),
            one("asker"),
            Event("n", event_id="b", unique_key="free"),
            Event("n", event_id="c", unique_key="free"),
            Event("n", event_id="d", unique_key="free", unique_scope=UNTOUCHED),
            Event("n", 1, event_id="taken"),
            Event("n", 2, event_id="taken"),
            Event("n", event_id="e"),
        ],
        on_conflict="skip",
    )
    assert [(receipt.event_id, receipt.created, receipt.holder) for receipt in receipts] == [
        ("a", True, None), ("asker", False, "holder"), ("b", True, None), ("c", False, "b"), ("d", False, "b"),
        ("taken", False, None), ("taken", False, None), ("e", True, None),
    ]  # fmt: skip
    assert [receipt.refused for receipt in receipts] == [
        None, "conflict", None, "conflict", "conflict", None, "id_reused", None,
    ]  # fmt: skip
    assert (await box.stats()).phases == phases(available=5)
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4")
async def test_a_batch_that_raises_stops_at_the_first_refusal(box: Box):
    await box.put_many([one("holder"), Event("n", event_id="there")])
    with pytest.raises(BatchRefused) as refusal:
        await box.put_many([Event("n", event_id="a"), Event("n", event_id="there"), one("asker"),
                            Event("n", event_id="b")])  # fmt: skip
    assert (refusal.value.index, [receipt.created for receipt in refusal.value.receipts]) == (2, [True, False])
    assert isinstance(refusal.value.__cause__, Conflict)
    assert refusal.value.__cause__.holder == "holder"
    assert (await known(box, "a")).state == State.PENDING
    assert await box.get("asker") is None
    assert await box.get("b") is None
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4")
@pytest.mark.parametrize("refused", [one("asker"), Event("n", 2, event_id="taken")], ids=["conflict", "id"])
async def test_all_or_nothing_puts_nothing_when_one_is_refused(box: Box, refused: Event):
    await box.put_many([one("holder"), Event("n", 1, event_id="taken")])
    before = await contents(box)
    with pytest.raises(BatchRefused) as refusal:
        await box.put_many([Event("n", event_id="a", ordering_key="o", unique_key="free"), refused, Event("n")],
                           on_conflict="all_or_nothing")  # fmt: skip
    assert (refusal.value.index, refusal.value.receipts) == (1, [])
    assert await contents(box) == before


@pytest.mark.req("MQ-4")
async def test_all_or_nothing_puts_all(box: Box):
    await box.put(Event("n", event_id="there"))
    batch = [Event("n", event_id="a", unique_key="x"), Event("n", event_id="there"), Event("n", event_id="b")]
    receipts = await box.put_many(batch, on_conflict="all_or_nothing")
    assert [receipt.created for receipt in receipts] == [True, False, True]
    receipts = await box.put_many(batch, on_conflict="all_or_nothing")
    assert [receipt.created for receipt in receipts] == [False, False, False]
    assert (await box.stats()).totals["put"] == 3
    assert await box.put_many([], on_conflict="all_or_nothing") == []
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4")
async def test_all_or_nothing_refuses_two_of_one_key(box: Box):
    with pytest.raises(BatchRefused) as refusal:
        await box.put_many([one("a", UNTOUCHED), Event("n"), one("b", UNTOUCHED)], on_conflict="all_or_nothing")
    assert refusal.value.index == 2
    assert await contents(box) == {}


@pytest.mark.req("MQ-4")
async def test_all_or_nothing_is_one_step_or_none(box: Box):
    with pytest.raises(UsageError, match="all_or_nothing takes up to 1,000"):
        await box.put_many([Event("n") for _ in range(1001)], on_conflict="all_or_nothing")
    assert await contents(box) == {}


@pytest.mark.req("MQ-4")
@pytest.mark.parametrize("terminal", ["published", "dead"])
async def test_a_replay_into_a_held_key_is_refused_and_names_the_holder(box: Box, terminal: str):
    await (publish if terminal == "published" else bury)(box, one("old"))
    await box.put(one("holder"))
    before = await contents(box)
    report = await box.replay(["old"])
    assert (report.matched, report.replayed, report.refused) == (1, 0, [("old", Outcome.CONFLICT, "holder")])
    after, log = await contents(box), keys.log(box.name)
    assert {**after, log: None} == {**before, log: None}
    report = await box.replay(["old"], force=True)
    assert (report.matched, report.replayed, report.refused) == (1, 1, [])
    assert {claim.event_id for claim in await box.claim("relay-1")} == {"old", "holder"}
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4", "MQ-3")
async def test_the_scope_of_the_replayed_event_decides(box: Box):
    await bury(box, one("narrow", UNTOUCHED))
    await bury(box, one("wide"))
    await put_and_claim(box, one("flying"))
    report = await box.replay(["wide", "narrow"])
    assert (report.replayed, report.refused) == (1, [("wide", Outcome.CONFLICT, "flying")])
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4")
@pytest.mark.parametrize("scope", [ALL_LIVE, UNTOUCHED])
async def test_two_replays_of_one_key_in_one_call(box: Box, scope: str):
    await bury(box, one("first", scope))
    await bury(box, one("second", scope))
    report = await box.replay(["first", "second", "first"])
    assert (report.matched, report.replayed) == (3, 1)
    assert report.refused == [("second", Outcome.CONFLICT, "first"), ("first", Outcome.NOTTERMINAL, "PENDING")]
    assert (await known(box, "second")).state == State.DEAD
    assert (await box.replay(["second"], force=True)).replayed == 1
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4", "MQ-3")
@pytest.mark.parametrize(
    ("scope", "reset", "delay", "replayed"),
    [
        (UNTOUCHED, False, 60, 2),  # each waits for its retry: out of scope
        (UNTOUCHED, False, None, 1),  # due at once
        (UNTOUCHED, True, 60, 1),  # scheduled anew
        (ALL_LIVE, False, 60, 1),
    ],
)
async def test_two_replays_of_one_key_that_keep_their_attempts(
    box: Box, scope: str, reset: bool, delay: float | None, replayed: int
):
    await bury(box, one("first", scope))
    await bury(box, one("second", scope))
    report = await box.replay(["first", "second"], reset=reset, delay=delay)
    assert report.replayed == replayed
    assert [refusal[:2] for refusal in report.refused] == [("second", Outcome.CONFLICT)][: 2 - replayed]
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4", "MQ-3")
async def test_a_replayed_event_that_was_never_attempted_is_scheduled(box: Box):
    """Killed before its first attempt: also with its attempts kept it has none, and holds its key."""
    for event_id in ("first", "second"):
        await box.put(one(event_id, UNTOUCHED))
        await box.operate.kill([event_id], who="ada", why="x")
    report = await box.replay(["first", "second"], reset=False, delay=60)
    assert report.refused == [("second", Outcome.CONFLICT, "first")]
    assert (await known(box, "first")).phase == Phase.SCHEDULED
    assert await check_invariants(box) == []


# --- MQ-4: a full box --------------------------------------------------------------------------------------------


@pytest.mark.req("MQ-4")
async def test_a_full_box_refuses_new_events_only(box: Box):
    await configure(box, max_pending=3)
    await box.put_many([Event("n", event_id="a"), Event("n", ordering_key="o"), Event("n", ordering_key="o")])
    before = await contents(box)
    with pytest.raises(BoxFull, match="3"):
        await box.put(Event("n", unique_key="k"))
    (receipt,) = await box.put_many([Event("n", event_id="b")], on_conflict="skip")
    assert (receipt.created, receipt.refused, receipt.holder) == (False, "box_full", None)
    with pytest.raises(BatchRefused) as refusal:
        await box.put_many([Event("n", event_id="a"), Event("n"), Event("n")], on_conflict="all_or_nothing")
    assert refusal.value.index == 1
    assert not (await box.put(Event("n", event_id="a"))).created
    after, totals = await contents(box), keys.counters(box.name)
    assert {**after, totals: None} == {**before, totals: None}
    await box.ack(await box.claim("relay-1", limit=1))
    assert (await box.put(Event("n"))).created
    with pytest.raises(BoxFull):
        await box.put(Event("n"))
    await configure(box, max_pending=0)
    assert (await box.put(Event("n"))).created
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4")
async def test_a_batch_fills_the_box_up_to_its_limit(box: Box):
    await make_suspect(box, delay=60)
    await configure(box, max_pending=3)
    receipts = await box.put_many([Event("n") for _ in range(4)], on_conflict="skip")
    assert [receipt.created for receipt in receipts] == [True, True, False, False]
    await box.claim("relay-1", limit=1)
    with pytest.raises(BatchRefused) as refusal:
        await box.put_many([Event("n"), Event("n")])
    assert (refusal.value.index, isinstance(refusal.value.__cause__, BoxFull)) == (1, True)
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4")
async def test_what_did_not_fit_holds_no_key(box: Box):
    await configure(box, max_pending=1)
    receipts = await box.put_many([Event("n", event_id="a"), one("b"), one("c")], on_conflict="skip")
    assert [(receipt.created, receipt.refused, receipt.holder) for receipt in receipts] == [
        (True, None, None), (False, "box_full", None), (False, "box_full", None),
    ]  # fmt: skip


# --- MQ-5: retention ---------------------------------------------------------------------------------------------


async def aged(box: Box, make: Any, *hours: float) -> list[str]:
    """Terminal events so many hours old, oldest first; names are their ages."""
    ages = sorted(hours, reverse=True)
    ids = []
    for age, younger in zip(ages, [*ages[1:], 0.0], strict=True):
        ids += await make(box, Event("n", event_id=f"{make.__name__}-{age:g}", unique_key=f"u{age}", ordering_key="o"))
        await advance(box, hours=age - younger)
    return ids


async def left(box: Box) -> list[str]:
    return [record.event_id async for record in box.list()]


@pytest.mark.req("MQ-5")
@pytest.mark.parametrize(("make", "kind"), [(publish, "published"), (bury, "dead")])
async def test_sweep_by_age(box: Box, make: Any, kind: str):
    ids = await aged(box, make, 4, 3, 2, 1)
    keep: dict[str, Any] = {f"keep_{kind}": timedelta(hours=2, minutes=30)}
    swept = await box.sweep(**keep)
    assert (getattr(swept, kind), swept.published + swept.dead, swept.dry_run) == (2, 2, False)
    assert await left(box) == ids[2:]
    assert not [key for key in await contents(box) if ids[0] in key or ids[1] in key]
    assert (await box.stats()).totals["swept"] == 2
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
@pytest.mark.parametrize(("make", "kind"), [(publish, "published"), (bury, "dead")])
async def test_sweep_by_count_removes_the_oldest(box: Box, make: Any, kind: str):
    async def swept(keep: int) -> int:
        counts: dict[str, Any] = {f"keep_{kind}_count": keep}
        report = await box.sweep(**counts)
        assert report.published + report.dead == getattr(report, kind)
        return int(getattr(report, kind))

    ids = await aged(box, make, 4, 3, 2, 1)
    assert [await swept(5), await swept(4)] == [0, 0]
    assert await swept(1) == 3
    assert await left(box) == ids[3:]
    assert await swept(0) == 1
    assert await left(box) == []
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
async def test_sweep_by_age_and_count_removes_what_either_says(box: Box):
    ids = await aged(box, publish, 4, 3, 2, 1)
    assert (await box.sweep(keep_published=timedelta(hours=3.5), keep_published_count=3)).published == 1
    assert (await box.sweep(keep_published=timedelta(hours=2.5), keep_published_count=3)).published == 1
    assert (await box.sweep(keep_published=timedelta(hours=2.5), keep_published_count=1)).published == 1
    assert await left(box) == ids[3:]


@pytest.mark.req("MQ-5")
async def test_a_dry_run_counts_and_removes_nothing(box: Box):
    await aged(box, publish, 4, 3, 2)
    await aged(box, bury, 2, 1)  # by now the published are two hours older
    before = await contents(box)
    swept = await box.sweep(keep_published=timedelta(hours=4.5), keep_dead_count=1, dry_run=True)
    assert (swept.published, swept.dead, swept.dry_run) == (2, 1, True)
    assert await contents(box) == before


@pytest.mark.req("MQ-5")
@pytest.mark.parametrize("dry_run", [False, True])
async def test_sweeping_goes_on_in_bounded_steps(box: Box, monkeypatch: pytest.MonkeyPatch, dry_run: bool):
    """Seven to go, two at a time; they share a score, so the steps must be cut by id as well."""
    monkeypatch.setattr(sweeping, "SWEEP_COUNT", 2)
    ids = await publish(box, *(Event("n") for _ in range(7)))
    await bury(box, *(Event("n") for _ in range(3)))
    await advance(box, hours=1)
    kept = await publish(box, Event("n"))
    steps, send = [], box._store.sweep

    async def counting(index: str, **arguments: Any) -> Any:
        steps.append(index)
        return await send(index, **arguments)

    monkeypatch.setattr(box._store, "sweep", counting)
    swept = await box.sweep(keep_published=60, keep_dead=60, dry_run=dry_run)
    assert (swept.published, swept.dead) == (7, 3)
    assert steps == ["published"] * 4 + ["dead"] * 2
    assert [record.event_id async for record in box.list(state="PUBLISHED")] == ([*ids, *kept] if dry_run else kept)
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
async def test_sweeping_goes_on_past_what_it_must_leave(box: Box, monkeypatch: pytest.MonkeyPatch):
    """Dead heads that block their lines stay, wherever they stand; the others behind them go."""
    monkeypatch.setattr(sweeping, "SWEEP_COUNT", 2)
    await configure(box, dead_head="block")
    for n in range(9):
        await bury(box, Event("n", event_id=f"e{n}", ordering_key=f"o{n}" if n in (0, 1, 2, 5, 8) else None))
    for dry_run in (True, False):
        assert (await box.sweep(keep_dead=0, dry_run=dry_run)).dead == 4
    assert await left(box) == ["e0", "e1", "e2", "e5", "e8"]
    assert (await box.sweep(keep_dead=0)).dead == 0
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_limit_bounds_the_whole_sweep(box: Box, dry_run: bool):
    await publish(box, *(Event("n") for _ in range(3)))
    await bury(box, *(Event("n") for _ in range(4)))
    await advance(box, minutes=1)
    swept = await box.sweep(keep_published=1, keep_dead=1, limit=2, dry_run=dry_run)
    assert (swept.published, swept.dead) == (2, 0)
    swept = await box.sweep(keep_published=1, keep_dead=1, limit=5, dry_run=dry_run)
    assert (swept.published, swept.dead) == ((3, 2) if dry_run else (1, 4))
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
async def test_a_limit_does_not_keep_the_dead_for_ever(box: Box):
    """Nothing published to sweep: the limit is there for the dead."""
    await bury(box, *(Event("n") for _ in range(3)))
    await advance(box, minutes=1)
    assert (await box.sweep(keep_dead=1, limit=100)).dead == 3


@pytest.mark.req("MQ-5")
async def test_by_default_published_stay_a_day_and_the_dead_for_ever(box: Box):
    assert (Settings().keep_published, Settings().keep_published_count) == (24 * 3600, 100_000)
    assert (Settings().keep_dead, Settings().keep_dead_count) == (None, None)
    assert await box.settings() == Settings()
    await aged(box, bury, 24 * 400)
    await aged(box, publish, 25, 23)
    swept = await box.sweep()
    assert (swept.published, swept.dead) == (1, 0)
    assert await left(box) == ["publish-23", "bury-9600"]


@pytest.mark.req("MQ-5")
async def test_retention_comes_from_the_settings_of_the_box(box: Box):
    settings = await configure(box, keep_published=timedelta(hours=3), keep_dead=7200, keep_dead_count=2)
    assert (settings.keep_published, settings.keep_dead, settings.keep_dead_count) == (10_800, 7200, 2)
    assert await box.settings() == settings == (await box.stats()).settings
    await aged(box, publish, 4, 1)
    await aged(box, bury, 1.5, 1, 0.5)  # by now the published are an hour and a half older
    swept = await box.sweep()
    assert (swept.published, swept.dead) == (1, 1)
    await configure(box, keep_published=None, keep_published_count=None, keep_dead=60)
    await advance(box, hours=24 * 400)
    assert (await box.sweep(dry_run=True)).published == 0
    assert (await box.sweep()).dead == 2
    assert await left(box) == ["publish-1"]


@pytest.mark.req("MQ-5")
async def test_settings_come_back_as_they_were_given(box: Box):
    settings = await configure(box, keep_published=timedelta(days=365, seconds=1), keep_dead=1_234_567.5)
    assert (settings.keep_published, settings.keep_dead) == (31_536_001, 1_234_567.5)


@pytest.mark.req("MQ-5")
async def test_settings_that_cannot_be_are_refused(box: Box):
    wrong: list[dict[str, Any]] = [
        {"keep_published": -1}, {"keep_dead_count": -1}, {"max_pending": "many"}, {"dead_head": "jump"},
        {"keep_publishd": 60}, {"keep_dead": "1h"}, {"max_pending": None},
    ]  # fmt: skip
    for changes in wrong:
        with pytest.raises(InvalidSetting, match=next(iter(changes)) if "dead_head" not in changes else "jump"):
            await configure(box, **changes)
    assert await contents(box) == {}


@pytest.mark.req("MQ-5")
@pytest.mark.parametrize("how", ["setting", "argument"])
async def test_delete_on_success(box: Box, how: str):
    if how == "setting":
        await configure(box, keep_published=0)
    await box.put_many([Event("n", event_id="a", ordering_key="o", unique_key="k"),
                        Event("n", event_id="b", ordering_key="o")])  # fmt: skip
    claim = await claim_one(box)
    await fail(box, claim, error="503")  # so that there is a history to remove as well
    assert await box.ack(await claim_one(box), delete=how == "argument") == [True]
    assert await box.get("a") is None
    assert not [key for key in await contents(box) if key.endswith((":a", ":k"))]
    stats = await box.stats()
    assert (stats.phases, stats.waiting) == (phases(available=1), 0)
    assert (stats.totals["published"], stats.totals["swept"]) == (1, 1)
    assert (await box.put(Event("n", event_id="c", unique_key="k"))).created
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
async def test_delete_on_success_is_fenced(box: Box):
    claim = await put_and_claim(box)
    await expire(box)
    assert await box.ack(claim, delete=True) == [False]
    assert (await known(box, claim.event_id)).state == State.PENDING
    (kept,) = [claim.event_id for claim in await box.claim("relay-1")]
    assert await check_invariants(box) == []
    assert kept == claim.event_id


@pytest.mark.req("MQ-5")
async def test_only_zero_deletes_on_success(box: Box):
    await configure(box, keep_published=1, keep_published_count=0)
    (event_id,) = await publish(box, Event("n"))
    assert (await known(box, event_id)).state == State.PUBLISHED


@pytest.mark.req("MQ-5")
async def test_killed_and_dropped_at_once(box: Box):
    await box.put_many([Event("n", event_id="a", ordering_key="o", unique_key="k"),
                        Event("n", event_id="b", ordering_key="o")])  # fmt: skip
    assert await box.kill(await claim_one(box), reason="422", drop=True) == [True]
    assert await box.operate.kill(["b"], who="ada", why="x", drop=True) == [Outcome.OK]
    assert await left(box) == []
    there = {key.removeprefix(keys.prefix(box.name)) for key in await contents(box)}
    assert there == {":meta", ":counters", ":log", ":wake"}
    totals = (await box.stats()).totals
    assert (totals["dead"], totals["dropped"], totals.get("swept", 0)) == (2, 2, 0)
