"""The connections of an HTTP publisher: kept between requests, although the target may close them at any time."""

from __future__ import annotations

import asyncio
import io
import os
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import TimerNoop
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from redbox.errors import UsageError
from redbox.publishers.http.addresses import public_socket

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.http import RawResponseMessage

CONNECT_SECONDS: Final = 5.0
KEEP_SECONDS: Final = 4.0  # less than the 5 s after which many servers close an idle connection
BODY_BYTES: Final = 4096
BODY_SECONDS: Final = 1.0
SLOT_SECONDS: Final = 0.1  # how long a request waits for a slot before it ends the reading of another response
HEAD_BYTES: Final = 64 * 1024  # of one header of a response
HEAD_LINES: Final = 500
MOST_INTERIM: Final = 16  # responses with a status 1xx before the response
WRITE_BYTES: Final = 64 * 1024  # a larger payload is written in chunks, so that it is not copied as a whole

_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS)
_NO_TIMER: Final = TimerNoop()

_end_of_head = re.compile(rb"\n\r?\n").search

Headers = Mapping[str, str] | CIMultiDict[str]


class Client:
    """The connections of an open publisher.

    One connector keeps connections and notices when the target closes one. A request that fails on a kept connection
    is sent once more by a second connector, which opens a new connection for each request.

    There is no `aiohttp.ClientSession`: it took as much time as the rest of the client together, for redirects,
    cookies and the like, and it sends the target's login to a proxy.
    """

    def __init__(
        self,
        headers: dict[str, str],
        proxy: URL | None,
        tls: ssl.SSLContext | bool,
        max_connections: int,
        public_only: bool = False,
    ) -> None:
        """`public_only`: connects to public addresses only."""
        self._loop = asyncio.get_running_loop()
        self._headers = CIMultiDict(headers)
        self._slots = asyncio.Semaphore(max_connections)
        self._users = 0
        self._closing = False
        self._closing_task: asyncio.Task[None] | None = None
        self._unread = set[asyncio.Task[bytes]]()
        self._proxy = proxy
        self._tls = tls
        resolver = aiohttp.ThreadedResolver()
        # Neither has a limit of its own: `_slots` counts the connections of both.
        factory = public_socket if public_only else None
        self._persistent = _Connector(
            limit=0, socket_factory=factory, resolver=resolver, keepalive_timeout=KEEP_SECONDS
        )
        self._single_use = _Connector(limit=0, socket_factory=factory, resolver=resolver, force_close=True)

    async def acquire(self) -> None:
        """Waits for a free slot, which is one connection. `release` frees it."""
        self._users += 1
        try:
            while self._slots.locked():
                with suppress(TimeoutError):
                    async with asyncio.timeout(SLOT_SECONDS):
                        await self._slots.acquire()
                        return
                next((task.cancel() for task in self._unread if not task.done() and not task.cancelling()), None)
            await self._slots.acquire()
        except BaseException:
            self._user_left()
            raise

    def release(self, unread: aiohttp.ClientResponse | None = None) -> None:
        """Frees a slot. If the exchange of `unread` has not ended, a background task ends it first, within the limits
        of `read_start`, so that the connection can be used again without the caller waiting for it."""
        if unread is None or unread.connection is None:
            self._slots.release()
        elif self._closing:
            self._discard(unread)
        else:
            task = asyncio.create_task(read_start(unread))
            self._unread.add(task)
            task.add_done_callback(self._unread.discard)
            task.add_done_callback(lambda _: self._discard(unread))
        self._user_left()

    def _discard(self, response: aiohttp.ClientResponse) -> None:
        _close(response)  # a task that was cancelled before its first step has not closed it
        self._slots.release()

    def _user_left(self) -> None:
        self._users -= 1
        if self._closing and not self._users:  # not awaited: the caller has its result, and may be cancelled
            self._closing_task = asyncio.create_task(self._close_connectors())

    async def post(self, url: URL, headers: Headers, body: bytes) -> aiohttp.ClientResponse:
        """Sends a request and returns the response once its head has arrived."""
        try:
            return await self._exchange(self._persistent, _Response, url, headers, body)
        except _StaleConnection:
            return await self._exchange(self._single_use, aiohttp.ClientResponse, url, headers, body)

    async def _exchange(
        self,
        connector: _Connector,
        response_class: type[aiohttp.ClientResponse],
        url: URL,
        headers: Headers,
        body: bytes,
    ) -> aiohttp.ClientResponse:
        complete = self._headers.copy()
        complete.update(headers)
        request = _Request(
            "POST",
            url,
            headers=complete,
            data=_payload(body),
            loop=self._loop,
            response_class=response_class,
            proxy=self._proxy,
            timer=_NO_TIMER,
            ssl=self._tls,
        )
        try:
            connection = await connector.connect(request, [], _TIMEOUT)
        except aiohttp.ClientError:  # some of these are a TimeoutError too
            raise
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError from error
        except ValueError as error:  # of the codec for names: says nothing about the event
            raise aiohttp.ClientConnectionError("the name of the host cannot be resolved") from error
        try:
            assert connection.protocol is not None
            connection.protocol.set_response_params(
                timer=_NO_TIMER,
                read_until_eof=True,
                auto_decompress=False,
                max_line_size=HEAD_BYTES,
                max_field_size=HEAD_BYTES,
                max_headers=HEAD_LINES,
            )
            response = await request.send(connection)
            try:
                return await response.start(connection)
            except BaseException:
                response.close()
                raise
        except BaseException:
            connection.close()
            raise

    async def close(self) -> None:
        """Closes the connections. If requests are in flight, the last one closes them when it ends."""
        self._closing = True
        if self._unread:
            for task in self._unread:
                task.cancel()
            await asyncio.wait(self._unread)
        if not self._users:
            await self._close_connectors()

    async def _close_connectors(self) -> None:
        await self._persistent.close()
        await self._single_use.close()


class _StaleConnection(aiohttp.ClientError):
    """A kept connection broke before any part of the response arrived. The target may have closed it before the request
    arrived."""


class _Request(aiohttp.ClientRequest):
    """A request whose headers are complete. It neither copies nor extends them."""

    def update_headers(self, headers: Any) -> None:
        self.headers = headers

    def update_auto_headers(self, skip_auto_headers: Any) -> None:
        pass


class _Response(aiohttp.ClientResponse):
    """A response that distinguishes a stale connection from a target that hangs up."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        try:
            return await super().start(connection)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if isinstance(protocol, _Protocol) and protocol.is_stale:
                raise _StaleConnection from error
            raise


class _Protocol(ResponseHandler):
    """One connection. Knows whether the current exchange is its first, and whether any part of the response arrived.

    Data that arrives when no response is due closes the connection: aiohttp would keep it and take it for the response
    to the next request.

    The head of a response is parsed before the data that arrives with it. aiohttp would parse both together, and lose
    the status if the body is not valid HTTP, such as a 204 with a body.

    A target that sends more than `MOST_INTERIM` heads or empty lines before its response is cut off: aiohttp would
    parse them without end, and block the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._exchanges = 0
        self._response_began = False
        self._body: aiohttp.StreamReader | None = None  # of the response, once its head has arrived
        self._head_end = b""  # the latest bytes, in which the end of a head may begin
        self._interim = 0

    def close(self) -> None:
        """Closes the connection at once. aiohttp would wait until the target has read the whole request."""
        self.abort()

    @property
    def is_stale(self) -> bool:
        return self._exchanges > 1 and not self._response_began

    def set_response_params(self, **params: Any) -> None:
        self._exchanges += 1
        self._response_began, self._body, self._head_end, self._interim = False, None, b"", 0
        super().set_response_params(**params)

    def feed_data(self, data: tuple[RawResponseMessage, aiohttp.StreamReader], size: int = 0) -> None:
        code = data[0].code
        if self._body is None and (code >= 200 or code == 101):  # any other 1xx is followed by another head
            self._body = data[1]
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        if self._interim > MOST_INTERIM:
            return
        while data:
            if not self._exchanges or (self._body is not None and self._body.is_eof()):
                self.force_close()
                self.close()
                return
            self._response_began = True
            seen = self._head_end + data
            end = _end_of_head(seen) if self._body is None else None
            if end is None:
                self._head_end = seen[-2:]
                break
            length = end.end() - len(self._head_end)
            self._head_end = b""
            super().data_received(data[:length])
            data = data[length:]
            if self._body is None:
                self._skip_interim()
            if not data or self.exception() is not None:
                return
        super().data_received(data)

    def _skip_interim(self) -> None:
        self._interim += 1
        if self._interim > MOST_INTERIM:
            # The reader of the response closes the connection: closed here, the request would fail with another error.
            self.set_exception(HttpProcessingError(message=f"it has more than {MOST_INTERIM} interim responses"))


class _Connector(aiohttp.TCPConnector):
    """Opens connections that use `_Protocol`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory: Any = partial(_Protocol, loop=self._loop)


def _close(response: aiohttp.ClientResponse) -> None:
    if response.connection is not None:
        response.connection.close()


def _payload(body: bytes) -> aiohttp.payload.Payload:
    """Wraps a body. Measured to be faster, or to need less memory, than passing plain bytes to aiohttp."""
    if len(body) <= WRITE_BYTES:
        return aiohttp.BytesPayload(body)
    return aiohttp.BytesIOPayload(io.BytesIO(body))


def proxy_for(url: URL) -> URL | None:
    """Returns the proxy of HTTPS_PROXY and similar variables, unless NO_PROXY exempts the host."""
    proxies = getproxies()
    found = proxies.get(url.scheme) or proxies.get("all")
    if not found or proxy_bypass(url.host_port_subcomponent or ""):
        return None
    try:
        proxy = URL(found if "://" in found else f"http://{found}")
    except ValueError:
        raise UsageError("the proxy in the environment cannot be used: it is not a valid URL") from None
    try:
        (proxy.host or "").encode("idna")
    except UnicodeError:
        raise UsageError("the proxy in the environment cannot be used: its host is not valid") from None
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise UsageError("the proxy in the environment cannot be used: it must be http:// or https://")
    return proxy


def tls_context(*urls: URL | None) -> ssl.SSLContext | bool:
    """Returns the TLS settings: trusts the authorities in the file SSL_CERT_FILE, or else those of the system."""
    if not any(url is not None and url.scheme == "https" for url in urls):
        return True
    file = os.environ.get("SSL_CERT_FILE") or None
    try:
        context = ssl.create_default_context(cafile=file)
    except (OSError, ValueError) as error:
        raise UsageError(f"the file in SSL_CERT_FILE cannot be used: {error}") from error
    context.set_alpn_protocols(["http/1.1"])
    return context


async def read_start(response: aiohttp.ClientResponse, seconds: float | None = None, most: int = BODY_BYTES) -> bytes:
    """Reads the start of a body, within limits of size and time. If the exchange has ended then, the connection can be
    used again; otherwise it is closed.

    The status has already decided the outcome, so a cancelled caller gets the part that arrived and continues.
    """
    content, found = response.content, b""
    try:
        with suppress(Exception, asyncio.CancelledError):
            async with asyncio.timeout(BODY_SECONDS if seconds is None else min(seconds, BODY_SECONDS)):
                while len(found) < most and not content.at_eof():
                    found += await content.read(most - len(found))
                if content.at_eof():
                    await response.wait_for_close()  # the request may still be on its way
    finally:
        _close(response)
    return b"" if response.headers.get("content-encoding", "identity") != "identity" else found
