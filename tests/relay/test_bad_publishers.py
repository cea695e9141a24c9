"""Publishers that misbehave: no event is lost, the relay goes on, and the reason can be read."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

from redbox import Backoff, Box, Claim, Event, Reject, Relay, RetryLater, State, Unavailable
from redbox.publishers.base import REASON_HEADER, Publisher
from redbox.relay.outcomes import judge
from redbox.testing import advance
from tests.relay.steps import Target, drained, known, put, running, states, until

pytestmark = pytest.mark.timeout(30)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I have no words")


async def cancels_its_task(event: Event) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(10)


# --- hanging -----------------------------------------------------------------------------------------------------


async def test_one_that_hangs(redbox_box: Box):
    await put(redbox_box, 3)
    target = Target()
    target.gate.clear()
    relay = Relay(redbox_box, target, time_limit=0.1, backoff=Backoff.fixed(0.01), poll=0.05)
    async with running(relay):
        await target.has_tried(4)
        record = await known(redbox_box)
        assert record.last_error == "the publisher did not return within 0.1 s"
        target.gate.set()
        await until(lambda: relay.summary().published == 3, "they were not published")
    assert await states(redbox_box) == {State.PUBLISHED: 3}


async def test_a_publisher_is_not_blamed_for_an_event_loop_that_lags(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    await put(redbox_box, 1)
    attempts = []

    async def publish(event: Event) -> None:
        attempts.append(event.event_id)
        if len(attempts) == 1:
            asyncio.get_running_loop().call_soon(time.sleep, 0.3)  # blocks the event loop for three time limits
            await asyncio.sleep(20)

    relay = Relay(redbox_box, publish, time_limit=0.1, backoff=Backoff.fixed(0.01), poll=0.05)
    async with running(relay):
        await until(lambda: relay.summary().published == 1, "it was not published")
    assert "ignores its cancellation" not in caplog.text


async def test_a_plain_function_that_hangs_in_its_thread(redbox_box: Box):
    await put(redbox_box, 1)
    hang, calls = threading.Event(), []

    def publish(event: Event) -> None:
        calls.append(event.event_id)
        if len(calls) == 1:
            hang.wait(20)

    relay = Relay(redbox_box, publish, time_limit=0.1, backoff=Backoff.fixed(0.01), poll=0.05)
    try:
        async with running(relay):
            await until(lambda: relay.summary().published == 1, "it was not published")
    finally:
        hang.set()
    assert len(calls) == 2


@pytest.mark.parametrize("then", ["returns", "fails", "hangs on"])
async def test_one_that_swallows_its_end(redbox_box: Box, then: str):
    """Its final outcome counts; the cancellation must not hit the event after it."""
    await put(redbox_box, 4)
    first: list[str] = []

    async def publish(event: Event) -> None:
        if first:
            await asyncio.sleep(0)
            return
        first.append(event.event_id)
        for _ in range(3):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                if then == "hangs on":
                    continue
                break
        if then == "fails":
            raise ValueError("disturbed")

    relay = Relay(redbox_box, publish, time_limit=0.1, concurrency=1, backoff=Backoff.fixed(0.01), poll=0.05)
    async with running(relay):
        await until(lambda: relay.summary().published == 4, "they were not published")
    assert relay.summary().retried == (1 if then == "fails" else 0)


# --- raising what is not theirs to raise -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (StopAsyncIteration("over"), "over"),
        (asyncio.CancelledError(), "the publisher cancelled itself"),
        (TimeoutError(), "TimeoutError"),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "ValueError: a; KeyError: 'b'"),
        (Mute(), "Mute, which has no readable message"),
        (ValueError("not Unicode: \ud800"), "not Unicode: \\ud800"),
        (ValueError("x" * 100_000), "ValueError: xxx"),
        (ValueError("a\x00b"), "a\x00b"),
    ],
)
@pytest.mark.req("PC-4")
@pytest.mark.parametrize("plain", [False, True])
async def test_whatever_it_raises(redbox_box: Box, error: BaseException, words: str, plain: bool):
    await put(redbox_box, 3)

    async def publish(event: Event) -> None:
        if event.event_id == "e1":
            raise error

    def plain_publish(event: Event) -> None:
        if event.event_id == "e1":
            raise error

    relay = Relay(redbox_box, plain_publish if plain else publish, backoff=Backoff.fixed(60), concurrency=2)
    summary = await drained(relay)
    assert (summary.published, summary.retried) == (2, 1)
    record = await known(redbox_box, "e1")
    assert (record.state, record.attempts) == (State.PENDING, 1)
    assert words in str(record.last_error)


async def test_an_async_publisher_that_raises_generator_exit(redbox_box: Box):
    await put(redbox_box, 1)
    await drained(Relay(redbox_box, Target(raises=GeneratorExit("over")), backoff=Backoff.fixed(60)))
    record = await known(redbox_box)
    assert (record.state, record.last_error) == (State.PENDING, "GeneratorExit: over")


async def test_whatever_it_raises_the_breaker_opens(redbox_box: Box):
    await put(redbox_box, 30)
    summary = await drained(Relay(redbox_box, Target(raises=Mute()), backoff=Backoff.fixed(60)))
    assert "Mute" in summary.open


async def test_one_that_cancels_its_own_task(redbox_box: Box):
    await put(redbox_box, 1)
    await drained(Relay(redbox_box, cancels_its_task, backoff=Backoff.fixed(60)))
    record = await known(redbox_box)
    assert (record.state, record.last_error) == (State.PENDING, "the publisher cancelled itself")


@pytest.mark.parametrize("concurrency", [1, 10])
async def test_one_that_cancels_its_own_task_and_returns(redbox_box: Box, concurrency: int):
    """The cancellation would hit the event after it, or end the worker."""
    target = Target()

    async def publish(event: Event) -> None:
        await target(event)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    relay = Relay(redbox_box, publish, concurrency=concurrency, poll=0.05)
    async with running(relay):
        await put(redbox_box, 20)
        await until(lambda: relay.summary().published == 20, "they were not published", seconds=5)
        await redbox_box.put(Event("n"))
        await until(lambda: relay.summary().published == 21, "it does not go on", seconds=5)
    assert (relay.summary().retried, relay.summary().claimed) == (0, 21)


async def test_one_that_has_its_task_cancelled_later(redbox_box: Box):
    """As a forgotten timer does: the cancellation hits an idle worker, and must not end it."""
    target = Target()

    async def publish(event: Event) -> None:
        await target(event)
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(0.02, lambda: (task.cancel(), cancelled.append(1)))

    cancelled: list[int] = []
    relay = Relay(redbox_box, publish, concurrency=1, poll=0.05)
    async with running(relay):
        for count in range(1, 4):
            await redbox_box.put(Event("n"))
            await until(lambda: relay.summary().published == count, "it does not go on", seconds=5)  # noqa: B023
            await until(lambda: len(cancelled) == count, "the timer did not fire")  # noqa: B023


# --- many at once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ([None], "the publisher returned 1 outcomes for 4 events"),
        ([None] * 5, "the publisher returned 5 outcomes for 4 events"),
        (None, "TypeError"),
        (ValueError("all of them"), "ValueError: all of them"),
    ],
)
async def test_outcomes_that_do_not_fit(redbox_box: Box, outcomes: Any, words: str):
    class Many(Publisher):
        many = 4
        target = "many"

        async def publish(self, claim: Claim) -> None: ...

        async def publish_many(self, claims: Any) -> Any:
            if isinstance(outcomes, Exception):
                raise outcomes
            return outcomes

    await put(redbox_box, 4)
    summary = await drained(Relay(redbox_box, Many(), backoff=Backoff.fixed(60)))
    assert (summary.retried, summary.published) == (4, 0)
    assert words in str((await known(redbox_box)).last_error)


# --- a backoff function ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nonsense", [-5, None, "soon", float("nan"), ZeroDivisionError("oops")])
async def test_a_backoff_function_that_fails(redbox_box: Box, nonsense: Any, caplog: pytest.LogCaptureFixture):
    def delay(event: Event, attempts: int, error: BaseException) -> Any:
        if isinstance(nonsense, Exception):
            raise nonsense
        return nonsense

    await put(redbox_box, 1)
    await drained(Relay(redbox_box, Target(raises=ValueError("no")), backoff=Backoff(delay)))
    record = await known(redbox_box)
    assert (record.state, record.last_error) == (State.PENDING, "ValueError: no")
    wait = record.available_at - (await redbox_box.stats()).at
    assert 50 < wait.total_seconds() <= 60
    assert "the backoff function failed for event e0" in caplog.text


# --- the dead-letter target --------------------------------------------------------------------------------------


@pytest.mark.req("RF-3")
async def test_a_dead_letter_target_receives_the_reason(box: Box):
    await box.put(Event("n", event_id="e0", headers={"tenant": "7"}))
    got: list[Event] = []
    relay = Relay(box, Target(raises=Reject("field 'naïve'\nis missing")), dead_to=got.append)
    assert (await drained(relay)).dead == 1
    assert got[0].headers == {"tenant": "7", REASON_HEADER: "field 'na\\xefve' is missing"}
    record = await known(box)
    assert (record.state, dict(record.event.headers)) == (State.DEAD, {"tenant": "7"})


@pytest.mark.req("RF-3")
async def test_a_dead_letter_target_that_fails_keeps_the_event_alive(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(judge, "DEAD_LETTER_DELAY", 0.005)
    await put(redbox_box, 1)
    target, dead = Target(raises=ValueError("no")), Target(raises=Unavailable("full"))
    relay = Relay(redbox_box, target, attempts=2, backoff=Backoff.fixed(0.005), dead_to=dead, poll=0.02)
    async with running(relay):
        await dead.has_tried(5)
        assert (await known(redbox_box)).state in (State.PENDING, State.CLAIMED)
        assert len(target.tried) == 2  # only the dead-letter target is tried again
        dead.raises = None
        await until(lambda: relay.summary().dead == 1, "it did not die")
    assert dead.taken == ["e0"]
    assert (await known(redbox_box)).state is State.DEAD


async def test_a_dead_letter_target_that_fails_says_so(redbox_box: Box):
    await put(redbox_box, 1)
    relay = Relay(redbox_box, Target(raises=Reject("bad")), dead_to=Target(raises=Mute()), backoff=Backoff.fixed(60))
    await drained(relay)
    record = await known(redbox_box)
    assert (record.state, record.last_error) == (
        State.PENDING,
        "the dead-letter target did not take it: Mute, which has no readable message",
    )


@pytest.mark.req("RF-3")
async def test_a_dead_letter_target_that_rejects(redbox_box: Box):
    await put(redbox_box, 1)
    dead = Target(raises=Reject("too large"))
    assert (await drained(Relay(redbox_box, Target(raises=Reject("bad")), dead_to=dead))).dead == 1
    record = await known(redbox_box)
    assert record.state is State.DEAD
    assert record.last_error == "bad; and the dead-letter target rejected it: too large"


@pytest.mark.req("RF-3")
async def test_an_event_that_the_dead_letter_target_rejects_is_kept(redbox_box: Box):
    await put(redbox_box, 3)
    taken: list[str] = []

    async def dead(event: Event) -> None:
        if event.event_id == "e1":
            raise Reject("too large")
        taken.append(event.event_id)

    relay = Relay(redbox_box, Target(raises=Reject("bad")), dead_to=dead, on_dead="drop", breaker=None)
    assert (await drained(relay)).dead == 3
    assert sorted(taken) == ["e0", "e2"]
    assert (await known(redbox_box, "e1")).state is State.DEAD
    assert await states(redbox_box) == {State.DEAD: 1}


async def test_a_dead_letter_target_that_hangs(redbox_box: Box):
    await put(redbox_box, 1)
    dead = Target()
    dead.gate.clear()
    relay = Relay(
        redbox_box, Target(raises=Reject("bad")), dead_to=dead, time_limit=0.05, backoff=Backoff.fixed(0.01), poll=0.05
    )
    async with running(relay):
        await dead.has_tried(2)
        dead.gate.set()
        await until(lambda: relay.summary().dead == 1, "it did not die")


async def test_one_that_never_lets_go_does_not_keep_its_event(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    """It swallows every cancellation: its lease is not renewed, and another relay gets the event."""
    await put(redbox_box, 1)
    released = asyncio.Event()

    async def holds_on(event: Event) -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    other = Target()
    stuck = Relay(redbox_box, holds_on, name="stuck", lease=0.3, time_limit=0.1)
    async with running(stuck):
        try:
            await until(lambda: "lease of event e0 is not renewed" in caplog.text, "nothing was logged")
            async with running(Relay(redbox_box, other, lease=0.3, reap_every=0.1, poll=0.1)):
                await other.has_taken(1)
        finally:
            released.set()
    assert other.taken == ["e0"]
    assert await states(redbox_box) == {State.PUBLISHED: 1}


class BareReject(Reject):
    def __init__(self) -> None:
        """Does not call the other constructor: it has neither a kind nor a message."""


class BareRetryLater(RetryLater):
    def __init__(self) -> None:
        """The same: it has no delay."""


def with_kind(kind: object) -> Reject:
    error = Reject("bad")
    error.kind = kind  # type: ignore[assignment]
    return error


class Unprintable:
    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [
        Reject("bad", kind=["HTTP", 422]),  # type: ignore[arg-type]
        Reject("bad", kind={"status": 422}),  # type: ignore[arg-type]
        with_kind(["HTTP", 422]),
        with_kind(Unprintable()),
        BareReject(),
    ],
)
async def test_a_rejection_of_a_strange_kind_is_a_rejection(redbox_box: Box, error: Reject):
    await put(redbox_box, 3)
    assert (await drained(Relay(redbox_box, Target(raises=error)))).dead == 3


def test_a_strange_kind_becomes_text():
    assert Reject("bad", kind=["HTTP", 422]).kind == "['HTTP', 422]"  # type: ignore[arg-type]
    assert Reject("bad", kind=422).kind == "422"  # type: ignore[arg-type]
    assert Reject("bad").kind == "bad"


async def test_a_strange_delay_is_none(redbox_box: Box):
    await put(redbox_box, 1)
    strange = Unavailable("busy")
    strange.delay = "soon"  # type: ignore[assignment]
    for error in (BareRetryLater(), strange):
        assert (await drained(Relay(redbox_box, Target(raises=error), breaker=None, backoff=Backoff.fixed(60)))).retried
        await advance(redbox_box, minutes=2)
