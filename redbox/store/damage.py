"""Mends what a foreign or older writer left malformed, as far as it has to be read: one bad record hides no other."""

from __future__ import annotations

from typing import Any, Final

from redbox.events import State, UniqueScope

LAST_MS: Final = 253_370_764_800_000  # the year 9999: later moments have no datetime
_DIGITS: Final = 18  # of a count; `int` refuses texts of several thousand digits
_MOMENTS: Final = ("created_at", "available_at", "claimed_at", "published_at", "died_at")
_COUNTS: Final = ("attempts", "excused", "expiries", "claim", "earlier_attempts")


def is_moment(text: str) -> bool:
    return is_count(text) and int(text) <= LAST_MS


def is_count(text: str) -> bool:
    return len(text) <= _DIGITS and text.isascii() and text.isdigit()


def score_ms(score: Any) -> int:
    """A score as a moment; one beyond all times is the first or the last there is."""
    return int(max(0.0, min(float(score), float(LAST_MS))))


def mend_event(fields: dict[str, str], *, claimed: bool) -> list[str]:
    """Makes the fields of an event readable; tells which were not."""
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


def is_history(entry: bytes) -> bool:
    """Whether a line of an event's history can be read."""
    at, _, rest = entry.decode(errors="replace").partition("\t")
    return is_moment(at) and is_count(rest.partition("\t")[0]) and rest.count("\t") >= 3
