"""redbox's relay with its defaults, to the kind of target that the variant names."""

from __future__ import annotations

import asyncio

from brokers import EXCHANGE, QUEUE, STREAM, TOPIC, prepare
from contender import BATCH, Figures, main
from server import Stopwatch
from with_redbox import Redbox

from redbox import Relay


class ToTarget(Redbox):
    libraries = ("redbox-outbox", "aio-pika", "nats-py", "confluent-kafka", "aiohttp", "redis", "hiredis", "uvloop")

    async def targets(self, events: int) -> Figures:
        await prepare(self.variant, self.target)
        await self._fill(BATCH)
        await self._drained(BATCH)  # connects
        await self._fill(events)
        with Stopwatch(self.url) as watch:
            await self._drained(events)
        return watch.per(events)

    def _to(self) -> str:
        return {
            "rabbitmq": f"{self.target}/%2F/{EXCHANGE}?routing_key={QUEUE}",
            "nats": f"{self.target}/{STREAM}.{{event_type}}",
            "kafka": f"{self.target}/{TOPIC}",
            "http": self.target,
            "box": "box:copy",
            "null": "null:",
        }[self.variant]

    async def _drained(self, events: int) -> None:
        self.relay = Relay(self.box, self._to())
        running = asyncio.create_task(self.relay.run())
        await self.settled(events)
        running.cancel()
        await asyncio.wait((running,))


if __name__ == "__main__":
    main(ToTarget)
