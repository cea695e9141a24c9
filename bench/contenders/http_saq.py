"""SAQ with a job that posts its payload by aiohttp, a hundred at once."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from contender import TASKS, Figures, main
from posts import HEADERS, Posts, now
from saq import Worker
from server import Stopwatch
from with_saq import Saq


class OverHTTP(Saq):
    libraries = ("saq", "aiohttp", "redis", "hiredis", "uvloop")

    async def http(self, events: int) -> Figures:
        posts, done, left = Posts(), asyncio.Event(), events
        await self._fill(events)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=TASKS)) as session:

            async def work(context: Any, *, payload: str) -> None:  # noqa: ARG001  # it is called with both
                nonlocal left
                began = now()
                async with session.post(self.target, data=payload.encode(), headers=HEADERS) as response:
                    assert response.status == 204
                posts.add(now() - began)
                left -= 1
                if not left:
                    done.set()

            with Stopwatch(self.url) as watch:
                running = asyncio.create_task(Worker(self.queue, [("handle", work)], concurrency=TASKS).start())
                await done.wait()
            running.cancel()
            await asyncio.wait((running,), timeout=5)
        return {**watch.per(events), **posts.figures()}


if __name__ == "__main__":
    main(OverHTTP)
