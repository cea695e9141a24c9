"""Options of publishers: a number may come as text, from a command line or a file."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from redbox.errors import InvalidURL, UsageError


def from_text(value: Any) -> Any:
    """The number that a text holds; any other value as it is."""
    if isinstance(value, str):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(value)
    return value


def line(name: str, value: Any) -> str:
    """Text for a header; what it holds is not repeated in an error, since it may be a secret."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise UsageError(f"{name} must be one line of printable text")
    return value.strip()


def no_more(url: str, scheme: str) -> None:
    """Refuses anything behind the scheme of a URL that takes nothing."""
    if url.partition(":")[2] not in ("", "//"):
        raise InvalidURL(f"{scheme}: takes nothing behind the colon")
