"""Runs the commands of docs/relay.md, and checks its configuration file and its tables of options."""

from __future__ import annotations

import inspect
import re
import subprocess
from pathlib import Path

import click
import pytest

from redbox import Backoff, Box, Relay
from redbox.cli.app import cli
from redbox.cli.relay.config import load, open_relays
from redbox.cli.relay.settings import FIELDS
from redbox.service import health
from redbox.store.embedded import server as embedded
from tests.docs.test_readme import environment
from tests.servers import valkey_binary

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "relay.md").read_text()
SHELL = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.timeout(120)
def test_the_commands_that_end_by_themselves(tmp_path: Path):
    valkey_binary()
    last = next(block for block in SHELL if "2> /dev/null" in block)
    for command in (*SHELL[0].strip().splitlines(), last):
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
    assert '"published":0' in done.stdout
    assert embedded.wait_stopped(tmp_path / ".redbox")


@pytest.mark.parametrize("block", SHELL[1:], ids=range(1, len(SHELL)))
def test_every_other_command_names_options_that_exist(block: str, tmp_path: Path):
    lines = [line for line in block.strip().splitlines() if line.startswith("redbox ")]
    assert lines
    for line in lines:
        done = subprocess.run(
            f"{line} --help", shell=True, cwd=tmp_path, env=environment(), capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")


def test_the_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REDIS_PASSWORD", "p")
    monkeypatch.setenv("HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "authorization").write_text("Bearer abc\n")
    path = tmp_path / "redbox.toml"
    path.write_text(re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)[0])
    relays = open_relays(path, load(path), lambda: pytest.fail("the file names the store"))
    assert [(relay.box.name, relay.target) for relay in relays] == [
        ("orders", "https://hooks.example.com/orders"),
        ("audit", "redis+stream://localhost:6379/1/audit"),
    ]
    for field in FIELDS:
        assert f"`{field}`" in TEXT or f"`{field} = " in TEXT


def test_the_table_of_options_is_complete():
    command = cli.get_command(click.Context(cli), "relay")
    assert command is not None
    rows = re.findall(r"^\| `(-.*?)` \|", TEXT, re.MULTILINE)
    listed = [re.findall(r"-[-a-z]+", row.replace("`", " "))[0:2] for row in rows]
    documented = {name for row in listed for name in row if name.startswith("-")}
    there = {name for param in command.params for name in param.opts}
    assert there == documented & there
    assert {name for name in documented if name.startswith("--")} <= there


def test_every_option_is_a_keyword_argument_of_relay_or_in_the_table_of_those_that_differ():
    command = cli.get_command(click.Context(cli), "relay")
    assert command is not None
    keywords = inspect.signature(Relay).parameters
    table = TEXT[TEXT.index("| option | keyword argument of `Relay` |") : TEXT.index("## Options")]
    for param in command.params:
        name = max(param.opts, key=len)
        same = name.removeprefix("--").replace("-", "_") in keywords
        assert same or name == "--once" or any(f"`{each}" in table for each in param.opts), name
    arguments: dict[str, object] = {}
    for code in re.findall(r"`(\w+=[^`]*)`", table):
        arguments |= eval(f"dict({code})", {"Backoff": Backoff, "value": 1})
    assert set(arguments) == {
        "options",
        "dead_options",
        "alerts_options",
        "backoff",
        "attempts",
        "time_limit",
        "breaker",
    }
    box = Box.open("memory:")
    Relay(box, print, **{**arguments, "options": {}, "dead_options": {}, "alerts_options": {}})  # type: ignore[arg-type]


def test_kubernetes_restarts_by_liveness_only():
    """An outage of Redis must not restart a relay that waits for it."""
    (snippet,) = [block for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL) if "livenessProbe" in block]
    probes = re.findall(r"(\w+)Probe:\n  httpGet: { path: (/\w+),", snippet)
    assert probes == [("liveness", "/livez"), ("readiness", "/readyz")]
    assert {path for _, path in probes} < set(health.PATHS)
