"""Durations and times: parsed from text, checked as arguments, and formatted for people."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final

from redbox.arguments import invalid, number, shown
from redbox.errors import UsageError

#: Seconds, or a timedelta.
Duration = float | timedelta

LONGEST: Final = 365 * 86400.0  # seconds
SHORTEST: Final = 0.001
_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d|w)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern}\s*)+")
_SECONDS: Final = re.compile(r"\d+(?:\.\d+)?|\.\d+")
EXPECTED: Final = "a number of seconds, or a number with a unit: 250ms, 10s, 5m, 2h, 7d, 1w, 1h30m"


def parse_duration(value: str | Duration) -> timedelta:
    """Converts `250ms`, `1h30m`, a number of seconds or a timedelta. Raises ValueError with the accepted forms."""
    if isinstance(value, timedelta):
        return value
    text = value.strip() if isinstance(value, str) else repr(value)
    try:
        if _SECONDS.fullmatch(text):
            return timedelta(seconds=float(text))
        if _DURATION.fullmatch(text):
            return sum((float(count) * _UNITS[unit] for count, unit in _PART.findall(text)), timedelta())
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None
    raise ValueError(f"{text!r} is not a duration; give {EXPECTED}")


def parse_moment(value: str, *, relative: bool = True) -> datetime | timedelta:
    """Converts a time in ISO 8601 with a zone to a datetime or, if `relative`, `1h` (ago) or `+1h` (from now) to a
    timedelta, which the caller adds to the store's time. Raises ValueError with the accepted forms."""
    text = value.strip()
    if relative:
        sign = 1 if text.startswith("+") else -1
        try:
            return sign * parse_duration(text.lstrip("+-"))
        except ValueError:
            pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        forms = ", or a relative time: 1h (an hour ago), +1h (an hour from now)" if relative else ""
        raise ValueError(
            f"{shown(value)} is not a time; give ISO 8601 with a zone: 2026-01-31T12:00:00Z{forms}"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(
            f"{shown(value)} has no time zone; add one: {moment.isoformat()}Z or {moment.isoformat()}+01:00"
        )
    return moment


def format_duration(value: Duration) -> str:
    """Formats a duration to two units: `250 ms`, `5 min 2 s`, `2 h 5 min`, `3 d 4 h`. Negative ones are `0 ms`."""
    seconds = max(0.0, value.total_seconds() if isinstance(value, timedelta) else value)
    if seconds < 1:
        return f"{int(seconds * 1000)} ms"
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    left = int(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break  # "1 d 5 s" would suggest a precision that nobody needs
    return " ".join(parts[:2])


# --- arguments -------------------------------------------------------------------------------------------------


def to_timedelta(value: Any) -> timedelta:
    """Converts seconds or a timedelta to a timedelta; may be negative. Raises ValueError for anything else."""
    if isinstance(value, timedelta):
        return value
    try:
        return timedelta(seconds=number("a duration", value))
    except (UsageError, OverflowError):
        raise ValueError(_expectation(value)) from None


def duration(name: str, value: Any) -> float:
    """Converts seconds or a timedelta to seconds; from 0 to a year."""
    length = _seconds(name, value)
    if not 0 <= length <= LONGEST:
        raise invalid(name, f"must be between 0 and {LONGEST:,.0f} seconds, not {length:g}")
    return length


def positive_duration(name: str, value: Any) -> float:
    """Converts seconds or a timedelta to seconds; from a millisecond to a year."""
    length = duration(name, value)
    if length < SHORTEST:
        raise invalid(name, f"must be at least a millisecond, not {length:g} seconds")
    return length


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    try:
        return number(name, value)
    except UsageError:
        raise invalid(name, _expectation(value)) from None


def _expectation(value: Any) -> str:
    return f"must be seconds or a timedelta, not {shown(value)}"
