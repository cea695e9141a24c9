"""The live feed of a box: server-sent events, a snapshot and then what changed, once a second.

All open pages of a box share one sampler, which runs only while somebody listens. There is no queue: each part of the
feed has the version at which it last changed, and a page gets the parts that are newer than the last it took. So a slow
page misses values in between, and needs no memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from secrets import token_hex
from typing import Annotated, Any, Final

import msgspec
from litestar import Request
from litestar.datastructures import State as AppState
from litestar.exceptions import ServiceUnavailableException
from litestar.params import QueryParameter
from litestar.response import ServerSentEvent, ServerSentEventMessage

from redbox.box import Box
from redbox.box.incidents import Counted
from redbox.box.rates import Rates, rates_between, reported_rates
from redbox.box.reports import Stats
from redbox.box.stats_json import as_json, relay_json
from redbox.errors import RedboxError
from redbox.service.boxes import Boxes
from redbox.service.incidents import group_document
from redbox.service.operations.routes import get
from redbox.service.problems import problem_of

logger = logging.getLogger("redbox.service")

EVERY: Final = 1.0
WHY_EVERY: Final = 2.0
SLOW_EVERY: Final = 5.0  # seconds between two readings of the error groups and of the history of rates
COMMENT_AFTER: Final = 10.0  # seconds of silence
GROUPS: Final = 5
GROUP_SAMPLE: Final = 500
MOST_CLIENTS: Final = 200
MOST_FEEDS: Final = 100

Jobs = Callable[[Box], Awaitable[Any]]
Count = Callable[[Box], Counted | None]


class Feed:
    """The feed of one box. `parts` are its latest values, and `versions` when each last changed."""

    def __init__(self, box: Box, jobs: Jobs, count: Count) -> None:
        self._box = box
        self._jobs = jobs
        self._count = count
        self.token = token_hex(4)  # distinguishes the versions of two processes
        self.version = 0
        self.parts: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        self.problem: dict[str, Any] | None = None
        self.problem_version = 0
        self.clients = 0
        self._changed = asyncio.Event()
        self._sampler: asyncio.Task[None] | None = None
        self._before: Stats | None = None
        self._due: dict[str, float] = {}
        self._compared: dict[str, bytes] = {}

    # --- sampling ------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """One more page listens."""
        self.clients += 1
        if self._sampler is None:
            self._due.clear()
            self._sampler = asyncio.create_task(self._run(), name=f"redbox live {self._box.name}")

    def leave(self) -> None:
        """A page has gone; the last one ends the sampler."""
        self.clients -= 1
        if not self.clients and self._sampler is not None:
            self._sampler.cancel()
            self._sampler = None

    @property
    def sampling(self) -> bool:
        return self._sampler is not None

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            await self.run_once()
            await asyncio.sleep(max(0.1, EVERY - (time.monotonic() - began)))

    async def run_once(self) -> None:
        """Reads the parts that are due, and wakes the pages if one of them changed."""
        try:
            found = await self._read()
        except RedboxError as error:
            self._fail(msgspec.to_builtins(problem_of(error)))
            return
        except Exception:  # a defect: the pages show it, and the feed goes on
            logger.exception("the live feed of box %s failed", self._box.name)
            self._fail({"title": "Internal Server Error", "status": 500, "detail": "see the log of the service"})
            return
        changed = {name: value for name, value in found.items() if self._differs(name, value)}
        if changed or self.problem is not None:
            self.problem = None
            self.version += 1
            self.parts |= changed
            self.versions |= dict.fromkeys(changed, self.version)
            self.wake()

    async def _read(self) -> dict[str, Any]:
        box = self._box
        stats = await box.stats()
        rates = Rates() if self._before is None else rates_between(self._before, stats)
        self._before = stats
        about = as_json(stats, rates if rates.seconds else reported_rates(stats))
        found: dict[str, Any] = {
            "stats": {name: value for name, value in about.items() if name != "relays"},
            "relays": [relay_json(relay) for relay in stats.relays],
        }
        if self._is_due("why", WHY_EVERY):
            found["jobs"] = await self._jobs(box)
            found["why"] = (await box.why()).as_json(("--box", box.name))
        if self._is_due("groups", SLOW_EVERY):
            failing = await box.failing(sample=GROUP_SAMPLE, counted=self._count(box))
            found["groups"] = [group_document(group) for group in failing.groups[:GROUPS]]
            samples = (await box.rates_history(window="1h")).samples
            found["rates_last"] = samples[-1] if samples else None
        return found

    def _is_due(self, part: str, every: float) -> bool:
        now = time.monotonic()
        if now < self._due.get(part, 0.0):
            return False
        self._due[part] = now + every - EVERY / 2
        return True

    def _differs(self, name: str, value: Any) -> bool:
        """Whether a part is not as it was, apart from the time of its reading."""
        compared = {field: each for field, each in value.items() if field != "at"} if name == "stats" else value
        encoded = msgspec.json.encode(compared)
        same = self._compared.get(name) == encoded
        self._compared[name] = encoded
        return not same

    def _fail(self, problem: dict[str, Any]) -> None:
        if problem != self.problem:
            self.version += 1
            self.problem, self.problem_version = problem, self.version
            self.wake()

    def wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # --- one page ------------------------------------------------------------------------------------------------

    def position(self, last_id: str) -> int:
        """The version that a page has seen; 0 if it has to begin with a snapshot."""
        token, _, version = last_id.partition("-")
        known = token == self.token and version.isascii() and version.isdigit() and len(version) < 16
        return int(version) if known and int(version) <= self.version else 0

    def message(self, seen: int) -> ServerSentEventMessage | None:
        """What a page that has seen this version has to know; None if it knows all."""
        event_id = f"{self.token}-{self.version}"
        if self.problem is not None:
            if self.problem_version <= seen:
                return None
            return ServerSentEventMessage(_text(self.problem), event="problem", id=event_id)
        if not self.parts or seen >= self.version:
            return None
        if not seen:
            return ServerSentEventMessage(_text(self.parts), event="snapshot", id=event_id)
        changed = {name: value for name, value in self.parts.items() if self.versions[name] > seen}
        return ServerSentEventMessage(_text(changed), event="delta", id=event_id)

    async def wait(self) -> bool:
        """Waits for a change; False if there is none for some time."""
        try:
            await asyncio.wait_for(self._changed.wait(), COMMENT_AFTER)
        except TimeoutError:
            return False
        return True


class Live:
    """The feeds of all boxes. `jobs` lists the jobs of a box; `count` is its last full count of error groups."""

    def __init__(self, boxes: Boxes, jobs: Jobs | None = None, count: Count = lambda _: None) -> None:
        self._boxes = boxes
        self._jobs = jobs or _no_jobs
        self._count = count
        self._feeds: dict[str, Feed] = {}
        self._closing = False

    async def open(self, name: str | None) -> Feed:
        """The feed of a box. Raises UnknownBox, and an exception if too many pages are open."""
        if self._closing or sum(feed.clients for feed in self._feeds.values()) >= MOST_CLIENTS:
            raise ServiceUnavailableException(
                f"the service ends, or {MOST_CLIENTS} pages are open; repeat the request later"
            )
        box = await self._boxes.get(name)
        if box.name not in self._feeds:
            if len(self._feeds) >= MOST_FEEDS:
                self._feeds = {known: feed for known, feed in self._feeds.items() if feed.clients}
            self._feeds[box.name] = Feed(box, self._jobs, self._count)
        return self._feeds[box.name]

    async def messages(self, feed: Feed, last_id: str = "") -> AsyncIterator[ServerSentEventMessage]:
        """What one page gets, until the service ends."""
        seen = feed.position(last_id)
        feed.join()
        try:
            while not self._closing:
                message = feed.message(seen)
                if message is not None:
                    seen = feed.version
                    yield message
                elif not await feed.wait() and not self._closing:
                    yield ServerSentEventMessage(comment="still here")
        finally:
            feed.leave()

    def close(self) -> None:
        """Ends all feeds: an HTTP server waits for open responses before it ends."""
        self._closing = True
        for feed in self._feeds.values():
            feed.wake()


async def _no_jobs(_: Box) -> list[Any]:
    return []


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@get(
    "/v1/live",
    summary="Follow a box",
    media_type="text/event-stream",
)
async def follow(
    request: Request[Any, Any, AppState],
    state: AppState,
    box: Annotated[
        str | None, QueryParameter(max_length=64, description="Name of the box; by default the default box.")
    ] = None,
) -> ServerSentEvent:
    """Server-sent events: `snapshot` with stats, why, rates_last, relays, groups (the 5 largest) and jobs; then `delta`
    with the parts that changed, at most once a second; `problem` while the store does not answer. After a reconnect
    with Last-Event-ID, only what changed since is sent."""
    live: Live = state.live
    feed = await live.open(box)
    last_id = request.headers.get("last-event-id", "")
    return ServerSentEvent(live.messages(feed, last_id))


HANDLERS: Final = [follow]
