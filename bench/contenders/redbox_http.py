"""redbox's relay with an HTTP target and its defaults: time limit, renewal, heartbeat and breaker on.

The variant `signed` adds a Standard Webhooks signature.
"""

from __future__ import annotations

import asyncio

from contender import TASKS, Figures, main
from posts import Posts, now
from server import Stopwatch
from with_redbox import Redbox

from redbox import Claim, Relay
from redbox.publishers.http.publisher import HTTPPublisher

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105  # an example


class Timed(HTTPPublisher):
    """Measures the duration of each request."""

    posts = Posts()

    async def publish(self, claim: Claim) -> None:
        began = now()
        await super().publish(claim)
        self.posts.add(now() - began)


class OverHTTP(Redbox):
    libraries = ("redbox-outbox", "aiohttp", "redis", "hiredis", "uvloop")

    async def http(self, events: int) -> Figures:
        await self._fill(TASKS)
        await self._drained(TASKS)
        await self._fill(events)
        Timed.posts.forget()
        with Stopwatch(self.url) as watch:
            await self._drained(events)
        return {**watch.per(events), **Timed.posts.figures()}

    async def _drained(self, events: int) -> None:
        self.relay = Relay(self.box, Timed(self.target, secret=SECRET if self.variant == "signed" else None))
        running = asyncio.create_task(self.relay.run())
        await self.settled(events)
        running.cancel()
        await asyncio.wait((running,))


if __name__ == "__main__":
    main(OverHTTP)
