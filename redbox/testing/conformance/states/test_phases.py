"""MQ-1: the phases of events, and the statistics of a box."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from redbox import Box, Event, Phase, Settings
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.states.steps import configure, make_suspect, phases
from redbox.testing.conformance.steps import (
    claim_one,
    expire,
    fail,
    known,
    make_dead,
    publish,
    put_and_claim,
)


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
async def test_every_phase_at_once_with_waiting_events_in_their_phase(box: Box):
    await publish(box, *(Event("completed") for _ in range(6)))
    await make_dead(box, *(Event("dead") for _ in range(5)))
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
async def test_the_phases_of_stats_equal_those_of_the_records(box: Box):
    """Also for events that wait behind the head of their line, whatever happened to them."""
    await publish(box, Event("n"), Event("n", ordering_key="p"))
    dead = await make_dead(box, Event("n", ordering_key="o"), Event("n"))
    await box.put_many([Event("n", ordering_key="o", delay=delay) for delay in (0, 0, 60, 0)])
    await box.put_many([Event("n", ordering_key="p", delay=delay) for delay in (60, 60, 0)])
    await box.put_many([Event("n"), Event("n", delay=60)])
    await box.replay(dead[:1], reset=False, delay=60)  # it has attempts, and waits
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
    (dead,) = await make_dead(box, Event("dead"))
    await advance(box, hours=1)
    await publish(box, Event("completed"))
    await make_dead(box, Event("dead"))
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


@pytest.mark.req("MQ-1")
async def test_suspects_are_counted_by_phase_and_separately(box: Box):
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
async def test_a_suspect_can_be_the_next_due_event(box: Box):
    """A relay that sleeps until the next event is due must not sleep past a suspect."""
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
