"""A relay that is cancelled from outside settles the known outcomes, releases its claims, and leaves no task."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import anyio
import pytest

from redbox import Box, Event, Reject, Relay, State, StoreUnavailable
from redbox.relay import engine
from tests.relay.steps import LIMIT, Target, adds_up, drained, known, put, running, states

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize("how", ["asyncio", "anyio"])
async def test_cancelled_from_outside(box: Box, how: str):
    """Its claims are released at once, and no task is left."""
    before = asyncio.all_tasks()
    await put(box, 30)
    target = Target()
    target.gate.clear()
    relay = Relay(box, target, concurrency=10)
    scope = anyio.CancelScope()

    async def run() -> None:
        with scope:
            await relay.run()

    task = asyncio.create_task(run())
    await target.has_tried(10)
    if how == "asyncio":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
    else:
        scope.cancel()
        await asyncio.wait_for(task, 5)
    assert asyncio.all_tasks() == before
    assert await states(box) == {State.PENDING: 30}
    assert (await known(box, "e1")).attempts == (await known(box, "e1")).excused
    assert relay.in_flight == 0
    assert adds_up(relay.summary())
    target.gate.set()
    assert (await drained(relay)).published == 30


@pytest.mark.parametrize("how", ["asyncio", "anyio"])
async def test_cancelled_while_a_claim_is_pending(redbox_box: Box, monkeypatch: pytest.MonkeyPatch, how: str):
    await put(redbox_box, 5)
    claim, claimed, answer = redbox_box.claim_packed, asyncio.Event(), asyncio.Event()

    async def slow(*args: object, **options: object) -> object:
        found = await claim(*args, **options)  # type: ignore[arg-type]
        claimed.set()
        await answer.wait()
        return found

    monkeypatch.setattr(redbox_box, "claim_packed", slow)
    scope = anyio.CancelScope()

    async def run() -> None:
        with scope:
            await Relay(redbox_box, Target()).run()

    task = asyncio.create_task(run())
    await asyncio.wait_for(claimed.wait(), LIMIT)
    task.cancel() if how == "asyncio" else scope.cancel()
    asyncio.get_running_loop().call_later(0.05, answer.set)
    await asyncio.wait([task], timeout=5)
    assert task.cancelled() == (how == "asyncio")
    assert await states(redbox_box) == {State.PENDING: 5}


async def test_cancelled_where_it_is_swallowed(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    """As asyncio.wait_for does, before Python 3.12, when its result arrives at the same time."""
    waiting = asyncio.Event()

    async def swallow(seconds: float) -> bool:
        waiting.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(seconds)
        return True

    monkeypatch.setattr(redbox_box, "wait_for_hint", swallow)
    task = asyncio.create_task(Relay(redbox_box, Target()).run())
    await asyncio.wait_for(waiting.wait(), LIMIT)
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()


async def test_a_relay_may_be_drained_by_a_task_that_is_being_cancelled(redbox_box: Box):
    """As cleaning up does."""
    await put(redbox_box, 3)
    relay, began = Relay(redbox_box, Target()), asyncio.Event()

    async def run() -> None:
        try:
            began.set()
            await asyncio.sleep(60)
        finally:
            await relay.drain()

    task = asyncio.create_task(run())
    await began.wait()
    task.cancel()
    await asyncio.wait([task], timeout=LIMIT)
    assert task.cancelled()
    assert relay.summary().published == 3


async def test_cancelled_after_publishing_it_still_settles(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    """Events that the target has acknowledged are not published again."""
    await put(redbox_box, 2)
    ack, asked = redbox_box.ack, asyncio.Event()

    async def hanging(*args: object, **options: object) -> list[bool]:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(redbox_box, "ack", hanging)
    target = Target(raises=lambda event: Reject("bad") if event.event_id == "e1" else None)
    task = asyncio.create_task(Relay(redbox_box, target, breaker=None).run())
    await asyncio.wait_for(asked.wait(), LIMIT)
    await target.has_tried(2)
    monkeypatch.setattr(redbox_box, "ack", ack)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert await states(redbox_box) == {State.PUBLISHED: 1, State.DEAD: 1}


async def test_a_store_that_does_not_answer_at_the_end(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine, "SETTLE_GRACE", 0.1)
    monkeypatch.setattr(engine, "CANCEL_GRACE", 0.1)
    await put(redbox_box, 3)

    async def no_answer(*args: object, **options: object) -> list[bool]:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(redbox_box, "ack", no_answer)
    target = Target()
    async with running(relay := Relay(redbox_box, target)):
        await target.has_taken(3)
    assert (relay.summary().unsettled, relay.summary().claimed, relay.in_flight) == (3, 3, 0)
    assert await states(redbox_box) == {State.CLAIMED: 3}


def test_the_loop_ends_under_it():
    """As when main() returns and leaves a relay running in a task: that is not an error."""
    target = None

    async def main() -> None:
        nonlocal target
        box = Box.open("memory:loop-ends")
        await put(box, 1)
        target = Target()
        target.gate.clear()
        task = asyncio.create_task(Relay(box, target).run())
        await target.has_tried(1)
        assert not task.done()

    async def look() -> None:
        async with Box.open("memory:loop-ends") as box:
            record = await known(box)
            assert (record.state, record.attempts - record.excused) == (State.PENDING, 0)

    asyncio.run(main())
    asyncio.run(look())


def test_the_loop_ends_while_a_claim_is_pending():
    """asyncio.run cancels every task that is left, the pending claim included."""
    store = "memory:the-loop-ends"

    async def run() -> None:
        box = Box.open(store)
        await put(box, 5)
        claim, claimed = box.claim_packed, asyncio.Event()

        async def slow(*args: object, **options: object) -> object:
            found = await claim(*args, **options)  # type: ignore[arg-type]
            if len(found) and found.parts[0] == b"late":
                claimed.set()
                await asyncio.sleep(60)
            return found

        box.claim_packed = slow  # type: ignore[method-assign]
        target = Target()
        target.gate.clear()
        asyncio.get_running_loop().relay = asyncio.create_task(Relay(box, target).run())  # type: ignore[attr-defined]
        await target.has_tried(5)
        await box.put(Event("n", event_id="late"))
        await asyncio.wait_for(claimed.wait(), LIMIT)

    asyncio.run(run())

    async def left() -> dict[State, int]:
        async with Box.open(store) as box:
            return await states(box)

    assert asyncio.run(left()) == {State.PENDING: 5, State.CLAIMED: 1}  # the claim whose reply never came expires
