"""An append-only file that begins while the server runs: it is switched on, or the server has loaded another's data.

Until its first rewrite has ended, writes go to a temporary file that no restart reads: `fsync` must not be confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from redbox import Box, DurabilityNotReached, Event, keys
from redbox.store.server import durability
from tests import servers

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.usefixtures("redbox_runner"),
    pytest.mark.req("SC-1"),
]
LONG = 60_000_000  # microseconds for each key that a rewrite saves
SHORT = 100_000


Launch = Callable[..., AbstractContextManager[servers.Server]]


@pytest.fixture(params=[servers.redis_server, servers.valkey_server], ids=["redis", "valkey"])
def launch(request: pytest.FixtureRequest) -> Launch:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def server(launch: Launch) -> Iterator[servers.Server]:
    # Valkey begins its file with the dump of a resync, unless it loads that without a file.
    with launch(appendonly="no", appendfsync="always", repl_diskless_load="swapdb") as started:
        with started.client() as client:
            client.set("a key", "to save")
        yield started


def switch(server: servers.Server, *, on: bool, delay: int = 0) -> None:
    """Sets appendonly; a rewrite takes `delay` microseconds for each key."""
    with server.client() as client:
        client.config_set("rdb-key-save-delay", delay)
        client.config_set("appendonly", "yes" if on else "no")


def rewritten(server: servers.Server) -> None:
    """Waits until no rewrite is in progress."""
    with server.client() as client:
        client.config_set("rdb-key-save-delay", 0)
        servers.poll(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the rewrite does not end")  # type: ignore[index]


def survives(server: servers.Server) -> None:
    """Kills the server, and starts it again with the settings that it had."""
    with server.client() as client:
        client.config_set("rdb-key-save-delay", 0)
        client.config_rewrite()
    server.kill()
    server.start()


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(durability, "TIMEOUT", 0.3)


@pytest.mark.usefixtures("_impatient")
async def test_lost_events_were_not_confirmed(server: servers.Server):
    switch(server, on=True, delay=LONG)
    event = Event("n")
    async with Box.open(server.url, durability="fsync") as box:
        with pytest.raises(DurabilityNotReached, match="append-only file"):
            await box.put(event)
    survives(server)
    async with Box.open(server.url, durability="fsync") as box:
        assert await box.get(event.event_id) is None  # so that this test tests something
        assert (await box.put(event)).created


async def test_a_short_first_rewrite_is_waited_for(server: servers.Server):
    switch(server, on=True, delay=SHORT)
    event = Event("n")
    async with Box.open(server.url, durability="fsync") as box:
        assert (await box.put(event)).durability == "fsync"
    survives(server)
    async with Box.open(server.url) as box:
        assert await box.get(event.event_id) is not None


@pytest.mark.usefixtures("_impatient")
async def test_switched_off_and_on_again(server: servers.Server):
    """The box knows the server from before, with a complete file."""
    switch(server, on=True)
    rewritten(server)
    async with Box.open(server.url, durability="fsync") as box:
        assert (await box.put(Event("n"))).created
        switch(server, on=False)
        with pytest.raises(DurabilityNotReached):
            await box.put(Event("n"))
        switch(server, on=True, delay=LONG)
        with pytest.raises(DurabilityNotReached, match="append-only file"):
            await box.put(Event("n"))
        with pytest.raises(DurabilityNotReached):
            async with box.transaction() as tx:
                tx.put(Event("n"))
        switch(server, on=False)
        switch(server, on=True)
        rewritten(server)
        assert (await box.put(Event("n"))).created


def resync(client: Any, master: servers.Server) -> None:
    """Makes a server load all data of another one, and then a master again."""
    client.replicaof(master.host, master.port)
    servers.poll(lambda: client.info("replication").get("master_link_status") == "up", "the replica did not connect")
    client.replicaof("NO", "ONE")


@pytest.mark.usefixtures("_impatient")
async def test_a_full_resync_begins_a_new_file(server: servers.Server, launch: Launch):
    """The box knows the server from before, with a complete file, and no setting is changed."""
    switch(server, on=True)
    rewritten(server)
    event = Event("n")
    async with Box.open(server.url, durability="fsync") as box:
        with server.client() as client, launch() as other, other.client() as filler:
            filler.set("a key", "to save")
            client.config_set("rdb-key-save-delay", LONG)
            assert (await box.put(Event("n"))).created
            resync(client, other)
        with pytest.raises(DurabilityNotReached, match="append-only file"):
            await box.put(event)
    survives(server)
    async with Box.open(server.url) as box:
        assert await box.get(event.event_id) is None  # so that this test tests something


async def test_a_full_resync_while_a_put_waits(server: servers.Server, launch: Launch, monkeypatch: pytest.MonkeyPatch):
    """The resync removes the event, so the end of the rewrite does not confirm it."""
    monkeypatch.setattr(durability, "TIMEOUT", 30.0)
    switch(server, on=True, delay=LONG)
    event = Event("n")
    async with Box.open(f"{server.url}?socket_timeout=60", durability="fsync") as box:
        put = asyncio.create_task(box.put(event))
        with server.client() as client, launch() as other:
            await asyncio.to_thread(servers.poll, lambda: client.exists(keys.event(box.name, event.event_id)), "no put")
            client.config_set("rdb-key-save-delay", 0)
            await asyncio.to_thread(resync, client, other)
        with pytest.raises(DurabilityNotReached, match="append-only file"):
            await put
        assert await box.get(event.event_id) is None  # so that this test tests something


@pytest.mark.usefixtures("_impatient")
async def test_a_later_rewrite_delays_no_put(server: servers.Server):
    """It leaves the present file in use until the new one is complete."""
    switch(server, on=True)
    rewritten(server)
    event = Event("n")
    async with Box.open(server.url, durability="fsync") as box:
        with server.client() as client:
            client.config_set("rdb-key-save-delay", LONG)
            assert (await box.put(Event("n"))).created
            client.bgrewriteaof()
            servers.poll(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 1, "no rewrite")  # type: ignore[index]
        async with asyncio.timeout(5):
            assert (await box.put(event)).created
            async with box.transaction() as tx:
                tx.put(Event("n"))
    survives(server)
    async with Box.open(server.url) as box:
        assert await box.get(event.event_id) is not None
