"""The settler alone: its calls of the box, and its behaviour while the store does not answer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from redbox import Box, Event, State, StoreUnavailable
from redbox.errors import DurabilityNotReached
from redbox.relay.claiming.buffer import Buffer
from redbox.relay.claiming.held import Held
from redbox.relay.claiming.ledger import Ledger
from redbox.relay.digest import Digest
from redbox.relay.outcomes import settler as settling
from redbox.relay.outcomes.settler import Settler
from redbox.relay.report import Tally
from tests.relay.steps import known

pytestmark = pytest.mark.timeout(30)


class Scene:
    """Held claims, and a settler whose box can be made to fail."""

    def __init__(self, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
        self.box = box
        self.tally = Tally()
        self.ledger = Ledger(box, Buffer(dead_letters_first=True), Digest(), lease=60.0)
        self.claimed: list[Held] = []
        self.calls = 0
        self.settler = Settler(box, self.tally, self.ledger, delete=False, drop=False)
        self._patch = monkeypatch
        monkeypatch.setattr(settling, "FIRST_PAUSE", 0.0)

    async def claim(self, count: int, *, lease_left: float = 60.0) -> list[Held]:
        await self.box.put_many([Event("n", event_id=f"e{number}") for number in range(count)])
        now = asyncio.get_running_loop().time()
        self.claimed += (helds := self.ledger.add(await self.box.claim("relay-1"), now, now + lease_left))
        return helds

    @property
    def forgotten(self) -> list[Held]:
        """The claims that have left the ledger."""
        return [held for held in self.claimed if held not in self.ledger]

    def fail(self, times: int, error: Exception) -> None:
        """The next acknowledgements fail."""
        real = self.box.ack

        async def ack(*arguments: Any, **options: Any) -> list[bool]:
            self.calls += 1
            if self.calls <= times:
                raise error
            return await real(*arguments, **options)

        self._patch.setattr(self.box, "ack", ack)


@pytest.fixture
def scene(redbox_box: Box, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(redbox_box, monkeypatch)


@pytest.mark.req("PL-7")
async def test_it_asks_again_until_the_store_answers(scene: Scene):
    (held,) = await scene.claim(1)
    scene.fail(3, StoreUnavailable("away"))
    scene.settler.ack(held)
    await scene.settler.settle_all()
    assert (scene.calls, scene.tally.published, scene.tally.unsettled) == (4, 1, 0)
    assert scene.forgotten == [held]
    assert (await known(scene.box)).state is State.PUBLISHED


@pytest.mark.req("PL-7")
async def test_it_gives_up_when_the_last_lease_of_the_batch_has_ended(scene: Scene):
    first, second = await scene.claim(2, lease_left=-1.0)
    scene.fail(100, StoreUnavailable("away"))
    scene.settler.ack(first)
    scene.settler.ack(second)
    async with asyncio.timeout(10):
        await scene.settler.settle_all()
    assert (scene.calls, scene.tally.published, scene.tally.unsettled) == (1, 0, 2)
    assert scene.forgotten == [first, second]


@pytest.mark.req("PL-6")
async def test_a_claim_that_was_gone_is_fenced_and_not_counted_as_published(scene: Scene):
    first, second = await scene.claim(2)
    await scene.box.release(first.claim)
    scene.settler.ack(first)
    scene.settler.ack(second)
    await scene.settler.settle_all()
    assert (scene.tally.published, scene.tally.fenced) == (1, 1)
    assert scene.forgotten == [first, second]


@pytest.mark.req("SC-4")
async def test_a_settlement_whose_durability_was_not_reached_is_made_and_not_repeated(scene: Scene):
    (held,) = await scene.claim(1)
    scene.fail(100, DurabilityNotReached("no replica confirmed"))
    scene.settler.ack(held)
    await scene.settler.settle_all()
    assert (scene.calls, scene.tally.published, scene.tally.unsettled, scene.tally.fenced) == (1, 1, 0, 0)


@pytest.mark.req("RF-1", "EM-11")
async def test_each_retry_of_a_batch_has_its_own_delay_excuse_and_reason(scene: Scene):
    first, second = await scene.claim(2)
    scene.settler.retry(first, 100.0, ValueError("one"), excuse=True)
    scene.settler.retry(second, 900.0, ValueError("two"), excuse=False)
    await scene.settler.settle_all()
    now = (await scene.box.stats()).at
    one, two = await known(scene.box, "e0"), await known(scene.box, "e1")
    assert (one.excused, one.last_error) == (1, "ValueError: one")
    assert (two.excused, two.last_error) == (0, "ValueError: two")
    assert one.available_at - now <= timedelta(seconds=100)
    assert two.available_at - now > timedelta(seconds=800)


@pytest.mark.req("PL-5", "EM-11")
async def test_each_death_of_a_batch_has_its_own_reason(scene: Scene):
    first, second = await scene.claim(2)
    scene.settler.kill(first, "one")
    scene.settler.kill(second, "two")
    await scene.settler.settle_all()
    assert [(await known(scene.box, name)).last_error for name in ("e0", "e1")] == ["one", "two"]
    assert scene.tally.dead == 2
