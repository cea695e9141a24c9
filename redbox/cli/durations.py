"""Durations and moments as people type them, and durations as people read them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    DurationType = click.ParamType[timedelta]
    MomentType = click.ParamType[datetime | timedelta]
else:
    DurationType = MomentType = click.ParamType  # generic only since click 8.4

_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d|w)")
_DURATION = re.compile(rf"(?:{_PART.pattern}\s*)+")
_SECONDS = re.compile(r"\d+(?:\.\d+)?|\.\d+")
HOW: Final = "a number of seconds, or a number with a unit: 250ms, 10s, 5m, 2h, 7d, 1w, 1h30m"


def parse_duration(text: str) -> timedelta:
    """`250ms`, `1h30m`, or plain seconds; ValueError says what would be right."""
    text = text.strip()
    try:
        if _SECONDS.fullmatch(text):
            return timedelta(seconds=float(text))
        if _DURATION.fullmatch(text):
            return sum((float(number) * _UNITS[unit] for number, unit in _PART.findall(text)), timedelta())
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None
    raise ValueError(f"{text!r} is not a duration; give {HOW}")


def in_words(length: timedelta) -> str:
    """A duration to two units: `250 ms`, `3 s`, `5 min 2 s`, `2 h 5 min`, `3 d 4 h`."""
    seconds = max(length, timedelta()).total_seconds()
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
            break  # "1 d 5 s" would claim a precision that nobody wants
    return " ".join(parts[:2])


class Duration(DurationType):
    """A click type: a duration as a timedelta."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Moment(MomentType):
    """A click type: ISO 8601 with a zone as a datetime or, where allowed, `1h` ago or `+1h` from now as a timedelta.

    A timedelta is to be added to the store's time: whose clock it is matters, and ours decides nothing.
    """

    name = "time"

    def __init__(self, relative: bool = True) -> None:
        self.relative = relative

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | timedelta:
        if isinstance(value, datetime | timedelta):
            return value
        text = value.strip()
        if self.relative:
            sign = 1 if text.startswith("+") else -1
            try:
                return sign * parse_duration(text.lstrip("+-"))
            except ValueError:
                pass
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            ago = ", or how long ago: 1h" if self.relative else ""
            self.fail(f"{value!r} is not a time; give ISO 8601 with a zone: 2026-01-31T12:00:00Z{ago}", param, ctx)
        if moment.tzinfo is None:
            self.fail(
                f"{value!r} has no time zone; add one: {moment.isoformat()}Z or {moment.isoformat()}+01:00", param, ctx
            )
        return moment


DURATION: Final = Duration()
MOMENT: Final = Moment()
ABSOLUTE: Final = Moment(relative=False)
