"""An event that crashes each relay that publishes it, while a supervisor restarts the relay: `redbox why` names it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest

from redbox import Box, Event
from tests import servers

pytestmark = [pytest.mark.timeout(90), pytest.mark.req("RO-4", "RF-4"), pytest.mark.usefixtures("redbox_runner")]
ROOT = Path(__file__).parents[2]
LEASE = "1"
ATTEMPTS = "1000"


class Supervisor(Thread):
    """Starts a relay process, and again whenever it has ended."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._command = [sys.executable, "-m", "tests.relay.worker", url, "orders", "deliveries", LEASE, ATTEMPTS]
        self._stopped = Flag()
        self.codes: list[int] = []

    def run(self) -> None:
        while not self._stopped.is_set():
            with subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
                while process.poll() is None and not self._stopped.wait(0.02):
                    pass
                process.kill()
            self.codes.append(process.returncode)

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@contextmanager
def supervised(url: str) -> Iterator[Supervisor]:
    running = Supervisor(url)
    running.start()
    try:
        yield running
    finally:
        running.stop()


async def redbox(url: str, *arguments: str) -> dict[str, Any]:
    """Runs a command as an operator does, beside the relays."""
    command = [sys.executable, "-m", "redbox", "--url", url, "--box", "orders", "--json", *arguments]
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, check=True, timeout=30)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def test_why_names_the_event_that_crashes_its_relay():
    with servers.redis_server() as server, supervised(server.url) as supervisor:
        async with Box.open(server.url, name="orders") as box:
            await box.put_many([Event("n", event_id=f"good-{number}") for number in range(20)])
            await box.put(Event("poison", event_id="bad"))
            deadline = time.monotonic() + 60
            while (record := await box.get("bad")) is None or record.expiries < 3:
                assert time.monotonic() < deadline, record
                await asyncio.sleep(0.1)
            event, whole = await redbox(server.url, "why", "bad"), await redbox(server.url, "why")
            while "vent bad" not in " ".join(whole["sentences"]):  # it comes after those that were held with it
                assert time.monotonic() < deadline, whole
                whole = await redbox(server.url, "why")
    assert supervisor.codes.count(-9) >= 3
    text = " ".join(event["sentences"])
    assert "It is a suspect: " in text, text
    assert "leases in a row expired" in text
    assert any(step["command"].endswith("kill bad") for step in event["next_steps"]), event
    assert whole["situation"] == "suspect", whole
    assert any(step["command"].endswith("kill bad") for step in whole["next_steps"]), whole
