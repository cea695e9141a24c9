"""`redbox pipeline replay`: archived events back to PENDING."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from redbox.cli.pipeline.group import Spark, spark_options, summary
from redbox.cli.session import Session, pass_session
from redbox.errors import RedboxError


@click.command("replay")
@click.option("--from", "archive", required=True, metavar="PATH", help="Path of the archive.")
@click.option(
    "--where",
    metavar="SQL",
    help="SQL on the event columns, plus `run` and `date`, such as event_type = 'a.b'; built-in functions only.",
)
@click.option("--all", "everything", is_flag=True, help="Replay all events of the archive.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Maximum events per second.  [default: unlimited]",
)
@click.option("--why", default="", metavar="TEXT", help="Reason, for the operations log.")
@click.option("--dry-run", is_flag=True, help="Count the events, and change nothing.")
@click.option("--yes", is_flag=True, help="Skip the confirmation; required without a terminal.")
@spark_options
@pass_session
def replay_command(
    session: Session,
    /,
    archive: str,
    where: str | None,
    everything: bool,
    dry_run: bool,
    yes: bool,
    spark: Spark,
    **options: Any,
) -> None:
    """Return archived events to PENDING.

    Also restores events that are no longer in Redis. The condition is SQL on the event columns, plus `run` and `date`.
    The operations log records the replay.

    \b
    Examples:
      redbox pipeline replay --from /lake/orders --where "event_type like 'invoice.%' and date = '2026-01-31'" --dry-run
      redbox pipeline replay --from /lake/orders --where "state = 'DEAD' and last_error like '%503%'" --rate 200 --yes
    """
    ctx = click.get_current_context()
    if (where is None) == (not everything):
        raise click.UsageError("give either --where or --all", ctx)
    asks = not (yes or dry_run)
    if asks and not sys.stdin.isatty():
        raise click.UsageError("confirmation needs a terminal; add --yes or --dry-run", ctx)
    with spark.started(session) as running:
        from redbox.pipeline.jobs.replay import replay
        from redbox.pipeline.source.options import Address

        at, before = Address(session.url, session.box_name), time.monotonic()
        condition = where or "true"
        if asks:
            found = replay(running, at, archive, where=condition, dry_run=True).matched
            if not click.confirm(f"Replay {found:,} events into box {at.box!r}?", err=True):
                raise RedboxError("nothing was replayed")
        with spark.progress(session, "replaying"):
            done = replay(running, at, archive, where=condition, dry_run=dry_run, **options)
        text = (
            f"{done.matched:,} events would be replayed"
            if dry_run
            else f"{done.replayed + done.restored:,} of {done.matched:,} events replayed, {done.restored:,} of them "
            f"were gone from Redis; {done.live:,} live, {done.changed:,} changed since, {done.refused:,} refused"
        )
        figures = {name: getattr(done, name) for name in done.__struct_fields__ if name not in ("sample", "matched")}
        summary(session, spark, time.monotonic() - before, text, rows=done.matched, **figures)
