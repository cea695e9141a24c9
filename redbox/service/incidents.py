"""Errors over HTTP: the groups of what failed, and one of them with all that belongs to it.

The answers are made from a sample of the newest events. A full count runs in the background, slowly, while somebody
asks; its counts replace the estimates.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from litestar.datastructures import State as AppState
from litestar.di import NamedDependency, Provide
from litestar.params import PathParameter, QueryParameter

from redbox.box import Box
from redbox.box.bulk.selection import LONGEST_GROUP
from redbox.box.desk.error_groups import OTHER
from redbox.box.desk.incidents import FAILED_INDEXES, MOST_SAMPLED, Counted, GroupCensus, SampledGroup
from redbox.box.texts.record_json import as_json
from redbox.events import Phase, Record, State
from redbox.service.boxes import Boxes
from redbox.service.http.problems import NotFound
from redbox.service.http.strict import path_text
from redbox.service.operations.documents import GroupDocument, GroupList, IncidentDocument
from redbox.service.operations.filters import EventFilter, provide_filter
from redbox.service.operations.routes import BoxName, get
from redbox.service.options import ServiceOptions

PAGE: Final = 100


class Censuses:
    """The censuses of the boxes, each made when it is first asked for."""

    def __init__(self) -> None:
        self._known: dict[str, GroupCensus] = {}

    def ask(self, box: Box) -> Counted | None:
        if box.name not in self._known:
            self._known[box.name] = box.desk.census()
        return self._known[box.name].ask()

    def recount(self, box: Box) -> None:
        """Many events of the box have changed: its count is made again soon, if it was made."""
        if box.name in self._known:
            self._known[box.name].recount()

    async def aclose(self) -> None:
        for census in self._known.values():
            await census.aclose()


@get(
    "/v1/boxes/{box:str}/error-groups",
    summary="Errors, grouped by likeness",
    dependencies={"event_filter": Provide(provide_filter)},
)
async def list_error_groups(
    state: AppState,
    boxes: NamedDependency[Boxes],
    options: NamedDependency[ServiceOptions],
    box: BoxName,
    event_filter: NamedDependency[EventFilter],
    limit: Annotated[int, QueryParameter(ge=1, le=1000, description="Maximum number of groups.")] = PAGE,
) -> GroupList:
    """Groups of DEAD events and of PENDING ones that failed, or of one state; the largest come first.

    Without filters the newest 2,000 events of each state are read. If there are more, counts are estimated until a full
    count, which this request begins, has ended. With filters, counts are those of the newest events, 10,000 of each
    state; `looked` is how many were read.
    """
    where = await boxes.get(box)
    filters = await event_filter.resolved(where)
    states = [State(filters["state"])] if "state" in filters else list(FAILED_INDEXES)
    if filters.keys() <= {"state"} and states[0] in FAILED_INDEXES:
        counted = state.censuses.ask(where) if (await where.stats()).phases[Phase.DEAD] else None
        found = await where.desk.failing(states=states, counted=counted)
    else:
        found = await where.desk.failing(states=states, sample=min(options.look, MOST_SAMPLED), **filters)
    documents = [group_document(group) for group in found.groups[:limit]]
    return GroupList(groups=documents, sampled=found.sampled, looked=found.looked, counted_at=found.counted_at)


def group_document(group: SampledGroup) -> GroupDocument:
    return GroupDocument(**msgspec.structs.asdict(group), error=group.example)


@get("/v1/boxes/{box:str}/error-groups/{group:str}", summary="One error group")
async def get_incident(
    state: AppState,
    boxes: NamedDependency[Boxes],
    box: BoxName,
    group: Annotated[
        str, PathParameter(description="Id or fingerprint of the group.", min_length=1, max_length=LONGEST_GROUP)
    ],
    in_state: Annotated[State | None, QueryParameter(name="state", description="DEAD or PENDING.")] = None,
) -> IncidentDocument:
    """One error group: when its events failed, what else happened then, the ordering keys that it blocks, its last
    event, and the last one of the same type that was delivered."""
    where, name = await boxes.get(box), path_text(group)
    found = None
    if name != OTHER and (in_state is None or in_state in FAILED_INDEXES):
        found = await where.desk.incident(group=name, state=in_state, counted=state.censuses.ask(where))
    if found is None:
        raise NotFound(f"no event that failed lately has an error of the group {name!r}; list the groups again")
    return IncidentDocument(
        group=group_document(found.group),
        timeline=[msgspec.to_builtins(moment) for moment in found.timeline],
        blocked_keys=[msgspec.to_builtins(key) for key in found.blocked_keys],
        failed=_record(found.failed),
        delivered=_record(found.delivered),
    )


def _record(record: Record | None) -> dict[str, Any] | None:
    return None if record is None else as_json(record)


HANDLERS: Final = [list_error_groups, get_incident]
