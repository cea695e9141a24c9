"""`redbox list` and `redbox show`: the events of a box."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from redbox.arguments import counted
from redbox.cli.options.filters import filter_options, nothing_matches, resolved
from redbox.cli.printing.output import printable
from redbox.cli.session import Session, pass_session
from redbox.errors import RedboxError

if TYPE_CHECKING:
    from datetime import datetime

    from redbox import Record
    from redbox.box.reports import Page

STATES: Final = ("PENDING", "CLAIMED", "PUBLISHED", "DEAD")
PHASES: Final = ("SCHEDULED", "AVAILABLE", "IN_FLIGHT", "RETRY_SCHEDULED", "DEAD", "COMPLETED", "WAITING")
HEX_BYTES: Final = 256
TABLE_ROWS: Final = 50
PAGE: Final = 100  # pages include payloads, and one page at a time is in memory
limit_option = click.option(
    "--limit", type=click.IntRange(min=1), metavar="N",
    help=f"Maximum number of events.  [default: {TABLE_ROWS}, or all with --json]",
)  # fmt: skip
cursor_option = click.option("--cursor", metavar="CURSOR", help="Cursor printed by the previous listing.")


class Listing(NamedTuple):
    """The events of one table. `now`: the store's time, if the table shows relative times."""

    page: Page
    now: datetime | None


def read_page(session: Session, limit: int | None, cursor: str | None, filters: dict[str, Any]) -> Listing:
    """Reads the events of one table, which shows relative times on a terminal."""

    async def read() -> Listing:
        async with session.existing() as box:
            page = await box.page(limit=limit or TABLE_ROWS, cursor=cursor, **await resolved(box, filters))
            return Listing(page, (await box.stats()).at if session.output.terminal else None)

    return session.run(read())


def print_json_lines(session: Session, limit: int | None, cursor: str | None, filters: dict[str, Any]) -> None:
    """Prints one line of JSON per event, page by page; without a limit, all events."""

    async def print_pages() -> Page:
        from redbox.cli.printing import records

        async with session.existing() as box:
            selected, left, after = await resolved(box, filters), limit, cursor
            while True:
                page = await box.page(limit=PAGE if left is None else min(left, PAGE), cursor=after, **selected)
                for record in page.records:
                    session.output.json(records.as_json(record))
                after = page.cursor
                left = None if left is None else left - len(page.records)
                if after is None or left == 0:
                    return page

    note_cursor(session, session.run(print_pages()))


def note_cursor(session: Session, page: Page) -> None:
    """If there may be more events, prints the cursor to continue with."""
    if page.cursor is not None:
        session.output.note(
            f"there may be more: repeat the command with --cursor {shlex.quote(page.cursor)}", cursor=page.cursor
        )


@click.command("list")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="State of the events.  [default: all]")
@click.option(
    "--phase",
    type=click.Choice(PHASES, case_sensitive=False),
    help="Phase, or WAITING behind another event of its ordering key.",
)
@filter_options
@limit_option
@cursor_option
@pass_session
def list_command(session: Session, /, limit: int | None, cursor: str | None, **filters: Any) -> None:
    """List the events of the box by state and time.

    The column TIME shows available_at of a PENDING event, the end of the lease of a CLAIMED one, published_at or
    died_at; --since and --until filter by it. Relative times: `1h` is an hour ago, `+1h` an hour from now. With
    --state claimed, the columns CLAIMED and LEASE ENDS show both times.

    A narrow terminal shows fewer columns. With --json each line is a whole event, payload included; all events are
    printed unless --limit is given.

    \b
    Examples:
      redbox list
      redbox list --state pending --type 'user.*' --limit 10
      redbox list --state published --since 1h
      redbox --json list --state dead --error timeout | jq -r .event_id
    """
    if session.output.as_json:
        print_json_lines(session, limit, cursor, filters)
        return
    page, now = read_page(session, limit, cursor, filters)
    from redbox.cli.printing import records

    if page.records and _only_claimed(filters):
        _print_claimed(session, page, now)
    elif page.records:
        rows = [
            (
                record.event_id,
                record.event.event_type,
                records.phase_word(record),
                str(record.attempts),
                records.brief_time(record.entered_at, now),
                records.key_of(record),
                record.last_error or "",
            )
            for record in page.records
        ]
        session.output.table(("ID", "TYPE", "PHASE", "ATTEMPTS", "TIME", "KEY", "ERROR"), rows, right=("ATTEMPTS",))
    else:
        session.output.note(nothing_matches("events", filters) if any(filters.values()) else "the box is empty")
    note_cursor(session, page)


def _only_claimed(filters: dict[str, Any]) -> bool:
    return str(filters["state"]).upper() == "CLAIMED" or str(filters["phase"]).upper() == "IN_FLIGHT"


def _print_claimed(session: Session, page: Page, now: datetime | None) -> None:
    """Events in flight: since when, how long they may be, and with which relay."""
    from redbox.cli.printing import records

    rows = [
        (
            record.event_id,
            record.event.event_type,
            records.brief_time(record.claimed_at, now),
            records.brief_time(record.lease_until, now),
            record.claimed_by or "",
            str(record.attempts),
            records.key_of(record),
            record.last_error or "",
        )
        for record in page.records
    ]
    columns = ("ID", "TYPE", "CLAIMED", "LEASE ENDS", "BY", "ATTEMPTS", "KEY", "ERROR")
    session.output.table(columns, rows, right=("ATTEMPTS",))


@click.command("show")
@click.argument("event_id", metavar="ID")
@click.option("--payload", "payload_only", is_flag=True, help="Write only the payload to stdout, byte for byte.")
@pass_session
def show_command(session: Session, /, event_id: str, payload_only: bool) -> None:
    """Show one event with its payload and history.

    \b
    Examples:
      redbox show 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49
      redbox show 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49 --payload > payload.bin
      redbox --json show 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49 | jq .history
    """
    show_event(session, event_id, payload_only=payload_only)


def show_event(session: Session, event_id: str, *, payload_only: bool, state: str | None = None) -> None:
    """Prints one event, which must be in the given state, if any."""
    if not event_id:
        raise click.UsageError("ID must not be empty", click.get_current_context())

    async def read() -> tuple[Record | None, datetime, bool]:
        async with session.existing() as box:
            record = await box.get(event_id)
            stats = await box.stats()
            return record, stats.at, stats.paused

    record, now, paused = session.run(read())
    if record is None:
        raise RedboxError(f"there is no event {event_id} in box {session.box_name!r}; `redbox list` shows its events")
    if state is not None and record.state != state:
        raise RedboxError(f"event {event_id} is {record.state}, not {state}; `redbox show {event_id}` shows it")
    if payload_only and record.problem:
        raise RedboxError(record.problem)
    if payload_only:
        sys.stdout.buffer.write(record.event.encode()[0])
        sys.stdout.buffer.flush()
        return
    from redbox.cli.printing import records

    if session.output.as_json:
        session.output.json(records.as_json(record))
        return
    _show(session, record, now, paused)


def _show(session: Session, record: Record, now: datetime, paused: bool) -> None:
    from redbox.cli.printing import records

    event, output = record.event, session.output
    payload, content_type = event.encode()
    phase = "DAMAGED" if record.damaged else record.phase.value
    lines = {
        "event": record.event_id,
        "type": event.event_type,
        "phase": f"{phase}: {records.phase_in_words(record, now, paused)}",
        "state": record.state.value,
        "attempts": f"{record.attempts}{_excused(record)}",
        "last error": record.last_error,
        "created": records.iso(record.created_at),
        "available": records.iso(record.available_at),
        "claimed": f"{records.iso(record.claimed_at)} by {record.claimed_by}" if record.claimed_at else None,
        "lease ends": records.iso(record.lease_until),
        "claim number": str(record.number) if record.number else None,
        "published": records.published(record),
        "died": records.iso(record.died_at),
        "ordering key": event.ordering_key,
        "unique key": f"{event.unique_key} ({event.unique_scope})" if event.unique_key else None,
        "partition key": event.partition_key,
        "headers": "; ".join(f"{name}={value}" for name, value in event.headers.items()),
        "metadata": "; ".join(f"{name}={value}" for name, value in event.metadata.items()),
        "payload": record.problem or f"{content_type}, {counted(len(payload), 'byte')}",
    }
    for name, value in lines.items():
        if value:
            output.field(name, printable(value))
    for line in _payload_lines(payload, content_type):
        output.text("  " + line)
    if record.history:
        output.text("history (oldest first; a success is recorded only when it is replayed)", "bold")
        rows = [
            (
                records.iso(entry.at, brief=output.terminal),
                entry.outcome,
                str(entry.number),
                records.took(entry.seconds),
                entry.by,
                entry.error,
            )
            for entry in record.history
        ]
        output.table(("AT", "OUTCOME", "CLAIM", "TOOK", "BY", "ERROR"), rows, right=("CLAIM", "TOOK"), wrap="ERROR")


def _excused(record: Record) -> str:
    """`, of which 1 does not count against the limit`; empty if all attempts count."""
    if not record.excused:
        return ""
    return f", of which {record.excused} {'does' if record.excused == 1 else 'do'} not count against the limit"


def _payload_lines(payload: bytes, content_type: str) -> list[str]:
    """The payload for people: JSON indented, text unchanged, anything else as the first bytes of a hex dump."""
    from redbox.cli.printing.records import formatted
    from redbox.payloads import is_json

    pretty = formatted(payload, indent=2) if is_json(content_type) else None
    if pretty is not None:
        payload, content_type = pretty, "text/plain"
    if content_type.startswith("text/"):
        try:
            return [printable(line, keep="\t") for line in payload.decode().splitlines()]
        except UnicodeDecodeError:
            pass
    lines = []
    for at in range(0, min(len(payload), HEX_BYTES), 16):
        part = payload[at : at + 16]
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):47}  {seen}")
    if len(payload) > HEX_BYTES:
        lines.append(f"... {counted(len(payload) - HEX_BYTES, 'more byte')}; --payload writes the whole payload")
    return lines
