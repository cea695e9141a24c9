"""Reads boxes, events, keys and relays. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, cast

from litestar import Request
from litestar.datastructures import State as AppState
from litestar.di import NamedDependency, Provide
from litestar.params import QueryParameter

from redbox import __version__
from redbox.arguments import invalid
from redbox.box.desk.rates import reported_rates
from redbox.box.inspect import MOST_NEWEST
from redbox.box.texts.record_json import as_json
from redbox.box.texts.stats_json import as_json as stats_as_json
from redbox.box.texts.stats_json import paused_keys, relay_json
from redbox.errors import NotPermitted, StoreError, StoreUnavailable
from redbox.events import Record
from redbox.service.boxes import Boxes
from redbox.service.http.access import Scope, granted
from redbox.service.http.problems import NotFound
from redbox.service.http.strict import path_text
from redbox.service.operations.documents import (
    BoxDocument,
    EventDocument,
    EventPage,
    ExplanationDocument,
    KeyList,
    RelayList,
    Service,
    StatsDocument,
    Suggestions,
)
from redbox.service.operations.filters import EventFilter, provide_filter
from redbox.service.operations.routes import BoxName, EventId, KeyName, get
from redbox.service.options import ServiceOptions

MOST_BOXES: Final = 100  # with their stats
MOST_KEYS: Final = 100
PAGE: Final = 100
PAGE_BYTES: Final = 8 * 1024 * 1024  # of payloads


@get("/v1", summary="The service and its boxes")
async def get_service(
    request: Request[Any, Any, AppState], boxes: NamedDependency[Boxes], options: NamedDependency[ServiceOptions]
) -> Service:
    """The version, the names of the boxes, and what the caller may do."""
    scopes = granted(request)
    return Service(
        version=__version__,
        default_box=boxes.default.name,
        boxes=await boxes.names(),
        scopes=sorted(scopes),
        read_only=Scope.OPERATE not in scopes,
        delivers=options.delivers,
    )


@get("/v1/boxes", summary="All boxes with their stats")
async def list_boxes(boxes: NamedDependency[Boxes]) -> list[BoxDocument]:
    """The boxes of the store with their counts by phase, the default box first; at most 100."""
    names = await boxes.names()
    names.sort(key=lambda name: name != boxes.default.name)
    return [await _described(boxes, name) for name in names[:MOST_BOXES]]


async def _described(boxes: NamedDependency[Boxes], name: str) -> BoxDocument:
    try:
        stats = await (await boxes.get(name)).stats()
    except StoreError as error:
        if isinstance(error, StoreUnavailable) and not isinstance(error, NotPermitted):
            raise
        return BoxDocument(name=name, error=str(error))
    return cast("BoxDocument", {"name": name, "error": None, **stats_as_json(stats)})


@get("/v1/boxes/{box:str}/stats", summary="Counts by phase, ages, totals and relays")
async def get_stats(boxes: NamedDependency[Boxes], box: BoxName) -> StatsDocument:
    """As `redbox --json stats`."""
    where = await boxes.get(box)
    stats = await where.stats()
    keys = await paused_keys(where, stats)
    return cast("StatsDocument", stats_as_json(stats, reported_rates(stats), keys))


@get("/v1/boxes/{box:str}/why", summary="Why events are not delivered")
async def explain_box(boxes: NamedDependency[Boxes], box: BoxName) -> ExplanationDocument:
    """As `redbox --json why`: the most likely cause that the events of the box are not delivered."""
    explanation = await (await boxes.get(box)).why()
    return cast("ExplanationDocument", explanation.as_json(("--box", box)))


@get("/v1/boxes/{box:str}/events", summary="List events", dependencies={"event_filter": Provide(provide_filter)})
async def list_events(
    boxes: NamedDependency[Boxes],
    options: NamedDependency[ServiceOptions],
    box: BoxName,
    event_filter: NamedDependency[EventFilter],
    limit: Annotated[int, QueryParameter(ge=1, le=1000, description="Maximum number of events.")] = PAGE,
    cursor: Annotated[str | None, QueryParameter(max_length=2000, description="Cursor of the page before.")] = None,
    payload: Annotated[bool, QueryParameter(description="Whether to include the payloads.")] = False,
    order: Annotated[
        Literal["oldest", "newest"],
        QueryParameter(description="What comes first; `newest` is for all events, or those of one state."),
    ] = "oldest",
) -> EventPage:
    """Events by state and in order of time. A page reads a bounded number of events, so a search for something rare
    takes several pages. A page with payloads has at most about 8 MiB of them. The newest events are one page of at most
    200."""
    where = await boxes.get(box)
    filters = await event_filter.resolved(where)
    if order == "newest":
        if filters.keys() - {"state"} or cursor is not None:
            raise invalid("order", "cannot be newest with a cursor or a filter other than state")
        most = min(limit, MOST_NEWEST)
        found = await where.newest(state=filters.get("state"), limit=most, payloads=payload, size=PAGE_BYTES)
        return EventPage(events=await _documents(found, payload), cursor=None, looked=len(found))
    page = await where.page(limit=limit, cursor=cursor, look=options.look, payloads=payload, size=PAGE_BYTES, **filters)
    return EventPage(events=await _documents(page.records, payload), cursor=page.cursor, looked=page.looked)


async def _documents(records: Iterable[Record], payload: bool) -> list[EventDocument]:
    """Other requests get their turn between two events: to format a large payload takes a while."""
    found: list[EventDocument] = []
    for record in records:
        found.append(_event(record, payload))
        if payload:
            await asyncio.sleep(0)
    return found


def _event(record: Record, payload: bool = True) -> EventDocument:
    return cast("EventDocument", as_json(record, with_payload=payload))


@get("/v1/boxes/{box:str}/events/{event_id:str}", summary="One event")
async def get_event(boxes: NamedDependency[Boxes], box: BoxName, event_id: EventId) -> EventDocument:
    """As `redbox --json show`: the whole event with its payload and history."""
    name = path_text(event_id)
    record = await (await boxes.get(box)).get(name)
    if record is None:
        raise NotFound(f"there is no event {name} in box {box!r}; it may have been removed: .../why says more")
    return _event(record)


@get("/v1/boxes/{box:str}/events/{event_id:str}/why", summary="Why an event is where it is")
async def explain_event(boxes: NamedDependency[Boxes], box: BoxName, event_id: EventId) -> ExplanationDocument:
    """As `redbox --json why ID`. `found` is false for an event that the box does not hold."""
    explanation = await (await boxes.get(box)).why(path_text(event_id))
    return cast("ExplanationDocument", explanation.as_json(("--box", box)))


@get("/v1/boxes/{box:str}/keys", summary="Blocked and paused ordering keys")
async def list_keys(boxes: NamedDependency[Boxes], box: BoxName) -> KeyList:
    """At most 100 of each; those that are blocked longest, and whose pause ends first."""
    where = await boxes.get(box)
    blocked = list(await where.desk.blocked_keys(limit=MOST_KEYS))
    return KeyList(blocked=blocked, paused=await where.operate.paused_keys(limit=MOST_KEYS))


@get("/v1/boxes/{box:str}/keys/{key:str}/why", summary="Why an ordering key waits")
async def explain_key(boxes: NamedDependency[Boxes], box: BoxName, key: KeyName) -> ExplanationDocument:
    """As `redbox --json why --key KEY`."""
    explanation = await (await boxes.get(box)).why(key=path_text(key))
    return cast("ExplanationDocument", explanation.as_json(("--box", box)))


@get("/v1/boxes/{box:str}/relays", summary="The relays of a box")
async def list_relays(boxes: NamedDependency[Boxes], box: BoxName) -> RelayList:
    """Relays with a heartbeat within a day, the latest first."""
    stats = await (await boxes.get(box)).stats()
    return cast("RelayList", {"relays": [relay_json(relay) for relay in stats.relays]})


@get("/v1/boxes/{box:str}/suggest", summary="Values that complete a filter")
async def suggest(
    boxes: NamedDependency[Boxes],
    box: BoxName,
    field: Annotated[Literal["type", "key", "error", "relay"], QueryParameter(description="What to complete.")],
    prefix: Annotated[str, QueryParameter(max_length=255, description="What was typed.")] = "",
) -> Suggestions:
    """Values of a sample of events, the most frequent first, at most 20: a rare value may be missing."""
    return Suggestions(values=list(await (await boxes.get(box)).desk.suggest(field, prefix)))


HANDLERS: Final = [
    get_service, list_boxes, get_stats, explain_box, list_events, get_event, explain_event, list_keys, explain_key,
    list_relays, suggest,
]  # fmt: skip
