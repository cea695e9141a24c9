"""A service on a real server for tests of its security, and plain requests to it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest

from redbox import Box
from redbox.service.app import create_app
from redbox.service.boxes import Boxes
from redbox.service.http.listening import Address
from redbox.service.http.pool import Limits
from redbox.service.http.server import HttpServer
from redbox.service.http.tokens import Tokens, parse
from redbox.service.options import ServiceOptions

INGEST, READ, OPERATE = "i" * 32, "r" * 32, "o" * 32
LINES = f"shop ingest {INGEST}\nviewer read {READ}\n# a comment\n\nalice ingest,operate {OPERATE}\n"
#: Litestar warns of parameters whose kind it infers, and of old ways to declare them.
QUIET = pytest.mark.filterwarnings("ignore::DeprecationWarning")
EVENT = b'{"event_type": "a", "payload": {"id": 42}}'


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def tokens() -> Tokens:
    return Tokens(None, parse(LINES, "test"))


@asynccontextmanager
async def serving(
    box: Box, *, limits: Limits | None = None, address: Address | None = None, **options: Any
) -> AsyncIterator[HttpServer]:
    boxes = Boxes(box)
    app = create_app(boxes, ServiceOptions(**options))
    async with HttpServer(app, address or Address(), limits) as server:
        yield server


async def request(
    server: HttpServer, method: str, path: str, body: bytes = b"", *, tls: ssl.SSLContext | None = None, **headers: str
) -> Response:
    """Sends one request; `_` in the name of a header is `-`. By default its Host is the address of the server."""
    sent = {"host": f"127.0.0.1:{server.port}", "connection": "close"}
    if body:
        sent |= {"content-length": str(len(body)), "content-type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items() if value), "", ""]
    return await exchange(server, "\r\n".join(lines).encode() + body, tls)


async def exchange(server: HttpServer, raw: bytes, tls: ssl.SSLContext | None = None) -> Response:
    """Sends these bytes, and reads until the server closes the connection."""
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)
        writer.write(raw)
        response = read(await reader.read())
        writer.close()
    return response


def read(raw: bytes) -> Response:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return Response(int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body)
