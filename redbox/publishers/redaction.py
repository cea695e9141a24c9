"""Removes secrets from texts that are stored, logged or shown."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit, urlunsplit

HIDDEN: Final = "[redacted]"
SHORTEST_SECRET: Final = 4  # a shorter text occurs in too many words
SHORTEST_TOKEN: Final = 8
KEPT: Final = 3

#: The parts of readable names: words in lower case, in upper case or capitalized, and short numbers.
_PIECE: Final = re.compile(r"[A-Z]?[a-z\xdf-\U0010ffff]+|[A-Z]{1,7}(?![A-Z])|[0-9]{1,4}(?![0-9])")
_SEPARATOR: Final = re.compile(r"[-_.~:@+,;=!$&'()* ]")
_DIGIT: Final = re.compile(r"[0-9]")
_LONGEST_WORD: Final = 15
_SHORTEST_PIECES: Final = 3  # letters on average; text with shorter pieces is not made of words


def redactor(secrets: Iterable[str]) -> Callable[[str], str]:
    """Returns a function that replaces these secrets in a text, also where they are escaped as in URLs, JSON or HTML.

    The text may have been cut: the start of a secret at its end is replaced too.
    """
    known = sorted(set(secrets), key=len, reverse=True)
    patterns = [pattern for secret in known for pattern in _patterns(secret)]
    if not patterns:
        return str
    pattern = re.compile("|".join(patterns))
    forms = {form for secret in known for form in _forms(secret)}

    def redact(text: str) -> str:
        hidden = pattern.sub(HIDDEN, text)
        cut = min(_start_at_end(hidden, form) for form in forms)
        return hidden if cut == len(hidden) else hidden[:cut] + HIDDEN

    return redact


def _start_at_end(text: str, form: str) -> int:
    """Where the start of a secret begins at the end of a text; the length of the text if there is none."""
    head = form[:SHORTEST_SECRET]
    at = text.find(head, max(0, len(text) - len(form) + 1))
    while at >= 0:
        if form.startswith(text[at:]):
            return at
        at = text.find(head, at + 1)
    return len(text)


def _patterns(secret: str) -> list[str]:
    """Patterns for a secret: first in the usual escaped forms, then with each character escaped in any way."""
    forms = sorted((form for form in _forms(secret) if len(form) >= SHORTEST_SECRET), key=len, reverse=True)
    mixed = ["".join(map(_escaped, secret))] if len(secret) >= SHORTEST_SECRET and not secret.isalnum() else []
    return [*map(re.escape, forms), *mixed]


def _forms(secret: str) -> set[str]:
    as_json = json.dumps(secret)[1:-1]
    return {
        secret, quote(secret, safe=""), quote(secret), quote_plus(secret), html.escape(secret),
        repr(secret.encode())[2:-1], as_json, as_json.replace("/", "\\/"), json.dumps(secret, ensure_ascii=False)[1:-1],
    }  # fmt: skip


def _escaped(character: str) -> str:
    """A pattern for a character that an encoder may escape: `+` is also `%2B`, `%2b`, `\\u002B` and `&#43;`. It never
    backtracks, so that no text makes the search slow."""
    if character.isascii() and character.isalnum():
        return character
    code = ord(character)
    units = character.encode("utf-16-be").hex()
    found = [
        "(?i:" + "".join(f"%{byte:02x}" for byte in character.encode()) + ")",
        "(?i:" + "".join(rf"\\x{byte:02x}" for byte in character.encode()) + ")",
        "(?i:" + "".join(rf"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)) + ")",
        f"(?i:&#(?:0*{code}|x0*{code:x});)",
        *sorted(map(re.escape, {f"\\{character}", html.escape(character), character}), key=len, reverse=True),
    ]
    return f"(?>{'|'.join([*found, *(['[+]'] if character == ' ' else [])])})"


def shown_url(url: str) -> str:
    """Returns a URL without user, password, query and fragment. Parts of its path that look like tokens are
    shortened."""
    try:
        scheme, netloc, path, _, _ = urlsplit(url)
    except ValueError:
        return HIDDEN
    return urlunsplit((scheme, netloc.rpartition("@")[2], "/".join(map(_shown_segment, path.split("/"))), "", ""))


def tokens(path: str) -> list[str]:
    """Returns the parts of a URL's path that look like tokens."""
    return [segment for segment in path.split("/") if _is_token(segment)]


def _shown_segment(segment: str) -> str:
    return f"{unquote(segment)[:KEPT]}…" if _is_token(segment) else segment


def _is_token(segment: str) -> bool:
    """Whether a part of a path looks random: it is long, and not made of words and short numbers."""
    text = unquote(segment)
    if len(text) < SHORTEST_TOKEN:
        return False
    parts = [part for part in _SEPARATOR.split(text) if part]
    pieces = [_PIECE.findall(part) for part in parts]
    letters = sum(len(piece) for found in pieces for piece in found)
    return (
        letters < sum(map(len, parts))
        or letters < _SHORTEST_PIECES * sum(map(len, pieces))
        or any(len(piece) > _LONGEST_WORD for found in pieces for piece in found)
        or any(len(part) > _LONGEST_WORD and _DIGIT.search(part) for part in parts)
    )
