"""Requests that are sent before the answer to the one before: answered in order, and few of them are kept."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import pytest

from redbox import Box
from redbox.service.http.connections import LimitedConnection
from redbox.service.http.pool import Limits
from redbox.service.http.server import HttpServer
from tests.service.exchange import QUIET, exchange, request, serving, tokens

pytestmark = [pytest.mark.req("SF-5"), pytest.mark.timeout(60), QUIET]

GET = b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n"


def put(event_id: str, *headers: str) -> bytes:
    body = b'{"event_type": "a", "event_id": "%s"}' % event_id.encode()
    lines = ["POST /v1/events HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def statuses(raw: bytes) -> list[int]:
    return [int(part.split(maxsplit=1)[0]) for part in raw.split(b"HTTP/1.1 ")[1:]]


async def send(server: HttpServer, *parts: bytes) -> bytes:
    """Sends the parts one after the other, and reads until the server closes the connection."""
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)
        answers = await reader.read()
        writer.close()
    return answers


@pytest.mark.parametrize("junk", [b"GARBAGE\r\n\r\n", b"\0", b"xx", b"}", b"GET / RTSP/1.0\r\n\r\n", b"x" * 100_000])
@pytest.mark.parametrize("count", [1, 3])
async def test_complete_requests_are_answered_before_invalid_bytes_are_refused(
    redbox_box: Box, caplog: pytest.LogCaptureFixture, junk: bytes, count: int
):
    names = [f"e{number}" for number in range(count)]
    async with serving(redbox_box) as server:
        answers = await send(server, b"".join(map(put, names)) + junk)
    assert statuses(answers) == [202] * count + [400]
    assert [(await redbox_box.get(name)).event_id for name in names] == names
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_invalid_bytes_in_a_later_segment_leave_the_request_before_its_answer(redbox_box: Box):
    async with serving(redbox_box) as server:
        assert statuses(await send(server, put("a") + put("b"), b"\0")) == [202, 202, 400]


@pytest.mark.parametrize("size", [1, 7, 50, 1_000])
async def test_requests_are_answered_in_order_however_they_are_cut(redbox_box: Box, size: int):
    """Also if a body looks like the first line of a request."""
    like = put("a").replace(b'"a"}', b'"GET / HTTP/"}').replace(b"Length: 36", b"Length: 46")
    raw = put("a") + GET + like + put("b") + b"\r\n" + GET + put("c", "Connection: close")
    async with serving(redbox_box) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**20)
        writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(raw), size):
            writer.write(raw[at : at + size])
            await writer.drain()
        answers = await asyncio.wait_for(reader.read(), 20)
        writer.close()
    assert statuses(answers) == [202, 200, 422, 202, 200, 202]  # it is no event id


async def test_a_body_of_known_length_is_read_in_few_parts(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    """Although parts end where the first line of a request might: a log of requests is full of such places."""
    parts, parse = 0, LimitedConnection._parse

    def count(connection: LimitedConnection, data: bytes) -> None:
        nonlocal parts
        parts += 1
        parse(connection, data)

    monkeypatch.setattr(LimitedConnection, "_parse", count)
    body = b'{"event_type": "a", "payload": "%s"}' % (b"GET / HTTP/1.1 " * 50_000)
    head = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with serving(redbox_box) as server:
        assert statuses(await send(server, head + body + put("a", "Connection: close"))) == [202, 202]
    assert parts < 500


async def test_a_request_after_one_that_closes_the_connection_is_not_handled(redbox_box: Box):
    async with serving(redbox_box) as server:
        assert statuses(await send(server, put("a", "Connection: close") + put("b") * 1000)) == [202]
    assert await redbox_box.get("a") is not None


def connections(server: HttpServer) -> list[LimitedConnection]:
    assert server._server is not None
    found: list[Any] = list(server._server.server_state.connections)
    return found


@pytest.mark.parametrize(
    "one", [GET, put("a"), b"GET / HTTP/1.1\r\n\r\n", b"GET /\r\n\r\n", b"OPTIONS * RTSP/1.0\r\n\r\n"]
)
@pytest.mark.parametrize("protected", [True, False])
async def test_a_client_that_does_not_read_its_answers_is_soon_unable_to_send(
    redbox_box: Box, one: bytes, protected: bool
):
    async with serving(redbox_box, tokens=tokens() if protected else None) as server:
        client = socket.create_connection(("127.0.0.1", server.port))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.setblocking(False)
        data = one * (2**20 // len(one))
        sent, stalled = 0, 0
        while stalled < 100:  # turns of the event loop in which nothing was accepted
            try:
                sent, stalled = sent + client.send(data), 0
            except BlockingIOError:
                stalled += 1
            except ConnectionError:
                break
            await asyncio.sleep(0.002)
            for each in connections(server):
                assert not each.pipeline
                assert each.buffered <= 512 * 1024
        assert (await request(server, "GET", "/livez")).status == 200
        client.close()


async def test_waiting_requests_count_as_bodies(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    """The connection with most of them gets an answer to its complete request, and then 503."""
    go = asyncio.Event()
    real = type(redbox_box).put

    async def wait(*arguments: Any, **options: Any) -> Any:
        await go.wait()
        return await real(*arguments, **options)

    monkeypatch.setattr(type(redbox_box), "put", wait)
    last = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with serving(redbox_box, limits=Limits(bodies=100_000)) as server:
        clients = [asyncio.create_task(send(server, put(name) + GET * 2_000 + last)) for name in "abc"]
        async with asyncio.timeout(20):
            while sum(each._failure is not None for each in connections(server)) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert sum(each.buffered for each in connections(server)) <= 100_000
        go.set()
        answers = sorted([statuses(each) for each in await asyncio.gather(*clients)], key=len)
    assert answers == [[202, 503], [202, 503], [202] + [200] * 2_001]


async def test_a_transfer_coding_other_than_chunked_is_refused(redbox_box: Box):
    body = b'{"event_type": "a"}'
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    async with serving(redbox_box) as server:
        for version, coding, status in [
            (b"1.1", b"Transfer-Encoding: gzip, chunked", 501),
            (b"1.1", b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 501),
            (b"1.0", b"Transfer-Encoding: chunked", 400),
            (b"1.1", b"Transfer-Encoding: Chunked\r\nConnection: close", 202),
        ]:
            head = b"POST /v1/events HTTP/%s\r\nHost: localhost\r\n%s\r\n\r\n" % (version, coding)
            assert (await exchange(server, head + chunks)).status == status
