"""What an HTTP answer, or its absence, means for an event. The status decides, the body only explains."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

import aiohttp

from redbox.errors import NotPublished, Reject, RetryLater, Unavailable
from redbox.publishers.redaction import shown_url

LONGEST_WAIT: Final = 3600.0
BODY_SHOWN: Final = 500

#: The target, or what stands before it, takes nothing at the moment. 407 is a proxy that does not let us through.
_UNAVAILABLE: Final = frozenset({407, 429, 502, 503, 504})
_RETRY: Final = frozenset({408, 425})
#: A wrong token, path or method would be refused for every event.
_BLAMES_TARGET: Final = frozenset({401, 403, 404, 405})
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa1-\U0010ffff]+")


def outcome(
    status: int, phrase: str, headers: Mapping[str, str], body: bytes, *, now: float, redact: Callable[[str], str] = str
) -> NotPublished:
    """What to raise for an answer that is not 2xx.

    `now` is in seconds since 1970. `redact` removes secrets that the answer may repeat.
    """
    reason = _reason(status, phrase, headers, body, redact)
    delay = retry_after(headers, now)
    if status in _UNAVAILABLE:
        return Unavailable(reason, delay=delay or 0.0)
    if 400 <= status < 500 and status not in _RETRY:
        return Reject(reason, kind=f"HTTP {status}", blames_target=status in _BLAMES_TARGET)
    return NotPublished(reason) if delay is None else RetryLater(delay, reason)


def failure(error: aiohttp.ClientError, redact: Callable[[str], str] = str) -> NotPublished:
    """What to raise when there was no answer, or none that can be read. Our own words: a client's may hold the URL."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return Unavailable(f"the certificate does not hold: {_words(error.certificate_error, redact)}")
        case aiohttp.ClientProxyConnectionError():
            return Unavailable(f"no connection to the proxy {error.host}: {_words(error.os_error, redact)}")
        case aiohttp.ClientConnectorDNSError():
            return Unavailable(f"no connection: the name {error.host} cannot be resolved")
        case aiohttp.ClientConnectorError():
            return Unavailable(f"no connection to {error.host}: {_words(error.os_error, redact)}")
        case aiohttp.ConnectionTimeoutError():
            return Unavailable("no connection in time")
        case aiohttp.ClientHttpProxyError():
            return Unavailable(f"the proxy answered HTTP {error.status} {_printable(redact(error.message))}".rstrip())
        case aiohttp.ServerDisconnectedError():
            return Unavailable("the target closed the connection without an answer")
        case aiohttp.ClientConnectionError():
            return Unavailable(f"the connection broke: {_words(error, redact)}")
        case aiohttp.ClientResponseError():
            return NotPublished(f"the answer is not HTTP: {_printable(redact(error.message))}")
        case _:
            return NotPublished(f"{type(error).__name__}: {_words(error, redact)}")


def _words(error: BaseException, redact: Callable[[str], str]) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return _printable(redact(text)) or type(error).__name__


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that an answer asks to wait, at most an hour; None when it asks for none, or not clearly."""
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]+", text):
        wait = float(text)
    else:
        then = _timestamp(text)
        if then is None:
            return None
        sent = _timestamp(headers.get("date", ""))  # of the same clock
        wait = then - (now if sent is None else sent)
    return min(wait, LONGEST_WAIT) if wait > 0 else None


def _timestamp(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _reason(status: int, phrase: str, headers: Mapping[str, str], body: bytes, redact: Callable[[str], str]) -> str:
    said = f"HTTP {status} {_printable(redact(phrase)) or _usual_phrase(status)}".rstrip()
    if 300 <= status < 400:
        location = headers.get("location", "")
        to = _printable(redact(shown_url(location))) if location else ""
        return f"{said}: redirects are not followed" + (f" (to {to})" if to else "")
    text = _printable(redact(body.decode(errors="replace")))
    return f"{said}: {text}" if text else said


def _printable(text: str) -> str:
    return " ".join(_UNPRINTABLE.sub(" ", text).split())[:BODY_SHOWN]


def _usual_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
