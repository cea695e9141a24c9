"""`nats://host:port/subject`: one message per event, acknowledged by the JetStream stream that stored it."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Sequence
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote

from redbox.arguments import invalid, number, text
from redbox.errors import InvalidURL, Reject, Unavailable, UsageError
from redbox.events import Claim
from redbox.publishers.base import Publisher, closed, not_open
from redbox.publishers.calls import chunks
from redbox.publishers.nats.connection import Connection
from redbox.publishers.nats.messages import SUBJECT_KIND, Composer, Message, is_subject
from redbox.publishers.options import header_text, parse_number
from redbox.publishers.redaction import redactor
from redbox.publishers.templates import Template
from redbox.urls import problem, read_host, read_url

URL_KIND: Final = "a valid nats:// URL"
FORM: Final = "the URL of a target is nats://host:port/subject, such as nats://localhost:4222/orders.{event_type}"
PORT: Final = 4222
TIMEOUT: Final = 10.0
CHUNK_BYTES: Final = 4 * 1024 * 1024

_is_prefix = re.compile(r"[^\s.*>]+(?:\.[^\s.*>]+)*").fullmatch


class NATSPublisher(Publisher):
    """Publishes to JetStream, many events in one round trip. A lost connection fails the events that wait for an
    acknowledgement; the next attempt connects again."""

    many: ClassVar[int] = 500
    secrets: ClassVar[frozenset[str]] = frozenset({"password", "token"})

    def __init__(
        self,
        url: str,
        *,
        stream: str | None = None,
        msg_id: str = "{event_id}",
        source: str | None = None,
        timeout: float | str = TIMEOUT,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        credentials: str | None = None,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        inbox_prefix: str = "_INBOX",
    ) -> None:
        parts = read_url(url, URL_KIND)
        login, _, where = parts.netloc.rpartition("@")
        hosts = [read_host(each, PORT, URL_KIND) for each in where.split(",")]
        if not all(host for host, _ in hosts):
            raise InvalidURL(FORM)
        if parts.query:
            raise problem(URL_KIND, "it takes no options after a ?; give them as options of the target")
        subject = unquote(parts.path.removeprefix("/")) or "{event_type}"
        self._subject = Template("the subject", subject)
        if self._subject.constant is not None and not is_subject(subject):
            raise problem(URL_KIND, f"its path is not {SUBJECT_KIND}")
        self._target = f"{parts.scheme}://{where}/{subject}"
        self._msg_id = Template("msg_id", text("msg_id", msg_id))
        if "event_id" not in self._msg_id.fields:
            raise invalid("msg_id", "must contain {event_id}: a stream discards a second message with the same id")
        self._stream = None if stream is None else header_text("stream", stream)
        self._source = None if source is None else header_text("source", source)
        self._timeout = number("timeout", parse_number(timeout))
        if self._timeout <= 0:
            raise invalid("timeout", "must be more than 0 seconds")
        self._inbox_prefix = text("inbox_prefix", inbox_prefix)
        if not _is_prefix(self._inbox_prefix):
            raise invalid("inbox_prefix", "must be a subject without wildcards, such as _INBOX")
        self._encrypted = parts.scheme != "nats"
        known = _login(login, user, password, token, credentials)
        self._redact = redactor([known[name] for name in self.secrets if name in known])
        self._options: dict[str, Any] = {
            **known,
            "servers": [f"nats://{f'[{host}]' if ':' in host else host}:{port}" for host, port in hosts],
            "tls": _tls_context(ca_file, cert_file, key_file),
        }
        self._composer: Composer | None = None
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None

    @property
    def target(self) -> str:
        return self._target

    async def open(self, box: str) -> None:
        self._composer = Composer(self._subject, self._msg_id, self._stream, self._source, box)
        self._connection = self._connecting = None  # a connection of another event loop cannot be used

    async def aclose(self) -> None:
        self._composer = None
        connecting, self._connecting = self._connecting, None
        if connecting is not None and not connecting.done():
            connecting.cancel()
            await asyncio.wait([connecting])
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def publish(self, claim: Claim) -> None:
        (problem,) = await self.publish_many((claim,))
        if problem is not None:
            raise problem

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        if self._composer is None:
            raise not_open()
        outcomes: list[BaseException | None] = [None] * len(claims)
        messages: list[Message] = []
        for place, claim in enumerate(claims):
            try:
                messages.append(self._composer.message(place, claim))
            except Reject as error:
                outcomes[place] = error
        sent, deadline = 0, float("inf")
        try:
            for chunk in chunks(messages, attrgetter("size"), CHUNK_BYTES):
                connection = await self._connected()
                now = asyncio.get_running_loop().time()
                if not sent:
                    deadline = now + self._timeout
                elif now >= deadline:
                    raise Unavailable("NATS: not sent, because earlier events of the call took too long", excuse=True)
                await connection.send(chunk, outcomes, deadline=deadline, seconds=self._timeout)
                sent += len(chunk)
        except Unavailable as error:
            for message in messages[sent:]:
                outcomes[message.place] = error
        return outcomes

    async def _connected(self) -> Connection:
        """Returns the connection. Calls that need a new one at the same time share it."""
        if self._composer is None:
            raise closed()
        if self._connection is not None and self._connection.is_usable:
            return self._connection
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.ensure_future(self._connect())
            self._connecting.add_done_callback(_seen)  # all who waited for it may have been cancelled
        connecting = self._connecting
        # Not awaited itself: a cancelled call must not cancel the connection of others.
        await asyncio.wait([connecting])
        if connecting.cancelled():
            raise closed()
        error = connecting.exception()
        if isinstance(error, Unavailable):
            raise Unavailable(error.message) from error
        return connecting.result()

    async def _connect(self) -> Connection:
        connection = Connection(self._inbox_prefix, self._redact, encrypted=self._encrypted)
        await connection.connect({**self._options, "inbox_prefix": self._inbox_prefix})
        self._connection = connection
        return connection


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _login(
    login: str, user: str | None, password: str | None, token: str | None, credentials: str | None
) -> dict[str, Any]:
    """Returns the login of the URL or of the options, as arguments of nats-py."""
    name, colon, secret = login.partition(":")
    found = {"user": unquote(name), "password": unquote(secret)} if colon else {"token": unquote(name)} if name else {}
    options = {"user": user, "password": password, "token": token, "credentials": credentials}
    given = {each: header_text(each, value) for each, value in options.items() if value is not None}
    if found and given:
        raise UsageError("give the login either in the URL or as options, not both")
    if ("user" in given) != ("password" in given):
        raise UsageError("user and password belong together")
    if "credentials" in given:
        path = given.pop("credentials")
        if not _is_file(path):
            raise invalid("credentials", "must be the path of a .creds file")
        try:
            import_module("nkeys")
        except ModuleNotFoundError:
            raise UsageError("credentials need the package nkeys: pip install 'nats-py[nkeys]'") from None
        given["user_credentials"] = path
    return found or given


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # such as a name that is too long
        return False


def _tls_context(ca_file: str | None, cert_file: str | None, key_file: str | None) -> ssl.SSLContext | None:
    """Returns the context for these files; without any, nats-py makes one when it needs it."""
    if ca_file is cert_file is key_file is None:
        return None
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if cert_file is not None:
            context.load_cert_chain(cert_file, key_file)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"ca_file, cert_file or key_file cannot be used: {error}") from None
    return context
