"""Runs the commands of docs/dead-letters.md as printed, in their order, and compares what they print."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from redbox.cli.options.filters import NAMES
from redbox.store.embedded import server as embedded
from tests.docs.test_readme import environment
from tests.servers import poll, valkey_binary

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "dead-letters.md").read_text()
BLOCKS = re.findall(r"```(sh|text|python)\n(.*?)```", TEXT, re.DOTALL)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
RELAY = "redbox relay --to python:shop:send\n"
AGAIN = "redbox dead replay invoice-4 --yes"  # and the relay kills it again
SETTING = "export REDBOX_URL=embedded:./.redbox"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[dict[str, str]]:
    valkey_binary()
    module, calls = (block for kind, block in BLOCKS if kind == "python")
    (tmp_path / "shop.py").write_text(module)
    (tmp_path / "desk.py").write_text(f"{calls}\n\nimport asyncio\nasyncio.run(renew_key())\n")
    yield {**environment(), "REDBOX_URL": SETTING.partition("=")[2]}
    assert embedded.wait_stopped(tmp_path / ".redbox")


@pytest.mark.req("RF-3", "RO-2")
@pytest.mark.timeout(180)
def test_every_command(shop: dict[str, str], tmp_path: Path):
    relay: subprocess.Popen[bytes] | None = None
    printed = ""
    try:
        for kind, block in BLOCKS:
            if kind == "text":
                assert TIME.sub("T", printed).split() == TIME.sub("T", block).split()
            elif block == RELAY:
                relay = subprocess.Popen(
                    ["sh", "-c", f"exec {block}"], cwd=tmp_path, env=shop, stderr=subprocess.DEVNULL
                )
            elif kind == "sh":
                for line in block.strip().splitlines():
                    printed = run(line, shop, tmp_path)
                    if line == AGAIN:
                        poll(lambda: "invoice-4" in run("redbox --json dead list", shop, tmp_path), "it did not die")
        assert relay is not None
        printed = run("python desk.py", shop, tmp_path)
    finally:
        if relay is not None:
            relay.terminate()
            relay.wait()
    assert "Dropped(" in printed


def run(command: str, env: dict[str, str], directory: Path) -> str:
    done = subprocess.run(
        command, shell=True, cwd=directory, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_the_table_of_filters_is_complete():
    options = {"event_type": "--type"}
    for name in NAMES:
        assert f"`{options.get(name, '--' + name.replace('_', '-'))}" in TEXT
