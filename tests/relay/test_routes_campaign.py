"""A relay with routes is killed again and again in the middle of its fan-out."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from redbox import Box, Event, State
from redbox.box.beside import beside
from redbox.routing.destination import SOURCE
from redbox.testing import check_invariants
from tests import servers
from tests.relay.steps import until

EVENTS, KEYS, KILLS = 12_000, 60, 25
CONFIG = """\
url = "{url}"
[[relay]]
box = "orders"
lease = "1s"
batch = 50
routes = [
  {{match = "order.*", to = ["box:billing", "box:search"]}},
  {{match = "*.mail", to = "box:mail"}},
]
[[relay]]
box = "billing"
lease = "1s"
to = "box:archive"
"""
OTHERS = 'other_boxes = ["search", "mail", "archive"]\n'


@pytest.mark.campaign
@pytest.mark.req("RT-1", "RT-3")
@pytest.mark.timeout(400)
async def test_a_relay_killed_in_the_middle_of_a_fan_out(redbox_runner, tmp_path: Path):
    """Every destination has each of its events exactly once, and each key's events in order."""
    path = tmp_path / "redbox.toml"
    chance = random.Random(5)
    with servers.redis_server() as server:
        path.write_text(OTHERS + CONFIG.format(url=server.url))
        async with Box.open(server.url, name="orders") as orders:
            events = [
                Event(
                    chance.choice(("order.new", "order.mail", "a.mail")),
                    n,
                    event_id=f"e{n}",
                    ordering_key=f"k{n % KEYS}",
                )
                for n in range(EVENTS)
            ]
            await orders.put_many(events)
            billing = beside(orders, "billing")
            for _ in range(KILLS):
                process = start(path)
                try:
                    goal = await _put_into(billing) + chance.randrange(1, 300)
                    await until(lambda least=goal: _has(billing, least), "nothing was put", 30)
                finally:
                    process.kill()
                    process.wait(30)
            assert await orders.count(state="PENDING", limit=1), "all was drained before the last kill"
            process = start(path)
            try:
                for box in (orders, billing):
                    await until(lambda box=box: _is_drained(box), f"{box.name} was not drained", 150)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(30)
        repeated = 0
        wanted = {
            "billing": [e for e in events if e.event_type.startswith("order.")],
            "search": [e for e in events if e.event_type.startswith("order.")],
            "mail": [e for e in events if e.event_type.endswith(".mail")],
            "archive": [e for e in events if e.event_type.startswith("order.")],
        }
        for name, expected in wanted.items():
            async with Box.open(server.url, name=name) as box:
                assert await check_invariants(box) == []
                totals = (await box.stats()).totals
                assert totals["put"] == len(expected), name
                repeated += totals.get("repeated", 0)
                found = [record async for record in box.list()]
                assert {record.event_id for record in found} == {event.event_id for event in expected}
                assert len(found) == len(expected)
                assert {record.event.metadata[SOURCE] for record in found} == {
                    "billing" if name == "archive" else "orders"
                }
                await _check_order(box, name)
        assert repeated, "no relay was killed between a put and its ack"


async def _check_order(box: Box, name: str) -> None:
    """Claims all that is left, key by key: the events of a line come in the order of their numbers."""
    if name == "billing":
        return  # published already, in the order that `archive` shows
    last: dict[str, int] = {}
    while claims := await box.claim("checker", limit=1000):
        for claim in claims:
            number, key = claim.event.decode(), str(claim.event.ordering_key)
            assert number > last.get(key, -1), f"{name}: {key} has {number} after {last[key]}"
            last[key] = number
        await box.ack(claims)


def start(config: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "redbox", "relay", "--config", str(config), "-q"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


async def _put_into(box: Box) -> int:
    return (await box.stats()).totals.get("put", 0)


async def _has(box: Box, least: int) -> bool:
    return await _put_into(box) >= least


async def _is_drained(box: Box) -> bool:
    assert not await box.count(state=State.DEAD, limit=1)
    return not await box.count(state=State.PENDING, limit=1) and not await box.count(state=State.CLAIMED, limit=1)
