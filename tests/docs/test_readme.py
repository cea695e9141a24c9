"""Runs the README's examples as printed: first the Python example, then the shell commands on the same box."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redbox import Box, Event, Reject
from redbox.store.embedded import server as embedded
from redbox.testing.plugin import new_box_name

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


def environment() -> dict[str, str]:
    """The environment of a new user: the commands of this environment on the path, and no REDBOX variables."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("REDBOX")}
    return {**plain, "PATH": f"{Path(sys.executable).parent}:{plain['PATH']}"}


@pytest.mark.timeout(120)
def test_the_first_screen(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", PYTHON[0]], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    first, second = done.stdout.splitlines()
    assert first == "user.created {'id': 42}", done.stderr
    assert second.startswith("Summary(claimed=1, published=1,"), done.stderr
    for command in SHELL[1].strip().splitlines():
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout
    assert embedded.wait_stopped(tmp_path / ".redbox")


@pytest.mark.req("DS-1")
def test_the_readme_says_when_duplicates_happen_and_shows_a_consumer_that_dedups():
    chapter = README.partition("## Duplicates")[2].partition("\n## ")[0]
    assert "same `event_id`" in chapter
    consumer = next(block for block in PYTHON if "guard.once(delivery)" in block)
    compile(consumer, "README.md", "exec")


@pytest.mark.parametrize("block", PYTHON, ids=range(len(PYTHON)))
def test_every_example_is_python(block: str):
    compile(block, "README.md", "exec", flags=0x2000)  # allows await outside of a function, as a notebook does


async def test_the_relay_with_its_options(redbox_box: Box):
    async def publish(event: Event) -> None:
        if event.event_type == "poison":
            raise Reject("no")

    block = next(block for block in PYTHON if "await relay.run()" in block)
    construct = block.partition("await ")[0]  # with its imports
    namespace: dict[str, Any] = {"box": redbox_box, "publish": publish}
    exec(construct, namespace)
    await redbox_box.put_many([Event("good"), Event("poison")])
    summary = await namespace["relay"].drain()
    assert (summary.published, summary.dead) == (1, 1)


@pytest.mark.req("RF-2")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", [line for line in SHELL[2].splitlines() if "relay --to" in line])
def test_the_relays_of_the_shell(command: str, redis_url: str, tmp_path: Path):
    """Runs them as printed, with another server and target."""
    command = command.replace("redis://localhost:6379/0", redis_url).replace("localhost:6379", redis_url.split("/")[2])
    command = command.replace("https://example.org/hooks", "null:")
    done = subprocess.run(
        ["sh", "-c", f"{command} --once"], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_example_test_of_an_application(tmp_path: Path):
    (tmp_path / "test_reminder.py").write_text(next(block for block in PYTHON if "redbox_box" in block))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.req("DC-4")
@pytest.mark.timeout(60)
def test_put_relay_die_list_and_replay(tmp_path: Path, redis_url: str):
    """From an async application's put to an operator's replay, with the commands of the README."""
    box = new_box_name()

    async def put() -> None:
        async with Box.open(redis_url, name=box) as opened:
            await opened.put(Event("user.created", {"id": 42}, event_id="e1"))

    def redbox(*arguments: str) -> str:
        command = [sys.executable, "-m", "redbox", "--url", redis_url, "--box", box, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    module = "from redbox import Reject\nasync def no(event):\n    raise Reject('bad data')\n"
    (tmp_path / "target.py").write_text(module)
    asyncio.run(put())
    redbox("relay", "--to", "python:target:no", "--once")
    assert "bad data" in redbox("dead", "list")
    redbox("dead", "replay", "--all", "--yes")
    assert '"payload":{"id":42}' in redbox("relay", "--to", "stdout:", "--once")


@pytest.mark.req("DC-4")
def test_benchmarks_run():
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "bench", "ordered", "--quick"]
    done = subprocess.run(command, cwd=root, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1,000 ordering keys" in done.stdout


@pytest.mark.req("RT-2", "RT-3", "LM-1")
@pytest.mark.timeout(90)
def test_one_destination_is_limited_and_one_is_down(tmp_path: Path, redis_url: str):
    """The file as printed, with targets of this machine: events of `search` wait, and hold up no other."""
    file = re.search(r"```toml\n(.*?)```", README, re.DOTALL)
    assert file is not None
    text = file[1].replace("redis://localhost:6379/0", redis_url)
    text = text.replace("https://billing.example.com/events", "stdout:")
    text = text.replace("rabbit.example.com", "127.0.0.1:1")
    text = text.replace("nats://nats.example.com:4222/mail.{event_type}", "null:")
    (tmp_path / "redbox.toml").write_text(text)

    def sh(command: str, *, code: int = 0) -> str:
        command = command.partition("#")[0].replace("redis://localhost:6379/0", redis_url)
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env={**environment(), "RABBIT_PASSWORD": "guest"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stdout

    check, relay, up, stats, configure = next(block for block in SHELL if "config check" in block).splitlines()
    assert up.startswith("redbox --box orders up --config redbox.toml")
    assert "billing" in sh(check)
    sh(f"redbox --url {redis_url} --box orders put order.paid '{{\"id\": 42}}'")
    relay = f"{relay.partition('#')[0]} --once 2> /dev/null"
    first = sh(f"{relay} || true")  # the boxes drain at the same time, so this run may have delivered the copies or not
    delivered = first + sh(relay, code=1)  # search is down
    assert delivered.count('"payload":{"id": 42}') == 1
    boxes = [json.loads(line) for line in sh(f"redbox --url {redis_url} --json boxes").splitlines()]
    published = {each["box"]: each["phases"]["COMPLETED"] for each in boxes}
    assert (published["billing"], published["search"]) == (1, 0)
    assert "50/s" in sh(stats)
    sh(configure)
    assert "20/s" in sh(stats)


@pytest.mark.req("SF-1", "SF-3")
@pytest.mark.timeout(60)
def test_the_service_delivers_what_is_posted(tmp_path: Path):
    """Runs it as printed, with another port and target."""
    block = next(block for block in SHELL if "redbox up --to" in block)
    up, post = (line for line in block.splitlines() if not line.startswith("pip "))
    assert post.startswith("curl ")
    up = up.replace("https://hooks.example.com/orders", "stdout:") + " --port 0"
    with subprocess.Popen(
        ["sh", "-c", f"exec {up}"], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        try:
            assert running.stderr is not None
            assert running.stdout is not None
            address = next(found[0] for line in running.stderr if (found := re.findall(r"http://\S+", line.decode())))
            posted = subprocess.run(
                ["sh", "-c", post.replace("http://127.0.0.1:8080", address)], capture_output=True, text=True, check=True
            )
            assert '"created":true' in posted.stdout
            assert '"user.created"' in running.stdout.readline().decode()
        finally:
            running.terminate()
    assert running.returncode == 0
    assert embedded.wait_stopped(tmp_path / ".redbox")
