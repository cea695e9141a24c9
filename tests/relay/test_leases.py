"""Leases: renewed while an event waits or is being published, checked before each publish, fenced when lost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest

from redbox import Backoff, Box, Breaker, Event, Reject, Relay, State, StoreUnavailable, Unavailable, keys
from redbox.relay import Circuit
from redbox.relay.services import Reaper, serve
from redbox.testing import advance
from tests.relay.steps import LIMIT, Target, adds_up, drained, known, put, running, states, until

pytestmark = pytest.mark.timeout(30)


async def suspects(box: Box, *ids: str) -> None:
    """Makes suspects of events, by expiring in company twice."""
    await box.put_many([Event("n", event_id=event_id) for event_id in ids])
    for _ in range(2):
        claims = await box.claim("dies", holding=1)
        assert {claim.event_id for claim in claims} == set(ids)
        await advance(box, minutes=1)
        await box.reap()
    assert (await box.stats()).suspects == len(ids)


async def reschedule(box: Box, delay: float, *ids: str) -> None:
    await box.operate.reschedule(ids, delay=delay, who="ada", why="test")


# --- renewal -----------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-6", "DS-1")
@pytest.mark.parametrize("store", ["memory", "redis"])
async def test_renewed_while_publishing_takes_longer_than_the_lease(box: Box, store: str):
    """Delivered exactly once, although a reaper and a second relay run."""
    await put(box, 3)
    slow, other = Target(), Target()
    slow.gate.clear()
    relay = Relay(box, slow, lease=0.3, reap_every=0.05)
    reaper = asyncio.create_task(serve(Reaper(box, every=0.05)))
    async with running(relay):
        await slow.has_tried(3)
        began = time.monotonic()
        async with running(Relay(box, other, lease=0.3, reap_every=0.05, poll=0.05)):
            await until(lambda: time.monotonic() - began > 1.5, "time stands still")
            assert (await box.stats()).overdue == 0
            slow.gate.set()
            await slow.has_taken(3)
        assert other.tried == []
    reaper.cancel()
    assert (relay.summary().published, relay.summary().fenced, len(slow.tried)) == (3, 0, 3)
    assert await states(box) == {State.PUBLISHED: 3}


async def test_renewed_while_it_waits_in_the_buffer(redbox_box: Box):
    await put(redbox_box, 2)
    slow = Target()
    slow.gate.clear()
    relay = Relay(redbox_box, slow, lease=0.3, concurrency=1)
    async with running(relay):
        await slow.has_tried(1)
        await until(lambda: relay.in_flight == 2, "the second was not claimed ahead")
        waiting = await known(redbox_box, "e1")
        assert waiting.lease_until is not None

        async def renewed() -> bool:
            lease = (await known(redbox_box, "e1")).lease_until
            assert lease is not None
            return (lease - waiting.lease_until).total_seconds() > 0.6  # type: ignore[operator]

        await until(renewed, "the lease was not renewed")
        slow.gate.set()
        await slow.has_taken(2)
    assert slow.tried == ["e0", "e1"]
    assert relay.summary().released == 0


# --- lost --------------------------------------------------------------------------------------------------------


async def test_not_published_after_its_deadline(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    async def no_answer(*args: Any, **options: Any) -> list[bool]:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(redbox_box, "renew", no_answer)
    await put(redbox_box, 2)
    slow = Target()
    slow.gate.clear()
    relay = Relay(redbox_box, slow, lease=0.2, concurrency=1, reap_every=None)
    async with running(relay):
        await slow.has_tried(1)
        await until(lambda: relay.in_flight == 2, "the second was not claimed ahead")

        async def overdue() -> bool:
            return (await redbox_box.stats()).overdue == 2

        await until(overdue, "the leases did not end")
        began = time.monotonic()
        slow.gate.set()
        await until(lambda: relay.summary().published == 2, "they were not published")
        assert time.monotonic() - began < LIMIT
    record = await known(redbox_box, "e1")
    assert [attempt.outcome for attempt in record.history][:1] == ["released"]
    assert relay.summary().released == 1
    assert adds_up(relay.summary())


@pytest.mark.req("PL-6", "PL-7")
async def test_a_lost_lease_is_fenced_and_logged(box: Box):
    """An operator takes the claims away: one is being published, one waits in the buffer."""
    await put(box, 2)
    slow = Target()
    slow.gate.clear()
    relay = Relay(box, slow, concurrency=1, lease=0.5)
    async with running(relay):
        await slow.has_tried(1)
        await until(lambda: relay.in_flight == 2, "the second was not claimed ahead")
        await box.operate.kill(["e0", "e1"], who="ada", why="not these")
        # the renewal detects the loss of the one in the buffer
        await until(lambda: all(held.lost for held in relay._engine.ledger), "it was not noticed")  # type: ignore[union-attr]
        slow.gate.set()
        await until(lambda: relay.in_flight == 0, "they were not forgotten")
    summary = relay.summary()
    assert (summary.fenced, summary.published, slow.tried) == (2, 0, ["e0"])
    assert adds_up(summary)
    assert await states(box) == {State.DEAD: 2}


async def test_an_event_whose_lease_is_lost_is_not_handed_to_the_dead_letter_target(redbox_box: Box):
    await put(redbox_box, 1)
    dead_letters = Target()
    slow = Target(raises=Reject("bad"))
    slow.gate.clear()
    relay = Relay(redbox_box, slow, dead_to=dead_letters, lease=0.3)
    async with running(relay):
        await slow.has_tried(1)
        await redbox_box.operate.release(["e0"], delay=60, who="ada", why="later")
        await until(lambda: all(held.lost for held in relay._engine.ledger), "it was not noticed")  # type: ignore[union-attr]
        slow.gate.set()
        await until(lambda: relay.summary().fenced == 1, "it was not fenced")
    assert dead_letters.tried == []
    assert (await known(redbox_box)).state is State.PENDING


# --- suspects ----------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-7")
async def test_a_suspect_is_published_alone(box: Box):
    """Everything else is finished first, and nothing else is claimed meanwhile."""
    await suspects(box, "s0", "s1")
    await reschedule(box, 3600, "s0", "s1")
    await put(box, 5)
    slow = Target()
    slow.gate.clear()
    relay = Relay(box, slow, poll=0.05)
    async with running(relay):
        await slow.has_tried(5)
        await reschedule(box, 0, "s0", "s1")
        await until(lambda: relay.in_flight == 6, "a suspect was not claimed")
        assert len(slow.tried) == 5  # it waits until the others have ended
        slow.raises = lambda event: slow.gate.clear() if event.event_id == "s0" else None  # type: ignore[func-returns-value]
        slow.gate.set()
        await until(lambda: len(slow.tried) == 7, "the suspects were not tried")
        assert slow.now == relay.in_flight == 1
        slow.gate.set()
        await slow.has_taken(7)
    assert slow.tried[5:] == ["s0", "s1"]
    assert await states(box) == {State.PUBLISHED: 7}


async def test_nothing_is_claimed_while_a_suspect_is_published(redbox_box: Box):
    await suspects(redbox_box, "s0")
    slow = Target()
    slow.gate.clear()
    relay = Relay(redbox_box, slow, poll=0.02, lease=5)
    async with running(relay):
        await slow.has_tried(1)
        await put(redbox_box, 5)
        (alone,) = await redbox_box._store.exchange([("HGET", keys.event("test", "s0"), "alone")])
        assert alone == b"1"
        before = relay.summary().claimed
        quick = Target()
        async with running(Relay(redbox_box, quick, poll=0.02)):
            await quick.has_taken(5)  # others are free to
        assert (before, relay.summary().claimed, slow.tried) == (1, 1, ["s0"])
        slow.gate.set()
        await until(lambda: relay.summary().published == 1, "the suspect was not published")
    record = await known(redbox_box, "s0")
    assert (record.state, record.expiries) == (State.PUBLISHED, 0)


async def test_stop_while_a_suspect_waits_for_the_others(redbox_box: Box):
    await suspects(redbox_box, "s0")
    await reschedule(redbox_box, 3600, "s0")
    await put(redbox_box, 1)
    slow = Target()
    slow.gate.clear()
    relay = Relay(redbox_box, slow, poll=0.02, grace=0.05)
    async with running(relay):
        await slow.has_tried(1)
        await reschedule(redbox_box, 0, "s0")
        await until(lambda: relay.in_flight == 2, "the suspect was not claimed")
    assert slow.tried == ["e0"]
    record = await known(redbox_box, "s0")
    assert (record.state, record.suspect) == (State.PENDING, True)


async def test_the_breaker_opens_while_a_suspect_waits(redbox_box: Box):
    await suspects(redbox_box, "s0")
    await reschedule(redbox_box, 3600, "s0")
    await put(redbox_box, 5)
    slow = Target(raises=Unavailable("down"))
    slow.gate.clear()
    relay = Relay(redbox_box, slow, poll=0.02, backoff=Backoff.fixed(60), breaker=Breaker(pause=60, longest=60))
    async with running(relay):
        await slow.has_tried(5)
        await reschedule(redbox_box, 0, "s0")
        await until(lambda: relay.in_flight == 6, "the suspect was not claimed")
        slow.gate.set()
        await until(lambda: relay.circuit is Circuit.OPEN, "it does not open")
        await until(lambda: relay.in_flight == 0, "they were not released")
    assert len(slow.tried) <= 6  # the suspect is all there is to probe with
    record = await known(redbox_box, "s0")
    assert (record.state, record.attempts - record.excused) == (State.PENDING, 0)


async def test_a_suspect_that_is_rejected_is_dead(redbox_box: Box):
    await suspects(redbox_box, "s0")
    assert (await drained(Relay(redbox_box, Target(raises=Reject("bad"))))).dead == 1
    assert (await known(redbox_box, "s0")).last_error == "bad"


async def test_a_suspect_that_cannot_be_marked_alone_is_released(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    await suspects(redbox_box, "s0")
    renew, refusals = redbox_box.renew, 0

    async def sometimes(*args: Any, **options: Any) -> list[bool]:
        nonlocal refusals
        if options.get("alone") and refusals < 2:
            refusals += 1
            raise StoreUnavailable("no answer")
        return await renew(*args, **options)

    monkeypatch.setattr(redbox_box, "renew", sometimes)
    target = Target()
    summary = await drained(Relay(redbox_box, target))
    assert (summary.released, summary.published, target.tried) == (2, 1, ["s0"])


async def test_suspects_follow_each_other_without_a_pause(redbox_box: Box):
    """With the default poll interval: one suspect's end is the next one's beginning."""
    ids = [f"s{number}" for number in range(20)]
    await suspects(redbox_box, *ids)
    target = Target()
    began = time.monotonic()
    async with running(Relay(redbox_box, target)):
        await target.has_taken(20)
    assert time.monotonic() - began < 10
    assert sorted(target.taken) == sorted(ids)


async def test_a_publisher_that_never_lets_go_does_not_hold_up_suspects(
    redbox_box: Box, caplog: pytest.LogCaptureFixture
):
    await suspects(redbox_box, "s0")
    await reschedule(redbox_box, 3600, "s0")
    await put(redbox_box, 1)
    released, taken = asyncio.Event(), asyncio.Event()

    async def publish(event: Event) -> None:
        if event.event_id != "e0":
            taken.set()
            return
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    relay = Relay(redbox_box, publish, time_limit=0.1, lease=2, poll=0.05, reap_every=None)
    async with running(relay):
        try:
            await until(lambda: "lease of event e0 is not renewed" in caplog.text, "nothing was logged")
            await reschedule(redbox_box, 0, "s0")
            await asyncio.wait_for(taken.wait(), LIMIT)
            assert not released.is_set()  # the first publish is still stuck
        finally:
            released.set()


@pytest.mark.req("EM-10", "PL-7")
@pytest.mark.parametrize("store", ["memory", "redis"])
async def test_an_expiry_is_excused_when_the_relay_claimed_more_meanwhile(box: Box, store: str):
    """The first one was claimed alone; the others came while it was being published."""
    target = Target()
    target.gate.clear()
    await box.put(Event("n", event_id="first"))
    async with running(Relay(box, target, reap_every=None)):
        await target.has_tried(1)
        await box.put_many([Event("n", event_id=f"later-{n}") for n in range(5)])
        await target.has_tried(6)
        await box.operate.pause(who="ada", why="nothing is claimed again")
        await advance(box, minutes=1)
        assert len(await box.reap()) == 6
        assert [record.excused async for record in box.list()] == [1] * 6
        target.gate.set()


@pytest.mark.req("EM-10", "PL-7")
async def test_an_event_that_was_claimed_while_another_was_held_is_in_company(redbox_box: Box):
    target = Target()
    target.gate.clear()
    await redbox_box.put(Event("n", event_id="first"))
    async with running(Relay(redbox_box, target, reap_every=None)):
        await target.has_tried(1)
        await redbox_box.put(Event("n", event_id="second"))
        await target.has_tried(2)
        await redbox_box.operate.pause(who="ada", why="nothing is claimed again")
        await advance(redbox_box, minutes=1)
        assert len(await redbox_box.reap()) == 2
        assert (await known(redbox_box, "second")).excused == 1
        target.gate.set()


async def test_an_expiry_counts_when_the_relay_held_nothing_else(redbox_box: Box):
    target = Target()
    target.gate.clear()
    await redbox_box.put(Event("n", event_id="first"))
    async with running(Relay(redbox_box, target, reap_every=None)):
        await target.has_tried(1)
        await redbox_box.operate.pause(who="ada", why="nothing is claimed again")
        await advance(redbox_box, minutes=1)
        assert await redbox_box.reap() == ["first"]
        assert (await known(redbox_box, "first")).excused == 0
        target.gate.set()
