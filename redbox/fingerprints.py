"""Fingerprints of error texts: errors that differ only in ids, times, numbers and quotations have the same one.

The rules are regular expressions that Python and Java read in the same way, since the pipeline applies them in Spark:
characters are named one by one (no `\\b`, `\\w` or `$`, which differ there), and lookbehinds have one length.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase
from typing import Final

FINGERPRINTED: Final = 200  # bytes of an error that an entry of a history holds; last_error holds more
LONGEST_CHARACTER: Final = 4  # bytes
NO_TEXT: Final = "(no text)"
GROUP_DIGITS: Final = 8
UPPER: Final = ascii_uppercase
LOWER: Final = ascii_lowercase

#: Marks a number that is kept, while the rules are applied; it is in no text.
_KEPT: Final = "\ue000"
_NO_WORD_BEFORE: Final = "(?<![0-9a-z_])"
_NO_WORD_AFTER: Final = "(?![0-9a-z_])"
_END: Final = r"(?![\s\S])"
_STATUS: Final = rf"([1-5][0-9][0-9]){_NO_WORD_AFTER}(?![.,][0-9])"
_SAYS_STATUS: Final = (
    "(?:http(?:/[0-9](?:[.][0-9])?)?|smtp|status|status_code|code|error|answered|returned|replied|response|got)"
)
_SAYS_WHY: Final = "error|errors|message|msg|detail|details|reason|title|description|error_description|code|type"
_HEX: Final = "[0-9a-f]"
_DATE: Final = "[0-9]{4}-[0-9][0-9]-[0-9][0-9]"
_TIME: Final = "[0-9][0-9]:[0-9][0-9]"
_SECONDS: Final = ":[0-9][0-9](?:[.,][0-9]+)?"
_ZONE: Final = rf"(?:z{_NO_WORD_AFTER}|[+-][0-9][0-9]:?[0-9][0-9])"

#: The last word of an error that was cut, which may be truncated.
CUT_WORD: Final = (rf"[ \t\n\r\f\x0b]+[^ \t\n\r\f\x0b]*{_END}", " …")

#: Applied in this order to a text in lower case. The words in angle brackets say what was replaced. A status or an
#: errno says what went wrong, so it is kept.
RULES: Final = (
    (rf"[ \t\n\r\f\x0b{_KEPT}]+", " "),
    (rf"^ | {_END}", ""),
    (r"(://)[^ /@'\"]+@", r"\1"),  # a login is not part of an address
    (r"(://[^ ?#'\"<>]*)[?#][^ '\"<>)]*", r"\1?<query>"),
    (rf"{_NO_WORD_BEFORE}{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}{_NO_WORD_AFTER}", "<id>"),
    (rf"{_NO_WORD_BEFORE}{_DATE}(?:[t ]{_TIME}(?:{_SECONDS})?(?: ?{_ZONE})?)?", "<time>"),
    (rf"{_NO_WORD_BEFORE}{_TIME}{_SECONDS}{_NO_WORD_AFTER}", "<time>"),
    (rf"{_NO_WORD_BEFORE}held by [^ ]+", "held by <relay>"),
    (rf"^{_STATUS}", rf"{_KEPT}\1"),
    (rf"({_NO_WORD_BEFORE}{_SAYS_STATUS}[ :='\"(]{{1,4}}){_STATUS}", rf"\1{_KEPT}\2"),
    (rf"({_NO_WORD_BEFORE}errno[ :=]{{1,2}})([0-9])", rf"\1{_KEPT}\2"),
    (rf"{_NO_WORD_BEFORE}'(?!{_KEPT})(?![0-9a-z_]+://)[^']*'{_NO_WORD_AFTER}", "<text>"),
    (r'"([0-9a-z_]{1,40})" ?:', r"‹\1›:"),  # names in JSON stay, and values that say what is wrong
    (rf'‹({_SAYS_WHY})›: ?"([^"]*)"', r"‹\1›: ‹\2›"),
    (rf'"(?!{_KEPT})(?![0-9a-z_]+://)[^"]*"', "<text>"),
    (r"[‹›]", '"'),
    (r"`[^`]*`", "<text>"),
    (rf"{_NO_WORD_BEFORE}0x{_HEX}+{_NO_WORD_AFTER}", "<hex>"),
    (rf"{_NO_WORD_BEFORE}(?=[a-f]*[0-9])(?=[0-9]*[a-f]){_HEX}{{8,}}{_NO_WORD_AFTER}", "<hex>"),
    (rf"(?<![0-9{_KEPT}])[0-9]+(?:[.,:][0-9]+)*", "<n>"),
    (_KEPT, ""),
)

_TO_LOWER: Final = str.maketrans(UPPER, LOWER)
_RULES: Final = tuple((re.compile(pattern), replacement) for pattern, replacement in RULES)
_CUT_WORD: Final = re.compile(CUT_WORD[0])


def fingerprint(error: str | None) -> str:
    """The text of an error in lower case, with ids, times, numbers, quotations and the like replaced by their kind.

    A status such as `HTTP 401` or a leading `550` is kept. Only the beginning counts, as much as a history holds,
    without a last word that may be truncated: so an error has the same fingerprint in last_error and in a history.
    """
    return _fingerprint((error or "").encode(errors="replace")[:FINGERPRINTED])


@lru_cache(maxsize=4096)
def _fingerprint(cut: bytes) -> str:
    text = cut.decode(errors="replace")
    if len(cut) > FINGERPRINTED - LONGEST_CHARACTER:  # the last character may be truncated, too
        text = _CUT_WORD.sub(CUT_WORD[1], text)
    text = text.translate(_TO_LOWER)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text or NO_TEXT


def group_id(print_: str) -> str:
    """A short name of a fingerprint, the same everywhere: 8 hexadecimal digits."""
    return hashlib.sha256(print_.encode()).hexdigest()[:GROUP_DIGITS]


def in_group(error: str | None, group: str) -> bool:
    """Whether an error belongs to a group, given by its id or by its fingerprint."""
    found = fingerprint(error)
    return found == group or group_id(found) == group
