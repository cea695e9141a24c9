"""Filters of events, as query parameters and in the body of a job: those of the command line."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from litestar.params import QueryParameter
from msgspec import Meta, Struct, field

from redbox.arguments import invalid
from redbox.box import Box
from redbox.box.bulk.selection import LONGEST_FILTER, LONGEST_GROUP, resolve_times, select
from redbox.durations import parse_duration, parse_moment
from redbox.errors import UsageError
from redbox.events import State
from redbox.service.operations.documents import Action, DurationText, Ids, Moment, Why

PhaseName = Literal["SCHEDULED", "AVAILABLE", "IN_FLIGHT", "RETRY_SCHEDULED", "DEAD", "COMPLETED", "WAITING"]
Text = Annotated[str, Meta(min_length=1, max_length=LONGEST_FILTER)]
_TIMES: Final = ("since", "until", "created_since", "created_until")
_DESCRIPTIONS: Final = {
    "state": "State of the events.",
    "phase": "Phase of the events; WAITING for those behind the head of their line.",
    "type": "Event type, or a pattern such as user.*",
    "key": "Ordering key or unique key.",
    "error": "Text in the last error, ignoring case.",
    "group": "Error group: its id or its fingerprint.",
    "since": "Earliest time of entering the state, in ISO 8601 or relative, such as 1h.",
    "until": "Latest time of entering the state.",
    "created_since": "Earliest created_at.",
    "created_until": "Latest created_at.",
    "text": "Text in the payload, ignoring case. Payloads are read one by one to find it.",
}


class EventFilter(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """Which events: all that match every filter that is given."""

    state: State | None = None
    phase: PhaseName | None = None
    event_type: Text | None = field(default=None, name="type")
    key: Text | None = None
    error: Text | None = None
    group: Annotated[str, Meta(min_length=1, max_length=LONGEST_GROUP)] | None = None
    since: Moment | None = None
    until: Moment | None = None
    created_since: Moment | None = None
    created_until: Moment | None = None
    text: Text | None = None

    async def resolved(self, box: Box) -> dict[str, Any]:
        """The filters that are given, as methods of a box take them, and checked. Relative times are added to the
        store's time; a phase that a state can say becomes that state."""
        given: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        given |= {name: moment(name, given[name]) for name in _TIMES}
        try:
            selection = select(**await resolve_times(box, given))
        except UsageError as error:
            if str(error).startswith("event_type"):
                raise invalid("type", str(error).removeprefix("event_type")) from None  # as the caller wrote it
            raise
        found = {name: getattr(selection, name) for name in given}
        return {name: value for name, value in found.items() if value is not None}


def _query(name: str, longest: int = LONGEST_FILTER) -> Any:
    return QueryParameter(name=name, min_length=1, max_length=longest, description=_DESCRIPTIONS[name], required=False)


async def provide_filter(
    in_state: Annotated[State | None, QueryParameter(name="state", description=_DESCRIPTIONS["state"])] = None,
    phase: Annotated[PhaseName | None, QueryParameter(name="phase", description=_DESCRIPTIONS["phase"])] = None,
    event_type: Annotated[str | None, _query("type")] = None,
    key: Annotated[str | None, _query("key")] = None,
    error: Annotated[str | None, _query("error")] = None,
    group: Annotated[str | None, _query("group", LONGEST_GROUP)] = None,
    since: Annotated[str | None, _query("since", 100)] = None,
    until: Annotated[str | None, _query("until", 100)] = None,
    created_since: Annotated[str | None, _query("created_since", 100)] = None,
    created_until: Annotated[str | None, _query("created_until", 100)] = None,
    text: Annotated[str | None, _query("text")] = None,
) -> EventFilter:
    """The filters of a query, the dependency `event_filter`."""
    return EventFilter(
        state=in_state,
        phase=phase,
        event_type=event_type,
        key=key,
        error=error,
        group=group,
        since=since,
        until=until,
        created_since=created_since,
        created_until=created_until,
        text=text,
    )


def moment(name: str, text: str | None) -> datetime | timedelta | None:
    """A time. In a query, the plus of `+1h` may have become a space."""
    if text is None:
        return None
    try:
        return parse_moment(f"+{text[1:]}" if text.startswith(" ") else text)
    except ValueError as error:
        raise invalid(name, f"- {error}") from None


async def moment_of(box: Box, name: str, text: str | None) -> datetime | None:
    """A time; a relative one is added to the store's time."""
    found = await resolve_times(box, {name: moment(name, text)})
    return found.get(name)


def duration(name: str, length: DurationText | None) -> timedelta | None:
    """A duration, from seconds or a text such as 10m."""
    if length is None:
        return None
    try:
        return parse_duration(length)
    except ValueError as error:
        raise invalid(name, f"- {error}") from None


class JobRequest(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """What a job does, and with which events: those that a `filter` selects, or `ids`.

    `dry_run` only counts them. For a replay: `rate` in events per second, reached after `ramp`; `canary` events come
    first, and the others follow only if all of these are published within `canary_wait`; `reset` false keeps the last
    error and counts earlier attempts; `force` replays events whose unique key is held. `delay` is for a replay or a
    reschedule, `available_at` for a reschedule.
    """

    action: Action
    filter: EventFilter | None = None
    ids: Ids | None = None
    dry_run: bool = False
    rate: Annotated[float, Meta(gt=0, le=1_000_000_000, description="Events per second.")] | None = None
    ramp: DurationText | None = None
    canary: Annotated[int, Meta(ge=1, le=1000)] | None = None
    canary_wait: DurationText | None = None
    delay: DurationText | None = None
    available_at: Moment | None = None
    reset: bool = True
    force: bool = False
    why: Why = ""
