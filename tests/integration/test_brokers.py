"""Relays that publish to real brokers, while relays and brokers are killed: nothing is lost, and order holds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from redbox import Backoff, Box, Event, Phase, Relay
from redbox.testing import check_invariants
from tests import servers
from tests.kafka_cluster import kafka_cluster
from tests.nats_server import NATSServer, jetstream, nats_server, stored

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

EVENTS, KEYS = 1500, 25

#: A relay that is killed after its target has acknowledged the events, and before it acknowledges them itself.
KILLED = """
import asyncio, os, signal, sys
from redbox import Box, Relay, open_publisher

async def main(store, target):
    publisher = open_publisher(target)
    publish_many = publisher.publish_many

    async def and_die(claims):
        assert list(await publish_many(claims)) == [None] * len(claims)
        os.kill(os.getpid(), signal.SIGKILL)

    publisher.publish_many = and_die
    async with Box.open(store, name="orders") as box:
        await Relay(box, publisher, lease=1.0).run()

asyncio.run(main(*sys.argv[1:]))
"""


async def left(box: Box) -> int:
    """How many events are not published yet."""
    phases = (await box.stats()).phases
    assert not phases[Phase.DEAD]
    return sum(count for phase, count in phases.items() if phase is not Phase.COMPLETED)


async def until_left(box: Box, count: int, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while await left(box) > count:
        assert time.monotonic() < deadline, (await box.stats()).phases
        await asyncio.sleep(0.01)


async def under_load(store: str, target: str, fault: Callable[[int], Any]) -> None:
    """Publishes events while `fault` is called three times, from a third of the events on."""
    async with Box.open(store, name="orders") as box:
        events = [Event("order.placed", {"n": n}, event_id=f"e{n}", ordering_key=f"k{n % KEYS}") for n in range(EVENTS)]
        await box.put_many(events)
        relay = Relay(box, target, lease=5.0, backoff=Backoff.fixed(0.05), poll=0.1, concurrency=50, attempts=None)
        running = asyncio.ensure_future(relay.run())
        try:
            for number in range(3):
                await until_left(box, EVENTS * (4 - number) // 5)
                await asyncio.to_thread(fault, number)
            await until_left(box, 0)
            await check_invariants(box)
        finally:
            relay.stop()
            await running


def check_deliveries(ids: Iterable[str]) -> None:
    """Every event arrived, and first deliveries of each key are in order."""
    first = list(dict.fromkeys(ids))
    assert set(first) == {f"e{n}" for n in range(EVENTS)}
    for key in range(KEYS):
        numbers = [n for each in first if (n := int(each[1:])) % KEYS == key]
        assert numbers == sorted(numbers)


def restart(server: NATSServer) -> None:
    server.kill()
    server.start()


@pytest.mark.req("RC-1")
async def test_jetstream_drops_the_duplicate_of_a_killed_relay():
    with servers.redis_server() as redis, nats_server() as server:
        async with jetstream(server.url) as js, Box.open(redis.url, name="orders") as box:
            await js.add_stream(name="orders", subjects=["order.>"])
            await box.put_many([Event("order.placed", {"n": n}) for n in range(3)])
            command = [sys.executable, "-c", KILLED, redis.url, server.url]
            killed = await asyncio.to_thread(subprocess.run, command, timeout=60, check=False)
            assert killed.returncode == -9
            assert (await js.stream_info("orders")).state.messages == 3
            assert await left(box) == 3
            relay = Relay(box, server.url, lease=5.0, reap_every=0.1, poll=0.1)
            running = asyncio.ensure_future(relay.run())
            await until_left(box, 0)
            relay.stop()
            await running
            messages = await stored(js, "orders")
            assert len(messages) == 3
            assert {each.headers["redbox-attempt"] for each in messages} == {"1"}


@pytest.mark.req("RF-4")
async def test_a_nats_server_is_killed_and_restarted_under_load():
    with servers.redis_server() as redis, nats_server() as server:
        async with jetstream(server.url) as js:
            await js.add_stream(name="orders", subjects=["order.>"])
        await under_load(redis.url, server.url, lambda _: restart(server))
        async with jetstream(server.url) as js:
            check_deliveries(each.headers["ce-id"] for each in await stored(js, "orders"))


@pytest.mark.req("RF-4")
async def test_a_kafka_broker_is_lost_and_comes_back_under_load():
    with servers.redis_server() as redis, kafka_cluster() as cluster:
        cluster.create("orders", 4)

        def outage(_: int) -> None:
            cluster.down()
            time.sleep(0.3)  # longer than a reconnect, so that the outage is seen
            cluster.up()

        await under_load(redis.url, f"{cluster.url}/orders", outage)
        records = await asyncio.to_thread(cluster.read, "orders", 4)
        check_deliveries(dict(each.headers())["ce_id"].decode() for each in records)
