"""Events that fail must not delay the others, and a target that fails must not cost events: RF-4."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from redbox import Backoff, Box, Breaker, Event, Reject, Relay, State, Unavailable
from redbox.relay import Circuit
from redbox.testing import check_invariants
from tests.relay.steps import Target, put, running, states, until

pytestmark = pytest.mark.timeout(60)

#: Seconds between probes: longer than a test may take. What is published did not wait for one.
INTERVAL = 60.0
UNAUTHORIZED = Reject("the token is not valid", kind="HTTP 401", blames_target=True)
ERRORS: dict[str, Callable[[], Exception]] = {
    "rejected": lambda: Reject("amount must be a number", kind="HTTP 422"),
    "not processed": lambda: ValueError("amount must be a number"),
    "makes the target fall over": lambda: Unavailable("HTTP 503"),
}


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
    target = poison(ERRORS[why])
    breaker = Breaker(pause=INTERVAL, longest=INTERVAL)
    relay = Relay(redbox_box, target, concurrency=concurrency, breaker=breaker, backoff=Backoff.fixed(3600))
    async with running(relay):
        await until(lambda: len(target.taken) == 30, "the good events wait")
        assert breaker.opened == 0
    assert await check_invariants(redbox_box) == []


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("concurrency", [1, 100])
@pytest.mark.parametrize("good", [1, 10, 300])
@pytest.mark.parametrize("why", ["rejected", "not processed"])
async def test_poison_among_good_events_in_any_order(redbox_box: Box, why: str, good: int, concurrency: int):
    await put_mixed(redbox_box, 400, good, "shuffled")
    target = poison(ERRORS[why])
    breaker = Breaker(pause=INTERVAL, longest=INTERVAL)
    relay = Relay(redbox_box, target, concurrency=concurrency, breaker=breaker, backoff=Backoff.fixed(3600))
    async with running(relay):
        await until(lambda: len(target.taken) == good, "the good events wait")
        assert breaker.opened == 0


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("store", ["memory", "redis"])
async def test_poison_ages_out_once_the_target_has_taken_an_event(box: Box, store: str):
    await put_mixed(box, 100, 5, "poison first")
    relay = Relay(box, poison(ERRORS["rejected"]), breaker=Breaker(pause=0.05, longest=0.1))
    async with running(relay):
        await until(lambda: relay.summary().dead == 100, "the rejected events do not die")
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
    """All that waits is poison: the breaker opens. The probes try the newest event too."""
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
    """What was isolated for one reason counts again for another."""
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
async def test_of_events_rejected_for_their_own_sake_each_probe_lets_one_die(redbox_box: Box):
    """A box that holds nothing else must not stay as it is for ever; a bad deploy must not empty it at once."""
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
    relay = Relay(redbox_box, target, backoff=Backoff.fixed(0.2), poll=0.05)
    async with running(relay):
        await redbox_box.put(Event("n", event_id="bad"))
        await until(lambda: relay.summary().retried >= 1, "it was not returned")
        assert relay.summary().dead == 0
        await redbox_box.put(Event("n", event_id="good"))
        await until(lambda: relay.summary().dead == 1, "it never dies")
    assert await states(redbox_box) == {State.DEAD: 1, State.PUBLISHED: 1}
