"""What many errors have in common: their text without what differs from event to event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

KEPT: Final = 200  # bytes: a line of an event's history holds so much of an error, last_error more

_STATUS: Final = r"(?<=\b(?:http|status|code|error|answered|returned|got)[ :='\"(]{1,3})[1-5]\d\d\b(?![.,]\d)"
_TELLING: Final = "error|errors|message|msg|detail|details|reason|title|description|error_description|code|type"
_ERRNO: Final = r"(?<=\berrno[ :=]{1,2})\d+"

#: In this order; the words in angle brackets stand for what was there. A status or an errno says what went wrong: kept.
RULES: Final = (
    (r"\s+", " "),
    (r"^ | $", ""),
    (r"(://)[^\s/@'\"]+@", "$1"),  # who logs in is no part of an address
    (r"(://[^\s?#'\"<>]*)[?#][^\s'\"<>)]*", "$1?<query>"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
    (r"\b\d{4}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:z\b|[+-]\d\d:?\d\d))?)?", "<time>"),
    (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
    (r"\bheld by \S+", "held by <relay>"),
    (rf"(?<!\w)'(?!{_STATUS})(?!\w+://)[^']*'(?!\w)", "<text>"),
    (r'"(\w{1,40})" ?:', "‹$1›:"),  # names in JSON stay, and of the values those that say what is wrong
    (rf'‹({_TELLING})›: ?"([^"]*)"', "‹$1›: ‹$2›"),
    (rf'"(?!{_STATUS})(?!\w+://)[^"]*"', "<text>"),
    (r"[‹›]", '"'),
    (r"`[^`]*`", "<text>"),
    (r"\b0x[0-9a-f]+\b", "<hex>"),
    (r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b", "<hex>"),
    (rf"(?<!\d)(?!{_STATUS})(?!{_ERRNO})\d+(?:[.,:]\d+)*", "<n>"),
)


def fingerprint(text: Column) -> Column:
    """An error's text in lower case, with ids, times, numbers, quotations and the like replaced by what they are.

    Only the beginning counts, as much as a history keeps, and a last word that may have been cut does not: so an error
    is the same whether it is read from last_error or from the history.
    """
    from pyspark.sql import functions as f

    cut = f.substring(text.cast("binary"), 1, KEPT).cast("string")
    was_cut = f.octet_length(cut) >= KEPT - 3  # what remains of a character in the middle of which it was cut
    made = f.lower(f.when(was_cut, f.regexp_replace(cut, r"\s+\S*$", " …")).otherwise(cut))
    for pattern, replacement in RULES:
        made = f.regexp_replace(made, pattern, replacement)
    return f.when(made == "", f.lit("(no text)")).otherwise(made)
