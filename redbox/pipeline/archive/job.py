"""archive: terminal events into Parquet files; then, once the files are verified, out of Redis.

Every step can be interrupted and run again. Before the manifest is written, the run does not exist: nothing was
removed, and the next run starts over. After that, the next run first finishes the removal. A removal is fenced by the
archived claim number, so an event that was replayed meanwhile stays. Events that a run kept, or had to leave, are
removed by a later one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from redbox.errors import RedboxError, UsageError
from redbox.events import State, from_ms
from redbox.pipeline import files
from redbox.pipeline.archive.layout import (
    FORMAT,
    READ_SETTINGS,
    WRITE_OPTIONS,
    WRITE_SETTINGS,
    Archive,
    ArchiveFile,
    Manifest,
    Removal,
    identities,
    read_archive,
)
from redbox.pipeline.archive.lock import locked
from redbox.pipeline.failures import SPARK_IS_GONE, translate
from redbox.pipeline.source.connection import connected
from redbox.pipeline.source.options import PATIENCE, TERMINAL, Address
from redbox.pipeline.source.schema import SCHEMA
from redbox.pipeline.spark_session import set_for
from redbox.pipeline.tasks import Work, map_arrow
from redbox.store.scripts.items import MarkItem, SeenClaim
from redbox.store.scripts.steps import batches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["TERMINAL", "Archived", "archive", "read_archive"]

STEP: Final = 500  # events per script call
Progress = Callable[[str], None]


class Archived(msgspec.Struct, kw_only=True):
    """The result of an archive run. `finished` counts earlier runs whose removal had been interrupted; `removed` and
    `left` include their events. `unreadable` events stay in Redis."""

    run: str = ""
    rows: int = 0
    bytes: int = 0
    files: int = 0
    removed: int = 0
    left: int = 0
    unreadable: int = 0
    finished: int = 0
    dry_run: bool = False


class _Selection(msgspec.Struct, frozen=True):
    """The events of a run: those that reached one of these states by a moment, in ms."""

    at: Address
    states: tuple[State, ...]
    until: int
    patience: float

    def read(self, spark: SparkSession, **options: str) -> DataFrame:
        reader = spark.read.format("redbox").options(url=self.at.url, box=self.at.box, **options)
        reader = reader.option("patience", str(self.patience))
        return reader.options(state=",".join(self.states), until=from_ms(self.until).isoformat()).load()


def archive(
    spark: SparkSession,
    at: Address,
    to: str,
    *,
    older_than: timedelta = timedelta(0),
    states: tuple[State, ...] = TERMINAL,
    keep: bool = False,
    dry_run: bool = False,
    progress: Progress = lambda _: None,
    patience: float = PATIENCE,
) -> Archived:
    """Moves PUBLISHED and DEAD events older than `older_than` into the archive at `to`; `keep` copies them instead.

    An unreachable store is waited for, up to `patience` seconds each time.
    """
    if not states or not set(states) <= set(TERMINAL):
        raise UsageError("only PUBLISHED and DEAD events are archived")
    lake = Archive(spark, to)
    with connected(at) as connection:
        connection.require_box()
        until = connection.run(connection.store.time) - int(older_than.total_seconds() * 1000)
    selection = _Selection(at, states, until, patience)
    done = Archived(dry_run=dry_run)
    if dry_run:
        lake.open(at.box, create=False)
        done.rows = selection.read(spark, columns="event_id").count()
        return done
    with locked(at, patience) as still_ours:
        lake.open(at.box, create=True)
        _finish(lake, selection, done, progress)
        lake.clean()
        progress("archiving")
        known = _known(lake)
        manifest = _write(lake, selection, keep, known, done)
        if manifest is not None:
            still_ours()
            lake.write_manifest(manifest)
            progress("marking" if keep else "removing")
            removal = _settle(lake, selection, manifest)
            done.run, done.rows, done.files = manifest.run, manifest.rows, len(manifest.files)
            done.bytes = sum(file.bytes for file in manifest.files)
            done.removed, done.left = done.removed + removal.removed, done.left + removal.left
        if known is not None and not keep:
            progress("removing what was archived before")
            _remove_known(lake, selection, known, done)
    return done


def _finish(lake: Archive, selection: _Selection, done: Archived, progress: Progress) -> None:
    """Removes, or marks, events that earlier, interrupted runs archived."""
    removals = lake.removals()
    for manifest in lake.manifests():
        if manifest.run not in removals:
            progress(f"finishing run {manifest.run}")
            removal = _settle(lake, selection, manifest)
            done.finished += 1
            done.removed, done.left = done.removed + removal.removed, done.left + removal.left


# --- writing ---------------------------------------------------------------------------------------------------


def _known(lake: Archive) -> DataFrame | None:
    """The archived events that Redis may still have: those of runs that kept or left some."""
    removals = lake.removals()
    partly = [
        manifest
        for manifest in lake.manifests()
        if (removal := removals.get(manifest.run)) is None or removal.kept or removal.left
    ]
    return identities(lake.read(partly)) if partly else None


def _write(
    lake: Archive, selection: _Selection, keep: bool, known: DataFrame | None, done: Archived
) -> Manifest | None:
    """Writes the events that are not archived yet into a new run, and reads them back; None if there are none."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    run = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    read, written = Observation(), Observation()
    table = selection.read(lake.spark)
    table = table.observe(read, f.count(f.when(f.col("problem").isNotNull(), 1)).alias("unreadable"))
    table = table.where("problem is null")
    if known is not None:
        table = table.join(known, ["event_id", "claim"], "left_anti")
    dated = table.withColumn("date", f.date_format(f.coalesce("published_at", "died_at"), "yyyy-MM-dd"))
    # One task for each date and type while they are small: it keeps the number of files low.
    dated = dated.hint("rebalance", "date", "event_type").observe(written, *_checksum())
    with set_for(lake.spark, WRITE_SETTINGS):
        dated.write.partitionBy("date", "event_type").options(**WRITE_OPTIONS).parquet(lake.data_of(run))
    done.unreadable = int(read.get["unreadable"])
    observed = dict(written.get)
    if not observed["rows"]:
        files.delete(lake.spark, lake.data_of(run))
        return None
    sizes = lake.list_data(run)
    back = lake.read_files(list(sizes))
    with set_for(lake.spark, READ_SETTINGS):
        counted = back.withColumn("file", f.input_file_name()).groupBy("file").agg(*_checksum()).collect()
    rows = sum(row["rows"] for row in counted)
    mixed = _fold([row.asDict() for row in counted])
    if rows != observed["rows"] or mixed != _fold([observed]):
        raise RedboxError(
            f"the files of run {run} do not hold what was written into them: {rows:,} of {observed['rows']:,} rows "
            "were read back; nothing was removed, and the run does not count; run it again"
        )
    by_path = {_below(run, row["file"]): int(row["rows"]) for row in counted}
    listed = [ArchiveFile(path, by_path.get(path, 0), size) for path, size in sorted(sizes.items())]
    return Manifest(
        FORMAT, run, selection.at.box, selection.until, keep, rows, mixed, [file for file in listed if file.rows]
    )


def _checksum() -> list[Column]:
    """A checksum over all columns of all rows, in any order."""
    from pyspark.sql import functions as f

    def hashable(name: str) -> Column:
        kind = SCHEMA[name].dataType.typeName()
        return f.array_sort(f.map_entries(name)) if kind == "map" else f.col(name)

    mixed = f.xxhash64(*[hashable(name) for name in SCHEMA.fieldNames()])
    return [
        f.count(f.lit(1)).alias("rows"),
        f.bit_xor(mixed).alias("xored"),
        f.sum(mixed.cast("decimal(20,0)")).alias("summed"),
    ]


def _fold(parts: list[dict[str, Any]]) -> str:
    xored = summed = 0
    for part in parts:
        xored ^= int(part["xored"] or 0)
        summed += int(part["summed"] or 0)
    return f"{xored & (2**64 - 1):016x}-{summed}"


def _below(run: str, url: str) -> str:
    """The path of a data file in a manifest, from the URL that Spark gives. Its name alone is not enough: a task writes
    files of the same name into several directories."""
    return f"data/run={run}/{unquote(url.rpartition(f'/data/run={run}/')[2])}"


# --- removing --------------------------------------------------------------------------------------------------


def _settle(lake: Archive, selection: _Selection, manifest: Manifest) -> Removal:
    """Removes the events of a run from Redis, or marks them there as archived."""
    work = partial(_settle_task, selection, manifest.run, manifest.keep)
    doing = "marked" if manifest.keep else "removed from Redis"
    with _unfinished(f"run {manifest.run} is in the archive, and some of its events may be {doing} already"):
        settled, left = _count(identities(lake.read([manifest])), work)
    removal = Removal(manifest.run, manifest.keep, settled, left)
    lake.write_removal(removal)
    return removal


def _remove_known(lake: Archive, selection: _Selection, known: DataFrame, done: Archived) -> None:
    """Removes the events of this selection that earlier runs archived and Redis still has."""
    live = selection.read(lake.spark, columns="event_id,claim").join(known, ["event_id", "claim"], "left_semi")
    with _unfinished("some events that were archived before may be removed from Redis already"):
        removed, left = _count(live, partial(_settle_task, selection, "", False))
    done.removed, done.left = done.removed + removed, done.left + left


@contextmanager
def _unfinished(done: str) -> Iterator[None]:
    """Adds to an error during a removal how far the run came, and what to do."""
    try:
        yield
    except (RedboxError, PySparkException, Py4JError, *SPARK_IS_GONE) as error:
        translated = translate(error)
        translated.args = (f"{translated.message}; {done}; run the archive again to finish",)
        raise translated from error


def _count(table: DataFrame, work: Work) -> tuple[int, int]:
    """Settles the events of a table; returns how many were settled, and how many were left."""
    row = map_arrow(table, work, "done long, left_there long").groupBy().sum("done", "left_there").first()
    assert row is not None
    return int(row[0] or 0), int(row[1] or 0)


def _settle_task(
    selection: _Selection, run: str, keep: bool, parts: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    done = left = 0
    with connected(selection.at, selection.patience) as connection:
        store = connection.store
        for part in parts:
            pairs = zip(part.column("event_id").to_pylist(), part.column("claim").to_pylist(), strict=True)
            for some in batches(pairs, STEP):
                if keep:
                    words = connection.run(store.mark_event, "archived", [MarkItem(*each, run) for each in some])
                else:
                    seen = [SeenClaim(*each) for each in some]
                    words = connection.run(store.drop, seen, who="", why="", heads=False)
                # UNKNOWN: an earlier attempt of this task removed it, or somebody else.
                gone = sum(word in (b"OK", b"UNKNOWN") for word in words)
                done, left = done + gone, left + len(words) - gone
    yield pa.RecordBatch.from_pydict({"done": [done], "left_there": [left]})
