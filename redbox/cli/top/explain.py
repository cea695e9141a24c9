"""An event, or the whole box, explained in lines of text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from redbox.cli.printing import records
from redbox.cli.printing.output import printable

if TYPE_CHECKING:
    from redbox import Box
    from redbox.box.why.explanation import Explanation


async def explain_box(box: Box, width: int) -> list[str]:
    """Why events of the box are not delivered, and what to do."""
    return _explained(box, await box.why(), width)


async def explain_event(box: Box, event_id: str, width: int) -> list[str]:
    """Why the event is where it is, its fields, and its history."""
    lines = _explained(box, await box.why(event_id), width)
    record = await box.get(event_id)
    if record is None:
        return lines
    event = record.event
    fields = {
        "type": event.event_type,
        "attempts": str(record.attempts),
        "last error": record.last_error,
        "created": records.iso(record.created_at),
        "available": records.iso(record.available_at),
        "claimed": f"{records.iso(record.claimed_at)} by {record.claimed_by}" if record.claimed_at else None,
        "published": records.published(record),
        "died": records.iso(record.died_at),
        "ordering key": event.ordering_key,
        "unique key": event.unique_key,
    }
    lines.append("")
    lines += [f"{name:14}{printable(value)}" for name, value in fields.items() if value]
    if record.history:
        lines += ["", "history, oldest first"]
        lines += [
            printable(
                f"{records.iso(each.at)}  {each.outcome:10}  {records.took(each.seconds):>10}  {each.by}  {each.error}"
            )
            for each in record.history
        ]
    return lines


def _explained(box: Box, explanation: Explanation, width: int) -> list[str]:
    lines = textwrap.wrap(printable(explanation.headline), max(20, width))
    for sentence in explanation.sentences:
        lines += textwrap.wrap(printable(sentence), max(20, width))
    for step in explanation.next_steps:
        lines += [f"To {step.purpose}:", f"  {printable(step.command(('--box', box.name)))}"]
    return lines
