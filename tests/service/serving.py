"""A service on a real server, and a client of it."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from redbox import Box, Event
from redbox.service.app import create_app
from redbox.service.boxes import Boxes
from redbox.service.http.listening import Address
from redbox.service.http.pool import Limits
from redbox.service.http.server import HttpServer
from redbox.service.options import ServiceOptions

_names = (f"service-{os.getpid()}-{number}" for number in itertools.count())


class Service:
    """A running service: `box` is its default box."""

    def __init__(self, box: Box, client: httpx.AsyncClient, app: Any) -> None:
        self.box = box
        self.client = client
        self.app = app

    @property
    def url(self) -> str:
        return str(self.client.base_url)

    async def request(self, method: str, path: str, code: int = 200, **options: Any) -> Any:
        """The JSON of the answer to a request below the box; a path with a leading slash is below the server."""
        where = path if path.startswith("/") else f"/v1/boxes/{self.box.name}/{path}"
        answer = await self.client.request(method, where, **options)
        assert answer.status_code == code, answer.text
        if code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == code
        return answer.json()

    async def get(self, path: str, code: int = 200, **query: Any) -> Any:
        return await self.request("GET", path, code, params=query)

    async def post(self, path: str, body: Any = None, code: int = 200) -> Any:
        return await self.request("POST", path, code, json={} if body is None else body)

    async def job(self, code: int = 202, **body: Any) -> Any:
        return await self.post("jobs", body, code)

    async def ended(self, job: dict[str, Any]) -> dict[str, Any]:
        """The job when it has ended."""
        await asyncio.wait_for(self.app.state.jobs.own(self.box, job["id"]).ended(), 20)
        found: dict[str, Any] = await self.get(f"jobs/{job['id']}")
        return found


@asynccontextmanager
async def serving(
    url: str, name: str | None = None, limits: Limits | None = None, **options: Any
) -> AsyncIterator[Service]:
    async with Box.open(url, name=name or next(_names)) as box:
        boxes = Boxes(box)
        await box.operate.configure(who="test", why="", keep_published=86400)
        app = create_app(boxes, ServiceOptions(**options))
        try:
            async with (
                HttpServer(app, Address(), limits) as server,
                httpx.AsyncClient(base_url=server.url, timeout=20) as client,
            ):
                yield Service(box, client, app)
        finally:
            await app.state.jobs.aclose()
            await boxes.aclose()


@pytest.fixture
def service(redis_url: str, redbox_runner: asyncio.Runner) -> Iterator[Service]:
    """A service with an empty box on Redis."""
    opened = serving(redis_url)
    yield redbox_runner.run(opened.__aenter__())
    redbox_runner.run(opened.__aexit__(None, None, None))


async def make_dead(box: Box, *events: Event, reason: str = "HTTP 422 amount 12 is not valid") -> list[str]:
    """Puts events that die at once; returns their ids."""
    await box.put_many(events)
    ids = {event.event_id for event in events}
    claims = [claim for claim in await box.claim("relay-1", limit=1000) if claim.event_id in ids]
    assert all(await box.kill(claims, reason=reason))
    return [event.event_id for event in events]
