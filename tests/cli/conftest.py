"""Runs the command line in this process, on a store in memory that the commands of one test share."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from redbox import Box, Event
from redbox.cli.app import cli

T = TypeVar("T")
_stores = (f"memory:cli-{number}" for number in itertools.count())


class Redbox:
    """Runs commands, and library code on the same store."""

    def __init__(self) -> None:
        self.url = next(_stores)

    def __call__(self, *args: str, code: int = 0, url: str | None = "", **options: Any) -> Result:
        where = [] if url is None else ["--url", url or self.url]
        result = CliRunner().invoke(cli, [*where, *args], **options)
        assert result.exit_code == code, (result.output, result.exception)
        assert "Traceback" not in result.stderr
        return result

    def json(self, *args: str, **options: Any) -> Any:
        return json.loads(self("--json", *args, **options).stdout)

    def lines(self, *args: str, **options: Any) -> list[Any]:
        return [json.loads(line) for line in self("--json", *args, **options).stdout.splitlines()]

    def error(self, *args: str, code: int, **options: Any) -> str:
        """Runs a command that fails; returns its one sentence on stderr."""
        result = self(*args, code=code, **options)
        assert result.stdout == ""
        notes = "lasts only as long as this command"
        lines = [line for line in result.stderr.splitlines() if line and not line.endswith(notes)]
        assert len(lines) == 1
        assert lines[0].startswith("error: ")
        return lines[0].removeprefix("error: ")

    def within(self, work: Callable[[Box], Awaitable[T]], box: str = "default") -> T:
        """Runs library code on the same store."""

        async def run() -> T:
            async with Box.open(self.url, name=box) as opened:
                return await work(opened)

        return asyncio.run(run())

    def put(self, *events: Event, box: str = "default") -> None:
        self.within(lambda opened: opened.put_many(events), box)

    def kill(self, *events: Event, reason: str = "HTTP 500") -> None:
        """Puts events and kills them; no other event may be available."""

        async def run(box: Box) -> None:
            await box.put_many(events)
            assert await box.kill(await box.claim("relay-1"), reason=reason) == [True] * len(events)

        self.within(run)


@pytest.fixture
def redbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Redbox:
    for name in ("REDBOX_URL", "REDBOX_BOX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Redbox()
