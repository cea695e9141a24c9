"""One connection to an HTTP target: responses in pieces, and unsolicited data."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest

from redbox.publishers.http.connections import MOST_INTERIM, _Protocol

RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def connected() -> tuple[_Protocol, Mock]:
    protocol, transport = _Protocol(asyncio.get_running_loop()), Mock(asyncio.Transport)
    transport.is_closing.return_value = False
    protocol.connection_made(transport)
    return protocol, transport


@pytest.mark.req("PC-1")
@pytest.mark.parametrize(
    ("raw", "statuses"),
    [
        (b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\nhello", [204]),
        (b"HTTP/1.1 204 No Content\nx: y\n\nhello", [204]),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nx: y\r\n\r\nhello", [100, 204]),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello", [200]),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno, never", [404]),
    ],
)
async def test_the_status_is_found_wherever_the_packets_end(redbox_runner, raw: bytes, statuses: list[int]):
    for cut in range(len(raw)):
        protocol, _ = connected()
        protocol.set_response_params()
        protocol.data_received(raw[:cut])
        protocol.data_received(raw[cut:])
        assert [(await protocol.read())[0].code for _ in statuses] == statuses, raw[:cut]
        assert protocol.should_close, raw[:cut]


@pytest.mark.req("PC-1")
@pytest.mark.parametrize("stray", [RESPONSE, b"H", b"\r\n"])
async def test_unsolicited_data_closes_the_connection(redbox_runner, stray: bytes):
    fresh, transport = connected()
    fresh.data_received(stray)
    transport.abort.assert_called_once()
    assert not fresh.is_connected()

    kept, transport = connected()
    for _ in range(2):
        kept.set_response_params()
        kept.data_received(RESPONSE)
        assert (await kept.read())[0].code == 200
        assert kept.is_connected()
        assert not kept.should_close
    kept.data_received(stray)
    transport.abort.assert_called_once()
    assert not kept.is_connected()
    assert kept.should_close


@pytest.mark.req("PC-1")
async def test_data_after_a_response_does_not_hide_it(redbox_runner):
    protocol, transport = connected()
    protocol.set_response_params()
    protocol.data_received(RESPONSE)
    protocol.data_received(RESPONSE.replace(b"200", b"400"))
    assert (await protocol.read())[0].code == 200
    transport.abort.assert_called_once()
    assert protocol.should_close


@pytest.mark.req("PC-1")
async def test_each_response_may_follow_some_interim_ones(redbox_runner):
    protocol, _ = connected()
    for _ in range(3):
        protocol.set_response_params()
        protocol.data_received(b"HTTP/1.1 102 Processing\r\n\r\n" * MOST_INTERIM + RESPONSE)
        assert [(await protocol.read())[0].code for _ in range(MOST_INTERIM + 1)] == [102] * MOST_INTERIM + [200]
        assert not protocol.should_close
