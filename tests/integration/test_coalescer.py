"""Concurrent puts share round trips, and nothing else: not their failures, not their cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from redbox import Box, Conflict, Event, IdReused, StoreUnavailable
from redbox.box import coalescer
from redbox.errors import Effect, InvalidEvent, MissingExtra, UsageError
from redbox.testing import check_invariants


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Watched:
    """The store's put: counts the calls and their sizes, and holds them back when asked."""

    def __init__(self, box: Box) -> None:
        self._put = box._store.put
        self.sizes: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.begun = asyncio.Event()

    async def __call__(self, mode: str, events: Any, durability: Any) -> Any:
        events = list(events)
        self.sizes.append(len(events))
        self.begun.set()
        await self.open.wait()
        return await self._put(mode, events, durability)


@pytest.fixture
def calls(box: Box, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    watched = Watched(box)
    monkeypatch.setattr(box._store, "put", watched)
    yield watched
    watched.open.set()


def event(number: int, **fields: Any) -> Event:
    return Event("user.created", {"id": number}, **fields)


async def numbers(box: Box) -> list[int]:
    """What the box holds, in the order it would be claimed."""
    return [record.event.decode()["id"] async for record in box.list()]


# --- sharing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "sizes"), [(2, [2]), (50, [50]), (100, [50, 50]), (301, [151, 150])])
async def test_concurrent_puts_share_a_call_or_two(box: Box, calls: Watched, count: int, sizes: list[int]):
    receipts = await asyncio.gather(*(box.put(event(number)) for number in range(count)))
    assert [receipt.created for receipt in receipts] == [True] * count
    assert len({receipt.event_id for receipt in receipts}) == count
    assert calls.sizes == sizes
    assert sorted(await numbers(box)) == list(range(count))


async def test_at_most_two_calls_are_in_flight(box: Box, calls: Watched):
    calls.open.clear()
    putting = [asyncio.create_task(box.put(event(number))) for number in range(1000)]
    await calls.begun.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert calls.sizes == [500, 500]
    calls.open.set()
    await asyncio.gather(*putting)
    assert sorted(await numbers(box)) == list(range(1000))


async def test_ordered_events_are_sent_while_no_other_call_is_in_flight(box: Box, calls: Watched):
    """Two calls could change places when a connection breaks."""
    calls.open.clear()
    plain = [asyncio.create_task(box.put(event(number))) for number in range(3)]
    await calls.begun.wait()
    ordered = [asyncio.create_task(box.put(event(number, ordering_key="a"))) for number in range(3, 200)]
    later = asyncio.create_task(box.put(event(200)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert calls.sizes == [3]
    calls.begun.clear()
    calls.open.set()
    await asyncio.gather(*plain, *ordered, later)
    assert calls.sizes == [3, 198]


async def test_puts_during_a_call_share_the_next_one(box: Box, calls: Watched):
    calls.open.clear()
    first = asyncio.create_task(box.put(event(0)))
    await calls.begun.wait()
    others = [asyncio.create_task(box.put(event(number))) for number in range(1, 50)]
    await asyncio.sleep(0)
    calls.open.set()
    await asyncio.gather(first, *others)
    assert calls.sizes == [1, 49]
    assert await numbers(box) == list(range(50))


async def test_the_server_sees_few_scripts(redis_url: str, redbox_runner: asyncio.Runner):
    def script_calls() -> int:
        with redis.Redis.from_url(redis_url) as client:
            seen: Any = client.info("commandstats")
        return sum(int(seen.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("evalsha", "eval"))

    async with Box.open(redis_url, name="few-scripts") as box:
        await box.put(event(0))
        before = script_calls()
        await asyncio.gather(*(box.put(event(number)) for number in range(100)))
        assert script_calls() - before <= 2


async def test_one_put_after_the_other_is_one_call_each(box: Box, calls: Watched):
    for number in range(3):
        await box.put(event(number))
    assert calls.sizes == [1, 1, 1]


@pytest.mark.req("OP-1")
async def test_concurrent_puts_of_one_line_keep_their_order(box: Box):
    await asyncio.gather(*(box.put(event(number, ordering_key="user:42")) for number in range(30)))
    seen = []
    while claims := await box.claim("relay-1"):
        assert len(claims) == 1
        seen.append(claims[0].event.decode()["id"])
        await box.ack(claims)
    assert seen == list(range(30))


# --- bounds ----------------------------------------------------------------------------------------------------


async def test_a_call_is_bounded_in_bytes(box: Box, calls: Watched, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(coalescer, "STEP_BYTES", 1200)
    payloads = [b"x" * 300] * 7 + [b"x" * 5000] + [b"x" * 300] * 2
    await asyncio.gather(*(box.put(Event("user.created", payload)) for payload in payloads))
    assert calls.sizes == [3, 3, 1, 1, 2]  # the large one goes alone
    assert [len(record.event.payload) async for record in box.list()] == [len(payload) for payload in payloads]


async def test_a_call_is_bounded_in_count(box: Box, calls: Watched, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(coalescer, "BATCH_COUNT", 10)
    await asyncio.gather(*(box.put(event(number)) for number in range(25)))
    assert calls.sizes == [10, 10, 5]


# --- failing alone ---------------------------------------------------------------------------------------------


@pytest.mark.req("MQ-4", "EM-1")
async def test_one_bad_event_fails_alone(box: Box, calls: Watched):
    await box.put(event(1, event_id="taken"))
    results = await asyncio.gather(
        box.put(event(2)),
        box.put(event(3, event_id="taken")),
        box.put(event(4, unique_key="u")),
        box.put(event(5, unique_key="u")),
        box.put(Event("user.created", object())),
        box.put(event(1, event_id="taken")),
        box.put(event(6)),
        return_exceptions=True,
    )
    kinds = [type(result) if isinstance(result, Exception) else result.created for result in results]
    assert kinds == [True, IdReused, True, Conflict, InvalidEvent, False, True]
    assert calls.sizes == [1, 6]
    assert sorted(await numbers(box)) == [1, 2, 4, 6]


@pytest.mark.usefixtures("redbox_runner")
async def test_a_failing_server_fails_every_caller_with_an_exception_of_its_own():
    async with Box.open("redis://127.0.0.1:1/0") as box:
        results = await asyncio.gather(*(box.put(event(number)) for number in range(10)), return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailable] * 10
        assert len({id(result) for result in results}) == 10
        assert all("redis://127.0.0.1:1/0 cannot be reached" in str(result) for result in results)
        assert all(isinstance(result, Exception) and result.__cause__ is not None for result in results)
        with pytest.raises(StoreUnavailable):  # and the coalescer is not stuck
            await box.put(event(11))


async def test_a_lane_goes_on_after_a_failure(box: Box, calls: Watched, monkeypatch: pytest.MonkeyPatch):
    async def failing(*_: Any) -> Any:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(box._store, "put", failing)
        results = await asyncio.gather(box.put(event(0)), box.put(event(1)), return_exceptions=True)
    assert [str(result).partition(" ")[0] for result in results] == ["gone", "gone"]
    assert (await box.put(event(2))).created


@pytest.mark.parametrize("effect", [Effect.UNKNOWN, Effect.NOTHING_CHANGED, Effect.UNSAID])
@pytest.mark.parametrize("reworded", [False, True])
async def test_puts_behind_a_silent_store_were_not_sent(
    box: Box, monkeypatch: pytest.MonkeyPatch, effect: Effect, reworded: bool
):
    async def failing(*_: Any) -> Any:
        raise StoreUnavailable("gone").with_effect(effect, "!")

    with monkeypatch.context() as patch:
        patch.setattr(box._store, "put", failing)
        patch.setattr(coalescer, "SILENCE", 0)
        if reworded:
            for each in Effect:
                patch.setattr(each, "_value_", f"; {each.name}")
        failures = await asyncio.gather(
            *(box.put(event(number, ordering_key="k", event_id=f"e{number}")) for number in range(1001)),
            return_exceptions=True,
        )
        sent, queued = failures[0], failures[-1]
        assert isinstance(sent, StoreUnavailable)
        assert isinstance(queued, StoreUnavailable)
        assert (sent.effect, str(sent)) == (effect, f"gone{effect.value}! (event_id e0)")
        assert queued.effect is Effect.NOTHING_CHANGED
        assert str(queued) == f"gone{Effect.NOTHING_CHANGED.value}! (event_id e1000)"


async def test_whatever_the_store_raises_reaches_every_caller_as_it_is(box: Box, monkeypatch: pytest.MonkeyPatch):
    async def failing(*_: Any) -> Any:
        raise MissingExtra("embedded:", "embedded")

    monkeypatch.setattr(box._store, "put", failing)
    results = await asyncio.gather(box.put(event(0)), box.put(event(1)), return_exceptions=True)
    assert [type(result) for result in results] == [MissingExtra, MissingExtra]
    assert "pip install" in str(results[0])
    monkeypatch.undo()


# --- cancelling ------------------------------------------------------------------------------------------------


async def test_cancelling_before_it_is_sent_leaves_only_that_one_out(box: Box, calls: Watched):
    calls.open.clear()
    first = asyncio.create_task(box.put(event(0)))
    await calls.begun.wait()
    waiting = [asyncio.create_task(box.put(event(number))) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    calls.open.set()
    results = await asyncio.gather(first, *waiting, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [False, False, True, False]
    assert await numbers(box) == [0, 1, 3]


async def test_cancelling_in_flight_leaves_the_others_alone(box: Box, calls: Watched):
    calls.open.clear()
    tasks = [asyncio.create_task(box.put(event(number))) for number in range(3)]
    await calls.begun.wait()
    tasks[0].cancel()  # the one that set the call going
    await asyncio.wait([tasks[0]])
    calls.open.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert [result.created for result in results[1:]] == [True, True]  # type: ignore[union-attr]
    assert await numbers(box) == [0, 1, 2]  # it was on its way: it may have been put, and was
    assert await check_invariants(box) == []


async def test_cancelling_all_leaves_the_lane_usable(box: Box, calls: Watched):
    calls.open.clear()
    tasks = [asyncio.create_task(box.put(event(number))) for number in range(3)]
    await calls.begun.wait()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    calls.open.set()
    assert (await box.put(event(3))).created


async def test_a_timeout_around_a_put_is_a_timeout(box: Box, calls: Watched):
    calls.open.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await box.put(event(0))
    calls.open.set()
    assert (await box.put(event(1))).created


# --- closing ---------------------------------------------------------------------------------------------------


async def test_closing_waits_for_puts_in_flight(box: Box, calls: Watched):
    calls.open.clear()
    tasks = [asyncio.create_task(box.put(event(number))) for number in range(3)]
    await calls.begun.wait()
    closing = asyncio.create_task(box.aclose())
    await asyncio.sleep(0)
    assert not closing.done()
    calls.open.set()
    await closing
    assert [(await task).created for task in tasks] == [True, True, True]
    with pytest.raises(UsageError, match=r"closed; open it again with Box\.open"):
        await box.put(event(4))


async def test_closing_twice_is_closing_once(box: Box):
    await box.put(event(0))
    await box.aclose()
    await box.aclose()
    assert box._store.exchanges._wire is None
