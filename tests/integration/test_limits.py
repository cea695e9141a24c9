"""Relay processes under max_rate and max_in_flight: clocks that disagree, kills, and how exact the rate is."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from redbox import Box, Event, Phase, keys
from redbox.testing import check_invariants
from redbox.testing.conformance.operations.test_limits import most_in_windows
from tests import servers
from tests.relay.steps import until

pytestmark = [pytest.mark.usefixtures("redbox_runner"), pytest.mark.timeout(90)]
ADA = {"who": "ada", "why": "test"}
STEP = 1000
#: Hours by which the clock of a relay is wrong, and how fast it runs.
SKEWS = ((-7, 0.5), (0, 1.0), (7, 3.0))

#: Moves its clocks before it imports anything that might keep the real ones. It publishes into nothing.
RELAY = """
import sys, time
url, box_name, hours, speed, lease, hold = sys.argv[1:]
real, real_ns, steady = time.time, time.time_ns, time.monotonic
time.time = lambda: real() + float(hours) * 3600
time.time_ns = lambda: real_ns() + int(hours) * 3600 * 10**9
time.monotonic = lambda: steady() * float(speed)

import asyncio, signal
from redbox import Box, Relay

async def main():
    async with Box.open(url, name=box_name) as box:
        async def publish(event):
            if float(hold):
                await asyncio.sleep(float(hold))
        relay = Relay(box, publish, lease=float(lease), poll=0.5, reap_every=float(lease) / 4, sweep_every=None)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, relay.stop)
        await relay.run()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.redis_server() as running_server:
        yield running_server


class Processes:
    """Relays in processes of their own."""

    def __init__(self, url: str, box: str, *, lease: float = 30.0, hold: float = 0.0) -> None:
        self._arguments = (url, box)
        self._rest = (str(lease), str(hold))
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, hours: int = 0, speed: float = 1.0) -> None:
        command = [sys.executable, "-c", RELAY, *self._arguments, str(hours), str(speed), *self._rest]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.running.append(subprocess.Popen(command, env=env))

    def kill(self) -> None:
        process = self.running.pop(0)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.wait(20)


@asynccontextmanager
async def relays(box: Box, url: str, skews: Sequence[tuple[int, float]], **options: Any) -> AsyncIterator[Processes]:
    processes = Processes(url, box.name, **options)
    try:
        for hours, speed in skews:
            processes.start(hours, speed)
        yield processes
    finally:
        await asyncio.to_thread(processes.stop)


async def put(box: Box, count: int) -> None:
    for first in range(0, count, STEP):
        await box.put_many([Event("n", event_id=f"e{n}") for n in range(first, min(first + STEP, count))])


async def claimed_at(box: Box, count: int) -> list[datetime]:
    """When each event was claimed last, by the store's clock; published events keep it."""
    found: list[datetime] = []
    for first in range(0, count, STEP):
        ids = [f"e{n}" for n in range(first, min(first + STEP, count))]
        replies = await box._store.exchange([("HGET", keys.event(box.name, each), "claimed_at") for each in ids])
        found += [datetime.fromtimestamp(int(moment) / 1000, UTC) for moment in replies if moment is not None]
    return found


#: In one step, so that no claim is made between the reading of the clock and the count.
COUNT_LEASES = """
local now = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], '(' .. now[1] * 1000 + math.floor(now[2] / 1000), '+inf')
"""


async def places_taken(box: Box) -> int:
    """Claims whose leases have not ended; one whose lease has ended takes up no place, also if nobody has reaped it."""
    (count,) = await box._store.exchange([("EVAL", COUNT_LEASES, 1, keys.claimed(box.name))])
    return int(count)


async def published(box: Box) -> int:
    return (await box.stats()).totals.get("published", 0)


@pytest.mark.req("LM-1", "PL-8")
@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.campaign)])
async def test_relays_whose_clocks_disagree_never_exceed_the_rate(server: servers.Server, seconds: int):
    rate, burst = 200, 20
    count = rate * seconds
    async with Box.open(server.url, name=f"skewed{seconds}") as box:
        await put(box, count)
        await box.operate.configure(max_rate=f"{rate}/s", max_burst=burst, **ADA)
        async with relays(box, server.url, SKEWS):
            await until(lambda: _all_published(box, count), "not all were published", seconds * 2 + 20)
        moments = await claimed_at(box, count)
        assert len(moments) == count
        assert most_in_windows(moments, rate) <= burst + 0.01
        assert await check_invariants(box) == []


async def _all_published(box: Box, count: int) -> bool:
    return await published(box) == count


@pytest.mark.req("LM-1", "LM-2", "LM-4")
@pytest.mark.parametrize("kills", [3, pytest.param(12, marks=pytest.mark.campaign)])
async def test_killed_relays_neither_exceed_the_limits_nor_keep_places(server: servers.Server, kills: int):
    """Each relay is killed while it holds claims. When their leases have ended, the others have all places again."""
    rate, burst, most, lease = 100, 25, 10, 1.0
    async with Box.open(server.url, name=f"killed{kills}") as box:
        await put(box, 2000)
        await box.operate.configure(max_rate=f"{rate}/s", max_in_flight=most, **ADA)
        highest, watching = 0, True

        async def watch() -> None:
            nonlocal highest
            while watching:
                highest = max(highest, await places_taken(box))
                await asyncio.sleep(0.01)

        watcher = asyncio.create_task(watch())
        async with relays(box, server.url, SKEWS[:2], lease=lease, hold=0.2) as processes:
            for _ in range(kills):
                before = await published(box)
                await until(lambda: _above(box, before), "nothing is published", 20)  # noqa: B023 - awaited
                processes.kill()
                processes.start()
            while processes.running:
                processes.kill()  # all at once: their claims take up places until their leases end
            processes.start()
            before = await published(box)
            await until(lambda: _above(box, before + 3 * most), "it does not go on", 20)
        watching = False
        await watcher
        moments = await claimed_at(box, 2000)
        assert highest == most
        assert most_in_windows(moments, rate) <= burst + 0.01
        assert (await box.stats()).phases[Phase.IN_FLIGHT] == 0
        assert await check_invariants(box) == []


async def _above(box: Box, count: int) -> bool:
    return await published(box) > count


@pytest.mark.req("LM-1")
@pytest.mark.campaign
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("rate", "count", "seconds"), [(50, 1, 20), (50, 3, 60), (500, 1, 60), (500, 3, 20), (5000, 1, 20), (5000, 3, 20)]
)
async def test_the_rate_is_kept_within_two_percent(server: servers.Server, rate: int, count: int, seconds: int):
    before = 5
    async with Box.open(server.url, name=f"exact{rate}x{count}") as box:
        total = rate * (seconds + before)
        await put(box, total)
        await box.operate.configure(max_rate=f"{rate}/s", keep_published=None, keep_published_count=None, **ADA)
        async with relays(box, server.url, [(0, 1.0)] * count):
            await until(lambda: _above(box, total - rate), "it is too slow", 2 * (seconds + before))
        moments = sorted(await claimed_at(box, total))
    start = moments[0].timestamp() + 2  # all relays are running
    inside = sum(start <= moment.timestamp() < start + seconds for moment in moments)
    share = inside / (rate * seconds)
    worst = most_in_windows(moments, rate)
    print(
        f"{rate}/s with {count} relays: {inside / seconds:.1f}/s, {share:.2%}; worst window {worst:.1f} above the rate"
    )
    assert worst <= max(1, rate / 4) + 0.01
    assert 0.98 <= share <= 1.02
