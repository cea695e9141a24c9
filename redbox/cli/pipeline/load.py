"""`redbox pipeline load`: files into a box."""

from __future__ import annotations

import time
from typing import Any

import click

from redbox.cli.options.parameters import name_value_pairs
from redbox.cli.pipeline.group import Spark, spark_options, summary
from redbox.cli.session import Session, pass_session


@click.command("load")
@click.argument("path")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["parquet", "json", "csv"]),
    help="Format of the files.  [default: by the name of PATH]",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    callback=name_value_pairs,
    metavar="NAME=COLUMN",
    help="Column of the files for a field of the event; repeatable.",
)
@click.option(
    "--set",
    "constants",
    multiple=True,
    callback=name_value_pairs,
    metavar="NAME=VALUE",
    help="Value of a field for all rows; repeatable.",
)
@click.option(
    "--job",
    metavar="NAME",
    help="Name of this load; generated ids depend on it and on the paths of the files.  [default: 'load PATH']",
)
@click.option(
    "--rejects", metavar="PATH", help="Directory for rows that cannot be put.  [default: the first one fails the job]"
)
@click.option(
    "--skip-conflicts",
    is_flag=True,
    help="Skip rows whose unique_key another event holds; with --rejects, write them there.",
)
@click.option("--dry-run", is_flag=True, help="Check the columns and count the rows, and put nothing.")
@spark_options
@pass_session
def load_command(
    session: Session,
    /,
    path: str,
    format_: str | None,
    columns: dict[str, str],
    constants: dict[str, str],
    skip_conflicts: bool,
    dry_run: bool,
    spark: Spark,
    **options: Any,
) -> None:
    """Put the rows of Parquet, JSON Lines or CSV files.

    The files need the columns event_type and payload, or --column or --set must supply them. Other fields of an event
    are optional columns. A failed load that is run again on the same files puts the missing rows.

    \b
    Examples:
      redbox pipeline load events.parquet
      redbox pipeline load users.csv --set event_type=user.imported --column payload=profile
      redbox pipeline load backfill.jsonl --rejects rejected --dry-run
    """
    with spark.started(session) as running:
        from redbox.pipeline.jobs.load import load
        from redbox.pipeline.source.options import Address

        before = time.monotonic()
        with spark.progress(session, "loading"):
            done = load(
                running,
                Address(session.url, session.box_name),
                path,
                format=format_,
                columns=columns,
                constants=constants,
                on_conflict="skip" if skip_conflicts else "raise",
                dry_run=dry_run,
                **options,
            )
        seconds = time.monotonic() - before
        text = (
            f"{done.rows:,} rows would be put"
            if dry_run
            else f"{done.put:,} of {done.rows:,} rows put, {done.existing:,} were there, "
            f"{done.skipped:,} skipped, {done.rejected:,} rejected"
        )
        summary(
            session, spark, seconds, text, rows=done.rows, put=done.put, existing=done.existing, skipped=done.skipped,
            rejected=done.rejected, bytes=done.size, dry_run=dry_run,
        )  # fmt: skip
