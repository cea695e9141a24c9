"""What an HTTP answer means for an event: the status decides, the body only explains."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from redbox.errors import NotPublished, Reject, RetryLater, Unavailable

LONGEST_WAIT: Final = 3600.0
BODY_SHOWN: Final = 500

#: The target, or what stands before it, takes nothing at the moment. 407 is a proxy that does not let us through.
_UNAVAILABLE: Final = frozenset({407, 429, 502, 503, 504})
_RETRY: Final = frozenset({408, 425})
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa1-\U0010ffff]+")


def outcome(status: int, phrase: str, headers: Mapping[str, str], body: bytes) -> NotPublished | None:
    """What to raise for an answer; None for an acknowledgement."""
    if 200 <= status < 300:
        return None
    reason = _reason(status, phrase, headers, body)
    delay = retry_after(headers)
    if status in _UNAVAILABLE:
        return Unavailable(reason, delay=delay or 0.0)
    if 400 <= status < 500 and status not in _RETRY:
        return Reject(reason, kind=f"HTTP {status}")
    return NotPublished(reason) if delay is None else RetryLater(delay, reason)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that an answer asks to wait, at most an hour; None when it asks for none, or not clearly."""
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,12}", text):
        wait = float(text)
    else:
        then = _timestamp(text)
        if then is None:
            return None
        now = _timestamp(headers.get("date", ""))  # of the same clock
        wait = then - (time.time() if now is None else now)
    return min(wait, LONGEST_WAIT) if wait > 0 else None


def _timestamp(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _reason(status: int, phrase: str, headers: Mapping[str, str], body: bytes) -> str:
    said = f"HTTP {status} {_printable(phrase) or _usual_phrase(status)}".rstrip()
    if 300 <= status < 400:
        to = _printable(headers.get("location", "").partition("?")[0])
        return f"{said}: redirects are not followed" + (f" (to {to})" if to else "")
    text = _printable(body.decode(errors="replace"))
    return f"{said}: {text}" if text else said


def _printable(text: str) -> str:
    return " ".join(_UNPRINTABLE.sub(" ", text).split())[:BODY_SHOWN]


def _usual_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
