"""Parses retry policies, attempts and durations, from the command line and redbox.toml."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from redbox.durations import parse_duration

if TYPE_CHECKING:
    from redbox.backoff import Backoff

UNLIMITED: Final = "unlimited"
DEFAULT_RETRY: Final = "exp:1s..5m"
NO_JITTER: Final = "nojitter"
HOW: Final = (
    "fixed:10m (the same delay each time), fixed:0 (at once), exp:1s..5m (from 1 s, doubled up to 5 min, with jitter) "
    f"or exp:1s..5m,{NO_JITTER}"
)


def parse_retry(text: str) -> Backoff:
    """`fixed:10m` or `exp:1s..5m` as a backoff; ValueError shows the valid forms."""
    from redbox.backoff import Backoff

    kind, _, rest = text.strip().partition(":")
    if kind == "fixed":
        return Backoff.fixed(_part(text, rest))
    if kind == "exp":
        bounds, comma, word = rest.partition(",")
        first, dots, longest = bounds.partition("..")
        if dots and (not comma or word.strip() == NO_JITTER):
            base, cap = _part(text, first), _part(text, longest)
            if not timedelta(0) < base <= cap:
                raise ValueError(f"{text!r}: the first delay must be above 0, and not above the longest")
            return Backoff.exponential(base, cap=cap, jitter=not comma)
    raise ValueError(f"{text!r} is not a retry policy; write {HOW}")


def _part(text: str, part: str) -> timedelta:
    try:
        return parse_duration(part)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


def parse_attempts(value: int | str) -> int | None:
    """A whole number of at least 1; None for `unlimited`."""
    if isinstance(value, str):
        text = value.strip()
        if text == UNLIMITED:
            return None
        value = int(text) if text.isascii() and text.isdecimal() else 0
    if value < 1:
        raise ValueError(f"give a whole number of at least 1, or {UNLIMITED}")
    return value


def parse_limit(value: float | str) -> timedelta | None:
    """A duration as text, or a number of seconds; None for `unlimited`."""
    return None if value == UNLIMITED else parse_duration(value)
