"""Middleware around each publish: it observes and adds headers, and never decides that an event was published."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from redbox import Backoff, Box, Claim, Event, InvalidEvent, Reject, Relay, RetryLater, State, Unavailable, UsageError
from redbox.publishers.base import Publisher, passed_on
from redbox.relay.middleware import MiddlewarePublisher, Publish
from tests.relay.steps import drained, known, put, running, states, until

pytestmark = [pytest.mark.timeout(30), pytest.mark.req("EM-3")]


class Recording(Publisher):
    """Takes one event, or several, in a call; `fails` by event id."""

    target = "a test"  # type: ignore[assignment]

    def __init__(self, many: int = 1) -> None:
        self.many = many  # type: ignore[misc]
        self.calls: list[list[str]] = []
        self.headers: dict[str, dict[str, str]] = {}
        self.payloads: dict[str, Any] = {}
        self.fails: dict[str, Exception] = {}

    async def publish(self, claim: Claim) -> None:
        (outcome,) = await self.publish_many([claim])
        if outcome is not None:
            raise outcome

    async def publish_many(self, claims: Sequence[Claim]) -> list[BaseException | None]:
        self.calls.append([claim.event_id for claim in claims])
        await asyncio.sleep(0)
        for claim in claims:
            self.headers[claim.event_id] = passed_on(claim)
            self.payloads[claim.event_id] = claim.event.payload
        return [self.fails.get(claim.event_id) for claim in claims]


@pytest.fixture(params=[1, 10], ids=["one", "many"])
def target(request: pytest.FixtureRequest) -> Recording:
    return Recording(request.param)


def relay_with(box: Box, target: Publisher, *middleware: Any, **options: Any) -> Relay:
    settings: dict[str, Any] = {"attempts": 1, "breaker": None, **options}
    return Relay(box, target, middleware=middleware, **settings)


async def error_after(box: Box, target: Publisher, *middleware: Any) -> str:
    """The error of the event e0 after one attempt."""
    summary = await drained(relay_with(box, target, *middleware, attempts=2, backoff=Backoff.fixed(60)))
    assert (summary.published, summary.retried) == (0, 1)
    return (await known(box)).last_error or ""


async def test_middleware_is_called_in_order_around_each_publish(redbox_box: Box, target: Recording):
    seen: list[str] = []

    def named(name: str) -> Any:
        async def middleware(claim: Claim, publish: Publish) -> None:
            seen.append(f"{name} before")
            await publish(claim)
            seen.append(f"{name} after")

        return middleware

    await put(redbox_box, 1)
    assert (await drained(relay_with(redbox_box, target, named("outer"), named("inner")))).published == 1
    assert seen == ["outer before", "inner before", "inner after", "outer after"]
    assert target.calls == [["e0"]]


async def test_headers_may_be_added_and_the_payload_stays_as_it_is(redbox_box: Box, target: Recording):
    async def adds(claim: Claim, publish: Publish) -> None:
        await publish(claim.with_headers({"x-region": "eu", "x-a": "2"}))

    await redbox_box.put(Event("n", b"\x00\xff", event_id="e0", headers={"x-a": "1", "x-b": "1"}))
    assert (await drained(relay_with(redbox_box, target, adds))).published == 1
    headers = target.headers["e0"]
    assert (headers["x-region"], headers["x-a"], headers["x-b"]) == ("eu", "2", "1")
    assert headers["redbox-claim"] == "1"
    assert target.payloads["e0"] == b"\x00\xff"
    assert (await known(redbox_box)).event.headers == {"x-a": "1", "x-b": "1"}  # the stored event keeps its own


@pytest.mark.parametrize("change", [{"payload": b"2"}, {"event_type": "m"}, {"ordering_key": "o"}, {"event_id": "e1"}])
async def test_nothing_but_headers_may_be_changed(redbox_box: Box, target: Recording, change: dict[str, Any]):
    async def changes(claim: Claim, publish: Publish) -> None:
        await publish(msgspec.structs.replace(claim, event=msgspec.structs.replace(claim.event, **change)))

    await put(redbox_box, 1)
    assert f"changed {next(iter(change))}; only headers" in await error_after(redbox_box, target, changes)
    assert target.calls == []


async def test_a_claim_may_not_be_changed_and_reserved_headers_are_refused(redbox_box: Box, target: Recording):
    async def renumbers(claim: Claim, publish: Publish) -> None:
        with pytest.raises(InvalidEvent, match="reserved"):
            claim.with_headers({"redbox-claim": "7"})
        await publish(msgspec.structs.replace(claim, number=7))

    async def forges(claim: Claim, publish: Publish) -> None:
        await publish(
            msgspec.structs.replace(claim, event=msgspec.structs.replace(claim.event, headers={"ce-id": "x"}))
        )

    async def passes_the_event(claim: Claim, publish: Publish) -> None:
        await publish(claim.event)  # type: ignore[arg-type]

    for middleware, complaint in ((renumbers, "changed number"), (forges, "reserved"), (passes_the_event, "not Event")):
        box = Box.open("memory:", name="other")
        async with box:
            await put(box, 1)
            assert complaint in await error_after(box, target, middleware)
    assert target.calls == []


async def test_one_that_does_not_call_publish_has_not_published(redbox_box: Box, target: Recording):
    async def swallows(claim: Claim, publish: Publish) -> None:
        pass

    async def forgets_to_wait(claim: Claim, publish: Publish) -> None:
        publish(claim).close()  # type: ignore[attr-defined]

    await put(redbox_box, 1)
    error = await error_after(redbox_box, target, swallows)
    assert "swallows returned without 'await publish(claim)'; to refuse an event, raise Reject" in error
    async with Box.open("memory:", name="other") as box:
        await put(box, 1)
        assert "forgets_to_wait returned without" in await error_after(box, target, forgets_to_wait)
    assert target.calls == []


async def test_one_that_returns_before_the_publish_has_ended(redbox_box: Box, target: Recording):
    tasks = []

    async def hurries(claim: Claim, publish: Publish) -> None:
        tasks.append(asyncio.ensure_future(publish(claim)))
        await asyncio.sleep(0)

    await put(redbox_box, 1)
    assert "did not wait for publish" in await error_after(redbox_box, target, hurries)
    await asyncio.wait(tasks)


async def test_one_that_calls_publish_twice(redbox_box: Box, target: Recording):
    async def twice(claim: Claim, publish: Publish) -> None:
        await publish(claim)
        await publish(claim)

    await put(redbox_box, 1)
    assert "twice called publish twice" in await error_after(redbox_box, target, twice)
    assert target.calls == [["e0"]]  # the second call reached nothing


async def test_a_failure_cannot_be_made_a_success(redbox_box: Box, target: Recording):
    async def hides(claim: Claim, publish: Publish) -> None:
        try:
            await publish(claim)
        except Exception:
            return

    target.fails["e0"] = Unavailable("503")
    await put(redbox_box, 1)
    assert await error_after(redbox_box, target, hides) == "503"


@pytest.mark.parametrize(
    ("error", "state"), [(Reject("no"), State.DEAD), (RetryLater(60), State.PENDING), (ValueError("x"), State.PENDING)]
)
async def test_what_a_middleware_raises_chooses_the_transition(
    redbox_box: Box, target: Recording, error: Exception, state: State
):
    async def refuses(claim: Claim, publish: Publish) -> None:
        raise error

    await put(redbox_box, 1)
    await drained(relay_with(redbox_box, target, refuses, attempts=2, backoff=Backoff.fixed(60)))
    assert await states(redbox_box) == {state: 1}
    assert target.calls == []


async def test_a_middleware_may_raise_another_error(redbox_box: Box, target: Recording):
    async def translates(claim: Claim, publish: Publish) -> None:
        try:
            await publish(claim)
        except ValueError as error:
            raise Reject("malformed") from error

    target.fails["e0"] = ValueError("x")
    await put(redbox_box, 1)
    await drained(relay_with(redbox_box, target, translates))
    assert (await known(redbox_box)).last_error == "malformed"


async def test_one_that_hangs_ends_at_the_time_limit(redbox_box: Box, target: Recording):
    release = asyncio.Event()

    async def hangs(claim: Claim, publish: Publish) -> None:
        await release.wait()
        await publish(claim)

    await put(redbox_box, 3)
    relay = relay_with(redbox_box, target, hangs, time_limit=0.1, attempts=None, backoff=Backoff.fixed(0.01), poll=0.05)
    async with running(relay):
        await until(lambda: relay.summary().retried >= 3, "the time limit did not end them")
        assert (await known(redbox_box)).last_error == "the publisher did not return within 0.1 s"
        release.set()
        await until(lambda: relay.summary().published == 3, "they were not published")
    assert await states(redbox_box) == {State.PUBLISHED: 3}


async def test_a_batch_stays_a_batch_and_each_event_has_its_own_outcome(redbox_box: Box):
    target = Recording(10)
    target.fails["e1"] = ValueError("refused by the target")

    async def picky(claim: Claim, publish: Publish) -> None:
        if claim.event_id == "e2":
            raise Reject("refused by the middleware")
        await asyncio.wait_for(publish(claim), 5)  # in a task of its own

    await put(redbox_box, 5)
    summary = await drained(relay_with(redbox_box, target, picky))
    assert target.calls == [["e0", "e1", "e3", "e4"]]
    assert (summary.published, summary.dead) == (3, 2)
    assert (await known(redbox_box, "e1")).last_error == "ValueError: refused by the target"
    assert (await known(redbox_box, "e2")).last_error == "refused by the middleware"


async def test_an_event_that_its_middleware_gave_up_is_not_sent(redbox_box: Box):
    """It would arrive again with its retry."""
    target, gave_up = Recording(10), asyncio.Event()

    async def impatient(claim: Claim, publish: Publish) -> None:
        if claim.event_id == "e0":
            await gave_up.wait()  # so that the batch is not complete before
            await publish(claim)
            return
        try:
            await asyncio.wait_for(publish(claim), 0.05)
        finally:
            gave_up.set()

    await put(redbox_box, 2)
    await drained(relay_with(redbox_box, target, impatient))
    assert target.calls == [["e0"]]


async def test_a_batch_whose_call_fails(redbox_box: Box):
    class Short(Recording):
        async def publish_many(self, claims: Sequence[Claim]) -> list[BaseException | None]:
            return [None]

    async def plain(claim: Claim, publish: Publish) -> None:
        await publish(claim)

    await put(redbox_box, 3)
    await drained(relay_with(redbox_box, Short(10), plain))
    assert (await known(redbox_box)).last_error == "the publisher returned 1 outcomes for 3 events"
    assert await states(redbox_box) == {State.DEAD: 3}


async def test_without_middleware_the_publisher_is_called_directly(redbox_box: Box):
    target = Recording()
    relay = Relay(redbox_box, target)
    with relay._in_use() as engine:
        assert engine.workers._publisher is target
    with relay_with(redbox_box, target, Timed())._in_use() as engine:
        assert isinstance(engine.workers._publisher, MiddlewarePublisher)


class Timed:
    """An object with an async __call__ is a middleware too."""

    async def __call__(self, claim: Claim, publish: Publish) -> None:
        await publish(claim)


def test_what_is_no_middleware_is_refused(redbox_box: Box):
    async def alone(claim: Claim) -> None: ...

    def plain(claim: Claim, publish: Publish) -> None: ...

    wrong: list[tuple[Any, str]] = [
        ([plain], "plain is not an async function"),
        ([alone], r"alone must take \(claim, publish\)"),
        ([3], "int is not an async function"),
        ("python:a:b", "must be a list"),
        (plain, "must be a list"),
    ]
    for middleware, complaint in wrong:
        with pytest.raises(UsageError, match=complaint):
            Relay(redbox_box, Recording(), middleware=middleware)
