"""Random faults of target, store and operator together; the invariants hold afterwards. A seed that failed once is
added to the list."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from redbox import Backoff, Box, Breaker, Event, Phase, Reject, Relay, RetryLater, State, StoreUnavailable, Unavailable
from tests.relay.steps import LIMIT, adds_up, in_order, states, until

pytestmark = pytest.mark.timeout(60)
EVENTS, LINES = 120, 5
STEPS = 25


class Chance:
    """A target, a store and an operator, none of which can be relied upon until `calm` is set."""

    def __init__(self, box: Box, seed: int) -> None:
        self.box = box
        self.random = random.Random(seed)
        self.calm = False
        self.delivered: list[str] = []
        self.dead_letters: set[str] = set()
        for name in ("ack", "retry", "kill", "release", "renew", "claim_packed"):
            setattr(box, name, self._unreliable(getattr(box, name)))

    def _unreliable(self, call: Any) -> Any:
        async def sometimes(*args: Any, **options: Any) -> Any:
            if not self.calm and self.random.random() < 0.1:
                if self.random.random() < 0.5:
                    await call(*args, **options)  # and the reply is lost
                raise StoreUnavailable("no answer")
            return await call(*args, **options)

        return sometimes

    async def publish(self, event: Event) -> None:
        await asyncio.sleep(0)
        what = 1.0 if self.calm else self.random.random()
        if what < 0.1:
            raise ValueError("no")
        if what < 0.15:
            raise RetryLater(0.01)
        if what < 0.25:
            raise Reject("bad", kind=self.random.choice("abc"))
        if what < 0.35:
            raise Unavailable("down")
        if what < 0.4:
            await asyncio.sleep(10)
        if what < 0.45:
            raise asyncio.CancelledError
        self.delivered.append(event.event_id)
        if what < 0.55:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        elif what < 0.6:
            await asyncio.sleep(self.random.uniform(0, 0.03))

    async def dead_letter(self, event: Event) -> None:
        await asyncio.sleep(0)
        if not self.calm and self.random.random() < 0.3:
            raise Unavailable("down")
        self.dead_letters.add(event.event_id)

    def relay(self, number: int) -> Relay:
        return Relay(
            self.box,
            self.publish,
            name=f"relay-{number}",
            dead_to=self.dead_letter,
            backoff=Backoff.fixed(0.005),
            attempts=4,
            concurrency=self.random.choice([1, 4, 20]),
            buffer_bytes=3000,
            lease=0.4,
            time_limit=0.05,
            poll=0.02,
            grace=0.05,
            reap_every=0.05,
            beat_every=0.05,
            breaker=Breaker(pause=0.005, longest=0.02),
        )

    async def disturb(self, relays: list[Relay], tasks: list[asyncio.Task[Any]]) -> None:
        at, what = self.random.randrange(len(relays)), self.random.random()
        if what < 0.3:
            relays[at].stop()
        elif what < 0.6:
            tasks[at].cancel()
        elif what < 0.7:
            await self.box.operate.pause(who="ada", why="chance")
            await asyncio.sleep(0.01)
            await self.box.operate.resume(who="ada", why="chance")
        else:
            ids = [f"e{self.random.randrange(EVENTS)}" for _ in range(5)]
            await self.box.operate.release(ids, who="ada", why="chance")
        if what < 0.6:
            await asyncio.wait([tasks[at]], timeout=LIMIT)
            assert tasks[at].done(), "it does not end"
            assert tasks[at].cancelled() or adds_up(tasks[at].result()), tasks[at].result()
            tasks[at] = asyncio.create_task(relays[at].run())


@pytest.mark.campaign
@pytest.mark.req("PL-7", "OP-1")
@pytest.mark.parametrize("seed", range(3))
async def test_by_chance(redbox_box: Box, seed: int):
    before = asyncio.all_tasks()
    chance = Chance(redbox_box, seed)
    await redbox_box.put_many(
        [
            Event(
                "n",
                b"x" * chance.random.randrange(1000),
                event_id=f"e{number}",
                ordering_key=f"k{number % LINES}" if number % 2 else None,
            )
            for number in range(EVENTS)
        ]
    )
    relays = [chance.relay(number) for number in range(2)]
    tasks = [asyncio.create_task(relay.run()) for relay in relays]
    for _ in range(STEPS):
        await chance.disturb(relays, tasks)
        await asyncio.sleep(chance.random.uniform(0, 0.03))
    chance.calm = True

    async def settled() -> bool:
        phases = (await redbox_box.stats()).phases
        return phases[Phase.COMPLETED] + phases[Phase.DEAD] == EVENTS

    await until(settled, "not all were settled")
    engines = [relay._engine for relay in relays]
    for relay, task in zip(relays, tasks, strict=True):
        relay.stop()
        assert adds_up(await asyncio.wait_for(task, LIMIT)), relay.summary()
    assert [(len(engine.ledger), engine.ledger.bytes) for engine in engines if engine] == [(0, 0)] * 2
    left = {
        task for task in asyncio.all_tasks() - before if "fakeredis" not in repr(task)
    }  # its waits end by themselves
    assert left == set()

    found = await states(redbox_box)
    assert sum(found.values()) == EVENTS
    ends = {record.event_id: record.state async for record in redbox_box.list()}
    assert {event_id for event_id, state in ends.items() if state is State.PUBLISHED} <= set(chance.delivered)
    assert {event_id for event_id, state in ends.items() if state is State.DEAD} <= chance.dead_letters
    ordered = [event_id for event_id in chance.delivered if int(event_id[1:]) % 2]
    assert in_order(ordered, lambda event_id: int(event_id[1:]) % LINES)
