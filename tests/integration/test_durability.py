"""Durability on real servers: granted where it is true, refused where it is not, an error when it is not reached."""

# ruff: noqa: PT012  # a transaction is a block of its own

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from redbox import Box, Event, Relay, State
from redbox.errors import DurabilityNotReached, DurabilityUnsupported
from redbox.store.server import durability
from tests import servers
from tests.relay.steps import until

pytestmark = [pytest.mark.usefixtures("redbox_runner"), pytest.mark.req("SC-1")]

BOTH = pytest.mark.parametrize("launch", [servers.redis_server, servers.valkey_server])


def confirmations(server: servers.Server) -> int:
    """How many WAITs and WAITAOFs the server has seen."""
    with server.client() as client:
        seen: Any = client.info("commandstats")
    return sum(int(seen.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("wait", "waitaof"))


@BOTH
async def test_fsync_is_granted_where_every_write_is_synced(launch: Any):
    with launch(appendonly="yes", appendfsync="always") as server:
        async with Box.open(server.url, durability="fsync") as box:
            receipt = await box.put(Event("user.created"))
            assert (receipt.created, receipt.durability) == (True, "fsync")
            (claim,) = await box.claim("relay-1")
            assert await box.ack(claim) == [True]
            async with box.transaction() as tx:
                tx.put(Event("user.created"))
            assert tx.receipts[0].durability == "fsync"
        assert confirmations(server) == 0
        server.kill()
        server.restart()
        async with Box.open(server.url) as box:
            assert await box.get(receipt.event_id) is not None


@BOTH
async def test_fsync_is_refused_without_permission_for_info(launch: Any):
    """Without INFO nobody can tell whether the append-only file is complete."""
    with launch(appendonly="yes", appendfsync="always") as server:
        with server.client() as client:
            client.acl_setuser("app", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-info"])
        event = Event("user.created")
        async with Box.open(f"redis://app:any@127.0.0.1:{server.port}/0") as box:
            with pytest.raises(DurabilityUnsupported, match="permission for INFO"):
                await box.put(event, durability="fsync")
            assert not await box.exists()
            with server.client() as client:
                client.acl_setuser("app", commands=["+info"])
            assert (await box.put(event, durability="fsync")).created
            with server.client() as client:
                client.acl_setuser("app", commands=["-info"])
            with pytest.raises(DurabilityNotReached, match="INFO does not say"):
                await box.put(event, durability="fsync")


@BOTH
async def test_fsync_is_refused_under_everysec(launch: Any):
    """Redis 7.0 has no WAITAOF; Valkey's answers at once, without a sync."""
    with launch(appendonly="yes", appendfsync="everysec") as server:
        async with Box.open(server.url) as box:
            with pytest.raises(DurabilityUnsupported, match="set appendfsync always, or use replicas=N"):
                await box.put(Event("user.created"), durability="fsync")
            assert not await box.exists()
            with pytest.raises(DurabilityUnsupported):
                async with box.transaction(durability="fsync") as tx:
                    tx.redis.set("mine", "x")
                    tx.put(Event("user.created"))
        with server.client() as client:
            assert not client.exists("mine")


async def test_fsync_is_refused_without_an_append_only_file(redis_url: str):
    async with Box.open(redis_url, name="fsync-refused") as box:
        with pytest.raises(DurabilityUnsupported, match="appendonly yes"):
            await box.put(Event("user.created"), durability="fsync")


async def test_fsync_is_refused_in_memory():
    async with Box.open("memory:") as box:
        with pytest.raises(DurabilityUnsupported):
            await box.put(Event("user.created"), durability="fsync")
        with pytest.raises(DurabilityUnsupported):
            await box.put_many([Event("user.created")], durability="fsync")


# --- replicas --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def master() -> Iterator[servers.Server]:
    """A server with one replica."""
    with servers.redis_server() as master, servers.redis_server(replicaof=f"{master.host} {master.port}") as replica:
        with replica.client() as client:
            servers.poll(lambda: client.info("replication")["master_link_status"] == "up", "no link")  # type: ignore[index]
        yield master


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(durability, "TIMEOUT", 0.1)


async def test_a_replica_confirms(master: servers.Server):
    async with Box.open(master.url, name="confirmed", durability="replicas=1") as box:
        await box.put(Event("user.created"))
        await box.ack(await box.claim("relay-1"))  # the scripts are loaded now
        before = confirmations(master)
        receipt = await box.put(Event("user.created"))
        assert (receipt.created, receipt.durability) == (True, "replicas=1")
        (claim,) = await box.claim("relay-1")
        assert await box.ack(claim) == [True]
        assert confirmations(master) == before + 2  # the put and the ack


async def test_a_put_that_finds_its_id_is_confirmed_too(master: servers.Server):
    """The first put may have been lost on its way to the replica: only a write of its own makes WAIT mean something."""
    event = Event("user.created")
    async with Box.open(master.url, name="repeated") as box:
        assert (await box.put(event)).created
        with master.client() as client:
            before = client.info("replication")["master_repl_offset"]  # type: ignore[index]
            receipt = await box.put(event, durability="replicas=1")
            after = client.info("replication")["master_repl_offset"]  # type: ignore[index]
        assert (receipt.created, receipt.durability) == (False, "replicas=1")
        assert after > before


@pytest.mark.usefixtures("_impatient")
async def test_missing_replicas_are_reported_and_the_event_exists(master: servers.Server):
    event = Event("user.created")
    async with Box.open(master.url, name="unconfirmed") as box:
        with pytest.raises(
            DurabilityNotReached, match="put reached the server, but replicas=2 was not confirmed"
        ) as caught:
            await box.put(event, durability="replicas=2")
        assert "putting it again with the same event_id is safe" in str(caught.value)
        assert await box.get(event.event_id) is not None
        assert not (await box.put(event, durability="replicas=1")).created
        with pytest.raises(DurabilityNotReached):  # also of one that is there already
            await box.put(event, durability="replicas=2")


@pytest.mark.usefixtures("_impatient")
async def test_a_transaction_that_replicas_do_not_confirm_is_committed_and_says_so(master: servers.Server):
    event = Event("user.created")
    async with Box.open(master.url, name="unconfirmed-tx") as box:
        with pytest.raises(DurabilityNotReached, match="was committed, but replicas=2 was not confirmed"):
            async with box.transaction(durability="replicas=2") as tx:
                tx.redis.set(tx.key("mine"), "x")
                tx.put(event)
        assert await box.get(event.event_id) is not None
        async with box.transaction(durability="replicas=1") as tx:
            tx.put(event)
        assert [(receipt.created, receipt.durability) for receipt in tx.receipts] == [(False, "replicas=1")]


@pytest.mark.usefixtures("_impatient")
async def test_each_level_has_its_own_lane(master: servers.Server):
    """A put that waits for replicas does not hold up the others, nor do they borrow its promise."""
    async with Box.open(master.url, name="levels") as box:
        with pytest.raises(DurabilityNotReached):
            await box.put(Event("user.created"), durability="replicas=9")
        assert (await box.put(Event("user.created"))).durability == "server"


# --- relays ----------------------------------------------------------------------------------------------------


@pytest.mark.req("SC-1", "PL-7")
@pytest.mark.parametrize("way", ["run", "drain"])
async def test_a_relay_publishes_nothing_that_it_cannot_settle(redis_url: str, way: str):
    """The server keeps no append-only file: each start of the relay ends before it claims anything."""
    published: list[str] = []

    async def publish(event: Event) -> None:
        published.append(event.event_id)

    name = f"unsupported-{way}"
    async with Box.open(redis_url, name=name) as box, Box.open(redis_url, name=name, durability="fsync") as durable:
        ids = [(await box.put(Event("n"))).event_id for _ in range(3)]
        for _ in range(3):
            relay = Relay(durable, publish)
            with pytest.raises(DurabilityUnsupported, match="appendonly yes"):
                async with asyncio.timeout(10):
                    await getattr(relay, way)()
        records = [await box.get(event_id) for event_id in ids]
        assert [(record.state, record.attempts) for record in records if record] == [(State.PENDING, 0)] * 3
        with pytest.raises(DurabilityUnsupported):
            await durable.claim("relay-1")
    assert published == []


async def test_a_relay_waits_for_a_server_that_is_away_before_it_checks_durability(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, "redbox.relay")
    with servers.redis_server(appendonly="yes", appendfsync="always") as server:
        published = asyncio.Event()

        async def publish(_: Event) -> None:
            published.set()

        async with Box.open(server.url) as box:
            await box.put(Event("n"))
        server.kill()
        async with Box.open(server.url, durability="fsync") as box:
            running = asyncio.create_task(Relay(box, publish).run())
            await until(lambda: "claiming again in" in caplog.text, "it has not tried to claim")
            assert not running.done()
            server.start()
            async with asyncio.timeout(15):
                await published.wait()
            running.cancel()
            await asyncio.wait([running])
