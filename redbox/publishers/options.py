"""Options of publishers: numbers and words that may come as text, from a command line or a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from redbox.arguments import shown
from redbox.errors import InvalidURL, UsageError


def positive_int(name: str, value: Any) -> int:
    """A whole number from 1 on."""
    try:
        number = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else 0
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(f"{name} must be a whole number from 1 on, not {shown(value)}")
    return number


def seconds(name: str, value: Any) -> float:
    """A number of seconds above 0."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        raise UsageError(f"{name} must be a number of seconds above 0, not {shown(value)}")
    return number


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise UsageError(f"{name} must be {' or '.join(choices)}, not {shown(value)}")
    return str(value)


def line(name: str, value: Any) -> str:
    """Text for a header; what it holds is not repeated in an error, since it may be a secret."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise UsageError(f"{name} must be one line of printable text")
    return value.strip()


def no_more(url: str, scheme: str) -> None:
    """Refuses anything behind the scheme of a URL that takes nothing."""
    if url.partition(":")[2] not in ("", "//"):
        raise InvalidURL(f"{scheme}: takes nothing behind the colon")
