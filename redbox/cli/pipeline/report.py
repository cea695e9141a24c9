"""`redbox pipeline report`: what went through a box, as tables and as a page."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import click

from redbox.cli.filters import resolved
from redbox.cli.parameters import MOMENT
from redbox.cli.pipeline.group import Spark, spark_options, summary
from redbox.cli.session import Session, pass_session
from redbox.durations import format_duration


@click.command("report")
@click.option(
    "--to", required=True, metavar="DIR", help="Where the page and its tables go; an older report is replaced."
)
@click.option("--from", "archive", metavar="PATH", help="An archive of this box, to be taken in too.")
@click.option("--since", type=MOMENT, help="Only events put since this time, or since so long ago: 1h.")
@click.option("--until", type=MOMENT, help="Only events put up to this time, or up to so long ago.")
@spark_options
@pass_session
def report_command(
    session: Session,
    /,
    to: str,
    archive: str | None,
    since: datetime | timedelta | None,
    until: datetime | timedelta | None,
    spark: Spark,
) -> None:
    """Volumes, latencies, attempts and causes of failure, as a page and as tables in DIR.

    The page, report.html, is one file that opens without a network; the tables are in DIR/tables, as Parquet and as
    CSV. Looks at the live box and, with --from, at its archive; what is in both counts once.

    \b
    Examples:
      redbox pipeline report --to report
      redbox pipeline report --to report --since 7d
      redbox pipeline report --to report --from /lake/orders
    """
    between = session.run(_between(session, since=since, until=until))
    with spark.started(session) as running:
        from redbox.pipeline.report.job import report
        from redbox.pipeline.source.options import Address

        before = time.monotonic()
        with spark.progress(session, "reporting"):
            archived = None
            if archive is not None:
                from redbox.pipeline.archive.job import read_archive

                archived = read_archive(running, archive, box=session.box_name)
            done = report(running, Address(session.url, session.box_name), to, archive=archived, **between)
        seconds = time.monotonic() - before
        late = "" if done.p99_ms is None else f", p99 latency {format_duration(timedelta(milliseconds=done.p99_ms))}"
        told = f"{done.page}: {done.events:,} events, {done.published:,} published, {done.dead:,} dead{late};"
        summary(
            session, spark, seconds, told, rows=done.events, page=done.page, tables=done.tables, events=done.events,
            published=done.published, dead=done.dead, pending=done.pending, failures=done.failures, p50_ms=done.p50_ms,
            p99_ms=done.p99_ms,
        )  # fmt: skip


async def _between(session: Session, **given: Any) -> dict[str, Any]:
    """The times asked for; so long ago is by the store's clock. A box that is not there is told before Spark starts."""
    async with session.existing() as box:
        return await resolved(box, given)
