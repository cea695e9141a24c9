"""JSON for a terminal: it must not carry out what others have written."""

from __future__ import annotations


def escape_json(text: str) -> str:
    """JSON that means the same, with everything escaped that a terminal obeys or shows in another order: control
    characters, DEL and C1 included, and bidirectional ones. Lines stay lines."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
