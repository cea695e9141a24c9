"""drain and follow: the streams as jobs that write files, or into another sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from redbox.errors import UsageError
from redbox.pipeline.options import Address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Sinks that take no path.
SINKS: Final = ("console", "noop", "redbox")
LOOKS: Final = 1.0  # seconds between looks at a running query


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
    checkpoint is kept unless it is given; or one of SINKS, which need one.
    """
    from pyspark.errors import IllegalArgumentException, ParseException

    read = spark.readStream.format("redbox").options(url=at.url, box=at.box, **source).load()
    if to in SINKS:
        if checkpoint is None:
            raise UsageError(f"{to} is a sink without a path; say where the checkpoint is to be kept")
        write = read.writeStream.format(to).option("checkpointLocation", checkpoint)
    else:
        place = checkpoint or f"{to.rstrip('/')}/_checkpoint"
        write = read.writeStream.format(format).option("path", to).option("checkpointLocation", place)
    write = write.options(**(options or {}))
    try:
        write = write.trigger(availableNow=True) if every is None else write.trigger(processingTime=every)
    except (IllegalArgumentException, ParseException, ValueError):
        raise UsageError(f"every: {every!r} is not an interval such as '10 seconds'") from None
    query, done, seen = write.start(), Streamed(), -1
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
