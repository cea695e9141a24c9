"""report: what went through a box, how late, and why some of it failed; as tables and as a page."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from redbox.errors import RedboxError, UsageError
from redbox.events import from_ms
from redbox.pipeline import files
from redbox.pipeline.archive.layout import READ_SETTINGS
from redbox.pipeline.report import tables as report_tables
from redbox.pipeline.report.facts import ATTEMPTS_TOGETHER, MOST_ROWS, Facts
from redbox.pipeline.report.page import page
from redbox.pipeline.report.tables import COLUMNS, HOUR, TABLES
from redbox.pipeline.source.connection import connected
from redbox.pipeline.source.options import Address
from redbox.pipeline.spark_session import PARQUET_TIMES, set_for
from redbox.store.connect import describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE: Final = "report.html"
FORMATS: Final = ("parquet", "csv")
AT_ONCE: Final = 4  # tables

MOST_BINS: Final = 96
_MINUTE, _DAY = 60, 24 * HOUR
#: How much time a bar of a plot may stand for, in seconds.
STEPS: Final = (
    1, 5, 15, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, _DAY,
    2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY, 84 * _DAY,
)  # fmt: skip

MOST_TYPES_DRAWN: Final = 7
MOST_CAUSES: Final = 12


class Report(msgspec.Struct, kw_only=True):
    """What a report says at its head, and where it is. Latencies are None when nothing was published."""

    page: str
    tables: list[str]
    events: int
    published: int
    dead: int
    pending: int
    failures: int
    p50_ms: int | None
    p99_ms: int | None


def report(
    spark: SparkSession,
    at: Address,
    to: str,
    *,
    archive: DataFrame | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Report:
    """Writes the page `report.html` and, below `tables`, its tables as Parquet and CSV into the directory `to`.

    Only this user may read the files, and the directory if it was not there before. `archive` has the schema of a box,
    and is looked at together with it. `since` and `until` take in the events put
    within this time.
    """
    if not to.strip("/ "):
        raise UsageError(f"a report needs a directory to be written to, not {to!r}")
    for name, moment in (("since", since), ("until", until)):
        if moment is None:
            continue
        if moment.tzinfo is None:
            raise UsageError(f"{name} needs a time zone, such as datetime(..., tzinfo=UTC)")
        try:
            moment.astimezone(UTC)  # as Spark does
        except OverflowError:
            raise UsageError(f"{name} must be between the years 1 and 9999 in UTC, not {moment}") from None
    with connected(at) as connection:
        connection.require_box()
        made_at = from_ms(connection.run(connection.store.time))
    table = report_tables.events(_live(spark, at, since), archive, since, until).persist()
    known = {"made_at": made_at, "archived": archive is not None, "since": since, "until": until}
    try:
        with set_for(spark, PARQUET_TIMES | READ_SETTINGS):
            for directory in (to, files.join(to, "tables")):
                files.make_directory(spark, directory)
            tables = _write_all(table, to)
            facts = _facts(table, tables, at, **known)
    finally:
        table.unpersist()
    path = files.join(to, PAGE)
    files.write_text(spark, path, page(facts), private=True)
    total = facts.total
    return Report(
        page=path,
        tables=list(TABLES),
        events=facts.events,
        published=facts.count(state="PUBLISHED"),
        dead=facts.count(state="DEAD"),
        pending=facts.pending,
        failures=facts.failures,
        p50_ms=total["p50_ms"] if total else None,
        p99_ms=total["p99_ms"] if total else None,
    )


def _live(spark: SparkSession, at: Address, since: datetime | None) -> DataFrame:
    options = {"url": at.url, "box": at.box, "columns": ",".join(COLUMNS)}
    if since is not None:  # whatever was put since then is in every index at a later place
        options["since"] = since.isoformat()
    return spark.read.format("redbox").options(**options).load()


# --- tables ----------------------------------------------------------------------------------------------------------


def table_path(to: str, name: str, format: str) -> str:  # noqa: A002 - what Spark calls it
    """Where a table of a report is: one file, that other programs can open too."""
    return files.join(to, "tables", f"{name}.{format}")


def _write_all(table: DataFrame, to: str) -> dict[str, DataFrame]:
    """The tables of a report. They are small, and Spark takes longer to plan each than to compute it: so the first one
    reads the events, and the others come side by side."""
    (first, make), *others = TABLES.items()
    written = {first: _write(make(table), to, first)}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        coming = {name: pool.submit(_write, make(table), to, name) for name, make in others}
        return written | {name: job.result() for name, job in coming.items()}


def _write(table: DataFrame, to: str, name: str) -> DataFrame:
    """Writes the table as one file in each format; returns what was written, which need not be computed again."""
    spark, schema = table.sparkSession, table.schema
    for kind in FORMATS:
        target = table_path(to, name, kind)
        part = files.join(to, "tables", f".{name}.{kind}.part")
        writer = (table if kind == "parquet" else _for_spreadsheets(table)).coalesce(1).write.mode("overwrite")
        # Quotes are doubled, as everyone but Spark expects.
        (writer.options(header=True, escape='"') if kind == "csv" else writer).format(kind).save(part)
        written = [found for found in files.list(spark, part) if found.startswith("part-")]
        if len(written) != 1:
            raise RedboxError(f"Spark wrote {len(written)} files to {part} instead of one; look there and try again")
        files.make_private(spark, files.join(part, written[0]))
        files.rename(spark, files.join(part, written[0]), target, overwrite=True)
        files.delete(spark, part)
        if kind == "parquet":
            table = spark.read.schema(schema).parquet(target)
    return table


def _for_spreadsheets(table: DataFrame) -> DataFrame:
    """Texts that a spreadsheet would run as a formula get an apostrophe: errors and keys are written by strangers."""
    from pyspark.sql import functions as f

    return table.select(
        *[
            f.when(f.col(name).rlike(r"^[=+\-@\t\r]"), f.concat(f.lit("'"), f.col(name)))
            .otherwise(f.col(name))
            .alias(name)
            if kind == "string"
            else f.col(name)
            for name, kind in table.dtypes
        ]
    )


# --- what the page shows ---------------------------------------------------------------------------------------------


def _facts(table: DataFrame, tables: dict[str, DataFrame], at: Address, **known: Any) -> Facts:
    """The little of each table that fits on a page."""
    from pyspark.sql import functions as f

    overview = _rows(tables["overview"])
    start, step, bins = _bins(overview)
    by_type = tables["volume"].groupBy("event_type").agg(f.sum("events").alias("events"))
    types = [
        row["event_type"] for row in _rows(by_type.orderBy(f.desc("events"), "event_type").limit(MOST_TYPES_DRAWN))
    ]
    drawn = f.when(f.col("event_type").isin(types), f.col("event_type")).alias("event_type")
    put = tables["volume"] if step == HOUR else report_tables.volume(table, step)
    settled = tables["throughput"] if step == HOUR else report_tables.throughput(table, step)
    attempts = f.least("attempts", f.lit(ATTEMPTS_TOGETHER)).alias("attempts")
    (causes,) = _rows(tables["causes"].agg(f.count("*").alias("groups"), f.sum("failures").alias("failures")))
    return Facts(
        box=at.box,
        store=describe(at.url),
        **known,
        overview=overview,
        start=start,
        step=step,
        bins=bins,
        types=types,
        all_types=by_type.count(),
        volume=_rows(put.groupBy("hour", drawn).agg(f.sum("events").alias("events"))),
        throughput=_rows(settled),
        latency=_rows(tables["latency"].limit(MOST_ROWS + 1)),
        attempts=_rows(
            tables["attempts"]
            .groupBy(attempts)
            .agg(*[f.sum(name).alias(name) for name in ("published", "dead")])
            .orderBy("attempts")
        ),
        causes=_rows(tables["causes"].limit(MOST_CAUSES)),
        all_causes=causes["groups"],
        failures=causes["failures"] or 0,
        dead=_rows(
            tables["dead"]
            .groupBy("event_type")
            .agg(
                f.sum("dead").alias("dead"),
                f.max_by("fingerprint", "dead").alias("fingerprint"),
                f.max("last_died").alias("last_died"),
            )
            .orderBy(f.desc("dead"), "event_type")
            .limit(MOST_ROWS)
        ),
        slowest=_rows(tables["slowest_keys"].limit(MOST_ROWS)),
        tables=list(TABLES),
    )


def _bins(overview: list[dict[str, Any]]) -> tuple[datetime, int, int]:
    """Where the time axis starts, how much time a bar stands for, and how many there are."""
    if not overview:
        return datetime.fromtimestamp(0, UTC), HOUR, 0
    first = min(row["first_created"] for row in overview).timestamp()
    last = max(row["last_change"] for row in overview).timestamp()
    longest = STEPS[-1]
    fitting = [step for step in STEPS if last // step - first // step < MOST_BINS]
    step = fitting[0] if fitting else longest * math.ceil((last - first) / longest / (MOST_BINS - 1))
    start = first // step * step
    return datetime.fromtimestamp(start, UTC), step, int((last - start) // step) + 1


def _rows(table: DataFrame) -> list[dict[str, Any]]:
    """Collected, with times that know their zone."""
    from pyspark.sql import functions as f

    times = [name for name, kind in table.dtypes if kind == "timestamp"]
    plain = table.withColumns({name: f.unix_millis(name) for name in times}) if times else table
    rows = [row.asDict() for row in plain.collect()]
    for row in rows:
        row.update({name: from_ms(row[name]) for name in times if row[name] is not None})
    return rows
