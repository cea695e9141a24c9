"""Groups events by the fingerprints of their last errors."""

from __future__ import annotations

from typing import Final

import msgspec

from redbox.box.inspect import at_most, summaries, up_to_now
from redbox.box.reports import ErrorGroup
from redbox.box.selection import Selection
from redbox.events import State, from_ms
from redbox.fingerprints import fingerprint, group_id
from redbox.store.replies import EventSummary
from redbox.store.store import Store

MOST_GROUPS: Final = 10_000
MOST_TYPES: Final = 5
OTHER: Final = "other"  # no id of a group: those are 8 digits


class _Tally(msgspec.Struct):
    """A group while it is counted."""

    count: int
    event_types: list[str]
    first: int  # ms
    last: int
    sample_id: str
    example: str

    def add(self, event: EventSummary) -> None:
        self.count += 1
        if event.event_type not in self.event_types and len(self.event_types) < MOST_TYPES:
            self.event_types.append(event.event_type)
        entered = event.entered
        self.first = min(self.first, entered)
        if entered >= self.last:
            self.last, self.sample_id, self.example = entered, event.event_id, event.last_error


async def error_groups(store: Store, selection: Selection, look: int | None = None) -> list[ErrorGroup]:
    """The groups, the largest first. Needs memory for the groups only, not for the events; `look` bounds how many of
    these are read."""
    if selection.state in (State.PUBLISHED, State.DEAD):  # whose indexes grow at the end
        selection = await up_to_now(store, selection)
    groups: dict[str, _Tally] = {}
    other: list[_Tally] = []
    async for found in at_most(look, summaries(store, selection)):
        for event in found:
            kind = fingerprint(event.last_error)
            tally = groups.get(kind)
            if tally is not None:
                tally.add(event)
            elif len(groups) < MOST_GROUPS:
                groups[kind] = _begin(event)
            elif other:
                other[0].add(event)
            else:
                other.append(_begin(event))
    made = [_group(group_id(kind), kind, tally) for kind, tally in groups.items()]
    made.sort(key=lambda each: (-each.count, each.fingerprint))
    return made + [_group(OTHER, f"(errors beyond {MOST_GROUPS:,} groups)", tally) for tally in other]


def _begin(event: EventSummary) -> _Tally:
    return _Tally(1, [event.event_type], event.entered, event.entered, event.event_id, event.last_error)


def _group(name: str, kind: str, tally: _Tally) -> ErrorGroup:
    return ErrorGroup(
        group=name,
        fingerprint=kind,
        count=tally.count,
        event_types=tuple(tally.event_types),
        first_seen=from_ms(tally.first),
        last_seen=from_ms(tally.last),
        sample_id=tally.sample_id,
        example=tally.example,
    )
