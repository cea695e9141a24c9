"""RO-3: the log of operators' actions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from redbox import Box, Event, Outcome, Phase, keys
from redbox.box.operations_log import action_token
from redbox.errors import UsageError
from redbox.events import from_ms
from redbox.store import reads
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.operations.steps import ADA, named, one_in_each_state
from redbox.testing.conformance.steps import (
    claim_one,
    contents,
    expire,
    fail,
    make_dead,
    put_and_claim,
    store_time,
)


@pytest.mark.req("RO-3")
async def test_an_action_on_many_events_is_made_in_steps_and_is_one_entry(box: Box):
    ids = [f"e{n:03}" for n in range(250)]
    await box.put_many(named(*ids))
    assert await box.operate.reschedule(ids, **ADA) == [Outcome.OK] * 250
    await box.claim("relay-1", limit=250)
    assert await box.operate.release(ids, **ADA) == [Outcome.OK] * 250
    assert await box.operate.kill([*ids, "unknown"], **ADA) == [Outcome.OK] * 250 + [Outcome.UNKNOWN]
    assert await box.operate.drop(ids, **ADA) == [Outcome.OK] * 250
    entries = await box.operate.log()
    assert [entry.action for entry in entries] == ["drop", "kill", "release", "reschedule"]
    assert {(entry.count, entry.ids) for entry in entries} == {(250, tuple(ids[:20]))}
    assert await check_invariants(box) == []


async def write_entry(box: Box, at: str, who: str, action: str, ids: list[str] | None = None, token: str = "") -> None:
    """Writes an entry as a step of an action does; `at` is its id in the stream."""
    known = ids or []
    fields = {"action": action, "who": who, "why": "w", "count": len(known), "ids": " ".join(known), "detail": ""}
    parts = [part for pair in ({**fields, "token": token} if token else fields).items() for part in pair]
    await box._store.exchange([("XADD", keys.log(box.name), at, *parts)])


@pytest.mark.req("RO-3")
async def test_steps_of_actions_at_the_same_time_are_counted_apart(box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reads, "LOG_COUNT", 3)
    await box.operate.pause(who="bob", why="w")
    one, two = await action_token(box._store), await action_token(box._store)
    for number in range(5):
        await write_entry(box, "*", "ada", "kill", [f"a{number}"], one)
        await write_entry(box, "*", "ada", "drop", [f"b{number}", "x"], two)
    entries = await box.operate.log()
    assert [(entry.action, entry.count) for entry in entries] == [("drop", 10), ("kill", 5), ("pause", 0)]
    assert entries[1].ids == ("a0", "a1", "a2", "a3", "a4")
    for limit in (1, 2):
        assert await box.operate.log(limit) == entries[:limit], "an entry at the limit counts all of its steps"
    assert await box.operate.log(1, action="kill") == entries[1:2]
    assert await box.operate.log(since=entries[0].at + timedelta(milliseconds=1)) == []


@pytest.mark.req("RO-3")
async def test_the_log_is_filtered_by_action_operator_and_time(box: Box):
    await box.put(Event("n"))
    start = await store_time(box)
    first = round(start.timestamp() * 1000)
    moments = [from_ms(first + n * 60_000) for n in range(3)]
    for number, (who, action) in enumerate((("ada", "pause"), ("bob", "resume"), ("ada", "resume"))):
        await write_entry(box, f"{first + number * 60_000}-1", who, action)

    async def found(**filters: Any) -> list[tuple[str, str]]:
        return [(entry.who, entry.action) for entry in await box.operate.log(**filters)]

    assert await found(who="ada") == [("ada", "resume"), ("ada", "pause")]
    assert await found(action="resume") == [("ada", "resume"), ("bob", "resume")]
    assert await found(action="resume", who="bob") == [("bob", "resume")]
    assert await found(limit=1, who="bob") == [("bob", "resume")]
    assert await found(since=moments[2]) == [("ada", "resume")]
    assert await found(until=moments[0]) == [("ada", "pause")]
    assert await found(since=moments[1], until=moments[1]) == [("bob", "resume")]
    wrong: list[dict[str, Any]] = [
        {"since": moments[2], "until": moments[0]},
        {"action": 1},
        {"since": 1},
        {"limit": 0},
    ]
    for filters in wrong:
        with pytest.raises(UsageError):
            await box.operate.log(**filters)


@pytest.mark.req("RO-3")
@pytest.mark.parametrize("rewritten", [False, True], ids=["an entry for each step", "one entry"])
async def test_an_action_of_some_duration_is_found_at_any_time_of_it_and_counted_in_full(box: Box, rewritten: bool):
    await box.put(Event("n"))
    first = round((await store_time(box)).timestamp() * 1000)
    moments = [from_ms(first + minute * 60_000) for minute in range(5)]
    token = f"{first + 60_000}-abc"
    for minute in (1, 2, 3):
        if not rewritten:
            await write_entry(box, f"{first + minute * 60_000}-1", "ada", "kill", [f"e{minute}"], token)
        elif minute == 3:
            await write_entry(box, f"{first + minute * 60_000}-1", "ada", "kill", ["e1", "e2", "e3"], token)
    (whole,) = await box.operate.log()
    assert (whole.at, whole.count, whole.ids) == (moments[3], 3, ("e1", "e2", "e3"))
    for since, until in ((0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3), (3, 4)):
        assert await box.operate.log(since=moments[since], until=moments[until]) == [whole]
    assert await box.operate.log(until=moments[0]) == await box.operate.log(since=moments[4]) == []


@pytest.mark.req("RO-3")
async def test_a_reap_and_a_sweep_by_hand_are_one_entry_each(box: Box):
    await box.put_many(named(*(f"e{n:03}" for n in range(150))))
    await box.claim("relay-1", limit=150)
    await advance(box, seconds=60)
    assert len(await box.operate.reap(**ADA, dry_run=True)) == 150
    assert len(await box.operate.reap(**ADA, limit=20)) == 20
    assert len(await box.operate.reap(**ADA)) == 130
    assert await box.operate.reap(**ADA, dry_run=True) == []
    await box.operate.kill([f"e{n:03}" for n in range(3)], **ADA)
    assert (await box.operate.sweep(**ADA, keep_dead=0, dry_run=True)).dead == 3
    assert (await box.operate.sweep(**ADA, keep_dead=0)).dead == 3
    entries = await box.operate.log()
    assert [(entry.action, entry.count, entry.detail) for entry in entries] == [
        ("sweep", 3, "keep_dead=0"), ("kill", 3, ""), ("reap", 130, ""), ("reap", 20, ""),
    ]  # fmt: skip
    assert len(entries[2].ids) == 20
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_an_action_that_ended_early_is_in_the_log_with_what_it_did(box: Box, monkeypatch: pytest.MonkeyPatch):
    ids = [f"e{n:03}" for n in range(250)]
    await box.put_many(named(*ids))
    run, kills = box._store.scripts.run, 0

    async def fail_later(name: str, *args: Any, **options: Any) -> Any:
        nonlocal kills
        kills += name == "kill"
        if name == "sweep" or kills > 2:
            raise asyncio.CancelledError
        return await run(name, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(box._store.scripts, "run", fail_later)
        with pytest.raises(asyncio.CancelledError):
            await box.operate.kill(ids, **ADA)
        kills = 0
        with pytest.raises(asyncio.CancelledError):
            await box.operate.sweep(**ADA, keep_dead=0)
    assert [(entry.action, entry.count) for entry in await box.operate.log()] == [("sweep", 0), ("kill", 200)]
    assert (await box.stats()).phases[Phase.DEAD] == 200


@pytest.mark.req("RO-3")
async def test_a_long_log_is_read_in_steps_newest_first(box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reads, "LOG_COUNT", 3)
    for n in range(10):
        await box._store.write_log("patch", who="ada", why=str(n), count=1)
    for limit in (1, 3, 5, 9, 10, 100):
        assert [entry.why for entry in await box.operate.log(limit)] == [str(n) for n in range(9, -1, -1)][:limit]


@pytest.mark.req("RO-3")
async def test_a_job_adds_one_entry_to_the_log(box: Box):
    await box.put(Event("n"))
    before = await store_time(box)
    await box._store.write_log(
        "patch", who="ada", why="typo", count=12_345, ids=[f"e{n:02}" for n in range(25)], detail="d"
    )
    await box._store.write_log("archive", who="bob", why="", count=0)
    await box._store.write_log("archive", who="", why="done by no one", count=1, ids=["x"])
    archived, patched = await box.operate.log()
    assert (patched.action, patched.who, patched.why, patched.count, patched.detail) == (
        "patch", "ada", "typo", 12_345, "d",
    )  # fmt: skip
    assert patched.ids == tuple(f"e{n:02}" for n in range(20))
    assert before <= patched.at <= archived.at <= await store_time(box)
    assert (archived.action, archived.count, archived.ids, archived.detail) == ("archive", 0, (), "")
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_a_repeated_log_entry_is_written_once(box: Box):
    """As after a lost reply. Another job with the same action has its own token."""
    await box.put(Event("n"))
    for token in ("a", "a", "b", "a", "", ""):
        await box._store.write_log("patch", who="ada", why="typo", count=2, ids=["e1", "e2"], token=token)
    assert len(await box.operate.log()) == 4
    assert {(entry.count, entry.ids, entry.detail) for entry in await box.operate.log()} == {(2, ("e1", "e2"), "")}


@pytest.mark.req("RO-3")
async def test_every_action_is_recorded_with_who_when_and_why(box: Box):
    await box.put_many(named("a", "b", "c"))
    await box.claim("relay-1", limit=1)
    before = await store_time(box)
    await box.operate.pause(who="ada", why="one")
    await box.operate.resume(who="bob", why="two")
    await box.operate.reschedule(["b", "unknown"], delay=60, who="ada", why="three")
    await box.operate.release(["a", "b"], who="bob", why="four")
    await box.operate.kill(["a", "b"], who="ada", why="fünf ×")
    await box.replay(["a", "c"], who="bob", why="six")
    await box.operate.drop(["b"], who="ada", why="")
    await box.operate.configure(max_pending=5, keep_dead=60, who="bob", why="eight")
    after = await store_time(box)
    entries = (await box.operate.log())[::-1]
    assert [(entry.action, entry.who, entry.why, entry.count, entry.ids) for entry in entries] == [
        ("pause", "ada", "one", 0, ()),
        ("resume", "bob", "two", 0, ()),
        ("reschedule", "ada", "three", 1, ("b",)),
        ("release", "bob", "four", 1, ("a",)),
        ("kill", "ada", "fünf ×", 2, ("a", "b")),
        ("replay", "bob", "six", 1, ("a",)),
        ("drop", "ada", "", 1, ("b",)),
        ("configure", "bob", "eight", 0, ()),
    ]
    assert entries[0].detail == entries[1].detail == ""
    assert entries[7].detail == "max_pending=5 keep_dead=60"
    moments = [entry.at for entry in entries]
    assert moments == sorted(moments)
    assert before <= moments[0]
    assert moments[-1] <= after
    assert [entry.action for entry in await box.operate.log(limit=2)] == ["configure", "drop"]


@pytest.mark.req("RO-3")
async def test_the_time_of_a_reschedule_is_recorded(box: Box):
    await box.put_many(named("a"))
    moment = await store_time(box) + timedelta(hours=1)
    await box.operate.reschedule(["a"], available_at=moment, **ADA)
    (entry,) = await box.operate.log()
    assert entry.detail == str(round(moment.timestamp() * 1000))


@pytest.mark.req("RO-3")
async def test_actions_of_relays_are_not_in_the_log(box: Box):
    claim = await put_and_claim(box)
    await box.release(claim)
    await fail(box, await claim_one(box))
    await box.ack(await claim_one(box))
    await make_dead(box, Event("n"))
    await put_and_claim(box)
    await expire(box)
    await box.sweep(keep_published=0)
    assert await box.operate.log() == []
    await box.replay(state="DEAD")
    (entry,) = await box.operate.log()
    assert (entry.action, entry.count) == ("replay", 1)
    assert entry.who, "a replay without a name is recorded under the user's"


@pytest.mark.req("RO-3")
async def test_the_log_names_the_first_twenty_and_counts_all(box: Box):
    ids = [f"e{n:02}" for n in range(25)]
    await box.put_many(named(*ids))
    await box.operate.kill(ids, **ADA)
    (entry,) = await box.operate.log()
    assert (entry.count, entry.ids) == (25, tuple(ids[:20]))


@pytest.mark.req("RO-3")
@pytest.mark.needs("server")
async def test_the_log_is_capped(box: Box):
    fill = "for n = 1, 10500 do redis.call('XADD', KEYS[1], '*', 'n', n) end return redis.call('XLEN', KEYS[1])"
    assert await box._store.exchange([("EVAL", fill, 1, keys.log(box.name))]) == [10_500]
    await box.operate.pause(**ADA)
    (length,) = await box._store.exchange([("XLEN", keys.log(box.name))])
    assert 10_000 <= length <= 10_200


@pytest.mark.req("RO-3")
async def test_an_action_needs_the_name_of_its_operator(box: Box):
    await one_in_each_state(box)
    before = await contents(box)
    operate = box.operate
    nameless: list[Callable[[], Any]] = [
        lambda: operate.kill(["pending"], who="", why="x"),
        lambda: operate.release(["claimed"], who="", why="x"),
        lambda: operate.reschedule(["pending"], who="", why="x"),
        lambda: operate.drop(["dead"], who="", why="x"),
        lambda: operate.pause(who="", why="x"),
        lambda: operate.resume(who="", why="x"),
        lambda: operate.configure(who="", why="x", max_pending=1),
        lambda: operate.reap(who="", why="x"),
        lambda: operate.sweep(who="", why="x"),
    ]
    for act in nameless:
        with pytest.raises(UsageError, match="who"):
            await act()
    for one_string in (operate.kill, operate.release, operate.reschedule, operate.drop):
        with pytest.raises(UsageError, match="list of event ids"):
            await one_string("dead", **ADA)
    assert await contents(box) == before
    assert await operate.kill([], **ADA) == []


@pytest.mark.req("RO-3")
def test_outcomes_have_reasons_in_words():
    assert {outcome.reason for outcome in Outcome} == {
        "done",
        "the claim is no longer held: it was reaped or settled, or the event was claimed again",
        "there is no such event",
        "the event is not PENDING",
        "the event is not available yet",
        "the event is not CLAIMED",
        "the event is already PUBLISHED or DEAD",
        "the event is neither PUBLISHED nor DEAD",
        "the event was claimed again after it was read",
        "the body of the event is missing, so it cannot be delivered; drop it, and put it again",
        "the event is DEAD and blocks its line",
        "the event was superseded by another event",
        "another live event holds its unique_key",
        "the event was removed from a stream's batch before the batch was read",
    }
