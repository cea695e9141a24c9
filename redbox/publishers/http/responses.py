"""The error to raise for an HTTP response that is not 2xx, or for a missing one. The status decides, the body
explains."""

from __future__ import annotations

import os
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

#: The target, or a proxy before it, accepts nothing at the moment. 407: the proxy wants a login.
_UNAVAILABLE: Final = frozenset({407, 429, 502, 503, 504})
_RETRY: Final = frozenset({408, 425})
#: Likely a wrong token, path or method, which would be refused for every event.
_BLAMES_TARGET: Final = frozenset({401, 403, 404, 405})
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa1-\U0010ffff]+")


def response_error(
    status: int, phrase: str, headers: Mapping[str, str], body: bytes, *, now: float, redact: Callable[[str], str] = str
) -> NotPublished:
    """Returns the error for a response that is not 2xx.

    `now` is in seconds since 1970. `redact` removes secrets that the response may repeat.
    """
    reason = _reason(status, phrase, headers, body, redact)
    delay = retry_after(headers, now)
    if status in _UNAVAILABLE:
        return Unavailable(reason, delay=delay or 0.0)
    if 400 <= status < 500 and status not in _RETRY:
        return Reject(reason, kind=f"HTTP {status}", blames_target=status in _BLAMES_TARGET)
    return NotPublished(reason) if delay is None else RetryLater(delay, reason)


#: How to write the URL of a target that speaks the protocol of the other scheme.
_OTHER_SCHEME: Final = {
    "http": "; if the target speaks TLS on this port, write https:// in its URL",
    "https": "; if the target speaks plain HTTP on this port, write http:// in its URL",
}


def connection_error(
    error: aiohttp.ClientError, redact: Callable[[str], str] = str, *, peer: str = "the target", untried: str = ""
) -> NotPublished:
    """Returns the error for a missing or invalid response. It does not quote the client in full: that text may contain
    the URL.

    `peer` is the host and port that the client connects to. `untried` is the scheme of the URL while the target has
    answered nothing yet, so that the scheme may be wrong.
    """
    hint = _OTHER_SCHEME.get(untried, "")
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return Unavailable(f"the certificate is not valid: {_description(error.certificate_error, redact)}")
        case aiohttp.ClientProxyConnectionError():
            return Unavailable(f"cannot connect to the proxy {peer}: {_description(error.os_error, redact)}")
        case aiohttp.ClientConnectorDNSError():
            return Unavailable(f"cannot connect: the host name {error.host} cannot be resolved")
        case aiohttp.ClientConnectorError():
            other = hint if _is_no_tls(error.os_error) else ""
            where = f"{error.host}:{error.port}"
            return Unavailable(f"cannot connect to {where}: {_description(error.os_error, redact)}{other}")
        case aiohttp.ConnectionTimeoutError():
            return Unavailable(f"connecting to {peer} timed out")
        case aiohttp.ClientHttpProxyError():
            return Unavailable(f"the proxy returned HTTP {error.status} {_printable(redact(error.message))}".rstrip())
        case aiohttp.ServerDisconnectedError():
            return Unavailable(f"{peer} closed the connection without a response{hint}")
        case aiohttp.ClientConnectionError():
            return Unavailable(f"the connection broke: {_description(error, redact)}")
        case aiohttp.ClientResponseError():
            return NotPublished(f"the response is not valid HTTP: {_printable(redact(error.message))}")
        case _:
            return NotPublished(f"{type(error).__name__}: {_description(error, redact)}")


def _is_no_tls(error: OSError) -> bool:
    """Whether a connection that began with TLS ended as if the other side spoke plain HTTP."""
    return isinstance(error, ConnectionResetError) or getattr(error, "reason", None) == "WRONG_VERSION_NUMBER"


def _description(error: BaseException, redact: Callable[[str], str]) -> str:
    if isinstance(error, ConnectionRefusedError) and error.errno:
        return os.strerror(error.errno)  # asyncio repeats the address instead
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return _printable(redact(text)) or type(error).__name__


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Returns the delay that a response asks for, in seconds and at most an hour; None without a valid Retry-After."""
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]+", text):
        wait = float(text)
    else:
        then = _timestamp(text)
        if then is None:
            return None
        sent = _timestamp(headers.get("date", ""))  # by the same clock
        wait = then - (now if sent is None else sent)
    return min(wait, LONGEST_WAIT) if wait > 0 else None


def _timestamp(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _reason(status: int, phrase: str, headers: Mapping[str, str], body: bytes, redact: Callable[[str], str]) -> str:
    summary = f"HTTP {status} {_printable(redact(phrase)) or _standard_phrase(status)}".rstrip()
    if 300 <= status < 400:
        location = headers.get("location", "")
        to = _printable(redact(shown_url(location))) if location else ""
        return f"{summary}: redirects are not followed" + (f" (to {to})" if to else "")
    text = _printable(redact(body.decode(errors="replace")))
    return f"{summary}: {text}" if text else summary


def _printable(text: str) -> str:
    return " ".join(_UNPRINTABLE.sub(" ", text).split())[:BODY_SHOWN]


def _standard_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
