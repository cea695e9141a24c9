"""The HTTP publisher holds no connection longer than it needs it, and stores no part of a secret."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from redbox.errors import NotPublished, Reject, Unavailable, UsageError
from redbox.publishers.redaction import redactor
from redbox.testing.claims import new_claim
from tests.publishers.conftest import opened
from tests.publishers.target import Reply, http_target

LARGE = b"x" * 8_000_000  # more than the buffers of two sockets hold


def open_sockets() -> int:
    """Returns how many sockets this process has open."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            count += os.readlink(descriptor).startswith("socket:")
        except OSError:
            continue  # the descriptor of the listing itself
    return count


async def until_open_sockets(expected: int) -> None:
    async with asyncio.timeout(10):
        while open_sockets() > expected:  # noqa: ASYNC110  # the kernel sends no signal
            await asyncio.sleep(0.001)


@asynccontextmanager
async def listening(reply: bytes = b"", seconds: float = 0.0, *, endless: bool = False) -> AsyncIterator[str]:
    """A target that sends its reply `seconds` after a connection and reads nothing; without a reply it accepts none.
    `endless`: it sends the reply until the client closes the connection."""

    def respond() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                accepted.append(connection)
                time.sleep(seconds)
                connection.sendall(reply)
                with suppress(OSError):
                    while endless:
                        connection.sendall(reply)

    accepted = list[socket.socket]()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        thread = threading.Thread(target=respond if reply else lambda: None, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
        listener.shutdown(socket.SHUT_RD)  # ends the accept
    thread.join()
    for connection in accepted:
        connection.close()


@pytest.mark.req("PC-3")
async def test_a_body_that_is_not_read_does_not_keep_its_connection(redbox_runner):
    async with listening() as url:
        before = open_sockets()
        async with opened(url, max_connections=2) as publisher:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(publisher.publish(new_claim(LARGE)), 0.05)
            await until_open_sockets(before)


@pytest.mark.req("PC-3")
@pytest.mark.parametrize("seconds", [0.0, 0.05])
async def test_an_early_response_does_not_keep_its_connection(redbox_runner, monkeypatch, seconds: float):
    monkeypatch.setattr("redbox.publishers.http.connections.BODY_SECONDS", 0.05)
    async with listening(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", seconds) as url:
        before = open_sockets()
        async with opened(url, max_connections=2) as publisher:
            for _ in range(3):
                await asyncio.wait_for(publisher.publish(new_claim(LARGE)), 10)
            await until_open_sockets(before + 3)  # the target's ends


@pytest.mark.req("PC-3")
async def test_a_switch_of_protocols_closes_the_connection(redbox_runner, caplog):
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
    async with listening(upgrade) as url, opened(url, max_connections=1) as publisher:
        before = open_sockets()
        for _ in range(3):
            with pytest.raises(NotPublished, match="HTTP 101"):
                await publisher.publish(new_claim())
        await until_open_sockets(before + 3)  # the target's ends
    assert not caplog.records


async def longest_pause() -> float:
    """Measures until it is cancelled how long the event loop was blocked at most, in seconds."""
    longest, before = 0.0, time.monotonic()
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(0)
            now = time.monotonic()
            longest, before = max(longest, now - before), now
    return longest


@pytest.mark.req("PC-3")
@pytest.mark.parametrize("flood", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\nlink: x\n\n", b"\r\n"])
async def test_a_flood_of_interim_responses_ends_the_connection(redbox_runner, flood: bytes):
    async with listening(flood * 40_000, endless=True) as url, opened(url, max_connections=1) as publisher:
        before = open_sockets()
        measuring = asyncio.create_task(longest_pause())
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            for _ in range(3):
                with pytest.raises(NotPublished, match="is not valid HTTP: it has more than 16 interim responses"):
                    await publisher.publish(new_claim())
        measuring.cancel()
        assert await measuring < 0.1
        await until_open_sockets(before + 3)  # the target's ends


@pytest.mark.req("PC-3")
async def test_an_unread_body_does_not_hold_up_the_next_event(redbox_runner, monkeypatch):
    monkeypatch.setattr("redbox.publishers.http.connections.BODY_SECONDS", 60.0)
    monkeypatch.setattr("redbox.publishers.http.connections.SLOT_SECONDS", 0.01)
    async with http_target() as target, opened(target.url, max_connections=2) as publisher:
        target.reply = Reply(headers={"content-length": "9"}, body=b"abc")
        async with asyncio.timeout(10):
            for _ in range(3):
                await asyncio.gather(*(publisher.publish(new_claim()) for _ in range(2)))
        assert (len(target.requests), len(target.open)) == (6, 2)


@pytest.mark.req("PC-3")
async def test_unread_bodies_do_not_hold_up_the_last_event(redbox_runner, monkeypatch):
    """More events wait than bodies are unread when they begin to wait, and none comes after them."""
    monkeypatch.setattr("redbox.publishers.http.connections.BODY_SECONDS", 60.0)
    monkeypatch.setattr("redbox.publishers.http.connections.SLOT_SECONDS", 0.01)
    async with http_target() as target, opened(target.url, max_connections=2) as publisher:
        target.reply = Reply(headers={"content-length": "9"}, body=b"abc")
        async with asyncio.timeout(10):
            await asyncio.gather(*(publisher.publish(new_claim()) for _ in range(7)))
        assert len(target.requests) == 7


@pytest.mark.req("PC-1")
async def test_a_response_with_many_headers(redbox_runner):
    async with http_target() as target, opened(target.url) as publisher:
        target.reply = Reply(headers={f"x-{n}": "a" for n in range(400)})
        await publisher.publish(new_claim())


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example"])
async def test_a_proxy_whose_name_cannot_be_resolved_is_refused_at_the_start(redbox_runner, monkeypatch, host: str):
    monkeypatch.setenv("http_proxy", f"http://{host}:3128")
    with pytest.raises(UsageError, match="proxy"):
        async with opened("http://shop.example/hook"):
            pass


async def test_a_name_that_the_resolver_cannot_encode_is_unavailable(redbox_runner, monkeypatch):
    async def resolve(*_: object, **__: object) -> list[object]:
        raise UnicodeError("label too long")

    monkeypatch.setattr("aiohttp.ThreadedResolver.resolve", resolve)
    async with opened("http://shop.example/hook") as publisher:
        with pytest.raises(Unavailable, match="cannot be resolved"):
            await publisher.publish(new_claim())


async def test_a_header_that_cannot_be_sent_is_still_rejected(redbox_runner):
    async with http_target() as target, opened(target.url) as publisher:
        with pytest.raises(Reject):
            await publisher.publish(new_claim(content_type="text/plain\r\nx: y"))


# --- secrets -----------------------------------------------------------------------------------------------------


async def test_the_login_of_a_proxy_is_redacted(redbox_runner, monkeypatch):
    async with http_target() as proxy:
        monkeypatch.setenv("http_proxy", f"http://me:p4ssw0rd@127.0.0.1:{proxy.port}")
        proxy.reply = lambda request: Reply(407, body=f"p4ssw0rd {request.header('proxy-authorization')}".encode())
        async with opened("http://shop.example/hook") as publisher:
            with pytest.raises(Unavailable) as error:
                await publisher.publish(new_claim())
    assert str(error.value).endswith("[redacted] Basic [redacted]")


@pytest.mark.parametrize("cut", [4, 10, 19])
def test_the_start_of_a_secret_at_the_end_of_a_text_is_redacted(cut: int):
    secret = "verylongtokenvalue-12345"
    assert redactor([secret])(f"Bearer {secret[:cut]}") == "Bearer [redacted]"
    assert redactor([secret])(f"Bearer {secret[:cut]}, ") == f"Bearer {secret[:cut]}, "


def test_a_very_long_secret_costs_no_time():
    """Every start of it may be at the end of a text; they are not all listed."""
    redact = redactor(["ab" * 500_000])
    assert redact("Bearer " + "ab" * 2000) == "Bearer [redacted]"
    assert redact("Bearer " + "ab" * 2000 + ".") == "Bearer " + "ab" * 2000 + "."


def test_a_secret_in_the_representation_of_bytes_is_redacted():
    secret = "gehéim-tökén"
    assert redactor([secret])(f"unexpected {secret.encode()!r}") == "unexpected b'[redacted]'"
