"""TLS: certificates, and their replacement without a restart."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from redbox import Box
from redbox.errors import UsageError
from redbox.service import server as module
from redbox.service.server import Address
from tests.service.exchange import EVENT, QUIET, request, serving

pytestmark = [pytest.mark.req("SF-5"), pytest.mark.timeout(60), QUIET]


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def write(authority: trustme.CA, folder: Path) -> Address:
    issued = authority.issue_cert("127.0.0.1", "localhost")
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
