"""Which dead events a command takes: by id, by filters, or all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from redbox.cli.options.filters import NAMES, nothing_matches, resolved

if TYPE_CHECKING:
    from redbox import Box, Record
    from redbox.cli.session import Session

SHOWN = 10  # refused events of a table
LONG = 1000  # events of a replay or a drop that may be interrupted
_BEGINNING = re.compile("[0-9a-f]{8}(-[0-9a-f-]{0,26})?")  # of a UUID, the default id


@dataclass(frozen=True)
class Choice:
    """The ids that were given, without repetitions, or the filters; neither for all dead events."""

    ids: list[str]
    filters: dict[str, Any]
    everything: bool


def take_choice(ids: tuple[str, ...], everything: bool, options: dict[str, Any]) -> Choice:
    """Takes the filters out of the options of a command, which must select events in exactly one way."""
    filters = {name: options.pop(name) for name in NAMES}
    if "" in ids:
        raise empty_id()
    ways = sum((bool(ids), everything, any(value is not None for value in filters.values())))
    if ways != 1:
        ctx = click.get_current_context()
        raise click.UsageError("select events in one way: by ID, with --all, or with filters such as --type", ctx)
    return Choice(list(dict.fromkeys(ids)), filters, everything)


def empty_id() -> click.UsageError:
    ctx = click.get_current_context()
    return click.UsageError("an ID must not be empty; is a variable of the shell not set?", ctx)


@dataclass(frozen=True)
class Refusal:
    """An event that a command leaves, with the reason."""

    event_id: str
    outcome: str
    reason: str


def note_nothing(session: Session, filters: dict[str, Any]) -> None:
    """Says on stderr that there is nothing to do: no dead event at all, or none that passes the filters."""
    some = any(value is not None for value in filters.values())
    session.output.note(nothing_matches("dead events", filters) if some else "there are no dead events")


async def selection_of(box: Box, choice: Choice) -> tuple[dict[str, Any], list[Refusal]]:
    """The events of a choice that are dead now, as arguments of `box.replay` and `box.drop`, and refusals of ids."""
    if choice.ids:
        dead, refused = await split_dead(box, choice.ids)
        return {"ids": dead}, refused
    now = (await box.stats()).at
    return {"state": "DEAD", "until": now, **await resolved(box, choice.filters)}, []


async def split_dead(box: Box, ids: list[str]) -> tuple[list[Record], list[Refusal]]:
    """Dead events as they are now, and refusals of the others: a command for dead events leaves published ones alone,
    also those that are published before it gets to them."""
    from redbox import Outcome, State

    dead: list[Record] = []
    refused: list[Refusal] = []
    for event_id in ids:
        record = await box.get(event_id)
        if record is None:
            refused.append(Refusal(event_id, Outcome.UNKNOWN, Outcome.UNKNOWN.reason + _hint(event_id)))
        elif record.state is not State.DEAD:
            reason = f"the event is {record.state.value}, not DEAD"
            refused.append(Refusal(event_id, Outcome.NOTTERMINAL, reason))
        else:
            dead.append(record)
    return dead, refused


def _hint(event_id: str) -> str:
    """What an unknown id may be instead: the beginning of one, or a group of errors."""
    if not _BEGINNING.fullmatch(event_id):
        return ""
    return f"; give the whole ID{'' if '-' in event_id else f', or --group {event_id} for a group of errors'}"


async def split_unchanged(box: Box, dead: list[Record]) -> tuple[list[Record], list[Refusal]]:
    """Those of the dead events that are still as they were read, and refusals of the others."""
    from redbox import Outcome

    numbers = {record.event_id: record.number for record in dead}
    found, refused = await split_dead(box, list(numbers))
    same = [record for record in found if record.number == numbers[record.event_id]]
    claimed_again = [record.event_id for record in found if record.number != numbers[record.event_id]]
    refused += [Refusal(event_id, Outcome.CHANGED, Outcome.CHANGED.reason) for event_id in claimed_again]
    return same, refused
