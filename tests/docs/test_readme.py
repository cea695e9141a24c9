"""The README's first screen, run as printed: the Python example, then the shell commands on the same box."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redbox import Box, Event
from redbox.store import embedded
from redbox.testing import advance

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


def environment() -> dict[str, str]:
    """As a new user has it: the commands of this environment on the path, and no REDBOX variables."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("REDBOX")}
    return {**plain, "PATH": f"{Path(sys.executable).parent}:{plain['PATH']}"}


@pytest.mark.timeout(120)
def test_the_first_screen(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", PYTHON[0]], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["[{'id': 42}]", "[True]", "PUBLISHED"], done.stderr
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
    consumer = next(block for block in PYTHON if "seen:{event_id}" in block)
    compile(consumer, "README.md", "exec")


@pytest.mark.parametrize("block", PYTHON, ids=range(len(PYTHON)))
def test_every_example_is_python(block: str):
    compile(block, "README.md", "exec", flags=0x2000)  # allows await outside of a function, as a notebook does


@pytest.mark.timeout(30)
async def test_the_relay_of_your_own(redbox_box: Box):
    namespace: dict[str, Any] = {"asyncio": asyncio}
    exec(next(block for block in PYTHON if "async def relay(" in block), namespace)
    delivered: list[str] = []

    async def publish(event: Event) -> None:
        if event.event_type == "poison":
            raise ConnectionError("no")
        delivered.append(event.event_type)

    await redbox_box.put_many([Event("good"), Event("poison")])
    for _ in range(6):  # each time it runs until nothing is due, and sleeps
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(namespace["relay"](redbox_box, publish, "relay-1"), 0.3)
        await advance(redbox_box, minutes=5)
    assert delivered == ["good"]
    (record,) = [record async for record in redbox_box.list(state="DEAD")]
    assert (record.event.event_type, record.attempts, record.last_error) == ("poison", 5, "attempts used up")


def test_the_example_test_of_an_application(tmp_path: Path):
    (tmp_path / "test_reminder.py").write_text(next(block for block in PYTHON if "redbox_box" in block))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
