"""Slow, silent and greedy clients: they hold little, for a short time, and keep nobody out."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from redbox import Box
from redbox.service.http.pool import Limits
from redbox.service.http.server import HttpServer
from tests.service.exchange import EVENT, INGEST, QUIET, exchange, read, request, serving, tokens

pytestmark = [pytest.mark.req("SF-5"), pytest.mark.timeout(60), QUIET]

HEAD = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\n"


@asynccontextmanager
async def connected(server: HttpServer) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def drip(server: HttpServer, start: bytes, byte: bytes = b"x") -> bytes:
    """Sends a start, and then a byte now and then, until the server ends the connection."""
    async with connected(server) as (reader, writer):
        writer.write(start)
        answer = asyncio.create_task(reader.read())
        async with asyncio.timeout(20):
            while not answer.done():
                writer.write(byte)
                await asyncio.wait([answer], timeout=0.05)
        return answer.result() if answer.exception() is None else b""


async def flood(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Sends data until the connection breaks."""
    async with asyncio.timeout(20):
        while True:
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("start", "byte"),
    [
        (b"", b"\r\n"),
        (b"GET /v1 HTT", b"P"),
        (HEAD + b"X: ", b"x"),
        (HEAD + b"Content-Length: 100000\r\n\r\n", b"x"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
)
async def test_a_byte_now_and_then_does_not_hold_a_connection(redbox_box: Box, start: bytes, byte: bytes):
    limits = Limits(head_seconds=0.5, body_seconds=0.5)
    async with serving(redbox_box, limits=limits) as server:
        slow = [asyncio.create_task(drip(server, start, byte)) for _ in range(5)]
        await asyncio.sleep(0)
        assert (await request(server, "POST", "/v1/events", EVENT)).status == 202  # others are not affected
        answers = await asyncio.gather(*slow)
    for answer in answers:
        assert not answer or read(answer).status in (400, 408)


async def test_a_request_in_time_is_answered_on_a_kept_connection_too(redbox_box: Box):
    limits = Limits(head_seconds=1, body_seconds=1)
    async with serving(redbox_box, limits=limits) as server, connected(server) as (reader, writer):
        for _ in range(2):
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(EVENT) + EVENT[:5])
            await asyncio.sleep(0.2)
            writer.write(EVENT[5:])
            assert b" 202 " in await reader.readuntil(b"\r\n")
            await reader.readuntil(b"}")
            await asyncio.sleep(2)  # idle between two requests is permitted
        writer.write(HEAD + b"Content-Length: 9\r\n\r\n{")
        assert read(await reader.read()).status == 408


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 8_000 + b"\r\n",
    ],
)
async def test_the_head_of_a_request_is_bounded(redbox_box: Box, raw: bytes):
    async with serving(redbox_box) as server:
        assert (await exchange(server, raw)).status == 431
        assert (await request(server, "GET", "/v1")).status == 200


@pytest.mark.parametrize("endless", [b"X: y\r\n", b"x"])
async def test_trailers_without_end_are_not_collected(redbox_box: Box, endless: bytes):
    async with serving(redbox_box) as server, connected(server) as (reader, writer):
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nT: ")
        with pytest.raises(ConnectionError):
            await flood(writer, endless * 10_000)
        reader.feed_eof()


async def test_more_connections_than_permitted_end_the_idle_ones(redbox_box: Box):
    async with serving(redbox_box, limits=Limits(connections=5)) as server:
        idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(5)]
        for _ in range(3):
            assert (await request(server, "GET", "/v1")).status == 200
        assert await asyncio.wait_for(idle[0][0].read(), 5) == b""  # the one that was idle for longest
        for _, writer in idle:
            writer.close()


async def test_slow_bodies_on_all_connections_keep_nobody_out(redbox_box: Box):
    async with serving(redbox_box, limits=Limits(connections=5)) as server:
        slow = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(5)]
        for _, writer in slow:
            writer.write(HEAD + b"Content-Length: 1000\r\n\r\n{")
        await asyncio.sleep(0.2)
        assert (await request(server, "POST", "/v1/events", EVENT)).status == 202
        assert read(await asyncio.wait_for(slow[0][0].read(), 5)).status == 503
        for _, writer in slow:
            writer.close()


async def test_connections_that_are_answered_are_not_ended_for_others(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    go = asyncio.Event()

    async def wait(*_: Any, **__: Any) -> bool:
        await go.wait()
        return True

    async with serving(redbox_box, limits=Limits(connections=2)) as server:
        with monkeypatch.context() as patch:
            patch.setattr(redbox_box, "put", wait)
            busy = [asyncio.create_task(request(server, "POST", "/v1/events", EVENT)) for _ in range(2)]
            await asyncio.sleep(0.3)
            refused = await request(server, "GET", "/v1")
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            patch.undo()
        go.set()
        await asyncio.gather(*busy)
        assert (await request(server, "GET", "/v1")).status == 200


async def test_clients_that_do_not_read_their_answers_keep_nobody_out(redbox_box: Box):
    limits = Limits(connections=5, unread_seconds=0.2)
    get = b"GET /schema HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with serving(redbox_box, limits=limits) as server:
        deaf = [await asyncio.open_connection("127.0.0.1", server.port, limit=1024) for _ in range(5)]
        for _, writer in deaf:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            writer.write(get * 100)  # the answers fit in no buffer
        async with asyncio.timeout(20):
            while (await request(server, "GET", "/v1")).status != 200:  # noqa: ASYNC110  # until they are known
                await asyncio.sleep(0.1)
        for _ in range(4):
            assert (await request(server, "GET", "/v1")).status == 200
        for _, writer in deaf:
            writer.transport.abort()


async def test_the_bodies_of_all_requests_together_are_bounded(redbox_box: Box):
    async with serving(redbox_box, limits=Limits(bodies=100_000)) as server:
        slow = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        for (_, writer), size in zip(slow, (30_000, 50_000, 30_000), strict=True):
            writer.write(HEAD + b"Content-Length: 60000\r\n\r\n" + b"x" * size)
            await writer.drain()
            await asyncio.sleep(0.2)
        assert read(await asyncio.wait_for(slow[1][0].read(), 5)).status == 503  # the largest
        assert (await request(server, "POST", "/v1/events", EVENT)).status == 202
        for _, writer in slow:
            writer.close()
        for _ in range(5):  # what was received is given back
            large = b'{"event_type": "a", "payload": "' + b"x" * 80_000 + b'"}'
            assert (await request(server, "POST", "/v1/events", large)).status == 202


async def test_a_client_that_does_not_read_is_left(redbox_box: Box):
    async with serving(redbox_box, limits=Limits(write_seconds=0.5)) as server, connected(server) as (reader, writer):
        get = b"GET /schema HTTP/1.1\r\nHost: localhost\r\n\r\n"
        reader._transport.pause_reading()
        with pytest.raises(ConnectionError):
            await flood(writer, get * 50)
        assert (await request(server, "GET", "/v1")).status == 200


async def test_pipelined_requests_are_answered_in_order(redbox_box: Box):
    async with serving(redbox_box) as server:
        get = b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        last = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        async with connected(server) as (reader, writer):
            writer.write(get * 3 + last)
            answer = await asyncio.wait_for(reader.read(), 20)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.rindex(b"HTTP/1.1 404") > answer.rindex(b"HTTP/1.1 200 OK")


async def test_another_protocol_is_not_switched_to(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    async with serving(redbox_box) as server:
        response = await request(server, "GET", "/v1", connection="Upgrade, close", upgrade="websocket")
    assert response.status == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


CHUNK = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
REFUSED_EARLY = [
    (b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\n", 401),
    (b"POST /nothing HTTP/1.1\r\nHost: localhost\r\n", 404),
    (b"POST /v1/events HTTP/1.1\r\nHost: evil.example\r\n", 421),
]


@pytest.mark.parametrize(("head", "status"), REFUSED_EARLY)
async def test_a_body_whose_request_was_answered_ends_no_other_request(redbox_box: Box, head: bytes, status: int):
    limits = Limits(bodies=200_000, discard_bytes=1_000_000, discard_seconds=60)  # the bytes end it, not the time
    login = b"Authorization: Bearer %s\r\n" % INGEST.encode()
    async with serving(redbox_box, limits=limits, tokens=tokens()) as server:
        async with connected(server) as (reader, writer), connected(server) as (greedy_reader, greedy):
            writer.write(HEAD + login + b"Content-Length: %d\r\n\r\n" % len(EVENT) + EVENT[:5])
            await writer.drain()
            await asyncio.sleep(0.2)
            greedy.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
            with pytest.raises(ConnectionError):  # it may send a bounded number of bytes
                await flood(greedy, CHUNK)
            writer.write(EVENT[5:])
            assert b" 202 " in await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)
            greedy_reader.feed_eof()
        assert status


@pytest.mark.parametrize(("head", "status"), REFUSED_EARLY)
async def test_a_client_that_is_still_sending_gets_its_answer(redbox_box: Box, head: bytes, status: int):
    """Not a reset, which a socket sends that is closed with unread bytes."""
    async with serving(redbox_box, tokens=tokens()) as server:
        for _ in range(5):
            async with connected(server) as (reader, writer):
                writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
                for _ in range(60):
                    writer.write(CHUNK)
                    await writer.drain()
                response = read(await asyncio.wait_for(reader.read(), 5))
            assert response.status == status
            assert response.headers["connection"] == "close"


async def test_a_client_that_goes_on_sending_after_its_answer_is_left(redbox_box: Box):
    limits = Limits(discard_seconds=0.2)
    async with serving(redbox_box, limits=limits, tokens=tokens()) as server, connected(server) as (reader, writer):
        writer.write(REFUSED_EARLY[0][0] + b"Transfer-Encoding: chunked\r\n\r\n")
        assert read(await asyncio.wait_for(reader.read(), 5)).status == 401
        with pytest.raises(ConnectionError):
            await flood(writer, b"1\r\nx\r\n")


async def test_a_refused_request_whose_body_has_arrived_keeps_its_connection(redbox_box: Box):
    async with serving(redbox_box, tokens=tokens()) as server, connected(server) as (reader, writer):
        for _ in range(3):
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(EVENT) + EVENT)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            assert b" 401 " in head
            assert b"connection: close" not in head
            await reader.readuntil(b"}")
