"""`redbox dead list` and `redbox dead replay`."""

from __future__ import annotations

import os

import pytest

from redbox import Box, Event, Phase
from redbox.box.operate import operator_name
from redbox.cli import dead
from redbox.fingerprints import group_id
from tests.cli.conftest import Redbox


def count(redbox: Redbox, phase: Phase) -> int:
    return redbox.within(lambda box: box.stats()).phases[phase]


@pytest.fixture
def dead_events(redbox: Redbox) -> Redbox:
    """Three dead events."""
    redbox.kill(Event("user.created", event_id="d1"), Event("user.deleted", event_id="d2"), reason="HTTP 500: boom")
    redbox.kill(Event("order.paid", event_id="d3", unique_key="u"), reason="timeout")
    return redbox


def test_list(dead_events: Redbox):
    header, *rows = dead_events("dead", "list").stdout.splitlines()
    assert header.split() == ["ID", "TYPE", "DIED", "ATTEMPTS", "KEY", "LAST", "ERROR"]
    assert [row.split()[0] for row in rows] == ["d1", "d2", "d3"]
    assert rows[0].endswith("1       HTTP 500: boom")
    assert [event["event_id"] for event in dead_events.lines("dead", "list", "--type", "user.*")] == ["d1", "d2"]
    assert [event["event_id"] for event in dead_events.lines("dead", "list", "--error", "TIMEOUT")] == ["d3"]
    assert "there may be more" in dead_events("dead", "list", "--limit", "1").stderr
    assert "no dead events match the filters" in dead_events("dead", "list", "--until", "1h").stderr


def test_a_box_without_dead_events(redbox: Redbox):
    redbox.put(Event("a"))
    assert "there are no dead events" in redbox("dead", "list").stderr


# --- selection -------------------------------------------------------------------------------------------------


def test_replay_by_id(dead_events: Redbox):
    assert dead_events("dead", "replay", "d1").stdout == "1 event replayed\n"
    assert (count(dead_events, Phase.DEAD), count(dead_events, Phase.AVAILABLE)) == (2, 1)


def test_replay_by_filter(dead_events: Redbox):
    assert dead_events("dead", "replay", "--type", "user.*", "--yes").stdout == "2 events replayed\n"
    assert count(dead_events, Phase.DEAD) == 1


def test_replay_all(dead_events: Redbox):
    assert dead_events.json("dead", "replay", "--all", "--yes") == {
        "matched": 3, "replayed": 3, "dry_run": False, "refused": [],
    }  # fmt: skip
    assert count(dead_events, Phase.AVAILABLE) == 3


def test_replay_of_nothing(dead_events: Redbox):
    assert dead_events("dead", "replay", "--type", "x", "--yes").stdout == "0 events replayed\n"
    assert count(dead_events, Phase.DEAD) == 3


@pytest.mark.parametrize(
    "arguments", [(), ("--all", "--type", "x"), ("d1", "--all"), ("d1", "--since", "1h")], ids=" ".join
)
def test_events_are_selected_in_exactly_one_way(dead_events: Redbox, arguments: tuple[str, ...]):
    assert "select events in one way: by ID, with --all, or with filters" in dead_events.error(
        "dead", "replay", *arguments, "--yes", code=2
    )
    assert count(dead_events, Phase.DEAD) == 3


# --- confirmation, refusals and options ------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("--all",), ("--type", "user.*")], ids=" ".join)
def test_without_a_terminal_replay_requires_yes_or_dry_run(dead_events: Redbox, arguments: tuple[str, ...]):
    assert "add --yes or --dry-run" in dead_events.error("dead", "replay", *arguments, code=2)
    assert "would be replayed" in dead_events("dead", "replay", *arguments, "--dry-run").stdout
    assert count(dead_events, Phase.DEAD) == 3
    dead_events("dead", "replay", *arguments, "--yes")
    assert count(dead_events, Phase.DEAD) < 3


@pytest.mark.parametrize("arguments", [("--all",), ("--type", "user.created")], ids=" ".join)
def test_on_a_terminal_replay_asks_for_any_number_of_selected_events(
    dead_events: Redbox, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dead, "can_ask", lambda: True)
    events = "3 events" if arguments == ("--all",) else "1 event"
    declined = dead_events("dead", "replay", *arguments, input="n\n", code=1)
    assert f"Replay {events} of box 'default'?" in declined.stderr
    assert "nothing was replayed" in declined.stderr
    assert count(dead_events, Phase.DEAD) == 3
    assert dead_events("dead", "replay", *arguments, input="y\n").stdout == f"{events} replayed\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_replay_by_id_never_asks(dead_events: Redbox, terminal: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dead, "can_ask", lambda: terminal)
    replayed = dead_events("dead", "replay", "d1", "d2")
    assert (replayed.stdout, "Replay" in replayed.stderr) == ("2 events replayed\n", False)


def test_replay_does_not_ask_when_nothing_is_selected(dead_events: Redbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dead, "can_ask", lambda: True)
    assert dead_events("dead", "replay", "--type", "nothing").stdout == "0 events replayed\n"


def test_dry_run_lists_events_that_would_be_refused(dead_events: Redbox):
    result = dead_events("dead", "replay", "d1", "nope", "--dry-run", code=1)
    assert result.stdout.startswith("1 event would be replayed\n")
    assert "nope     there is no such event" in result.stdout


def test_refused_events_are_listed_with_reasons(dead_events: Redbox):
    async def more(box: Box) -> None:
        await box.put(Event("a", event_id="done"))
        await box.ack(await box.claim("relay-1"))
        await box.put(Event("a", event_id="holder", unique_key="u"))

    dead_events.within(more)
    result = dead_events("dead", "replay", "done", "nope", "holder", "d3", "d1", "--yes", code=1)
    assert result.stdout.splitlines() == [
        "1 event replayed, 4 refused",
        "REFUSED  REASON",
        "done     the event is PUBLISHED, not DEAD",
        "nope     there is no such event",
        "holder   the event is PENDING, not DEAD",
        "d3       another live event holds its unique_key: holder; --force replays it anyway",
    ]
    report = dead_events.json("dead", "replay", "--key", "u", "--yes", code=1)
    assert (report["matched"], report["replayed"]) == (1, 0)
    assert report["refused"][0]["event_id"] == "d3"
    assert report["refused"][0]["outcome"] == "CONFLICT"
    assert dead_events("dead", "replay", "d3", "--force").stdout == "1 event replayed\n"


@pytest.mark.parametrize("selection", [("d3",), ("--all",), ("--error", "timeout")])
def test_a_dry_run_reports_the_same_refusals_as_the_replay(dead_events: Redbox, selection: tuple[str, ...]):
    dead_events.put(Event("order.paid", event_id="holder", unique_key="u"))
    matched = 3 if selection == ("--all",) else 1
    refused = dead_events.json("dead", "replay", *selection, "--dry-run", code=1)
    assert (refused["matched"], refused["replayed"], refused["dry_run"]) == (matched, 0, True)
    assert [each["event_id"] for each in refused["refused"]] == ["d3"]
    forced = dead_events.json("dead", "replay", *selection, "--dry-run", "--force")
    assert (forced["matched"], forced["refused"], forced["dry_run"]) == (matched, [], True)
    assert count(dead_events, Phase.DEAD) == 3


def test_attempts_are_excused_or_kept(dead_events: Redbox):
    dead_events("dead", "replay", "d1")
    dead_events("dead", "replay", "d2", "--keep-attempts", "--delay", "1h")
    fresh, kept = dead_events.json("show", "d1"), dead_events.json("show", "d2")
    assert (fresh["attempts"], fresh["excused"], fresh["last_error"]) == (1, 1, None)
    assert fresh["phase"] == "AVAILABLE"
    assert (kept["attempts"], kept["last_error"], kept["phase"]) == (1, "HTTP 500: boom", "RETRY_SCHEDULED")


def test_the_log_records_the_operator_and_the_reason(dead_events: Redbox):
    dead_events("dead", "replay", "--type", "user.*", "--yes", "--why", "provider is back", "--rate", "1000")
    (entry, *_) = dead_events.within(lambda box: box.operate.log())
    assert (entry.action, entry.who, entry.why) == ("replay", operator_name(), "provider is back")


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "getuid", lambda: 987654)
    assert operator_name().startswith("uid-987654@")


@pytest.mark.parametrize("rate", ["0", "-1", "fast"])
def test_an_invalid_rate_is_refused(dead_events: Redbox, rate: str):
    assert "--rate" in dead_events.error("dead", "replay", "--all", "--yes", "--rate", rate, code=2)


# --- groups ------------------------------------------------------------------------------------------------------


@pytest.mark.req("RO-1", "RF-3")
def test_list_by_error(dead_events: Redbox):
    header, *rows = dead_events("dead", "list", "--by-error").stdout.splitlines()
    assert header.split() == ["GROUP", "COUNT", "TYPES", "FIRST", "LAST", "SAMPLE", "ERROR"]
    assert [row.split()[:2] for row in rows] == [[group_id("http 500: boom"), "2"], [group_id("timeout"), "1"]]
    assert "user.created, user.deleted" in rows[0]
    assert rows[0].endswith("  d2      http 500: boom")
    first, second = dead_events.lines("dead", "list", "--by-error")
    assert (first["count"], first["sample_id"], first["example"]) == (2, "d2", "HTTP 500: boom")
    assert (second["fingerprint"], second["event_types"]) == ("timeout", ["order.paid"])
    limited = dead_events("dead", "list", "--by-error", "--limit", "1")
    assert len(limited.stdout.splitlines()) == 2
    assert "1 smaller group not shown; add --limit to see more" in limited.stderr
    assert len(dead_events.lines("dead", "list", "--by-error", "--type", "user.*")) == 1
    assert "no dead events match the filters" in dead_events("dead", "list", "--by-error", "--until", "1h").stderr
    message = dead_events.error("dead", "list", "--by-error", "--cursor", "dead:1:x", code=2)
    assert "--cursor cannot be combined with --by-error" in message


@pytest.mark.req("RO-1", "RO-2")
def test_a_group_is_listed_and_replayed_by_its_id_or_its_fingerprint(dead_events: Redbox):
    (group,) = dead_events.lines("dead", "list", "--by-error", "--error", "boom")
    for name in (group["group"], group["fingerprint"]):
        assert [event["event_id"] for event in dead_events.lines("dead", "list", "--group", name)] == ["d1", "d2"]
    assert len(dead_events("dead", "list", "--group", group["group"]).stdout.splitlines()) == 3
    assert dead_events("dead", "replay", "--group", group["group"], "--yes").stdout == "2 events replayed\n"


@pytest.mark.req("RO-6")
def test_filters_by_time_of_creation(dead_events: Redbox):
    assert "no dead events match" in dead_events("dead", "list", "--created-until", "1h").stderr
    assert len(dead_events.lines("list", "--created-since", "1h")) == 3
    assert "no events match" in dead_events("list", "--created-until", "2020-01-01T00:00:00Z").stderr
    assert dead_events("dead", "replay", "--created-until", "1h", "--yes").stdout == "0 events replayed\n"
    assert dead_events("dead", "replay", "--created-since", "1h", "--yes").stdout == "3 events replayed\n"
