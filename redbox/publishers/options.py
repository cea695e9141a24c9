"""Checks of the URLs and options of publishers. A command line or a file gives numbers as text."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from redbox.arguments import flag, invalid
from redbox.errors import InvalidURL


def parse_number(value: Any) -> Any:
    """Converts text to a number if it is one; returns any other value unchanged."""
    if isinstance(value, str):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(value)
    return value


def parse_flag(name: str, value: Any) -> bool:
    """Converts `true` and `false` to a bool."""
    return flag(name, {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value)


def header_text(name: str, value: Any) -> str:
    """Checks a text for use in a header. An error does not repeat it, since it may be a secret."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise invalid(name, "must be printable text without line breaks")
    return value.strip()


def check_bare_scheme(url: str, scheme: str) -> None:
    """Refuses a URL that has more than its scheme."""
    if url.partition(":")[2] not in ("", "//"):
        raise InvalidURL(f"{scheme}: takes nothing after the colon")
