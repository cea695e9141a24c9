"""Reads stored values that another program may have damaged: one bad record must not hide the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from redbox.events import State, UniqueScope

LAST_MS: Final = 253_370_764_800_000  # the year 9999: later moments have no datetime
_DIGITS: Final = 18  # of a count; `int` refuses texts of several thousand digits
_MOMENTS: Final = ("created_at", "available_at", "claimed_at", "published_at", "died_at")
_STARTS: Final = tuple(f"began{slot}" for slot in range(8))  # of the attempts in the history
_COUNTS: Final = ("attempts", "excused", "expiries", "claim", "earlier_attempts")


def is_moment(text: str) -> bool:
    return is_count(text) and int(text) <= LAST_MS


def is_count(text: str) -> bool:
    return len(text) <= _DIGITS and text.isascii() and text.isdigit()


def score_ms(score: Any) -> int:
    """A score as a time in ms; one outside the range of datetime becomes the first or the last of it."""
    return int(max(0.0, min(float(score), float(LAST_MS))))


def mend_event(fields: dict[str, str], *, claimed: bool) -> list[str]:
    """Replaces the fields of an event that cannot be read; returns their names."""
    wrong: list[str] = [name for name in _MOMENTS if name in fields and not is_moment(fields[name])]
    wrong += [name for name in _COUNTS if name in fields and not is_count(fields[name])]
    scope = fields.get("unique_scope")
    if scope is not None and scope not in tuple(UniqueScope):
        wrong.append("unique_scope")
    for name in wrong:
        del fields[name]
    if fields.get("state") not in tuple(State):
        wrong.append("state")
        ended = State.DEAD if "died_at" in fields else State.PUBLISHED if "published_at" in fields else State.PENDING
        fields["state"] = State.CLAIMED if claimed else ended
    for name, default in (("created_at", "0"), ("event_type", "")):
        if name not in fields:
            fields[name] = default
            wrong += [] if name in wrong else [name]
    return wrong


class HistoryEntry(NamedTuple):
    """An attempt in the history of an event; `at` is in ms, `number` is its claim number."""

    at: int
    number: int
    outcome: str
    by: str
    error: str


def read_history(entry: bytes) -> HistoryEntry | None:
    """An entry of an event's history; None if it is damaged."""
    parts = entry.decode(errors="replace").split("\t", 4)
    if len(parts) < 5 or not is_moment(parts[0]) or not is_count(parts[1]):
        return None
    at, number, outcome, by, error = parts
    return HistoryEntry(int(at), int(number), outcome, by, error)


def read_starts(fields: Mapping[str, str]) -> dict[int, int]:
    """When attempts of an event began, in ms, by their claim numbers. Damaged ones are left out."""
    texts = [fields[name].split(":") for name in _STARTS if name in fields]
    return {int(parts[0]): int(parts[1]) for parts in texts if len(parts) == 2 and all(map(is_count, parts))}
