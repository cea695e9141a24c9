"""One event as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redbox.cli import records
from redbox.cli.output import printable

if TYPE_CHECKING:
    from redbox import Box


async def describe(box: Box, event_id: str) -> list[str]:
    """The event, why it is where it is, and its history; or a line that it does not exist."""
    record = await box.get(event_id)
    if record is None:
        return [f"there is no event {printable(event_id)} in box {box.name!r}"]
    stats = await box.stats()
    event = record.event
    fields = {
        "phase": f"{record.phase.value}: {records.phase_in_words(record, stats.at, stats.paused)}",
        "type": event.event_type,
        "attempts": str(record.attempts),
        "last error": record.last_error,
        "created": records.iso(record.created_at),
        "available": records.iso(record.available_at),
        "claimed": f"{records.iso(record.claimed_at)} by {record.claimed_by}" if record.claimed_at else None,
        "published": records.iso(record.published_at),
        "died": records.iso(record.died_at),
        "ordering key": event.ordering_key,
        "unique key": event.unique_key,
    }
    lines = [f"event {printable(record.event_id)}"]
    lines += [f"{name:14}{printable(value)}" for name, value in fields.items() if value]
    if record.history:
        lines += ["", "history, oldest first"]
        lines += [
            printable(f"{records.iso(each.at)}  {each.outcome:10}  {each.by}  {each.error}") for each in record.history
        ]
    return lines
