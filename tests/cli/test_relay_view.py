"""The relays of a box at any width."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redbox.box.reports import RelayReport
from redbox.cli.printing.relay_view import view_relays

pytestmark = pytest.mark.req("RO-3")
REASON = "the target was unavailable 5 times in a row: HTTP 503 Service Unavailable"
ERROR = "HTTP 503 Service Unavailable: upstream connect error or disconnect before headers"


def relay(number: int, **fields: Any) -> RelayReport:
    opened = number % 2 == 1
    about: dict[str, Any] = {
        "name": f"relay-deployment-7f9c8b6d5-x{number}k2p-100{number}-ab12",
        "host": f"relay-deployment-7f9c8b6d5-x{number}k2p.eu-central-1.internal",
        "seen": timedelta(seconds=2.2),
        "target": "https://hooks.example.com/v1/ingest/orders",
        "in_flight": 900,
        "published": 1_234_567,
        "failed": 1_200,
        "rate": 123.4,
        "breaker": "open" if opened else "closed",
        "reason": REASON if opened else "",
        "breaker_since": timedelta(minutes=3, seconds=3) if opened else None,
        "next_probe": timedelta(seconds=11.5) if opened else None,
        "last_error": ERROR,
    }
    return RelayReport(**{**about, **fields})


@pytest.mark.parametrize("width", [80, 100, 140, 400])
def test_the_table_fits_and_cuts_no_words(width: int):
    view = view_relays([relay(number) for number in range(10)], width)
    (header, _), *rows = view.table
    assert max(len(line) for line, _ in view.table) <= width
    assert [line.split()[0][-9:] for line, _ in rows[:5]] == [f"100{number}-ab12" for number in (1, 3, 5, 7, 9)]
    at = header.index("BREAKER")
    assert all(line[at:].startswith("open for 3 min 3 s  in 12 s") for line, _ in rows[:5])
    assert {style for _, style in rows[:5]} == {"red"}
    assert all(line[at:].startswith("closed") for line, _ in rows[5:])


def test_each_text_is_shown_once():
    view = view_relays([relay(number) for number in range(10)], 80)
    assert view.texts == [
        f"breaker of 5 relays, such as relay-deployment-7f9c8b6d5-x1k2p-1001-ab12: {REASON}",
        f"last error of all 10 relays: {ERROR}",
        "target of all 10 relays: https://hooks.example.com/v1/ingest/orders",
    ]
    wide = view_relays([relay(number) for number in range(10)], None)
    assert wide.texts == view.texts[:2]
    assert wide.table[1][0].endswith("(0)  https://hooks.example.com/v1/ingest/orders")


def test_an_error_that_the_breaker_gives_as_its_reason_is_not_repeated():
    assert view_relays([relay(1, name="r", last_error="HTTP 503")], None).texts == [f"breaker of relay r: {REASON}"]


def test_many_different_errors_are_bounded():
    relays = [relay(0, name=f"r{number}", last_error=f"error \x1b{number}") for number in range(9)]
    texts = view_relays(relays, None).texts
    assert texts[0] == "last error of relay r0: error \\x1b0"
    assert texts[4:] == ["last error of other relays: 5 more texts; see --json"]


def test_a_silent_relay_has_no_next_probe():
    lines = [line for line, _ in view_relays([relay(1, seen=timedelta(minutes=2))], None).table]
    assert "PROBE" not in lines[0]
    assert "silent 2 min" in lines[1]


def test_a_paused_box_has_no_next_probe():
    (header, _), *_ = view_relays([relay(1)], None, paused=True).table
    assert "PROBE" not in header


def test_a_silent_relay_holds_no_figure_of_its_last_heartbeat():
    """Its claims may have returned, and been claimed by another relay."""
    header, line = (line for line, _ in view_relays([relay(0, seen=timedelta(minutes=2, seconds=45))], None).table)
    assert "IN FLIGHT" not in header
    assert "900" not in line


def test_a_silent_relay_does_not_cost_the_others_their_figures():
    gone = relay(2, seen=timedelta(hours=2, minutes=45))
    (header, _), (alive, _), _ = view_relays([relay(0), gone], 80).table
    assert header.split() == ["RELAY", "SEEN", "RATE", "IN", "FLIGHT", "PUBLISHED", "FAILED", "BREAKER"]
    assert "123/s" in alive
    assert "1,234,567" in alive


def test_a_probe_that_is_due_and_wide_characters():
    (_, (line, _)) = view_relays([relay(1, name="中" * 30, next_probe=timedelta(0))], 80).table
    assert "now" in line
    assert line.startswith("中" * 4)
    assert view_relays([], 80).table == []
