"""An embedded server whose disk has no room for a write."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pytest

from redbox import Box, Event, StoreFull
from redbox.service.health import RelayHealth
from redbox.store.embedded import server as embedded
from redbox.store.embedded import start_failures
from tests.servers import valkey_binary

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("redbox_runner"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits a running server with prlimit(2)"),
]
LARGE = "x" * 300_000


async def test_a_write_that_does_not_fit_is_reported_until_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    valkey_binary()
    directory = tmp_path / "box"
    monkeypatch.setattr("redbox.service.health.FRESH_SECONDS", 0.0)
    async with Box.open(f"embedded:{directory}", name="orders") as box:
        health = RelayHealth([], box)
        await box.put(Event("small", event_id="acknowledged"))
        limit_files(directory, 100_000)  # the server can write a part of the next event
        free_bytes(monkeypatch, 200_000)
        with pytest.raises(StoreFull, match=r"the disk that holds .*box is full: free some space, at least \d+,\d+"):
            await box.put(Event("large", LARGE))
        healthy, report = await health.health()
        assert not healthy
        assert "is full" in report["problem"]
        with pytest.raises(StoreFull):
            await box.put(Event("small"))
        log = (directory / "server.log").read_text()
        assert log.count("Valkey is starting") == 1, "it was not started in vain"

        free_bytes(monkeypatch, 500_000)
        assert (await health.health())[0]
        await box.put(Event("large", LARGE))
        assert (await box.get("acknowledged")).event.event_type == "small"
        assert (await box.stats()).phases["AVAILABLE"] == 2
    assert embedded.wait_stopped(directory)


async def test_a_write_beyond_a_quota_is_reported_though_the_disk_has_room(tmp_path: Path) -> None:
    """The server is started again at once, since reading and smaller writes may work."""
    valkey_binary()
    directory = tmp_path / "box"
    async with Box.open(f"embedded:{directory}", name="orders") as box:
        await box.put(Event("small", event_id="acknowledged"))
        limit_files(directory, 100_000)
        with pytest.raises(StoreFull, match=r"(?s)quota.*ulimit -f.*it said: .*Short write") as refused:
            await box.put(Event("large", LARGE))
        assert str(directory) in str(refused.value)
        assert (await box.get("acknowledged")).event.event_type == "small"
        await box.put(Event("small"))
    assert embedded.wait_stopped(directory)


def limit_files(directory: Path, size: int) -> None:
    """Lets the server write no file further than this, as a full disk would."""
    resource.prlimit(int((directory / "server.pid").read_text()), resource.RLIMIT_FSIZE, (size, size))


def free_bytes(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    found = os.statvfs_result((4096, 1, 10**9, free, free, 0, 0, 0, 0, 255))
    monkeypatch.setattr(start_failures.os, "statvfs", lambda _: found)
