"""The outcomes of an event: published, retried or dead; in which order, and how many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from redbox import Backoff, Box, Claim, Event, Phase, Reject, Relay, RetryLater, State, Unavailable
from redbox.testing import advance
from tests.relay.steps import Target, adds_up, drained, in_order, known, put, running, states, until

pytestmark = pytest.mark.timeout(60)


# --- outcomes ----------------------------------------------------------------------------------------------------


@pytest.mark.req("PC-1")
async def test_published_when_the_publisher_returns(box: Box):
    await put(box, 3)
    summary = await drained(Relay(box, Target(), name="relay-1"))
    assert summary.published == summary.claimed == 3
    record = await known(box)
    assert (record.state, record.published_by, record.attempts) == (State.PUBLISHED, "relay-1", 1)


@pytest.mark.req("RF-1", "PC-4")
async def test_again_after_the_backoff(box: Box):
    await put(box, 1)
    target = Target(raises=ValueError("no such table"))
    relay = Relay(box, target, backoff=Backoff.exponential(100, cap=1000, jitter=False))
    for failures, delay in ((1, 100), (2, 200), (3, 400)):
        await drained(relay)
        record = await known(box)
        wait = record.available_at - (await box.stats()).at
        assert timedelta(seconds=delay - 15) < wait <= timedelta(seconds=delay)
        assert (record.phase, record.attempts, len(target.tried)) == (Phase.RETRY_SCHEDULED, failures, failures)
        assert record.last_error == "ValueError: no such table"
        await advance(box, seconds=delay)
    target.raises = None
    assert (await drained(relay)).published == 1


@pytest.mark.req("RF-1")
async def test_another_event_is_published_during_a_back_off(box: Box):
    """The only worker is free again as soon as the attempt has failed."""
    await put(box, 2)
    target = Target(raises=lambda event: ValueError("no") if event.event_id == "e0" else None)
    async with running(Relay(box, target, concurrency=1, backoff=Backoff.fixed(3600))):
        await target.has_taken(1)
    assert (target.tried, target.taken) == (["e0", "e1"], ["e1"])
    assert (await known(box)).phase == Phase.RETRY_SCHEDULED


@pytest.mark.req("PC-4")
async def test_not_before_the_target_wants_it(redbox_box: Box):
    await put(redbox_box, 1)
    await drained(Relay(redbox_box, Target(raises=RetryLater(500, "busy")), backoff=Backoff.fixed(0)))
    record = await known(redbox_box)
    assert record.available_at - (await redbox_box.stats()).at > timedelta(seconds=490)
    assert (record.last_error, record.attempts) == ("busy", 1)


@pytest.mark.req("PC-4")
async def test_a_target_that_is_down_may_say_for_how_long(redbox_box: Box):
    """As a 503 with Retry-After does. The longer of its delay and the backoff counts."""
    for number, (asked, backoff) in enumerate(((500, 0), (0, 500))):
        await redbox_box.put(Event("n", event_id=f"e{number}"))
        target = Target(raises=Unavailable("down", delay=asked))
        await drained(Relay(redbox_box, target, backoff=Backoff.fixed(backoff), attempts=3))
        record = await known(redbox_box, f"e{number}")
        assert record.available_at - (await redbox_box.stats()).at > timedelta(seconds=490)
        assert (record.last_error, record.attempts) == ("down", 1)


@pytest.mark.req("PC-4")
async def test_a_rejected_event_is_dead(box: Box):
    await put(box, 3)
    target = Target(raises=lambda event: Reject("bad field") if event.event_id == "e1" else None)
    summary = await drained(Relay(box, target))
    assert (summary.published, summary.dead, len(target.tried)) == (2, 1, 3)
    record = await known(box, "e1")
    assert (record.state, record.last_error) == (State.DEAD, "bad field")
    assert await states(box) == {State.PUBLISHED: 2, State.DEAD: 1}


@pytest.mark.req("RF-2")
async def test_three_attempts_every_ten_minutes(redbox_box: Box):
    await put(redbox_box, 1)
    target = Target(raises=ValueError("no"))
    relay = Relay(redbox_box, target, attempts=3, backoff=Backoff.fixed(timedelta(minutes=10)))  # the one line
    for attempt in (1, 2, 3):
        await drained(relay)
        assert len(target.tried) == attempt
        await advance(redbox_box, minutes=9)
        await drained(relay)
        assert len(target.tried) == attempt
        await advance(redbox_box, minutes=1)
    record = await known(redbox_box)
    assert (record.state, record.last_error, record.attempts) == (State.DEAD, "ValueError: no", 3)


@pytest.mark.req("RF-2", "RF-3")
async def test_all_retries_at_once_then_another_way(redbox_box: Box):
    await put(redbox_box, 1)
    target, other = Target(raises=ValueError("no")), Target()
    summary = await drained(Relay(redbox_box, target, attempts=3, backoff=Backoff.fixed(0), dead_to=other))
    assert (target.tried, other.taken, summary.dead) == (["e0"] * 3, ["e0"], 1)


@pytest.mark.req("PL-5")
async def test_an_event_is_dead_after_its_last_attempt_and_not_a_claim_later(redbox_box: Box):
    await put(redbox_box, 1)
    summary = await drained(Relay(redbox_box, Target(raises=ValueError("last words")), attempts=1))
    assert (summary.claimed, summary.dead) == (1, 1)
    assert (await known(redbox_box)).last_error == "ValueError: last words"


@pytest.mark.parametrize("dead_to", [False, True])
async def test_an_event_whose_attempts_are_used_up_already_is_not_published(redbox_box: Box, dead_to: bool):
    await put(redbox_box, 1)
    failing = Target(raises=ValueError("no"))
    await drained(Relay(redbox_box, failing, attempts=3, backoff=Backoff.fixed(0.001), breaker=None))
    await redbox_box.replay(["e0"], reset=False)
    target, other = Target(), Target()
    summary = await drained(Relay(redbox_box, target, attempts=2, dead_to=other if dead_to else None))
    assert (summary.dead, target.tried, other.taken) == (1, [], ["e0"] if dead_to else [])
    record = await known(redbox_box)
    assert (record.state, record.last_error) == (State.DEAD, "ValueError: no")


async def test_expiries_alone_use_up_attempts(redbox_box: Box):
    await put(redbox_box, 1)
    for _ in range(3):
        await redbox_box.claim("dies", attempts=3)
        await advance(redbox_box, minutes=1)
        await redbox_box.reap()
    target = Target()
    assert (await drained(Relay(redbox_box, target, attempts=3))).dead == 1
    assert target.tried == []


@pytest.mark.req("PL-5")
@pytest.mark.parametrize("when", ["put", "scheduled", "replayed", "retried"])
async def test_too_old(redbox_box: Box, when: str):
    """The age counts from when it was due: put, scheduled for, or replayed."""
    box, target = redbox_box, Target()
    relay = Relay(box, target, max_age=60)
    await box.put(Event("n", event_id="e0", delay=3600 if when == "scheduled" else 0))
    if when == "scheduled":
        await advance(box, hours=1)
    elif when == "replayed":
        await box.kill(await box.claim("other"))
        await advance(box, hours=1)
        await box.replay(["e0"])
    elif when == "retried":
        await box.retry(await box.claim("other"), delay=59)
    await advance(box, seconds=55)
    if when != "retried":
        assert (await drained(relay)).published == 1
        return
    await advance(box, seconds=6)
    assert (await drained(relay)).dead == 1
    record = await known(box)
    assert (record.state, target.tried) == (State.DEAD, [])
    assert "not published within 60 s" in str(record.last_error)


@pytest.mark.parametrize("when", ["scheduled", "replayed"])
async def test_too_old_for_all_that(redbox_box: Box, when: str):
    box, target = redbox_box, Target()
    await box.put(Event("n", event_id="e0", delay=3600 if when == "scheduled" else 0))
    if when == "replayed":
        await box.kill(await box.claim("other"))
        await box.replay(["e0"])
    await advance(box, hours=1, seconds=61 if when == "scheduled" else 0)
    assert (await drained(Relay(box, target, max_age=60))).dead == 1


@pytest.mark.req("RF-3")
async def test_removed_on_success_or_when_dead(box: Box):
    await put(box, 4)
    target = Target(raises=lambda event: Reject("bad") if event.event_id in ("e1", "e2") else None)
    summary = await drained(Relay(box, target, on_success="delete", on_dead="drop"))
    assert (summary.published, summary.dead) == (2, 2)
    assert await states(box) == {}


@pytest.mark.req("PL-7")
async def test_part_of_a_batch_fails(box: Box):
    await put(box, 60)
    target = Target(raises=lambda event: ValueError("no") if int(event.event_id[1:]) % 3 == 0 else None)
    summary = await drained(Relay(box, target, breaker=None, backoff=Backoff.fixed(60)))
    assert (summary.published, summary.retried) == (40, 20)
    assert await states(box) == {State.PUBLISHED: 40, State.PENDING: 20}


# --- functions ---------------------------------------------------------------------------------------------------


async def test_functions_of_one_and_of_two_parameters_plain_and_async(redbox_box: Box):
    got: list[Any] = []

    async def one(event: Event) -> None:
        got.append(event.event_id)

    async def two(event: Event, claim: Claim) -> None:
        got.append((event.event_id, claim.number))

    def plain(event: Event) -> None:
        got.append(event.event_id)

    def plain_two(event: Event, claim: Claim) -> None:
        got.append((event.event_id, claim.attempts))

    for number, publish in enumerate((one, two, plain, plain_two, got.append)):
        await redbox_box.put(Event("n", event_id=f"e{number}"))
        assert (await drained(Relay(redbox_box, publish))).published == 1
    assert got[:4] == ["e0", ("e1", 2), "e2", ("e3", 1)]
    assert got[4].event_id == "e4"


# --- order -------------------------------------------------------------------------------------------------------


@pytest.mark.req("OP-1")
async def test_lines_keep_their_order_whatever_fails(box: Box):
    events = [Event("n", number, event_id=f"e{number}", ordering_key=f"k{number % 7}") for number in range(140)]
    await box.put_many(events)
    failed: set[str] = set()
    publishing: set[int] = set()

    async def publish(event: Event) -> None:
        line = int(event.event_id[1:]) % 7
        assert line not in publishing, "two of one line at once"
        publishing.add(line)
        try:
            await asyncio.sleep(0)
            if int(event.event_id[1:]) % 5 == 0 and event.event_id not in failed:
                failed.add(event.event_id)
                raise ValueError("the first time")
            delivered.append(event.event_id)
        finally:
            publishing.discard(line)

    delivered: list[str] = []
    relays = [
        Relay(box, publish, backoff=Backoff.fixed(0.01), breaker=None, poll=0.1, name=f"relay-{each}")
        for each in range(2)
    ]
    async with running(*relays):
        await until(lambda: len(delivered) == 140, "not all were delivered")
    assert in_order(delivered, lambda event_id: int(event_id[1:]) % 7)
    assert await states(box) == {State.PUBLISHED: 140}
    assert len(failed) == 28
    assert all(adds_up(relay.summary()) for relay in relays)


# --- how many at once --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 7, 100])
async def test_concurrency_is_reached_and_not_passed(redbox_box: Box, concurrency: int):
    await put(redbox_box, 150)
    target = Target()
    target.gate.clear()
    relay = Relay(redbox_box, target, concurrency=concurrency)
    async with running(relay):
        await target.has_tried(concurrency)
        target.gate.set()
        await target.has_taken(150)
    assert target.most == concurrency


async def test_a_slow_relay_leaves_the_rest_to_others(redbox_box: Box):
    await put(redbox_box, 50)
    slow, quick = Target(), Target()
    slow.gate.clear()
    hoarder = Relay(redbox_box, slow, concurrency=1, grace=0.1)
    async with running(hoarder):
        await slow.has_tried(1)
        await until(lambda: hoarder.in_flight > 1, "it claims nothing ahead")
        assert hoarder.in_flight <= 3
        async with running(Relay(redbox_box, quick)):
            await quick.has_taken(50 - hoarder.in_flight)
            assert hoarder.in_flight <= 3


async def test_the_buffer_follows_the_speed_of_the_publisher(redbox_box: Box):
    await put(redbox_box, 900)
    target = Target()
    most = 0

    async def publish(event: Event) -> None:
        nonlocal most
        most = max(most, relay.in_flight)
        await target(event)

    relay = Relay(redbox_box, publish, concurrency=4, buffer=200)
    async with running(relay):
        await target.has_taken(900)
    assert 8 < most <= 200 + 4 + 500  # published events that are not settled yet are held too


async def test_the_buffer_is_bounded_in_bytes(redbox_box: Box):
    size = 100_000
    await redbox_box.put_many([Event("n", b"x" * size, event_id=f"e{number}") for number in range(40)])
    target = Target()
    target.gate.clear()
    relay = Relay(redbox_box, target, concurrency=30, buffer_bytes=5 * size)
    async with running(relay):
        await target.has_tried(5)
        for _ in range(100):  # turns in which it could claim more
            await redbox_box.stats()
        assert relay.in_flight <= 6
        target.gate.set()
        await target.has_taken(40)
        assert target.most <= 6


@pytest.mark.parametrize("same", [True, False])
async def test_rejections_that_fill_the_buffer_do_not_stop_it(redbox_box: Box, same: bool):
    """Their verdicts are pending until there is evidence about the target, and their bytes count."""
    await redbox_box.put_many([Event("n", b"x" * 600, event_id=f"e{number}") for number in range(9)])
    target = Target(raises=lambda event: Reject("bad" if same else event.event_id))
    relay = Relay(redbox_box, target, buffer_bytes=1000)
    async with running(relay):
        await target.has_tried(9)
        await until(lambda: relay.summary().dead == 9, "they did not die")


@pytest.mark.req("PL-8")
async def test_two_relays_share_the_work(box: Box, open_box: Callable[..., Box]):
    await put(box, 200)
    first, second = Target(), Target()
    first.gate.clear()
    second.gate.clear()
    async with running(Relay(box, first, concurrency=20), Relay(box, second, concurrency=20)):
        await first.has_tried(20)
        await second.has_tried(20)
        first.gate.set()
        second.gate.set()
        await until(lambda: len(first.taken) + len(second.taken) == 200, "not all were published")
    assert not set(first.taken) & set(second.taken)
    assert await states(box) == {State.PUBLISHED: 200}


# --- a target that takes many at once ----------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 100])
async def test_many_at_once(redbox_box: Box, concurrency: int):
    from redbox.publishers.base import Publisher

    sizes: list[int] = []

    class Many(Publisher):
        many = 10
        target = "many"

        async def publish(self, claim: Claim) -> None:
            (outcome,) = await self.publish_many([claim])
            if outcome is not None:
                raise outcome

        async def publish_many(self, claims: Any) -> list[BaseException | None]:
            sizes.append(len(claims))
            await asyncio.sleep(0)
            return [ValueError("no") if claim.event_id == "e5" else None for claim in claims]

    await put(redbox_box, 45)
    summary = await drained(Relay(redbox_box, Many(), concurrency=concurrency, backoff=Backoff.fixed(60)))
    assert (summary.published, summary.retried, sum(sizes)) == (44, 1, 45)
    assert max(sizes) <= min(10, max(1, concurrency // 2))
