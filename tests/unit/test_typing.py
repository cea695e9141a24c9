"""mypy on an application that uses redbox."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")

ROOT = Path(__file__).resolve().parents[2]

APPLICATION = """
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from redbox import Box, Claim, Event, Publish, Publisher, Relay, Stats, open_publisher
from redbox.sync import Box as SyncBox


class UserCreated(msgspec.Struct, tag="user.created"):
    id: int


@dataclass
class UserDeleted:
    event_type: ClassVar[str] = "user.deleted"
    id: int


async def around(claim: Claim, publish: Publish) -> None: await publish(claim)
async def publish(event: Event) -> None: ...
async def fenced(event: Event, claim: Claim) -> None: ...
def plain(event: Event) -> bool: return True
async def nothing() -> None: ...
async def number(event: int) -> None: ...


async def good(box: Box, sync: SyncBox, publisher: Publisher) -> Stats:
    await box.put(Event("user.created", {"id": 42}))
    await box.put(UserCreated(id=42), on_conflict="skip")
    await box.put_many([UserCreated(id=42), Event("a")], on_conflict="all_or_nothing")
    await box.put(Event.of(UserCreated(id=42), ordering_key="user-42", delay=1.5))
    await box.put(Event.of(UserDeleted(id=42), unique_key="user-42"))
    async with box.transaction() as tx:
        tx.put(UserCreated(id=42))
    sync.put(UserCreated(id=42))
    sync.put_many([Event("a")])
    with sync.transaction() as block:
        block.put(UserCreated(id=42))
        block.redis.set(block.key("own"), "1")
    sync.replay(state="DEAD", rate=10)
    sync.put(Event("a", unique_key="u"), on_conflict="replace")
    Relay(box, publish, middleware=[around])
    for target in (publish, fenced):
        Relay(box, target)
    Relay(box, plain, dead_to="stdout:")
    Relay(box, open_publisher("https://example.org", timeout=5))
    Relay(box, "https://example.org", options={"secret": "whsec_x"})
    return await box.stats()


async def bad(box: Box, sync: SyncBox) -> None:
    await box.put(3)  # wrong: 1
    await box.put({"id": 42})  # wrong: 2
    await box.put_many(["a"])  # wrong: 3
    await box.put(Event("a"), on_conflict="all_or_nothing")  # wrong: 4
    async with box.transaction() as tx:
        tx.put(3)  # wrong: 5
    sync.put(3)  # wrong: 6
    sync.put_many([3])  # wrong: 7
    Relay(box, nothing)  # wrong: 8
    Relay(box, number)  # wrong: 9
    Relay(box, 3)  # wrong: 10
    sync.replay(states="DEAD")  # wrong: 11
    with sync.transaction() as block:
        block.put(3)  # wrong: 12
    Relay(box, publish, middleware=[publish])  # wrong: 16
    Event.of({"id": 42})  # wrong: 13
    Event.of(UserCreated(id=42), ordering="user-42")  # wrong: 14
    Event.of(UserCreated(id=42), delay="1s")  # wrong: 15
"""


@pytest.mark.timeout(180)
def test_mypy_finds_wrong_calls_and_only_those(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)  # so that the cache of `make lint` is used
    path = tmp_path / "application.py"
    path.write_text(APPLICATION)
    said, trouble, _ = api.run(["--strict", "--no-error-summary", str(path)])
    found = {int(line) for line in re.findall(r"application\.py:(\d+): error", said)}
    wrong = {number for number, line in enumerate(APPLICATION.splitlines(), 1) if "# wrong" in line}
    assert (found, trouble) == (wrong, ""), said
