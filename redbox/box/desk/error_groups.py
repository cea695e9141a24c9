"""Groups events by the fingerprints of their last errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from redbox.box.bulk.selection import Selection
from redbox.box.inspect import Budget, summaries, up_to_now
from redbox.box.reports import ErrorGroup
from redbox.errors import Refused
from redbox.events import State, from_ms
from redbox.fingerprints import fingerprint, group_id
from redbox.store.scripts.replies import EventSummary
from redbox.store.store import Store

if TYPE_CHECKING:
    from redbox.box.box import Box

MOST_GROUPS: Final = 10_000
MOST_TYPES: Final = 5
OTHER: Final = "other"  # no id of a group: those are 8 digits


class UnknownGroup(Refused):
    """No event has an error of this group."""


class _Tally(msgspec.Struct):
    """A group while it is counted."""

    count: int
    event_types: list[str]
    first: int  # ms
    last: int
    sample_id: str
    first_id: str
    example: str

    def add(self, event: EventSummary) -> None:
        self.count += 1
        if event.event_type not in self.event_types and len(self.event_types) < MOST_TYPES:
            self.event_types.append(event.event_type)
        entered = event.entered
        if entered < self.first:
            self.first, self.first_id = entered, event.event_id
        if entered >= self.last:
            self.last, self.sample_id, self.example = entered, event.event_id, event.last_error


class Grouping:
    """Counts events by the fingerprints of their errors. Needs memory for the groups only, not for the events."""

    def __init__(self) -> None:
        self._groups: dict[str, _Tally] = {}
        self._other: list[_Tally] = []

    def add(self, events: Iterable[EventSummary]) -> None:
        for event in events:
            kind = fingerprint(event.last_error)
            tally = self._groups.get(kind)
            if tally is not None:
                tally.add(event)
            elif len(self._groups) < MOST_GROUPS:
                self._groups[kind] = _begin(event)
            elif self._other:
                self._other[0].add(event)
            else:
                self._other.append(_begin(event))

    def groups(self) -> list[ErrorGroup]:
        """The groups, the largest first."""
        made = [_group(group_id(kind), kind, tally) for kind, tally in self._groups.items()]
        made.sort(key=lambda each: (-each.count, each.fingerprint))
        return made + [_group(OTHER, f"(errors beyond {MOST_GROUPS:,} groups)", tally) for tally in self._other]

    def oldest(self) -> dict[str, str]:
        """The id of the oldest event of each group, by the id of the group."""
        return {group_id(kind): tally.first_id for kind, tally in self._groups.items()}


async def error_groups(store: Store, selection: Selection) -> list[ErrorGroup]:
    """The groups, the largest first."""
    if selection.state in (State.PUBLISHED, State.DEAD):  # whose indexes grow at the end
        selection = await up_to_now(store, selection)
    grouping = Grouping()
    async for found in summaries(store, selection):
        grouping.add(found)
    return grouping.groups()


async def require_group(box: Box, group: str | None, state: State = State.DEAD, budget: Budget | None = None) -> None:
    """Raises UnknownGroup if no event of this state is in the error group, if one is given. For operations that matched
    nothing: a mistyped group must not look like work that is done. A group that is not found within the budget may
    exist."""
    budget = Budget() if budget is None else budget
    if group is None or await box.count(limit=1, budget=budget, state=state, group=group) or budget.spent:
        return
    hint = "; `redbox dead list --by-error` lists them" if state is State.DEAD else ""
    raise UnknownGroup(f"there is no error group {group} among the {state.lower()} events{hint}")


def _begin(event: EventSummary) -> _Tally:
    return _Tally(1, [event.event_type], event.entered, event.entered, event.event_id, event.event_id, event.last_error)


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
