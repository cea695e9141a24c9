"""Bare HTTP clients: a hundred tasks that post one request after the other. The variant is the name of the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import version

from contender import TASKS, Contender, Figures, main
from posts import HEADERS, Posts, now
from server import Stopwatch

Post = Callable[[], Awaitable[int]]


class Client(Contender):
    libraries = ("uvloop",)

    async def http(self, events: int) -> Figures:
        figures = await getattr(self, self.variant)(events)
        return {**figures, "client": f"{self.variant} {version(self.variant)}"}

    async def aiohttp(self, events: int) -> Figures:
        import aiohttp

        connector = aiohttp.TCPConnector(limit=TASKS)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

            async def post() -> int:
                async with session.post(self.target, data=self._payload(), headers=HEADERS) as response:
                    await response.read()
                    return response.status

            return await self._measure(events, post)

    async def pyreqwest(self, events: int) -> Figures:
        from pyreqwest.client import ClientBuilder

        async with ClientBuilder().build() as client:

            async def post() -> int:
                request = client.post(self.target).headers(HEADERS).body_bytes(self._payload()).build()
                return (await request.send()).status

            return await self._measure(events, post)

    async def httpx(self, events: int) -> Figures:
        import httpx

        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=TASKS), timeout=60) as client:

            async def post() -> int:
                return (await client.post(self.target, content=self._payload(), headers=HEADERS)).status_code

            return await self._measure(events, post)

    async def _measure(self, events: int, post: Post) -> Figures:
        posts = Posts()

        async def timed(_: object) -> None:
            began = now()
            assert await post() == 204
            posts.add(now() - began)

        self.put = timed  # type: ignore[method-assign]
        await self._by_tasks([b""] * TASKS)  # connects
        posts.forget()
        with Stopwatch(self.url) as watch:
            await self._by_tasks([b""] * events)
        return {**watch.per(events), **posts.figures()}


if __name__ == "__main__":
    main(Client)
