"""report: what went through a box, how late, and why some of it failed; as tables and as a page."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from redbox.errors import UsageError
from redbox.events import from_ms
from redbox.pipeline import files
from redbox.pipeline.archive.layout import READ_SETTINGS
from redbox.pipeline.report.facts import HOUR, facts, time_axis
from redbox.pipeline.report.page import page
from redbox.pipeline.report.tables import COLUMNS, TABLES, collect, events, one_job, throughput, volume
from redbox.pipeline.source.connection import connected
from redbox.pipeline.source.options import Address
from redbox.pipeline.spark_session import set_for
from redbox.store.connect import describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE: Final = "report.html"
#: The first characters of a text that a spreadsheet would run as a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


class Report(msgspec.Struct, kw_only=True):
    """The path and the main figures of a report. Latencies are None if nothing was published."""

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

    Only this user may read the files, and the directory if it is new. `archive` has the columns of a box, and is
    included in the report. `since` and `until` select events by the time they were put.
    """
    if not to.strip("/ "):
        raise UsageError(f"a report needs a directory, not {to!r}")
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
    with set_for(spark, READ_SETTINGS | one_job(spark)):
        table = events(_live(spark, at, since), archive, since, until).persist()
        try:
            tables = collect({"overview": TABLES["overview"](table)})
            axis = time_axis(tables["overview"].to_pylist())
            others = {name: make(table) for name, make in TABLES.items() if name not in tables}
            binned = {} if axis.step == HOUR else {
                "volume by bin": volume(table, axis.step), "throughput by bin": throughput(table, axis.step)
            }  # fmt: skip
            tables |= collect(others | binned)
        finally:
            table.unpersist()
    bins = [tables.pop(f"{name} by bin", tables[name]).to_pylist() for name in ("volume", "throughput")]
    tables["causes"] = _with_dead_now(tables["causes"], tables["dead"])
    for directory in (to, files.join(to, "tables")):
        files.make_directory(spark, directory)
    for name, made in tables.items():
        files.write_bytes(spark, table_path(to, name, "parquet"), _parquet(made), private=True)
        files.write_bytes(spark, table_path(to, name, "csv"), _csv(made), private=True)
    found = facts(
        {name: made.to_pylist() for name, made in tables.items()}, *bins, box=at.box, store=describe(at.url),
        archived=archive is not None, made_at=made_at, since=since, until=until, axis=axis,
    )  # fmt: skip
    path = files.join(to, PAGE)
    files.write_bytes(spark, path, page(found).encode(), private=True)
    total = found.total
    return Report(
        page=path,
        tables=list(TABLES),
        events=found.events,
        published=found.count(state="PUBLISHED"),
        dead=found.count(state="DEAD"),
        pending=found.pending,
        failures=found.failures,
        p50_ms=total["p50_ms"] if total else None,
        p99_ms=total["p99_ms"] if total else None,
    )


def _live(spark: SparkSession, at: Address, since: datetime | None) -> DataFrame:
    options = {"url": at.url, "box": at.box, "columns": ",".join(COLUMNS)}
    if since is not None:  # in every index, an event that was put later has a later time
        options["since"] = since.isoformat()
    return spark.read.format("redbox").options(**options).load()


def _with_dead_now(causes: pa.Table, dead: pa.Table) -> pa.Table:
    """The causes with `dead_now`: the number of events that are dead with such a last error."""
    counts: dict[str, int] = {}
    for row in dead.select(["fingerprint", "dead"]).to_pylist():
        counts[row["fingerprint"]] = counts.get(row["fingerprint"], 0) + row["dead"]
    column = [counts.get(fingerprint, 0) for fingerprint in causes["fingerprint"].to_pylist()]
    return causes.append_column(pa.field("dead_now", pa.int64(), nullable=False), pa.array(column, pa.int64()))


# --- files -----------------------------------------------------------------------------------------------------------


def table_path(to: str, name: str, format: str) -> str:  # noqa: A002 - what Spark calls it
    """The path of a table of a report: one file, which other programs can open too."""
    return files.join(to, "tables", f"{name}.{format}")


def _parquet(table: pa.Table) -> bytes:
    made = io.BytesIO()
    pq.write_table(table, made)
    return made.getvalue()


def _csv(table: pa.Table) -> bytes:
    made = io.StringIO()
    writer = csv.DictWriter(made, table.column_names, lineterminator="\n")
    writer.writeheader()
    for row in table.to_pylist():
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return made.getvalue().encode()


def _cell(value: Any) -> Any:
    """A value for a spreadsheet: times in UTC, and no formulas, since errors and keys are written by strangers."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
