"""Three relay processes, one of which is killed repeatedly; and an event that kills the relay that publishes it."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from redbox import Box, Event, Phase
from redbox.relay.policy import ATTEMPTS
from redbox.testing import check_invariants
from redbox.testing.plugin import new_box_name
from tests import servers

EVENTS, KEYS = 20_000, 200
LEASE = 1.0
DELIVERIES = "deliveries"


class Relays:
    """The processes that a test starts and ends."""

    def __init__(self, store: str, box: str, attempts: int) -> None:
        arguments = [store, box, DELIVERIES, str(LEASE), str(attempts)]
        self._command = [sys.executable, "-m", "tests.relay.worker", *arguments]
        self._running: list[subprocess.Popen[str]] = []

    def start(self, *more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([*self._command, *more], stdout=subprocess.PIPE, text=True)
        self._running.append(process)
        return process

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        self._collect(process)

    def end(self) -> list[int]:
        """Stops all that still run; returns their exit codes."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        return [self._collect(process) for process in list(self._running)]

    def ended_by_themselves(self) -> int:
        """The number that have ended since the last call."""
        gone = [process for process in self._running if process.poll() is not None]
        for process in gone:
            self._collect(process)
        return len(gone)

    def _collect(self, process: subprocess.Popen[str]) -> int:
        try:
            code = process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert process.stdout is not None
        process.stdout.close()
        self._running.remove(process)
        return code


@contextmanager
def relays_of(store: str, box: str, attempts: int = ATTEMPTS) -> Iterator[Relays]:
    relays = Relays(store, box, attempts)
    try:
        yield relays
    finally:
        relays.end()


def wait_until_it_says(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


@pytest.mark.req("PL-6", "PL-7", "PL-8", "OP-1", "DS-1")
@pytest.mark.timeout(180)
@pytest.mark.campaign
def test_a_relay_that_is_killed_again_and_again():
    """First between publish and ack, then at any moment after its first publish."""
    with servers.redis_server() as server, relays_of(server.url, box_name := new_box_name()) as relays:
        victim = relays.start("hold")
        wait_until_it_says(victim, "ready")
        putting = subprocess.Popen(
            [sys.executable, "-c", PUT, server.url, box_name, str(EVENTS), str(KEYS)], stdout=subprocess.DEVNULL
        )
        wait_until_it_says(victim, "published")
        relays.kill(victim)
        with server.client() as client:
            unacknowledged = client.lrange(DELIVERIES, 0, -1)
        others, victim = [relays.start(), relays.start()], relays.start()
        for process in (*others, victim):
            wait_until_it_says(process, "ready")
        chance, kills, deadline = random.Random(7), 0, time.monotonic() + 150

        def all_done() -> bool:
            assert time.monotonic() < deadline, asyncio.run(stats(server.url, box_name))
            return putting.poll() is not None and asyncio.run(finished(server.url, box_name))

        while not all_done():
            with server.client() as client:
                while not client.sismember(f"{DELIVERIES}:from", str(victim.pid)) and not all_done():
                    time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.3))
            relays.kill(victim)
            kills += 1
            victim = relays.start()
            wait_until_it_says(victim, "ready")
        assert putting.returncode == 0
        assert relays.end() == [0, 0, 0]
        assert kills >= 5

        with server.client() as client:
            delivered = client.lrange(DELIVERIES, 0, -1)
        final = asyncio.run(stats(server.url, box_name))
        assert asyncio.run(problems(server.url, box_name)) == []
    assert len(set(delivered)) == EVENTS
    times = Counter(delivered)
    assert unacknowledged
    assert all(times[event_id] > 1 for event_id in unacknowledged)
    assert final.phases[Phase.COMPLETED] == final.totals["put"] == EVENTS
    assert final.phases[Phase.DEAD] == 0
    assert sum(final.phases.values()) == EVENTS
    first: dict[str, list[int]] = defaultdict(list)
    seen = set()
    for event_id in delivered:
        key, place = event_id.split("/")
        if event_id not in seen:
            seen.add(event_id)
            first[key].append(int(place))
    assert all(places == sorted(places) for places in first.values())
    duplicates = len(delivered) - EVENTS
    print(f"\n{kills} kills, {duplicates} duplicates, {len(unacknowledged)} by the first kill, {final.totals}")


@pytest.mark.req("PL-5", "PL-7", "EM-10")
@pytest.mark.timeout(120)
@pytest.mark.campaign
def test_only_the_event_that_kills_relays_is_dead():
    """It is claimed together with others each time; the relay is restarted whenever it has ended."""
    attempts = 3

    async def put(url: str, name: str) -> None:
        async with Box.open(url, name=name) as box:
            ordinary = [Event("ordinary", event_id=f"ordinary/{n}") for n in range(300)]
            await box.put_many([*ordinary[:150], Event("poison", event_id="poison"), *ordinary[150:]])

    with servers.redis_server() as server, relays_of(server.url, box_name := new_box_name(), attempts) as relays:
        asyncio.run(put(server.url, box_name))
        deaths, deadline = 0, time.monotonic() + 100
        relays.start()
        while not asyncio.run(finished(server.url, box_name)):
            assert time.monotonic() < deadline, asyncio.run(stats(server.url, box_name))
            time.sleep(0.05)
            for _ in range(relays.ended_by_themselves()):
                deaths += 1
                relays.start()
        assert relays.end() == [0]
        with server.client() as client:
            delivered = client.lrange(DELIVERIES, 0, -1)
        final = asyncio.run(stats(server.url, box_name))
        record = asyncio.run(look(server.url, box_name, "poison"))
        assert asyncio.run(problems(server.url, box_name)) == []
    assert set(delivered) == {f"ordinary/{n}" for n in range(300)}
    assert (final.phases[Phase.DEAD], final.phases[Phase.COMPLETED]) == (1, 300)
    assert record.state == "DEAD"
    assert record.attempts - record.excused == attempts
    # A relay that starves on a busy machine loses its claim without a death.
    assert attempts <= deaths <= record.attempts


# --- what the processes and the questions are made of ----------------------------------------------------------

PUT = """
import asyncio, sys
from redbox import Box, Event

async def main(url, name, events, keys):
    async with Box.open(url, name=name) as box:
        for first in range(0, events, 500):
            numbers = range(first, first + 500)
            await box.put_many(
                Event("step", event_id=f"k{n % keys}/{n // keys}", ordering_key=f"k{n % keys}") for n in numbers
            )
            await asyncio.sleep(0.05)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


async def stats(url: str, name: str) -> Any:
    async with Box.open(url, name=name) as box:
        return await box.stats()


async def look(url: str, name: str, event_id: str) -> Any:
    async with Box.open(url, name=name) as box:
        return await box.get(event_id)


async def problems(url: str, name: str) -> list[str]:
    async with Box.open(url, name=name) as box:
        return await check_invariants(box)


async def finished(url: str, name: str) -> bool:
    now = await stats(url, name)
    return now.waiting == 0 and all(
        count == 0 for phase, count in now.phases.items() if phase not in (Phase.DEAD, Phase.COMPLETED)
    )
