"""RO-2, RF-3: replays and drops whose process is killed, on a real server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from redbox import Box, Event, Phase
from redbox.testing import check_invariants
from tests import servers

REDBOX = [sys.executable, "-m", "redbox"]
COUNT = 300
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


def started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


async def until_replayed(box: Box, least: int) -> None:
    """Waits until at least `least` events are no longer dead."""
    deadline = time.monotonic() + 30
    while COUNT - (await box.stats()).phases[Phase.DEAD] < least:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def make_dead(box: Box) -> None:
    await box.put_many([Event("n", event_id=f"e{n:04}") for n in range(COUNT)])
    await box.operate.kill([f"e{n:04}" for n in range(COUNT)], who="ada", why="a test")


@pytest.mark.req("RO-2")
async def test_a_replay_that_is_killed_can_be_continued():
    """A relay kills everything again. No event is replayed twice, and each replay is one entry of the log."""
    with servers.redis_server() as server:
        async with Box.open(server.url, name="orders") as box:
            await make_dead(box)
            command = [*REDBOX, "--url", server.url, "--box", "orders", "dead", "replay", "--yes"]
            options = ["--all", "--rate", "20"]  # which takes long enough for the note on how to continue
            with started([*command, *options]) as first:
                assert first.stderr is not None
                note = await asyncio.to_thread(first.stderr.readline)
                moment = note.partition("--until ")[2].partition(" ")[0]
                await until_replayed(box, 40)
                first.send_signal(signal.SIGKILL)
            replayed = COUNT - (await box.stats()).phases[Phase.DEAD]
            assert 0 < replayed < COUNT
            (entry, *_) = await box.operate.log()
            assert (entry.action, entry.count) == ("replay", replayed)
            while claims := await box.claim("relay-1"):
                await box.kill(claims, reason="HTTP 422")
            second = run([*command, "--until", moment])
            assert second.stdout == f"{COUNT - replayed} events replayed\n"
            seen = Counter[int]()
            async for record in box.list():
                seen[sum(step.outcome == "replayed" for step in record.history)] += 1
            assert seen == {1: COUNT}
            counts = [entry.count for entry in await box.operate.log() if entry.action == "replay"]
            assert counts == [COUNT - replayed, replayed]
            assert await check_invariants(box) == []


@pytest.mark.req("RF-3")
async def test_a_drop_that_is_killed_has_exported_what_it_removed(tmp_path: Path):
    """Killed between two steps of the removal, by a store that fails there."""
    script = """
import asyncio, os, signal, sys
from redbox.store.store import Store
drop, calls = Store.drop, iter(range(100))
async def drop_and_die(*arguments, **options):
    if next(calls) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return await drop(*arguments, **options)
Store.drop = drop_and_die
from redbox.box.bulk import choice as module
module.BATCH_COUNT = 100
from redbox.cli.app import main
main()
"""
    with servers.redis_server() as server:
        async with Box.open(server.url, name="orders") as box:
            await make_dead(box)
            options = ["--url", server.url, "--box", "orders"]
            drop = [sys.executable, "-c", script, *options, "dead", "drop", "--all", "--yes", "--export", "dead.ndjson"]
            done = run(drop, cwd=tmp_path)
            assert done.returncode == -signal.SIGKILL, done.stderr
            assert (await box.stats()).phases[Phase.DEAD] == COUNT - 100
            (entry, *_) = await box.operate.log()
            assert (entry.action, entry.count) == ("drop", 100)
            put = [*REDBOX, *options, "put", "--many", "@dead.ndjson"]
            back = run(put, cwd=tmp_path)
            assert f"100 put, {COUNT - 100} already stored" in back.stderr
            assert await check_invariants(box) == []
