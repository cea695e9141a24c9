"""`https://` and `http://`: one POST per event, acknowledged by a 2xx status.

httpx's transport is used without its client, which would follow its own mind on cookies and would log each URL with its
query.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from contextlib import suppress
from typing import ClassVar, Final
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

import anyio
import httpx

from redbox import __version__
from redbox.arguments import one_of, positive_duration, whole_number
from redbox.errors import InvalidURL, NotPublished, Unavailable, UsageError
from redbox.events import HTTP_HEADERS, Claim
from redbox.publishers import cloudevents
from redbox.publishers.base import Publisher, passed_on
from redbox.publishers.http_answers import outcome
from redbox.publishers.options import from_text, line
from redbox.publishers.webhooks import read_secrets, signature_headers

MAX_CONNECTIONS: Final = 100
CONNECT_SECONDS: Final = 5.0
KEEP_SECONDS: Final = 4.0  # less than the 5 s after which many servers close an idle connection
BODY_BYTES: Final = 4096
BODY_SECONDS: Final = 1.0

_USER_AGENT: Final = f"redbox/{__version__}".encode()
_DISCONNECTED: Final = "disconnected without sending a response"


class HTTPPublisher(Publisher):
    """Posts events as CloudEvents; what the answers mean is in `http_answers`."""

    secrets: ClassVar[frozenset[str]] = frozenset({"secret", "authorization"})

    def __init__(
        self,
        url: str,
        *,
        cloudevents: str = "binary",
        source: str | None = None,
        secret: str | None = None,
        authorization: str | None = None,
        timeout: float | str | None = None,
        max_connections: int | str = MAX_CONNECTIONS,
    ) -> None:
        try:
            parsed = httpx.URL(url)
            parsed.host.encode("idna")
        except (httpx.InvalidURL, ValueError, TypeError):
            raise InvalidURL("this is not a valid URL; use https://host/path") from None  # may hold secrets
        if parsed.scheme not in ("http", "https") or not parsed.host or not 0 < (parsed.port or 80) < 65536:
            raise InvalidURL("this URL names no host, or no valid port; use https://host:port/path")
        if parsed.userinfo and authorization is not None:
            raise UsageError("give either user:password in the URL or the option authorization, not both")
        self._url = parsed.copy_with(userinfo=b"", fragment=None)
        self._shown = str(self._url.copy_with(query=None))
        one_of("cloudevents", cloudevents, ("binary", "structured"))
        self._structured = cloudevents == "structured"
        self._source = None if source is None else line("source", source)
        self._keys = None if secret is None else read_secrets(secret)
        self._timeout = None if timeout is None else positive_duration("timeout", from_text(timeout))
        self._fixed = {b"host": self._url.netloc, b"accept-encoding": b"identity", b"user-agent": _USER_AGENT}
        if parsed.userinfo:
            login = f"{parsed.username}:{parsed.password}".encode()
            self._fixed[b"authorization"] = b"Basic " + base64.b64encode(login)
        elif authorization is not None:
            self._fixed[b"authorization"] = line("authorization", authorization).encode()
        self._most = whole_number("max_connections", from_text(max_connections))
        self._places = asyncio.Semaphore(self._most)
        self._idle: list[httpx.AsyncHTTPTransport] = []
        self._proxy: str | None = None
        self._tls: ssl.SSLContext | None = None

    @property
    def target(self) -> str:
        return self._shown

    def at_once(self, concurrency: int) -> int:
        return min(self._most, concurrency)

    async def open(self, box: str) -> None:
        if self._source is None:
            self._source = f"/redbox/{quote(box, safe='')}"
        self._places, self._idle = asyncio.Semaphore(self._most), []  # those of another event loop are of no use
        self._tls = httpx.create_ssl_context()
        self._proxy = _proxy_for(self._url)
        try:
            self._idle.append(self._new_transport())
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            raise UsageError(f"the proxy that the environment names cannot be used: {error}") from error

    async def aclose(self) -> None:
        self._tls = None
        while self._idle:
            await self._idle.pop().aclose()

    async def publish(self, claim: Claim) -> None:
        if self._tls is None:
            raise UsageError("this publisher is not open")
        request = self._request(claim)
        async with self._places:
            try:
                async with asyncio.timeout(self._timeout):
                    problem = await self._exchange(request)
            except TimeoutError as error:
                raise NotPublished(f"no answer within {self._timeout:g} seconds") from error
        if problem is not None:
            raise problem

    async def _exchange(self, request: httpx.Request) -> NotPublished | None:
        """One request and its answer: None when it was acknowledged, else what to raise.

        Each transport is used by one request at a time, and thrown away when that did not end well: a pool that is
        shared can keep, and count, connections of requests that were cancelled.
        """
        transport = self._idle.pop() if self._idle else self._new_transport()
        try:
            response = await transport.handle_async_request(request)
            body = await _beginning(response)
            await response.aclose()  # closes the connection unless the answer was read to its end
        except httpx.TransportError as error:
            await transport.aclose()
            return _failure(error)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await transport.aclose()
            raise
        if self._tls is None:  # closed meanwhile
            await transport.aclose()
        else:
            self._idle.append(transport)
        return outcome(response.status_code, response.reason_phrase, response.headers, body)

    def _new_transport(self) -> httpx.AsyncHTTPTransport:
        assert self._tls is not None
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP_SECONDS)
        return httpx.AsyncHTTPTransport(verify=self._tls, retries=0, limits=limits, proxy=self._proxy)

    def _request(self, claim: Claim) -> httpx.Request:
        source = self._source or ""
        body, content_type = claim.event.encode()
        if self._structured:
            body, content_type = cloudevents.structured(claim, source), cloudevents.STRUCTURED
            added = []
        else:
            added = cloudevents.binary_headers(claim, source)
        if self._keys is not None:
            added += signature_headers(self._keys, claim.event_id, int(time.time()), body)
        headers = dict(self._fixed)
        headers[b"content-type"] = content_type.strip().encode()
        headers[b"content-length"] = b"%d" % len(body)
        own = []
        for name, text in passed_on(claim).items():
            lower = name.lower()
            if lower in HTTP_HEADERS or (  # refused by put, but an earlier version may have stored it
                lower == "authorization" and b"authorization" in headers
            ):
                continue
            headers.pop(lower.encode(), None)
            own.append((name.encode(), text.strip(" \t").encode()))  # spaces around a value are no part of it in HTTP
        return httpx.Request(
            "POST",
            self._url,
            headers=[*headers.items(), *added, *own],
            stream=httpx.ByteStream(body),
            extensions={"timeout": {"connect": CONNECT_SECONDS}},
        )


def _proxy_for(url: httpx.URL) -> str | None:
    """The proxy that HTTPS_PROXY and the like name, unless NO_PROXY exempts the host."""
    proxies = getproxies()
    found = proxies.get(url.scheme) or proxies.get("all")
    if not found or proxy_bypass(url.netloc.decode()):
        return None
    return found if "://" in found else f"http://{found}"


def _failure(error: httpx.TransportError) -> NotPublished:
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    no_way = httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError | httpx.NetworkError
    gone = isinstance(error, httpx.RemoteProtocolError) and _DISCONNECTED in str(error)
    problem = Unavailable(said) if gone or isinstance(error, no_way) else NotPublished(said)
    problem.__cause__ = error
    return problem


async def _beginning(response: httpx.Response) -> bytes:
    """What there is of the body within a bound of size and time; the status has decided already."""
    found = b""
    with suppress(httpx.TransportError, TimeoutError):
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in response.aiter_raw():
                found += chunk[: BODY_BYTES - len(found)]
                if len(found) >= BODY_BYTES:
                    break
    return b"" if response.headers.get("content-encoding", "identity") != "identity" else found
