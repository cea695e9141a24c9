"""Keeps web pages of others away: the Host header, the origin of a request, and the headers of every response."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from redbox.service.http.problems import problem_with

AsgiScope = MutableMapping[str, Any]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
SECURITY: Final = (
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Gate:
    """Wraps an ASGI application: refuses requests that a web page of another origin can cause, and adds headers.

    A page can send a request to any address that its browser reaches. It cannot choose the headers Host, Origin and
    Sec-Fetch-Site: a page whose name was pointed to this address (DNS rebinding) has another Host, and any other page
    has another Origin. Clients that are no browsers send neither Origin nor Sec-Fetch-Site, and are not affected.
    """

    def __init__(self, app: App, names: Iterable[str]) -> None:
        """`names`: the host names under which the service is reached, beside those of loopback. With a wildcard address
        among them, such as 0.0.0.0, every address is accepted, but no other name."""
        self._app = app
        self._names = {_bare(name) for name in (*LOOPBACK, *names)}
        self._any_address = any(_is_wildcard(name) for name in self._names)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": with_security(message.get("headers", ()))}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
        else:
            await _refuse(send_with_headers, *refusal)

    def _refusal(self, scope: AsgiScope) -> tuple[HTTPStatus, str] | None:
        host = site = mode = destination = b""
        origins: list[bytes] = []
        hosts = 0
        for name, value in scope["headers"]:
            match name:
                case b"host":
                    host, hosts = value, hosts + 1
                case b"origin":
                    origins.append(value)
                case b"sec-fetch-site":
                    site = value
                case b"sec-fetch-mode":
                    mode = value
                case b"sec-fetch-dest":
                    destination = value
        if hosts != 1:
            return HTTPStatus.BAD_REQUEST, "the request must have one Host header"
        if not self._serves(host):
            return (
                HTTPStatus.MISDIRECTED_REQUEST,
                "the service is not reached under this host name; start it with --allow-host NAME to permit it",
            )
        if site not in (b"", b"same-origin", b"none"):
            is_link = scope["method"] in ("GET", "HEAD") and mode == b"navigate" and destination == b"document"
            if not is_link:
                return _FOREIGN
        if not all(_is_own(origin, host, scope["scheme"]) for origin in origins):
            return _FOREIGN
        return None

    def _serves(self, host: bytes) -> bool:
        name = _host_name(host)
        return name in self._names or (self._any_address and _is_address(name))


_FOREIGN: Final = (HTTPStatus.FORBIDDEN, "a web page of another origin may not call the service")


def with_security(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """These headers with those that protect a browser, where a route has none of its own."""
    found = list(headers)
    own = {name.lower() for name, _ in found}
    return found + [each for each in SECURITY if each[0] not in own]


async def _refuse(send: Send, status: HTTPStatus, detail: str) -> None:
    problem = problem_with(status, detail)
    body = problem.encode()
    headers = [*problem.headers(body), (b"connection", b"close")]  # the body of the request is not read
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _host_name(host: bytes) -> str:
    """The name in a Host header, without its port."""
    text = host.decode("latin-1")
    if text.startswith("["):
        return _bare(text.partition("]")[0])
    name, _, port = text.partition(":")
    return _bare(name) if not port or port.isdigit() else ""


def _bare(name: str) -> str:
    return name.strip().strip("[]").rstrip(".").lower()


def _is_own(origin: bytes, host: bytes, scheme: str) -> bool:
    """Whether an origin is the one of this service. Behind a proxy that ends TLS, its scheme is not known here."""
    try:
        parts = urlsplit(origin.decode("latin-1"))
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or (scheme == "https" and parts.scheme == "http"):
        return False
    return parts.netloc.lower() == host.decode("latin-1").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_wildcard(name: str) -> bool:
    return _is_address(name) and ipaddress.ip_address(name).is_unspecified
