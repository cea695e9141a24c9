"""`redbox reap`, `sweep` and `log`: the upkeep that relays do by themselves, and the operations log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.arguments import counted
from redbox.cli.options.changes import change_options, confirm, operator, require_answer
from redbox.cli.options.filters import resolved
from redbox.cli.options.parameters import MOMENT
from redbox.cli.session import Session, pass_session

if TYPE_CHECKING:
    from redbox import Swept
    from redbox.box.reports import LogEntry

LOG_ROWS: Final = 50
IDS_SHOWN: Final = 3


@click.command("reap")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Maximum number of events.  [default: all]")
@change_options
@pass_session
def reap_command(session: Session, /, limit: int | None, dry_run: bool, yes: bool, why: str, who: str | None) -> None:
    """Return events with an expired lease to PENDING.

    Relays do it by themselves within seconds; it is needed only if no relay is running. The attempt counts.

    \b
    Examples:
      redbox reap --dry-run
      redbox reap --why 'all relays are down' --yes
    """
    require_answer(yes=yes, dry_run=dry_run)

    async def reap() -> list[str]:
        async with session.existing() as box:
            by = operator(who)
            expired = await box.operate.reap(who=by, why=why, limit=limit, dry_run=True) if dry_run or not yes else []
            if dry_run or not (yes or expired):
                return expired
            confirm(f"Return {counted(len(expired), 'event')} of box {session.box_name!r} to PENDING?", yes=yes)
            return await box.operate.reap(who=by, why=why, limit=limit)

    ids = session.run(reap())
    would = "would be " if dry_run else ""
    data = {"action": "reap", "dry_run": dry_run, "count": len(ids), "ids": ids}
    session.output.document(data, f"{counted(len(ids), 'event')} {would}returned to PENDING")


@click.command("sweep")
@click.option("--keep-published", metavar="DURATION", help="Maximum age of PUBLISHED events to keep: 7d, 0 or forever.")
@click.option("--keep-published-count", metavar="N", help="Maximum number of PUBLISHED events to keep, or unlimited.")
@click.option("--keep-dead", metavar="DURATION", help="Maximum age of DEAD events to keep: 90d, 0 or forever.")
@click.option("--keep-dead-count", metavar="N", help="Maximum number of DEAD events to keep, or unlimited.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Maximum number of removed events.")
@change_options
@pass_session
def sweep_command(
    session: Session, /, limit: int | None, dry_run: bool, yes: bool, why: str, who: str | None, **retention: str | None
) -> None:
    """Remove published and dead events past their retention.

    Relays do it by themselves, as the box is configured. Options hold for this sweep only; `redbox configure` sets the
    retention of the box. Removed events cannot be restored.

    \b
    Examples:
      redbox sweep --dry-run
      redbox sweep --keep-published 1h --why 'memory is short' --yes
    """
    from redbox.box.texts.setting_texts import parse_settings

    given, _ = parse_settings({name: text for name, text in retention.items() if text is not None})
    require_answer(yes=yes, dry_run=dry_run)

    async def sweep() -> Swept:
        async with session.existing() as box:
            by = operator(who)
            if dry_run or not yes:
                expected = await box.operate.sweep(who=by, why=why, limit=limit, dry_run=True, **given)
                if dry_run or not expected.published + expected.dead:
                    return expected
                confirm(f"Remove {_removed(expected)} events of box {session.box_name!r} for good?", yes=False)
            return await box.operate.sweep(who=by, why=why, limit=limit, **given)

    report = session.run(sweep())
    data = {"action": "sweep", "dry_run": dry_run, "published": report.published, "dead": report.dead}
    session.output.document(data, f"{_removed(report)} events {'would be ' if dry_run else ''}removed")


def _removed(report: Swept) -> str:
    return f"{report.published:,} PUBLISHED and {report.dead:,} DEAD"


@click.command("log")
@click.option("--action", metavar="ACTION", help="Action, such as kill, replay, pause or configure.")
@click.option("--who", metavar="NAME", help="Operator, as recorded.")
@click.option("--since", type=MOMENT, help="Earliest time, in ISO 8601 or relative, such as 1h.")
@click.option("--until", type=MOMENT, help="Latest time, in ISO 8601 or relative, such as 1h.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=LOG_ROWS, show_default=True, metavar="N",
    help="Maximum number of entries.",
)  # fmt: skip
@pass_session
def log_command(session: Session, /, limit: int, **filters: Any) -> None:
    """Show what operators did to the box: who, when and why.

    Newest first. One action is one entry, however many events it changed; it names the first 20 ids. The box keeps
    about 10,000 entries. Relative times: `1h` is an hour ago, `+1h` an hour from now.

    A long action is listed if it was running at any time between --since and --until, with the time of its last step
    and the number of events of all steps up to now.

    \b
    Examples:
      redbox log
      redbox log --action kill --since 1d
      redbox --json log --who ada@web-1 | jq -r .why
    """

    async def read() -> list[LogEntry]:
        async with session.existing() as box:
            return await box.operate.log(limit, **await resolved(box, filters))

    entries = session.run(read())
    if session.output.as_json:
        for entry in entries:
            session.output.json(entry)
        return
    if not entries:
        some = any(value is not None for value in filters.values())
        session.output.note("no entries match the filters" if some else "the log of this box is empty")
        return
    from redbox.cli.printing.records import iso

    rows = [
        (iso(entry.at, brief=True), entry.action, f"{entry.count:,}" if entry.ids or entry.count else "", entry.who,
         entry.why, _about(entry))
        for entry in entries
    ]  # fmt: skip
    session.output.table(("AT", "ACTION", "EVENTS", "WHO", "WHY", "DETAIL"), rows, right=("EVENTS",))


def _about(entry: LogEntry) -> str:
    """The detail and the first ids."""
    detail = entry.detail
    if entry.action == "reschedule" and detail.isascii() and detail.isdigit():
        from redbox.cli.printing.records import iso

        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(detail))
        detail = f"due {iso(moment, brief=True)}"
    ids = " ".join(entry.ids[:IDS_SHOWN]) + (" ..." if entry.count > IDS_SHOWN and entry.ids else "")
    return "; ".join(part for part in (detail, ids) if part)
