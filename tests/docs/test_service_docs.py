"""The commands of docs/http-api.md, docs/security-of-the-service.md and docs/telemetry.md run as printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADDRESS, TARGET = "http://127.0.0.1:8080", "https://hooks.example.com/orders"
SECONDS = 60

pytestmark = pytest.mark.timeout(120)


def blocks(document: str, kind: str = "sh") -> list[str]:
    """The code blocks of a document."""
    return re.findall(rf"(?ms)^```{kind}\n(.*?)^```$", (ROOT / document).read_text())


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a new user: a command redbox on the path, and no REDBOX variables."""
    command = tmp_path / "bin" / "redbox"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m redbox "$@"\n')
    command.chmod(0o755)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("REDBOX")}
    return {**plain, "PATH": f"{command.parent}:{plain['PATH']}", "PYTHONUNBUFFERED": "1"}


class Up(NamedTuple):
    url: str
    output: IO[str]


@contextmanager
def up(script: str, folder: Path, environment: dict[str, str]) -> Iterator[Up]:
    """Runs a script whose last command is the service, on a free port."""
    *before, last = script.strip().splitlines()
    script = "\n".join([*before, f"exec {last.replace(TARGET, 'null:')} --port 0"])
    with subprocess.Popen(
        ["sh", "-ec", script], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stderr is not None
            url = next(found[1] for line in running.stderr if (found := re.search(r"redbox is up: (\S+)", line)))
            yield Up(url, running.stdout)
        finally:
            running.terminate()
            running.communicate(timeout=SECONDS)


def run(script: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-ec", script], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_a_shell_does_not_expand_the_addresses_of_the_documents(path: Path):
    """zsh takes the question mark of a word without quotes for a pattern, and refuses the command."""
    for block in blocks(str(path.relative_to(ROOT))):
        assert not re.search(r"(?m)(?:^|\s)https?://[^\s'\"]*[?&]", block), block


@pytest.mark.req("SF-6")
def test_the_commands_of_the_http_api(tmp_path: Path, environment: dict[str, str]):
    answers = []
    with up("redbox --url memory: serve", tmp_path, environment) as service:
        for block in blocks("docs/http-api.md"):
            script = block.replace(ADDRESS, service.url).replace("curl ", "curl -sS --fail-with-body -w '\\n' ")
            done = run(script, tmp_path, environment)
            assert done.returncode == 0, done.stdout + done.stderr
            answers += [json.loads(line) for line in done.stdout.splitlines() if line]
    assert [each["event_id"] for each in answers[3]["events"]] == ["invoice-4"]
    assert answers[4]["count"] == 1


@pytest.mark.req("SF-5")
def test_the_commands_of_the_page_on_security(tmp_path: Path, environment: dict[str, str]):
    start, post = blocks("docs/security-of-the-service.md")
    with up(start, tmp_path, environment) as service:
        done = run(post.replace(ADDRESS, service.url).replace("curl ", "curl -sS "), tmp_path, environment)
        assert '"created":true' in done.stdout, done.stdout + done.stderr


@pytest.mark.req("RO-7")
def test_the_alerts_of_the_page_on_telemetry(tmp_path: Path, environment: dict[str, str], redis_url: str):
    relay, start = (block.strip() for block in blocks("docs/telemetry.md") if "--alerts-to" in block)
    relay = relay.replace("redis://localhost:6379/0", redis_url).replace(TARGET, "null:")
    done = run(f"{relay} --once", tmp_path, environment)
    assert done.returncode == 0, done.stderr
    module = next(block for block in blocks("docs/telemetry.md", "python") if "def page" in block)
    (tmp_path / "alerts.py").write_text(module)
    local = "redbox --url embedded:./.redbox"
    run(f"{local} put a.b && {local} pause --yes", tmp_path, environment)
    with up(start, tmp_path, environment) as service:
        assert service.output.readline().startswith("redbox.box.paused box default is paused by ")
