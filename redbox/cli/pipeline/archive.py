"""`redbox pipeline archive`: terminal events into Parquet files."""

from __future__ import annotations

import time
from datetime import timedelta

import click

from redbox.arguments import counted
from redbox.cli.options.parameters import DURATION
from redbox.cli.pipeline.group import Spark, spark_options, summary
from redbox.cli.session import Session, pass_session


@click.command("archive")
@click.option("--to", required=True, metavar="PATH", help="Path of the archive; Spark must be able to write it.")
@click.option(
    "--older-than",
    type=DURATION,
    default=None,
    help="Minimum time since the event was published or died.  [default: 0]",
)
@click.option("--state", type=click.Choice(["published", "dead"]), help="State to archive.  [default: both]")
@click.option("--keep", is_flag=True, help="Keep the events in Redis, marked as archived.")
@click.option("--dry-run", is_flag=True, help="Count the events, and change nothing.")
@spark_options
@pass_session
def archive_command(
    session: Session,
    /,
    to: str,
    older_than: timedelta | None,
    state: str | None,
    keep: bool,
    dry_run: bool,
    spark: Spark,
) -> None:
    """Move PUBLISHED and DEAD events into Parquet files.

    The files are partitioned by date and event type. Events are removed from Redis only after the files were read back
    and verified. An interrupted run can be repeated: nothing is lost and nothing is archived twice. An event that is
    replayed meanwhile stays, and so does a dead event that blocks its line.

    \b
    Examples:
      redbox pipeline archive --to /lake/orders --older-than 7d
      redbox pipeline archive --to s3a://lake/orders --state dead --older-than 30d
      redbox pipeline archive --to /lake/orders --keep --dry-run
    """
    with spark.started(session) as running:
        from redbox.events import State
        from redbox.pipeline.archive.job import TERMINAL, archive
        from redbox.pipeline.source.options import Address

        before = time.monotonic()
        with spark.progress(session, "archiving"):
            done = archive(
                running,
                Address(session.url, session.box_name),
                to,
                older_than=older_than or timedelta(0),
                states=TERMINAL if state is None else (State(state.upper()),),
                keep=keep,
                dry_run=dry_run,
            )
        what = "marked" if keep else "removed"
        text = (
            f"{counted(done.rows, 'event')} would be archived"
            if dry_run
            else f"{counted(done.rows, 'event')} archived in {counted(done.files, 'file')}, {done.removed:,} {what}, "
            f"{done.left:,} left"
        )
        if done.finished:
            runs = counted(done.finished, "earlier run")
            session.output.note(f"finished the removal of {runs}; the events are counted below")
        if done.unreadable:
            session.output.note(f"{counted(done.unreadable, 'unreadable event')} left in Redis")
        figures = {name: getattr(done, name) for name in done.__struct_fields__}
        summary(session, spark, time.monotonic() - before, text, **figures)
