"""`redbox dead list`, `show`, `replay`, `export` and `drop`."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from redbox import Box, Event, Phase, StoreUnavailable, UniqueScope, keys
from redbox.box.bulk import drop as drop_events
from redbox.box.operate import operator_name
from redbox.cli.dead import drop as drop_command
from redbox.cli.dead import replay as replay_command
from redbox.cli.options import changes
from redbox.fingerprints import group_id
from redbox.store.store import Store
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
    assert header.split() == ["ID", "TYPE", "DEAD", "SINCE", "ATTEMPTS", "KEY", "LAST", "ERROR"]
    assert [row.split()[0] for row in rows] == ["d1", "d2", "d3"]
    assert rows[0].endswith("1       HTTP 500: boom")
    assert [event["event_id"] for event in dead_events.lines("dead", "list", "--type", "user.*")] == ["d1", "d2"]
    assert [event["event_id"] for event in dead_events.lines("dead", "list", "--error", "TIMEOUT")] == ["d3"]
    assert "there may be more" in dead_events("dead", "list", "--limit", "1").stderr
    assert "no dead events match the filters" in dead_events("dead", "list", "--until", "1h").stderr


def test_a_box_without_dead_events(redbox: Redbox):
    redbox.put(Event("a"))
    assert "there are no dead events" in redbox("dead", "list").stderr
    assert "there are no dead events" in redbox("dead", "list", "--by-error").stderr


# --- selection -------------------------------------------------------------------------------------------------


def test_replay_by_id(dead_events: Redbox):
    assert dead_events("dead", "replay", "d1", "--yes").stdout == "1 event replayed\n"
    assert (count(dead_events, Phase.DEAD), count(dead_events, Phase.AVAILABLE)) == (2, 1)


def test_replay_by_filter(dead_events: Redbox):
    assert dead_events("dead", "replay", "--type", "user.*", "--yes").stdout == "2 events replayed\n"
    assert count(dead_events, Phase.DEAD) == 1


def test_replay_all(dead_events: Redbox):
    assert dead_events.json("dead", "replay", "--all", "--yes") == {
        "matched": 3, "replayed": 3, "dry_run": False, "refused_count": 0, "conflicts": 0, "refused": [],
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


@pytest.mark.parametrize("arguments", [("--all",), ("--type", "user.*"), ("d1",)], ids=" ".join)
def test_without_a_terminal_replay_requires_yes_or_dry_run(dead_events: Redbox, arguments: tuple[str, ...]):
    assert "add --yes or --dry-run" in dead_events.error("dead", "replay", *arguments, code=2)
    assert "would be replayed" in dead_events("dead", "replay", *arguments, "--dry-run").stdout
    assert count(dead_events, Phase.DEAD) == 3
    dead_events("dead", "replay", *arguments, "--yes")
    assert count(dead_events, Phase.DEAD) < 3


@pytest.mark.parametrize("arguments", [("--all",), ("--type", "user.created"), ("d1",)], ids=" ".join)
def test_on_a_terminal_replay_asks_for_any_number_of_selected_events(
    dead_events: Redbox, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(changes, "can_ask", lambda: True)
    events = "3 events" if arguments == ("--all",) else "1 event"
    declined = dead_events("dead", "replay", *arguments, input="n\n", code=1)
    assert f"Replay {events} of box 'default'?" in declined.stderr
    assert "nothing was changed" in declined.stderr
    assert count(dead_events, Phase.DEAD) == 3
    assert dead_events("dead", "replay", *arguments, input="y\n").stdout == f"{events} replayed\n"


def test_replay_by_id_lists_refusals_before_the_question(dead_events: Redbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(changes, "can_ask", lambda: True)
    asked = dead_events("dead", "replay", "d1", "nope", input="y\n", code=1)
    assert "1 event of 2 will be refused:\n  nope: there is no such event\n" in asked.stderr
    assert "Replay 1 event of box 'default'?" in asked.stderr
    assert asked.stdout.startswith("1 event replayed, 1 refused\n")


def test_replay_does_not_ask_when_nothing_can_be_replayed(dead_events: Redbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(changes, "can_ask", lambda: True)
    dead_events.put(Event("order.paid", event_id="holder", unique_key="u"))
    assert dead_events("dead", "replay", "--type", "nothing").stdout == "0 events replayed\n"
    for selection in (("nope",), ("d3",), ("--key", "u")):
        left = dead_events("dead", "replay", *selection, code=1)
        assert left.stdout.startswith("0 events replayed, 1 refused\n")
        assert "Replay" not in left.stderr


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
    assert dead_events("dead", "replay", "d3", "--force", "--yes").stdout == "1 event replayed\n"


@pytest.mark.req("RO-2", "RF-3")
@pytest.mark.parametrize("command", ["replay", "drop"])
def test_an_event_that_was_published_meanwhile_is_left(
    dead_events: Redbox, command: str, monkeypatch: pytest.MonkeyPatch
):
    """Somebody else replayed it after the command had found it DEAD."""
    step = getattr(Store, command)

    async def publish_first(store: Store, *arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        box = Box(store, "server", 1000)
        await box.replay(["d1"])
        await box.ack(await box.claim("relay-1"))
        return await step(store, *arguments, **options)

    monkeypatch.setattr(Store, command, publish_first)
    flags = ("--no-export",) if command == "drop" else ()
    result = dead_events("dead", command, "d1", "d2", "--yes", *flags, code=1)
    assert "d1" in result.stdout
    assert "the event was claimed again after it was read\n" in result.stdout
    assert (count(dead_events, Phase.COMPLETED), count(dead_events, Phase.DEAD)) == (1, 1)


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
    dead_events("dead", "replay", "d1", "--yes")
    dead_events("dead", "replay", "d2", "--keep-attempts", "--delay", "1h", "--yes")
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
    assert header.split() == ["GROUP", "COUNT", "TYPES", "FIRST", "LAST", "SAMPLE", "LAST", "ERROR"]
    assert [row.split()[:2] for row in rows] == [[group_id("http 500: boom"), "2"], [group_id("timeout"), "1"]]
    assert "user.created, user.deleted" in rows[0]
    assert rows[0].endswith("  d2      HTTP 500: boom")
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


@pytest.mark.req("RO-6")
@pytest.mark.parametrize(
    "command",
    [("list",), ("list", "--by-error"), ("replay", "--yes"), ("replay", "--dry-run"), ("drop", "--yes"), ("export",)],
    ids=" ".join,
)
def test_filters_that_match_nothing_are_reported(dead_events: Redbox, command: tuple[str, ...]):
    """Brackets are no wildcards: an event type may have them."""
    none = "no dead events match the filters"
    patterns = "; in --type, * matches any text and ? one character\n"
    assert none + patterns in dead_events("dead", *command, "--type", "user.[cd]*").stderr
    assert none + "\n" in dead_events("dead", *command, "--error", "nothing").stderr
    assert none not in dead_events("dead", *command, "--type", "user.*ted").stderr
    assert none + patterns in dead_events("list", "--type", "user.[cd]*").stderr.replace("no events", "no dead events")


# --- show --------------------------------------------------------------------------------------------------------


@pytest.mark.req("RO-1")
def test_show_a_dead_event_only(dead_events: Redbox):
    dead_events.put(Event("a", event_id="pending"))
    assert "HTTP 500: boom" in dead_events("dead", "show", "d1").stdout
    assert dead_events.json("dead", "show", "d1") == dead_events.json("show", "d1")
    assert dead_events("dead", "show", "d1", "--payload").stdout_bytes == b"null"
    message = dead_events.error("dead", "show", "pending", code=1)
    assert message == "event pending is PENDING, not DEAD; `redbox show pending` shows it"
    assert "there is no event nope" in dead_events.error("dead", "show", "nope", code=1)


# --- canary, ramp, collisions ------------------------------------------------------------------------------------


class Settling:
    """Settles, like a relay, the canary events when the replay first looks at them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: str | None) -> None:
        look = Store.read_states

        async def settle_and_look(store: Store, ids: list[str]) -> Any:
            box = Box(store, "server", 1000)
            claims = await box.claim("relay-1")
            await (box.ack(claims) if error is None else box.kill(claims, reason=error))
            return await look(store, ids)

        monkeypatch.setattr(Store, "read_states", settle_and_look)


@pytest.mark.req("RO-2")
def test_a_canary_that_is_published(dead_events: Redbox, monkeypatch: pytest.MonkeyPatch):
    Settling(monkeypatch, None)
    result = dead_events("dead", "replay", "--all", "--yes", "--canary", "2")
    assert result.stdout == "3 events replayed\n"
    assert "canary: 2 events published" in result.stderr
    assert (count(dead_events, Phase.COMPLETED), count(dead_events, Phase.AVAILABLE)) == (2, 1)


@pytest.mark.req("RO-2")
def test_a_canary_that_dies_again_stops_the_replay(dead_events: Redbox, monkeypatch: pytest.MonkeyPatch):
    Settling(monkeypatch, "HTTP 422 still wrong")
    result = dead_events("dead", "replay", "--all", "--yes", "--canary", "2", code=1)
    assert result.stdout.splitlines() == [
        "2 events replayed",
        "DEAD AGAIN  ERROR",
        "d1          HTTP 422 still wrong",
        "d2          HTTP 422 still wrong",
    ]
    words = "stopped after the canary: 2 of 2 canary events are DEAD again. 1 other event is still dead"
    assert words in result.stderr
    assert count(dead_events, Phase.DEAD) == 3
    report = dead_events.json("dead", "replay", "--all", "--yes", "--canary", "1", code=1)
    assert report["canary"] == {
        "passed": False, "published": 0, "died": {"d3": "HTTP 422 still wrong"}, "gone": [], "unsettled": [],
    }  # fmt: skip


@pytest.mark.req("RO-2")
def test_a_canary_of_which_one_event_dies_and_another_is_retried(dead_events: Redbox, monkeypatch: pytest.MonkeyPatch):
    look = Store.read_states

    async def settle_and_look(store: Store, ids: list[str]) -> Any:
        box = Box(store, "server", 1000)
        for claim in await box.claim("relay-1"):
            await (box.kill(claim, reason="HTTP 422") if claim.event_id == "d1" else box.retry(claim, delay=3600))
        return await look(store, ids)

    monkeypatch.setattr(Store, "read_states", settle_and_look)
    arguments = ("--all", "--yes", "--canary", "2", "--canary-wait", "100ms")
    note = dead_events("dead", "replay", *arguments, code=1).stderr
    words = "stopped after the canary: 1 of 2 canary events is DEAD again, 1 is not settled yet. 1 other event is still"
    assert words in note


@pytest.mark.req("RO-2")
def test_a_canary_without_a_relay(dead_events: Redbox):
    result = dead_events("dead", "replay", "--all", "--yes", "--canary", "1", "--canary-wait", "100ms", code=1)
    redbox = f"`redbox --url {dead_events.url}"
    assert f"1 of 1 canary event is not settled yet. {redbox} why` says whether no relay is running" in result.stderr
    assert f"{redbox} show d1` shows such an event" in result.stderr
    _, warning, waiting, *_ = result.stderr.splitlines()
    assert warning == "warning: no relay is alive, so the canary would not be published"
    assert waiting == "waiting until 1 canary event is settled (100 ms at most)"
    assert (count(dead_events, Phase.DEAD), count(dead_events, Phase.AVAILABLE)) == (2, 1)


@pytest.mark.req("RO-2")
@pytest.mark.parametrize(
    ("beat", "paused", "words"),
    [
        (
            {"breaker": "open", "reason": "HTTP 503"},
            False,
            "warning: the breaker of the only relay is open: HTTP 503, so",
        ),
        ({}, True, "warning: the box is paused, so the canary would not be published"),
        ({}, False, ""),
    ],
)
def test_a_dry_run_says_why_a_canary_would_not_be_published(
    dead_events: Redbox, beat: dict[str, str], paused: bool, words: str
):
    async def prepare(box: Box) -> None:
        await box.beat("relay-1", "1", beat, fresh=10)
        if paused:
            await box.operate.pause(who="ada", why="")

    dead_events.within(prepare)
    result = dead_events("dead", "replay", "--all", "--dry-run", "--canary", "1")
    assert words in result.stderr
    assert ("warning" in result.stderr) is bool(words)
    assert "warning" not in dead_events("dead", "replay", "--all", "--dry-run").stderr


@pytest.mark.req("RO-2")
@pytest.mark.parametrize("error", ["HTTP 422", None])
@pytest.mark.parametrize("number", [1, 2, 3, 9])
def test_a_canary_that_fails_counts_the_others(
    dead_events: Redbox, number: int, error: str | None, monkeypatch: pytest.MonkeyPatch
):
    if error is not None:
        Settling(monkeypatch, error)
    arguments = ("--all", "--yes", "--canary", str(number), "--canary-wait", "100ms")
    note = dead_events("dead", "replay", *arguments, code=1).stderr
    ends = {1: "2 other events are still dead\n", 2: "1 other event is still dead\n"}
    assert note.endswith(ends.get(number, "There were no other events to replay\n"))
    assert ("stopped after the canary" in note) is (number < 3)


@pytest.mark.req("RO-2")
def test_a_canary_that_fails_counts_the_others_in_json(dead_events: Redbox):
    arguments = ("--all", "--yes", "--canary", "1", "--canary-wait", "100ms")
    assert dead_events.json("dead", "replay", *arguments, code=1)["left"] == 2


@pytest.mark.req("RO-2")
def test_a_ramp_needs_a_rate(dead_events: Redbox, monkeypatch: pytest.MonkeyPatch):
    assert "--ramp needs --rate" in dead_events.error("dead", "replay", "--all", "--yes", "--ramp", "5m", code=2)
    monkeypatch.setattr(replay_command, "LONG_SECONDS", 0)
    done = dead_events("dead", "replay", "--all", "--yes", "--rate", "1000", "--ramp", "100ms")
    assert done.stdout == "3 events replayed\n"
    assert "if this is interrupted, continue with --until 20" in done.stderr


@pytest.mark.req("RO-2")
def test_collisions_are_listed_before_the_question(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    redbox.kill(*(Event("a", event_id=f"d{n:02}", unique_key=f"u{n}") for n in range(12)), Event("a", event_id="free"))
    redbox.put(*(Event("a", event_id=f"h{n}", unique_key=f"u{n}") for n in range(12)))
    monkeypatch.setattr(changes, "can_ask", lambda: True)
    asked = redbox("dead", "replay", "--all", input="n\n", code=1).stderr
    assert "12 events of 13 will be refused:" in asked
    assert "  d00: another live event holds its unique_key: h0; --force replays it anyway\n" in asked
    assert "  d09: " in asked
    assert "  d10: " not in asked
    assert "  ... and 2 more\n" in asked
    assert "Replay 1 event of box 'default'?" in asked
    dry = redbox("dead", "replay", "--all", "--dry-run", code=1).stdout.splitlines()
    assert dry[0] == "1 event would be replayed"
    assert "12 events would be refused, since another live event holds the unique key; --force" in dry[1]
    assert (len(dry), dry[-1]) == (14, "... and 2 more")
    assert redbox.json("dead", "replay", "--all", "--dry-run", code=1)["conflicts"] == 12


# --- export ------------------------------------------------------------------------------------------------------


EVENTS = (
    Event("a", {"n": 1}, event_id="json", headers={"x": "1"}, metadata={"m": "2"}, ordering_key="o"),
    Event("b", b"\x00\xff", event_id="bytes", partition_key="p", content_type="application/octet-stream"),
    Event("c", b'{ "n":  1.0 }', event_id="spaces", content_type="application/json"),
    Event("d", "größe", event_id="text", content_type="text/plain", unique_key="u", unique_scope=UniqueScope.UNTOUCHED),
)


def content(event: Event) -> dict[str, Any]:
    fields = {name: getattr(event, name) for name in Event.__struct_fields__ if name not in ("available_at", "delay")}
    return {**fields, "payload": event.encode()}


@pytest.mark.req("RF-3")
@pytest.mark.parametrize("to", [None, "dead.ndjson"])
def test_exported_events_can_be_put_back(redbox: Redbox, to: str | None):
    redbox.kill(*EVENTS)
    before = {event["event_id"]: event for event in redbox.lines("dead", "list")}
    if to is None:
        result = redbox("dead", "export")
        Path("dead.ndjson").write_bytes(result.stdout_bytes)
        assert "4 events exported" in result.stderr
    else:
        assert redbox("dead", "export", "--to", to).stdout == "4 events exported to dead.ndjson\n"
        assert stat.S_IMODE(os.stat(to).st_mode) == 0o600
    assert "4 already stored" in redbox("put", "--many", "@dead.ndjson").stderr
    assert count(redbox, Phase.DEAD) == 4
    assert "4 put" in redbox("--box", "other", "put", "--many", "@dead.ndjson").stderr
    for event in EVENTS:
        here, there = (redbox.within(lambda box: box.get(event.event_id), name) for name in ("default", "other"))  # noqa: B023
        assert here is not None
        assert there is not None
        assert content(here.event) == content(there.event)
        assert there.state == "PENDING"
    assert before["bytes"]["payload_base64"] == "AP8="


@pytest.mark.req("RF-3")
def test_export_some(dead_events: Redbox, tmp_path: Path):
    def ids(*arguments: str) -> list[str]:
        return [json.loads(line)["event_id"] for line in dead_events("dead", "export", *arguments).stdout.splitlines()]

    assert ids() == ["d1", "d2", "d3"]
    assert ids("--group", group_id("timeout")) == ["d3"]
    assert ids("--created-until", "1h") == []
    assert ids("d2") == ["d2"]
    assert "not both" in dead_events.error("dead", "export", "d1", "--type", "x", code=2)
    assert "event nope cannot be exported: there is no such event" in dead_events.error(
        "dead", "export", "nope", code=1
    )
    assert dead_events.json("dead", "export", "--to", "x", "--type", "y") == {"exported": 0, "skipped": 0, "file": None}
    assert list(tmp_path.iterdir()) == []
    message = dead_events.error("dead", "export", "--to", "no/x", code=1)
    assert message == "cannot write no/x: there is no directory no"
    assert "an ID must not be empty" in dead_events.error("dead", "export", "", code=2)


@pytest.mark.req("RF-3")
def test_an_export_that_fails_leaves_the_earlier_file(
    dead_events: Redbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    dead_events("dead", "export", "--to", "x")
    before = Path("x").read_bytes()
    monkeypatch.setattr(drop_events, "line_of", Mock(side_effect=[before.splitlines()[0], StoreUnavailable("gone")]))
    assert "gone" in dead_events.error("dead", "export", "--to", "x", code=3)
    assert Path("x").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def lose_body(redbox: Redbox, event_id: str) -> None:
    redbox.within(lambda box: box._store.exchange([("DEL", keys.body("default", event_id))]))


@pytest.mark.req("RF-3")
@pytest.mark.parametrize("selection", [(), ("d1", "d2", "d3"), ("--error", "o")], ids=" ".join)
def test_an_event_without_its_body_is_not_exported(dead_events: Redbox, selection: tuple[str, ...]):
    lose_body(dead_events, "d2")
    printed = dead_events("dead", "export", *selection, code=1)
    assert [json.loads(line)["event_id"] for line in printed.stdout.splitlines()] == ["d1", "d3"]
    assert "2 events exported\n" in printed.stderr
    assert "1 event skipped, since it cannot be read in full:\n" in printed.stderr
    assert "  d2: event d2 cannot be read: its stored body is missing\n" in printed.stderr
    assert "2 put" in dead_events("--box", "other", "put", "--many", input=printed.stdout_bytes).stderr
    assert dead_events.json("dead", "export", *selection, "--to", "x", code=1) == {
        "exported": 2, "skipped": 1, "file": "x",
    }  # fmt: skip
    assert Path("x").read_bytes() == printed.stdout_bytes


@pytest.mark.req("RF-3")
@pytest.mark.parametrize("selection", [("d1", "d2", "d3"), ("--all",)], ids=" ".join)
def test_an_event_without_its_body_is_left_by_a_drop_that_exports(dead_events: Redbox, selection: tuple[str, ...]):
    lose_body(dead_events, "d2")
    dropped = dead_events("dead", "drop", *selection, "--export", "x", "--yes", code=1)
    assert dropped.stdout.splitlines()[0] == "2 events dropped, 1 left; exported to x"
    assert "d2    event d2 cannot be read: its stored body is missing" in dropped.stdout
    assert "2 put" in dead_events("put", "--many", "@x").stderr
    again = dead_events.json("dead", "drop", "d2", "--yes", "--export", "y", code=1)
    assert (again["matched"], again["dropped"], again["refused_count"], again["file"]) == (1, 0, 1, None)
    assert dead_events("dead", "drop", "d2", "--no-export", "--yes").stdout == "1 event dropped\n"


# --- drop --------------------------------------------------------------------------------------------------------


@pytest.mark.req("RF-3")
def test_drop_exports_first(dead_events: Redbox, tmp_path: Path):
    result = dead_events("dead", "drop", "--type", "user.*", "--yes", "--who", "ada", "--why", "refunded").stdout
    (file,) = tmp_path.iterdir()
    assert re.fullmatch(r"dead-default-\d{8}T\d{6}Z\.ndjson", file.name)
    assert result == f"2 events dropped; exported to {file.name}\n"
    assert [event["event_id"] for event in dead_events.lines("dead", "list")] == ["d3"]
    (entry, *_) = dead_events.within(lambda box: box.operate.log())
    assert (entry.action, entry.who, entry.why, entry.count) == ("drop", "ada", "refunded", 2)
    dead_events("put", "--many", f"@{file.name}")
    assert count(dead_events, Phase.AVAILABLE) == 2


@pytest.mark.req("RF-3")
def test_drop_to_a_file_of_a_name_or_to_none(dead_events: Redbox, tmp_path: Path):
    Path("old").write_text("precious")
    message = dead_events.error("dead", "drop", "d1", "--yes", "--export", "old", code=1)
    assert "old exists; choose another file" in message
    assert (Path("old").read_text(), count(dead_events, Phase.DEAD)) == ("precious", 3)
    dropped = dead_events.json("dead", "drop", "d1", "--yes", "--export", "new")
    assert dropped == {
        "matched": 1, "dropped": 1, "dry_run": False, "file": "new", "refused_count": 0, "refused": [],
    }  # fmt: skip
    dropped = dead_events("dead", "drop", "--group", group_id("timeout"), "--no-export", "--yes")
    assert dropped.stdout == "1 event dropped\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]
    message = dead_events.error("dead", "drop", "--all", "--no-export", "--export", "x", "--yes", code=2)
    assert "give either --export or --no-export" in message


@pytest.mark.req("RF-3")
def test_a_long_drop_says_how_to_continue_it(dead_events: Redbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The command as it was typed is refused: its file is the only copy of what was dropped."""
    drop, left = Store.drop, [1]

    async def drop_one(store: Store, items: list[Any], **options: Any) -> Any:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return [*await drop(store, items[:1], **options), *await drop_one(store, items[1:], **options)]

    with monkeypatch.context() as patch:
        patch.setattr(drop_command, "LONG", 0)
        patch.setattr(Store, "drop", drop_one)
        note = dead_events("dead", "drop", "--all", "--yes", "--export", "old", code=1).stderr
    assert "if this is interrupted, repeat the command with another --export FILE: old is complete" in note
    assert "old exists" in dead_events.error("dead", "drop", "--all", "--yes", "--export", "old", code=1)
    done = dead_events("dead", "drop", "--all", "--yes", "--export", "new")
    assert done.stdout == "2 events dropped; exported to new\n"
    assert "interrupted" not in done.stderr
    assert len((tmp_path / "old").read_text().splitlines()) == 3


@pytest.mark.req("RF-3")
def test_a_drop_asks_and_names_the_file(dead_events: Redbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for selection in (("d1",), ("--all",)):
        assert "add --yes or --dry-run" in dead_events.error("dead", "drop", *selection, code=2)
    monkeypatch.setattr(changes, "can_ask", lambda: True)
    asked = dead_events("dead", "drop", "--all", "--export", "x", input="n\n", code=1).stderr
    assert "Remove 3 events of box 'default' for good? They are exported to x first." in asked
    assert "They are not exported." in dead_events("dead", "drop", "d1", "--no-export", input="n\n", code=1).stderr
    assert (list(tmp_path.iterdir()), count(dead_events, Phase.DEAD)) == ([], 3)
    assert dead_events("dead", "drop", "--all", "--dry-run").stdout == "3 events would be dropped\n"
    assert dead_events("dead", "drop", "--type", "x", "--yes").stdout == "0 events dropped\n"
    assert (list(tmp_path.iterdir()), count(dead_events, Phase.DEAD)) == ([], 3)


@pytest.mark.req("RF-3")
def test_events_that_are_not_dead_are_left(dead_events: Redbox):
    dead_events.put(Event("a", event_id="pending"))
    result = dead_events("dead", "drop", "pending", "d1", "nope", "--no-export", "--yes", code=1)
    assert result.stdout.splitlines() == [
        "1 event dropped, 2 left",
        "LEFT     REASON",
        "pending  the event is PENDING, not DEAD",
        "nope     there is no such event",
    ]
    assert dead_events("dead", "drop", "nope", "--yes", code=1).stdout.startswith("0 events dropped, 1 left\n")


@pytest.mark.req("RF-3")
@pytest.mark.parametrize(
    ("settled", "reason"),
    [
        (None, "the event is PENDING, not DEAD"),
        ("published", "the event is PUBLISHED, not DEAD"),
        ("dead", "the event was claimed again after it was read"),
    ],
)
def test_an_event_that_changed_before_the_export_is_neither_exported_nor_dropped(
    dead_events: Redbox, settled: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
):
    """Somebody replayed it while the command waited for the answer."""
    export_and_drop = drop_command._Drop._drop

    async def replay_first(self: Any, box: Box, *arguments: Any) -> Any:
        await box.replay(["d1"])
        if settled is not None:
            claims = await box.claim("relay-1")
            await (box.ack(claims) if settled == "published" else box.kill(claims, reason="again"))
        return await export_and_drop(self, box, *arguments)

    monkeypatch.setattr(drop_command._Drop, "_drop", replay_first)
    result = dead_events("dead", "drop", "d1", "d2", "--export", "x", "--yes", code=1)
    assert result.stdout.splitlines() == [
        "1 event dropped, 1 left; exported to x", "LEFT  REASON", f"d1    {reason}",
    ]  # fmt: skip
    assert [json.loads(line)["event_id"] for line in Path("x").read_text().splitlines()] == ["d2"]
    assert dead_events.json("show", "d1")["state"] == (settled or "pending").upper()


@pytest.mark.parametrize("command", ["replay", "drop"])
def test_an_empty_or_short_id(redbox: Redbox, command: str):
    redbox.put(Event("a"))
    assert "an ID must not be empty" in redbox("dead", command, "", "--yes", code=2).stderr
    assert "give the whole ID" in redbox("dead", command, "01938a4e-5b1f", "--yes", code=1).stdout
    group = redbox("dead", command, "55242f13", "--yes", code=1).stdout
    assert "give the whole ID, or --group 55242f13 for a group of errors" in group


def test_a_replay_of_a_handful_is_too_short_to_be_interrupted(dead_events: Redbox):
    assert "interrupted" not in dead_events("dead", "replay", "--all", "--yes", "--rate", "100").stderr


@pytest.mark.req("RO-2")
@pytest.mark.parametrize("group", ["deadbeef", "GROUP"])
@pytest.mark.parametrize(
    "command",
    [
        ("replay", "--canary", "10", "--yes"),
        ("replay", "--dry-run"),
        ("drop", "--yes"),
        ("export",),
        ("export", "--to", "file"),
    ],
    ids=" ".join,
)
def test_a_group_that_does_not_exist_is_an_error(dead_events: Redbox, command: tuple[str, ...], group: str):
    found = dead_events.error("dead", *command, "--group", group, code=1)
    assert found == (f"there is no error group {group} among the dead events; `redbox dead list --by-error` lists them")
    assert not Path("file").exists()


def test_a_group_of_which_no_event_passes_the_other_filters_is_no_error(dead_events: Redbox):
    group = dead_events.lines("dead", "list", "--by-error")[0]["group"]
    done = dead_events("dead", "replay", "--group", group, "--type", "none.of.them", "--yes")
    assert "no dead events match the filters" in done.stderr
