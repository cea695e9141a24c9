"""Metrics of boxes without a relay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from redbox import Box, Event, Stats
from redbox.errors import NewerLayout, StoreUnavailable
from redbox.relay import exporter as module
from redbox.relay.exporter import Exporter
from tests.unit.test_metrics import parse

pytestmark = [pytest.mark.timeout(30), pytest.mark.req("RO-5")]
BOX = 'box="test",store="memory:"'


async def get(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


def failing(error: Exception) -> Callable[[], Any]:
    async def fail() -> None:
        raise error

    return fail


async def test_a_box_without_a_relay_has_all_metrics(redbox_box: Box):
    await redbox_box.put_many([Event("a"), Event("a", delay=60)])
    async with Exporter(redbox_box, 0) as served:
        status, text = await get(served.port, "/metrics")
        assert status == 200
        samples = parse(text)
        assert samples["redbox_up", 'store="memory:"'] == 1
        assert samples["redbox_store_up", BOX] == 1
        assert samples["redbox_phase", f'{BOX},phase="AVAILABLE"'] == 1
        assert samples["redbox_phase", f'{BOX},phase="SCHEDULED"'] == 1
        assert samples["redbox_relays_alive", BOX] == 0
        assert samples["redbox_relays_breaker_open", BOX] == 0
        assert samples["redbox_box_events_total", f'{BOX},step="put"'] == 2
        assert (await get(served.port, "/livez"))[0] == 200
        assert json.loads((await get(served.port, "/readyz"))[1]) == {"status": "ok", "problem": None}
        assert (await get(served.port, "/x"))[0] == 404


async def test_relays_and_their_breakers_are_counted(redbox_box: Box):
    await redbox_box.put(Event("a"))
    for name, breaker in (("r1", "open"), ("r2", "closed"), ("r3", "closed")):
        await redbox_box.beat(name, name, {"breaker": breaker}, fresh=10)
    samples = parse(await Exporter(redbox_box, 0).metrics())
    assert samples["redbox_relays_alive", BOX] == 3
    assert samples["redbox_relays_breaker_open", BOX] == 1


async def test_the_store_is_read_at_most_once_per_second(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    read, calls, now = redbox_box.stats, 0, 100.0

    async def count() -> Stats:
        nonlocal calls
        calls += 1
        return await read()

    monkeypatch.setattr(redbox_box, "stats", count)
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    exporter = Exporter(redbox_box, 0)
    await asyncio.gather(*(exporter.metrics() for _ in range(10)))
    now = 100.9
    await exporter.metrics()
    assert calls == 1
    now = 101.0
    await exporter.metrics()
    assert calls == 2


async def test_a_store_that_is_away(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    await redbox_box.put(Event("a"))
    with monkeypatch.context() as patch:
        patch.setattr(redbox_box, "stats", failing(StoreUnavailable("it is away")))
        async with Exporter(redbox_box, 0) as served:
            samples = parse((await get(served.port, "/metrics"))[1])
            assert samples == {("redbox_up", 'store="memory:"'): 0, ("redbox_store_up", BOX): 0}
            status, report = await get(served.port, "/readyz")
            assert (status, json.loads(report)["problem"]) == (503, "it is away")
        patch.setattr(redbox_box, "stats", failing(NewerLayout()))
        samples = parse(await Exporter(redbox_box, 0).metrics())
        assert samples == {("redbox_up", 'store="memory:"'): 1, ("redbox_store_up", BOX): 0}


async def test_all_boxes_of_the_store(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    await redbox_box.put(Event("a"))
    opened: list[Box] = []

    def open_box(name: str) -> Box:
        opened.append(redbox_box)
        return redbox_box

    names = ["test"]

    async def list_names() -> list[str]:
        return names

    monkeypatch.setattr(redbox_box, "names", list_names)
    exporter = Exporter(redbox_box, 0, open_box=open_box)
    assert parse(await exporter.metrics())["redbox_store_up", BOX] == 1
    names.append("users")
    now += 10
    await exporter.metrics()
    assert len(opened) == 1, "listing the boxes is work for the server"
    now += 300
    assert parse(await exporter.metrics())["redbox_store_up", 'box="users",store="memory:"'] == 1


async def test_all_boxes_of_a_store_that_is_away(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(redbox_box, "names", failing(StoreUnavailable("it is away")))
    exporter = Exporter(redbox_box, 0, open_box=lambda _: redbox_box)
    assert parse(await exporter.metrics()) == {("redbox_up", 'store="memory:"'): 0}
    assert (await exporter.health())[0] is False
