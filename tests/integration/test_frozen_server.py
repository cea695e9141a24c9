"""A server that is frozen: it accepts connections and answers nothing. Every call ends after a known time."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from redbox import Box, Event, StoreUnavailable
from redbox.store.embedded import server as embedded
from redbox.testing.plugin import new_box_name
from tests import servers
from tests.servers import valkey_binary

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("redbox_runner"), pytest.mark.req("SC-1")]
READ_TIMEOUT = 0.5
#: Twice the read timeout, and something for a busy machine.
BOUND = 2 * READ_TIMEOUT + 0.5


@contextmanager
def frozen(*stopped: servers.Server) -> Iterator[None]:
    for server in stopped:
        os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for server in stopped:
            os.kill(server.pid, signal.SIGCONT)


async def seconds(work: Any) -> float:
    """How long it takes to fail."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await work
    return time.monotonic() - began


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.redis_server() as started:
        yield started


@pytest.fixture
def url(server: servers.Server) -> str:
    return f"{server.url}?socket_timeout={READ_TIMEOUT}"


@pytest.mark.parametrize("connected", [True, False])
async def test_a_put(server: servers.Server, url: str, connected: bool):
    async with Box.open(url, name=new_box_name()) as box:
        if connected:
            await box.put(Event("n"))
        with frozen(server):
            assert await seconds(box.put(Event("n"))) < BOUND
            assert await seconds(box.put(Event("n"))) < BOUND  # on a connection that has to be opened first
        assert (await box.put(Event("n"))).created


@pytest.mark.parametrize("connected", [True, False])
async def test_a_hundred_calls_at_once(server: servers.Server, url: str, connected: bool):
    """They do not wait for each other's attempts to connect."""
    async with Box.open(url, name=new_box_name()) as box:
        if connected:
            await box.put(Event("n"))
        with frozen(server):
            for _ in range(2):
                took = await asyncio.gather(
                    *(seconds(box.put(Event("n"))) for _ in range(50)), *(seconds(box.stats()) for _ in range(50))
                )
                assert max(took) < BOUND
        assert (await box.put(Event("n"))).created


async def test_a_transaction_and_a_claim(server: servers.Server, url: str):
    async def transact() -> None:
        async with box.transaction() as tx:
            tx.put(Event("n"))

    async with Box.open(url, name=new_box_name()) as box:
        await box.put(Event("n"))
        with frozen(server):
            assert await seconds(transact()) < BOUND
            assert await seconds(box.claim("relay-1")) < BOUND
            assert await seconds(box.wait_for_hint(0.1)) < BOUND
        await transact()


async def test_a_put_waits_for_durability_no_longer(server: servers.Server, url: str):
    async with Box.open(url, name=new_box_name()) as box:
        await box.put(Event("n"))
        with frozen(server):
            assert await seconds(box.put(Event("n"), durability="replicas=1")) < BOUND


async def test_a_node_of_a_cluster():
    with servers.cluster(cluster_node_timeout=60_000) as cluster:
        async with Box.open(f"{cluster.url}?socket_timeout={READ_TIMEOUT}", name=new_box_name()) as box:
            await box.put(Event("n"))
            with frozen(*cluster.nodes):
                for _ in range(2):
                    assert await seconds(box.put(Event("n"))) < BOUND + 2 * READ_TIMEOUT
            assert (await box.put(Event("n"))).created


async def test_an_embedded_server(tmp_path: Path):
    """It has not ended, so a call that cannot connect does not wait for it to start."""
    valkey_binary()
    async with Box.open(f"embedded:{tmp_path / 'data'}", name="orders") as box:
        wire: Any = await box._store.exchanges.wire()
        wire._client.connection_pool.connection_kwargs["socket_timeout"] = READ_TIMEOUT
        await box.put(Event("n"))
        pid = int((tmp_path / "data" / "server.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(2):  # the second has to connect first
                assert await seconds(box.stats()) < BOUND + embedded.PING_SECONDS
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (await box.put(Event("n"))).created


# --- sentinels -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def group() -> Iterator[servers.Sentinel]:
    with servers.sentinel() as started:
        yield started


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Where connections are accepted and nothing is answered."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield silent.getsockname()[1]


def sentinel_url(*ports: int) -> str:
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"redis+sentinel://{addresses}/mymaster/0?socket_timeout={READ_TIMEOUT}"


async def test_frozen_sentinels_before_one_that_answers(group: servers.Sentinel, silent_port: int):
    url = sentinel_url(silent_port, silent_port, group.sentinel.port)
    async with Box.open(url, name=new_box_name()) as box:
        began = time.monotonic()
        assert (await box.put(Event("n"))).created
        assert time.monotonic() - began < BOUND + 2 * READ_TIMEOUT


async def test_sentinels_that_are_all_frozen(silent_port: int):
    async with Box.open(sentinel_url(silent_port, silent_port, silent_port), name=new_box_name()) as box:
        assert await seconds(box.put(Event("n"))) < BOUND + 3 * READ_TIMEOUT


async def test_a_frozen_sentinel_of_an_applications_own_client(group: servers.Sentinel, silent_port: int):
    """Its own time limits and retries say how long it may look for the master."""
    sentinel = Sentinel(
        [("127.0.0.1", silent_port), ("127.0.0.1", group.sentinel.port)],
        sentinel_kwargs={"socket_timeout": READ_TIMEOUT, "retry": Retry(NoBackoff(), 1)},
    )
    client = sentinel.master_for("mymaster", socket_timeout=READ_TIMEOUT)
    async with sentinel, client, Box.open(client=client, name=new_box_name()) as box:
        assert (await box.put(Event("n"))).created


async def test_an_applications_own_pool_says_how_long_to_wait_for_a_connection(server: servers.Server):
    pool = BlockingConnectionPool.from_url(server.url, max_connections=1, timeout=30, socket_timeout=READ_TIMEOUT)
    async with Redis.from_pool(pool) as client, Box.open(client=client, name=new_box_name()) as box:
        taken = await pool.get_connection()
        put = asyncio.create_task(box.put(Event("n")))
        await asyncio.wait({put}, timeout=BOUND)
        await pool.release(taken)
        assert (await put).created


async def test_ordered_puts_that_wait_behind_each_other(server: servers.Server):
    """They go out in batches, one after the other; the batches behind do not wait for the server once more."""
    timeout = 4 * READ_TIMEOUT  # long beside the time that 8,000 puts take on a busy machine
    async with Box.open(f"{server.url}?socket_timeout={timeout}", name=new_box_name()) as box:
        await box.put(Event("n"))
        with frozen(server):
            puts = [box.put(Event("n", ordering_key="k")) for _ in range(8000)]
            began = time.monotonic()
            failures = await asyncio.gather(*puts, return_exceptions=True)
            took = time.monotonic() - began
    assert {type(failure) for failure in failures} == {StoreUnavailable}
    assert took < 7 * timeout  # and not 8 times, or more
    assert "nothing was changed" in str(failures[-1])
    assert failures[-1].event_id
