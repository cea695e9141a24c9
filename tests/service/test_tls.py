"""TLS: certificates, and their replacement without a restart."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from redbox import Box
from redbox.errors import UsageError
from redbox.service.http import server as module
from redbox.service.http.listening import Address
from redbox.service.http.pool import Limits
from tests.service.exchange import EVENT, QUIET, request, serving

pytestmark = [pytest.mark.req("SF-5"), pytest.mark.timeout(60), QUIET]


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def write(authority: trustme.CA, folder: Path, **dates: datetime) -> Address:
    issued = authority.issue_cert("127.0.0.1", "localhost", **dates)
    certificate, key = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return Address(certificate=str(certificate), key=str(key))


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_requests_over_tls(redbox_box: Box, authority: trustme.CA, tmp_path: Path):
    async with serving(redbox_box, address=write(authority, tmp_path)) as server:
        assert server.url == f"https://127.0.0.1:{server.port}"
        own = {"origin": f"https://127.0.0.1:{server.port}"}
        tls = trusting(authority)
        assert (await request(server, "POST", "/v1/events", EVENT, tls=tls, **own)).status == 202
        plain = {"origin": f"http://127.0.0.1:{server.port}"}
        assert (await request(server, "POST", "/v1/events", EVENT, tls=tls, **plain)).status == 403
        old = trusting(authority)
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, OSError)):
            await request(server, "GET", "/v1", tls=old)


async def test_a_client_that_does_not_shake_hands_is_left(
    redbox_box: Box, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 0.3)
    async with serving(redbox_box, address=write(authority, tmp_path)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


def open_sockets() -> int:
    """How many sockets this process has open."""
    return sum(os.path.realpath(f"/proc/self/fd/{name}").rpartition("/")[2].startswith("socket:")
               for name in os.listdir("/proc/self/fd"))  # fmt: skip


async def test_clients_that_do_not_shake_hands_count_as_connections(
    redbox_box: Box, authority: trustme.CA, tmp_path: Path
):
    """They exhaust no file descriptors, and keep nobody out."""
    async with serving(redbox_box, address=write(authority, tmp_path), limits=Limits(connections=20)) as server:
        before = open_sockets()
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(200)]
        for _ in range(3):
            assert (await request(server, "POST", "/v1/events", EVENT, tls=trusting(authority))).status == 202
        assert await asyncio.wait_for(silent[0][0].read(), 5) == b""  # the one that was idle for longest
        assert open_sockets() - before - len(silent) <= 20
        for _, writer in silent:
            writer.close()


async def test_handshakes_end_with_the_service(redbox_box: Box, authority: trustme.CA, tmp_path: Path):
    async with serving(redbox_box, address=write(authority, tmp_path)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert (await request(server, "GET", "/v1", tls=trusting(authority))).status == 200
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_a_failed_handshake_ends_nothing_else(
    redbox_box: Box, authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with serving(redbox_box, address=write(authority, tmp_path), limits=Limits(connections=2)) as server:
        for _ in range(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
            _, gone = await asyncio.open_connection("127.0.0.1", server.port)
            gone.transport.abort()
        assert (await request(server, "GET", "/v1", tls=trusting(authority))).status == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_new_certificate_is_used_without_a_restart(redbox_box: Box, authority: trustme.CA, tmp_path: Path):
    address = write(authority, tmp_path)
    async with serving(redbox_box, address=address) as server:
        another = trustme.CA()
        write(another, tmp_path)
        server.load_certificate()
        assert (await request(server, "GET", "/v1", tls=trusting(another))).status == 200
        (tmp_path / "cert.pem").write_text("not a certificate")
        with pytest.raises(UsageError, match="the certificate cannot be used"):
            server.load_certificate()
        assert (await request(server, "GET", "/v1", tls=trusting(another))).status == 200


@pytest.mark.parametrize(
    ("begins", "ends", "warning"),
    [
        (-30, -1, "has expired on"),
        (1, 30, "is not valid before"),
        (-30, 6, "expires on"),
        (-30, 8, None),
    ],
)
async def test_a_certificate_outside_of_its_dates_is_reported(
    redbox_box: Box,
    authority: trustme.CA,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    begins: int,
    ends: int,
    warning: str | None,
):
    now = datetime.now(UTC)
    first, last = now + timedelta(days=begins), now + timedelta(days=ends)
    async with serving(redbox_box, address=write(authority, tmp_path, not_before=first, not_after=last)) as server:
        messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        if warning is None:
            assert messages == []
            return
        (message,) = messages
        assert f"cert.pem {warning}" in message
        assert f"{first if begins > 0 else last:%Y-%m-%d %H:%M}" in message
        caplog.clear()
        write(authority, tmp_path)
        server.load_certificate()
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_certificate_that_cannot_be_used_is_one_sentence(
    redbox_box: Box, authority: trustme.CA, tmp_path: Path
):
    address = write(authority, tmp_path)
    wrong = [
        Address(certificate=str(tmp_path / "missing.pem")),
        Address(certificate=address.certificate),  # it has no key
        Address(certificate=address.key, key=address.certificate),
    ]
    for each in wrong:
        with pytest.raises(UsageError, match="--tls-cert and --tls-key are PEM files"):
            async with serving(redbox_box, address=each):
                pass
