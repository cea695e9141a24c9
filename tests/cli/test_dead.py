"""`redbox dead list` and `redbox dead replay`."""

from __future__ import annotations

import os
import pwd

import pytest

from redbox import Box, Event, Phase
from redbox.cli import dead
from tests.cli.conftest import Redbox


def count(redbox: Redbox, phase: Phase) -> int:
    return redbox.within(lambda box: box.stats()).phases[phase]


@pytest.fixture
def graves(redbox: Redbox) -> Redbox:
    """Three dead events."""
    redbox.kill(Event("user.created", event_id="d1"), Event("user.deleted", event_id="d2"), reason="HTTP 500: boom")
    redbox.kill(Event("order.paid", event_id="d3", unique_key="u"), reason="timeout")
    return redbox


def test_list(graves: Redbox):
    header, *rows = graves("dead", "list").stdout.splitlines()
    assert header.split() == ["ID", "TYPE", "DIED", "ATTEMPTS", "KEY", "LAST", "ERROR"]
    assert [row.split()[0] for row in rows] == ["d1", "d2", "d3"]
    assert rows[0].endswith("1       HTTP 500: boom")
    assert [event["event_id"] for event in graves.lines("dead", "list", "--type", "user.*")] == ["d1", "d2"]
    assert [event["event_id"] for event in graves.lines("dead", "list", "--error", "TIMEOUT")] == ["d3"]
    assert "there may be more" in graves("dead", "list", "--limit", "1").stderr
    assert "no dead events match the filters" in graves("dead", "list", "--until", "1h").stderr


def test_none_is_dead(redbox: Redbox):
    redbox.put(Event("a"))
    assert "there are no dead events" in redbox("dead", "list").stderr


# --- which -----------------------------------------------------------------------------------------------------


def test_by_id(graves: Redbox):
    assert graves("dead", "replay", "d1").stdout == "1 event replayed\n"
    assert (count(graves, Phase.DEAD), count(graves, Phase.AVAILABLE)) == (2, 1)


def test_by_filter(graves: Redbox):
    assert graves("dead", "replay", "--type", "user.*", "--yes").stdout == "2 events replayed\n"
    assert count(graves, Phase.DEAD) == 1


def test_all(graves: Redbox):
    assert graves.json("dead", "replay", "--all", "--yes") == {
        "matched": 3, "replayed": 3, "dry_run": False, "refused": [],
    }  # fmt: skip
    assert count(graves, Phase.AVAILABLE) == 3


def test_none_matches(graves: Redbox):
    assert graves("dead", "replay", "--type", "x", "--yes").stdout == "0 events replayed\n"
    assert count(graves, Phase.DEAD) == 3


@pytest.mark.parametrize(
    "arguments", [(), ("--all", "--type", "x"), ("d1", "--all"), ("d1", "--since", "1h")], ids=" ".join
)
def test_exactly_one_way_to_say_which(graves: Redbox, arguments: tuple[str, ...]):
    assert "select events in one way: by ID, with --all, or with filters" in graves.error(
        "dead", "replay", *arguments, "--yes", code=2
    )
    assert count(graves, Phase.DEAD) == 3


# --- how -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("--all",), ("--type", "user.*")], ids=" ".join)
def test_in_a_pipe_it_wants_yes_or_dry_run(graves: Redbox, arguments: tuple[str, ...]):
    assert "add --yes or --dry-run" in graves.error("dead", "replay", *arguments, code=2)
    assert "would be replayed" in graves("dead", "replay", *arguments, "--dry-run").stdout
    assert count(graves, Phase.DEAD) == 3
    graves("dead", "replay", *arguments, "--yes")
    assert count(graves, Phase.DEAD) < 3


@pytest.mark.parametrize("arguments", [("--all",), ("--type", "user.created")], ids=" ".join)
def test_on_a_terminal_it_asks_however_many_are_selected(
    graves: Redbox, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dead, "can_ask", lambda: True)
    events = "3 events" if arguments == ("--all",) else "1 event"
    declined = graves("dead", "replay", *arguments, input="n\n", code=1)
    assert f"Replay {events} of box 'default'?" in declined.stderr
    assert "nothing was replayed" in declined.stderr
    assert count(graves, Phase.DEAD) == 3
    assert graves("dead", "replay", *arguments, input="y\n").stdout == f"{events} replayed\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_it_does_not_ask_about_ids_however_many(graves: Redbox, terminal: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dead, "can_ask", lambda: terminal)
    replayed = graves("dead", "replay", "d1", "d2")
    assert (replayed.stdout, "Replay" in replayed.stderr) == ("2 events replayed\n", False)


def test_nothing_selected_is_not_asked_about(graves: Redbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dead, "can_ask", lambda: True)
    assert graves("dead", "replay", "--type", "nothing").stdout == "0 events replayed\n"


def test_dry_run_tells_what_would_be_refused(graves: Redbox):
    result = graves("dead", "replay", "d1", "nope", "--dry-run", code=1)
    assert result.stdout.startswith("1 event would be replayed\n")
    assert "nope     there is no such event" in result.stdout


def test_the_refused_are_named_with_reasons(graves: Redbox):
    async def more(box: Box) -> None:
        await box.put(Event("a", event_id="done"))
        await box.ack(await box.claim("relay-1"))
        await box.put(Event("a", event_id="holder", unique_key="u"))

    graves.within(more)
    result = graves("dead", "replay", "done", "nope", "holder", "d3", "d1", "--yes", code=1)
    assert result.stdout.splitlines() == [
        "1 event replayed, 4 refused",
        "REFUSED  REASON",
        "done     the event is PUBLISHED, not DEAD",
        "nope     there is no such event",
        "holder   the event is PENDING, not DEAD",
        "d3       another live event holds its unique_key: holder; --force replays it anyway",
    ]
    told = graves.json("dead", "replay", "--key", "u", "--yes", code=1)
    assert (told["matched"], told["replayed"]) == (1, 0)
    assert told["refused"][0]["event_id"] == "d3"
    assert told["refused"][0]["outcome"] == "CONFLICT"
    assert graves("dead", "replay", "d3", "--force").stdout == "1 event replayed\n"


def test_attempts_start_anew_or_are_kept(graves: Redbox):
    graves("dead", "replay", "d1")
    graves("dead", "replay", "d2", "--keep-attempts", "--delay", "1h")
    fresh, kept = graves.json("show", "d1"), graves.json("show", "d2")
    assert (fresh["attempts"], fresh["excused"], fresh["last_error"]) == (1, 1, None)
    assert fresh["phase"] == "AVAILABLE"
    assert (kept["attempts"], kept["last_error"], kept["phase"]) == (1, "HTTP 500: boom", "RETRY_SCHEDULED")


def test_the_log_keeps_who_and_why(graves: Redbox):
    graves("dead", "replay", "--type", "user.*", "--yes", "--why", "provider is back", "--rate", "1000")
    (entry, *_) = graves.within(lambda box: box.operate.log())
    assert (entry.action, entry.who, entry.why) == ("replay", pwd.getpwuid(os.getuid()).pw_name, "provider is back")


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "getuid", lambda: 987654)
    assert dead._operator() == "uid 987654"


@pytest.mark.parametrize("rate", ["0", "-1", "fast"])
def test_a_rate_that_cannot_be(graves: Redbox, rate: str):
    assert "--rate" in graves.error("dead", "replay", "--all", "--yes", "--rate", rate, code=2)
