"""`redbox pipeline report`: volumes, latencies and failures, as a page and as tables."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import click

from redbox.cli.options.filters import resolved
from redbox.cli.options.parameters import MOMENT
from redbox.cli.pipeline.group import Spark, spark_options, summary
from redbox.cli.session import Session, pass_session
from redbox.durations import format_duration


@click.command("report")
@click.option("--to", required=True, metavar="DIR", help="Directory of the report; an older one is replaced.")
@click.option("--from", "archive", metavar="PATH", help="Archive of this box to include.")
@click.option("--since", type=MOMENT, help="Only events put since this time; 1h is an hour ago.")
@click.option("--until", type=MOMENT, help="Only events put until this time; 1h is an hour ago.")
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
    """Report volumes, latencies and causes of failure.

    The page, report.html, is one file that needs no network. The tables are in DIR/tables, as Parquet and as CSV. The
    report covers the live box and, with --from, its archive; an event that is in both counts once.

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
        text = f"{done.page}: {done.events:,} events, {done.published:,} published, {done.dead:,} dead{late};"
        summary(
            session, spark, seconds, text, rows=done.events, page=done.page, tables=done.tables, events=done.events,
            published=done.published, dead=done.dead, pending=done.pending, failures=done.failures, p50_ms=done.p50_ms,
            p99_ms=done.p99_ms,
        )  # fmt: skip


async def _between(session: Session, **given: Any) -> dict[str, Any]:
    """The given times, relative ones by the store's clock. A missing box is reported before Spark starts."""
    async with session.existing() as box:
        return await resolved(box, given)
