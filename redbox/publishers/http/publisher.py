"""`https://` and `http://`: one POST per event or batch, acknowledged by a 2xx status."""

from __future__ import annotations

import asyncio
import base64
import gzip as gzip_format
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar, Final
from urllib.parse import quote, unquote, unquote_plus

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from redbox import __version__
from redbox.arguments import one_of, shown, whole_number
from redbox.durations import positive_duration
from redbox.errors import InvalidURL, NotPublished, Reject, UsageError
from redbox.events import Claim, is_reserved_header
from redbox.publishers.base import (
    ADDED_HEADERS,
    ENCODING_HEADER,
    ORDERING_HEADER,
    Publisher,
    closed,
    not_open,
    passed_on,
)
from redbox.publishers.http import cloudevents
from redbox.publishers.http.addresses import PrivateAddress, is_public, literal_address
from redbox.publishers.http.batches import (
    MOST,
    MULTI_STATUS,
    RESULT_BYTES,
    Outcome,
    batch_body,
    groups,
    read_results,
)
from redbox.publishers.http.connections import BODY_BYTES, Client, Headers, proxy_for, read_start, tls_context
from redbox.publishers.http.responses import connection_error, response_error
from redbox.publishers.http.webhooks import PREFIX, SigningKeys, batch_id, signature_headers
from redbox.publishers.options import header_text, parse_flag, parse_number
from redbox.publishers.redaction import redactor, shown_url, tokens

MAX_CONNECTIONS: Final = 100
GZIP_LEVEL: Final = 1  # the fastest: it runs on the event loop

_is_header_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_control = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search


class HTTPPublisher(Publisher):
    """Posts events as CloudEvents. `http_responses` decides what each response means."""

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
        deny_private: bool | str = False,
        batch: int | str | None = None,
        gzip: int | str | None = None,
    ) -> None:
        parsed = _read_url(url)
        if parsed.raw_user is not None and authorization is not None:
            raise UsageError("give either user:password in the URL or the option authorization, not both")
        self._url = parsed.with_user(None).with_fragment(None)
        self._target = shown_url(str(self._url))
        one_of("cloudevents", cloudevents, ("binary", "structured"))
        self._structured = cloudevents == "structured"
        self._source = None if source is None else header_text("source", source)
        self._keys = None if secret is None else SigningKeys(secret)
        self._timeout = None if timeout is None else positive_duration("timeout", parse_number(timeout))
        self._authorization = None if authorization is None else header_text("authorization", authorization)
        if parsed.raw_user is not None:
            login = f"{parsed.user or ''}:{parsed.password or ''}"
            self._authorization = f"Basic {base64.b64encode(login.encode()).decode()}"
        self._secret_values = _secret_values(parsed, self._authorization, secret)
        self._redact = redactor(self._secret_values)
        self._max_connections = whole_number("max_connections", parse_number(max_connections))
        self._deny_private = parse_flag("deny_private", deny_private)
        if self._deny_private:
            _refuse_private(parsed)
        self._batch = None if batch is None else whole_number("batch", parse_number(batch), most=MOST)
        if self._batch is not None:
            self.many = self._batch  # type: ignore[misc]  # of this instance
            self.calls_at_once = self._max_connections
        self._gzip = None if gzip is None else whole_number("gzip", parse_number(gzip), 0)
        self._client: Client | None = None
        self._peer = ""  # what the client connects to: the target, or a proxy
        self._untried = ""  # the scheme, until the target has answered

    @property
    def target(self) -> str:
        return self._target

    def at_once(self, concurrency: int) -> int:
        return min(self._max_connections * (self._batch or 1), concurrency)

    async def open(self, box: str) -> None:
        if self._source is None:
            self._source = f"/redbox/{quote(box, safe='')}"
        headers = {
            "Host": self._url.host_port_subcomponent or "",
            "User-Agent": f"redbox/{__version__}",
            "Accept-Encoding": "identity",
        }
        if self._authorization is not None:
            headers["Authorization"] = self._authorization
        if self._batch is not None:
            headers["Content-Type"] = cloudevents.BATCHED
        elif not self._structured:
            headers |= cloudevents.fixed_headers(self._source)
        proxy = proxy_for(self._url)
        if proxy is not None and self._deny_private:
            raise UsageError(
                "deny_private cannot be combined with a proxy, which resolves the name of the target by itself; unset "
                "HTTPS_PROXY and HTTP_PROXY, name the target in NO_PROXY, or let the proxy deny such addresses"
            )
        peer = proxy or self._url
        self._peer, self._untried = f"{peer.host_subcomponent}:{peer.port}", "" if proxy else self._url.scheme
        if proxy is not None and proxy.raw_user is not None:
            login = f"{proxy.user or ''}:{proxy.password or ''}"
            encoded = base64.b64encode(login.encode()).decode()
            self._hide([login, proxy.password or "", encoded])
        self._client = Client(headers, proxy, tls_context(self._url, proxy), self._max_connections, self._deny_private)

    def _hide(self, texts: list[str]) -> None:
        """Adds texts that no error may repeat."""
        self._secret_values += [text for text in texts if text not in self._secret_values]
        self._redact = redactor(self._secret_values)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def publish(self, claim: Claim) -> None:
        (outcome,) = await self._post(self._opened(), [claim])
        if outcome is not None:
            raise outcome

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[Outcome]:
        if self._batch is None:
            return await super().publish_many(claims)
        client = self._opened()
        outcomes: list[Outcome] = [None] * len(claims)

        async def send(group: list[int]) -> None:
            found = await self._post(client, [claims[at] for at in group])
            if len(group) > 1 and isinstance(found[0], Reject) and found[0] is found[-1]:
                half = len(group) // 2  # which of them was rejected?
                await asyncio.gather(send(group[:half]), send(group[half:]))
                return
            for at, outcome in zip(group, found, strict=True):
                outcomes[at] = outcome

        await asyncio.gather(*map(send, groups(claims)))
        return outcomes

    def _opened(self) -> Client:
        if self._client is None:
            raise not_open()
        return self._client

    async def _post(self, client: Client, claims: list[Claim]) -> list[Outcome]:
        """Sends one request. Returns an outcome for each event; the same error for all if the response is about all."""
        headers, body = self._request(claims)
        unread: aiohttp.ClientResponse | None = None
        await client.acquire()
        try:
            if client is not self._client:
                return [closed()] * len(claims)
            began = asyncio.get_running_loop().time()
            response = await self._send(client, headers, body)
            if isinstance(response, NotPublished):
                return [response] * len(claims)
            self._untried = ""
            if 200 <= response.status < 300 and (self._batch is None or response.status != MULTI_STATUS):
                unread = response  # nothing is awaited from here on: an acknowledged event cannot be cancelled
                return [None] * len(claims)
            return await self._read_outcomes(response, claims, began)
        finally:
            client.release(unread)

    async def _send(self, client: Client, headers: Headers, body: bytes) -> aiohttp.ClientResponse | NotPublished:
        """Sends a request. Returns the response once its head has arrived, or the error to raise."""
        try:
            if self._timeout is None:
                return await client.post(self._url, headers, body)
            async with asyncio.timeout(self._timeout):
                return await client.post(self._url, headers, body)
        except aiohttp.ClientError as error:  # some of these are a TimeoutError too
            return connection_error(error, self._redact, peer=self._peer, untried=self._untried)
        except TimeoutError:
            return NotPublished(f"no response within {self._timeout:g} seconds")
        except OSError as error:
            return connection_error(aiohttp.ClientOSError(*error.args), self._redact)
        except ValueError as error:
            return _unsendable(self._redact(str(error)))

    async def _read_outcomes(
        self, response: aiohttp.ClientResponse, claims: list[Claim], began: float
    ) -> list[Outcome]:
        """Returns the outcomes of a response that is not a plain 2xx."""
        left = None if self._timeout is None else began + self._timeout - asyncio.get_running_loop().time()
        now, status, headers = claims[0].store_ms / 1000, response.status, response.headers
        most = BODY_BYTES if self._batch is None else BODY_BYTES + RESULT_BYTES * len(claims)
        body = await read_start(response, left, most)
        if self._batch is not None:
            outcomes = read_results(status, headers, body, len(claims), now=now, redact=self._redact)
            if outcomes is not None:
                return outcomes
        error = response_error(status, response.reason or "", headers, body[:BODY_BYTES], now=now, redact=self._redact)
        return [error] * len(claims)

    def _request(self, claims: list[Claim]) -> tuple[Headers, bytes]:
        """Returns the headers and the body of one request. The client adds the headers that every request has."""
        headers: Headers
        if self._batch is None:
            headers, body = self._single(claims[0])
            request_id = claims[0].event_id
        else:
            headers, body, request_id = (
                {},
                batch_body(claims, self._source or ""),
                batch_id(claim.event_id for claim in claims),
            )
        added: dict[str, str] = {}
        if self._gzip is not None and len(body) >= self._gzip and "Content-Encoding" not in headers:
            packed = gzip_format.compress(body, GZIP_LEVEL, mtime=0)
            if len(packed) < len(body):
                body, added = packed, {"Content-Encoding": "gzip"}
        if self._keys is not None:
            secret = self._keys.reload()
            if secret is not None:
                self._hide(_words(secret))
            added |= signature_headers(self._keys.current, request_id, claims[0].store_ms // 1000, body)
        if added:
            headers = CIMultiDict(headers)
            headers.update(added)
        return headers, body

    def _single(self, claim: Claim) -> tuple[Headers, bytes]:
        """Returns the headers and the body of a request with one event, before it is compressed and signed."""
        if self._structured:
            body, content_type = cloudevents.structured(claim, self._source or ""), cloudevents.STRUCTURED
            headers = {}
        else:
            body, content_type = claim.event.encode()
            headers = cloudevents.binary_headers(claim)
        headers["Content-Type"] = _header_value("its content type", content_type)
        delivered = passed_on(claim)
        if claim.event.ordering_key is not None:
            delivered[ORDERING_HEADER] = _quoted("its ordering key", claim.event.ordering_key)
        if not claim.event.headers:
            headers |= delivered
            return headers, body
        found, names = CIMultiDict(headers), dict[str, str]()
        for name, text in delivered.items():
            lower = name.lower()
            if lower not in ADDED_HEADERS and is_reserved_header(name):
                continue  # refused by put, but an earlier version may have stored it
            if lower == "authorization" and self._authorization is not None:
                continue
            if not _is_header_name(name):
                raise _unsendable(f"{shown(name)} is not a header name")
            value = _header_value(f"its header {name}", text)
            if lower == "content-encoding":
                # Else a consumer could not tell it from the compression by this publisher.
                found.add(ENCODING_HEADER, value)
                if self._structured:
                    continue
            found.add(
                names.setdefault(lower, name), value
            )  # names that differ only in case must be added under one spelling
        return found, body


def _read_url(text: str) -> URL:
    try:
        url = URL(text)
        (url.host or "").encode("idna")
    except (ValueError, TypeError):
        raise InvalidURL("this is not a valid URL; use https://host/path") from None  # it may contain secrets
    if url.scheme not in ("http", "https") or not url.host or not url.port:
        raise InvalidURL("this URL has no host, or no valid port; use https://host:port/path")
    return url


def _refuse_private(url: URL) -> None:
    """Raises UsageError for an address that is not public. Names are resolved, and checked, at every connection."""
    address = literal_address(url.host or "")
    if address is not None and not is_public(address):
        raise UsageError(f"{PrivateAddress(address).strerror}; give a public address, or leave out deny_private")


def _secret_values(url: URL, authorization: str | None, secret: str | None) -> list[str]:
    """Returns the texts that no error may repeat: parts of the URL, the login and the signing keys."""
    found = [*url.query.values(), *tokens(url.raw_path), *map(unquote, tokens(url.raw_path))]
    for part in url.raw_query_string.split("&"):
        name, equals, value = part.partition("=")
        found += [value] if equals else [name, unquote_plus(name)]
    found += _words(secret or "")
    if authorization is not None:
        credentials = authorization.partition(" ")[2].strip()
        found += [authorization, credentials]
        with suppress(ValueError):
            login = base64.b64decode(credentials, validate=True).decode()
            found += [login, login.partition(":")[2]] if ":" in login else []
    return found


def _words(secret: str) -> list[str]:
    """Returns the forms of the signing keys that an error might repeat."""
    return [
        form
        for word in secret.split()
        for form in (word, word.removeprefix(PREFIX), word.removeprefix(PREFIX).rstrip("="))
    ]


def _header_value(what: str, text: str) -> str:
    """Returns a header value without surrounding spaces, which HTTP does not count as part of it."""
    if _control(text):
        raise _unsendable(f"{what} contains control characters")
    return text.strip(" \t")


def _quoted(what: str, text: str) -> str:
    """Returns a text for a header that has to arrive as it is."""
    _header_value(what, text)
    return cloudevents.header_value(text)


def _unsendable(problem: str) -> Reject:
    return Reject(f"this event cannot be sent by HTTP: {problem}", kind="not for HTTP")
