"""Events that fail must not delay the others, and a target that fails must not cost events: RF-4."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from redbox import Backoff, Box, Breaker, Event, Reject, Relay, State, Unavailable
from redbox.relay import Circuit
from redbox.relay.outcomes.breaker import SAMPLE
from redbox.testing import advance, check_invariants
from tests.relay.steps import LIMIT, Target, drained, known, put, running, states, until

pytestmark = pytest.mark.timeout(60)

#: Seconds between probes, longer than a test may take: published events did not wait for one.
INTERVAL = 60.0
UNAUTHORIZED = Reject("the token is not valid", kind="HTTP 401", blames_target=True)
ERRORS: dict[str, Callable[[], Exception]] = {
    "rejected": lambda: Reject("amount must be a number", kind="HTTP 422"),
    "not processed": lambda: ValueError("amount must be a number"),
    "makes the target fall over": lambda: Unavailable("HTTP 503"),
}


class Watched:
    """A target that records how often the breaker had opened when each event was taken. Once only bad events are left,
    it opens, rightly."""

    def __init__(self, target: Target, breaker: Breaker) -> None:
        self.target, self.breaker = target, breaker
        self.opened: list[int] = []

    async def __call__(self, event: Event) -> None:
        await self.target(event)
        self.opened.append(self.breaker.opened)

    async def took_without_an_opening(self, count: int) -> None:
        await until(lambda: len(self.opened) == count, "the good events wait")
        assert set(self.opened) == {0}


def poison(error: Callable[[], Exception]) -> Target:
    return Target(raises=lambda event: error() if event.event_id.startswith("bad") else None)


async def put_mixed(box: Box, bad: int, good: int, order: str, *, good_type: str = "n") -> None:
    events = [Event("n", event_id=f"bad{number}") for number in range(bad)]
    others = [Event(good_type, event_id=f"good{number}") for number in range(good)]
    if order == "poison first":
        events += others
    else:
        places = [*events, *others]
        random.Random(7).shuffle(places)
        events = places
    for first in range(0, len(events), 50):
        await box.put_many(events[first : first + 50])


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("concurrency", [1, 7, 100])
@pytest.mark.parametrize("bad", [1, 5, 20, 60, 500])
@pytest.mark.parametrize("why", ERRORS)
async def test_poison_in_front_delays_good_events_by_at_most_one_probe_interval(
    redbox_box: Box, why: str, bad: int, concurrency: int
):
    await put_mixed(redbox_box, bad, 30, "poison first")
    breaker = Breaker(pause=INTERVAL, longest=INTERVAL)
    target = Watched(poison(ERRORS[why]), breaker)
    relay = Relay(redbox_box, target, concurrency=concurrency, breaker=breaker, backoff=Backoff.fixed(3600))
    async with running(relay):
        await target.took_without_an_opening(30)
    assert await check_invariants(redbox_box) == []


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("concurrency", [1, 100])
@pytest.mark.parametrize("good", [1, 10, 300])
@pytest.mark.parametrize("why", ["rejected", "not processed"])
async def test_poison_among_good_events_in_any_order(redbox_box: Box, why: str, good: int, concurrency: int):
    await put_mixed(redbox_box, 400, good, "shuffled")
    breaker = Breaker(pause=INTERVAL, longest=INTERVAL)
    target = Watched(poison(ERRORS[why]), breaker)
    relay = Relay(redbox_box, target, concurrency=concurrency, breaker=breaker, backoff=Backoff.fixed(3600))
    async with running(relay):
        await target.took_without_an_opening(good)


@pytest.mark.campaign
@pytest.mark.req("RF-4")
@pytest.mark.parametrize("store", ["memory", "redis"])
async def test_poison_ages_out_once_the_target_has_taken_an_event(box: Box, store: str):
    await put_mixed(box, 100, 5, "poison first")
    relay = Relay(box, poison(ERRORS["rejected"]), breaker=Breaker(pause=0.05, longest=0.1))
    async with running(relay):
        await until(lambda: relay.summary().dead == 100, "the rejected events do not die")
        await until(lambda: relay.summary().published == 5, "the others are not published")
    assert await states(box) == {State.DEAD: 100, State.PUBLISHED: 5}


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("store", ["memory", "redis"])
@pytest.mark.parametrize("count", [1, 2, 19, 20, 21, 300])
@pytest.mark.parametrize("concurrency", [1, 100])
@pytest.mark.parametrize("error", [Unavailable("refused"), UNAUTHORIZED], ids=["down", "401"])
async def test_a_target_that_takes_nothing_kills_nothing_however_few_events_there_are(
    box: Box, store: str, count: int, concurrency: int, error: Exception
):
    await put(box, count)
    target = Target(raises=error)
    breaker = Breaker(pause=0.005, longest=0.01)
    relay = Relay(
        box, target, attempts=2, backoff=Backoff.fixed(0.001), breaker=breaker, concurrency=concurrency, poll=0.05
    )
    async with running(relay):
        await until(lambda: breaker.opened > 10, "it does not probe")
        assert relay.summary().dead == 0
        target.raises = None
        await target.has_taken(count)
    assert relay.summary().dead == 0
    assert await states(box) == {State.PUBLISHED: count}


@pytest.mark.req("RF-4")
async def test_events_that_arrive_while_it_is_open_wait_for_one_probe(redbox_box: Box):
    """All available events are poison: the breaker opens. The probes try the newest event too."""
    await put_mixed(redbox_box, 600, 0, "poison first")
    target = poison(ERRORS["not processed"])
    breaker = Breaker(pause=0.2, longest=0.2)
    relay = Relay(redbox_box, target, breaker=breaker, backoff=Backoff.fixed(0.001), concurrency=10)
    async with running(relay):
        await until(lambda: breaker.opened >= 3, "it does not open")
        await redbox_box.put(Event("n", event_id="good"))
        opened = breaker.opened
        await until(lambda: target.taken, "the good event waits")
        assert breaker.opened <= opened + 1


@pytest.mark.req("RF-4")
async def test_a_type_that_keeps_failing_does_not_open_the_breaker_for_the_others(redbox_box: Box):
    """Good events come one at a time, with more than 20 failures between them."""
    target = Target(raises=lambda event: ValueError("broken") if event.event_type == "bad" else None)
    breaker = Breaker(pause=60, longest=60)
    relay = Relay(redbox_box, target, breaker=breaker, backoff=Backoff.fixed(3600), poll=0.05)
    async with running(relay):
        for turn in range(5):
            bad = [Event("bad", event_id=f"bad{turn}-{number}") for number in range(60)]
            await redbox_box.put_many([*bad, Event("good", event_id=f"good{turn}")])
            await until(lambda: len(target.taken) == turn + 1, "a good event waits")  # noqa: B023
            await target.has_tried(61 * (turn + 1))
        await redbox_box.put_many([Event("bad", event_id=f"more{number}") for number in range(100)])
        await target.has_tried(61 * 5 + 100)
        assert (breaker.opened, relay.circuit) == (0, Circuit.CLOSED)


@pytest.mark.req("RF-4")
async def test_a_failing_type_says_nothing_once_the_target_is_down(redbox_box: Box):
    """A type that is isolated for one reason counts again for another."""
    errors: dict[str, Any] = {"bad": ValueError("broken")}
    target = Target(raises=lambda event: errors.get(event.event_type))
    breaker = Breaker(pause=60, longest=60)
    relay = Relay(redbox_box, target, breaker=breaker, backoff=Backoff.fixed(3600), poll=0.05)
    async with running(relay):
        await redbox_box.put_many([*(Event("bad") for _ in range(60)), Event("good")])
        await target.has_tried(61)
        errors["bad"] = Unavailable("refused")
        await redbox_box.put_many([Event("bad") for _ in range(10)])
        await until(lambda: relay.circuit is Circuit.OPEN, "it does not open")
    assert relay.summary().dead == 0


@pytest.mark.req("RF-4")
async def test_each_probe_kills_one_event_that_was_rejected_for_its_own_sake(redbox_box: Box):
    """A box that holds nothing else must make progress; a bad deploy must not empty it at once."""
    await put(redbox_box, 40)
    breaker = Breaker(pause=0.01, longest=0.02)
    relay = Relay(redbox_box, Target(raises=ERRORS["rejected"]()), breaker=breaker, backoff=Backoff.fixed(0.001))
    async with running(relay):
        await until(lambda: relay.summary().dead == 5, "none of them dies")
        assert breaker.opened >= 5
        await until(lambda: relay.summary().dead == 40, "some of them never die")


@pytest.mark.req("RF-4")
async def test_a_rejection_that_blames_the_target_counts_once_the_target_took_another_event(redbox_box: Box):
    """HTTP 404 for one event alone, in a box with little traffic."""
    target = Target(raises=lambda event: UNAUTHORIZED if event.event_id == "bad" else None)
    relay = Relay(redbox_box, target, backoff=Backoff.fixed(0.1), attempts=2, poll=0.05)
    async with running(relay):
        await redbox_box.put(Event("n", event_id="bad"))
        await until(lambda: relay.summary().retried >= 1, "it was not returned")
        assert relay.summary().dead == 0
        await redbox_box.put(Event("n", event_id="good"))
        await until(lambda: relay.summary().dead == 1, "it never dies")
    assert await states(redbox_box) == {State.DEAD: 1, State.PUBLISHED: 1}


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("error", [Unavailable("refused"), UNAUTHORIZED], ids=["down", "401"])
async def test_a_short_outage_kills_nothing(redbox_box: Box, error: Exception):
    """Events fail, others get through right after: the target was to blame when they failed."""
    await put(redbox_box, 300)
    tried = 0

    async def publish(event: Event) -> None:
        nonlocal tried
        tried += 1
        await asyncio.sleep(0)
        if tried < 60:
            raise error

    breaker = Breaker(pause=0.02, longest=0.02)
    relay = Relay(redbox_box, publish, attempts=1, concurrency=50, backoff=Backoff.fixed(0.01), breaker=breaker)
    async with running(relay):
        await until(lambda: relay.summary().published == 300, "not all are published")
        assert breaker.isolated == frozenset()
    assert relay.summary().dead == 0


@pytest.mark.req("RF-4")
async def test_a_success_before_the_attempt_does_not_speak_against_the_event(redbox_box: Box):
    """It was claimed before the target went down, and tried after."""
    await put(redbox_box, 6)
    target = Target(raises=lambda event: None if event.event_id in ("e0", "e1", "e2") else Unavailable("refused"))
    relay = Relay(redbox_box, target, attempts=1, concurrency=1, backoff=Backoff.fixed(3600))
    async with running(relay):
        await target.has_tried(6)
        await until(lambda: relay.summary().retried == 3, "they were not returned")
    assert await states(redbox_box) == {State.PUBLISHED: 3, State.PENDING: 3}


@pytest.mark.req("RF-4")
async def test_an_instance_that_answers_401_does_not_kill_while_the_other_one_works(redbox_box: Box):
    """A rolling deploy: every second request is refused for some time."""
    await put(redbox_box, 200)
    tried = 0

    async def publish(event: Event) -> None:
        nonlocal tried
        tried += 1
        await asyncio.sleep(0)
        if tried < 400 and tried % 2:
            raise UNAUTHORIZED

    breaker = Breaker(pause=0.01, longest=0.05)  # it may open: when refusals follow each other depends on timing
    relay = Relay(redbox_box, publish, backoff=Backoff.fixed(0.01), attempts=10, breaker=breaker)
    async with running(relay):
        await until(lambda: relay.summary().published == 200, "not all are published")
    assert relay.summary().dead == 0


@pytest.mark.campaign
@pytest.mark.req("RF-4")
async def test_many_events_that_the_target_does_not_know_are_dead_after_their_attempts(redbox_box: Box):
    await put_mixed(redbox_box, 1500, 50, "shuffled")
    target = Target(raises=lambda event: UNAUTHORIZED if event.event_id.startswith("bad") else None)
    relay = Relay(
        redbox_box, target, attempts=2, backoff=Backoff.fixed(0.01), breaker=Breaker(pause=0.01, longest=0.02)
    )
    feeding = True

    async def feed() -> None:
        while feeding:
            await redbox_box.put(Event("n"))
            await asyncio.sleep(0.02)

    async with running(relay):
        feeder = asyncio.create_task(feed())
        try:
            await until(lambda: relay.summary().dead == 1500, "they never die", seconds=50)
        finally:
            feeding = False
            await feeder
        tries = [target.tried.count(f"bad{number}") for number in range(0, 1500, 100)]
        assert max(tries) < 50


@pytest.mark.req("RF-4")
async def test_an_event_that_was_delivered_begins_anew_when_it_is_replayed(redbox_box: Box):
    errors: list[Exception] = [UNAUTHORIZED]
    target = Target(raises=lambda event: errors[0] if event.event_id == "e0" and errors else None)
    relay = Relay(redbox_box, target, backoff=Backoff.fixed(0.05), attempts=1, poll=0.05)
    async with running(relay):
        await put(redbox_box, 1)
        await until(lambda: relay.summary().retried >= 1, "it was not returned")
        errors.clear()
        await target.has_taken(1)
        await until(lambda: relay.summary().published == 1, "it was not published")
        before = relay.summary().retried
        errors.append(UNAUTHORIZED)
        await redbox_box.replay(["e0"])
        await until(lambda: relay.summary().retried > before, "it was not returned")
        assert relay.summary().dead == 0


@pytest.mark.req("RF-4")
async def test_a_slow_target_that_refuses_most_events_still_gets_the_good_one(redbox_box: Box):
    """In the middle of the bad ones, where neither the oldest nor the newest event helps."""
    bad = [Event("n", event_id=f"bad{number}") for number in range(300)]
    await redbox_box.put_many([*bad[:150], Event("n", event_id="good"), *bad[150:]])
    taken = asyncio.Event()

    async def publish(event: Event) -> None:
        await asyncio.sleep(0.02)
        if event.event_id != "good":
            raise Reject("amount must be a number", kind="HTTP 422")
        taken.set()

    breaker = Breaker(pause=1, longest=60)
    relay = Relay(redbox_box, publish, concurrency=10, breaker=breaker, backoff=Backoff.fixed(3600))
    async with running(relay), asyncio.timeout(20):
        await taken.wait()


@pytest.mark.req("RF-4")
async def test_events_that_are_too_old_do_not_fail_a_probe(redbox_box: Box):
    """After an outage longer than their maximum age, they are marked DEAD at once, and new events are delivered."""
    await put(redbox_box, 100)
    target, breaker = Target(raises=Unavailable("refused")), Breaker(pause=0.3, longest=60)
    relay = Relay(redbox_box, target, max_age=7200, backoff=Backoff.fixed(0.01), breaker=breaker, poll=0.05)
    async with running(relay):
        await until(lambda: relay.circuit is Circuit.OPEN, "it does not open")
        await advance(redbox_box, hours=3)
        target.raises = None
        await redbox_box.put(Event("n", event_id="new"))
        await until(lambda: relay.summary().dead == 100, "they do not die", seconds=5)
        await target.has_taken(1)
    assert (await known(redbox_box, "new")).state is State.PUBLISHED


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("left", [0, 3], ids=["nothing left", "scheduled events left"])
async def test_a_drain_ends_although_the_breaker_was_open_before_it(redbox_box: Box, left: int):
    await put(redbox_box, 10)
    target, breaker = Target(raises=Unavailable("refused")), Breaker(pause=0.01, longest=0.01)
    relay = Relay(redbox_box, target, backoff=Backoff.fixed(3600), breaker=breaker)
    assert (await drained(relay)).open
    await until(lambda: breaker.wait() == 0, "the pause did not end")
    if not left:
        await redbox_box.operate.kill([f"e{number}" for number in range(10)], who="ada", why="a test")
    await drained(relay)


@pytest.mark.req("RF-4")
async def test_a_pause_of_the_box_in_the_middle_of_a_doubt_does_not_open_the_breaker(redbox_box: Box):
    await put(redbox_box, 30)
    target, breaker = Target(raises=ValueError("broken")), Breaker(failures=5, pause=60, longest=60)
    target.gate.clear()
    relay = Relay(
        redbox_box, target, concurrency=5, batch=5, buffer=5, breaker=breaker, backoff=Backoff.fixed(0.01), poll=0.05
    )
    async with running(relay):
        await target.has_tried(5)
        await redbox_box.operate.pause(who="ada", why="a test")
        target.gate.set()
        await until(lambda: relay.in_flight == 0, "it keeps events although the box is paused")
        assert relay.circuit is Circuit.CLOSED
        target.raises = None
        await redbox_box.operate.resume(who="ada", why="a test")
        await target.has_taken(30)
    assert breaker.opened == 0


@pytest.mark.req("RF-3", "RF-4")
@pytest.mark.parametrize("concurrency", [2, 10])
async def test_a_dead_letter_target_that_hangs_does_not_starve_the_main_one(redbox_box: Box, concurrency: int):
    await put_mixed(redbox_box, 40, 1, "poison first")
    hung = asyncio.Event()

    async def bury(event: Event) -> None:
        await hung.wait()

    target = poison(ERRORS["rejected"])
    relay = Relay(
        redbox_box,
        target,
        dead_to=bury,
        concurrency=concurrency,
        time_limit=1.0,
        backoff=Backoff.fixed(3600),
        poll=0.05,
    )
    async with running(relay):
        await target.has_taken(1)
        await redbox_box.put_many([Event("n", event_id=f"good-later{number}") for number in range(5)])
        await until(lambda: len(target.taken) == 6, "the dead-letter target holds up the main one", seconds=8)
        hung.set()


@pytest.mark.req("RF-3")
async def test_a_dead_letter_target_that_is_down_is_not_asked_all_the_time(redbox_box: Box):
    """Retries without a delay are for the main target."""
    await put(redbox_box, 2)
    asked = 0

    async def bury(event: Event) -> None:
        nonlocal asked
        asked += 1
        raise Unavailable("refused")

    relay = Relay(redbox_box, Target(raises=Reject("bad")), dead_to=bury, attempts=2, backoff=Backoff.fixed(0))
    summary = await drained(relay)
    assert (summary.dead, asked) == (0, 2)
    assert await states(redbox_box) == {State.PENDING: 2}


@pytest.mark.req("RF-3")
async def test_a_relay_stops_in_time_although_its_dead_letter_target_hangs(redbox_box: Box):
    await put(redbox_box, 40)
    began = asyncio.Event()

    async def bury(event: Event) -> None:
        began.set()
        await asyncio.sleep(3600)

    relay = Relay(redbox_box, Target(raises=Reject("bad")), dead_to=bury, concurrency=4, grace=0.05, breaker=None)
    task = asyncio.create_task(relay.run())
    async with asyncio.timeout(3):  # less than the time for settling, which nothing has to wait for
        await began.wait()
        relay.stop()
        await task
    assert await states(redbox_box) == {State.PENDING: 40}


@pytest.mark.req("RF-4")
async def test_a_probe_that_fills_the_buffer_ends(redbox_box: Box):
    """Events with pending verdicts use up the bytes that a relay may hold: then no larger sample is possible."""
    await redbox_box.put_many([Event("n", b"x" * 1000, event_id=f"e{number}") for number in range(60)])
    target = Target(raises=ValueError("broken"))
    breaker = Breaker(failures=5, pause=0.02, longest=0.02)
    relay = Relay(redbox_box, target, breaker=breaker, buffer_bytes=12_000, backoff=Backoff.fixed(0.01), poll=0.05)
    async with running(relay):
        await until(lambda: breaker.opened > 5, "it does not go on probing")
        target.raises = None
        await target.has_taken(60)
    assert await states(redbox_box) == {State.PUBLISHED: 60}


@pytest.mark.req("RF-4")
async def test_an_event_that_fails_late_is_returned_although_nothing_is_left_to_probe_with(redbox_box: Box):
    await put(redbox_box, 6)
    late = asyncio.Event()

    async def publish(event: Event) -> None:
        if event.event_id == "e0":
            await late.wait()
            raise ValueError("late")
        raise Unavailable("refused")

    breaker = Breaker(pause=0.01, longest=0.01)
    relay = Relay(redbox_box, publish, breaker=breaker, backoff=Backoff.fixed(3600), poll=0.05)
    async with running(relay):
        await until(lambda: breaker.opened >= 1 and relay.circuit is Circuit.PROBING, "it does not probe")
        late.set()
        await until(lambda: relay.in_flight == 0, "it keeps the event")
    assert await states(redbox_box) == {State.PENDING: 6}


@pytest.mark.req("RF-4")
async def test_a_target_that_hangs_gets_one_sample(redbox_box: Box):
    await put(redbox_box, 200)
    begun = 0

    async def publish(event: Event) -> None:
        nonlocal begun
        begun += 1
        if begun > 20:
            await asyncio.sleep(3600)
        raise ValueError("broken")

    breaker = Breaker(pause=0.02, longest=60)
    relay = Relay(redbox_box, publish, breaker=breaker, concurrency=50, batch=20, buffer=20, grace=0.01, poll=0.05)
    async with running(relay):
        await until(lambda: breaker.opened == 1, "it does not open")
        assert begun <= 20 + 20 + 2 * SAMPLE


async def test_a_doubt_does_not_outlive_its_run(redbox_box: Box):
    await put(redbox_box, 30)
    target, breaker = Target(raises=ValueError("broken")), Breaker(failures=5, pause=60, longest=60)
    target.gate.clear()
    relay = Relay(redbox_box, target, breaker=breaker, concurrency=10, batch=10, buffer=10, grace=0.01, poll=0.05)
    task = asyncio.create_task(relay.run())
    await target.has_tried(10)
    breaker._doubt("five events in a row failed")
    relay.stop()
    await asyncio.wait_for(task, LIMIT)
    target.raises = None
    target.gate.set()
    async with running(relay):
        await target.has_taken(30)
    assert breaker.opened == 0


@pytest.mark.req("RF-4")
async def test_the_end_of_an_outage_kills_no_event_that_was_refused_before(redbox_box: Box):
    """The target comes back in the middle of a probe: some of its events were refused a moment ago."""
    await put(redbox_box, 30)
    breaker, refused_in_probe = Breaker(pause=0.05, longest=60), 0

    async def publish(event: Event) -> None:
        nonlocal refused_in_probe
        if breaker.opened and refused_in_probe >= 3:
            return
        refused_in_probe += breaker.opened
        raise Reject("amount must be a number", kind="HTTP 422")

    relay = Relay(redbox_box, publish, breaker=breaker, backoff=Backoff.fixed(0.01), poll=0.05)
    async with running(relay):
        await until(lambda: relay.summary().published == 30, "not all are published")
    assert (relay.summary().dead, breaker.opened) == (0, 1)
