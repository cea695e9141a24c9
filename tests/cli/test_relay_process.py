"""`redbox relay` as a process: real signals, real ports, a real store."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from redbox import Box, Event
from tests.cli.conftest import Redbox
from tests.servers import valkey_binary

REDBOX = [sys.executable, "-m", "redbox"]
LIMIT = 30.0
pytestmark = pytest.mark.timeout(90)

MODULE = """
import asyncio, time
from pathlib import Path

async def until_told(event):
    Path(f"begun-{event.event_id}").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    Path(f"done-{event.event_id}").touch()

async def holds_on(event):
    Path(f"begun-{event.event_id}").touch()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

def in_a_thread(event):
    Path(f"begun-{event.event_id}").touch()
    time.sleep(60)

async def blocks_the_loop(event):
    Path(f"begun-{event.event_id}").touch()
    for _ in range(6000):
        time.sleep(0.01)  # Python looks for signals in between, whichever thread they came to

async def sleeps_in_the_loop(event):
    Path(f"begun-{event.event_id}").touch()
    time.sleep(3600)
"""


def until(condition: Callable[[], Any]) -> Any:
    """Waits until the condition holds."""
    deadline = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


class Running:
    """A relay process whose log is in a file."""

    def __init__(self, *arguments: str) -> None:
        self._log = Path("log.txt")
        with self._log.open("wb") as log, Path("out.txt").open("wb") as out:
            self.process = subprocess.Popen([*REDBOX, *arguments], stdout=out, stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def says(self, text: str) -> None:
        until(lambda: text in self.log or self.process.poll() is not None)
        assert text in self.log

    def ends(self) -> tuple[int, float]:
        """Its exit code, and the seconds until it exited."""
        began = time.monotonic()
        return self.process.wait(LIMIT), time.monotonic() - began


@pytest.fixture
def url(redbox: Redbox) -> str:
    valkey_binary()
    Path("target.py").write_text(MODULE)
    return "embedded:./data"


@pytest.fixture
def relay(url: str) -> Iterator[Callable[..., Running]]:
    """Starts `redbox relay`; processes that still run at the end are killed."""
    with ExitStack() as stack:

        def start(*arguments: str, box: str = "default") -> Running:
            running = Running("--url", url, "--box", box, "relay", *arguments)
            stack.callback(running.process.wait)
            stack.callback(running.process.kill)
            return running

        yield start


def put(url: str, *ids: str, box: str = "default") -> None:
    async def run() -> None:
        async with Box.open(url, name=box) as opened:
            await opened.put_many([Event("a", event_id=each) for each in ids])

    asyncio.run(run())


def phases(url: str, box: str = "default") -> dict[str, int]:
    async def run() -> dict[str, int]:
        async with Box.open(url, name=box) as opened:
            return {phase.value: count for phase, count in (await opened.stats()).phases.items() if count}

    return asyncio.run(run())


def begun() -> int:
    return len(list(Path().glob("begun-*")))


# --- signals ---------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-7")
def test_events_being_published_are_finished_and_the_rest_is_released(url: str, relay: Callable[..., Running]):
    put(url, "1", "2", "3", "4", "5")
    running = relay("--to", "python:target:until_told", "--concurrency", "2")
    until(lambda: begun() == 2)
    running.process.send_signal(signal.SIGTERM)
    running.says("SIGTERM: finishing the events being published")
    Path("go").touch()
    code, took = running.ends()
    assert (code, begun(), len(list(Path().glob("done-*")))) == (0, 2, 2)
    assert took < 8
    assert phases(url) == {"COMPLETED": 2, "AVAILABLE": 3}
    assert "2 published" in running.log


@pytest.mark.parametrize("function", ["until_told", "in_a_thread"])
def test_a_publish_that_exceeds_the_grace_time_is_returned(url: str, relay: Callable[..., Running], function: str):
    put(url, "1")
    running = relay("--to", f"python:target:{function}", "--grace", "300ms")
    until(begun)
    running.process.send_signal(signal.SIGINT)
    code, took = running.ends()
    assert code == 0
    assert took < 8
    assert phases(url) == {"AVAILABLE": 1}
    assert "0 published, 1 retried" in running.log


@pytest.mark.parametrize("function", ["until_told", "in_a_thread", "blocks_the_loop"])
def test_a_second_signal_exits_at_once(url: str, relay: Callable[..., Running], function: str):
    put(url, "1")
    running = relay("--to", f"python:target:{function}", "--grace", "60s", "--time-limit", "unlimited")
    until(begun)
    running.process.send_signal(signal.SIGTERM)
    if function != "blocks_the_loop":
        running.says("SIGTERM")
    running.process.send_signal(signal.SIGINT)  # two of one kind that arrive together would be one
    code, took = running.ends()
    assert code in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert took < 3
    assert phases(url) == {"IN_FLIGHT": 1}


@pytest.mark.req("PL-7")
def test_a_publisher_that_blocks_the_loop_does_not_outlive_the_grace_time(url: str, relay: Callable[..., Running]):
    put(url, "1")
    running = relay("--to", "python:target:sleeps_in_the_loop", "--grace", "100ms", "--time-limit", "unlimited")
    until(begun)
    running.process.send_signal(signal.SIGTERM)
    running.says("SIGTERM: the event loop is blocked")
    code, took = running.ends()
    assert (code, took < 15) == (1, True)
    assert "error: a publisher did not return within 0.1 s" in running.log
    assert phases(url) == {"IN_FLIGHT": 1}


def test_an_idle_relay_stops_at_once(url: str, relay: Callable[..., Running]):
    running = relay("--to", "null:")
    running.says("policy: ")
    running.process.send_signal(signal.SIGTERM)
    code, took = running.ends()
    assert (code, took < 3) == (0, True)


# --- running ---------------------------------------------------------------------------------------------------


def test_a_relay_may_be_there_before_its_box(url: str, relay: Callable[..., Running]):
    running = relay("--to", "stdout:", "--log", "json")
    running.says("policy: ")
    put(url, "1", "2")
    lines = until(lambda: len(found := Path("out.txt").read_text().splitlines()) == 2 and found)
    assert [json.loads(line)["event_id"] for line in lines] == ["1", "2"]
    running.process.send_signal(signal.SIGTERM)
    assert running.ends()[0] == 0
    records = [json.loads(line) for line in running.log.splitlines()]
    assert records[-1]["published"] == 2
    assert {record["box"] for record in records if "box" in record} == {"default"}
    assert phases(url) == {"COMPLETED": 2}


def fetch(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_health_and_stats_while_it_runs(url: str, relay: Callable[..., Running]):
    put(url, "1", "2", "3")
    running = relay("--to", "null:", "--metrics-port", "0", "--name", "r1")
    running.says("/readyz")
    address = running.log.partition("metrics on ")[2].partition("/metrics")[0]
    until(
        lambda: (
            'redbox_events_total{box="default",outcome="published",relay="r1"} 3.0' in fetch(f"{address}/metrics")[1]
        )
    )
    assert 'redbox_store_up{box="default",store="embedded:./data"} 1.0' in fetch(f"{address}/metrics")[1]
    assert fetch(f"{address}/livez")[0] == 200
    status, body = fetch(f"{address}/readyz")
    assert (status, json.loads(body)["status"]) == (200, "ok")
    assert fetch(f"{address}/nothing")[0] == 404

    def stats(*options: str) -> str:
        command = [*REDBOX, "--url", url, *options, "stats"]
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True).stdout

    (report,) = json.loads(stats("--json"))["relays"]
    assert (report["name"], report["breaker"], report["silent"]) == ("r1", "closed", False)
    header, row = next(pair for pair in pairwise(stats().splitlines()) if pair[0].startswith("RELAY"))
    assert header.split()[:6] == ["RELAY", "SEEN", "RATE", "IN", "FLIGHT", "PUBLISHED"]
    assert row.split()[0] == "r1"

    taken = subprocess.run(
        [*REDBOX, "--url", url, "relay", "--to", "null:", "--metrics-port", address.rpartition(":")[2]],
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert (taken.returncode, "address already in use" in taken.stderr) == (1, True)
    running.process.send_signal(signal.SIGINT)
    assert running.ends()[0] == 0
    assert json.loads(stats("--json"))["relays"] == []  # it has left the list


def test_two_boxes_from_a_file(url: str):
    text = "".join(
        f'[[relay]]\nbox = "{box}"\nto = "python:target:until_told"\nname = "${{PREFIX}}-{box}"\n' for box in ("a", "b")
    )
    Path("redbox.toml").write_text(f'url = "{url}"\n{text}')
    Path("go").touch()
    put(url, "1", "2", box="a")
    put(url, "3", box="b")
    done = subprocess.run(
        [*REDBOX, "--json", "relay", "--config", "redbox.toml", "--once"],
        capture_output=True, text=True, timeout=LIMIT, check=False, env={"PREFIX": "eu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["published"] == 3
    assert [(each["relay"], each["published"]) for each in summary["relays"]] == [("eu-a", 2), ("eu-b", 1)]
    assert (phases(url, "a"), phases(url, "b")) == ({"COMPLETED": 2}, {"COMPLETED": 1})


def test_a_store_that_is_not_there(redbox: Redbox):
    done = subprocess.run(
        [*REDBOX, "--url", "redis://localhost:1/0", "relay", "--to", "null:"],
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
    assert "redis://localhost:1/0 cannot be reached" in done.stderr


def test_a_publisher_that_ignores_its_end_does_not_keep_the_process(url: str, relay: Callable[..., Running]):
    put(url, "1")
    running = relay("--to", "python:target:holds_on", "--grace", "100ms")
    until(begun)
    running.process.send_signal(signal.SIGTERM)
    code, took = running.ends()
    assert (code, took < 15) == (1, True)
    assert "a publisher did not return" in running.log
