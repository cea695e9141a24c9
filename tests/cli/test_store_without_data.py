"""Commands on a server that does not have its data yet: they must not say that the box does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests import servers
from tests.cli.conftest import Redbox

pytestmark = pytest.mark.req("RO-4")
READING = [("why",), ("stats",), ("dead", "list"), ("boxes",)]


@pytest.fixture(scope="module")
def loading() -> Iterator[servers.Server]:
    """A server that takes about 20 s to load its data, and answers meanwhile; its user `op` may not run INFO."""
    slow: dict[str, servers.Config] = {"key_load_delay": 1000, "loading_process_events_interval_bytes": 1024}
    with servers.redis_server(user="op on nopass +@all -info ~*", **slow) as server:
        with server.client() as client:
            client.eval("for n = 1, 20000 do redis.call('SET', 'key:' .. n, n) end", 0)
            client.save()
        server.kill()
        server.start()
        yield server
        server.kill()


@pytest.mark.parametrize("path", READING, ids=" ".join)
def test_a_server_that_loads_its_data_says_how_far_it_is(
    redbox: Redbox, loading: servers.Server, path: tuple[str, ...]
):
    message = redbox.error(*path, url=loading.url, code=3)
    assert re.search(
        r"still loading its data; wait, or use another server \([0-9]+ % loaded, about [0-9]+ s left\)", message
    )


def test_a_user_who_may_not_ask_how_far_the_loading_is(redbox: Redbox, loading: servers.Server):
    message = redbox.error("why", url=loading.url.replace("://", "://op:x@"), code=3)
    assert message.endswith("is still loading its data; wait, or use another server")


@pytest.mark.parametrize("path", READING, ids=" ".join)
@pytest.mark.parametrize("stale", ["yes", "no"])
def test_a_replica_that_never_reached_its_master_is_not_asked_for_boxes(
    redbox: Redbox, path: tuple[str, ...], stale: str
):
    with servers.redis_server(replicaof="127.0.0.1 1", replica_serve_stale_data=stale) as replica:
        message = redbox.error(*path, url=replica.url, code=3)
    assert "is a replica that has lost its master, or is not synchronized yet; connect to the master" in message


def test_a_replica_that_copies_the_data_of_its_master(redbox: Redbox):
    """The master sends its data so slowly that the replica answers meanwhile, without data."""
    slow: dict[str, servers.Config] = {
        "repl_diskless_sync": "yes",
        "repl_diskless_sync_delay": 0,
        "rdb_key_save_delay": 1000,
    }
    with servers.redis_server(**slow) as master:
        with master.client() as client:
            client.eval("for n = 1, 20000 do redis.call('SET', 'key:' .. n, n) end", 0)
        with servers.redis_server(replicaof=f"127.0.0.1 {master.port}") as replica:
            with replica.client() as client:
                servers.poll(lambda: client.info("replication")["master_sync_in_progress"] == 1, "no sync")  # type: ignore[index]
            message = redbox.error("why", url=replica.url, code=3)
    assert "is a replica that still copies the data of its master; wait, or connect to the master" in message
