"""Text for a terminal, which must not obey control characters in text that others wrote."""

from __future__ import annotations


def escape_json(text: str) -> str:
    """Equivalent JSON without control characters (DEL and C1 included) or bidirectional characters: a terminal would
    obey them, or reorder the text. Line feeds stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)


def printable(text: str, keep: str = "") -> str:
    """The text with control characters escaped, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escape_text(char) for char in text)


def _escape_text(char: str) -> str:
    return " " if char in "\r\n\t" else char.encode("unicode_escape", "backslashreplace").decode()


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
