"""redbox, with a relay and its defaults: time limit, renewal, heartbeat and breaker on.

Variants: `ordered` spreads the events over 1,000 ordering keys; `fsync` puts with that durability.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from contender import BATCH, Contender, Figures, Handle, main
from server import Stopwatch, by_phase

from redbox import Box, Event, Relay

KEYS = 1000


class Redbox(Contender):
    libraries = ("redbox-outbox", "redis", "hiredis", "uvloop")

    async def open(self) -> None:
        self.box = Box.open(self.url, name="bench", durability="fsync" if self.variant == "fsync" else "server")
        self._numbers = itertools.count()

    async def close(self) -> None:
        await self.box.aclose()

    async def put(self, payload: bytes) -> None:
        await self.box.put(Event("user.created", payload))

    async def put_many(self, payloads: Sequence[bytes]) -> None:
        await self.box.put_many([Event("user.created", payload, ordering_key=self._key()) for payload in payloads])

    async def consume(self, handle: Handle) -> None:
        async def publish(event: Event) -> None:
            handle(event.payload)

        self.relay = Relay(self.box, publish)
        await self.relay.run()

    async def settled(self, events: int) -> None:
        while self.relay.summary().published < events:  # noqa: ASYNC110  # the relay has no signal for it
            await asyncio.sleep(0.001)

    async def server_cpu(self, events: int) -> Figures:
        """The server's CPU time by phase, 500 events at a time."""
        with Stopwatch(self.url) as put:
            await self._fill(events)
        with Stopwatch(self.url) as claim:
            batches = [await self.box.claim("relay", limit=BATCH) for _ in range(events // BATCH)]
        with Stopwatch(self.url) as ack:
            for claims in batches:
                assert all(await self.box.ack(claims))
        return by_phase(events, put=put, claim=claim, ack=ack)

    def _key(self) -> str | None:
        return f"key-{next(self._numbers) % KEYS}" if self.variant == "ordered" else None


if __name__ == "__main__":
    main(Redbox)
