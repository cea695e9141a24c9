"""`redbox dead drop`: removes dead events, and exports them first."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import click

from redbox.arguments import counted
from redbox.cli.dead.selecting import (
    LONG,
    SHOWN,
    Choice,
    Refusal,
    note_nothing,
    selection_of,
    split_unchanged,
    take_choice,
)
from redbox.cli.options.changes import change_options, confirm, require_answer
from redbox.cli.options.filters import filter_options
from redbox.cli.session import Session, pass_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redbox import Box
    from redbox.box.reports import Dropped


@click.command("drop")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Drop all dead events.")
@filter_options
@click.option("--export", "to", metavar="FILE", help="New file for the events.  [default: dead-BOX-TIME.ndjson]")
@click.option("--no-export", is_flag=True, help="Do not export the events before they are removed.")
@change_options
@pass_session
def drop_dead(
    session: Session,
    /,
    ids: tuple[str, ...],
    everything: bool,
    to: str | None,
    no_export: bool,
    dry_run: bool,
    yes: bool,
    why: str,
    who: str | None,
    **filters: Any,
) -> None:
    """Remove dead events for good, after exporting them.

    Select them by ID, by filters, or with --all. They are first exported to a file in the current directory, which
    `redbox put --many` reads. Then exactly the exported events are removed: one that was replayed or died again in the
    meantime stays. The operations log records who dropped them, in one entry. The exit code is 1 if an event stays.

    If the box is configured with dead_head=block, removing a dead event at the head of a line unblocks the line.

    \b
    Examples:
      redbox dead drop --group 55242f13 --dry-run
      redbox dead drop --type 'invoice.*' --created-until 30d --why 'customers were refunded'
      redbox dead drop --all --export old.ndjson --yes
    """
    choice = take_choice(ids, everything, filters)
    if no_export and to is not None:
        raise click.UsageError("give either --export or --no-export", click.get_current_context())
    require_answer(yes=yes, dry_run=dry_run)
    drop = _Drop(session, choice, to, no_export, {"who": who, "why": why})
    report = session.run(drop.run(dry_run, yes))
    _print_report(session, report, drop.refused, drop.file)
    if not report.matched:
        note_nothing(session, choice.filters)
    if report.refused_count:
        click.get_current_context().exit(1)


class _Drop:
    """One drop: counts the selected events, asks, exports them, and removes those that were exported."""

    def __init__(self, session: Session, choice: Choice, to: str | None, no_export: bool, log: dict[str, Any]) -> None:
        self.file: str | None = None  # that was written
        self.refused: list[Refusal] = []
        self._session = session
        self._choice = choice
        self._to = to
        self._no_export = no_export
        self._log = log

    async def run(self, dry_run: bool, yes: bool) -> Dropped:
        from redbox import Dropped
        from redbox.box.desk.error_groups import require_group

        async with self._session.existing() as box:
            selection, self.refused = await selection_of(box, self._choice)
            report = Dropped()
            if selection.get("ids") != []:
                report = await self._preview(box, selection)
            if not report.matched:
                await require_group(box, self._choice.filters["group"])
            report.dry_run = dry_run
            if report.matched and not dry_run:
                now = (await box.stats()).at
                to = self._to or f"dead-{box.name}-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}.ndjson"
                self._ask(report.matched, to, yes)
                report = await self._drop(box, selection, report.matched, to)
            report.refused_count += len(self.refused)
            report.matched += len(self.refused)
            for event_id, reason in report.refused:
                self._refuse(event_id, reason)
            return report

    def _ask(self, count: int, to: str, yes: bool) -> None:
        events = f"{counted(count, 'event')} of box {self._session.box_name!r}"
        saved = "They are not exported" if self._no_export else f"They are exported to {to} first"
        confirm(f"Remove {events} for good? {saved}.", yes=yes)

    async def _preview(self, box: Box, selection: dict[str, Any]) -> Dropped:
        with self._session.output.progress("counting") as progress:
            return await box.drop(**selection, dry_run=True, progress=progress)

    async def _drop(self, box: Box, selection: dict[str, Any], count: int, to: str) -> Dropped:
        from redbox import Dropped
        from redbox.box.bulk.export_file import read_lines, readable_lines, write_export

        output = self._session.output
        if self._no_export:
            with output.progress("dropping", count) as progress:
                return await box.drop(**selection, **self._log, progress=progress)
        with output.progress("exporting", count) as progress:
            lines = readable_lines(self._lines(box, selection), self._refuse)
            written = await write_export(lines, to, progress=progress)
        if not written:  # they were replayed or dropped meanwhile, or cannot be read
            return Dropped()
        self.file = to
        if written > LONG:
            other = "" if self._to is None else " with another --export FILE"
            output.note(
                f"if this is interrupted, repeat the command{other}: {to} is complete, and may be the only copy of "
                "dropped events",
                file=to,
            )
        with output.progress("dropping", written) as progress:
            return await box.drop(exported=read_lines(to), **self._log, progress=progress)

    def _refuse(self, event_id: str, reason: str) -> None:
        self.refused.append(Refusal(event_id, "", reason))

    async def _lines(self, box: Box, selection: dict[str, Any]) -> AsyncIterator[bytes]:
        """The events as they are now. Those that were given by id and have changed are refused."""
        from redbox.box.texts.record_json import line_of

        if "ids" in selection:
            unchanged, refused = await split_unchanged(box, selection["ids"])
            self.refused += refused
            for record in unchanged:
                yield line_of(record)
        else:
            async for line in box.export(**selection):
                yield line


def _print_report(session: Session, report: Dropped, refused: list[Refusal], file: str | None) -> None:
    output = session.output
    if output.as_json:
        data = {"matched": report.matched, "dropped": report.dropped, "dry_run": report.dry_run, "file": file}
        reasons = [{"event_id": each.event_id, "reason": each.reason} for each in refused]
        output.json({**data, "refused_count": report.refused_count, "refused": reasons})
        return
    if report.dry_run:
        output.paragraph(f"{counted(report.matched - report.refused_count, 'event')} would be dropped")
    else:
        left = f", {report.refused_count:,} left" if report.refused_count else ""
        saved = f"; exported to {file}" if file is not None else ""
        output.paragraph(f"{counted(report.dropped, 'event')} dropped{left}{saved}")
    if refused:
        output.table(("LEFT", "REASON"), [(each.event_id, each.reason) for each in refused[:SHOWN]], wrap="REASON")
        if report.refused_count > SHOWN:
            output.text(f"... and {report.refused_count - SHOWN:,} more")
