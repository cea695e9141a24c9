"""An idle relay: how few commands it sends, how soon it wakes, and its services."""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis.asyncio

from redbox import Box, Event, Phase, Relay, UsageError, keys
from redbox.box.bulk import sweep as sweeping
from redbox.box.reports import Swept
from redbox.errors import StoreUnavailable
from redbox.relay import services
from redbox.relay.services import Heartbeat, LossWatch, Reaper, ReapResult, Sweeper, serve
from redbox.testing import advance
from redbox.testing.plugin import new_box_name
from tests import servers
from tests.relay.steps import LIMIT, Target, drained, put, running, until

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("redbox_runner")]
COUNTED = ("evalsha", "eval", "blpop")


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.redis_server() as running_server:
        yield running_server


def calls(server: servers.Server) -> dict[str, int]:
    """The calls of each command by clients, without the calls inside scripts."""
    with server.client() as client:
        counts = {name.removeprefix("cmdstat_"): row["calls"] for name, row in client.info("commandstats").items()}  # type: ignore[union-attr]
        return {name: count for name, count in counts.items() if name in COUNTED}


# --- how little --------------------------------------------------------------------------------------------------


async def test_an_idle_relay_sends_at_most_two_commands_a_second(server: servers.Server):
    async with Box.open(server.url, name="idle") as box:
        await drained(Relay(box, Target()))  # so that the scripts are known
        target = Target()
        async with running(Relay(box, target)):
            await box.put(Event("n"))
            await target.has_taken(1)
            await until(lambda: _waiters(server) == 1, "it does not wait")
            seconds = 6.5  # long enough for each service to run
            sent = await _monitored(server, seconds)
    print(f"idle: {sum(sent.values()) / seconds:.2f} commands per second: {dict(sent)}")
    assert sum(sent.values()) / seconds <= 2
    assert sent["BLPOP"] >= 2


async def _monitored(server: servers.Server, seconds: float) -> Counter[str]:
    """The commands of clients within `seconds`, without the calls inside scripts."""
    sent: Counter[str] = Counter()
    client = redis.asyncio.Redis(port=server.port)
    async with client, client.monitor() as monitor:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for command in monitor.listen():
                    if command["client_type"] != "lua":
                        sent[command["command"].split(" ", 1)[0].upper()] += 1
    return sent


# --- how soon ----------------------------------------------------------------------------------------------------


async def test_a_new_event_is_picked_up_at_once(server: servers.Server):
    """Seconds from before the put until the publisher has it."""
    took: list[float] = []
    arrived: asyncio.Queue[float] = asyncio.Queue()

    async def publish(event: Event) -> None:
        arrived.put_nowait(time.perf_counter())

    async with Box.open(server.url, name="latency") as box, running(relay := Relay(box, publish)):
        for number in range(220):
            began = time.perf_counter()
            await box.put(Event("n"))
            async with asyncio.timeout(LIMIT):
                elapsed = await arrived.get() - began
            await until(lambda: relay.in_flight == 0, "it was not settled")
            if number >= 20:
                took.append(elapsed * 1000)
    p50, p90 = statistics.median(took), statistics.quantiles(took, n=10)[8]
    print(f"picked up: p50 {p50:.2f} ms, p90 {p90:.2f} ms, longest {max(took):.2f} ms")
    assert p50 <= 2 * 5
    assert p90 <= 10 * 5


async def test_a_lost_hint_costs_at_most_the_poll_interval(server: servers.Server):
    target = Target()
    async with Box.open(server.url, name="lost-hint") as box, running(Relay(box, target, poll=0.5)):
        for number in range(1, 4):
            # All in one transaction: the hint is gone before the relay can see it.
            async with box.transaction() as tx:
                tx.put(Event("n"))
                tx.redis.delete(keys.wake(box.name))
            began = time.monotonic()
            await target.has_taken(number)
            assert time.monotonic() - began < 1.5


async def test_a_hint_that_another_waiter_took(server: servers.Server):
    """One hint wakes one waiter; if that one ends without a claim, the others find the event by polling."""
    target = Target()
    async with Box.open(server.url, name="thief") as box, Box.open(server.url, name="thief") as thief:
        for _ in range(3):
            waiting = asyncio.create_task(thief.wait_for_hint(2.0))
            await until(lambda: _waiters(server) == 1, "it does not wait")
            async with running(Relay(box, target, poll=0.3)):
                await until(lambda: _waiters(server) == 2, "the relay does not wait")
                await box.put(Event("n"))
                assert await waiting
                began, wanted = time.monotonic(), len(target.taken) + 1
                await until(lambda: len(target.taken) >= wanted, "it was not found")  # noqa: B023
                assert time.monotonic() - began < 1.5
            await until(lambda: _waiters(server) == 0, "somebody still waits")


def _waiters(server: servers.Server) -> int:
    with server.client() as client:
        return int(client.info("clients")["blocked_clients"])  # type: ignore[index]


async def test_scheduled_events_come_on_time_and_without_a_busy_loop(server: servers.Server):
    arrived: dict[str, float] = {}

    async def publish(event: Event) -> None:
        arrived[event.event_id] = time.monotonic()

    async with Box.open(server.url, name="scheduled") as box, running(Relay(box, publish)):
        await box.put(Event("n", event_id="first"))
        await until(lambda: "first" in arrived, "it does not run")
        before, due = sum(calls(server).values()), {}
        for delay in (0.9, 0.6, 0.3):
            due[str(delay)] = time.monotonic() + delay
            await box.put(Event("n", event_id=str(delay), delay=delay))
        await until(lambda: len(arrived) == 4, "they did not come")
        sent = sum(calls(server).values()) - before
    late = [arrived[event_id] - due[event_id] for event_id in due]
    print(f"scheduled events came {', '.join(f'{each * 1000:.1f}' for each in late)} ms late; {sent} commands")
    assert all(-0.002 <= each < 0.5 for each in late)
    assert sent < 30


async def test_a_paused_box(box: Box):
    await put(box, 3)
    await box.operate.pause(who="ada", why="test")
    target = Target()
    relay = Relay(box, target)
    async with running(relay):
        await until(lambda: relay._engine and relay._engine.state.waiting, "it does not wait")
        await box.put(Event("n"))
        assert target.tried == []
        await box.operate.resume(who="ada", why="test")
        began = time.monotonic()
        await target.has_taken(4)
        assert time.monotonic() - began < 3


async def test_a_relay_waits_for_the_end_of_a_pause_with_few_commands(server: servers.Server):
    async with Box.open(server.url, name="pause") as box:
        await drained(Relay(box, Target()))
        await put(box, 3)
        await box.operate.pause(duration=2, who="ada", why="test")
        target = Target()
        async with running(Relay(box, target)):
            before, began = sum(calls(server).values()), time.monotonic()
            await target.has_taken(3)
            sent, waited = sum(calls(server).values()) - before, time.monotonic() - began
    print(f"waited {waited:.2f} s; {sent} commands")
    assert 1 < waited < 3
    assert sent < 20


async def test_a_relay_claims_at_the_rate_of_a_ramp_with_few_commands(server: servers.Server):
    async with Box.open(server.url, name="ramp") as box:
        await drained(Relay(box, Target()))
        await put(box, 5)
        await box.operate.resume(ramp=3600, who="ada", why="test")
        target = Target()
        async with running(Relay(box, target)):
            before, began = sum(calls(server).values()), time.monotonic()
            await target.has_taken(5)
            sent, waited = sum(calls(server).values()) - before, time.monotonic() - began
    print(f"5 events in {waited:.2f} s; {sent} commands")
    assert 3.5 < waited < 6
    assert sent < 40


# --- services ----------------------------------------------------------------------------------------------------


async def test_events_that_a_claim_finds_incomplete_are_warned_of_once(
    redbox_box: Box, caplog: pytest.LogCaptureFixture
):
    watch = LossWatch(redbox_box)
    events = [Event("n", event_id=f"e{number}") for number in range(3)]
    await redbox_box.put_many(events)
    assert await watch.run_once() == 0
    await redbox_box._store.exchange([("UNLINK", keys.body(redbox_box.name, "e1"))])
    assert len(await redbox_box.claim("relay-1")) == 2
    assert await watch.run_once() == await watch.run_once() == 1
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        (
            "WARNING",
            "1 event is lost: it is stored in part, and never delivered (e1); `redbox doctor` says what to do",
        )
    ]


async def test_a_relay_warns_of_lost_events_when_it_meets_them(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    await redbox_box.put_many([Event("n", event_id=f"e{number}") for number in range(3)])
    await redbox_box._store.exchange([("UNLINK", keys.event(redbox_box.name, "e1"))])
    await Relay(redbox_box, lambda _: None).drain()
    assert "1 event is lost: it is stored in part, and never delivered (e1)" in caplog.text


async def test_reaper(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    reaper = Reaper(redbox_box)
    assert await reaper.run_once() == ReapResult(0)
    assert caplog.text == ""
    await put(redbox_box, 5)
    await redbox_box.claim("dead")
    await advance(redbox_box, minutes=1)
    assert await reaper.run_once() == ReapResult(5)
    assert "5 expired claims returned to PENDING" in caplog.text


async def test_the_reaper_goes_on_until_all_are_returned(redbox_box: Box):
    events = [Event("n") for _ in range(1200)]
    await redbox_box.put_many(events)
    while await redbox_box.claim("dead", limit=1000):
        pass
    await advance(redbox_box, minutes=1)
    assert await Reaper(redbox_box).run_once() == ReapResult(1200)


async def test_sweeper(redbox_box: Box):
    await put(redbox_box, 3)
    await redbox_box.ack(await redbox_box.claim("relay-1"))
    assert await Sweeper(redbox_box).run_once() == Swept()
    await advance(redbox_box, hours=25)
    assert await Sweeper(redbox_box).run_once() == Swept(published=3)


@pytest.mark.req("MQ-5")
async def test_the_sweeper_keeps_up_with_the_publish_rate(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    """It sweeps in bounded steps, and the sooner again, the more there was to remove."""
    monkeypatch.setattr(sweeping, "SWEEP_COUNT", 10)
    monkeypatch.setattr(services, "SWEEP_AIM", 1)
    await redbox_box.operate.configure(keep_published_count=5, who="ada", why="a test")
    sweep, steps = redbox_box._store.sweep, []

    async def counted(index: str, *, limit: int, **more: Any) -> Any:
        steps.append(limit)
        return await sweep(index, limit=limit, **more)

    monkeypatch.setattr(redbox_box._store, "sweep", counted)
    sweeper = Sweeper(redbox_box, every=5)
    assert await sweeper.run_once() == Swept()
    assert sweeper.every == 5
    for _ in range(3):
        await put(redbox_box, 100)
        await redbox_box.ack(await redbox_box.claim("relay-1", limit=100))
        await sweeper.run_once()
        assert (await redbox_box.stats()).phases[Phase.COMPLETED] == 5
        assert sweeper.every < 1
    assert set(steps) == {10}
    for _ in range(20):
        await sweeper.run_once()
    assert sweeper.every == 5


@pytest.mark.req("MQ-5")
async def test_a_relay_that_publishes_much_sweeps_before_it_is_time(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(services, "SWEEP_AIM", 10)
    await redbox_box.operate.configure(keep_published_count=5, who="ada", why="a test")
    sweep, swept = redbox_box.sweep, asyncio.Event()

    async def noted(**options: Any) -> Swept:
        found = await sweep(**options)
        if found.published:
            swept.set()
        return found

    monkeypatch.setattr(redbox_box, "sweep", noted)
    async with Relay(redbox_box, "null:", sweep_every=3600):
        await put(redbox_box, 30)
        await asyncio.wait_for(swept.wait(), 20)


@pytest.mark.req("MQ-5")
async def test_a_drain_sweeps(redbox_box: Box):
    await redbox_box.operate.configure(keep_published_count=5, who="ada", why="a test")
    await put(redbox_box, 30)
    await Relay(redbox_box, "null:", sweep_every=None).drain()
    assert (await redbox_box.stats()).phases[Phase.COMPLETED] == 30
    await put(redbox_box, 10)
    await Relay(redbox_box, "null:").drain()
    assert (await redbox_box.stats()).phases[Phase.COMPLETED] == 5


@pytest.fixture
def endless_sweeps(redbox_box: Box, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Makes sweeps of `redbox_box` endless; the arguments of the sweeps that began."""
    begun: list[Any] = []

    async def step(*arguments: Any, **_: Any) -> None:
        begun.append(arguments)
        await asyncio.Event().wait()

    monkeypatch.setattr(redbox_box._store, "sweep", step)
    return begun


@pytest.mark.req("PL-6")
async def test_stop_ends_the_sweep_at_the_end_of_a_drain(redbox_box: Box, endless_sweeps: list[Any]):
    await put(redbox_box, 5)
    relay = Relay(redbox_box, Target())
    draining = asyncio.create_task(drained(relay))
    await until(lambda: len(endless_sweeps) == 2, "it does not sweep beside publishing and at the end")
    relay.stop()
    async with asyncio.timeout(5):
        assert (await draining).published == 5
    assert not relay.running


async def test_a_drain_that_was_stopped_does_not_sweep_at_its_end(redbox_box: Box, endless_sweeps: list[Any]):
    await put(redbox_box, 5)

    async def publish(_: Event) -> None:
        await until(lambda: endless_sweeps, "it does not sweep beside publishing")
        relay.stop()

    relay = Relay(redbox_box, publish, concurrency=5)
    async with asyncio.timeout(5):
        assert (await relay.drain()).published == 5
    assert len(endless_sweeps) == 1


async def test_a_sweeper_whose_store_is_away_runs_at_its_slowest_rate(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    sweeper = Sweeper(redbox_box, every=5)
    sweeper.every = services.SWEEP_SOONEST  # after a run with much to remove

    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(redbox_box._store, "sweep", away)
    with pytest.raises(StoreUnavailable):
        await sweeper.run_once()
    assert sweeper.every == 5


async def test_heartbeat(redbox_box: Box):
    beat = Heartbeat(redbox_box, "relay-1", lambda: {"target": "nowhere", "in_flight": "3"})
    await beat.run_once()
    (report,) = (await redbox_box.stats()).relays
    assert (report.name, report.target, report.in_flight) == ("relay-1", "nowhere", 3)
    await beat.leave()
    assert (await redbox_box.stats()).relays == []


async def test_two_heartbeats_of_one_name_are_noticed_once(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    first, second = (Heartbeat(redbox_box, "twin", dict) for _ in range(2))
    await first.run_once()
    assert caplog.text == ""
    for _ in range(3):
        await second.run_once()
        await first.run_once()
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2  # each of them, once
    assert "another relay named 'twin' is alive" in warnings[0]
    await second.leave()  # the other one is still listed
    assert [report.name for report in (await redbox_box.stats()).relays] == ["twin"]


async def test_each_service_runs_alone(redbox_box: Box):
    await put(redbox_box, 2)
    await redbox_box.claim("dead", lease=0.05)
    service = asyncio.create_task(serve(Reaper(redbox_box, every=0.02)))

    async def given_back() -> bool:
        return (await redbox_box.stats()).totals.get("expired", 0) == 2

    await until(given_back, "nobody reaped")
    service.cancel()
    with pytest.raises(asyncio.CancelledError):
        await service


async def test_a_service_ends_whenever_it_is_cancelled(redbox_box: Box):
    await put(redbox_box, 1)
    for number in range(50):
        service = asyncio.create_task(serve(Reaper(redbox_box, every=0.001)))
        await asyncio.sleep(number * 0.0001)
        service.cancel()
        done, _ = await asyncio.wait([service], timeout=5)
        assert done, number


async def test_a_service_goes_on_when_the_store_comes_back(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "redbox.relay")
    with servers.redis_server() as own:
        async with Box.open(own.url, name="back") as box:
            await box.put(Event("n"))
            service = asyncio.create_task(serve(Heartbeat(box, "relay-1", dict, every=0.05)))
            own.kill()
            await until(lambda: "heartbeat got no answer from the store: " in caplog.text, "it says nothing")
            own.start()

            async def listed() -> bool:
                return bool((await box.stats()).relays)

            await until(listed, "it did not go on")
            service.cancel()


@pytest.mark.parametrize("every", [0, -1, float("nan")])
def test_an_interval_that_cannot_be_is_refused(every: float):
    box = Box.open("memory:")
    for service in (Reaper, Sweeper):
        with pytest.raises(UsageError, match="positive number of seconds"):
            service(box, every=every)


@pytest.mark.timeout(30)
async def test_a_scheduled_event_is_not_kept_waiting_for_the_servers_clock_tick(redis_url: str, redbox_runner):
    """A server ends a blocked wait only every 100 ms; the relay's own timer is what counts."""
    late = []
    arrived = asyncio.Event()

    async def publish(event: Event) -> None:
        late.append(time.monotonic() - due)
        arrived.set()

    async with Box.open(redis_url, name=new_box_name()) as box, Relay(box, publish):
        for _ in range(15):
            arrived.clear()
            due = time.monotonic() + 0.15
            await box.put(Event("n", delay=0.15))
            await asyncio.wait_for(arrived.wait(), 5)
    print(f"\nlate by {sorted(late)[len(late) // 2] * 1000:.1f} ms (median)")
    assert sorted(late)[len(late) // 2] < 0.025


async def test_a_paused_box_is_logged_once_and_its_end_too(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", logger="redbox.relay")
    await redbox_box.operate.pause(who="ada", why="test")
    target = Target()
    async with Relay(redbox_box, target, poll=0.05):
        await until(lambda: "the box is paused" in caplog.text, "nothing was logged")
        await put(redbox_box, 1)
        await redbox_box.operate.resume(who="ada", why="test")
        await target.has_taken(1)
    assert caplog.text.count("the box is paused") == 1
    assert caplog.text.count("the box is resumed") == 1
    assert "paused by ada (test); to claim again, run `redbox resume`; waiting" in caplog.text


async def test_a_pause_that_replaces_another_is_logged_too(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    await redbox_box.operate.pause(who="ada", why="first")
    async with Relay(redbox_box, Target(), poll=0.05):
        await until(lambda: "by ada (first)" in caplog.text, "nothing was logged")
        await redbox_box.operate.pause(who="bob", why="second", duration=600)
        await until(lambda: "by bob until 2" in caplog.text, "the second pause was not logged")


async def test_a_drain_waits_for_a_ramp(redbox_box: Box):
    await put(redbox_box, 3)
    await redbox_box.operate.resume(ramp=3600, who="ada", why="test")
    target, began = Target(), time.monotonic()
    await drained(Relay(redbox_box, target))
    assert len(target.tried) == 3
    assert time.monotonic() - began > 1.8
