"""`redbox pipeline load`: files into a box."""

from __future__ import annotations

import time
from typing import Any

import click

from redbox.cli.parameters import name_value_pairs
from redbox.cli.pipeline.group import Spark, spark_options, summary
from redbox.cli.session import Session, pass_session


@click.command("load")
@click.argument("path")
@click.option("--format", "format_", type=click.Choice(["parquet", "json", "csv"]), help="Else by the file's name.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    callback=name_value_pairs,
    metavar="NAME=COLUMN",
    help="A column of the files as a field.",
)
@click.option(
    "--set",
    "constants",
    multiple=True,
    callback=name_value_pairs,
    metavar="NAME=VALUE",
    help="One value of a field for all rows.",
)
@click.option(
    "--job",
    metavar="NAME",
    help="Names this load; the ids of rows without one are made from it and the files' places.  [default: 'load PATH']",
)
@click.option("--rejects", metavar="PATH", help="Where rows go that cannot be put; else the first one ends the job.")
@click.option(
    "--skip-conflicts",
    is_flag=True,
    help="Leave out rows whose unique_key another event holds; with --rejects they go there.",
)
@click.option("--dry-run", is_flag=True, help="Only check the columns and count the rows.")
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
    """Put the rows of Parquet, JSON lines or CSV files at PATH into the box.

    The files need the columns event_type and payload, or --column and --set to say where they come from; further
    fields of an event are optional columns. A load that failed, run again on the same files, puts what is missing.

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
        told = (
            f"{done.rows:,} rows would be put"
            if dry_run
            else f"{done.put:,} of {done.rows:,} rows put, {done.existing:,} were there, "
            f"{done.skipped:,} skipped, {done.rejected:,} rejected"
        )
        summary(
            session, spark, seconds, told, rows=done.rows, put=done.put, existing=done.existing, skipped=done.skipped,
            rejected=done.rejected, bytes=done.size, dry_run=dry_run,
        )  # fmt: skip
