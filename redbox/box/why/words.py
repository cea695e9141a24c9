"""Times relative to the store's clock, and stored text, for sentences."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from redbox.arguments import counted
from redbox.durations import format_duration
from redbox.terminals import printable

LONGEST_TEXT: Final = 200


def quoted(text: str) -> str:
    """Text that others wrote: bounded, and without control characters."""
    shown = printable(text)
    return shown if len(shown) <= LONGEST_TEXT else f"{shown[:LONGEST_TEXT]}..."


def sentence(text: str) -> str:
    """The text with a full stop, unless it ends with punctuation."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def many(count: int, noun: str, one: str, several: str) -> str:
    """A number, its noun and the verb that agrees: `1 event waits`, `2 events wait`."""
    return f"{counted(count, noun)} {one if count == 1 else several}"


def are(count: int, noun: str = "event") -> str:
    """`1 event is`, `2 events are`."""
    return many(count, noun, "is", "are")


def wait(count: int, noun: str = "event") -> str:
    """`1 event waits`, `2 events wait`."""
    return many(count, noun, "waits", "wait")


def pace(rate: float) -> str:
    """Events per second: `1,190`, `7.6`, `0.04`."""
    if rate >= 9.95:
        return f"{rate:,.0f}"
    return f"{rate:.1f}".removesuffix(".0") if rate >= 0.1 else f"{rate:.1g}"


def because(who: str, why: str) -> str:
    """`by ada (the provider is down)`."""
    reason = f" ({quoted(why)})" if why else ""
    return f"by {quoted(who)}{reason}" if who else f"by an unknown operator{reason}"


class Clock:
    """Times in words, at one moment of the store's clock."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def age(self, moment: datetime | None) -> str:
        """`3 min 2 s`; for a time of the future `0 ms`."""
        return format_duration(timedelta(0) if moment is None else self.now - moment)

    def ago(self, moment: datetime | None) -> str:
        """`3 min 2 s ago`."""
        return "at an unknown time" if moment is None else f"{self.age(moment)} ago"

    def ahead(self, moment: datetime) -> str:
        """`in 12 s`."""
        return f"in {format_duration(moment - self.now)}"
