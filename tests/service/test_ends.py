"""How connections end: clients that send no more, and a service that ends. Each request that arrived is answered."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from redbox import Box
from redbox.service.http import server as servers
from tests.service.exchange import EVENT, QUIET, read, serving

pytestmark = [pytest.mark.req("SF-1", "SF-5"), pytest.mark.timeout(60), QUIET]

HEAD = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\n"
PUT = HEAD + b"Content-Length: %d\r\n\r\n" % len(EVENT) + EVENT


def problems(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


class SlowPut:
    """Puts wait until `go` is set; `began` is set by the first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()
        put = Box.put

        async def wait(*arguments: Any, **options: Any) -> Any:
            self.began.set()
            await self.go.wait()
            return await put(*arguments, **options)

        monkeypatch.setattr(Box, "put", wait)


@pytest.mark.parametrize("rest", [b"", b"POST /v1/ev"])
@pytest.mark.parametrize("count", [1, 3])
async def test_a_client_that_sends_no_more_gets_its_answers(redbox_box: Box, count: int, rest: bytes):
    async with serving(redbox_box) as server, asyncio.timeout(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(PUT * count + rest)
        writer.write_eof()
        answers = await reader.read()
        writer.close()
    assert answers.count(b"HTTP/1.1 202 ") == answers.count(b"HTTP/1.1 ") == count
    assert answers.count(b"connection: close\r\n") == 1
    assert (await redbox_box.stats()).phases["AVAILABLE"] == count


async def test_a_client_that_sends_no_more_may_wait_for_its_answer(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    slow = SlowPut(monkeypatch)
    async with serving(redbox_box) as server, asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(PUT)
        await slow.began.wait()
        writer.write_eof()
        await asyncio.sleep(0.2)
        slow.go.set()
        assert read(await reader.read()).status == 202
        writer.close()


async def test_half_a_body_and_no_more_stores_nothing(redbox_box: Box):
    async with serving(redbox_box) as server, asyncio.timeout(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(PUT[:-1])
        writer.write_eof()
        assert b" 202 " not in await reader.read()
        writer.close()
    assert (await redbox_box.stats()).phases["AVAILABLE"] == 0


@pytest.mark.parametrize("body", [b"Content-Length: 40\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{"])
async def test_half_a_body_is_refused_when_the_service_ends(
    redbox_box: Box, body: bytes, caplog: pytest.LogCaptureFixture
):
    async with serving(redbox_box) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HEAD + body)
        await writer.drain()
        await asyncio.sleep(0.2)
        began = time.monotonic()
        answer = asyncio.create_task(reader.read())
    response = read(await answer)  # the client reads, and does not close the connection
    assert time.monotonic() - began < 3
    assert response.status == 503
    assert response.headers["connection"] == "close"
    assert response.headers["retry-after"] == "1"
    assert response.json["error"] == "SERVICE_UNAVAILABLE"
    writer.close()
    assert not problems(caplog)


async def test_a_request_that_is_being_answered_is_answered_when_the_service_ends(
    redbox_box: Box, monkeypatch: pytest.MonkeyPatch
):
    slow = SlowPut(monkeypatch)
    async with serving(redbox_box) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(PUT)
        await slow.began.wait()
        asyncio.get_running_loop().call_later(0.5, slow.go.set)
    assert read(await reader.read()).status == 202
    writer.close()


async def test_a_request_without_an_answer_after_the_grace_time_may_be_repeated(
    redbox_box: Box, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(servers, "GRACE_SECONDS", 1)
    slow = SlowPut(monkeypatch)
    async with serving(redbox_box) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(PUT)
        await slow.began.wait()
    response = read(await reader.read())
    assert (response.status, response.headers["connection"]) == (503, "close")
    assert "may be stored" in response.json["detail"]
    writer.close()
    assert not problems(caplog)
