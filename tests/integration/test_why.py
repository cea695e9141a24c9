"""The explanation of a box on a server that really refuses writes: RO-4."""

from __future__ import annotations

import pytest

from redbox import Box, Event, NotPermitted, Situation, StoreError, StoreFull
from redbox.audit import diagnose
from tests import servers

pytestmark = [pytest.mark.req("RO-4"), pytest.mark.usefixtures("redbox_runner")]


async def put_until_refused(box: Box) -> None:
    for _ in range(1000):
        await box.put(Event("n", b"x" * 20_000))


async def test_a_server_without_memory():
    with servers.redis_server(maxmemory="4mb", maxmemory_policy="noeviction") as server:
        async with Box.open(server.url, name="orders") as box:
            with pytest.raises(StoreFull):
                await put_until_refused(box)
            found = await box.why()
            assert found.situation is Situation.STORE_REFUSES_WRITES
            assert "of maxmemory 4.0 MiB, with the policy noeviction" in found.sentences[0]
            assert found.evidence["server"]["maxmemory_policy"] == "noeviction"


async def test_a_read_only_replica():
    with servers.redis_server() as master, servers.redis_server(replicaof=f"127.0.0.1 {master.port}") as replica:
        async with Box.open(replica.url, name="orders") as box:
            with pytest.raises(StoreError):
                await box.put(Event("n"))
            found = await box.why()
            assert found.situation is Situation.STORE_REFUSES_WRITES
            assert "read-only replica" in found.sentences[0]


async def test_a_user_who_may_not_ask_for_the_memory():
    """The other causes are found without INFO and CONFIG."""
    with servers.redis_server() as server:
        async with Box.open(server.url, name="orders") as box:
            await box.put(Event("n", event_id="e"))
        with server.client() as client:
            client.acl_setuser("op", enabled=True, nopass=True, commands=["+@all", "-info", "-config"], keys=["*"])
        async with Box.open(server.url.replace("://", "://op:x@"), name="orders") as box:
            found = await box.why()
        assert found.situation is Situation.NO_RELAY
        assert found.evidence["server"] == {}


@pytest.mark.parametrize("command", ["time", "zcard", "zmscore"])
async def test_a_user_who_may_not_run_a_command(command: str):
    """A reading that is refused leaves nothing half done; doctor names the permission, and goes on where it can."""
    with servers.redis_server() as server:
        async with Box.open(server.url, name="orders") as box:
            await box.put(Event("n", event_id="e"))
        with server.client() as client:
            client.acl_setuser("op", enabled=True, nopass=True, commands=["+@all", f"-{command}"], keys=["*"])
        async with Box.open(server.url.replace("://", "://op:x@"), name="orders") as box:
            if command != "zmscore":
                with pytest.raises(NotPermitted, match=r"may not run one of its commands.*`redbox doctor` names it"):
                    await box.why()
            findings = await diagnose(box)
        assert [each.remedy for each in findings if f"+{command}" in each.remedy]
        checked = {each.check for each in findings}
        assert {"server", "eviction", "persistence", "permissions"} <= checked
        unread = {each.check for each in findings if "could not be read" in each.sentence}
        assert unread == ({"clock"} if command == "time" else set())
