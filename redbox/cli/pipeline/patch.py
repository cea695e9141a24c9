"""`redbox pipeline patch`: dead events through a function, put again as new ones."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from redbox.cli.pipeline.group import Spark, spark_options, summary
from redbox.cli.session import Session, pass_session
from redbox.errors import RedboxError

if TYPE_CHECKING:
    from redbox.pipeline.jobs.patch import Patched


@click.command("patch")
@click.option(
    "--where", default="true", metavar="SQL", help="Condition over the columns of dead events.  [default: all]"
)
@click.option(
    "--with", "with_", required=True, metavar="MODULE:FUNCTION", help="Function that makes a new event of a dead one."
)
@click.option("--dry-run", is_flag=True, help="Show the new events, and put nothing.")
@click.option("--sample", type=click.IntRange(0, 100), default=5, show_default=True, metavar="N",
              help="Number of events to show.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Skip the confirmation; required without a terminal.")
@click.option("--why", default="", metavar="TEXT", help="Reason, for the operations log.")
@spark_options
@pass_session
def patch_command(
    session: Session, /, where: str, with_: str, dry_run: bool, sample: int, yes: bool, why: str, spark: Spark
) -> None:
    """Put repaired copies of dead events, made by a function.

    The function gets an Event and returns a new Event, a new payload, or None to leave the event dead. A payload never
    changes: the new event names the old one in its metadata (supersedes), and the old one, which stays dead, names the
    new one (superseded_by). An event is patched once, so the command may be repeated. If the function raises, the event
    stays dead and is reported. A module in the current directory is sent to the Spark tasks.

    \b
    Examples:
      redbox pipeline patch --with fixes:add_currency --dry-run
      redbox pipeline patch --where "event_type = 'invoice.paid' and last_error like '%currency%'" --with fixes:add
      redbox pipeline patch --with fixes:add_currency --why 'ticket 7' --yes
    """
    asks = not (yes or dry_run)
    if asks and not sys.stdin.isatty():
        raise click.UsageError("confirmation needs a terminal; add --yes or --dry-run", click.get_current_context())
    session.require_directory()
    with spark.started(session) as running:
        from redbox.pipeline.jobs.patch import patch
        from redbox.pipeline.source.options import Address

        def run(label: str, *, only_look: bool) -> Patched:
            at = Address(session.url, session.box_name)
            with spark.progress(session, label):
                return patch(running, at, with_, where=where, sample=sample, dry_run=only_look, why=why)

        if asks:
            seen = run("looking", only_look=True)
            _show(session, seen)
            question = f"Put {seen.counts.patched:,} new events into box {session.box_name!r}?"
            if seen.counts.patched and not click.confirm(question, err=True):
                raise RedboxError("nothing was patched")
        before = time.monotonic()
        done = run("looking" if dry_run else "patching", only_look=dry_run)
        seconds = time.monotonic() - before
        _report(session, spark, done, seconds, shown=asks)


def _report(session: Session, spark: Spark, done: Patched, seconds: float, *, shown: bool) -> None:
    from msgspec import to_builtins
    from msgspec.structs import asdict

    counts = asdict(done.counts)
    figures: dict[str, Any] = {"rows": counts.pop("matched"), **counts, "dry_run": done.dry_run}
    if session.output.as_json:
        figures |= {"previews": to_builtins(done.previews), "failures": to_builtins(done.failures)}
    elif not shown:
        _show(session, done)
    verb = "would be patched" if done.dry_run else "patched"
    others = {"left as they are": "left", "failed": "failed", "refused": "refused", "changed meanwhile": "changed"}
    rest = "".join(f", {counts[name]:,} {words}" for words, name in others.items() if counts[name])
    summary(
        session, spark, seconds, f"{counts['patched']:,} of {figures['rows']:,} dead events {verb}{rest}", **figures
    )


def _show(session: Session, seen: Patched) -> None:
    """Shows some events before and after, and why some stay dead."""
    output = session.output
    if output.as_json:
        return
    from redbox.cli.printing.output import printable

    for preview in seen.previews:
        output.text(f"{preview.event_id}  {preview.event_type}")
        for name, was in preview.before.items():
            output.text(f"  - {name}: {printable(was)}", "red")
            output.text(f"  + {name}: {printable(preview.after[name])}", "green")
    if seen.failures:
        output.table(("STAYS DEAD", "REASON"), [(failure.event_id, failure.reason) for failure in seen.failures])
