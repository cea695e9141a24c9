"""That a relay from box to box has not become slow: a ratio to the same relay to `null:`, with a wide margin."""

from __future__ import annotations

import time

import pytest

from bench.question import SETTINGS
from redbox import Box, Event, Relay
from tests import servers

EVENTS, ROUNDS = 10_000, 4
TARGETS = ("null:", "box:billing")


@pytest.mark.req("RT-1")
@pytest.mark.timeout(300)
async def test_box_to_box_beside_null(redbox_runner):
    best = dict.fromkeys(TARGETS, 0.0)
    with servers.redis_server(**SETTINGS) as server:
        async with Box.open(server.url, name="orders") as orders:
            for _ in range(ROUNDS):
                for target in TARGETS:
                    await orders.put_many([Event("order.new", b"x" * 512) for _ in range(EVENTS)])
                    began = time.monotonic()
                    assert (await Relay(orders, target).drain()).published == EVENTS
                    best[target] = max(best[target], EVENTS / (time.monotonic() - began))
                if best["box:billing"] / best["null:"] >= 0.5:
                    break  # far from the limit
    assert best["box:billing"] / best["null:"] >= 0.25, best
