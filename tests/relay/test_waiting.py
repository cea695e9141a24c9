"""An idle relay waits and claims in one call: its events are never forgotten, and it ends at once when stopped."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from redbox import Backoff, Box, Breaker, Event, Relay, State, StoreUnavailable, Unavailable, keys
from redbox.relay import Circuit
from redbox.relay.outcomes.breaker import SAMPLE
from redbox.store.wire.base import BlockingWait
from redbox.testing.plugin import new_box_name
from tests import servers
from tests.relay.steps import Target, adds_up, known, put, running, states, until

pytestmark = pytest.mark.usefixtures("redbox_runner")


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.redis_server() as started:
        yield started


@pytest.fixture(scope="module")
def client(server: servers.Server) -> Iterator[redis.Redis]:
    with server.client() as opened:
        yield opened


@pytest.fixture
def box(server: servers.Server, redbox_runner: asyncio.Runner) -> Iterator[Box]:
    opened = Box.open(server.url, name=new_box_name())
    yield opened
    redbox_runner.run(opened.aclose())


async def is_waiting(client: redis.Redis) -> None:
    await until(lambda: client.info("clients")["blocked_clients"] > 0, "the relay does not wait")


def calls(client: redis.Redis) -> dict[str, int]:
    return {name: each["calls"] for name, each in client.info("commandstats").items()}


@pytest.mark.req("PC-4")
async def test_a_hint_brings_the_event_without_another_question(box: Box, client: redis.Redis):
    target = Target()
    await box.put(Event("n", event_id="first"))
    async with running(Relay(box, target)):
        await target.has_taken(1)
        await is_waiting(client)
        client.config_resetstat()
        await box.put(Event("n", event_id="second"))
        await target.has_taken(2)
        # Its put, the claim that waited, its ack, and perhaps the next wait.
        assert calls(client)["cmdstat_evalsha"] <= 4
    assert await states(box) == {State.PUBLISHED: 2}


@pytest.mark.req("PC-4")
async def test_a_relay_that_waits_ends_at_once(box: Box, client: redis.Redis):
    relay = Relay(box, Target(), poll=2)
    async with running(relay):
        await is_waiting(client)
        began = time.monotonic()
    assert time.monotonic() - began < 1


async def test_one_that_has_just_begun_to_wait_ends_at_once_too(box: Box):
    for _ in range(20):
        relay = Relay(box, Target(), poll=2)
        running_relay = asyncio.create_task(relay.run())
        await asyncio.sleep(random.uniform(0, 0.02))
        began = time.monotonic()
        relay.stop()
        await running_relay
        assert time.monotonic() - began < 1.5


@pytest.mark.req("PL-8")
async def test_events_that_arrive_while_it_ends_are_not_forgotten(box: Box):
    """Puts and stops at the same moment: claimed events are published or released, and none waits for its lease."""
    taken: list[str] = []

    async def publish(event: Event) -> None:
        taken.append(event.event_id)

    for number in range(60):
        relay = Relay(box, publish)
        task = asyncio.create_task(relay.run())
        await asyncio.sleep(random.uniform(0.005, 0.02))
        putting = asyncio.create_task(box.put(Event("n", event_id=f"e{number}")))
        await asyncio.sleep(random.uniform(0, 0.002))
        if number % 2:
            relay.stop()
            assert adds_up(await task)
        else:
            task.cancel()
            await asyncio.wait([task])
        await putting
        assert (await known(box, f"e{number}")).state is not State.CLAIMED
    assert set(await states(box)) <= {State.PUBLISHED, State.PENDING}
    assert len(taken) == len(set(taken))


@pytest.mark.req("EM-12")
async def test_an_event_that_becomes_due_ends_the_wait(box: Box):
    late: list[float] = []
    due: dict[str, float] = {}

    async def publish(event: Event) -> None:
        late.append(time.monotonic() - due[event.event_id])

    async with running(Relay(box, publish, poll=30)):
        for number in range(5):
            delay = random.uniform(0.1, 0.3)
            due[f"e{number}"] = time.monotonic() + delay
            await box.put(Event("n", event_id=f"e{number}", delay=delay))
            await asyncio.sleep(0.05)
        await until(lambda: len(late) == 5, "not all were published")
    assert min(late) > -0.002
    assert sorted(late)[2] < 0.05


async def test_a_flushed_script_and_a_killed_connection_are_survived(box: Box, client: redis.Redis):
    target = Target()
    async with running(Relay(box, target)):
        await is_waiting(client)
        client.script_flush()
        await box.put(Event("n", event_id="flushed"))
        await target.has_taken(1)
        await is_waiting(client)
        client.client_kill_filter(_type="normal", skipme=True)
        await box.put(Event("n", event_id="killed"))
        await target.has_taken(2)
    assert await states(box) == {State.PUBLISHED: 2}


async def test_a_claim_that_waits_survives_a_flushed_script(box: Box, client: redis.Redis):
    await box.put(Event("n"))
    client.script_flush()
    packed = await box.claim_packed(
        "relay-1", limit=1, lease=30.0, attempts=None, holding=0, longest=0.1, wait=BlockingWait()
    )
    assert len(packed) == 1


async def test_a_lease_shorter_than_the_poll_interval_is_valid_after_the_wait(box: Box, client: redis.Redis):
    relay = Relay(box, target := Target(), lease=0.6, poll=2)
    async with running(relay):
        await is_waiting(client)
        await asyncio.sleep(0.7)
        await box.put(Event("n"))
        await target.has_taken(1)
    assert (relay.summary().published, relay.summary().released) == (1, 0)


async def test_waiting_does_not_count_as_publishing(box: Box, client: redis.Redis):
    relay = Relay(box, target := Target())
    async with running(relay):
        await is_waiting(client)
        await asyncio.sleep(0.5)
        await box.put(Event("n"))
        await target.has_taken(1)
        await until(lambda: relay.summary().published == 1, "not settled")
        assert relay.tally.since_claimed.total < 0.4


async def test_a_paused_box_is_taken_up_again(box: Box, client: redis.Redis):
    target = Target()
    await box.operate.pause(who="ada", why="test")
    async with running(Relay(box, target, poll=0.2)):
        await put(box, 3)
        await asyncio.sleep(0.5)
        assert not target.tried
        await box.operate.resume(who="ada", why="test")
        await target.has_taken(3)


async def test_a_user_without_client_commands_can_relay(server: servers.Server, client: redis.Redis):
    rules = ("on", ">secret", "~{redbox:*", "&*", "+@all", "-client|id", "-client|unblock", "-client|kill")
    client.execute_command("ACL", "SETUSER", "guest", *rules)
    target = Target()
    async with Box.open(f"redis://guest:secret@{server.host}:{server.port}/0", name=new_box_name()) as box:
        assert await box.can_end_wait()
        async with running(Relay(box, target)):
            await is_waiting(client)
            await box.put(Event("n"))
            await target.has_taken(1)
            await is_waiting(client)
            began = time.monotonic()
        assert time.monotonic() - began < 1
        assert await states(box) == {State.PUBLISHED: 1}


async def test_a_wait_that_is_over_does_not_begin(box: Box):
    wait = BlockingWait()
    await box.end_wait(wait)
    with pytest.raises(Exception, match="ended before it began"):
        await box.claim_packed("relay", limit=1, lease=30, attempts=None, holding=0, longest=5, wait=wait)


async def test_a_wait_is_ended_from_elsewhere(box: Box, client: redis.Redis):
    wait = BlockingWait()
    options: dict[str, Any] = {"limit": 1, "lease": 30, "attempts": None, "holding": 0, "longest": 2.4, "wait": wait}
    waiting = asyncio.create_task(box.claim_packed("relay", **options))
    await is_waiting(client)
    began = time.monotonic()
    await box.end_wait(wait)
    assert len(await waiting) == 0
    assert time.monotonic() - began < 0.5


async def test_ending_one_wait_does_not_end_another(box: Box, client: redis.Redis):
    waits = [BlockingWait(), BlockingWait()]
    options: dict[str, Any] = {"limit": 1, "lease": 30, "attempts": None, "holding": 0, "longest": 2.4}
    first, second = [asyncio.create_task(box.claim_packed("relay", **options, wait=wait)) for wait in waits]
    await until(lambda: client.info("clients")["blocked_clients"] == 2, "they do not wait")  # type: ignore[index]
    await box.end_wait(waits[0])
    await first
    assert not second.done()
    await box.end_wait(waits[1])
    await second
    assert list(client.scan_iter(f"{keys.prefix(box.name)}:wait:*")) == []


async def test_on_a_cluster(cluster_url: str):
    target = Target()
    async with Box.open(cluster_url, name=new_box_name()) as box:
        assert await box.can_end_wait()
        async with running(Relay(box, target, poll=30)):
            for number in range(5):
                await asyncio.sleep(0.05)
                await box.put(Event("n", event_id=f"e{number}"))
                await target.has_taken(number + 1)
            began = time.monotonic()
        assert time.monotonic() - began < 1
        assert await states(box) == {State.PUBLISHED: 5}


async def test_a_relay_that_may_not_wait_asks_less_and_less_often(
    box: Box, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """As with an ACL that forbids BLPOP: claims work, and each wait is refused at once."""
    caplog.set_level(logging.DEBUG, "redbox.relay")
    claim = box.claim_packed

    async def refused(*args: Any, wait: BlockingWait | None = None, **options: Any) -> Any:
        if wait is not None:
            raise StoreUnavailable("may not wait")
        return await claim(*args, **options)

    monkeypatch.setattr(box, "claim_packed", refused)
    target = Target()
    async with running(Relay(box, target)):
        await until(lambda: "claiming again in 0.40 s" in caplog.text, "it asks all the time")
        await put(box, 1)
        await target.has_taken(1)


# --- and the breaker -----------------------------------------------------------------------------------------------


@pytest.mark.req("RF-4")
async def test_an_open_breaker_claims_nothing_over_and_over(box: Box):
    target = Target(raises=Unavailable("down"))
    breaker = Breaker(unavailable=3, pause=0.8, longest=0.8)
    relay = Relay(box, target, breaker=breaker, backoff=Backoff.fixed(0.05))
    await put(box, 5)
    async with running(relay):
        await until(lambda: relay.circuit is Circuit.OPEN, "it did not open")
        for number in range(20):
            await box.put(Event("n", event_id=f"late{number}"))
            await asyncio.sleep(0.02)
        assert relay.summary().claimed <= 60  # each of them once or twice, not thousands of times
        target.raises = None
        await target.has_taken(25)
    assert await states(box) == {State.PUBLISHED: 25}


@pytest.mark.req("RF-4")
async def test_a_probe_that_has_to_wait_is_a_small_sample(box: Box):
    target = Target(raises=Unavailable("down"))
    breaker = Breaker(unavailable=5, pause=0.05, longest=0.05)
    relay = Relay(box, target, breaker=breaker, backoff=Backoff.fixed(0.4))
    await put(box, 5)
    async with running(relay):
        await until(lambda: breaker.opened == 1, "it did not open")
        tried = len(target.tried)
        await until(lambda: breaker.opened >= 3, "it did not probe")
        assert len(target.tried) - tried <= SAMPLE * breaker.opened
        target.raises = None
        await target.has_taken(5)
