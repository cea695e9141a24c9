"""How a relay starts and ends: drain, run, stop, and errors that end it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from redbox import (
    Backoff,
    Box,
    BoxPaused,
    Breaker,
    Claim,
    Event,
    Reject,
    Relay,
    State,
    StoreUnavailable,
    Unavailable,
    UsageError,
)
from redbox.errors import DurabilityUnsupported
from redbox.publishers import Publisher
from redbox.relay import Circuit
from redbox.testing.plugin import new_box_name
from tests.relay.steps import LIMIT, Target, adds_up, drained, known, put, running, states, until
from tests.servers import redis_server

pytestmark = pytest.mark.timeout(30)


# --- drain -----------------------------------------------------------------------------------------------------


async def test_drain_ends_and_reports_each_outcome(box: Box):
    await put(box, 50)
    await box.put(Event("later", event_id="later", delay=3600))
    target = Target(raises=lambda event: ValueError("no") if event.event_id in ("e3", "e4") else None)
    relay = Relay(box, target, backoff=Backoff.fixed(60))
    summary = await drained(relay)
    assert (summary.claimed, summary.published, summary.retried) == (50, 48, 2)
    assert adds_up(summary)
    assert await states(box) == {State.PUBLISHED: 48, State.PENDING: 3}


async def test_drain_of_an_empty_box_ends_at_once(redbox_box: Box):
    assert await drained(Relay(redbox_box, Target())) == Relay(redbox_box, Target()).summary()


async def test_drain_makes_all_retries_that_are_due_at_once(redbox_box: Box):
    await put(redbox_box, 30)
    target = Target(raises=ValueError("no"))
    summary = await drained(Relay(redbox_box, target, attempts=3, backoff=Backoff.fixed(0), breaker=None))
    assert (summary.claimed, summary.retried, summary.dead, len(target.tried)) == (90, 60, 30, 90)
    assert adds_up(summary)


async def test_drain_first_reaps_the_claims_of_a_dead_relay(redbox_box: Box):
    await put(redbox_box, 3)
    await redbox_box.claim("dead", lease=0.001)
    await until(lambda: _overdue(redbox_box), "the leases did not end")
    assert (await drained(Relay(redbox_box, Target()))).published == 3


async def _overdue(box: Box) -> bool:
    return (await box.stats()).overdue == 3


async def test_a_paused_box_cannot_be_drained_and_says_so(redbox_box: Box):
    await put(redbox_box, 1)
    await redbox_box.operate.pause(who="ada", why="test")
    with pytest.raises(BoxPaused, match="redbox resume"):
        await drained(Relay(redbox_box, Target()))


async def test_a_box_paused_while_it_is_drained(redbox_box: Box):
    """Events in flight are finished first."""
    await put(redbox_box, 5)
    target = Target()
    target.gate.clear()
    drain = asyncio.create_task(Relay(redbox_box, target, concurrency=1).drain())
    await target.has_tried(1)
    await redbox_box.operate.pause(who="ada", why="test")
    target.gate.set()
    with pytest.raises(BoxPaused, match="redbox resume"):
        await asyncio.wait_for(drain, LIMIT)
    assert await states(redbox_box) == {State.PUBLISHED: len(target.taken), State.PENDING: 5 - len(target.taken)}


async def test_drain_ends_when_the_breaker_opens_and_a_later_one_finds_out_again(redbox_box: Box):
    await put(redbox_box, 30)
    target = Target(raises=Unavailable("down"))
    relay = Relay(redbox_box, target, concurrency=1, backoff=Backoff.fixed(0), breaker=Breaker(pause=0.05))
    summary = await drained(relay)
    assert "unavailable 5 times" in summary.open
    assert adds_up(summary)
    tried = len(target.tried)
    assert tried < 30

    target.raises = None
    breaker = relay.breaker
    assert breaker is not None
    await until(lambda: breaker.wait() == 0, "the pause did not end")
    summary = await drained(relay)
    assert (summary.open, summary.published, relay.circuit) == ("", 30, Circuit.CLOSED)


# --- run and stop ------------------------------------------------------------------------------------------------


async def test_run_until_stopped(box: Box):
    target = Target()
    async with running(relay := Relay(box, target)) as (task,):
        await put(box, 20)
        await target.has_taken(20)
        assert relay.running
        relay.stop()
        relay.stop()
        summary = await asyncio.wait_for(task, LIMIT)
    assert (summary.published, relay.running, relay.in_flight) == (20, False, 0)
    assert await states(box) == {State.PUBLISHED: 20}
    assert (await box.stats()).relays == []


async def test_stop_before_run_counts_once(redbox_box: Box):
    await put(redbox_box, 2)
    relay = Relay(redbox_box, Target())
    relay.stop()
    assert (await asyncio.wait_for(relay.run(), LIMIT)).claimed == 0
    assert (await drained(relay)).published == 2


async def test_stop_finishes_events_in_flight_and_releases_the_rest(redbox_box: Box):
    await put(redbox_box, 20)
    target = Target()
    target.gate.clear()
    relay = Relay(redbox_box, target, concurrency=5)
    async with running(relay):
        await target.has_tried(5)
        await until(lambda: relay.in_flight > 5, "nothing was claimed ahead")
        ahead = relay.in_flight - 5
        relay.stop()
        await until(lambda: relay.in_flight == 5, "what was not begun did not go back")
        target.gate.set()
    summary = relay.summary()
    assert (summary.published, summary.released, len(target.tried)) == (5, ahead, 5)
    assert adds_up(summary)
    records = [record async for record in redbox_box.list(state="PENDING")]
    assert len(records) == 15
    assert all(record.attempts == record.excused for record in records)


async def test_a_publish_that_exceeds_the_grace_time_is_excused(redbox_box: Box):
    await put(redbox_box, 1)
    target = Target()
    target.gate.clear()
    relay = Relay(redbox_box, target, grace=0.1)
    async with running(relay):
        await target.has_tried(1)
        began = time.monotonic()
    assert time.monotonic() - began < 4
    record = await known(redbox_box)
    assert (record.state, record.attempts, record.excused) == (State.PENDING, 1, 1)
    assert "stopped during the publish" in str(record.last_error)


async def test_stop_while_everything_waits_for_one_publish(redbox_box: Box):
    """To drain, for a probe, and for a suspect, the dispatcher waits until nothing is held."""
    await put(redbox_box, 1)
    target = Target()
    target.gate.clear()
    relay = Relay(redbox_box, target, grace=0.1, time_limit=None)
    drain = asyncio.create_task(relay.drain())
    await target.has_tried(1)
    relay.stop()
    summary = await asyncio.wait_for(drain, 5)
    assert (summary.retried, summary.claimed) == (1, 1)


async def test_a_rejection_that_comes_while_it_ends_counts(redbox_box: Box):
    await put(redbox_box, 2)
    target = Target(raises=lambda event: Reject("bad") if event.event_id == "e0" else None)
    target.gate.clear()
    dead_letters: list[str] = []
    relay = Relay(redbox_box, target, dead_to=lambda event: dead_letters.append(event.event_id))
    async with running(relay):
        await target.has_tried(2)
        await redbox_box.operate.release(["e1"], who="ada", why="so that no success speaks for the target")
        relay.stop()
        began = time.monotonic()
        target.gate.set()
    assert time.monotonic() - began < 4
    assert (await known(redbox_box, "e0")).state is State.DEAD
    assert dead_letters == ["e0"]


@pytest.mark.parametrize("dead_to", [None, lambda event: None])
async def test_a_rejection_while_it_ends_is_excused(redbox_box: Box, dead_to: Callable[..., None] | None):
    await put(redbox_box, 1)
    target = Target(raises=Reject("bad"))
    target.gate.clear()
    relay = Relay(redbox_box, target, dead_to=dead_to)
    async with running(relay):
        await target.has_tried(1)
        relay.stop()
        began = time.monotonic()
        target.gate.set()
    assert time.monotonic() - began < 4
    record = await known(redbox_box)
    assert (record.state, record.attempts - record.excused) == (State.PENDING, 0)
    assert (relay.summary().dead, relay.summary().retried) == (0, 1)


async def test_run_twice_at_once_is_refused(redbox_box: Box):
    target = Target()
    relay = Relay(redbox_box, target)
    async with running(relay):
        await until(lambda: relay.running, "it did not start")
        for again in (relay.run, relay.drain):
            with pytest.raises(UsageError, match="is running already"):
                await again()
        with pytest.raises(UsageError, match="is running already"):
            async with relay:
                pass
        await put(redbox_box, 1)
        await target.has_taken(1)  # and goes on
        assert relay.running


async def test_a_relay_may_be_used_again(redbox_box: Box):
    target = Target()
    relay = Relay(redbox_box, target)
    for round_ in range(1, 4):
        async with relay:
            await redbox_box.put(Event("n"))
            await target.has_taken(2 * round_ - 1)
        await redbox_box.put(Event("n"))
        assert (await drained(relay)).published == 2 * round_


async def test_a_relay_that_ended_inside_its_block_may_be_used_again(redbox_box: Box):
    relay = Relay(redbox_box, Target())
    async with relay:
        await until(lambda: relay.running, "it did not start")
        relay.stop()
        await until(lambda: not relay.running, "it did not end")
    await put(redbox_box, 1)
    assert (await drained(relay)).published == 1


async def test_its_publisher_is_closed_before_it_may_run_again(redbox_box: Box):
    from redbox.publishers.base import Publisher

    log: list[str] = []

    class Slow(Publisher):
        target = "slow"

        async def open(self, box: str) -> None:
            log.append("open")

        async def aclose(self) -> None:
            log.append("closing")
            await closing.wait()
            log.append("closed")

        async def publish(self, claim: object) -> None: ...

    closing = asyncio.Event()
    relay = Relay(redbox_box, Slow())
    first = asyncio.create_task(relay.drain())
    await until(lambda: "closing" in log, "it did not end")
    with pytest.raises(UsageError, match="is running already"):
        await relay.drain()
    closing.set()
    await first
    await drained(relay)
    assert log == ["open", "closing", "closed"] * 2


@pytest.mark.parametrize("name", ["a\nb", "x" * 256])
def test_a_name_that_cannot_be_is_refused_at_once(name: str):
    with pytest.raises(UsageError, match="give this relay a name"):
        Relay(Box.open("memory:"), Target(), name=name)


# --- what ends a relay -------------------------------------------------------------------------------------------


async def test_a_settlement_that_can_never_be_made_ends_it(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    await put(redbox_box, 1)

    async def ack(*args: object, **options: object) -> list[bool]:
        raise DurabilityUnsupported("this server keeps no append-only file")

    monkeypatch.setattr(redbox_box, "ack", ack)
    with pytest.raises(DurabilityUnsupported, match="append-only"):
        await asyncio.wait_for(Relay(redbox_box, Target(), lease=0.5).run(), 5)


async def test_a_publisher_that_cannot_be_opened_says_so(redbox_box: Box):
    from redbox.publishers.base import Publisher

    class Closed(Publisher):
        target = "closed"

        async def open(self, box: str) -> None:
            raise Unavailable("nobody there")

        async def publish(self, claim: object) -> None: ...

    for use in (Relay(redbox_box, Closed()).run, Relay(redbox_box, Closed()).drain):
        with pytest.raises(Unavailable, match="nobody there"):
            await asyncio.wait_for(use(), 5)


@pytest.mark.parametrize("store", ["redis"])
async def test_the_box_is_closed_under_it(open_box: Callable[..., Box], store: str):
    box, look = open_box(name := new_box_name()), open_box(name)
    await put(box, 2)
    target = Target()
    target.gate.clear()
    task = asyncio.create_task(Relay(box, target, poll=0.2).run())
    await target.has_tried(2)
    await box.aclose()
    with pytest.raises(UsageError, match="this box was closed"):
        await asyncio.wait_for(task, LIMIT)
    assert await states(look) == {State.CLAIMED: 2}  # until their leases end


async def test_events_claimed_ahead_are_released_when_it_is_stopped(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    """The second claim is sent while the events of the first are published; its reply comes after the stop."""
    await put(redbox_box, 20)
    claim, ahead, answer = redbox_box.claim_packed, asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **options: Any) -> Any:
        found = await claim(*args, **options)
        if found.parts[0] != b"e0":
            ahead.set()
            await answer.wait()
        return found

    monkeypatch.setattr(redbox_box, "claim_packed", slow)
    target = Target()
    relay = Relay(redbox_box, target, batch=10)
    async with running(relay):
        await target.has_taken(10)
        await asyncio.wait_for(ahead.wait(), LIMIT)
        relay.stop()
        answer.set()
    assert (relay.summary().published, relay.summary().released) == (10, 10)
    assert await states(redbox_box) == {State.PUBLISHED: 10, State.PENDING: 10}


# --- in the background -----------------------------------------------------------------------------------------


class Closed(Publisher):
    """A target that cannot be opened."""

    target = "nowhere"  # type: ignore[assignment]  # a property of the base

    async def open(self, box: str) -> None:
        raise UsageError("wrong credentials")

    async def publish(self, claim: Claim) -> None:
        raise AssertionError("it was never open")


async def test_a_block_is_not_entered_when_its_relay_cannot_begin(redbox_box: Box):
    relay = Relay(redbox_box, Closed())
    with pytest.raises(UsageError, match="wrong credentials"):
        async with relay:
            raise AssertionError("entered")
    assert not relay.running


async def test_a_relay_that_ends_in_the_background_says_so_at_once(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    relay = Relay(redbox_box, Target(), poll=0.05)

    async def block() -> None:
        async with relay:
            await redbox_box.aclose()
            await until(lambda: "has failed" in caplog.text, "nothing was logged")

    with pytest.raises(UsageError, match="closed"):
        await block()
    assert "this box was closed" in caplog.text


@pytest.mark.timeout(60)
async def test_a_drain_does_not_wait_for_ever_for_a_store_that_went_away(redbox_runner):
    with redis_server() as server:
        async with Box.open(server.url, name=new_box_name()) as box:
            await put(box, 1)
            target = Target()
            target.gate.clear()
            relay = Relay(box, target, lease=0.5)
            task = asyncio.create_task(relay.drain())
            await target.has_tried(1)
            server.stop()
            target.gate.set()
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(task, 30)
    assert target.taken == ["e0"]
