"""Metrics of boxes without a relay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from redbox import Box, Event, Stats, keys
from redbox.errors import NewerLayout, NotPermitted, StoreUnavailable
from redbox.service import boxes as boxes_module
from redbox.service import exporter as module
from redbox.service.boxes import Boxes
from redbox.service.exporter import BoxHealth, Exporter
from tests.unit.test_metrics import parse

pytestmark = [pytest.mark.timeout(30), pytest.mark.req("RO-5"), pytest.mark.usefixtures("redbox_runner")]
BOX = 'box="test",store="memory:"'


async def get(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
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
    samples = parse(await BoxHealth(Boxes(redbox_box)).metrics())
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
    exporter = BoxHealth(Boxes(redbox_box))
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
        samples = parse(await BoxHealth(Boxes(redbox_box)).metrics())
        assert samples == {("redbox_up", 'store="memory:"'): 1, ("redbox_store_up", BOX): 0}


@asynccontextmanager
async def opener() -> AsyncIterator[Callable[[str], Box]]:
    """Opens boxes of one server."""
    url = f"memory:{uuid4().hex}"
    async with AsyncExitStack() as stack:
        opened: dict[str, Box] = {}

        def open_box(name: str) -> Box:
            if name not in opened:
                opened[name] = Box.open(url, name=name)
                stack.push_async_callback(opened[name].aclose)
            return opened[name]

        yield open_box


def served_boxes(text: str) -> set[str]:
    return {labels.partition('"')[2].partition('"')[0] for name, labels in parse(text) if name == "redbox_store_up"}


async def test_all_boxes_of_the_store(monkeypatch: pytest.MonkeyPatch):
    async with opener() as boxes:
        now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: now)
        names = boxes("default").names

        async def list_slowly() -> list[str]:
            nonlocal now
            now += 3  # seconds, for a pass over all keys
            return await names()

        monkeypatch.setattr(boxes("default"), "names", list_slowly)
        monkeypatch.setattr(boxes_module, "LISTING_WAIT", 20)
        await boxes("orders").put(Event("a"))
        exporter = BoxHealth(Boxes(boxes("default")), all_boxes=True)
        assert served_boxes(await exporter.metrics()) == {"orders"}
        await boxes("users").put(Event("a"))
        now += 290
        assert served_boxes(await exporter.metrics()) == {"orders"}, "listing the boxes is work for the server"
        now += 10
        assert served_boxes(await exporter.metrics()) == {"orders", "users"}


async def test_a_box_that_was_removed_is_not_served(monkeypatch: pytest.MonkeyPatch):
    async with opener() as boxes:
        now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: now)
        for name in ("orders", "users"):
            await boxes(name).put(Event("a"))
        exporter = BoxHealth(Boxes(boxes("default")), all_boxes=True)
        await exporter.metrics()
        removed = await boxes("default")._store.exchanges.scan("{redbox:users:*")
        await boxes("default")._store.exchange([("DEL", *removed)])
        now += 1
        assert served_boxes(await exporter.metrics()) == {"orders"}
        now += 300
        await exporter.metrics()
        assert [*exporter._boxes] == ["default", "orders"]


async def test_a_box_of_a_newer_layout_does_not_fail_the_others():
    async with opener() as boxes:
        for name in ("orders", "users"):
            await boxes(name).put(Event("a"))
        await boxes("users")._store.exchange([("HSET", keys.meta("users"), "layout", 99)])
        exporter = BoxHealth(Boxes(boxes("default")), all_boxes=True)
        ready, report = await exporter.health()
        assert ready
        assert report["problem"] is None
        assert "upgrade redbox" in report["unreadable"]["users"]
        assert [*report["unreadable"]] == ["users"]
        await boxes("orders")._store.exchange([("HSET", keys.meta("orders"), "layout", 99)])
        assert (await BoxHealth(Boxes(boxes("default")), all_boxes=True).health())[0] is False


async def test_a_removed_box_does_not_hide_that_no_box_can_be_read(monkeypatch: pytest.MonkeyPatch):
    async with opener() as boxes:
        now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: now)
        for name in ("orders", "users"):
            await boxes(name).put(Event("a"))
        exporter = BoxHealth(Boxes(boxes("default")), all_boxes=True)
        await exporter.metrics()
        removed = await boxes("default")._store.exchanges.scan("{redbox:users:*")
        await boxes("default")._store.exchange([("DEL", *removed)])
        await boxes("orders")._store.exchange([("HSET", keys.meta("orders"), "layout", 99)])
        now += 1
        ready, report = await exporter.health()
        assert not ready
        assert "upgrade redbox" in report["problem"]
        assert parse(await exporter.metrics())["redbox_up", 'store="' + boxes("default").where + '"'] == 1


async def test_all_boxes_of_a_store_that_is_away(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    for name in ("names", "stats"):
        monkeypatch.setattr(redbox_box, name, failing(StoreUnavailable("it is away")))
    exporter = BoxHealth(Boxes(redbox_box), all_boxes=True)
    assert parse(await exporter.metrics()) == {("redbox_up", 'store="memory:"'): 0, ("redbox_store_up", BOX): 0}
    assert (await exporter.health())[0] is False


async def test_a_store_with_too_many_keys_to_list_is_up(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    """The listing goes on in the background; the boxes that are known are served."""
    await redbox_box.put(Event("a"))
    listings, ended = 0, asyncio.Event()

    async def list_for_long() -> list[str]:
        nonlocal listings
        listings += 1
        await ended.wait()
        return ["other", "test"]

    monkeypatch.setattr(redbox_box, "names", list_for_long)
    monkeypatch.setattr(boxes_module, "LISTING_WAIT", 0.01)
    monkeypatch.setattr(module, "FRESH_SECONDS", 0)
    boxes = Boxes(redbox_box)
    exporter = BoxHealth(boxes, all_boxes=True)
    for _ in range(3):
        text, _ = await asyncio.gather(exporter.metrics(), boxes.names())
        assert parse(text)["redbox_up", 'store="memory:"'] == 1
        assert parse(text)["redbox_store_up", BOX] == 1
    assert (await exporter.health())[0] is True
    assert listings == 1
    ended.set()
    assert await boxes.names() == ["other", "test"]


async def test_boxes_that_cannot_be_listed_do_not_hide_the_others(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    await redbox_box.put(Event("a"))
    monkeypatch.setattr(redbox_box, "names", failing(NotPermitted("SCAN is not permitted")))
    exporter = BoxHealth(Boxes(redbox_box), all_boxes=True)
    ready, report = await exporter.health()
    assert ready
    assert "SCAN" in report["unlisted"]
    assert parse(await exporter.metrics())["redbox_up", 'store="memory:"'] == 1
