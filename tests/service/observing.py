"""A service whose live feed, history and error groups are tested, and a client of it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from redbox import Box
from redbox.service.app import create_app
from redbox.service.boxes import Boxes
from redbox.service.http.listening import Address
from redbox.service.http.server import HttpServer
from redbox.service.live import Feed, Live

LONGEST = 20.0  # seconds until a test gives up
_names = (f"observed-{os.getpid()}-{number}" for number in itertools.count())


class Sent(NamedTuple):
    """A server-sent event; a comment has the event "comment"."""

    event: str
    id: str
    data: Any


class Observed:
    """A running service with one box."""

    def __init__(self, box: Box, client: httpx.AsyncClient, app: Any) -> None:
        self.box = box
        self.client = client
        self.app = app

    @property
    def live(self) -> Live:
        found: Live = self.app.state.live
        return found

    @property
    def feed(self) -> Feed:
        return self.live._feeds[self.box.name]

    async def get(self, path: str, code: int = 200) -> Any:
        answer = await self.client.get(f"/v1/boxes/{self.box.name}/{path}")
        assert answer.status_code == code, answer.text
        return answer.json()

    @asynccontextmanager
    async def follow(self, last_id: str = "") -> AsyncIterator[AsyncIterator[Sent]]:
        headers = {"last-event-id": last_id} if last_id else {}
        async with self.client.stream("GET", "/v1/live", params={"box": self.box.name}, headers=headers) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield _sent(answer)


async def _sent(answer: httpx.Response) -> AsyncIterator[Sent]:
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name or "comment"] = value
        elif fields:
            data = json.loads(fields["data"]) if fields.get("data") else None
            yield Sent(fields.get("event", "comment"), fields.get("id", ""), data)
            fields = {}


async def until(events: AsyncIterator[Sent], wanted: Any) -> Sent:
    """The first event for which `wanted` holds."""
    async with asyncio.timeout(LONGEST):
        async for sent in events:
            if wanted(sent):
                return sent
    raise AssertionError("the feed ended")


@asynccontextmanager
async def observed(url: str) -> AsyncIterator[Observed]:
    async with Box.open(url, name=next(_names)) as box:
        boxes = Boxes(box)
        app = create_app(boxes)
        try:
            async with (
                HttpServer(app, Address()) as server,
                httpx.AsyncClient(base_url=server.url, timeout=LONGEST) as client,
            ):
                yield Observed(box, client, app)
                app.state.live.close()
        finally:
            await app.state.censuses.aclose()
            await boxes.aclose()
