"""Health and metrics of the service."""

from __future__ import annotations

import asyncio

import pytest

from redbox import Box, Event, Relay
from redbox.errors import StoreUnavailable
from redbox.service import health
from tests.service.exchange import QUIET, READ, request, serving, tokens
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
    calls, read = 0, redbox_box.stats

    async def count() -> object:
        nonlocal calls
        calls += 1
        return await read()

    monkeypatch.setattr(redbox_box, "stats", count)
    monkeypatch.setattr(health, "FRESH_SECONDS", 60.0)
    async with serving(redbox_box) as server:
        await asyncio.gather(*(request(server, "GET", "/readyz") for _ in range(10)))
    assert calls == 1
