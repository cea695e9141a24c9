"""Breaks a box in each of the ways of docs/runbook.md, and runs the commands of its section as printed."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redbox import Box, Event, StoreFull
from redbox.telemetry import METRICS
from tests import servers
from tests.docs.test_readme import environment

RUNBOOK = (Path(__file__).resolve().parents[2] / "docs" / "runbook.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", RUNBOOK, re.DOTALL | re.MULTILINE))
TARGET = """
import asyncio, os, pathlib
from redbox import Reject, Unavailable

async def send(event):
    mode = pathlib.Path("mode").read_text()
    if mode == "down":
        raise Unavailable("connection refused")
    if mode == "rejecting":
        raise Reject("HTTP 422: the amount is missing")
    if mode == "slow":
        await asyncio.sleep(0.5)
    if mode == "crashing" and event.decode() == {"crash": True}:
        os._exit(1)
"""


class Desk:
    """A box on a server of its own, a target, and the shell of an operator."""

    def __init__(self, server: servers.Server, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.environment = {
            **environment(), "REDBOX_URL": server.url, "REDBOX_BOX": "orders", "TARGET": "python:target:send",
        }  # fmt: skip
        (directory / "target.py").write_text(TARGET)
        self.set_target("ok")

    def set_target(self, mode: str) -> None:
        (self.directory / "mode").write_text(mode)

    def shell(self, command: str) -> str:
        """Runs a command as it is printed; returns what the operator sees."""
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.directory, env=self.environment, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        self.exit_code = done.returncode
        return done.stdout + done.stderr

    @contextmanager
    def relay(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """A relay that runs in the background."""
        with (self.directory / "relay.log").open("ab") as log:
            process = subprocess.Popen(
                ["redbox", "relay", "--to", "python:target:send", *options],
                cwd=self.directory, env=self.environment, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            process.wait(20)

    def box(self, work: Callable[[Box], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with Box.open(self.server.url, name="orders") as box:
                return await work(box)

        return asyncio.run(run())

    def put(self, count: int, **fields: Any) -> list[str]:
        events = [Event("order.placed", {"number": number}, **fields) for number in range(count)]
        self.box(lambda box: box.put_many(events))
        return [event.event_id for event in events]

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.shell("redbox --json stats"))
        return found

    def until_phase(self, **expected: int) -> None:
        def reached() -> bool:
            phases = self.stats()["phases"]
            return all(phases[phase] == count for phase, count in expected.items())

        poll(reached, f"never {expected}")

    def until_why(self, words: str) -> None:
        poll(lambda: words in self.shell("redbox why"), f"`redbox why` never says {words!r}")


def poll(condition: Callable[[], bool], complaint: str, seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.1)


#: Breaks the box, then yields before each block of the section's commands, and receives what each command printed.
Story = Generator[None, list[str], None]


def no_metrics_are_scraped(desk: Desk) -> Story:
    desk.put(2)
    why, boxes = yield
    assert "2 events are due" in why
    assert "orders" in boxes


def store_is_full(desk: Desk) -> Story:
    async def fill(box: Box) -> None:
        await box.put_many([Event("order.placed", b"x" * 10_000) for _ in range(200)])
        while claims := await box.claim("relay-1", limit=1000):
            await box.ack(claims)
        await box.operate.configure(who="ada", why="a test", keep_published=86400.0)
        with desk.server.client() as client:
            used = int(client.info("memory")["used_memory"])
            client.config_set("maxmemory", used - 200_000)  # buffers of connections that close give back less
        with pytest.raises(StoreFull):
            await box.put(Event("order.placed"))

    desk.box(fill)
    time.sleep(1.1)
    why, doctor = yield
    assert "refuses writes" in why
    assert "ERROR   the server is full" in doctor
    _, swept = yield
    assert desk.exit_code == 0, swept
    desk.put(1)


def no_relay_is_alive(desk: Desk) -> Story:
    desk.put(5)
    why, stats = yield
    assert "No relay is running" in why
    assert "no relay" in stats
    (relay,) = yield
    assert "5 published" in relay
    desk.until_phase(COMPLETED=5)


def target_is_down(desk: Desk) -> Story:
    desk.set_target("down")
    desk.put(50)
    with desk.relay():
        desk.until_why("breaker")
        why, stats = yield
        assert "open" in why
        assert "connection refused" in why
        assert "connection refused" in stats
        yield
        desk.set_target("ok")
        poll(lambda: desk.stats()["phases"]["COMPLETED"] >= 10, "the ramp never began")


def box_is_paused(desk: Desk) -> Story:
    desk.put(5)
    desk.box(lambda box: box.operate.pause(who="ada", why="the provider is moving"))
    with desk.relay():
        why, log = yield
        for text in (why, log):
            assert "ada" in text
            assert "the provider is moving" in text
        yield
        desk.until_phase(COMPLETED=5)


def limit_is_reached(desk: Desk) -> Story:
    desk.put(1000)
    desk.box(lambda box: box.operate.configure(max_rate="20/min", who="ada", why="the provider asked for it"))
    with desk.relay():
        desk.until_why("The limit max_rate is reached")
        why, stats, log = yield
        assert "redbox configure max_rate=40/min" in why
        assert "limits  max_rate 20/min (reached)" in stats
        assert "the provider asked for it" in log
        yield
        poll(lambda: desk.stats()["phases"]["COMPLETED"] > 100, "the rate was not raised")


def keys_are_paused(desk: Desk) -> Story:
    desk.put(3, ordering_key="order-7")
    desk.put(2)
    desk.environment["KEY"] = "order-7"
    desk.box(lambda box: box.operate.pause(who="ada", why="wrong address", key="order-7"))
    with desk.relay():
        desk.until_phase(COMPLETED=2)
        for text in (yield):
            assert "order-7" in text
            assert "wrong address" in text
        assert "redbox resume --key=order-7" in desk.shell("redbox resume --ramp 5s --yes")
        yield
        desk.until_phase(COMPLETED=5)


def events_die(desk: Desk) -> Story:
    desk.set_target("rejecting")
    desk.environment["ID"] = desk.put(30)[0]
    with desk.relay("--no-breaker"):
        desk.until_phase(DEAD=30)
        groups, event = yield
        assert "HTTP 422: the amount is missing" in groups
        assert "30" in groups
        assert "HTTP 422: the amount is missing" in event
        desk.set_target("ok")
        (replayed,) = yield
        assert desk.exit_code == 0, replayed
        desk.until_phase(COMPLETED=30)
        desk.set_target("rejecting")
        desk.put(3)
        desk.until_phase(DEAD=3)
        _, dropped = yield
        assert desk.exit_code == 0, dropped
        assert desk.stats()["phases"]["DEAD"] == 0
        assert len((desk.directory / "dead.ndjson").read_text().splitlines()) == 3


def key_is_blocked(desk: Desk) -> Story:
    async def block(box: Box) -> str:
        await box.operate.configure(who="ada", why="order matters", dead_head="block")
        (claim,) = await box.claim("relay-1", limit=1)
        await box.kill(claim, reason="HTTP 422: the amount is missing")
        return claim.event_id

    desk.put(4, ordering_key="order-7")
    desk.environment["ID"] = desk.box(block)
    with desk.relay():
        desk.until_why("blocked")
        why, one = yield
        for text in (why, one):
            assert "HTTP 422: the amount is missing" in text
        (replayed,) = yield
        assert desk.exit_code == 0, replayed
        desk.until_phase(COMPLETED=4)


def events_are_late(desk: Desk) -> Story:
    desk.set_target("slow")
    desk.put(150)
    with desk.relay("--concurrency", "1"):
        time.sleep(12)  # due for longer than it should take, and a heartbeat with the rate
        why, stats = yield
        assert "due, the oldest for" in why
        assert "AVAILABLE" in stats
        yield
        desk.until_phase(COMPLETED=150)


def relay_died_with_its_claims(desk: Desk) -> Story:
    async def claim(box: Box) -> None:
        assert len(await box.claim("relay-1", limit=5, lease=0.05)) == 5
        await asyncio.sleep(0.1)

    desk.put(5)
    desk.box(claim)
    why, reaped = yield
    assert "expired" in why
    assert desk.exit_code == 0, reaped
    desk.until_phase(AVAILABLE=5)


def event_crashes_the_relay(desk: Desk) -> Story:
    crash = Event("order.placed", {"crash": True})
    desk.environment["ID"] = crash.event_id
    desk.box(lambda box: box.put(crash))
    desk.set_target("crashing")
    for _ in range(2):
        with desk.relay("--lease", "1s") as relay:
            assert relay.wait(20) == 1
        time.sleep(1.1)
        desk.box(lambda box: box.reap())
    why, one, _ = yield
    assert "was held by 2 relays that died" in why
    assert crash.event_id in why
    assert "suspect" in one
    yield
    assert desk.stats()["phases"]["DEAD"] == 1
    desk.put(5)
    with desk.relay():
        desk.until_phase(COMPLETED=5)


def box_is_damaged(desk: Desk) -> Story:
    damaged, *_ = desk.put(5)
    with desk.server.client() as client:
        client.zrem("{redbox:orders:0}:pending", damaged)
    audit, preview = yield
    assert damaged in audit
    assert damaged in preview
    _, audit = yield
    assert desk.exit_code == 0, audit
    with desk.relay():
        desk.until_phase(COMPLETED=5)


STORIES: dict[str, Callable[[Desk], Story]] = {
    "No metrics are scraped": no_metrics_are_scraped,
    "The store does not answer, or is full": store_is_full,
    "No relay is alive": no_relay_is_alive,
    "The target is down": target_is_down,
    "The box is paused": box_is_paused,
    "A limit is reached": limit_is_reached,
    "Ordering keys are paused": keys_are_paused,
    "Events become DEAD": events_die,
    "An ordering key is blocked": key_is_blocked,
    "Events are late": events_are_late,
    "A relay crashed while holding claims": relay_died_with_its_claims,
    "An event crashes the relay": event_crashes_the_relay,
    "The box is damaged": box_is_damaged,
}


def commands(section: str) -> list[list[str]]:
    return [block.strip().splitlines() for block in re.findall(r"```sh\n(.*?)```", SECTIONS[section], re.DOTALL)]


@pytest.mark.req("RO-4")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("section", STORIES)
def test_the_cause_is_named_and_removed(section: str, tmp_path: Path):
    with servers.redis_server() as server:
        desk = Desk(server, tmp_path)
        story = STORIES[section](desk)
        next(story)
        blocks = commands(section)
        for number, block in enumerate(blocks, 1):
            seen = [desk.shell(command) for command in block]
            if number < len(blocks):
                story.send(seen)
                continue
            with pytest.raises(StopIteration):
                story.send(seen)


def test_every_section_has_its_story():
    assert list(SECTIONS) == list(STORIES)


def test_a_store_that_does_not_answer(tmp_path: Path):
    with servers.redis_server() as server:
        desk = Desk(server, tmp_path)
        desk.put(1)
        server.kill()
        assert re.search("error: .* cannot be reached", desk.shell("redbox why"))
        assert desk.exit_code == 3


@pytest.mark.parametrize("command", ["check rules redbox.rules.yml", "test rules redbox.test.yml"])
def test_the_alert_rules(command: str):
    done = subprocess.run(
        [servers.promtool_binary(), *command.split()], cwd=Path(__file__).resolve().parents[2] / "docs" / "alerts",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


RULES = (Path(__file__).resolve().parents[2] / "docs" / "alerts" / "redbox.rules.yml").read_text()


def test_every_alert_has_a_section():
    rows = dict(re.findall(r"^\| (Redbox\w+) \| (\[.*\)) \|$", RUNBOOK, re.MULTILINE))
    assert set(rows) == set(re.findall(r"alert: (\w+)", RULES))
    assert {name for links in rows.values() for name in re.findall(r"\[(.*?)\]", links)} <= set(SECTIONS)


def test_every_alert_names_a_section():
    """In its description, as far as the title goes."""
    named = re.findall(r'See the runbook, \\?"(.*?)\\?"', RULES)
    assert len(named) == len(re.findall(r"alert: ", RULES))
    assert [title for title in named if not any(section.startswith(title) for section in SECTIONS)] == []


def test_every_alert_can_fire_from_the_metrics_of_the_exporter():
    used = set(re.findall(r"\bredbox_\w+", "".join(re.findall(r"expr: (.*)", RULES))))
    served = {metric.name for metric in METRICS if metric.labels[:2] == ("box", "store")}
    assert used
    assert used <= served
