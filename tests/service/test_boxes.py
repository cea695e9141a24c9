"""The boxes of the service: found when they are asked for, over one connection."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from redbox import Box, Event
from redbox.errors import StoreUnavailable, UnknownBox
from redbox.service import boxes as module
from redbox.service.boxes import Boxes
from tests import servers

pytestmark = [pytest.mark.req("SF-6"), pytest.mark.usefixtures("redbox_runner")]


async def remove(box: Box, name: str) -> None:
    exchanges = box._store.exchanges
    await exchanges.ask([("DEL", *await exchanges.scan(f"{{redbox:{name}:*"))])


async def test_boxes_share_the_connection_of_the_default_box():
    with servers.redis_server() as server:
        async with Box.open(server.url) as default:
            boxes = Boxes(default)
            for number in range(20):
                async with Box.open(server.url, name=f"box-{number}") as box:
                    await box.put(Event("a"))
            found = await asyncio.gather(*(boxes.get(f"box-{number}") for number in range(20)))
            assert [(await box.stats()).totals["put"] for box in found] == [1] * 20
            assert (await found[0].put(Event("a"))).created
            watching = server.client()
            assert len(watching.client_list()) == 2, "that of the default box, and that of the test"
            watching.close()
            await boxes.aclose()
            assert await default.names(), "the default box belongs to the caller"


async def test_a_box_that_was_removed_is_unknown(monkeypatch: pytest.MonkeyPatch):
    async with Box.open(f"memory:{uuid4().hex}") as default:
        boxes = Boxes(default)
        with pytest.raises(UnknownBox, match="`redbox --box other configure max_pending=default --yes`"):
            await boxes.get("other")
        await boxes.beside("other").put(Event("a"))
        assert (await boxes.get("other")).name == "other"
        assert await boxes.names() == ["default", "other"]
        await remove(default, "other")
        monkeypatch.setattr(module, "KNOWN_SECONDS", 0)
        with pytest.raises(UnknownBox):
            await boxes.get("other")
        assert [box.name for box in boxes.opened] == ["default"]


async def test_a_box_that_nobody_asks_for_is_forgotten(monkeypatch: pytest.MonkeyPatch):
    async with Box.open(f"memory:{uuid4().hex}") as default:
        boxes = Boxes(default)
        await boxes.beside("other").put(Event("a"))
        await boxes.get("other")
        assert [box.name for box in boxes.opened] == ["default", "other"]
        monkeypatch.setattr(module, "IDLE_SECONDS", -1)
        assert [box.name for box in boxes.opened] == ["default"]


async def test_boxes_of_a_server_that_is_away_can_be_asked_for_again(monkeypatch: pytest.MonkeyPatch):
    async with Box.open(f"memory:{uuid4().hex}") as default:
        boxes = Boxes(default)
        await boxes.beside("other").put(Event("a"))

        async def fail(_: Box) -> bool:
            raise StoreUnavailable("it is away")

        with monkeypatch.context() as patch:
            patch.setattr(Box, "exists", fail)
            with pytest.raises(StoreUnavailable):
                await boxes.get("other")
        assert (await boxes.get("other")).name == "other"


async def test_a_box_has_the_options_of_the_default_box():
    async with Box.open(f"memory:{uuid4().hex}", max_payload=10) as default:
        boxes = Boxes(default)
        with pytest.raises(ValueError, match="payload"):
            await boxes.beside("other").put(Event("a", "x" * 20))


async def test_the_first_listing_after_an_outage_does_not_fail():
    """The connection that listed before was idle, and broke meanwhile."""
    with servers.redis_server() as server, server.client() as watching:
        async with Box.open(server.url) as default:
            await default.put(Event("a"))
            assert await default.names() == ["default"]
            watching.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            assert await default.names() == ["default"]


async def test_a_listing_that_takes_long_does_not_fail_for_the_one_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LISTING_WAIT", 0.01)
    async with Box.open(f"memory:{uuid4().hex}") as default:
        boxes = Boxes(default)

        async def fail() -> list[str]:
            raise StoreUnavailable("the store has gone")

        async def hang() -> list[str]:
            await asyncio.sleep(60)
            return []

        monkeypatch.setattr(default, "names", fail)
        with pytest.raises(StoreUnavailable):
            await boxes.names()
        monkeypatch.setattr(default, "names", hang)
        assert await boxes.names() == ["default"]
        await boxes.aclose()
