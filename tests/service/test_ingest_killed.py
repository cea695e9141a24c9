"""`redbox up` under load, with everything of it killed again and again: no acknowledged event is lost or changed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from redbox import Box
from redbox.box.reports import Stats
from redbox.events import Phase
from tests.publishers.target import Target, http_target

pytestmark = [pytest.mark.req("SF-1", "SF-2", "SF-3"), pytest.mark.usefixtures("redbox_runner")]

CLIENTS = 8
START_SECONDS = 30
DRAIN_SECONDS = 60


class Forwarder:
    """A `redbox up` on an embedded store, with clients that post to it."""

    def __init__(self, directory: Path, target: Target) -> None:
        self.directory = directory
        self.acknowledged: dict[str, Any] = {}
        self.url = ""
        self._target = target
        self._process: asyncio.subprocess.Process | None = None
        self._sent = 0

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "redbox", "--json", "--url", f"embedded:{self.directory}",
            "up", "--to", self._target.url, "--port", "0", "--lease", "1s", "--quiet",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stderr is not None
        async with asyncio.timeout(START_SECONDS):
            while True:
                line = (await self._process.stderr.readline()).decode()
                assert line, "redbox up ended"
                with suppress(ValueError):
                    self.url = json.loads(line).get("url", "")
                    if self.url:
                        return

    async def kill(self) -> None:
        """Kills the service, the embedded server and its supervisor at once."""
        assert self._process is not None
        pids = [self._process.pid]
        for name in ("supervisor.lock", "server.pid"):
            with suppress(OSError, ValueError):
                pids.append(int((self.directory / name).read_text()))
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self._process.communicate()

    async def stop(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.communicate()

    async def load(self, seconds: float, durability: str) -> None:
        """Posts until the service is gone, and kills it some time after it has acknowledged events."""
        before = len(self.acknowledged)
        clients = [asyncio.create_task(self._post(self.url, durability, batch=at % 4 == 3)) for at in range(CLIENTS)]
        async with asyncio.timeout(START_SECONDS):
            while len(self.acknowledged) == before:  # noqa: ASYNC110  # the clients wait for another process
                await asyncio.sleep(0.01)
        await asyncio.sleep(seconds)
        await self.kill()
        await asyncio.gather(*clients)

    async def _post(self, url: str, durability: str, batch: bool) -> None:
        path = f"{url}/v1/events{':batch' if batch else ''}?durability={durability}"
        async with httpx.AsyncClient(timeout=20) as client:
            while True:
                events = {}
                for _ in range(5 if batch else 1):
                    self._sent += 1
                    events[f"e{self._sent}"] = {"n": self._sent, "text": "x" * random.randint(0, 200)}
                body = [{"event_type": "a", "event_id": each, "payload": events[each]} for each in events]
                try:
                    answer = await client.post(path, json=body if batch else body[0])
                except httpx.HTTPError:
                    return
                if answer.status_code == 202:
                    self.acknowledged |= events
                elif batch and answer.status_code == 207:
                    stored = [each["event_id"] for each in answer.json()["results"] if each["status"] != "refused"]
                    self.acknowledged |= {each: events[each] for each in stored}
                else:
                    assert answer.status_code == 503, answer.text


def _unsettled(stats: Stats) -> int:
    return sum(count for phase, count in stats.phases.items() if phase != Phase.COMPLETED)


async def _check(directory: Path, target: Target, kills: int, durability: str) -> None:
    forwarder = Forwarder(directory, target)
    try:
        for _ in range(kills):
            await forwarder.start()
            await forwarder.load(random.uniform(0.3, 1.0), durability)
        await forwarder.start()
        async with Box.open(f"embedded:{directory}") as box:
            for event_id, payload in forwarder.acknowledged.items():
                record = await box.get(event_id)
                assert record is not None, f"{event_id} was acknowledged, and is lost"
                assert record.event.decode() == payload
            async with asyncio.timeout(DRAIN_SECONDS):
                while _unsettled(await box.stats()):  # noqa: ASYNC110  # another process drains the box
                    await asyncio.sleep(0.1)
        delivered = {request.header("ce-id"): json.loads(request.body) for request in target.requests}
        for event_id, payload in forwarder.acknowledged.items():
            assert delivered[event_id] == payload
    finally:
        await forwarder.stop()


async def test_nothing_acknowledged_is_lost_when_everything_is_killed(tmp_path: Path):
    async with http_target() as target:
        await _check(tmp_path / "data", target, kills=2, durability="fsync")


@pytest.mark.campaign
@pytest.mark.parametrize("durability", ["fsync", "server"])  # an embedded server syncs its file before it answers
async def test_nothing_acknowledged_is_lost_when_everything_is_killed_again_and_again(tmp_path: Path, durability: str):
    async with http_target() as target:
        await _check(tmp_path / "data", target, kills=15, durability=durability)
