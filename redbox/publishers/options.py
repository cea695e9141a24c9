"""Checks of the URLs and options of publishers. A command line or a file gives numbers as text."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from redbox.arguments import flag, invalid
from redbox.errors import InvalidURL


class FileText(str):
    """The text of a file, such as a secret. A publisher may read the file again."""

    path: Path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a file, without the line break at its end. Raises ValueError."""
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not text in UTF-8") from None
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        found = cls(text.removesuffix("\n").removesuffix("\r"))
        found.path = path
        return found


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
