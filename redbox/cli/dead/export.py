"""`redbox dead export`: dead events as NDJSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from redbox.arguments import counted
from redbox.cli.dead.selecting import SHOWN, empty_id, note_nothing, split_dead
from redbox.cli.options.filters import filter_options, resolved
from redbox.cli.printing.output import echo_json
from redbox.cli.session import Session, pass_session
from redbox.errors import RedboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redbox import Box


@click.command("export")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@filter_options
@click.option("--to", metavar="FILE", help="File to write; one that exists is replaced.  [default: stdout]")
@pass_session
def export_dead(session: Session, /, ids: tuple[str, ...], to: str | None, **filters: Any) -> None:
    """Write dead events as NDJSON, one per line.

    Without ID or filters, all dead events are written. `redbox put --many` puts them back: id, payload, headers, keys
    and metadata are the same, and the state is not copied. The box is not changed.

    Events that cannot be read in full, such as those whose body is missing, are skipped and named on stderr. The exit
    code is 1 then.

    A file exists only when it is complete, and only its owner can read it.

    \b
    Examples:
      redbox dead export > dead.ndjson
      redbox dead export --group 55242f13 --to dead.ndjson
      redbox --box repaired put --many @dead.ndjson
    """
    if ids and any(value is not None for value in filters.values()):
        raise click.UsageError("select events by ID or with filters, not both", click.get_current_context())
    if "" in ids:
        raise empty_id()
    skipped: list[str] = []
    count = session.run(_export(session, list(dict.fromkeys(ids)), filters, to, skipped))
    if to is None:
        session.output.note(f"{counted(count, 'event')} exported", exported=count, skipped=len(skipped))
    elif session.output.as_json:
        session.output.json({"exported": count, "skipped": len(skipped), "file": to if count else None})
    else:
        session.output.text(f"{counted(count, 'event')} exported{f' to {to}' if count else '; no file was written'}")
    if not (count or skipped):
        note_nothing(session, filters)
    if skipped:
        _list_skipped(session, skipped)
        click.get_current_context().exit(1)


def _list_skipped(session: Session, skipped: list[str]) -> None:
    they = "it" if len(skipped) == 1 else "they"
    session.output.note(f"{counted(len(skipped), 'event')} skipped, since {they} cannot be read in full:")
    for each in skipped[:SHOWN]:
        session.output.note(f"  {each}")
    if len(skipped) > SHOWN:
        session.output.note(f"  ... and {len(skipped) - SHOWN:,} more")


async def _export(session: Session, ids: list[str], filters: dict[str, Any], to: str | None, skipped: list[str]) -> int:
    """Writes the events that can be read, and adds the others to `skipped`; returns how many were written."""
    from redbox.box.bulk.export_file import readable_lines, write_export
    from redbox.box.desk.error_groups import require_group

    def skip(event_id: str, problem: str) -> None:
        skipped.append(f"{event_id}: {problem}")

    async with session.existing() as box:
        lines = readable_lines(await _lines(box, ids, filters), skip)
        if to is None:
            count = await _print(lines)
        else:
            with session.output.progress("exporting") as progress:
                count = await write_export(lines, to, replace=True, progress=progress)
        if not (count or skipped):
            await require_group(box, filters["group"])
        return count


async def _lines(box: Box, ids: list[str], filters: dict[str, Any]) -> AsyncIterator[bytes]:
    if not ids:
        return box.export(**await resolved(box, filters))
    dead, refused = await split_dead(box, ids)
    if refused:
        raise RedboxError(f"event {refused[0].event_id} cannot be exported: {refused[0].reason}")
    return box.export([record.event_id for record in dead])


async def _print(lines: AsyncIterator[bytes]) -> int:
    count = 0
    async for line in lines:
        if sys.stdout.isatty():
            echo_json(line.decode().rstrip("\n"))
        else:
            sys.stdout.buffer.write(line)
        count += 1
    sys.stdout.flush()
    return count
