"""MQ-2 to MQ-4: unique keys."""

from __future__ import annotations

from typing import Any

import pytest

from redbox import BatchRefused, Box, Conflict, Event, Outcome, Phase, State, keys
from redbox.errors import UsageError
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.states.steps import ALL_LIVE, UNTOUCHED, one, phases
from redbox.testing.conformance.steps import (
    claim_one,
    contents,
    known,
    make_dead,
    publish,
    put_and_claim,
)

# --- MQ-2, MQ-3: the two scopes --------------------------------------------------------------------------------------


async def bring_holder_to(box: Box, stage: str) -> None:
    """Puts the event "holder" with the unique key k, and brings it to a stage of the lifecycle."""
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
async def test_which_stages_hold_a_key_in_each_scope(box: Box, stage: str, all_live: bool, untouched: bool):
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
async def test_the_scope_of_the_new_event_decides(box: Box):
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
async def test_a_passed_retry_delay_is_in_scope_again_whatever_happened_before(box: Box, fate: str):
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
async def test_a_reschedule_moves_the_end_of_a_retry_delay(box: Box):
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
async def test_actions_of_operators_free_keys(box: Box):
    await box.put(one("first"))
    await box.operate.kill(["first"], who="ada", why="x")
    assert (await box.put(one("second"))).created
    await box.kill(await claim_one(box), drop=True)
    assert (await box.put(one("third"))).created
    assert await check_invariants(box) == []


# --- MQ-4: refusals, batches and replays -----------------------------------------------------------------------------


@pytest.mark.req("MQ-4")
async def test_skip_returns_the_holder_instead_of_raising(box: Box):
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
async def test_all_or_nothing_refuses_two_events_with_one_key(box: Box):
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
    await (publish if terminal == "published" else make_dead)(box, one("old"))
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
    await make_dead(box, one("narrow", UNTOUCHED))
    await make_dead(box, one("wide"))
    await put_and_claim(box, one("flying"))
    report = await box.replay(["wide", "narrow"])
    assert (report.replayed, report.refused) == (1, [("wide", Outcome.CONFLICT, "flying")])
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4")
@pytest.mark.parametrize("scope", [ALL_LIVE, UNTOUCHED])
async def test_two_replays_of_one_key_in_one_call(box: Box, scope: str):
    await make_dead(box, one("first", scope))
    await make_dead(box, one("second", scope))
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
        (UNTOUCHED, False, 60, 2),  # both wait for their retry: out of scope
        (UNTOUCHED, False, None, 1),  # due at once
        (UNTOUCHED, True, 60, 1),  # scheduled again
        (ALL_LIVE, False, 60, 1),
    ],
)
async def test_two_replays_of_one_key_that_keep_their_attempts(
    box: Box, scope: str, reset: bool, delay: float | None, replayed: int
):
    await make_dead(box, one("first", scope))
    await make_dead(box, one("second", scope))
    report = await box.replay(["first", "second"], reset=reset, delay=delay)
    assert report.replayed == replayed
    assert [refusal[:2] for refusal in report.refused] == [("second", Outcome.CONFLICT)][: 2 - replayed]
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-4", "MQ-3")
async def test_a_replayed_event_that_was_never_attempted_is_scheduled(box: Box):
    """Killed before its first attempt: even with reset=False it has no attempts, and holds its key."""
    for event_id in ("first", "second"):
        await box.put(one(event_id, UNTOUCHED))
        await box.operate.kill([event_id], who="ada", why="x")
    report = await box.replay(["first", "second"], reset=False, delay=60)
    assert report.refused == [("second", Outcome.CONFLICT, "first")]
    assert (await known(box, "first")).phase == Phase.SCHEDULED
    assert await check_invariants(box) == []
