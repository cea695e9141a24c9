"""RO-1: search by phase and by text in payloads, in bounded pages; and values that complete a filter."""

from __future__ import annotations

from typing import Any

import pytest

from redbox import Box, Event, State
from redbox.box.inspect import Budget
from redbox.errors import UsageError
from redbox.testing import advance
from redbox.testing.conformance.operations.steps import ADA, listed, named, one_in_each_state
from redbox.testing.conformance.steps import make_dead, publish, put_and_claim

pytestmark = pytest.mark.req("RO-1")


@pytest.mark.parametrize(
    ("phase", "ids"),
    [
        ("available", ["first", "pending", "second"]),
        ("WAITING", ["second"]),
        ("SCHEDULED", ["later"]),
        ("RETRY_SCHEDULED", ["retried"]),
        ("IN_FLIGHT", ["claimed"]),
        ("DEAD", ["dead"]),
        ("COMPLETED", ["published"]),
    ],
)
async def test_list_by_phase(box: Box, phase: str, ids: list[str]):
    claim = await put_and_claim(box, Event("n", event_id="retried"))
    await box.retry(claim, delay=60, error="timeout")
    await one_in_each_state(box)
    assert sorted(await listed(box, phase=phase)) == ids
    assert await box.count(phase=phase) == len(ids)


async def test_a_phase_and_a_state_that_exclude_each_other_are_refused(box: Box):
    with pytest.raises(UsageError, match="no event is DEAD and in phase AVAILABLE"):
        await box.page(state="DEAD", phase="AVAILABLE")
    with pytest.raises(UsageError, match="use one of SCHEDULED"):
        await box.page(phase="asleep")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("needle", ["upper", "bytes", "lower"]),
        ("Needle", ["upper", "bytes", "lower"]),
        ("größe", ["lower"]),
        ("hay", []),
    ],
)
async def test_list_by_text_in_the_payload(box: Box, text: str, ids: list[str]):
    await box.put_many(
        [
            Event("n", {"text": "größe, a needle"}, event_id="lower"),
            Event("n", "A NEEDLE", event_id="upper"),
            Event("n", b"\xff needle", event_id="bytes"),
            Event("needle", {"a": 1}, event_id="type"),
        ]
    )
    assert sorted(await listed(box, text=text)) == sorted(ids)
    assert await listed(box, text=text, event_type="needle") == []


async def test_text_phase_and_group_are_combined(box: Box):
    await make_dead(box, Event("n", {"id": 1}, event_id="a"), Event("n", {"id": 2}, event_id="b"), reason="HTTP 422")
    await make_dead(box, Event("n", {"id": 1}, event_id="c"), reason="HTTP 500")
    assert await listed(box, text='"id":1', group="http 422", phase="DEAD") == ["a"]
    assert (await box.replay(text='"id":1', group="http 422")).replayed == 1
    assert (await box.drop(text='"id":1')).dropped == 1
    assert await listed(box, state="DEAD") == ["b"]
    (group,) = await box.error_groups(text='"id":2')
    assert group.sample_id == "b"


async def test_a_page_reads_a_bounded_number_of_events(box: Box):
    await box.put_many(named(*(f"e{n:03}" for n in range(1500))))
    searches: list[dict[str, Any]] = [{"text": "none"}, {"error": "none"}, {"phase": "SCHEDULED"}, {"group": "none"}]
    for filters in searches:
        looked, pages, cursor = 0, 0, None
        while True:
            page = await box.page(look=100, cursor=cursor, state="PENDING", **filters)
            assert page.records == []
            looked, pages, cursor = looked + page.looked, pages + 1, page.cursor
            if cursor is None:
                break
        assert looked == 1500, filters
        assert pages > 1
    assert (await box.page(limit=7, state="PENDING")).looked == 7


async def test_a_budget_bounds_how_many_events_a_search_reads(box: Box):
    await box.put_many(named(*(f"e{n:03}" for n in range(1500))))
    searches: list[dict[str, Any]] = [{"text": "none"}, {"error": "none"}, {"phase": "SCHEDULED"}, {"group": "none"}]
    for filters in searches:
        budget = Budget(100)
        assert await box.count(state="PENDING", budget=budget, **filters) == 0
        assert budget.spent
        assert 100 <= budget.looked <= 600, filters
        report = await box.operate.apply(
            "kill", who="ada", why="", dry_run=True, budget=Budget(0), state="PENDING", **filters
        )
        assert report.matched == 0
    whole = Budget(2000)
    assert await box.count(state="PENDING", budget=whole) == 1500
    assert (whole.spent, whole.looked) == (False, 1500)
    assert await box.count(state="PENDING", budget=Budget(7)) == 7
    with pytest.raises(UsageError, match="only PUBLISHED and DEAD"):
        await box.replay(state="PENDING", dry_run=True, budget=Budget(0))


async def test_groups_of_a_filter_are_those_of_the_newest_events(box: Box):
    for n in range(30):
        await make_dead(box, Event("old" if n < 20 else "new", event_id=f"e{n:02}"), reason=f"HTTP {500 + n // 20}")
        await advance(box, seconds=1)
    found = await box.desk.failing(states=[State.DEAD], sample=10, error="http")
    assert [(each.example, each.count) for each in found.groups] == [("HTTP 501", 10)]
    assert (found.sampled, found.looked) == (True, 10)
    assert (await box.desk.failing(states=[State.DEAD], sample=10, event_type="old")).groups == []
    whole = await box.desk.failing(states=[State.DEAD], sample=30, error="http")
    assert [each.count for each in whole.groups] == [20, 10]
    assert (whole.sampled, whole.looked) == (False, 30)
    (record,) = [record async for record in box.list(state="DEAD") if record.event_id == "e24"]
    died = record.died_at
    part = await box.desk.failing(states=[State.DEAD], sample=10, error="http", until=died)
    assert [each.count for each in part.groups] == [5, 5]
    late = await box.desk.failing(states=[State.DEAD], sample=10, error="http", since=died)
    assert ([each.count for each in late.groups], late.sampled) == ([6], False)


async def test_groups_of_pending_events_are_not_hidden_by_others(box: Box):
    await box.put_many([Event("late", delay=3600) for _ in range(20)])
    await box.put(Event("failed", event_id="a"))
    await box.retry(await box.claim("relay-1"), error="timeout", delay=60)
    found = await box.desk.failing(states=[State.PENDING], sample=5, event_type="failed")
    assert [(each.example, each.sample_id) for each in found.groups] == [("timeout", "a")]
    assert not found.sampled


async def test_pages_of_a_search_neither_repeat_nor_skip(box: Box):
    events = [Event("n", "odd" if n % 2 else "even", event_id=f"e{n:03}") for n in range(60)]
    await box.put_many(events)
    found, cursor = list[str](), None
    while True:
        page = await box.page(limit=7, cursor=cursor, text="odd")
        assert len(page.records) <= 7
        found += [record.event_id for record in page.records]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == [event.event_id for event in events[1::2]]


async def test_count_is_bounded(box: Box):
    await box.put_many(named("a", "b", "c"))
    assert await box.count(state="PENDING") == 3
    assert await box.count(state="PENDING", limit=2) == 2


async def test_blocked_keys(box: Box):
    assert await box.desk.blocked_keys() == ()
    await box.operate.configure(**ADA, dead_head="block")
    await make_dead(box, Event("n", event_id="head", ordering_key="ö/1"), reason="HTTP 422")
    await box.put_many(named("b", "c", ordering_key="ö/1"))
    (blocked,) = await box.desk.blocked_keys()
    assert (blocked.key, blocked.head, blocked.waiting, blocked.why) == ("ö/1", "head", 2, "HTTP 422")
    record = await box.get("head")
    assert record is not None
    assert blocked.since == record.died_at


@pytest.mark.parametrize(
    ("field", "prefix", "values"),
    [
        ("type", "", ["user.created", "order.placed"]),
        ("type", "ORD", ["order.placed"]),
        ("key", "", ["k-1", "u-1"]),
        ("error", "422", ["HTTP 422"]),
        ("error", "500", []),
        ("relay", "we", ["web"]),
    ],
)
async def test_suggestions_come_from_a_sample(box: Box, field: str, prefix: str, values: list[str]):
    await make_dead(box, Event("order.placed", ordering_key="k-1"), reason="HTTP 422")
    await publish(box, Event("user.created", unique_key="u-1"))
    await box.put(Event("user.created"))
    await box.beat("web", "i", {}, fresh=15)
    assert list(await box.desk.suggest(field, prefix)) == values
    assert len(await box.desk.suggest("type", limit=1)) == 1


async def test_every_suggestion_can_be_used_as_a_filter(box: Box):
    """An error may be longer than a filter, and a `*` in an event type would match more than that type."""
    long = f"HTTP 500 {'é' * 600} Timeout {'x' * 600}"
    await make_dead(box, Event("order*[1]", event_id="e1", ordering_key="k*"), reason=long)
    await make_dead(box, Event("order-and-more[1]", event_id="e2"), reason="HTTP 422")
    asked = [("type", "order*"), ("type", "order?"), ("key", ""), ("error", "500"), ("error", "timeOUT X")]
    for field, prefix in asked:
        value, *_ = await box.desk.suggest(field, prefix)
        assert prefix.lower().replace("*", "?") in value.lower()
        assert await listed(box, **{"event_type" if field == "type" else field: value}) == ["e1"]


async def test_a_suggestion_for_an_unknown_field_is_refused(box: Box):
    with pytest.raises(UsageError, match="field 'colour'"):
        await box.desk.suggest("colour")


# --- RO-3: many events at once -----------------------------------------------------------------------------------


@pytest.mark.req("RO-3")
async def test_kill_and_reschedule_by_filter_are_one_entry_of_the_log(box: Box):
    await box.put_many([*named(*(f"k{n:03}" for n in range(250))), *named("other", delay=60)])
    done: list[int] = []
    report = await box.operate.apply("kill", phase="AVAILABLE", progress=done.append, **ADA)
    assert (report.matched, report.done, report.refused_count) == (250, 250, 0)
    assert done == [100, 200, 250]
    assert await box.count(state=State.DEAD) == 250
    report = await box.operate.apply("reschedule", state="PENDING", delay=120, **ADA)
    assert (report.matched, report.done) == (1, 1)
    entries = await box.operate.log(2)
    assert [(entry.action, entry.count, entry.who) for entry in entries] == [
        ("reschedule", 1, "ada"),
        ("kill", 250, "ada"),
    ]


@pytest.mark.req("RO-3")
async def test_an_event_that_stays_in_the_listing_is_rescheduled_once(box: Box):
    await box.put_many(named(*(f"e{n:03}" for n in range(300))))
    report = await box.operate.apply("reschedule", state="PENDING", delay=60, **ADA)
    assert report.done == 300


@pytest.mark.req("RO-3")
async def test_many_by_id_say_what_was_refused(box: Box):
    await make_dead(box, *named("dead"))
    await box.put_many(named("pending"))
    for dry_run, done in ((True, 0), (False, 1)):
        report = await box.operate.apply("kill", ["dead", "pending", "none"], dry_run=dry_run, **ADA)
        assert (report.matched, report.done, report.refused_count) == (3, done, 2)
        assert [event_id for event_id, _ in report.refused] == ["dead", "none"]


@pytest.mark.req("RO-3")
@pytest.mark.parametrize(
    ("action", "filters", "words"),
    [
        ("kill", {}, "say what to kill"),
        ("kill", {"state": "DEAD"}, "only PENDING and CLAIMED events can be killed"),
        ("reschedule", {"state": "CLAIMED"}, "only PENDING events can be rescheduled"),
        ("paint", {"state": "PENDING"}, "action 'paint'"),
        ("kill", {"ids": ["a"], "state": "PENDING"}, "say what to kill"),
    ],
)
async def test_an_invalid_choice_is_refused(box: Box, action: Any, filters: dict[str, Any], words: str):
    await box.put_many(named("a"))
    with pytest.raises(UsageError, match=words):
        await box.operate.apply(action, **filters, **ADA)
    assert await listed(box, state="PENDING") == ["a"]


@pytest.mark.req("RO-2")
async def test_replay_and_drop_take_a_limit(box: Box):
    await make_dead(box, *named("a", "b", "c", "d"))
    assert (await box.replay(state="DEAD", limit=1, dry_run=True)).matched == 1
    assert (await box.replay(state="DEAD", limit=1)).replayed == 1
    assert (await box.drop(state="DEAD", limit=2)).dropped == 2
    assert await listed(box, state="DEAD") == ["d"]


@pytest.mark.req("RO-2")
async def test_a_replay_says_when_it_waits_for_its_canary(box: Box):
    await make_dead(box, *named("a", "b", "c"))
    watched: list[int] = []
    report = await box.replay(state="DEAD", canary=2, canary_wait=0.01, watching=watched.append)
    assert watched == [2]
    assert report.canary is not None
    assert not report.canary.passed


@pytest.mark.req("RO-3")
async def test_a_note_is_an_entry_of_the_log(box: Box):
    await box.put_many(named("a"))
    await box.operate.note("job", **ADA, detail="job 1 began")
    (entry,) = await box.operate.log()
    assert (entry.action, entry.who, entry.detail, entry.count) == ("job", "ada", "job 1 began", 0)
