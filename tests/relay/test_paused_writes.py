"""A server whose writes are paused, as CLIENT PAUSE and a planned failover do: a relay must neither harm it nor hang.

On servers from before mid-2025, CLIENT UNBLOCK of a client whose command the pause has postponed aborts the server.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import redbox
from redbox import Box, Event, Relay, State, keys
from redbox.store.scripts.registry import lua_root
from redbox.testing.plugin import new_box_name
from tests import servers
from tests.relay.steps import LIMIT, Target, running, states, until

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("redbox_runner")]
PAUSE_MS = 30_000
PROMPT = 1.5


@pytest.fixture(params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    launch = servers.redis_server if request.param == "redis" else servers.valkey_server
    with launch() as started:
        yield started


@asynccontextmanager
async def paused_writes(*paused: servers.Server) -> AsyncIterator[None]:
    """Writes are paused in the block; afterwards each server must still be alive."""
    clients = [server.client() for server in paused]
    for client in clients:
        client.execute_command("CLIENT", "PAUSE", PAUSE_MS, "WRITE")
    yield
    for server, client in zip(paused, clients, strict=True):
        assert server.process is not None
        assert server.process.poll() is None, "the server has aborted"
        client.execute_command("CLIENT", "UNPAUSE")
        client.close()


def unfinished(client: Any, command: str) -> int:
    """How many clients are blocked in a command: BLPOP by an empty list, or any write by the pause."""
    return sum("b" in each["flags"] and each["cmd"] == command for each in client.client_list())


def waiting(client: Any) -> bool:
    return unfinished(client, "blpop") == 1


def postponed(client: Any) -> bool:
    return unfinished(client, "evalsha") == 1


#: No services, so that only claims are sent.
ALONE: dict[str, Any] = {"reap_every": None, "sweep_every": None, "beat_every": None}


@pytest.mark.req("PL-7")
async def test_stopping_a_relay_whose_claim_is_postponed(server: servers.Server):
    target = Target()
    with server.client() as client:
        async with Box.open(server.url, name=new_box_name()) as box:
            relay = Relay(box, target, poll=0.3, **ALONE)
            task = asyncio.create_task(relay.run())
            await until(lambda: waiting(client), "the relay does not wait")
            async with paused_writes(server):
                # Its wait ends by itself; the claim behind it is postponed.
                await until(lambda: postponed(client), "nothing is postponed")
                began = time.monotonic()
                relay.stop()
                async with asyncio.timeout(LIMIT):
                    await task
                assert time.monotonic() - began < PROMPT
        await _delivers_afterwards(server, box.name, target)


@pytest.mark.req("PL-7")
async def test_stopping_a_relay_that_waits(server: servers.Server):
    target = Target()
    with server.client() as client:
        async with Box.open(server.url, name=new_box_name()) as box:
            relay = Relay(box, target, poll=30)
            task = asyncio.create_task(relay.run())
            await until(lambda: waiting(client), "the relay does not wait")
            async with paused_writes(server):
                began = time.monotonic()
                relay.stop()
                async with asyncio.timeout(LIMIT):
                    await task
                assert time.monotonic() - began < PROMPT
        await _delivers_afterwards(server, box.name, target)


@pytest.mark.req("PL-7")
async def test_stopping_a_relay_that_has_not_waited_yet(server: servers.Server):
    """Its first claim is postponed, on the connection that everything shares."""
    target = Target()
    with server.client() as client:
        async with Box.open(server.url, name=new_box_name()) as box:
            await box.put(Event("n", event_id="before"))
            await box.claim("other", limit=1)  # the script is loaded
            relay = Relay(box, target, **ALONE)
            async with paused_writes(server):
                task = asyncio.create_task(relay.run())
                await until(lambda: postponed(client), "nothing is postponed")
                began = time.monotonic()
                relay.stop()
                async with asyncio.timeout(LIMIT):
                    await task
                assert time.monotonic() - began < PROMPT


@pytest.mark.req("PL-7", "EM-12")
async def test_an_event_that_falls_due_during_the_pause(server: servers.Server):
    """With all defaults and one scheduled event."""
    target = Target()
    with server.client() as client:
        async with Box.open(server.url, name=new_box_name()) as box:
            await box.put(Event("n", event_id="due", delay=0.6))
            relay = Relay(box, target)
            async with running(relay):
                await until(lambda: waiting(client), "the relay does not wait")
                async with paused_writes(server):
                    # It tries to end its wait when the event is due; that and its claim are postponed.
                    await until(lambda: unfinished(client, "evalsha") >= 1, "nothing is postponed")
                    await until(lambda: not waiting(client), "the wait does not end")
                    assert not target.tried
                await target.has_taken(1)
            assert await states(box) == {State.PUBLISHED: 1}


async def _delivers_afterwards(server: servers.Server, name: str, target: Target) -> None:
    async with Box.open(server.url, name=name) as box:
        await box.put(Event("n", event_id="afterwards"))
        async with running(Relay(box, target)):
            await target.has_taken(1)
        assert await states(box) == {State.PUBLISHED: 1}


async def test_on_a_cluster():
    with servers.cluster() as cluster:
        async with Box.open(cluster.url, name=new_box_name()) as box:
            await box.put(Event("n", event_id="later", delay=60))
            relay = Relay(box, target := Target(), poll=0.3, **ALONE)
            task = asyncio.create_task(relay.run())
            clients = [node.client() for node in cluster.nodes]
            await until(lambda: any(map(waiting, clients)), "the relay does not wait")
            async with paused_writes(*cluster.nodes):
                await until(lambda: any(map(postponed, clients)), "nothing is postponed")
                began = time.monotonic()
                relay.stop()
                async with asyncio.timeout(LIMIT):
                    await task
                assert time.monotonic() - began < PROMPT
            async with running(Relay(box, target)):
                await box.put(Event("n", event_id="now"))
                await target.has_taken(1)
            for client in clients:
                client.close()


# --- without a pause ---------------------------------------------------------------------------------------------


async def test_ending_a_wait_sends_no_client_command_and_leaves_no_key(server: servers.Server):
    target = Target()
    with server.client() as client:
        async with Box.open(server.url, name=new_box_name()) as box:
            await box.put(Event("n", event_id="due", delay=0.2))
            async with running(Relay(box, target)):
                await target.has_taken(1)
                await until(lambda: waiting(client), "the relay does not wait")
            names = client.info("commandstats")
            assert "cmdstat_client|unblock" not in names
            left = set(client.scan_iter(f"{keys.prefix(box.name)}:wait:*"))
            assert all(client.pttl(key) > 0 for key in left)
            assert len(left) <= 1  # of a wait that ended by itself at the same moment


def test_no_source_names_the_command():
    package = Path(redbox.__file__).parent
    sources = [*package.rglob("*.py"), *Path(str(lua_root())).rglob("*.lua")]
    assert len(sources) > 100
    named = re.compile(r"\bUNBLOCK\b|(?i:client\W+unblock)")
    assert [path.name for path in sources if named.search(path.read_text())] == []
