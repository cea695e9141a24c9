"""Fingerprints of error texts: errors that differ only in ids, times, numbers and quotations have the same one.

The rules are regular expressions that Python and Java read in the same way, since the pipeline applies them in Spark:
characters are named one by one (no `\\b`, `\\w` or `$`, which differ there), and lookbehinds have one length.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase
from typing import Final, NamedTuple

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
_UUID: Final = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_DATE: Final = "[0-9]{4}-[0-9][0-9]-[0-9][0-9]"
_TIME: Final = "[0-9][0-9]:[0-9][0-9]"
_SECONDS: Final = ":[0-9][0-9](?:[.,][0-9]+)?"
_ZONE: Final = rf"(?:z{_NO_WORD_AFTER}|[+-][0-9][0-9]:?[0-9][0-9])"

#: The last word of an error that was cut, which may be truncated.
CUT_WORD: Final = (rf"[ \t\n\r\f\x0b]+[^ \t\n\r\f\x0b]*{_END}", " …")


class Rule(NamedTuple):
    """Replaces the matches of a pattern. A text without `needs` has none, which is found out faster."""

    pattern: str
    replacement: str
    needs: str = ""


#: Applied in this order to a text in lower case. The words in angle brackets say what was replaced. A status or an
#: errno says what went wrong, so it is kept.
RULES: Final = (
    Rule(rf"[ \t\n\r\f\x0b{_KEPT}]+", " "),
    Rule(rf"^ | {_END}", ""),
    Rule(r"(://)[^ /@'\"]+@", r"\1", "://"),  # a login is not part of an address
    Rule(r"(://[^ ?#'\"<>]*)[?#][^ '\"<>)]*", r"\1?<query>", "://"),
    Rule(rf"{_NO_WORD_BEFORE}{_UUID}{_NO_WORD_AFTER}", "<id>", "-"),
    Rule(rf"{_NO_WORD_BEFORE}{_DATE}(?:[t ]{_TIME}(?:{_SECONDS})?(?: ?{_ZONE})?)?", "<time>", "-"),
    Rule(rf"{_NO_WORD_BEFORE}{_TIME}{_SECONDS}{_NO_WORD_AFTER}", "<time>", ":"),
    Rule(rf"{_NO_WORD_BEFORE}held by [^ ]+", "held by <relay>", "held by "),
    Rule(rf"^{_STATUS}", rf"{_KEPT}\1"),
    Rule(rf"({_NO_WORD_BEFORE}{_SAYS_STATUS}[ :='\"(]{{1,4}}){_STATUS}", rf"\1{_KEPT}\2"),
    Rule(rf"({_NO_WORD_BEFORE}errno[ :=]{{1,2}})([0-9])", rf"\1{_KEPT}\2", "errno"),
    Rule(rf"{_NO_WORD_BEFORE}'(?!{_KEPT})(?![0-9a-z_]+://)[^']*'{_NO_WORD_AFTER}", "<text>", "'"),
    Rule(r'"([0-9a-z_]{1,40})" ?:', r"‹\1›:", '"'),  # names in JSON stay, and values that say what is wrong
    Rule(rf'‹({_SAYS_WHY})›: ?"([^"]*)"', r"‹\1›: ‹\2›", "›"),
    Rule(rf'"(?!{_KEPT})(?![0-9a-z_]+://)[^"]*"', "<text>", '"'),
    Rule(r"[‹›]", '"'),
    Rule(r"`[^`]*`", "<text>", "`"),
    Rule(rf"{_NO_WORD_BEFORE}0x{_HEX}+{_NO_WORD_AFTER}", "<hex>", "0x"),
    Rule(rf"{_NO_WORD_BEFORE}(?=[a-f]*[0-9])(?=[0-9]*[a-f]){_HEX}{{8,}}{_NO_WORD_AFTER}", "<hex>"),
    Rule(rf"(?<![0-9{_KEPT}])[0-9]+(?:[.,:][0-9]+)*", "<n>"),
    Rule(_KEPT, "", _KEPT),
)

_TO_LOWER: Final = str.maketrans(UPPER, LOWER)
_RULES: Final = tuple((re.compile(rule.pattern).sub, rule.replacement, rule.needs) for rule in RULES)
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
    for substitute, replacement, needs in _RULES:
        if needs in text:
            text = substitute(replacement, text)
    return text or NO_TEXT


def group_id(text: str) -> str:
    """A short name of a fingerprint, the same everywhere: 8 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:GROUP_DIGITS]


def in_group(error: str | None, group: str) -> bool:
    """Whether an error belongs to a group, given by its id or by its fingerprint."""
    found = fingerprint(error)
    return found == group or group_id(found) == group
