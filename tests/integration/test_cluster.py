"""A cluster that moves the box's slot while the box is used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from zlib import crc32

import pytest
import redis
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import NodesManager
from redis.crc import key_slot

from redbox import Box, Event, StoreError, keys
from redbox.errors import TransactionFailed
from redbox.store import transaction as transact
from redbox.store.scripts.items import SeenClaim, StreamBatch
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import contents
from redbox.testing.plugin import new_box_name
from tests import servers

pytestmark = [pytest.mark.usefixtures("redbox_runner"), pytest.mark.timeout(60)]


class Move:
    """The slot of one box on its way from one node to another, a few keys at a time."""

    def __init__(self, cluster: servers.Cluster, clients: list[redis.Redis], name: str) -> None:
        self.slot = key_slot(keys.meta(name).encode())
        self._ids = {client: client.execute_command("CLUSTER", "MYID") for client in clients}
        self._ports = {client: node.port for client, node in zip(clients, cluster.nodes, strict=True)}
        self.source, self.target = sorted(clients, key=lambda client: not self.keys(client))

    def begin(self) -> None:
        self.target.execute_command("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self._ids[self.source])
        self.source.execute_command("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self._ids[self.target])

    def keys(self, node: redis.Redis) -> list[str]:
        return sorted(node.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, 10_000))  # type: ignore[arg-type]

    def carry(self, names: list[str], source: redis.Redis, target: redis.Redis) -> None:
        for name in names:
            source.execute_command("MIGRATE", "127.0.0.1", self._ports[target], name, 0, 5000)

    def finish(self) -> None:
        self.carry(self.keys(self.source), self.source, self.target)
        for client in (self.target, self.source):
            client.execute_command("CLUSTER", "SETSLOT", self.slot, "NODE", self._ids[self.target])

    def roll_back(self) -> None:
        self.source.execute_command("CLUSTER", "SETSLOT", self.slot, "STABLE")
        self.carry(self.keys(self.target), self.target, self.source)
        self.target.execute_command("CLUSTER", "SETSLOT", self.slot, "STABLE")


@pytest.fixture(scope="module")
def cluster() -> Iterator[servers.Cluster]:
    with servers.cluster(nodes=2) as started:
        yield started


@pytest.fixture
def clients(cluster: servers.Cluster) -> Iterator[list[redis.Redis]]:
    opened = [node.client() for node in cluster.nodes]
    yield opened
    for client in opened:
        client.close()


@pytest.fixture
def box(cluster: servers.Cluster, redbox_runner: asyncio.Runner) -> Iterator[Box]:
    opened = Box.open(cluster.url, name=new_box_name())
    yield opened
    redbox_runner.run(opened.aclose())


async def filled(box: Box) -> dict[str, Any]:
    """A box with something in every state; the claims by what is to be done with them."""
    for number in range(12):
        await box.put(Event("user.created", {"id": number}, ordering_key=f"o{number % 4}", unique_key=f"u{number}"))
    await box.put_many([Event("user.created", {"id": number}) for number in range(12, 24)])
    claims = await box.claim("relay-1", limit=10)
    await box.ack(claims[0])
    await box.kill(claims[1], reason="never")
    await box.retry(claims[2], error="no answer", delay=0)
    overdue = await box.claim("relay-2", limit=2, lease=0.001)
    return {"claims": claims[3:], "overdue": overdue, "published": claims[0].event_id, "dead": claims[1].event_id}


async def try_everything(box: Box, held: dict[str, Any]) -> list[str]:
    """Every operation once; what fails must fail with an error of ours. Tells which did."""
    claims, who = held["claims"], {"who": "ada", "why": "a test"}

    async def transaction() -> None:
        async with box.transaction() as tx:
            tx.redis.sadd(tx.key("mine"), event_id := tx.put(Event("user.created", unique_key="tx")))
            held["transacted"] = event_id

    operations = {
        "put": lambda: box.put(Event("user.created", ordering_key="o1", unique_key="new")),
        "put_many": lambda: box.put_many([Event("user.created"), Event("user.created", ordering_key="o2")]),
        "transaction": transaction,
        "renew": lambda: box.renew(claims),
        "ack": lambda: box.ack(claims[0]),
        "retry": lambda: box.retry(claims[1], error="again"),
        "kill": lambda: box.kill(claims[2], reason="never"),
        "release": lambda: box.release(claims[3]),
        "claim": lambda: box.claim("relay-3", limit=4),
        "reap": box.reap,
        "replay": lambda: box.replay([held["published"], held["dead"]], who="ada"),
        "reschedule": lambda: box.operate.reschedule([claims[3].event_id], **who),
        "kill by hand": lambda: box.operate.kill([claims[4].event_id], **who),
        "sweep": lambda: box.sweep(keep_published=0),
        "configure": lambda: box.operate.configure(max_pending=0, **who),
        "pause": lambda: box.operate.pause(duration=60, **who),
        "resume": lambda: box.operate.resume(**who),
        "pause a key": lambda: box.operate.pause(key="o1", **who),
        "put into a paused key": lambda: box.put(Event("user.created", ordering_key="o1")),
        "resume a key": lambda: box.operate.resume(key="o1", **who),
        "stats": box.stats,
        "why": lambda: box.why(claims[0].event_id),
        "get": lambda: box.get(claims[0].event_id),
        "page": box.page,
    }
    failed = []
    for name, act in operations.items():
        try:
            await act()
        except (StoreError, TransactionFailed):
            failed.append(name)
    return failed


def is_event(name: str) -> bool:
    return ":e:" in name or ":b:" in name


#: What has already moved when the box is used.
MOVED = {
    "the events": is_event,
    "the indexes": lambda name: not is_event(name) and not name.endswith(":meta"),
    "meta": lambda name: name.endswith(":meta"),
    "some of it": lambda name: crc32(name.encode()) % 2 == 0 and not name.endswith(":meta"),
}


@pytest.mark.req("SC-4", "PL-7")
@pytest.mark.parametrize("end", ["finish", pytest.param("roll_back", marks=pytest.mark.campaign)])
@pytest.mark.parametrize(
    "moved", ["some of it", *(pytest.param(name, marks=pytest.mark.campaign) for name in MOVED if name != "some of it")]
)
async def test_a_slot_on_the_move_leaves_no_half_done_step(
    cluster: servers.Cluster,
    clients: list[redis.Redis],
    box: Box,
    moved: str,
    end: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(transact, "TURNS", 3)
    held = await filled(box)
    total = len([record async for record in box.list()])
    move = Move(cluster, clients, box.name)
    move.begin()
    move.carry([name for name in move.keys(move.source) if MOVED[moved](name)], move.source, move.target)
    async with asyncio.timeout(30):
        await try_everything(box, held)
    getattr(move, end)()

    assert await check_invariants(box) == []
    assert len([record async for record in box.list()]) >= total - 2  # a sweep may have removed what was published
    written = await box._store.exchange([("SMEMBERS", box.transaction().key("mine"))])
    assert {raw.decode() for raw in written[0]} <= {held.get("transacted")}
    if written[0]:
        assert await box.get(held["transacted"]) is not None
    assert await try_everything(box, held) == []
    assert await check_invariants(box) == []


@pytest.mark.req("SC-4", "SP-3")
async def test_a_stream_whose_batch_has_moved_writes_nothing(
    cluster: servers.Cluster, clients: list[redis.Redis], box: Box
):
    store, batch, relay = box._store, StreamBatch("lake", "me", 1), "stream:lake"
    await box.put_many([Event("user.created", {"id": number}) for number in range(6)])
    await store.track_stream("own", "lake", "me")
    await store.cut_batch(batch, relay, 3, 60_000, 1_000_000, None)
    members = await store.members("lake", 1, 0, -1)
    await store.release(relay, [SeenClaim(*members[0])])
    # A key that does not exist stops a script while the slot moves: only the batch may do so here.
    indexes = ("waiting", "suspect", "retries", "published", "dead", "blocked", "lost")
    await store.exchange([("ZADD", getattr(keys, name)(box.name), 1e15, "filler") for name in indexes])
    await store.exchange([("SET", keys.alone(box.name), "0 filler"), ("XADD", keys.log(box.name), "*", "a", "b")])
    await store.exchange([("DEL", keys.wake(box.name)), ("RPUSH", keys.wake(box.name), "1")])
    before = await contents(box)

    steps = {
        "cut_batch": lambda: store.cut_batch(batch, relay, 2, 60_000, 1_000_000, None),
        "settle_batch": lambda: store.settle_batch(batch, relay, members[1:]),
        "reclaim": lambda: store.reclaim(batch, relay, 60_000, [members[0][0]]),
    }
    refused = []
    for name, act in steps.items():
        move = Move(cluster, clients, box.name)
        move.begin()
        move.carry([keys.batch(box.name, "lake", 1)], move.source, move.target)
        with suppress(StoreError):
            await act()
            refused.append(f"{name} was done")
        move.roll_back()
        assert await contents(box) == before, f"{name} was half done"
    assert refused == []


async def test_a_finished_move_is_followed(
    cluster: servers.Cluster, clients: list[redis.Redis], box: Box, monkeypatch: pytest.MonkeyPatch
):
    """By what the redirection says, without asking for all slots again."""
    held = await filled(box)
    monkeypatch.setattr(NodesManager, "initialize", None)
    move = Move(cluster, clients, box.name)
    move.begin()
    move.finish()
    assert move.keys(move.source) == []
    assert await box.ack(held["claims"][0]) == [
        True
    ]  # a settlement is not repeated, but one that was not run is sent on
    assert (await box.put(Event("user.created"))).created
    async with box.transaction() as tx:
        tx.put(Event("user.created"))
    assert await check_invariants(box) == []


async def test_a_transaction_follows_a_finished_move(cluster: servers.Cluster, clients: list[redis.Redis], box: Box):
    await filled(box)
    move = Move(cluster, clients, box.name)
    move.begin()
    move.finish()
    async with box.transaction() as tx:
        tx.redis.set(tx.key("mine"), "x")
        tx.put(Event("user.created"))
    assert [receipt.created for receipt in tx.receipts] == [True]


async def test_boxes_of_all_nodes_are_listed(cluster: servers.Cluster):
    names = [new_box_name() for _ in range(6)]
    for name in names:
        async with Box.open(cluster.url, name=name) as box:
            await box.put(Event("user.created"))
    async with Box.open(cluster.url, name="elsewhere") as box:
        assert set(names) <= set(await box.names())
        assert not await box.exists()


async def test_an_unreachable_node_is_reported():
    with servers.cluster(nodes=2) as started:
        box = Box.open(started.url, name="orders")
        await box.put(Event("user.created"))
    async with box, asyncio.timeout(10):
        with pytest.raises(StoreError, match="cannot be reached"):
            await box.put(Event("user.created"))


async def test_a_slot_that_no_node_serves_is_reported_and_recovers():
    with servers.cluster(nodes=2, cluster_require_full_coverage="no") as started:
        node = started.nodes[0]
        async with (
            RedisCluster(host=node.host, port=node.port, require_full_coverage=False) as own,
            Box.open(client=own, name="orders") as box,
            asyncio.timeout(20),
        ):
            await box.put(Event("user.created"))
            slot = key_slot(keys.meta(box.name).encode())
            clients = [node.client() for node in started.nodes]
            owner = clients[slot * len(clients) // 16384]
            for client in clients:  # each forgets who serves it
                client.execute_command("CLUSTER", "DELSLOTS", slot)
            with pytest.raises(StoreError, match="cannot be reached"):
                await box.put(Event("user.created"))

            owner.execute_command("CLUSTER", "ADDSLOTS", slot)
            for client in clients:
                servers.poll(partial(serves, client, slot), "the nodes did not agree")
                client.close()
            assert (await box.put(Event("user.created"))).created


def serves(client: redis.Redis, slot: int) -> bool:
    return any(first <= slot <= last for first, last, *_ in client.execute_command("CLUSTER", "SLOTS"))
