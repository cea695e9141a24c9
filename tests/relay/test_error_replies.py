"""Temporary error replies: a relay waits them out, with growing pauses between its calls, and then continues."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from redbox import Box, Event, Relay, State, StoreUnavailable
from redbox.relay.outcomes.settler import FIRST_PAUSE
from redbox.testing.plugin import new_box_name
from tests import servers
from tests.relay.steps import Target, put, running, states, until

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("redbox_runner"), pytest.mark.req("PL-7")]


@pytest.fixture(params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    launch = servers.redis_server if request.param == "redis" else servers.valkey_server
    with launch(lua_time_limit=50) as started:
        yield started


def rejected(server: servers.Server) -> int:
    """How many script calls the server has refused."""
    with server.client() as client:
        seen: Any = client.info("commandstats")
    return sum(
        int(seen.get(f"cmdstat_{name}", {"rejected_calls": 0})["rejected_calls"]) for name in ("eval", "evalsha")
    )


@contextmanager
def slow_script(server: servers.Server) -> Iterator[None]:
    """Another client's script runs all the time; every other command is answered with BUSY."""

    def run() -> None:
        with server.client() as client, pytest.raises(redis.ResponseError):
            client.eval("while true do end", 0)

    thread = threading.Thread(target=run)
    thread.start()
    with server.client() as client:
        servers.poll(lambda: _is_busy(client), "the server is not busy")
        yield
        client.script_kill()
        thread.join()
        servers.poll(lambda: not _is_busy(client), "the server is still busy")


def _is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False


@contextmanager
def too_few_replicas(server: servers.Server) -> Iterator[None]:
    with server.client() as client:
        client.config_set("min-replicas-to-write", 1)
        yield
        client.config_set("min-replicas-to-write", 0)


TROUBLES = pytest.mark.parametrize("trouble", [slow_script, too_few_replicas])


@TROUBLES
async def test_an_idle_relay_waits_it_out(server: servers.Server, trouble: Any, caplog: pytest.LogCaptureFixture):
    target = Target()
    async with Box.open(server.url, name=new_box_name()) as box:
        await box.put(Event("n", event_id="before"))
        async with running(Relay(box, target, poll=0.2)) as (task,):
            await target.has_taken(1)
            with trouble(server):
                caplog.set_level(logging.DEBUG, "redbox.relay")
                await until(lambda: caplog.text.count("claiming again in") >= 4, "it does not ask again")
                assert not task.done()
            await box.put(Event("n", event_id="after"))
            await target.has_taken(2)
        assert await states(box) == {State.PUBLISHED: 2}
    # Four failed claims within 0.75 s, and the refused calls of the services.
    assert rejected(server) <= 20


@TROUBLES
async def test_events_in_hand_are_settled_afterwards(
    server: servers.Server, trouble: Any, caplog: pytest.LogCaptureFixture
):
    """They were published before; their acknowledgement has to wait, and they are published once."""
    target = Target()
    target.gate.clear()
    async with Box.open(server.url, name=new_box_name()) as box:
        await put(box, 20)
        async with running(relay := Relay(box, target)) as (task,):
            await target.has_tried(20)
            with trouble(server):
                target.gate.set()
                await target.has_taken(20)
                await until(lambda: "settling again" in caplog.text, "nothing was refused")
                assert not task.done()
            await until(lambda: relay.summary().published == 20, "they were not settled")
        assert sorted(target.tried) == sorted({*target.tried})
        assert await states(box) == {State.PUBLISHED: 20}


@TROUBLES
async def test_a_put_reports_the_error(server: servers.Server, trouble: Any):
    async with Box.open(server.url, name=new_box_name()) as box:
        await box.put(Event("n"))
        with trouble(server), pytest.raises(StoreUnavailable, match=r"another client's script|min-replicas-to-write"):
            await box.put(Event("n"))
        assert (await box.put(Event("n"))).created


@TROUBLES
async def test_a_server_in_trouble_is_not_taken_for_one_that_cannot_sync(
    server: servers.Server, trouble: Any, caplog: pytest.LogCaptureFixture
):
    """The abilities of the server are looked up when first needed; a temporary error reply does not answer that."""
    with server.client() as client:
        client.config_set("appendfsync", "always")
        client.config_set("appendonly", "yes")
        servers.poll(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the rewrite does not end")  # type: ignore[index]
    target = Target()
    async with Box.open(server.url, name=new_box_name(), durability="fsync") as box:
        with trouble(server):
            with pytest.raises(StoreUnavailable):
                await box.put(Event("n"))
            running_relay = asyncio.create_task((relay := Relay(box, target)).run())
            caplog.set_level(logging.DEBUG, "redbox.relay")
            await until(lambda: caplog.text.count("claiming again in") >= 2, "it does not try to claim again")
            assert not running_relay.done()
        await box.put(Event("n"))
        await target.has_taken(1)
        relay.stop()
        await running_relay


def refused_waits(client: redis.Redis) -> int:
    seen: Any = client.info("commandstats")
    return int(seen.get("cmdstat_blpop", {"rejected_calls": 0})["rejected_calls"])


async def test_a_wait_that_is_not_allowed_is_not_repeated_at_once():
    """BLPOP is refused and the claim behind it is not: each answer comes at once."""
    with servers.redis_server() as server, server.client() as client:
        client.execute_command("ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", "-blpop")
        target = Target()
        async with Box.open(f"redis://guest:secret@{server.host}:{server.port}/0", name=new_box_name()) as box:
            await box.put(Event("n", event_id="first"))
            async with running(Relay(box, target)):
                await target.has_taken(1)
                began, before = time.monotonic(), refused_waits(client)
                await until(lambda: refused_waits(client) >= before + 6, "it does not wait again")
                assert time.monotonic() - began >= 4 * FIRST_PAUSE
                await box.put(Event("n", event_id="second"))
                await target.has_taken(2)
