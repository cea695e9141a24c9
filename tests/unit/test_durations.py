"""Durations: from text, as arguments, and for people."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redbox.durations import (
    LONGEST,
    duration,
    format_duration,
    parse_duration,
    positive_duration,
    to_timedelta,
)
from redbox.errors import UsageError


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
        ("٣", 3),  # digits of other scripts are digits
        (10, 10),
        (1.5, 1.5),
        (timedelta(minutes=10), 600),
    ],
)
def test_a_duration_is_text_seconds_or_a_timedelta(text: Any, seconds: float):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "x", "5x", "-5", "10M", "m", "1h30", "1e3", "nan", "inf", "1,5s", "5 5", -5, float("nan"), True]
)
def test_an_invalid_duration_is_refused_with_the_accepted_forms(text: Any):
    with pytest.raises(ValueError, match="is not a duration; give a number of seconds, or a number with a unit"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["99999999999999999999", "9999999999999w"])
def test_a_duration_that_is_too_long_is_refused(text: str):
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
def test_a_duration_is_formatted_to_two_units(seconds: float, words: str):
    assert format_duration(timedelta(seconds=seconds)) == format_duration(seconds) == words


def test_an_argument_is_bounded():
    assert duration("delay", timedelta(minutes=1)) == duration("delay", 60) == 60.0
    assert duration("delay", 0) == 0
    assert duration("delay", LONGEST) == LONGEST
    assert positive_duration("lease", 0.001) == 0.001


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (duration, -1, "delay must be between 0 and 31,536,000 seconds, not -1"),
        (duration, 10**9, r"delay must be between 0 and 31,536,000 seconds, not 1e\+09"),
        (duration, "10m", "delay must be seconds or a timedelta, not '10m'"),
        (duration, True, "delay must be seconds or a timedelta, not True"),
        (positive_duration, 0, "delay must be at least a millisecond, not 0 seconds"),
    ],
)
def test_an_invalid_argument_is_named(check: Any, value: Any, message: str):
    with pytest.raises(UsageError, match=message):
        check("delay", value)


def test_a_timedelta_is_kept_exactly():
    assert to_timedelta(timedelta.max) is timedelta.max
    assert to_timedelta(-1.5) == timedelta(seconds=-1.5)
    with pytest.raises(ValueError, match=r"^must be seconds or a timedelta, not 1e"):
        to_timedelta(1e300)
