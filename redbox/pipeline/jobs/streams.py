"""drain and follow: a stream of a box into files, or into another sink."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from redbox.errors import StreamTaken, UsageError
from redbox.pipeline import files
from redbox.pipeline.source.options import Address, drain_options
from redbox.pipeline.source.stream_driver import StreamDriver, new_owner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger("redbox")

#: Sinks without a path.
SINKS: Final = ("console", "noop", "redbox")
WATCH_INTERVAL: Final = 1.0  # seconds between looks at a running query
FINAL_PATIENCE: Final = 10.0  # seconds to wait for an unreachable store after a query has ended


class Streamed(msgspec.Struct):
    """The rows and micro-batches of a stream so far; `stopped` if `stop` ended it."""

    rows: int = 0
    batches: int = 0
    stopped: bool = False


def run_stream(
    spark: SparkSession,
    at: Address,
    source: Mapping[str, str],
    to: str,
    *,
    format: str = "parquet",  # noqa: A002 - what Spark calls it
    options: Mapping[str, str] | None = None,
    checkpoint: str | None = None,
    every: str | None = None,
    progress: Callable[[Streamed], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Streamed:
    """Runs a stream of a box into a sink: the events that are there now, or with `every` until `stop` returns true.

    `source` holds the options of the stream, `options` those of the sink. `to` is a path, or one of SINKS. By default
    the checkpoint is kept below the path; a sink without a path needs `checkpoint`. New directories are readable by
    this user only. When the query ends, for whatever reason, the events of a drain that Spark has committed are marked
    PUBLISHED.
    """
    from pyspark.errors import IllegalArgumentException, ParseException

    if to in SINKS and checkpoint is None:
        raise UsageError(f"{to} is a sink without a path; say where to keep the checkpoint")
    kept_at = checkpoint or f"{to.rstrip('/')}/_checkpoint"
    drains, owner = source.get("mode") != "follow", new_owner()
    if drains:
        source = {**source, "owner": owner}
    read = spark.readStream.format("redbox").options(url=at.url, box=at.box, **source).load()
    write = read.writeStream.format(to) if to in SINKS else read.writeStream.format(format).option("path", to)
    write = write.option("checkpointLocation", kept_at).options(**(options or {}))
    try:
        write = write.trigger(availableNow=True) if every is None else write.trigger(processingTime=every)
    except (IllegalArgumentException, ParseException, ValueError):
        raise UsageError(f"every: {every!r} is not an interval such as '10 seconds'") from None
    for directory in (() if to in SINKS else (to,)) + (kept_at,):
        files.make_directory(spark, directory)  # private: by default Spark lets everyone read it
    query = write.start()
    try:
        done = _watch(query, progress, stop)
    except BaseException:
        with suppress(Exception):  # the first error is the one to raise
            query.stop()
            if drains:
                _settle(spark, at, source, kept_at, owner, 0.0)
        raise
    if drains:
        _settle(spark, at, source, kept_at, owner, FINAL_PATIENCE)
    return done


def settle_committed(spark: SparkSession, at: Address, source: Mapping[str, str], checkpoint: str) -> None:
    """Marks the events of a drain that Spark has committed as PUBLISHED, after a query of your own has ended.

    `source` holds the options of the stream. A query that still runs on the stream is fenced, and fails. Calling this
    again does no harm.
    """
    _settle(spark, at, source, checkpoint, "", FINAL_PATIENCE)


def _settle(
    spark: SparkSession, at: Address, source: Mapping[str, str], checkpoint: str, before: str, patience: float
) -> None:
    """With `before`, only if that owner still holds the stream: a new owner settles what is committed by itself."""
    options = drain_options({"url": at.url, "box": at.box, **source})
    offset = committed_offset(spark, checkpoint)
    if offset is None:
        return
    options = msgspec.structs.replace(options, owner="", patience=min(options.patience, patience))
    with closing(StreamDriver(options)) as driver:
        try:
            driver.settle_finally(offset["n"], before)
        except StreamTaken:
            logger.info("stream %s was taken over; its new owner settles what is committed", options.stream)


def committed_offset(spark: SparkSession, checkpoint: str) -> Any | None:
    """The offset of a query's only source up to which Spark has committed; None before the first commit.

    Spark writes `offsets/N` before a micro-batch and `commits/N` after it. `offsets/N` holds a version, a text line
    about the batch, and one for each source.
    """
    names = files.list(spark, files.join(checkpoint, "commits"))
    committed = [int(name) for name in names if name.isdecimal()]
    if not committed:
        return None
    path = files.join(checkpoint, "offsets", str(max(committed)))
    version, _, *offsets = files.read_text(spark, path).splitlines()
    if version != "v1" or len(offsets) != 1:
        raise UsageError(f"{checkpoint} is not the checkpoint of a query with one source, in Spark's format v1")
    return json.loads(offsets[0])


def _watch(query: StreamingQuery, progress: Callable[[Streamed], None], stop: Callable[[], bool]) -> Streamed:
    """Waits for the end of a query, and stops it when `stop` returns true."""
    done, seen = Streamed(), -1
    while not query.awaitTermination(WATCH_INTERVAL):  # type: ignore[arg-type]  # it takes fractions
        seen = _add(query.recentProgress, done, seen, progress)
        if stop():
            query.stop()
            done.stopped = True
    _add(query.recentProgress, done, seen, progress)
    return done


def _add(steps: Sequence[Any], done: Streamed, seen: int, progress: Callable[[Streamed], None]) -> int:
    """Counts the new micro-batches; returns the number of the last one."""
    for step in steps:
        number, rows = int(step["batchId"]), int(step["numInputRows"])
        if number > seen and rows:
            done.rows, done.batches = done.rows + rows, done.batches + 1
            progress(done)
        seen = max(seen, number)
    return seen
