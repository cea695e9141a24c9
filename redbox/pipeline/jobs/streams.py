"""drain and follow: the streams as jobs that write files, or into another sink."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from redbox.errors import StreamTaken, UsageError
from redbox.pipeline import files
from redbox.pipeline.source.checkpoint import committed_offset
from redbox.pipeline.source.options import Address
from redbox.pipeline.source.stream_driver import StreamDriver, new_owner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger("redbox")

#: Sinks that take no path.
SINKS: Final = ("console", "noop", "redbox")
LOOKS: Final = 1.0  # seconds between looks at a running query
PATIENCE_AT_THE_END: Final = 10.0  # seconds for which a store that is away is asked again when a query has ended


class Streamed(msgspec.Struct):
    """What a stream brought so far; `stopped` when it was told to end."""

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
    tell: Callable[[Streamed], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Streamed:
    """Runs a stream of a box into a sink: what is there now, or with `every` until `stop` says so.

    `source` are the options of the stream, `options` those of the sink. `to` is a path, beside whose files the
    checkpoint is kept unless it is given; or one of SINKS, which need one. Directories that are not there yet are made
    readable for this user only. When the query has ended, for whatever
    reason, the events of a drain that Spark has committed are PUBLISHED.
    """
    from pyspark.errors import IllegalArgumentException, ParseException

    if to in SINKS and checkpoint is None:
        raise UsageError(f"{to} is a sink without a path; say where the checkpoint is to be kept")
    place = checkpoint or f"{to.rstrip('/')}/_checkpoint"
    drains, owner = source.get("mode") != "follow", new_owner()
    if drains:
        source = {**source, "owner": owner}
    read = spark.readStream.format("redbox").options(url=at.url, box=at.box, **source).load()
    write = read.writeStream.format(to) if to in SINKS else read.writeStream.format(format).option("path", to)
    write = write.option("checkpointLocation", place).options(**(options or {}))
    try:
        write = write.trigger(availableNow=True) if every is None else write.trigger(processingTime=every)
    except (IllegalArgumentException, ParseException, ValueError):
        raise UsageError(f"every: {every!r} is not an interval such as '10 seconds'") from None
    for directory in (() if to in SINKS else (to,)) + (place,):
        files.make_directory(spark, directory)  # private, since Spark would let everyone read it
    query = write.start()
    try:
        done = _watch(query, tell, stop)
    except BaseException:
        with suppress(Exception):  # the first error is the one to raise
            query.stop()
            if drains:
                _settle(spark, at, source, place, owner, 0.0)
        raise
    if drains:
        _settle(spark, at, source, place, owner, PATIENCE_AT_THE_END)
    return done


def settle_committed(spark: SparkSession, at: Address, source: Mapping[str, str], checkpoint: str) -> None:
    """Marks the events of a drain PUBLISHED that Spark has committed, after a query of your own has ended.

    `source` are the options of the stream. A query that still runs on the stream is fenced, and fails. To call it
    again does no harm.
    """
    _settle(spark, at, source, checkpoint, "", PATIENCE_AT_THE_END)


def _settle(
    spark: SparkSession, at: Address, source: Mapping[str, str], checkpoint: str, before: str, patience: float
) -> None:
    """With `before`, only if that owner still holds the stream: the next one settles what is committed by itself."""
    from redbox.pipeline.source.drain import stream_options

    options = stream_options({"url": at.url, "box": at.box, **source})
    offset = committed_offset(spark, checkpoint)
    if offset is None:
        return
    options = msgspec.structs.replace(options, owner="", patience=min(options.patience, patience))
    with closing(StreamDriver(options)) as driver:
        try:
            driver.settle_finally(offset["n"], before)
        except StreamTaken:
            logger.info("stream %s was taken over; its new holder settles what is committed", options.stream)


def _watch(query: StreamingQuery, tell: Callable[[Streamed], None], stop: Callable[[], bool]) -> Streamed:
    """Waits for the end of a query, and ends it when `stop` says so."""
    done, seen = Streamed(), -1
    while not query.awaitTermination(LOOKS):  # type: ignore[arg-type]  # it takes fractions
        seen = _add(query.recentProgress, done, seen, tell)
        if stop():
            query.stop()
            done.stopped = True
    _add(query.recentProgress, done, seen, tell)
    return done


def _add(progress: Sequence[Any], done: Streamed, seen: int, tell: Callable[[Streamed], None]) -> int:
    """Counts the micro-batches that are new."""
    for step in progress:
        number, rows = int(step["batchId"]), int(step["numInputRows"])
        if number > seen and rows:
            done.rows, done.batches = done.rows + rows, done.batches + 1
            tell(done)
        seen = max(seen, number)
    return seen
