"""`redbox dead`: dead events, and their replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from redbox.arguments import counted
from redbox.cli.filters import NAMES, filter_options, resolved
from redbox.cli.inspect import TABLE_ROWS, cursor_option, limit_option, note_cursor, print_json_lines, read_page
from redbox.cli.output import can_ask
from redbox.cli.parameters import DURATION
from redbox.cli.session import Session, pass_session
from redbox.errors import RedboxError

if TYPE_CHECKING:
    from datetime import timedelta

    from redbox import Box, ErrorGroup
    from redbox.box.reports import Replayed


@click.group("dead", invoke_without_command=True)
@click.pass_context
def dead_command(ctx: click.Context) -> None:
    """List and replay dead events.

    \b
    Examples:
      redbox dead list --since 1d
      redbox dead replay --all --dry-run
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
    selected = {"state": "DEAD", **filters}
    if by_error:
        if cursor is not None:
            raise click.UsageError("--cursor cannot be combined with --by-error", click.get_current_context())
        _print_groups(session, limit, selected)
        return
    if session.output.as_json:
        print_json_lines(session, limit, cursor, selected)
        return
    page = read_page(session, limit, cursor, selected)
    from redbox.cli import records

    if page.records:
        rows = [
            (
                record.event_id,
                record.event.event_type,
                records.iso(record.died_at, brief=True),
                str(record.attempts),
                records.key_of(record),
                record.last_error or "",
            )
            for record in page.records
        ]
        session.output.table(("ID", "TYPE", "DIED", "ATTEMPTS", "KEY", "LAST ERROR"), rows, right=("ATTEMPTS",))
    else:
        session.output.note("no dead events match the filters" if any(filters.values()) else "there are no dead events")
    note_cursor(session, page)


def _print_groups(session: Session, limit: int | None, filters: dict[str, Any]) -> None:
    from redbox.cli.records import iso

    async def read() -> list[ErrorGroup]:
        async with session.existing() as box:
            return await box.error_groups(**await resolved(box, filters))

    groups = session.run(read())
    shown = groups[: limit or (None if session.output.as_json else TABLE_ROWS)]
    if session.output.as_json:
        for group in shown:
            session.output.json(group)
    elif not groups:
        session.output.note("no dead events match the filters")
    else:
        columns = ("GROUP", "COUNT", "TYPES", "FIRST", "LAST", "SAMPLE", "ERROR")
        rows = [
            (
                group.group,
                f"{group.count:,}",
                ", ".join(group.event_types),
                iso(group.first_seen, brief=True),
                iso(group.last_seen, brief=True),
                group.sample_id,
                group.fingerprint,
            )
            for group in shown
        ]
        session.output.table(columns, rows, right=("COUNT",))
    if len(shown) < len(groups):
        session.output.note(f"{counted(len(groups) - len(shown), 'smaller group')} not shown; add --limit to see more")


@dead_command.command("replay")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Replay all dead events.")
@filter_options
@click.option("--dry-run", is_flag=True, help="Only report how many events would be replayed.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Maximum events per second.")
@click.option("--delay", type=DURATION, help="Delay before the events are due, such as 10m.")
@click.option(
    "--keep-attempts", is_flag=True, help="Keep the last error, and count earlier attempts against the limit."
)
@click.option("--force", is_flag=True, help="Also replay events whose unique key is held, or that were superseded.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.option("--why", default="", metavar="TEXT", help="Reason, for the operations log.")
@pass_session
def replay_dead(
    session: Session,
    /,
    ids: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Return dead events to PENDING, to be delivered again.

    Select them by ID, by filters, or with --all. Only events that are dead at the start are replayed, so the command
    ends even while relays are running. The operations log records who replayed them. The exit code is 1 if an event was
    refused.

    Replays by --all or by filters ask for confirmation; without a terminal they require --yes. Replays by ID do not
    ask.

    --since and --until compare died_at. Relative times: `1h` is an hour ago, `+1h` an hour from now.

    \b
    Examples:
      redbox dead replay 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49
      redbox dead replay --type 'invoice.*' --since 1d --dry-run
      redbox dead replay --all --rate 50 --why 'provider is back' --yes
    """
    ctx = click.get_current_context()
    filters = {name: options.pop(name) for name in NAMES}
    ways = sum((bool(ids), everything, any(value is not None for value in filters.values())))
    if ways != 1:
        raise click.UsageError("select events in one way: by ID, with --all, or with filters such as --type", ctx)
    asks = not (yes or dry_run or ids)
    if asks and not can_ask():
        raise click.UsageError("confirmation needs a terminal; add --yes or --dry-run", ctx)
    replay = _Replay(session, ids, filters, **options)
    report = session.run(replay.run(dry_run, asks))
    _print_report(session, report)
    if report.refused:
        ctx.exit(1)


class _Replay:
    """One replay: counts the selected events, then replays them."""

    def __init__(
        self,
        session: Session,
        ids: tuple[str, ...],
        filters: dict[str, Any],
        *,
        rate: float | None,
        delay: timedelta | None,
        keep_attempts: bool,
        force: bool,
        why: str,
    ) -> None:
        self._session = session
        self._ids = list(dict.fromkeys(ids))
        self._filters = filters
        self._options: dict[str, Any] = {
            "rate": rate, "delay": delay, "reset": not keep_attempts, "force": force, "why": why,
        }  # fmt: skip

    async def run(self, dry_run: bool, asks: bool) -> Replayed:
        async with self._session.existing() as box:
            if self._ids:
                return await self._by_ids(box, dry_run)
            selection = {"state": "DEAD", **await resolved(box, self._filters)}
            report = await self._preview(box, selection)
            report.dry_run = dry_run
            if dry_run or not report.matched:
                return report
            if asks:
                self._ask(report.matched)
            return await self._replay(box, report.matched, selection)

    async def _by_ids(self, box: Box, dry_run: bool) -> Replayed:
        """Replays the dead events among the ids; refuses the others, so that no published event is sent again."""
        from redbox import Outcome, State
        from redbox.box.reports import Replayed

        dead: list[str] = []
        refused: list[tuple[str, Outcome, str]] = []
        for event_id in self._ids:
            record = await box.get(event_id)
            if record is None:
                refused.append((event_id, Outcome.UNKNOWN, ""))
            elif record.state is not State.DEAD:
                refused.append((event_id, Outcome.NOTTERMINAL, record.state.value))
            else:
                dead.append(event_id)
        report = Replayed(dry_run=dry_run)
        if dead:
            selection = {"ids": dead}
            report = await (self._preview(box, selection) if dry_run else self._replay(box, len(dead), selection))
        report.matched = len(self._ids)
        report.refused = refused + report.refused
        return report

    def _ask(self, count: int) -> None:
        if not click.confirm(f"Replay {counted(count, 'event')} of box {self._session.box_name!r}?", err=True):
            raise RedboxError("nothing was replayed")

    async def _preview(self, box: Box, selection: dict[str, Any]) -> Replayed:
        return await box.replay(**selection, force=self._options["force"], dry_run=True)

    async def _replay(self, box: Box, count: int, selection: dict[str, Any]) -> Replayed:
        with self._session.output.progress("replaying", count) as progress:
            return await box.replay(**selection, **self._options, progress=progress)


def _print_report(session: Session, report: Replayed) -> None:
    from redbox.events import Outcome

    def reason(outcome: Outcome, detail: str) -> str:
        if outcome is Outcome.NOTTERMINAL:
            return f"the event is {detail}, not DEAD"
        return f"{outcome.reason}: {detail}; --force replays it anyway" if detail else outcome.reason

    refused = [(event_id, outcome, reason(outcome, detail)) for event_id, outcome, detail in report.refused]
    output = session.output
    if output.as_json:
        output.json(
            {
                "matched": report.matched,
                "replayed": report.replayed,
                "dry_run": report.dry_run,
                "refused": [
                    {"event_id": event_id, "outcome": outcome, "reason": words} for event_id, outcome, words in refused
                ],
            }
        )
        return
    if report.dry_run:
        output.text(f"{counted(report.matched - len(refused), 'event')} would be replayed")
    else:
        output.text(
            f"{counted(report.replayed, 'event')} replayed" + (f", {len(refused):,} refused" if refused else "")
        )
    if refused:
        output.table(("REFUSED", "REASON"), [(event_id, words) for event_id, _, words in refused])
