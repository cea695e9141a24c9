"""Clients that ask for another protocol get HTTP/1.1, and their bodies are read as a whole.

`java.net.http.HttpClient` and `curl --http2` ask for HTTP/2 in each first request over plain HTTP.
"""

from __future__ import annotations

import asyncio
import shutil

import pytest

from redbox import Box
from redbox.service.http.pool import Limits
from redbox.service.http.server import HttpServer
from tests.service.exchange import QUIET, exchange, serving

pytestmark = [pytest.mark.req("SF-1"), pytest.mark.timeout(60), QUIET]

UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
PAYLOAD = b'{"x":1}'
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n3\r\n" + PAYLOAD[:3] + b"\r\n4;a=b\r\n" + PAYLOAD[3:] + b"\r\n0\r\n"
#: A body with its length, in chunks, and in chunks with trailers.
BODIES = [b"Content-Length: 7\r\n\r\n" + PAYLOAD, CHUNKED + b"\r\n", CHUNKED + b"Upgrade: h2c\r\nT: t\r\n\r\n"]


def put(event_id: str, body: bytes, more: bytes = UPGRADE) -> bytes:
    """A request with a CloudEvent in binary mode."""
    head = f"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nce-specversion: 1.0\r\nce-id: {event_id}\r\n"
    return head.encode() + b"ce-source: /s\r\nce-type: t\r\nContent-Type: application/json\r\n" + more + body


async def send(server: HttpServer, *parts: bytes) -> bytes:
    """Sends parts with a pause between them, and reads the answers until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.05)
    answers = await reader.read()
    writer.close()
    return answers


async def stored(box: Box, event_id: str) -> bytes | None:
    record = await box.get(event_id)
    return None if record is None else record.event.encode()[0]


@pytest.mark.parametrize("body", BODIES)
async def test_an_upgrade_is_ignored_and_the_body_read_wherever_the_packets_end(redbox_box: Box, body: bytes):
    close = b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    limits = Limits(head_seconds=50, body_seconds=50)
    async with serving(redbox_box, limits=limits) as server:
        cuts = range(1, len(put("at-000", body) + close))
        sent = (put(f"at-{cut:03}", body) + close for cut in cuts)
        answers = await asyncio.gather(
            *(send(server, each[:cut], each[cut:]) for each, cut in zip(sent, cuts, strict=True))
        )
        for cut, answer in zip(cuts, answers, strict=True):
            assert answer.startswith(b"HTTP/1.1 202 "), (cut, answer)
            assert answer.count(b"HTTP/1.1 200 ") == 1, (cut, answer)
            assert await stored(redbox_box, f"at-{cut:03}") == PAYLOAD, cut


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_pipelined_requests_with_an_upgrade_are_all_read(redbox_box: Box, size: int):
    raw = b"".join(put(f"{number}", body) for number, body in enumerate(BODIES * 2))
    raw += b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + b"\r\n"
    raw += put("plain", BODIES[0], b"") + put("last", BODIES[0], b"Connection: Upgrade, close\r\nUpgrade: h2c\r\n")
    async with serving(redbox_box) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for start in range(0, len(raw), size):
            writer.write(raw[start : start + size])
            await writer.drain()
            await asyncio.sleep(0)
        answers = await asyncio.wait_for(reader.read(), 20)
        writer.close()
    assert answers.count(b"HTTP/1.1 202 ") == 8
    assert answers.count(b"HTTP/1.1 200 ") == 1
    assert answers.count(b"HTTP/1.1 ") == 9
    for event_id in (*(str(number) for number in range(6)), "plain", "last"):
        assert await stored(redbox_box, event_id) == PAYLOAD


async def test_a_large_body_with_an_upgrade_is_read_as_a_whole(redbox_box: Box):
    payload = b'"' + b"x" * 900_000 + b'"'
    async with serving(redbox_box) as server:
        close = b"Connection: Upgrade, close\r\nUpgrade: websocket\r\n"
        response = await exchange(server, put("big", b"Content-Length: 900002\r\n\r\n" + payload, close))
    assert response.status == 202
    assert await stored(redbox_box, "big") == payload


async def test_a_head_with_an_upgrade_is_bounded_too(redbox_box: Box):
    async with serving(redbox_box) as server:
        many = UPGRADE + b"X: y\r\n" * 8_000
        assert (await exchange(server, put("a", BODIES[0], many))).status == 431
    assert await stored(redbox_box, "a") is None


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_may_ask_for_http2(redbox_box: Box):
    async with serving(redbox_box) as server:
        url = f"http://127.0.0.1:{server.port}/v1/events"
        headers = ["ce-specversion: 1.0", "ce-source: /s", "ce-type: t", "content-type: application/json"]
        process = await asyncio.create_subprocess_exec(
            "curl", "-s", "--http2", "-w", "%{http_code}", "-o", "/dev/null", "-d", PAYLOAD.decode(),
            *(part for each in (*headers, "ce-id: curl") for part in ("-H", each)), url,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
    assert out == b"202"
    assert await stored(redbox_box, "curl") == PAYLOAD


@pytest.mark.req("SF-5")
@pytest.mark.parametrize("raw", [b"CONNECT example.org:1 HTTP/1.1\r\n", b"CONNECT / HTTP/1.1\r\nContent-Length: 2\r\n"])
async def test_a_tunnel_is_refused_with_an_answer(redbox_box: Box, raw: bytes):
    async with serving(redbox_box) as server:
        response = await exchange(server, raw + b"Host: localhost\r\n\r\n{}")
    assert response.status == 400
    assert response.headers["connection"] == "close"
    assert "CONNECT" in response.json["detail"]
