"""A relay gives a publisher no more events at once than it can take; the time limit covers the call alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from redis.asyncio import ConnectionPool

from redbox import Backoff, Box, Event, Publisher, Reject, Relay, State, UsageError
from redbox.events import Claim
from redbox.publishers import redis_stream
from redbox.publishers.registry import open_publisher
from redbox.publishers.stdout import StdoutPublisher
from redbox.relay.workers import Workers
from tests.relay.steps import Target, adds_up, drained, known, put, running, states, until

pytestmark = pytest.mark.timeout(60)
LIMIT = 0.8
NEEDED = 0.6 * LIMIT


class Blocking:
    """A plain function that blocks its thread until its gate is opened."""

    def __init__(self, *, open_at_first: bool = False) -> None:
        self.gate = threading.Event()
        if open_at_first:
            self.gate.set()
        self.calls: Counter[str] = Counter()
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            self.calls[event.event_id] += 1
            self.now += 1
            self.most = max(self.most, self.now)
        self.gate.wait(30)
        with self._lock:
            self.now -= 1


def workers_of(relay: Relay) -> Workers:
    assert relay._engine is not None
    return relay._engine.workers


def stuck_dead_letters(relay: Relay) -> int:
    dead_letters = workers_of(relay).dead_letters
    assert dead_letters is not None
    return dead_letters.stuck


@pytest.mark.req("RF-2", "DS-1")
async def test_the_time_limit_does_not_run_while_an_event_waits_for_a_thread(redbox_box: Box):
    """Each call takes 60 % of the limit and succeeds; there are three times as many events as threads."""
    await put(redbox_box, 12)
    calls: Counter[str] = Counter()

    def publish(event: Event) -> None:
        calls[event.event_id] += 1
        time.sleep(NEEDED)

    publisher = open_publisher(publish, concurrency=4)
    summary = await drained(Relay(redbox_box, publisher, concurrency=12, time_limit=LIMIT, backoff=Backoff.fixed(0)))
    assert (summary.published, summary.retried, summary.dead) == (12, 0, 0)
    assert set(calls.values()) == {1}
    assert await states(redbox_box) == {State.PUBLISHED: 12}


@pytest.mark.parametrize(("threads", "at_once"), [(3, 3), (None, 8), (20, 8)])
async def test_no_more_are_in_flight_than_a_plain_function_has_threads(redbox_box: Box, threads: Any, at_once: int):
    """By default it gets as many threads as the relay has workers; the other events stay in the buffer."""
    await put(redbox_box, 12)
    function = Blocking()
    publisher = open_publisher(function, **({} if threads is None else {"concurrency": threads}))
    relay = Relay(redbox_box, publisher, concurrency=8, buffer=12, batch=12)
    async with running(relay):
        await until(lambda: function.now == at_once and relay.in_flight > at_once, "they are not called")
        assert workers_of(relay).busy == at_once
        assert len(workers_of(relay).buffer) == relay.in_flight - at_once
        function.gate.set()
        await until(lambda: relay.summary().published == 12, "they were not published")
    assert function.most == at_once
    assert set(function.calls.values()) == {1}


async def test_an_async_function_gets_as_many_as_the_relay_has_places(redbox_box: Box):
    await put(redbox_box, 60)
    target = Target()
    target.gate.clear()
    async with running(Relay(redbox_box, target, concurrency=60)):
        await until(lambda: target.now == 60, "not all are in flight")
        target.gate.set()


async def test_a_thread_that_hangs_costs_its_place_and_nothing_else(redbox_box: Box):
    """One of two threads hangs in its first event. The other one publishes the rest; none of them runs out of time."""
    await redbox_box.put(Event("hangs", event_id="hangs"))
    hang = threading.Event()
    calls: Counter[str] = Counter()

    def publish(event: Event) -> None:
        calls[event.event_id] += 1
        if event.event_type == "hangs":
            hang.wait(30)
            raise Reject("it was given up long ago")

    publisher = open_publisher(publish, concurrency=2)
    relay = Relay(redbox_box, publisher, time_limit=0.3, attempts=1, poll=0.05, breaker=None)
    try:
        async with running(relay):
            await until(lambda: relay.summary().dead == 1, "it was not given up")
            await put(redbox_box, 30)
            await until(lambda: relay.summary().published == 30, "the other thread does not go on")
            assert workers_of(relay).stuck == 1
            hang.set()
            await until(lambda: workers_of(relay).stuck == 0, "its worker did not become free")
    finally:
        hang.set()
    assert set(calls.values()) == {1}
    assert (await known(redbox_box, "hangs")).last_error == "the publisher did not return within 0.3 s"
    assert adds_up(relay.summary())


async def test_when_all_threads_hang_the_events_are_left_to_others(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    await put(redbox_box, 2)
    function, healthy = Blocking(), Target()
    relay = Relay(
        redbox_box, open_publisher(function, concurrency=2), time_limit=0.2, backoff=Backoff.fixed(0), poll=0.05,
        batch=2, breaker=None,
    )  # fmt: skip
    try:
        async with running(relay):
            await until(lambda: relay.running and workers_of(relay).stuck == 2, "they were not given up")
            await redbox_box.put_many([Event("n", event_id=f"later{number}") for number in range(20)])
            async with running(Relay(redbox_box, healthy)):
                await healthy.has_taken(22)
            await until(lambda: relay.in_flight == 0, "it keeps events that it cannot publish")
            assert "2 calls of the publisher hang, which is the most it takes at once" in caplog.text
            function.gate.set()
            await redbox_box.put(Event("n", event_id="last"))
            await until(lambda: function.calls["last"] == 1, "it does not go on")
    finally:
        function.gate.set()
    assert function.most == 2
    assert await states(redbox_box) == {State.PUBLISHED: 23}


async def test_a_drain_ends_when_all_threads_hang(redbox_box: Box):
    await put(redbox_box, 6)
    function = Blocking()
    publisher = open_publisher(function, concurrency=2)
    relay = Relay(redbox_box, publisher, time_limit=0.2, breaker=None)
    try:
        summary = await drained(relay)
    finally:
        function.gate.set()
    assert (summary.published, summary.retried) == (0, 2)
    assert summary.stuck == "2 calls of the publisher hang, which is the most it takes at once"
    assert adds_up(summary)
    assert await states(redbox_box) == {State.PENDING: 6}
    assert (await drained(relay)).stuck == ""


async def test_a_dead_letter_function_has_places_of_its_own(redbox_box: Box):
    """It takes two at once, and each takes 60 % of the time limit."""
    await put(redbox_box, 6)
    calls: Counter[str] = Counter()

    def bury(event: Event) -> None:
        calls[event.event_id] += 1
        time.sleep(NEEDED)

    relay = Relay(
        redbox_box, Target(raises=Reject("bad")), dead_to=open_publisher(bury, concurrency=2), time_limit=LIMIT,
        backoff=Backoff.fixed(0), breaker=None,
    )  # fmt: skip
    summary = await drained(relay)
    assert (summary.dead, summary.retried) == (6, 0)
    assert set(calls.values()) == {1}


async def test_a_dead_letter_function_that_hangs_holds_up_nothing_else(redbox_box: Box):
    bury = Blocking()
    target = Target(raises=lambda event: Reject("bad") if event.event_type == "bad" else None)
    relay = Relay(
        redbox_box, target, dead_to=open_publisher(bury, concurrency=1), time_limit=0.2, concurrency=2,
        backoff=Backoff.fixed(0.01), poll=0.05, breaker=None,
    )  # fmt: skip
    try:
        async with running(relay):
            await redbox_box.put_many([Event("bad", event_id=f"bad{number}") for number in range(5)])
            await until(lambda: relay.running and stuck_dead_letters(relay) == 1, "it was not given up")
            await put(redbox_box, 20)
            await target.has_taken(20)
            assert relay.summary().dead == 0
            assert bury.most == 1
            bury.gate.set()
            await until(lambda: relay.summary().dead == 5, "they did not die")
    finally:
        bury.gate.set()


@pytest.mark.req("RF-3")
@pytest.mark.parametrize("concurrency", [1, 2])
async def test_when_all_dead_letter_calls_hang_the_main_target_goes_on(
    redbox_box: Box, caplog: pytest.LogCaptureFixture, concurrency: int
):
    """The dead-letter function is called by half of the relay's workers at most, and hangs in all of them."""
    bury, calls = Blocking(), max(1, concurrency // 2)
    target = Target(raises=lambda event: Reject("bad") if event.event_type == "bad" else None)
    relay = Relay(
        redbox_box, target, dead_to=bury, time_limit=0.2, concurrency=concurrency, backoff=Backoff.fixed(0.01),
        poll=0.05, breaker=None,
    )  # fmt: skip
    try:
        async with running(relay):
            await redbox_box.put_many([Event("bad", event_id=f"bad{number}") for number in range(5)])
            await until(lambda: bury.now == calls, "the dead-letter function is not called")
            await until(lambda: relay.summary().retried >= calls, "they were not given up")
            await put(redbox_box, 20)
            await target.has_taken(20)
            assert workers_of(relay).stuck == 0
            assert bury.now == bury.most == calls
            assert "nothing is claimed" not in caplog.text
            bury.gate.set()
            await until(lambda: relay.summary().dead == 5, "they did not die")
    finally:
        bury.gate.set()
    assert adds_up(relay.summary())


async def test_a_relay_ends_while_dead_letter_calls_hang(redbox_box: Box):
    """They return after the relay has ended."""
    await put(redbox_box, 3)
    bury = Blocking()
    relay = Relay(
        redbox_box, Target(raises=Reject("bad")), dead_to=bury, time_limit=0.2, concurrency=2,
        backoff=Backoff.fixed(60), breaker=None,
    )  # fmt: skip
    try:
        summary = await drained(relay)
        assert (summary.dead, summary.retried) == (0, 3)
    finally:
        bury.gate.set()
    await until(lambda: bury.now == 0, "they do not end")
    assert await states(redbox_box) == {State.PENDING: 3}


class NoConnections(ConnectionPool):
    async def get_connection(self, *_: Any, **__: Any) -> Any:
        return None

    async def release(self, connection: Any) -> None:
        pass


@pytest.fixture
def slow_writes(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Each write to a stream or to the standard output takes 60 % of the limit; counts the writes by their size."""
    sizes: Counter[int] = Counter()

    async def add(_: Any, commands: list[Any], outcomes: list[Any]) -> None:
        await asyncio.sleep(NEEDED)
        sizes[len(commands)] += 1
        outcomes += [None] * len(commands)

    def write(_: Any, lines: bytes) -> None:
        time.sleep(NEEDED)
        sizes[lines.count(b"\n")] += 1

    monkeypatch.setattr(redis_stream, "_send", add)
    monkeypatch.setattr(redis_stream, "ConnectionPool", NoConnections)
    monkeypatch.setattr(StdoutPublisher, "_write_whole", write)
    return sizes


STREAM = "redis+stream://localhost/0/shop"


@pytest.mark.req("RF-2", "DS-1")
@pytest.mark.parametrize(("url", "options"), [(STREAM, {"max_connections": 1}), ("stdout:", {})])
async def test_the_time_limit_does_not_run_while_a_call_of_many_events_waits(
    redbox_box: Box, slow_writes: Counter[int], url: str, options: dict[str, Any]
):
    """The target takes one call at a time."""
    await put(redbox_box, 24)
    summary = await drained(Relay(redbox_box, url, options=options, concurrency=12, batch=12, time_limit=LIMIT))
    assert (summary.published, summary.retried, summary.dead) == (24, 0, 0)
    assert 6 < max(slow_writes) <= 12  # one call has room for all


@pytest.mark.parametrize(("url", "options"), [(STREAM, {"max_connections": 1}), ("stdout:", {})])
async def test_the_time_limit_does_not_run_while_a_dead_letter_call_waits(
    redbox_box: Box, slow_writes: Counter[int], url: str, options: dict[str, Any]
):
    await put(redbox_box, 2)
    relay = Relay(
        redbox_box, Target(raises=Reject("bad")), dead_to=url, dead_options=options, time_limit=LIMIT, breaker=None
    )
    summary = await drained(relay)
    assert (summary.dead, summary.retried) == (2, 0)
    assert slow_writes == {1: 2}


class Bounded(Publisher):
    """Takes many events per call; the test sets its capacity."""

    target = "bounded"

    def __init__(self, *, many: Any = 1, at_once: Any = 100, calls_at_once: Any = None) -> None:
        self.many = many  # type: ignore[misc]
        self.events = at_once
        self.calls_at_once = calls_at_once
        self.sizes: Counter[int] = Counter()
        self.now = self.most = 0
        self.gate = asyncio.Event()

    def at_once(self, concurrency: int) -> int:
        return self.events

    async def publish(self, claim: Claim) -> None:
        await self.publish_many([claim])

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[None]:
        self.now += 1
        self.most = max(self.most, self.now)
        self.sizes[len(claims)] += 1
        await self.gate.wait()
        self.now -= 1
        return [None] * len(claims)


@pytest.mark.parametrize(
    ("given", "calls", "events"),
    [
        ({}, 12, 1),
        ({"calls_at_once": 3}, 3, 1),
        ({"at_once": 5, "calls_at_once": 30}, 5, 1),
        ({"many": 500}, 2, 6),
        ({"many": 4}, 3, 4),
        ({"many": 500, "calls_at_once": 1}, 1, 12),
        ({"many": 4, "calls_at_once": 1}, 1, 4),
        ({"many": 4, "calls_at_once": 2}, 2, 4),
        ({"many": 500, "at_once": 6, "calls_at_once": 2}, 2, 3),
        ({"many": 500, "at_once": 1}, 1, 1),
    ],
)
async def test_how_many_calls_overlap_and_how_many_events_each_takes(
    redbox_box: Box, given: dict[str, int], calls: int, events: int
):
    await put(redbox_box, 24)
    publisher = Bounded(**given)
    relay = Relay(redbox_box, publisher, concurrency=12, batch=24, buffer=24)
    async with running(relay):
        await until(lambda: publisher.now == calls and relay.in_flight > calls * events, "they are not called")
        assert publisher.sizes == {events: calls}
        publisher.gate.set()
        await until(lambda: relay.summary().published == 24, "they were not published")
    assert publisher.most == calls


@pytest.mark.parametrize("name", ["at_once", "calls_at_once", "many"])
@pytest.mark.parametrize("value", [0, -1, "3", 2.5, True])
async def test_a_publisher_with_an_impossible_capacity_is_refused(redbox_box: Box, name: str, value: Any):
    await put(redbox_box, 1)
    with pytest.raises(UsageError, match=rf"^Bounded\.{name} must be a whole number of at least 1, not "):
        await drained(Relay(redbox_box, Bounded(**{name: value})))
    with pytest.raises(UsageError, match=rf"^Bounded\.{name} must be"):
        await drained(Relay(redbox_box, Target(), dead_to=Bounded(**{name: value})))
    assert await states(redbox_box) == {State.PENDING: 1}


def test_http_takes_as_many_as_it_has_connections():
    publisher = open_publisher("https://hooks.example.com/", max_connections=7)
    assert (publisher.at_once(100), publisher.at_once(5)) == (7, 5)
