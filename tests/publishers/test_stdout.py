"""stdout: in its own process, with a reader that reads, one that has gone, and one that does not read."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from redbox.errors import InvalidURL, Unavailable
from redbox.publishers.registry import open_publisher
from redbox.testing.claims import new_claim
from tests.publishers.conftest import opened
from tests.publishers.kinds import read_line

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, sys
from redbox.errors import Unavailable
from redbox.testing.claims import new_claim
from tests.publishers.conftest import opened

async def main(count, size, gone):
    async with opened("stdout:") as publisher:
        if gone:
            sys.stdin.readline()
        claims = [new_claim(b'"' + b"x" * size + b'"', number=n) for n in range(1, count + 1)]
        half = count // 2
        found = await asyncio.gather(*map(publisher.publish, claims[:half]), return_exceptions=True)
        found += await publisher.publish_many(claims[half:])
        print([type(one).__name__ for one in found if one is not None], file=sys.stderr)

asyncio.run(main(*map(int, sys.argv[1:])))
"""


def start(*arguments: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.mark.req("PC-1", "PC-3")
def test_whole_lines_from_a_process():
    """Lines longer than a pipe holds, from concurrent calls."""
    with start(40, 100_000, 0) as process:
        out, errors = process.communicate(timeout=60)
    assert errors.decode().strip() == "[]"
    arrived = [read_line(line) for line in out.splitlines(keepends=True)]
    assert sorted(int(each.headers["redbox-claim"]) for each in arrived) == list(range(1, 41))
    assert {len(each.payload) for each in arrived} == {100_002}


@pytest.mark.req("PC-4")
def test_a_reader_that_has_gone():
    with start(4, 10, 1) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, errors = process.communicate(b"\n", timeout=60)
    assert errors.decode().strip() == str(["Unavailable"] * 4)
    assert process.returncode == 0


@pytest.mark.req("PC-4")
async def test_a_reader_that_does_not_read(redbox_runner, monkeypatch: pytest.MonkeyPatch):
    """A cancelled write stays one thread, which continues with its line when the reader does."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        async with opened("stdout:") as publisher:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await publisher.publish(new_claim(bytes(200_000), content_type="x/y"))
            for _ in range(3):
                with pytest.raises(Unavailable, match="an earlier write is still waiting"):
                    await publisher.publish(new_claim())
            with os.fdopen(reader, "rb") as source:
                loop = asyncio.get_running_loop()
                line = await loop.run_in_executor(None, source.readline)
                assert read_line(line).payload == bytes(200_000)
                async with asyncio.timeout(20):
                    while True:  # the thread has not quite ended
                        try:
                            await publisher.publish(new_claim(event_id="after"))
                            break
                        except Unavailable:
                            await asyncio.sleep(0)
                assert read_line(await loop.run_in_executor(None, source.readline)).event_id == "after"


async def test_an_incomplete_line_is_ended_before_the_next(
    redbox_runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    write, calls = os.write, []

    def full_disk(descriptor: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return write(descriptor, data[:10])
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    with (tmp_path / "lines").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        monkeypatch.setattr("redbox.publishers.stdout.os.write", full_disk)
        async with opened("stdout:") as publisher:
            with pytest.raises(Unavailable, match="No space left"):
                await publisher.publish(new_claim())
            await publisher.publish(new_claim(event_id="whole"))
    incomplete, whole = (tmp_path / "lines").read_bytes().splitlines(keepends=True)
    assert len(incomplete) == 11
    assert read_line(whole).event_id == "whole"


async def test_captured_and_closed_output(redbox_runner, monkeypatch: pytest.MonkeyPatch):
    captured = io.StringIO()
    monkeypatch.setattr(sys, "stdout", captured)
    async with opened("stdout:") as publisher:
        await publisher.publish(new_claim(partition_key="p"))
        document = json.loads(captured.getvalue())
        assert (document["partition_key"], document["payload"], document["attempt"]) == ("p", {"id": 42}, 2)
        assert document["created_at"] == "2023-11-14T22:13:20.123000Z"
        assert "metadata" not in document
        captured.close()
        assert [type(each) for each in await publisher.publish_many([new_claim()] * 2)] == [Unavailable] * 2


def test_nothing_after_the_colon():
    with pytest.raises(InvalidURL):
        open_publisher("stdout:file")
    with pytest.raises(InvalidURL):
        open_publisher("null:x")
