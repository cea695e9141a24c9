"""The command as a process: in a pipe, on a terminal, from a checkout."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from redbox import Box, Event
from tests.cli.conftest import Redbox
from tests.servers import valkey_binary
from tests.terminals import terminal

ROOT = Path(__file__).parents[2]
REDBOX = [sys.executable, "-m", "redbox"]
pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def url(redbox: Redbox) -> str:
    valkey_binary()
    return "embedded:./data"


def pipe(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*REDBOX, *arguments], capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload]


def imported_by(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "redbox", *arguments],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize(
    "arguments", [("--help",), ("put", "--help"), ("relay", "--help"), ("--version",)], ids=" ".join
)
def test_help_imports_no_slow_module(redbox: Redbox, arguments: tuple[str, ...]):
    slow = {"redis", "asyncio", "rich", "anyio", "pytest", "msgspec", "fakeredis"}
    assert imported_by(*arguments) & slow == set()


def test_from_a_checkout_and_as_a_command(redbox: Redbox):
    for command in ([sys.executable, str(ROOT / "cli.py")], REDBOX):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.startswith("redbox ")


def test_put_and_show_in_a_pipe(url: str):
    put = pipe("--url", url, "put", "user.created", '{"id": 42}')
    assert (put.returncode, put.stderr) == (0, "")
    event_id = put.stdout.strip()
    shown = pipe("--url", url, "show", event_id)
    assert '"id": 42' in shown.stdout
    assert "\x1b" not in shown.stdout
    assert pipe("--url", url, "show", event_id, "--payload").stdout == '{"id": 42}'
    assert pipe("--url", url, "show", "nope").returncode == 1
    assert pipe("--url", "redis://localhost:1", "stats").returncode == 3


def test_a_reader_that_closes_the_pipe_causes_no_error_message(url: str):
    lines = "".join(f'{{"event_type": "a", "event_id": "e{n}"}}\n' for n in range(5000))
    assert pipe("--url", url, "put", "--many", input=lines).returncode == 0
    with subprocess.Popen(
        [*REDBOX, "--url", url, "--json", "list", "--limit", "5000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert b"Error" not in process.stderr.read()


@pytest.mark.parametrize("arguments", [("list",), ("--json", "list"), ("boxes",), ("--version",)], ids=" ".join)
def test_a_failed_write_of_results_is_reported_in_one_sentence(url: str, arguments: tuple[str, ...]):
    assert pipe("--url", url, "put", "a").returncode == 0
    for redirection, reason in (
        (">/dev/full", "cannot write to standard output: No space left on device"),
        (">&-", "standard output is closed; to discard the results, redirect it to /dev/null"),
    ):
        command = f"{shlex.join([*REDBOX, '--url', url, *arguments])} {redirection}"
        done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert reason in line


def test_an_encoding_without_arrows(url: str):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    pipe("--url", url, "put", "a", "→", "--content-type", "text/plain", "--id", "e1")
    assert pipe("--url", url, "show", "e1", env=environment).returncode == 0


def test_on_a_terminal(url: str):
    lines = "".join(f'{{"event_type": "user.created", "event_id": "e{n}"}}\n' for n in range(3))
    Path("events.ndjson").write_text(lines)
    code, shown = terminal("--url", url, "put", "--many", "@events.ndjson")
    assert code == 0
    assert "putting" in shown
    assert "3 put" in shown
    assert "\r\ne1" not in shown

    code, shown = terminal("--url", url, "list")
    assert "\x1b[36mAVAILABLE" in shown
    assert "ERROR" not in shown  # an empty column
    code, shown = terminal("--url", url, "stats")
    assert "█" * 20 in shown

    code, shown = terminal("--url", url, "--json", "list")
    assert "\x1b" not in shown


def test_on_a_terminal_of_80_columns(url: str):
    """What is needed most is not cut off, and words are not broken."""
    pipe("--url", url, "put", "order.placed", "{}")
    event_id = pipe("--url", url, "put", "order.placed", "{}").stdout.strip()
    assert pipe("--url", url, "kill", event_id, "--why", "x", "--yes").returncode == 0
    shown = {}
    for arguments in (("why",), ("doctor",), ("dead", "list", "--by-error")):
        text = re.sub("\x1b\\[[0-9;]*m", "", terminal("--url", url, *arguments, columns=80)[1])
        shown[arguments[0]] = text
        lines = [line for line in text.splitlines() if not line.startswith("  redbox ")]
        assert not [line for line in lines if len(line) > 80]
    assert "No relay is running: none is registered. A relay that was stopped gracefully is\r\n" in shown["why"]
    assert event_id in shown["dead"]
    assert "1 event: order.placed" in shown["dead"]


#: Characters that a terminal obeys or reorders: ESC, DEL, C1, bidi, and beyond 16 bits.
HOSTILE = "\x1b[2J\x7f\x9b31m\u202e\u2066\u200f\U000e0001é\u4e2d"
RAW = "\x1b\x7f\x9b\u202e\u2066\u200f\U000e0001"


def test_json_on_a_terminal_holds_no_control_characters(url: str):
    put = pipe("--url", url, "put", "a", json.dumps({"n": HOSTILE}, ensure_ascii=False), "--id", "1")
    assert put.returncode == 0, put.stderr
    code, shown = terminal("--url", url, "--json", "list")
    assert code == 0
    assert not set(RAW) & set(shown)
    assert json.loads(shown)["payload"] == {"n": HOSTILE}
    assert "é\u4e2d" in shown
    assert "\u202e" in pipe("--url", url, "--json", "list").stdout  # a program gets it unescaped
    code, shown = terminal("--url", url, "relay", "--once", "--quiet", "--to", "stdout:")
    assert code == 0
    assert not set(RAW) & set(shown)
    assert json.loads(shown)["payload"] == {"n": HOSTILE}


def test_an_error_on_a_terminal_holds_no_control_characters(url: str):
    assert pipe("--url", url, "put", "a", "1").returncode == 0
    for options in ((), ("--json",), ("--debug",), ("--debug", "--json")):
        code, shown = terminal("--url", url, *options, "show", f"x{HOSTILE}")
        assert code == 1
        assert "there is no event" in shown
        assert not set(RAW) & set(shown), shown


def test_replay_asks_on_a_terminal(url: str):
    async def die() -> None:
        async with Box.open(url) as box:
            await box.put_many([Event("a", event_id="d1"), Event("a", event_id="d2")])
            await box.kill(await box.claim("relay-1"), reason="a long error " * 20)

    asyncio.run(die())
    code, shown = terminal("--url", url, "dead", "list")
    assert (code, "…" in shown) == (0, True)
    code, shown = terminal("--url", url, "dead", "replay", "--all", typed="n\n")
    assert (code, "Replay 2 events of box 'default'? [y/N]" in shown) == (1, True)
    assert "nothing was changed" in shown
    code, shown = terminal("--url", url, "dead", "replay", "--all", typed="y\n")
    assert (code, "2 events replayed" in shown) == (0, True)


def test_the_demo_on_a_terminal(url: str):
    code, shown = terminal("demo")
    assert code == 0
    assert "\x1b[31mDEAD" in shown
