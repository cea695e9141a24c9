"""Relays whose clocks disagree by hours: only the store's clock decides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from redbox import Box, Event, State
from redbox.testing import advance, check_invariants

pytestmark = [pytest.mark.usefixtures("redbox_runner"), pytest.mark.req("PL-8"), pytest.mark.timeout(60)]

HOURS = (-7, 0, 7)

#: Moves its clock before it imports anything that might keep the real one, then carries out commands from its input.
RELAY = """
import sys, time
url, box_name, name, hours = sys.argv[1:]
real, real_ns = time.time, time.time_ns
time.time = lambda: real() + float(hours) * 3600
time.time_ns = lambda: real_ns() + int(hours) * 3600 * 10**9

import asyncio, json
from redbox import Box, Event

async def main():
    async with Box.open(url, name=box_name) as box:
        claims = []
        for line in sys.stdin:
            command = line.split()
            if command[0] == "put":
                ids = [(await box.put(Event("user.created", name, event_id=f"{name}-{n}"))).event_id for n in range(10)]
                ids.append((await box.put(Event("user.created", name, delay=3600, event_id=f"{name}-later"))).event_id)
                said = ids
            elif command[0] == "claim":
                claims = await box.claim(name, limit=int(command[1]), lease=60)
                said = [claim.event_id for claim in claims]
            elif command[0] == "ack":
                said = await box.ack(claims)
            elif command[0] == "retry":
                said = await box.retry(claims, error="no answer", delay=600)
            elif command[0] == "reap":
                said = await box.reap()
            elif command[0] == "phases":
                said = (await box.stats()).phases
            print(json.dumps(said), flush=True)

asyncio.run(main())
"""


class Relay:
    """A process with a clock of its own."""

    def __init__(self, url: str, box: str, hours: int) -> None:
        self.name = f"relay{hours:+d}h"
        self.process = subprocess.Popen(
            [sys.executable, "-c", RELAY, url, box, self.name, str(hours)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, command: str) -> Any:
        self.tell(command)
        return self.answer()

    def close(self) -> None:
        self.process.communicate(timeout=20)


@contextmanager
def relays(url: str, box: str) -> Iterator[list[Relay]]:
    with ExitStack() as stack:
        started = [Relay(url, box, hours) for hours in HOURS]
        for relay in started:
            stack.callback(relay.close)
        yield started


def all_answer(relays: list[Relay], command: str) -> list[Any]:
    """Tells all of them at once, so that they really run beside each other."""
    for relay in relays:
        relay.tell(command)
    return [relay.answer() for relay in relays]


@pytest.mark.req("EM-5", "EM-12", "SC-3", "SC-7")
async def test_relays_with_other_clocks_reach_the_same_results(redis_url: str):
    async with Box.open(redis_url, name="clocks") as box:
        with relays(redis_url, box.name) as started:
            put = [event_id for ids in all_answer(started, "put") for event_id in ids]
            now = (await box.stats()).at
            for record in [record async for record in box.list()]:
                assert abs(now - record.created_at) < timedelta(minutes=1)
                waits = timedelta(hours=1) if record.event_id.endswith("later") else timedelta(0)
                assert record.available_at - record.created_at == waits

            # Nobody takes what is scheduled, and nobody takes one event twice.
            claimed = [event_id for ids in all_answer(started, "claim 10") for event_id in ids]
            assert sorted(claimed) == sorted(event_id for event_id in put if not event_id.endswith("later"))

            # Whose clock is hours ahead sees leases that are hours over; it does not decide.
            assert all_answer(started, "reap") == [[], [], []]
            assert all_answer(started, "claim 10") == [[], [], []]
            views = all_answer(started, "phases")
            assert views[0] == views[1] == views[2]
            assert (views[0]["IN_FLIGHT"], views[0]["SCHEDULED"]) == (30, 3)

            # When the store's clock says so, leases end and what was scheduled comes, for all of them.
            await advance(box, minutes=61)
            reaped = [event_id for ids in all_answer(started, "reap") for event_id in ids]
            assert sorted(reaped) == sorted(claimed)
            again = [event_id for ids in all_answer(started, "claim 11") for event_id in ids]
            assert sorted(again) == sorted(put)
            assert all_answer(started[:2], "ack") == [[True] * 11] * 2
            assert started[2].ask("retry") == [True] * 11

            # A delay counts from the store's now too.
            for record in [record async for record in box.list(state=State.PENDING)]:
                assert timedelta(minutes=9) < record.available_at - (await box.stats()).at <= timedelta(minutes=10)
            assert all_answer(started, "claim 11") == [[], [], []]
        stats = await box.stats()
        assert (stats.totals["published"], stats.totals["retried"], stats.totals.get("fenced", 0)) == (22, 11, 0)
        assert await check_invariants(box) == []


@pytest.mark.req("PL-8")
async def test_a_moment_is_compared_with_the_stores_clock(redis_url: str):
    """An absolute moment comes from the caller's clock; the past is clamped to the store's now, never before it."""
    async with Box.open(redis_url, name="clocks-moment") as box:
        at = (await box.stats()).at
        early = await box.put(Event("user.created", available_at=at - timedelta(hours=7)))
        late = await box.put(Event("user.created", available_at=at + timedelta(hours=7)))
        record = await box.get(early.event_id)
        assert record is not None
        assert record.available_at == record.created_at
        assert [claim.event_id for claim in await box.claim("relay-1")] == [early.event_id]
        await advance(box, hours=7)
        assert late.event_id in [claim.event_id for claim in await box.claim("relay-1")]
