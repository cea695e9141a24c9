"""Health and metrics of the service."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redbox import Box, Event, Relay
from redbox.errors import StoreUnavailable
from redbox.service import health
from tests import servers
from tests.service.exchange import EVENT, QUIET, READ, request, serving, tokens
from tests.unit.test_metrics import parse

pytestmark = [pytest.mark.req("RO-5"), pytest.mark.timeout(30), QUIET]
LOGIN = {"authorization": f"Bearer {READ}"}


async def publish(event: Event) -> None:
    pass


async def test_metrics_are_those_of_the_boxes_and_of_the_relays(redbox_box: Box):
    await redbox_box.put(Event("a"))
    relay = Relay(redbox_box, publish, name="r1")
    async with serving(redbox_box, tokens=tokens(), relays=(relay,)) as server:
        assert (await request(server, "GET", "/metrics")).status == 401
        response = await request(server, "GET", "/metrics", **LOGIN)
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = parse(response.body.decode())
    assert samples["redbox_phase", 'box="test",phase="AVAILABLE",store="memory:"'] == 1
    assert samples["redbox_claimed_total", 'box="test",relay="r1"'] == 0


async def test_ready_means_that_the_store_runs_a_script_and_every_relay_runs(
    redbox_box: Box, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(health, "FRESH_SECONDS", 0.0)
    relay = Relay(redbox_box, publish, name="r1")
    async with serving(redbox_box, relays=(relay,)) as server:
        stopped = await request(server, "GET", "/readyz")
        assert (stopped.status, stopped.json["relays"][0]["problem"]) == (503, "the relay is not running")
        async with relay:
            async with asyncio.timeout(10):
                while not relay.running:  # noqa: ASYNC110  # there is no signal
                    await asyncio.sleep(0.001)
            running = await request(server, "GET", "/readyz")
            assert (running.status, running.json["status"], running.json["problem"]) == (200, "ok", None)
            assert (await request(server, "GET", "/healthz")).json == running.json

            async def fail() -> None:
                raise StoreUnavailable("the store has gone")

            monkeypatch.setattr(redbox_box, "stats", fail)
            broken = await request(server, "GET", "/readyz")
            assert (broken.status, broken.json["relays"][0]["problem"]) == (503, "the store has gone")
            monkeypatch.setattr(redbox_box.desk, "check_puts", fail)
            away = await request(server, "GET", "/readyz")
            assert (away.status, away.json["problem"]) == (503, "the store has gone")
            alive = await request(server, "GET", "/livez")
            assert (alive.status, alive.json) == (200, {"status": "ok"})
            head = await request(server, "HEAD", "/readyz")
            assert (head.status, head.body) == (503, b"")


async def test_without_a_token_probes_show_no_details(redbox_box: Box):
    async with serving(redbox_box, tokens=tokens()) as server:
        assert (await request(server, "GET", "/readyz")).json == {"status": "ok"}
        assert (await request(server, "GET", "/livez")).json == {"status": "ok"}
        assert "relays" in (await request(server, "GET", "/readyz", **LOGIN)).json


async def test_probes_ask_the_store_at_most_once_per_second(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    """However many relays, connections of the same box, and clients there are: no token is needed to ask."""
    calls = 0

    def counted(read: Any) -> Any:
        async def count() -> Any:
            nonlocal calls
            calls += 1
            return await read()

        return count

    for name in ("stats", "settings"):
        monkeypatch.setattr(redbox_box, name, counted(getattr(redbox_box, name)))
    monkeypatch.setattr(health, "FRESH_SECONDS", 60.0)
    monkeypatch.setattr(Relay, "running", True)
    relays = tuple(Relay(redbox_box, publish, name=f"r{number}") for number in range(3))
    async with serving(redbox_box, relays=relays) as server:
        answers = await asyncio.gather(*(request(server, "GET", "/readyz") for _ in range(10)))
    assert {answer.status for answer in answers} == {200}
    assert calls == 1


async def test_the_store_is_asked_at_once_whether_it_accepts_events_and_answers_the_relays(
    redbox_box: Box, monkeypatch: pytest.MonkeyPatch
):
    """So that a probe of a store that does not answer takes 2 seconds, and not 4."""
    asked = asyncio.Barrier(2)
    stats = redbox_box.stats

    async def wait(*_: Any) -> Any:
        await asked.wait()
        return await stats()

    monkeypatch.setattr(redbox_box, "stats", wait)
    monkeypatch.setattr(redbox_box.desk, "check_puts", asked.wait)
    monkeypatch.setattr(Relay, "running", True)
    async with serving(redbox_box, relays=(Relay(redbox_box, publish),)) as server:
        assert (await request(server, "GET", "/readyz")).status == 200


@pytest.mark.usefixtures("redbox_runner")
@pytest.mark.parametrize(
    ("refuse", "accept", "problem"),
    [
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "read-only replica"),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "out of memory"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "replicas"),
    ],
)
async def test_a_service_whose_store_refuses_writes_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, refuse: str, accept: str, problem: str
):
    """As every put would fail. The check writes nothing, and creates no box."""
    monkeypatch.setattr(health, "FRESH_SECONDS", 0.0)
    with servers.redis_server() as started, started.client() as client:
        async with Box.open(started.url) as box, serving(box) as server:
            assert (await request(server, "GET", "/readyz")).status == 200
            assert client.dbsize() == 0
            client.execute_command(*refuse.split())
            failing = await request(server, "GET", "/readyz")
            assert (failing.status, failing.json["status"]) == (503, "failing")
            assert problem in failing.json["problem"]
            assert (await request(server, "POST", "/v1/events", EVENT)).status in (503, 507)
            client.execute_command(*accept.split())
            assert (await request(server, "GET", "/readyz")).status == 200
            assert (await request(server, "POST", "/v1/events", EVENT)).status == 202


async def test_a_full_or_paused_box_is_ready(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(health, "FRESH_SECONDS", 0.0)
    await redbox_box.operate.configure(who="test", why="", max_pending=1)
    await redbox_box.put(Event("a"))
    await redbox_box.operate.pause(who="test", why="")
    async with serving(redbox_box) as server:
        assert (await request(server, "GET", "/readyz")).status == 200
