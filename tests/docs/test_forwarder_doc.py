"""docs/forwarder.md: its commands run as printed, on a real service with a real target, and answer what it says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from redbox.service.http.pool import Limits
from redbox.service.ingest.cloudevents import EXTENSIONS
from redbox.service.options import ServiceOptions
from redbox.settings import MAX_PAYLOAD
from tests.publishers.target import http_target

DOCS = Path(__file__).resolve().parents[2] / "docs"
DOCUMENT, SECURITY = ((DOCS / name).read_text() for name in ("forwarder.md", "security-of-the-service.md"))
BLOCKS = re.findall(r"(?ms)^```(sh|json)\n(.*?)^```$", DOCUMENT)
ADDRESS, TARGET = "http://127.0.0.1:8080", "https://hooks.example.com/orders"
START = f"redbox up --to {TARGET}"
SECONDS = 30


def _values(text: str) -> list[Any]:
    """The JSON values of a text, one after another."""
    found, decoder = [], json.JSONDecoder()
    while text := text.strip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


async def _start(target: str, directory: Path, environment: dict[str, str]) -> tuple[asyncio.subprocess.Process, str]:
    assert START in BLOCKS[0][1]
    command = f"{START.replace(TARGET, target)} --port 0".replace("redbox", "redbox --json", 1)
    process = await asyncio.create_subprocess_exec(
        *shlex.split(command), cwd=directory, env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(SECONDS):
        while line := (await process.stderr.readline()).decode():
            with suppress(ValueError):
                if url := json.loads(line).get("url"):
                    return process, url
    raise AssertionError("redbox up ended")


@pytest.mark.req("SF-1", "SF-2", "SF-3", "SF-4")
@pytest.mark.usefixtures("redbox_runner")
async def test_the_commands_do_what_the_document_says(tmp_path: Path):
    command = tmp_path / "bin" / "redbox"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m redbox "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    environment.pop("REDBOX_URL", None)
    async with http_target() as target:
        process, url = await _start(target.url, tmp_path, environment)
        try:
            answers: list[Any] = []
            events = 0
            for kind, text in BLOCKS[1:]:
                if kind == "json":
                    expected = _values(text)
                    assert [_known(each) for each in answers] == [_known(each) for each in expected]
                    events += sum(each.get("accepted", each.get("created", False)) for each in expected)
                    continue
                script = text.replace(ADDRESS, url).replace("curl ", "curl -sS ")
                shell = await asyncio.create_subprocess_exec(
                    "bash", "-ec", script, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE
                )
                output = (await asyncio.wait_for(shell.communicate(), SECONDS))[0].decode()
                assert shell.returncode == 0, script
                answers = _values(output) if output.startswith("{") else []
                assert "curl" not in script or answers, output
            await target.received(events)
            bodies = [request.body for request in target.requests]
            assert {b'{"id": 7}', b'{"id": 8}', b'{"id": 12}', b'{"id": 13}'} <= set(bodies)
        finally:
            process.terminate()
            await process.communicate()


def _known(answer: Any) -> Any:
    """An answer without an id that redbox made."""
    made = re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", str(answer.get("event_id")))
    return {**answer, "event_id": "made"} if made else answer


@pytest.mark.req("SF-4")
def test_the_limits_and_extensions_are_those_of_the_code():
    options = ServiceOptions()
    rows = dict(re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \|", DOCUMENT[DOCUMENT.index("## Limits") :]))
    assert rows["body, also when decompressed"] == f"{options.max_body // 2**20} MiB"
    assert rows["payload"] == f"{MAX_PAYLOAD // 2**20} MiB"
    assert rows["events of a batch"] == f"{options.batch_events:,}"
    assert rows["bodies that are being read or stored in the process"] == f"{options.max_bodies // 2**20} MiB"
    assert rows["time to send a body"] == f"{Limits().body_seconds:g} s"
    for name, field in EXTENSIONS.items():
        assert re.search(rf"(?m)^\|[^|]*`{name}`[^|]*\|[^|]*`{field}`", DOCUMENT), name


@pytest.mark.req("SF-5")
def test_the_limits_of_connections_are_those_of_the_code():
    limits, options = Limits(), ServiceOptions()
    assert options.max_bodies == limits.bodies
    rows = dict(re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \|", SECURITY[SECURITY.index("## Limits") :]))
    assert rows["request line and headers"] == f"{limits.head_bytes // 2**10} KiB, {limits.head_seconds:g} s"
    assert rows["body"] == f"{options.max_body // 2**20} MiB, {limits.body_seconds:g} s"
    assert rows["all bodies together"].startswith(f"{limits.bodies // 2**20} MiB;")
    assert rows["sent after the answer"] == f"{limits.discard_bytes // 2**20} MiB, {limits.discard_seconds:g} s"
    assert rows["connections"].startswith(f"{limits.connections:,};")
    assert rows["a client that does not read its answer"] == f"{limits.write_seconds:g} s"
