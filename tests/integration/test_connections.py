"""Every way to a server: password, socket, TLS, sentinels, and clients of the application's own."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from pathlib import Path

import pytest
import redis.asyncio

from redbox import Box, Event, StoreUnavailable
from tests import servers

pytestmark = pytest.mark.usefixtures("redbox_runner")

PASSWORD = "s3cr3t-hunter2"


async def works(box: Box) -> bool:
    """A whole life of one event."""
    receipt = await box.put(Event("user.created", {"id": 42}))
    (claim,) = await box.claim("relay-1")
    return claim.event_id == receipt.event_id and await box.ack(claim) == [True]


# --- password --------------------------------------------------------------------------------------------------


async def test_password(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    with servers.redis_server(requirepass=PASSWORD) as server:
        assert PASSWORD in server.url
        async with Box.open(server.url) as box:
            assert await works(box)
            assert PASSWORD not in repr(box)

        refused, missing = "refused the user or the password", "asks for a password, and got none"
        for wrong, text in ((f":{PASSWORD}-wrong@", refused), (f"nobody:{PASSWORD}@", refused), ("", missing)):
            async with Box.open(f"redis://{wrong}127.0.0.1:{server.port}/0") as box:
                with pytest.raises(StoreUnavailable, match=text) as caught:
                    await box.put(Event("user.created"))
            assert PASSWORD not in str(caught.value)
            assert PASSWORD not in repr(caught.value.__cause__)
    assert PASSWORD not in caplog.text


# --- socket ----------------------------------------------------------------------------------------------------


async def test_unix_socket(tmp_path_factory: pytest.TempPathFactory):
    socket = tmp_path_factory.mktemp("s") / "redis.sock"
    with servers.redis_server(unixsocket=str(socket)):
        async with Box.open(f"unix://{socket}?db=3") as box:
            assert await works(box)
            assert repr(box) == f"Box('default' on unix://{socket}?db=3)"
    async with Box.open(f"unix://{socket}.gone") as box:
        with pytest.raises(StoreUnavailable, match=f"unix://{socket}.gone cannot be reached"):
            await box.stats()


# --- TLS -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that vouches for itself, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    cert, key = directory / "cert.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=redbox-test", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


async def test_tls(certificate: tuple[Path, Path]):
    cert, key = certificate
    tls = {"tls_cert_file": str(cert), "tls_key_file": str(key), "tls_ca_cert_file": str(cert)}
    with servers.redis_server(**tls, tls_auth_clients="no") as server:
        async with Box.open(f"{server.url}?ssl_ca_certs={cert}") as box:
            assert await works(box)
            assert (await box._store.exchanges.wire())._multiplexers.shared("") is not None
        async with Box.open(server.url) as box:
            with pytest.raises(StoreUnavailable, match="certificate"):
                await box.stats()
        async with Box.open(f"redis://127.0.0.1:{server.port}/0") as box:
            with pytest.raises(StoreUnavailable):
                await box.stats()


# --- sentinels -------------------------------------------------------------------------------------------------


@pytest.mark.timeout(60)
async def test_sentinel_and_a_failover():
    # Noticed later than a put gives up, so that both sides of a failover are seen.
    with servers.sentinel(down_after_ms=1500, failover_timeout_ms=3000) as group:
        box = Box.open(group.url, name="orders", durability="replicas=1")
        async with box:
            first = await box.put(Event("user.created", {"id": 1}))
            (held,) = await box.claim("relay-1")

            group.master.kill()
            with pytest.raises(StoreUnavailable):
                await box.put(Event("user.created", {"id": 2}), durability="server")

            with group.sentinel.client() as client:
                servers.poll(
                    lambda: client.sentinel_get_master_addr_by_name("mymaster")[1] == group.replica.port,  # type: ignore[index]
                    "the replica was not promoted",
                )
            with group.replica.client() as client:
                servers.poll(lambda: client.role()[0] == "master", "the replica did not become a master")  # type: ignore[index]

            second = await box.put(Event("user.created", {"id": 3}), durability="server")
            assert second.created
            record = await box.get(first.event_id)
            assert record is not None
            assert record.number == held.number


async def test_a_service_that_no_sentinel_knows():
    with servers.sentinel() as group:
        async with Box.open(group.url.replace("mymaster", "elsewhere")) as box:
            with pytest.raises(StoreUnavailable, match="elsewhere"):
                await box.stats()


async def test_unreachable_sentinels_are_reported_soon():
    async with Box.open("redis+sentinel://127.0.0.1:1/mymaster/0") as box, asyncio.timeout(3):
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await box.stats()


# --- the application's own -------------------------------------------------------------------------------------


async def test_a_client_of_the_applications_own_is_used_and_left_open(redis_url: str):
    client = redis.asyncio.Redis.from_url(redis_url)
    async with Box.open(client=client, name="own-client") as box:
        assert await works(box)
    assert await client.ping()
    assert [name async for name in client.scan_iter("{redbox:own-client:0}*")]
    await client.aclose()


async def test_a_cluster_client_of_the_applications_own_is_used_and_left_open(cluster_url: str):
    host, port = cluster_url.removeprefix("redis+cluster://").split(",")[0].split(":")
    client = redis.asyncio.RedisCluster(host, int(port))
    async with Box.open(client=client, name="own-client") as box:
        assert await works(box)
        assert "own-client" in await box.names()
    await client.set("still", "open")
    assert await client.get("still") == b"open"
    await client.aclose()


async def test_boxes_share_a_client(redis_url: str):
    client = redis.asyncio.Redis.from_url(redis_url)
    async with Box.open(client=client, name="shared-1") as one, Box.open(client=client, name="shared-2") as two:
        await one.put(Event("user.created"))
        assert await two.claim("relay-1") == []
        assert {"shared-1"} <= set(await two.names())
    await client.aclose()
