"""RO-3: the log of operators' actions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from redbox import Box, Event, Outcome, keys
from redbox.errors import UsageError
from redbox.store import reads
from redbox.testing import check_invariants
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
async def test_an_action_on_many_events_is_made_in_steps_and_fully_recorded(box: Box):
    ids = [f"e{n:03}" for n in range(250)]
    await box.put_many(named(*ids))
    assert await box.operate.kill([*ids, "unknown"], **ADA) == [Outcome.OK] * 250 + [Outcome.UNKNOWN]
    entries = await box.operate.log()
    assert [entry.count for entry in entries] == [50, 100, 100]
    assert {entry.action for entry in entries} == {"kill"}
    assert (await box.replay(ids)).replayed == 250
    assert await check_invariants(box) == []


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
    assert entries[0].detail == "paused=1"
    assert entries[1].detail == "paused="
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
        "the event is DEAD and blocks its line",
        "the event was superseded by another event",
        "another live event holds its unique_key",
        "the event was removed from a stream's batch before the batch was read",
    }
