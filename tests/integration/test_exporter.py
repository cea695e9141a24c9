"""The exporter on a real server."""

from __future__ import annotations

import pytest

from redbox import Box, Event
from redbox.service.boxes import Boxes
from redbox.service.exporter import BoxHealth
from tests import servers

pytestmark = [pytest.mark.req("RO-5"), pytest.mark.timeout(60), pytest.mark.usefixtures("redbox_runner")]


async def test_all_boxes_share_one_connection():
    with servers.redis_server() as server:
        for number in range(20):
            async with Box.open(server.url, name=f"box-{number}") as box:
                await box.put(Event("a"))
        watching = server.client()
        async with Box.open(server.url) as lender:
            exporter = BoxHealth(Boxes(lender), all_boxes=True)
            assert (await exporter.metrics()).count("redbox_store_up{") == 20
            assert len(watching.client_list()) == 2, "its own, and that of the test"
            assert len(await lender.names()) == 20, "the exporter must not close the connection"
        watching.close()
