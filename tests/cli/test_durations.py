"""Durations and moments as people type and read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from redbox.cli.durations import ABSOLUTE, DURATION, MOMENT, in_words, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 10),
        ("0", 0),
        ("1.5", 1.5),
        (".5s", 0.5),
        ("250ms", 0.25),
        ("10s", 10),
        ("10m", 600),
        ("2h", 7200),
        ("7d", 604800),
        ("1w", 604800),
        ("1h30m", 5400),
        (" 1 h 30 m ", 5400),
    ],
)
def test_durations(text: str, seconds: float):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "x", "5x", "-5", "10M", "m", "1h30", "1e3", "nan", "inf", "1,5s", "5 5", "٣"])
def test_what_is_not_a_duration_is_told_what_would_be(text: str):
    if text == "٣":  # digits of other scripts are digits
        assert parse_duration(text) == timedelta(seconds=3)
        return
    with pytest.raises(ValueError, match="is not a duration; give a number of seconds, or a number with a unit"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["99999999999999999999", "9999999999999w"])
def test_a_duration_without_end_is_refused(text: str):
    with pytest.raises(ValueError, match="is too long"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 ms"),
        (0, "0 ms"),
        (0.25, "250 ms"),
        (3, "3 s"),
        (8.72, "8.7 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (302, "5 min 2 s"),
        (7500, "2 h 5 min"),
        (7205, "2 h"),
        (86405, "1 d"),
        (273600, "3 d 4 h"),
    ],
)
def test_in_words(seconds: float, words: str):
    assert in_words(timedelta(seconds=seconds)) == words


def test_moments():
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert MOMENT.convert("2026-01-31T12:00:00Z", None, None) == noon
    assert MOMENT.convert("2026-01-31T13:00:00+01:00", None, None) == noon
    assert ABSOLUTE.convert("2026-01-31 12:00Z", None, None) == noon
    assert MOMENT.convert("1h", None, None) == timedelta(hours=-1)
    assert MOMENT.convert("-1h", None, None) == timedelta(hours=-1)
    assert MOMENT.convert("+1h", None, None) == timedelta(hours=1)
    assert DURATION.convert(timedelta(1), None, None) == timedelta(1)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (MOMENT, "2026-01-31", "has no time zone; add one: 2026-01-31T00:00:00Z"),
        (MOMENT, "yesterday", "is not a time; give ISO 8601 with a zone: .*, or how long ago: 1h"),
        (ABSOLUTE, "1h", "is not a time; give ISO 8601 with a zone: 2026-01-31T12:00:00Z$"),
        (DURATION, "soon", "is not a duration"),
    ],
)
def test_what_is_not_a_moment_is_told_what_would_be(kind: click.ParamType, text: str, message: str):
    with pytest.raises(click.BadParameter, match=message):
        kind.convert(text, None, None)
