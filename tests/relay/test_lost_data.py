"""A server that lost its data counts claims from 1 again; relays that hold claims from before must not confuse them."""

from __future__ import annotations

import asyncio

import pytest

from redbox import Box, Event, Relay, State
from tests import servers
from tests.relay.steps import Target, running, states, until

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("redbox_runner")]
PAYLOAD = b"x" * 1000
HELD = 8


class TwoGates(Target):
    """Each generation of events waits at a gate of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = {"old": asyncio.Event(), "new": asyncio.Event()}

    async def __call__(self, event: Event) -> None:
        self.tried.append(event.event_id)
        if event.event_type in self.gates:
            await self.gates[event.event_type].wait()
        self.taken.append(event.event_id)


async def put(box: Box, kind: str, first: int, count: int) -> None:
    await box.put_many([Event(kind, PAYLOAD, event_id=f"e{number}") for number in range(first, first + count)])


@pytest.mark.req("PL-6", "PL-7")
@pytest.mark.parametrize("same_ids", [False, True])
@pytest.mark.parametrize("how", ["flush", "restart"])
async def test_claims_with_the_same_number_are_distinguished(how: str, same_ids: bool):
    with servers.redis_server() as server:
        async with Box.open(server.url, name="lost") as box:
            target = TwoGates()
            relay = Relay(
                box, target, concurrency=4 * HELD, buffer_bytes=3 * HELD * len(PAYLOAD), lease=1.0, poll=0.1,
                reap_every=0.1,
            )  # fmt: skip
            async with running(relay):
                await put(box, "old", 0, HELD)
                await target.has_tried(HELD)
                if how == "flush":
                    with server.client() as client:
                        client.flushall()
                else:
                    server.kill()
                    await asyncio.to_thread(server.start)
                first = 0 if same_ids else 100
                await put(box, "new", first, HELD)
                await target.has_tried(2 * HELD)
                ids = [f"e{number}" for number in range(first, first + HELD)]
                records = [await box.get(event_id) for event_id in ids]
                assert {record.number for record in records if record} == set(range(1, HELD + 1)), "no number repeats"

                # The old claims end first. The new ones are still held and still renewed.
                target.gates["old"].set()
                await target.has_taken(HELD)
                if not same_ids:
                    await until(lambda: relay.summary().fenced == HELD, "the old claims are not settled")
                    ends = max(record.lease_until for record in records if record and record.lease_until)

                    async def renewed() -> bool:
                        now = [await box.get(event_id) for event_id in ids]
                        return all(record and record.lease_until and record.lease_until > ends for record in now)

                    await until(renewed, "the leases were not renewed")
                target.gates["new"].set()
                await until(lambda: relay.in_flight == 0, "it holds claims forever")
                assert relay._engine is not None
                assert relay._engine.ledger.bytes == 0

                # More than its byte limit: the room has come back.
                await put(box, "more", 1000, 10 * HELD)
                await until(lambda: relay.in_flight == 0 and len(target.taken) >= 12 * HELD, "the room is gone")
            assert await states(box) == {State.PUBLISHED: 11 * HELD}
