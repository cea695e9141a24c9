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
from litestar.background_tasks import BackgroundTask
from litestar.datastructures import State as AppState
from litestar.exceptions import ServiceUnavailableException
from litestar.params import QueryParameter
from litestar.response import ServerSentEvent, ServerSentEventMessage

from redbox.box import Box
from redbox.box.desk.incidents import Counted
from redbox.box.desk.rates import Rates, rates_between, reported_rates
from redbox.box.reports import Stats
from redbox.box.texts.stats_json import as_json, relay_json
from redbox.errors import RedboxError
from redbox.events import State
from redbox.service.boxes import Boxes
from redbox.service.http.access import Scope, granted
from redbox.service.http.problems import Problem, problem_of
from redbox.service.incidents import group_document
from redbox.service.operations.routes import get

logger = logging.getLogger("redbox.service")

EVERY: Final = 1.0
WHY_EVERY: Final = 2.0
SLOW_EVERY: Final = 5.0  # seconds between two readings of the error groups and of the history of rates
COMMENT_AFTER: Final = 10.0  # seconds of silence
GROUPS: Final = 5
GROUP_SAMPLE: Final = 500
MOST_CLIENTS: Final = 200
MOST_FEEDS: Final = 100

ListJobs = Callable[[Box], Awaitable[Any]]
Count = Callable[[Box], Counted | None]
Permitted = Callable[[], bool]


class Feed:
    """The feed of one box. `parts` are its latest values, and `versions` when each last changed. `fresh`: they were
    read since the sampler started. `closed`: the service ends."""

    def __init__(self, box: Box, list_jobs: ListJobs, count: Count) -> None:
        self._box = box
        self._list_jobs = list_jobs
        self._count = count
        self.token = token_hex(4)  # distinguishes the versions of two processes
        self.version = 0
        self.parts: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        self.problem: Problem | None = None
        self.problem_version = 0
        self.fresh = False
        self.closed = False
        self.clients = 0
        self._changed = asyncio.Event()
        self._sampler: asyncio.Task[None] | None = None
        self._before: Stats | None = None
        self._due: dict[str, float] = {}
        self._compared: dict[str, bytes] = {}

    # --- sampling ------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """One more page listens; the first one starts the sampler, which reads all parts again."""
        self.clients += 1
        if self._sampler is None:
            self.fresh, self._before = False, None
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
            self._fail(problem_of(error))
            return
        except Exception:  # a defect: the pages show it, and the feed goes on
            logger.exception("the live feed of box %s failed", self._box.name)
            self._fail(
                Problem(title="Internal Server Error", status=500, detail="see the log of the service", error="Defect")
            )
            return
        changed = {name: value for name, value in found.items() if self._differs(name, value)}
        if changed or self.problem is not None:
            self.problem = None
            self.version += 1
            self.parts |= changed
            self.versions |= dict.fromkeys(changed, self.version)
        elif self.fresh:
            return
        self.fresh = True
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
            found["jobs"] = await self._list_jobs(box)
            found["why"] = (await box.why()).as_json(("--box", box.name))
        if self._is_due("groups", SLOW_EVERY):
            failing = await box.desk.failing(sample=GROUP_SAMPLE, counted=self._count(box))
            found["groups"] = [group_document(group) for group in failing.groups[:GROUPS]]
            dead = sum(group.state is State.DEAD for group in failing.groups)
            found |= {"dead_groups": dead, "retrying_groups": len(failing.groups) - dead}
            found |= {"sampled": failing.sampled, "counted_at": failing.counted_at}
            samples = (await box.desk.rates_history(window="1h")).samples
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

    def _fail(self, problem: Problem) -> None:
        self._due.clear()  # the next reading is of all parts
        if problem != self.problem or not self.fresh:
            self.version += 1
            self.problem, self.problem_version = problem, self.version
            self.fresh = True
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

    def message(self, seen: int, reported: int = 0) -> ServerSentEventMessage | None:
        """The next message for a page that has seen this version of the parts, and the problem of the version
        `reported`; or None. A problem has no id: it is not a state from which a page could continue."""
        if not self.fresh:
            return None
        if self.problem is not None:
            if self.problem_version <= reported:
                return None
            return ServerSentEventMessage(_text(self.problem), event="problem")
        if seen >= self.version:
            return None
        event_id = f"{self.token}-{self.version}"
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


class Page:
    """A page that follows a feed. It counts as a client of the feed until it is closed. `permitted`: whether it still
    may, which is asked before each message."""

    def __init__(self, feed: Feed, last_id: str, permitted: Permitted) -> None:
        self._feed = feed
        self._permitted = permitted
        self._seen = feed.position(last_id)
        self._reported = 0  # version of the problem that it was sent last
        self._open = True
        feed.join()

    async def messages(self) -> AsyncIterator[ServerSentEventMessage]:
        """All messages for the page, until the service ends or the page is no longer permitted; then it is closed."""
        feed = self._feed
        try:
            while not feed.closed and self._permitted():
                message = feed.message(self._seen, self._reported)
                if message is not None:
                    if feed.problem is None:
                        self._seen = feed.version
                    else:
                        self._reported = feed.problem_version
                    yield message
                elif not await feed.wait() and not feed.closed:
                    yield ServerSentEventMessage(comment="still here")
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Leaves the feed. Needed if `messages` was never begun; may be repeated."""
        if self._open:
            self._open = False
            self._feed.leave()


class Live:
    """The feeds of all boxes. `list_jobs` lists the jobs of a box; `count` is its last full count of error groups."""

    def __init__(self, boxes: Boxes, list_jobs: ListJobs | None = None, count: Count = lambda _: None) -> None:
        self._boxes = boxes
        self._list_jobs = list_jobs or _no_jobs
        self._count = count
        self._feeds: dict[str, Feed] = {}
        self._closing = False

    async def open(self, name: str | None, last_id: str = "", permitted: Permitted = lambda: True) -> Page:
        """A page that follows a box, and that the caller closes. Raises UnknownBox, and ServiceUnavailableException if
        too many pages are open, or the service ends."""
        box = await self._boxes.get(name)
        # No await below: a page that is let in is counted at once.
        if self._closing:
            raise ServiceUnavailableException("the service is shutting down; repeat the request later")
        if sum(feed.clients for feed in self._feeds.values()) >= MOST_CLIENTS:
            raise ServiceUnavailableException(
                f"{MOST_CLIENTS} pages may be open at once; close one, or repeat the request later"
            )
        if box.name not in self._feeds:
            if len(self._feeds) >= MOST_FEEDS:
                self._feeds = {known: feed for known, feed in self._feeds.items() if feed.clients}
            self._feeds[box.name] = Feed(box, self._list_jobs, self._count)
        return Page(self._feeds[box.name], last_id, permitted)

    def close(self) -> None:
        """Ends all feeds: an HTTP server waits for open responses before it ends."""
        self._closing = True
        for feed in self._feeds.values():
            feed.closed = True
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
    """Server-sent events: `snapshot` with stats, why, rates_last, relays, groups (the 5 largest), dead_groups and
    retrying_groups (how many there are), sampled and counted_at (of these counts) and jobs; then `delta` with the parts
    that changed, at most once a second; `problem` while the store does not answer. After a reconnect with
    Last-Event-ID, only what changed since is sent. The stream ends when its token is removed or loses the scope
    read."""
    live: Live = state.live
    page = await live.open(
        box, request.headers.get("last-event-id", ""), permitted=lambda: Scope.READ in granted(request)
    )
    # The task closes a page whose client has gone before the first message.
    return ServerSentEvent(page.messages(), background=BackgroundTask(page.aclose))


HANDLERS: Final = [follow]
