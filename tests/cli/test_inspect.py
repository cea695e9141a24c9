"""`redbox list` and `redbox show`."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, get_args

import msgspec
import pytest

from redbox import Box, Event, Page, keys
from redbox.box.bulk import selection
from redbox.cli import inspect
from redbox.service.operations.filters import PhaseName
from redbox.testing import advance
from tests.cli.conftest import Redbox


def ids(redbox: Redbox, *arguments: str) -> list[str]:
    return [event["event_id"] for event in redbox.lines("list", *arguments)]


@pytest.fixture
def full(redbox: Redbox) -> Redbox:
    """One event of each kind."""

    async def fill(box: Box) -> None:
        await box.put_many([Event("user.created", 1, event_id=name) for name in ("published", "dead", "retry")])
        claims = {claim.event_id: claim for claim in await box.claim("relay-1")}
        await box.ack(claims["published"])
        await box.kill(claims["dead"], reason="HTTP 500: boom")
        await box.retry(claims["retry"], error="slow\n\x1b[31mred [bold]", delay=3600)
        await box.put(Event("user.created", event_id="claimed", unique_key="u"))
        await box.claim("relay-1", lease=30)
        await box.put(Event("order.paid", event_id="head", ordering_key="k"))
        await box.put(Event("order.paid", event_id="waiting", ordering_key="k"))
        await box.put(Event("order.paid", event_id="scheduled", delay=7200))

    redbox.within(fill)
    return redbox


def test_a_table_of_plain_text(full: Redbox):
    text = full("list").stdout
    header, *rows = text.splitlines()
    assert header.split() == ["ID", "TYPE", "PHASE", "ATTEMPTS", "TIME", "KEY", "ERROR"]
    phases = {row.split()[0]: row.split()[2] for row in rows}
    assert phases == {
        "head": "AVAILABLE",
        "retry": "RETRY_SCHEDULED",
        "scheduled": "SCHEDULED",
        "waiting": "AVAILABLE",
        "claimed": "IN_FLIGHT",
        "published": "COMPLETED",
        "dead": "DEAD",
    }
    assert [row.split()[0] for row in rows if "AVAILABLE waiting" in row] == ["waiting"]
    assert "\x1b" not in text
    assert "slow \\x1b[31mred [bold]" in text
    columns = [header.index(name) for name in ("TYPE", "PHASE", "TIME", "ERROR")]
    assert all(row[at - 1] == " " for row in rows for at in columns if len(row) > at)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("--state", "dead"), ["dead"]),
        (("--state", "PENDING"), ["head", "retry", "scheduled", "waiting"]),
        (("--type", "order.*", "--state", "pending"), ["head", "scheduled", "waiting"]),
        (("--type", "order"), []),
        (("--key", "u"), ["claimed"]),
        (("--key", "k"), ["head", "waiting"]),
        (("--error", "BOOM"), ["dead"]),
        (("--since", "1h", "--state", "published"), ["published"]),
        (("--until", "1h"), []),
        (("--until", "-1h"), []),
        (("--state", "pending", "--since", "+90m"), ["scheduled"]),
        (("--since", "2000-01-01T00:00Z", "--state", "dead"), ["dead"]),
        (("--until", "2000-01-01T00:00Z"), []),
        (("--phase", "retry_scheduled"), ["retry"]),
        (("--phase", "WAITING"), ["waiting"]),
        (("--text", "1", "--state", "dead"), ["dead"]),
        (("--text", "none"), []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_filters(full: Redbox, filters: tuple[str, ...], found: list[str]):
    assert ids(full, *filters) == found
    if not found:
        assert "no events match the filters" in full("list", *filters).stderr


def test_the_phases_of_the_option_are_those_of_the_filter():
    assert set(inspect.PHASES) == set(selection.PHASES) == set(get_args(PhaseName))


def test_relative_times(redbox: Redbox):
    async def fill(box: Box) -> None:
        await box.put(Event("a", event_id="old"))
        await advance(box, hours=2)
        await box.put(Event("a", event_id="new"))

    redbox.within(fill)
    assert ids(redbox, "--until", "1h") == ["old"]
    assert ids(redbox, "--since", "1h") == ["new"]


def test_a_cursor_continues_a_listing(redbox: Redbox):
    redbox.put(*(Event("a", event_id=f"e{n}") for n in range(5)))
    seen, cursor = [], []
    for _ in range(3):
        result = redbox("--json", "list", "--limit", "2", *cursor)
        seen += [json.loads(line)["event_id"] for line in result.stdout.splitlines()]
        notes = [json.loads(line) for line in result.stderr.splitlines()]
        cursor = [part for note in notes if "cursor" in note for part in ("--cursor", note["cursor"])]
    assert sorted(seen) == [f"e{n}" for n in range(5)]
    assert "there may be more: repeat the command with --cursor" in redbox("list", "--limit", "2").stderr
    assert "does not belong to this listing" in redbox.error("list", "--cursor", "nonsense", code=2)


@pytest.mark.parametrize("command", [("list",), ("dead", "list")], ids=" ".join)
def test_json_lists_all_events_page_by_page(redbox: Redbox, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    async def fill(box: Box) -> None:
        await box.put_many([Event("a", event_id=f"e{n:03}") for n in range(230)])
        while claims := await box.claim("relay-1", limit=100):
            await box.kill(claims, reason="HTTP 500")

    redbox.within(fill)
    pages: list[int] = []
    read = Box.page

    async def page(box: Box, **options: Any) -> Page:
        found = await read(box, **options)
        pages.append(len(found.records))
        return found

    monkeypatch.setattr(Box, "page", page)
    result = redbox("--json", *command)
    seen = [json.loads(line)["event_id"] for line in result.stdout.splitlines()]
    assert (len(seen), len(set(seen))) == (230, 230)
    assert "cursor" not in result.stderr
    assert max(pages) <= 100

    assert len(redbox("--json", *command, "--limit", "120").stdout.splitlines()) == 120
    cut = redbox(*command)
    assert len(cut.stdout.splitlines()) == 1 + 50
    assert "there may be more" in cut.stderr
    cursor = cut.stderr.split("--cursor ")[1].strip().strip("'")
    assert len(redbox("--json", *command, "--cursor", cursor).stdout.splitlines()) == 180
    assert len(redbox(*command, "--limit", "120").stdout.splitlines()) == 1 + 120


def test_json_holds_everything(full: Redbox):
    (event,) = full.lines("list", "--state", "dead")
    assert event["payload"] == 1
    assert event["last_error"] == "HTTP 500: boom"
    assert event["died_at"].endswith("Z")
    assert event["history"][0]["outcome"] == "died"


def test_an_empty_box(redbox: Redbox):
    redbox.kill(Event("a", event_id="e1"))
    redbox.within(lambda box: box.operate.drop(["e1"], who="me", why="test"))
    result = redbox("list")
    assert (result.stdout, "the box is empty" in result.stderr) == ("", True)


# --- show ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event_id", "words"),
    [
        ("head", "AVAILABLE: due for "),
        ("waiting", "AVAILABLE: waits in the line of ordering key 'k'; "),
        ("scheduled", "SCHEDULED: due in 1 h 59 min"),
        ("retry", "RETRY_SCHEDULED: failed; the next attempt is in 59 min"),
        ("claimed", "IN_FLIGHT: claimed by relay-1; the lease ends in 2"),
        ("published", "COMPLETED: published "),
        ("dead", "DEAD: died "),
    ],
)
def test_the_phase_in_words(full: Redbox, event_id: str, words: str):
    assert f"phase         {words}" in full("show", event_id).stdout


def test_the_phase_of_an_expired_claim_and_in_a_paused_box(redbox: Redbox):
    async def fill(box: Box) -> None:
        await box.put(Event("a", event_id="late"))
        await box.claim("relay-1", lease=30)
        await advance(box, seconds=60)
        await box.put(Event("a", event_id="paused"))
        await box.operate.pause(who="me", why="test")

    redbox.within(fill)
    assert "but the lease ended 30 s ago; the next reap returns it to PENDING" in redbox("show", "late").stdout
    assert "and not claimed yet; but the box is paused" in redbox("show", "paused").stdout


def test_a_suspect_in_words(redbox: Redbox):
    async def fill(box: Box) -> None:
        await box.put(Event("a", event_id="poison"))
        for _ in range(2):
            await box.claim("relay-1", lease=30)
            await advance(box, seconds=31)
            await box.reap()

    redbox.within(fill)
    assert "it is claimed alone, since two leases in a row expired" in redbox("show", "poison").stdout
    assert "1 suspect event: claimed alone" in redbox("stats").stdout


def test_history_and_json_payload(redbox: Redbox):
    async def fill(box: Box) -> None:
        await box.put(Event("a", {"id": 42, "tags": ["x"]}, event_id="e1", headers={"h": "1"}))
        claims = await box.claim("relay-1")
        await advance(box, seconds=20)
        await box.kill(claims, reason="no\x1b[0m")

    redbox.within(fill)
    text = redbox("show", "e1").stdout
    assert '  {\n    "id": 42,\n    "tags": [\n      "x"\n    ]\n  }\n' in text
    assert "headers       h=1" in text
    assert text.splitlines()[-1].split()[1:] == ["died", "1", "20", "s", "relay-1", "no\\x1b[0m"]
    assert 20 <= redbox.json("show", "e1")["history"][0]["seconds"] < 21


def test_how_long_the_successful_attempt_took(redbox: Redbox):
    async def fill(box: Box) -> None:
        await box.put(Event("a", event_id="e1"))
        claims = await box.claim("relay-1")
        await advance(box, seconds=20)
        await box.ack(claims)

    redbox.within(fill)
    assert " by relay-1, 20 s after its claim\n" in redbox("show", "e1").stdout
    assert 20 <= redbox.json("show", "e1")["published_seconds"] < 21


def test_text_and_binary_payloads(redbox: Redbox):
    redbox.put(
        Event("a", "one\ntwo \x1b[31m", event_id="text"),
        Event("a", bytes(range(256)) + b"more", event_id="binary"),
        Event("a", b"\xff", content_type="application/json", event_id="broken"),
        Event("a", b"\xff", content_type="text/plain", event_id="latin"),
    )
    assert "  one\n  two \\x1b[31m\n" in redbox("show", "text").stdout
    binary = redbox("show", "binary").stdout
    assert "application/octet-stream, 260 bytes" in binary
    assert "00000040  40 41 42" in binary
    assert "4 more bytes; --payload writes the whole payload" in binary
    assert "00000000  ff " in redbox("show", "broken").stdout
    assert "00000000  ff " in redbox("show", "latin").stdout
    assert redbox("show", "binary", "--payload").stdout_bytes == bytes(range(256)) + b"more"
    assert redbox.json("show", "text")["payload"] == "one\ntwo \x1b[31m"
    assert redbox.json("show", "broken") | {"payload": None, "payload_base64": "/w=="} == redbox.json("show", "broken")


def test_a_payload_with_line_breaks_stays_on_one_line_of_ndjson(redbox: Redbox):
    redbox.put(Event("a", b'{\n"a": 1.10\n}', content_type="application/json", event_id="e1"))
    (line,) = redbox("--json", "list").stdout.splitlines()
    assert '"payload":{"a":1.10}' in line


def test_an_unknown_event(redbox: Redbox):
    redbox.put(Event("a"))
    assert redbox.error("show", "nope", code=1).startswith("there is no event nope in box 'default'")


def test_an_event_whose_body_is_missing_is_shown_as_damaged(redbox: Redbox):
    redbox.put(Event("a", {"n": 1}, event_id="e1"), Event("a", {"n": 2}, event_id="e2"))
    redbox.within(lambda box: box._store.exchange([("DEL", keys.body("default", "e1"))]))
    _, first, second = redbox("list").stdout.splitlines()
    assert (first.split()[:3], second.split()[:3]) == (["e1", "a", "DAMAGED"], ["e2", "a", "AVAILABLE"])
    shown = redbox.json("show", "e1")
    assert (shown["damaged"], shown["payload"], "payload_base64" in shown) == (True, None, False)
    assert shown["problem"] == "event e1 cannot be read: its stored body is missing"
    assert redbox.json("show", "e2")["damaged"] is False
    text = redbox("show", "e1").stdout
    assert "DAMAGED: event e1 cannot be read: its stored body is missing; it cannot be delivered" in text
    assert "0 bytes" not in text
    assert "its stored body is missing" in redbox.error("show", "e1", "--payload", code=1)


def test_an_event_of_a_newer_version_is_not_damaged(redbox: Redbox):
    redbox.put(Event("a", event_id="e1"))
    newer = msgspec.msgpack.encode([99, "a"])
    redbox.within(lambda box: box._store.exchange([("SET", keys.body("default", "e1"), newer)]))
    shown = redbox.json("show", "e1")
    assert (shown["damaged"], shown["phase"]) == (False, "AVAILABLE")
    assert "written by a newer redbox" in redbox("show", "e1").stdout


def test_attempts_that_do_not_count_agree_with_their_number(redbox: Redbox):
    async def excuse(box: Box) -> None:
        await box.retry(await box.claim("relay-1"), error="down", excuse=True)

    redbox.put(Event("a", event_id="e1"))
    redbox.within(excuse)
    assert "1, of which 1 does not count against the limit" in redbox("show", "e1").stdout
    redbox.within(excuse)
    assert "2, of which 2 do not count against the limit" in redbox("show", "e1").stdout


def test_an_empty_id_is_wrong_usage(redbox: Redbox):
    redbox.put(Event("a"))
    assert "ID must not be empty" in redbox.error("show", "", code=2)


def test_events_in_flight_are_listed_with_their_claims(redbox: Redbox):
    async def claim(box: Box) -> None:
        await box.put_many([Event("a", event_id="e1"), Event("a", event_id="e2")])
        await box.claim("relay-1", limit=1, lease=30)

    redbox.within(claim)
    for option in (("--state", "claimed"), ("--phase", "in_flight")):
        header, row = redbox("list", *option).stdout.splitlines()
        assert re.split(r" {2,}", header) == ["ID", "TYPE", "CLAIMED", "LEASE ENDS", "BY", "ATTEMPTS", "KEY", "ERROR"]
        claimed, ends = (datetime.fromisoformat(row.split()[at]) for at in (2, 3))
        assert (ends - claimed).total_seconds() in (30, 31)
        assert row.split()[4] == "relay-1"
