"""`redbox pipeline archive`: terminal events into the lake."""

from __future__ import annotations

import time
from datetime import timedelta

import click

from redbox.cli.parameters import DURATION
from redbox.cli.pipeline.group import Spark, spark_options, summary
from redbox.cli.session import Session, pass_session


@click.command("archive")
@click.option("--to", required=True, metavar="PATH", help="The archive: a path that Spark can write.")
@click.option("--older-than", type=DURATION, default=None, help="Only what is published or dead for so long.")
@click.option("--state", type=click.Choice(["published", "dead"]), help="Only these; else both.")
@click.option("--keep", is_flag=True, help="Leave the events in Redis, marked as archived.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
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
    """Move PUBLISHED and DEAD events into Parquet files, partitioned by date and type.

    They leave Redis only after what was written was read back. Cut short anywhere, run it again: nothing is lost and
    nothing is there twice. What is replayed meanwhile stays, and so does a dead event that blocks its line.

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
        told = (
            f"{done.rows:,} events would be archived"
            if dry_run
            else f"{done.rows:,} events archived in {done.files:,} files, {done.removed:,} {what}, {done.left:,} left"
        )
        if done.finished:
            runs = f"{done.finished:,} earlier run{'' if done.finished == 1 else 's'}"
            session.output.note(f"the removal of {runs} was finished; its events are counted below")
        if done.unreadable:
            session.output.note(f"{done.unreadable:,} events cannot be read, and stay where they are")
        figures = {name: getattr(done, name) for name in done.__struct_fields__}
        summary(session, spark, time.monotonic() - before, told, **figures)
