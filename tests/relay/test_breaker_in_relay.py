"""A target that is down, or rejects everything, costs the backlog nothing: RF-4."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from typing import Any

import pytest

from redbox import Backoff, Box, Breaker, Event, Phase, Reject, Relay, State, Unavailable
from redbox.relay import Circuit, services
from redbox.relay.outcomes.breaker import SAMPLE
from redbox.testing import advance
from tests.relay.steps import LIMIT, Target, adds_up, drained, known, put, running, states, until

pytestmark = pytest.mark.timeout(60)
UNAUTHORIZED = Reject("the token is not valid", kind="HTTP 401", blames_target=True)
INVALID = Reject("amount is missing", kind="HTTP 422")


def brisk(**settings: Any) -> Breaker:
    """A breaker that probes all the time."""
    return Breaker(**{"pause": 0.002, "longest": 0.01, **settings})


async def counted_attempts(box: Box) -> list[int]:
    """For each event that is not settled, the attempts that count against it."""
    return [record.attempts - record.excused async for record in box.list(state="PENDING")]


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("concurrency", [1, 100])
async def test_a_target_that_is_down(redbox_box: Box, concurrency: int):
    """It stays down for many more probes than an event has attempts, and no event is marked DEAD."""
    await put(redbox_box, 1000)
    target = Target(raises=Unavailable("connection refused"))
    breaker = brisk()
    relay = Relay(redbox_box, target, attempts=3, backoff=Backoff.fixed(0.01), breaker=breaker, concurrency=concurrency)
    async with running(relay):
        await until(lambda: breaker.opened > 40, "it does not probe")
        assert relay.summary().open == "the target was unavailable 5 times in a row: connection refused"
        assert relay.summary().dead == 0
        target.raises = None
        await until(lambda: relay.summary().published == 1000, "not all were published")
        assert relay.circuit is Circuit.CLOSED
    summary = relay.summary()
    assert (summary.dead, summary.open) == (0, "")
    assert adds_up(summary)
    assert await states(redbox_box) == {State.PUBLISHED: 1000}


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("store", ["memory", "redis"])
@pytest.mark.parametrize(("error", "lost"), [(Unavailable("down"), 0), (ValueError("down"), 19)])
async def test_only_a_handful_lose_an_attempt(box: Box, store: str, error: Exception, lost: int):
    """An error that does not say that the target is down counts, until 20 events in a row have failed."""
    await put(box, 300)
    relay = Relay(box, Target(raises=error), attempts=3, breaker=Breaker(pause=60, longest=60))
    async with running(relay):
        await until(lambda: relay.circuit is Circuit.OPEN, "it did not open")
        await until(lambda: relay.in_flight == 0, "what was not begun did not go back")
        attempts = await counted_attempts(box)
    assert (len(attempts), sum(attempts)) == (300, lost)
    assert await states(box) == {State.PENDING: 300}


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("store", ["memory", "redis"])
async def test_a_target_that_rejects_everything(box: Box, store: str):
    await put(box, 300)
    target = Target(raises=UNAUTHORIZED)
    breaker = brisk()
    relay = Relay(box, target, backoff=Backoff.fixed(0.01), breaker=breaker, attempts=3)
    async with running(relay):
        await until(lambda: breaker.opened > 20, "it does not probe")
        assert relay.summary().open == "20 rejections in a row: HTTP 401"
        assert relay.summary().dead == 0
        assert sum(await counted_attempts(box)) == 0
        target.raises = None
        await until(lambda: relay.summary().published == 300, "not all were published")
    assert relay.summary().dead == 0
    assert await states(box) == {State.PUBLISHED: 300}


async def test_claims_that_arrive_after_a_series_of_failures_are_released(
    redbox_box: Box, monkeypatch: pytest.MonkeyPatch
):
    await put(redbox_box, 5)
    claim, asked, answer = redbox_box.claim_packed, asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **options: Any) -> Any:
        found = await claim(*args, **options)
        if any(part.startswith(b"late") for part in found.parts[::8]):
            asked.set()
            await answer.wait()
        return found

    monkeypatch.setattr(redbox_box, "claim_packed", slow)
    target = Target(raises=Unavailable("down"))
    target.gate.clear()
    relay = Relay(redbox_box, target, breaker=Breaker(pause=60, longest=60), backoff=Backoff.fixed(60), poll=0.05)
    async with running(relay):
        await target.has_tried(5)
        await redbox_box.put_many([Event("n", event_id=f"late{number}") for number in range(50)])
        await asyncio.wait_for(asked.wait(), LIMIT)
        target.gate.set()
        await until(lambda: relay.circuit is Circuit.PROBING, "it does not probe")
        answer.set()
        await until(lambda: relay.circuit is Circuit.OPEN, "it did not open")
        await until(lambda: relay.in_flight == 0, "they were not released")
    assert len(target.tried) <= 5 + 2 * SAMPLE
    assert relay.summary().released == 50


@pytest.mark.req("RF-4")
async def test_a_bad_event_among_good_ones_is_dead_promptly(redbox_box: Box):
    target = Target(raises=lambda event: Reject("bad") if event.event_type == "bad" else None)
    relay = Relay(redbox_box, target)
    async with running(relay):
        for number in range(5):
            await redbox_box.put_many([Event("good"), Event("bad", event_id=f"bad{number}"), Event("good")])
            await until(lambda: relay.summary().dead == number + 1, "it did not die", seconds=1.5)  # noqa: B023
    assert relay.summary().published == 10


@pytest.mark.req("RF-4")
async def test_one_success_confirms_a_rejection_while_others_are_in_flight(redbox_box: Box):
    """In a relay that is never idle, verdicts must not stay pending for ever."""
    rejected, hung = asyncio.Event(), asyncio.Event()

    async def publish(event: Event) -> None:
        if event.event_type == "bad":
            rejected.set()
            raise Reject("bad")
        await (rejected if event.event_type == "good" else hung).wait()

    await redbox_box.put_many([Event("long"), Event("good"), Event("bad")])
    relay = Relay(redbox_box, publish)
    async with running(relay):
        await until(lambda: relay.summary().dead == 1, "it did not die", seconds=5)
        assert relay.in_flight == 1
        hung.set()


@pytest.mark.req("RF-4")
async def test_a_rejected_event_alone_in_the_box_is_dead_promptly(redbox_box: Box):
    relay = Relay(redbox_box, Target(raises=Reject("bad")))
    async with running(relay):
        await put(redbox_box, 1)
        await until(lambda: relay.summary().dead == 1, "it did not die", seconds=1.5)
    assert (await known(redbox_box)).last_error == "bad"


class RejectsSome(Target):
    """Rejects the first events that it gets, and then hangs."""

    def __init__(self, count: int, error: Reject) -> None:
        super().__init__(raises=error)
        self._count, self._error = count, error
        self.rejected = asyncio.Event()  # set after the last rejection
        self.gate.clear()

    async def __call__(self, event: Event) -> None:
        if len(self.tried) >= self._count:
            await super().__call__(event)
        self.tried.append(event.event_id)
        if len(self.tried) == self._count:
            self.rejected.set()
        raise self._error


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("store", ["memory", "redis"])
@pytest.mark.parametrize("how", ["stop", "cancel"])
@pytest.mark.parametrize("error", [UNAUTHORIZED, INVALID])
async def test_stopping_a_relay_again_and_again_kills_nothing(box: Box, store: str, how: str, error: Reject):
    """The target rejects everything, and each relay ends one rejection before the breaker would have opened."""
    await put(box, 60)
    for _ in range(3):
        target = RejectsSome(19, error)
        relay = Relay(box, target, concurrency=25, backoff=Backoff.fixed(0), grace=0.01)
        task = asyncio.create_task(relay.run())
        async with asyncio.timeout(LIMIT):
            await target.rejected.wait()
            relay.stop() if how == "stop" else task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert relay.summary().dead == 0
        assert adds_up(relay.summary())
    assert await states(box) == {State.PENDING: 60}
    assert sum(await counted_attempts(box)) == 0


@pytest.mark.req("RF-4")
async def test_a_success_during_the_grace_time_still_speaks_for_the_target(redbox_box: Box):
    await redbox_box.put_many([Event("bad", event_id="e0"), Event("good", event_id="e1")])
    tried, stopped, rejected = asyncio.Semaphore(0), asyncio.Event(), asyncio.Event()

    async def publish(event: Event) -> None:
        tried.release()
        await stopped.wait()
        if event.event_type == "bad":
            rejected.set()
            raise Reject("bad")
        await rejected.wait()

    relay = Relay(redbox_box, publish)
    async with running(relay), asyncio.timeout(LIMIT):
        await tried.acquire()
        await tried.acquire()
        relay.stop()
        stopped.set()
    assert (relay.summary().published, relay.summary().dead) == (1, 1)


async def test_an_event_that_is_rejected_while_the_box_is_paused_is_retried(redbox_box: Box):
    """Nothing can be claimed that would be evidence about the target. After the pause the event is tried again, and is
    marked DEAD."""
    await put(redbox_box, 1)
    target = Target(raises=Reject("bad"))
    target.gate.clear()
    relay = Relay(redbox_box, target, poll=0.05)
    async with running(relay):
        await target.has_tried(1)
        await redbox_box.operate.pause(who="ada", why="test")
        await until(lambda: relay._engine and relay._engine.state.paused, "it does not notice the pause")
        target.gate.set()
        await until(lambda: relay.in_flight == 0, "it keeps the event")
        assert (relay.summary().dead, relay.summary().retried) == (0, 1)
        assert await counted_attempts(redbox_box) == [0]
        await redbox_box.operate.resume(who="ada", why="test")
        await until(lambda: relay.summary().dead == 1, "it did not die", seconds=5)


@pytest.mark.req("RF-4", "LM-3")
async def test_a_target_that_rejects_everything_under_a_ramp(redbox_box: Box):
    """Few events are claimed at first, but more are there: no event is marked DEAD for want of others to try."""
    await put(redbox_box, 100)
    await redbox_box.operate.resume(ramp=4, who="ada", why="test")
    breaker = Breaker(pause=60, longest=60)
    target = Target(raises=INVALID)
    relay = Relay(redbox_box, target, breaker=breaker)
    async with running(relay):
        await until(lambda: breaker.circuit is Circuit.OPEN, "the breaker does not open")
        assert len(target.tried) >= 20
        assert relay.summary().dead == 0


@pytest.mark.req("RF-4", "LM-3")
async def test_a_target_that_comes_back_under_a_ramp(redbox_box: Box):
    await put(redbox_box, 100)
    await redbox_box.operate.resume(ramp=3, who="ada", why="test")
    breaker = brisk()
    target = Target(raises=Unavailable("down"))
    relay = Relay(redbox_box, target, breaker=breaker, backoff=Backoff.fixed(0.01))
    async with running(relay):
        await until(lambda: breaker.opened > 3, "the breaker does not open")
        target.raises = None
        await until(lambda: relay.summary().published == 100, "not all were published")
    assert relay.summary().dead == 0


async def test_a_rejection_does_not_hold_up_new_events(redbox_box: Box):
    """One publish takes long, one event is rejected and its verdict is pending: a third is not delayed."""
    hung = asyncio.Event()
    tried: list[str] = []

    async def publish(event: Event) -> None:
        tried.append(event.event_type)
        if event.event_type == "long":
            await hung.wait()
        elif event.event_type == "bad":
            raise Reject("bad")
        elif event.event_type == "failing":
            raise ValueError("no")

    relay = Relay(redbox_box, publish, backoff=Backoff.fixed(60), poll=0.2)
    async with running(relay):
        await redbox_box.put_many([Event("long"), Event("bad")])
        for count in range(3, 6):
            await redbox_box.put(Event("failing"))
            await until(lambda: len(tried) == count, "an event waits for another", seconds=3)  # noqa: B023
        await redbox_box.put(Event("failing", delay=0.3))
        await until(lambda: len(tried) == 6, "a scheduled event waits for another", seconds=3)
        assert relay.summary().dead == 0
        hung.set()
        await until(lambda: relay.summary().dead == 1, "the rejected event did not die", seconds=3)


async def test_rejections_for_many_reasons_are_about_the_events(redbox_box: Box):
    await put(redbox_box, 400)
    summary = await drained(Relay(redbox_box, Target(raises=lambda event: Reject(f"bad field in {event.event_id}"))))
    assert (summary.dead, summary.open) == (400, "")


async def test_without_a_breaker_everything_is_tried_and_everything_counts(redbox_box: Box):
    await put(redbox_box, 100)
    target = Target(raises=UNAUTHORIZED)
    assert (await drained(Relay(redbox_box, target, breaker=None))).dead == 100
    await redbox_box.replay(state="DEAD")
    target.raises = Unavailable("down")
    relay = Relay(redbox_box, target, breaker=None, attempts=2, backoff=Backoff.fixed(0))
    summary = await drained(relay)
    assert (summary.retried, summary.dead, relay.circuit) == (100, 100, Circuit.CLOSED)


async def test_everyone_can_see_that_it_is_open(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "redbox.relay")
    await put(redbox_box, 30)
    target = Target(raises=Unavailable("connection refused"))
    relay = Relay(
        redbox_box, target, name="relay-1", beat_every=0.02, breaker=brisk(pause=0.3, longest=0.3), concurrency=1
    )
    async with running(relay):

        async def shown() -> bool:
            reports = (await redbox_box.stats()).relays
            return bool(reports) and (reports[0].name, reports[0].breaker) == ("relay-1", "open")

        await until(shown, "the stats do not show it")
        (report,) = (await redbox_box.stats()).relays
        assert report.reason == "the target was unavailable 5 times in a row: connection refused"
        target.raises = None
        await until(lambda: relay.circuit is Circuit.CLOSED, "it did not close")
    assert "the breaker is open, the next probe is in 0.3 s" in caplog.text
    assert "the breaker is closed" in caplog.text


async def test_a_change_of_the_breaker_is_reported_at_once(redbox_box: Box):
    """The next regular heartbeat is far away."""
    await put(redbox_box, 30)
    target = Target(raises=Unavailable("connection refused"))
    relay = Relay(redbox_box, target, beat_every=600, breaker=brisk(pause=0.3, longest=0.3), poll=0.05)

    async def shown(circuit: str) -> bool:
        return [report.breaker for report in (await redbox_box.stats()).relays] == [circuit]

    async with running(relay):
        await until(lambda: shown("open"), "it is not shown as open", seconds=5)
        target.raises = None
        await until(lambda: relay.circuit is Circuit.CLOSED, "it did not close")
        await until(lambda: shown("closed"), "it is not shown as closed", seconds=5)
        (report,) = (await redbox_box.stats()).relays
        assert report.breaker_since is None
        assert report.last_opened is not None
        assert report.last_closed is not None
        assert report.last_opened - report.last_closed >= timedelta(seconds=0.2), "its pause, less the jitter"


async def test_a_breaker_that_flaps_does_not_flood_the_store(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    await put(redbox_box, 30)
    beats, beat = 0, redbox_box.beat

    async def counting(*args: Any, **options: Any) -> Any:
        nonlocal beats
        beats += 1
        return await beat(*args, **options)

    monkeypatch.setattr(redbox_box, "beat", counting)
    breaker = brisk()
    relay = Relay(
        redbox_box, Target(raises=Unavailable("down")), beat_every=600, breaker=breaker, backoff=Backoff.fixed(0.001)
    )
    began = time.monotonic()
    async with running(relay):
        await until(lambda: breaker.opened > 50, "it does not flap")
        assert beats <= (time.monotonic() - began) / services.GAP + 2


async def test_a_probe_may_find_nothing_to_send(redbox_box: Box):
    await put(redbox_box, 5)
    target = Target(raises=Unavailable("down"))
    relay = Relay(redbox_box, target, breaker=brisk(), backoff=Backoff.fixed(3600), poll=0.05)
    async with running(relay):
        await until(lambda: relay.circuit is Circuit.PROBING, "it does not probe")
        target.raises = None
        await redbox_box.put(Event("n"))
        await until(lambda: relay.circuit is Circuit.CLOSED, "it did not close")
    assert relay.summary().published == 1


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_target_that_is_down_kills_nothing_even_with_one_attempt(redbox_box: Box, attempts: int):
    await put(redbox_box, 30)
    target = Target(raises=Unavailable("refused"))
    breaker = Breaker(pause=0.01, longest=0.02)
    relay = Relay(redbox_box, target, attempts=attempts, backoff=Backoff.fixed(0), breaker=breaker, poll=0.05)
    async with running(relay):
        await until(lambda: breaker.opened > 20, "it was not probed again and again")
        assert (await redbox_box.stats()).phases[Phase.DEAD] == 0
        target.raises = None
        await target.has_taken(30)
    assert await states(redbox_box) == {State.PUBLISHED: 30}


@pytest.mark.req("RF-4")
async def test_an_outage_that_looks_like_any_error_kills_nothing_while_the_breaker_is_open(redbox_box: Box):
    await put(redbox_box, 40)
    target = Target(raises=ValueError("some library's own way to say that it is down"))
    breaker = Breaker(failures=20, pause=0.005, longest=0.01)
    relay = Relay(redbox_box, target, attempts=3, backoff=Backoff.fixed(0), breaker=breaker, poll=0.05)
    async with running(relay):
        await until(lambda: breaker.opened > 30, "it was not probed again and again")
        assert (await redbox_box.stats()).phases[Phase.DEAD] == 0
        target.raises = None
        await target.has_taken(40)
    assert await states(redbox_box) == {State.PUBLISHED: 40}


@pytest.mark.req("RF-4")
async def test_events_reach_their_maximum_age_while_the_breaker_is_open(redbox_box: Box):
    await put(redbox_box, 30)
    target, breaker = Target(raises=Unavailable("refused")), brisk()
    relay = Relay(redbox_box, target, max_age=7200, backoff=Backoff.fixed(0.01), breaker=breaker, poll=0.05)
    async with running(relay):
        await until(lambda: breaker.opened > 5, "it does not probe")
        assert relay.summary().dead == 0
        await advance(redbox_box, hours=3)
        await until(lambda: relay.summary().dead == 30, "they do not die of age")
    assert await states(redbox_box) == {State.DEAD: 30}


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("count", [1, 2])
async def test_a_target_that_is_down_costs_no_attempt_however_few_events_there_are(redbox_box: Box, count: int):
    await put(redbox_box, count)
    target, breaker = Target(raises=Unavailable("refused")), brisk()
    relay = Relay(redbox_box, target, attempts=1, backoff=Backoff.fixed(0), breaker=breaker, poll=0.05)
    async with running(relay):
        await until(lambda: breaker.opened > 3, "it was not probed")
        assert relay.summary().dead == 0
        assert set(await counted_attempts(redbox_box)) <= {0, 1}  # 1 while an attempt is in flight
        target.raises = None
        await target.has_taken(count)
    assert await states(redbox_box) == {State.PUBLISHED: count}


@pytest.mark.req("RF-4", "PL-5")
async def test_an_event_that_crashes_its_target_is_dead_while_others_are_published(redbox_box: Box):
    await redbox_box.put(Event("n", event_id="bad"))
    fell_over = Unavailable("HTTP 503")
    target = Target(raises=lambda event: fell_over if event.event_id == "bad" else None)
    slow = asyncio.Event()

    async def publish(event: Event) -> None:
        if event.event_id == "bad":
            await slow.wait()
        await target(event)

    relay = Relay(redbox_box, publish, attempts=3, backoff=Backoff.fixed(0), poll=0.05)
    async with running(relay):
        for number in range(1, 4):
            slow.clear()
            await redbox_box.put(Event("n", event_id=f"good{number}"))
            await target.has_taken(number)
            slow.set()
            await until(lambda number=number: target.tried.count("bad") >= number, "it was not tried again")
        await until(lambda: relay.summary().dead == 1, "it does not die")
    assert await states(redbox_box) == {State.DEAD: 1, State.PUBLISHED: 3}


@pytest.mark.req("RF-4")
async def test_without_a_breaker_a_target_that_is_down_uses_up_the_attempts(redbox_box: Box):
    await put(redbox_box, 1)
    target = Target(raises=Unavailable("refused"))
    summary = await drained(Relay(redbox_box, target, attempts=3, backoff=Backoff.fixed(0), breaker=None))
    assert (summary.retried, summary.dead) == (2, 1)


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("error", [UNAUTHORIZED, INVALID])
async def test_a_suspect_in_the_backlog_does_not_decide_over_rejections_held_back(redbox_box: Box, error: Reject):
    """It is published alone, so everything else is finished first; but there are more events to try."""
    await put(redbox_box, 1)
    for relay_name in ("dead-1", "dead-2"):
        await redbox_box.claim(relay_name)
        await advance(redbox_box, hours=1)
        await redbox_box.reap()
    await redbox_box.put_many([Event("n", event_id=f"first{number}") for number in range(10)])
    await advance(redbox_box, seconds=1)
    await redbox_box.operate.reschedule(["e0"], who="ada", why="a test")
    await advance(redbox_box, seconds=1)
    await redbox_box.put_many([Event("n", event_id=f"last{number}") for number in range(50)])
    target = Target(raises=error)
    relay = Relay(
        redbox_box, target, concurrency=10, batch=10, buffer=10, breaker=Breaker(pause=3600, longest=3600)
    )  # fmt: skip
    async with running(relay):
        await until(lambda: relay.circuit is Circuit.OPEN, "it did not open")
    assert "e0" in target.tried
    assert relay.summary().dead == 0
    assert await states(redbox_box) == {State.PENDING: 61}


@pytest.mark.req("PL-5")
async def test_a_suspect_that_is_rejected_is_dead(redbox_box: Box):
    await put(redbox_box, 1)
    for relay_name in ("dead-1", "dead-2"):
        await redbox_box.claim(relay_name)
        await advance(redbox_box, hours=1)
        await redbox_box.reap()
    await redbox_box.put(Event("n", event_id="good"))
    target = Target(raises=lambda event: Reject("bad") if event.event_id == "e0" else None)
    summary = await drained(Relay(redbox_box, target))
    assert (summary.published, summary.dead) == (1, 1)
