"""The course of the demo: a relay delivers orders to a service that sometimes fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from redbox import Backoff, Box, Event, Phase, Relay
from redbox.cli.demo.service import OrderService
from redbox.cli.demo.story import Story, watch
from redbox.errors import RedboxError
from redbox.publishers.registry import open_publisher

ORDERS: Final = 12
POISON: Final = 7
RETRY: Final = 0.3
PACE: Final = 0.08
PATIENCE: Final = 15.0
POLL: Final = 0.05


async def play(data: str, story: Story) -> None:
    """Runs the demo on an embedded server in the directory `data`, and checks the numbers at the end."""
    service = OrderService()
    await service.start()
    async with Box.open(f"embedded:{data}", name="demo") as box:
        try:
            await _Demo(box, service, story).run()
        finally:
            await service.stop()
        await account(box, service, story)


class _Demo:
    """Puts orders, relays them, and replays the one order that the service rejects."""

    def __init__(self, box: Box, service: OrderService, story: Story) -> None:
        self._box = box
        self._service = service
        self._story = story

    async def run(self) -> None:
        poison = await self._put()
        watched = watch(open_publisher(self._service.url), self._story)
        relay = Relay(self._box, watched, backoff=Backoff.exponential(RETRY, cap=4 * RETRY), concurrency=2, poll=0.5)
        self._story.step(f"A relay posts them to {self._service.url}, which fails every third request")
        async with relay:
            await self._until_settled("every order is delivered or dead")
            await self._dead_letter(poison)
            await self._replay(poison)
            await self._until_settled("the replayed order is delivered")

    async def _put(self) -> str:
        self._story.step(f"An application puts {ORDERS} orders, one of which the service will reject")
        ids = []
        for number in range(1, ORDERS + 1):
            amount = -1 if number == POISON else 10 * number
            receipt = await self._box.put(Event("order.placed", {"order": number, "amount": amount}))
            ids.append(receipt.event_id)
            self._story.report("put", f"order {number}", "stored on disk")
            await asyncio.sleep(PACE)
        return ids[POISON - 1]

    async def _dead_letter(self, poison: str) -> None:
        self._story.step("The service rejected one order: it is dead, and kept until an operator decides")
        record = await self._box.get(poison)
        _expect(record is not None and record.state == "DEAD", "the rejected order is dead")
        assert record is not None
        self._story.report("dead", f"order {POISON}", record.last_error or "", record.state)

    async def _replay(self, poison: str) -> None:
        self._story.step("The service is repaired, and an operator replays the dead order")
        self._service.repaired = True
        report = await self._box.replay([poison], who="demo", why="the service is repaired")
        _expect(report.replayed == 1, "a dead event can be replayed")
        self._story.report("replay", f"order {POISON}", "is PENDING again; its earlier attempts do not count")

    async def _until_settled(self, condition: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            stats = await self._box.stats()
            ended = stats.phases[Phase.COMPLETED] + stats.phases[Phase.DEAD]
            if ended == ORDERS:
                return
            if time.monotonic() > deadline:
                raise RedboxError(
                    f"the demo waited {PATIENCE:g} s until {condition}, without success; please report it"
                )
            await asyncio.sleep(POLL)


async def account(box: Box, service: OrderService, story: Story) -> None:
    """Compares the counts of the box with each other and with those of the service."""
    story.step("The counts at the end")
    stats = await box.stats()
    total: Callable[[str], int] = lambda name: stats.totals.get(name, 0)  # noqa: E731 - read once per line below
    completed = stats.phases[Phase.COMPLETED]
    others = sum(stats.phases.values()) - completed
    ended = sum(map(total, ("published", "retried", "dead", "expired", "released")))
    sums = [
        ("orders put = orders that arrived", total("put"), len(service.arrived)),
        ("orders put = events COMPLETED", total("put"), completed),
        ("events in other phases = 0", others, 0),
        ("events marked DEAD = replays", total("dead"), total("replayed")),
        ("claims = published + retried + dead + expired + released", total("claimed"), ended),
        ("requests to the service = claims", service.requests, total("claimed")),
    ]
    story.account(stats, sums)
    wrong = [words for words, left, right in sums if left != right]
    _expect(not wrong, "; ".join(wrong))


def _expect(holds: bool, condition: str) -> None:
    if not holds:
        raise RedboxError(f"the demo expected that {condition}, which is not the case; please report it")
