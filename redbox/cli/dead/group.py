"""`redbox dead`: dead events: listed, shown, replayed, exported and dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from redbox.arguments import counted
from redbox.cli.dead.drop import drop_dead
from redbox.cli.dead.export import export_dead
from redbox.cli.dead.replay import replay_dead
from redbox.cli.dead.selecting import note_nothing
from redbox.cli.inspect import (
    TABLE_ROWS,
    cursor_option,
    limit_option,
    note_cursor,
    print_json_lines,
    read_page,
    show_event,
)
from redbox.cli.options.filters import filter_options, resolved
from redbox.cli.session import Session, pass_session

if TYPE_CHECKING:
    from redbox import ErrorGroup


@click.group("dead", invoke_without_command=True)
@click.pass_context
def dead_command(ctx: click.Context) -> None:
    """List, show, replay, export and drop dead events.

    \b
    Examples:
      redbox dead list --by-error
      redbox dead show 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49
      redbox dead replay --group 55242f13 --canary 10
      redbox dead drop --type 'invoice.*' --created-until 30d
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


@dead_command.command("list")
@click.option("--by-error", is_flag=True, help="List groups of similar errors instead of events.")
@filter_options
@limit_option
@cursor_option
@pass_session
def list_dead(session: Session, /, by_error: bool, limit: int | None, cursor: str | None, **filters: Any) -> None:
    """List dead events, oldest first, or their errors.

    --since and --until compare died_at. Relative times: `1h` is an hour ago, `+1h` an hour from now.

    With --json each line is a whole event, payload included; all events are printed unless --limit is given.

    With --by-error, errors that differ only in ids, times, numbers and quotations are one group; the largest comes
    first. FIRST and LAST are the earliest and latest died_at, and SAMPLE is the event that died last.

    \b
    Examples:
      redbox dead list
      redbox dead list --by-error --since 1d
      redbox dead list --group 55242f13
      redbox dead list --type 'invoice.*' --error timeout --since 1d
      redbox --json dead list | jq -r .last_error | sort | uniq -c
    """
    if by_error:
        if cursor is not None:
            raise click.UsageError("--cursor cannot be combined with --by-error", click.get_current_context())
        _print_groups(session, limit, filters)
        return
    selected = {"state": "DEAD", **filters}
    if session.output.as_json:
        print_json_lines(session, limit, cursor, selected)
        return
    page, now = read_page(session, limit, cursor, selected)
    from redbox.cli.printing import records

    if page.records:
        rows = [
            (
                record.event_id,
                record.event.event_type,
                records.brief_time(record.died_at, now),
                str(record.attempts),
                records.key_of(record),
                record.last_error or "",
            )
            for record in page.records
        ]
        keyed = any(record.event.ordering_key for record in page.records)  # whose lines the events may block
        columns = ("ID", "TYPE", "DEAD SINCE", "ATTEMPTS", "KEY", "LAST ERROR")
        session.output.table(columns, rows, right=("ATTEMPTS",), keep="KEY" if keyed else "")
    else:
        note_nothing(session, filters)
    note_cursor(session, page)


def _print_groups(session: Session, limit: int | None, filters: dict[str, Any]) -> None:
    from redbox.box.desk.error_groups import OTHER
    from redbox.cli.printing.records import iso

    async def read() -> list[ErrorGroup]:
        async with session.existing() as box:
            return await box.error_groups(**await resolved(box, filters))

    groups = session.run(read())
    shown = groups[: limit or (None if session.output.as_json else TABLE_ROWS)]
    if session.output.as_json:
        for group in shown:
            session.output.json(group)
    elif not groups:
        note_nothing(session, filters)
    elif session.output.terminal:
        for group in shown:
            _print_group(session, group)
    else:
        columns = ("GROUP", "COUNT", "TYPES", "FIRST", "LAST", "SAMPLE", "LAST ERROR")
        rows = [
            (
                group.group,
                f"{group.count:,}",
                ", ".join(group.event_types),
                iso(group.first_seen, brief=True),
                iso(group.last_seen, brief=True),
                group.sample_id,
                group.example if group.group != OTHER else group.fingerprint,
            )
            for group in shown
        ]
        session.output.table(columns, rows, right=("COUNT",))
    if len(shown) < len(groups):
        session.output.note(f"{counted(len(groups) - len(shown), 'smaller group')} not shown; add --limit to see more")


def _print_group(session: Session, group: ErrorGroup) -> None:
    """A group on a terminal, whatever its width: the error first, then one event as an example."""
    from redbox.box.desk.error_groups import OTHER
    from redbox.cli.printing.output import printable
    from redbox.cli.printing.records import iso

    output, indent = session.output, " " * 10
    types = printable(", ".join(group.event_types))
    output.paragraph(f"{group.group:10}{counted(group.count, 'event')}: {types}", "bold", indent)
    output.paragraph(
        f"{indent}{printable(group.example if group.group != OTHER else group.fingerprint)}", "red", indent
    )
    output.text(f"{indent}from {iso(group.first_seen, brief=True)} to {iso(group.last_seen, brief=True)}")
    output.text(f"{indent}last {printable(group.sample_id)}")


@dead_command.command("show")
@click.argument("event_id", metavar="ID")
@click.option("--payload", "payload_only", is_flag=True, help="Write only the payload to stdout, byte for byte.")
@pass_session
def show_dead(session: Session, /, event_id: str, payload_only: bool) -> None:
    """Show one dead event with its payload and history.

    \b
    Examples:
      redbox dead show 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49
      redbox --json dead show 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49 | jq .history
    """
    show_event(session, event_id, payload_only=payload_only, state="DEAD")


dead_command.add_command(replay_dead)
dead_command.add_command(export_dead)
dead_command.add_command(drop_dead)
