"""`redbox pipeline replay`: archived events back to be delivered."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from redbox.cli.pipeline.group import Spark, spark_options, summary
from redbox.cli.session import Session, pass_session
from redbox.errors import RedboxError


@click.command("replay")
@click.option("--from", "archive", required=True, metavar="PATH", help="The archive.")
@click.option(
    "--where",
    metavar="SQL",
    help="A condition over the columns of events, such as event_type = 'a.b'; built-in functions only.",
)
@click.option("--all", "everything", is_flag=True, help="All events of the archive.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most so many per second.")
@click.option("--why", default="", metavar="TEXT", help="The reason, for the box's log.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@click.option("--yes", is_flag=True, help="Do not ask; needed in a pipe.")
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
    """Send archived events back to PENDING, also when they are long gone from Redis.

    The condition is SQL over the columns of a box in Spark, and `run` and `date`. The box's log keeps who did it.

    \b
    Examples:
      redbox pipeline replay --from /lake/orders --where "event_type like 'invoice.%' and date = '2026-01-31'" --dry-run
      redbox pipeline replay --from /lake/orders --where "state = 'DEAD' and last_error like '%503%'" --rate 200 --yes
    """
    ctx = click.get_current_context()
    if (where is None) == (not everything):
        raise click.UsageError("say which: either --where, or --all", ctx)
    asks = not (yes or dry_run)
    if asks and not sys.stdin.isatty():
        raise click.UsageError("this is not a terminal, so nobody can be asked; add --yes or --dry-run", ctx)
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
        told = (
            f"{done.matched:,} events would be replayed"
            if dry_run
            else f"{done.replayed + done.restored:,} of {done.matched:,} events replayed, {done.restored:,} of them "
            f"were gone from Redis; {done.live:,} wait already, {done.changed:,} changed since, {done.refused:,} were "
            "refused"
        )
        figures = {name: getattr(done, name) for name in done.__struct_fields__ if name not in ("sample", "matched")}
        summary(session, spark, time.monotonic() - before, told, rows=done.matched, **figures)
