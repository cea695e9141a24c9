"""Drains a box as a stream: claimed under a lease, PUBLISHED when Spark has committed the micro-batch.

The offset is the number of a batch. A batch is cut once, in Redis, and never changes: asked again for the same start,
the same batch comes. Everything up to `start` is settled when the next batch is asked for and when one is planned,
since Spark tells of a commit one batch late, never of the last one, and not after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from redbox import keys
from redbox.errors import InvalidSetting, StreamLost, UsageError
from redbox.pipeline.source.connection import connected, without_gc
from redbox.pipeline.source.fetch import Fetch
from redbox.pipeline.source.options import SLICE, Given
from redbox.pipeline.source.rows import Rows
from redbox.pipeline.source.stream_driver import StreamDriver, StreamOptions
from redbox.store.steps import batches

MOST: int = 1_000_000


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    given = Given(options, "draining a box")
    given.text("mode")
    columns = given.words("columns")
    try:
        stream = keys.check_stream_name(given.required("stream", "lake"))
    except InvalidSetting:
        raise UsageError("option stream: use 1 to 64 letters, digits, '_', '.' and '-'") from None
    read = StreamOptions(
        at=given.address(),
        stream=stream,
        batch=given.number("maxEventsPerTrigger", 100_000, 1, MOST),
        lease=given.seconds("lease", 60.0),
        patience=given.seconds("patience", 60.0),
        on_lost=given.choice("onLost", ("fail", "continue"), "fail"),
        on_unreadable=given.choice("onUnreadable", ("fail", "continue"), "fail"),
        partition_size=given.number("partition_size", 10_000, 1, MOST),
        columns=None if columns is None else tuple(columns),
        owner=given.internal("owner"),
    )
    given.end()
    if read.lease < 1:
        raise UsageError("option lease: must be at least one second")
    return read


class Part(InputPartition):
    """Members of a batch by rank."""

    def __init__(self, batch: int, first: int, last: int) -> None:
        self.batch, self.first, self.last = batch, first, last


class DrainReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made once in the process that drives the query, and copied into each task, where it only reads."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._driver: StreamDriver | None = None
        self._until: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}

    def _drive(self) -> StreamDriver:
        if self._driver is None:
            with connected(self._options.at) as connection:  # without patience: it may be a wrong URL
                connection.require_box()
            self._driver = StreamDriver(self._options)
        return self._driver

    # --- in the process that drives the query; Spark's names -----------------------------------------------------

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._drive().time()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        rows = MOST if isinstance(limit, ReadAllAvailable) else self._options.batch
        return {"n": self._drive().next_batch(start["n"], rows, self._until)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        driver, size = self._drive(), self._options.partition_size
        driver.settle(start["n"])
        return [
            Part(batch, first, min(first + size, count) - 1)
            for batch, count in driver.sizes(start["n"] + 1, end["n"])
            for first in range(0, count, size)
        ]

    def commit(self, end: dict[str, int]) -> None:
        self._drive().settle(end["n"])

    def stop(self) -> None:
        """Does nothing: Spark kills the process instead of calling this, and this process does not know what Spark has
        committed. `streams.settle_committed` does both from outside."""

    # --- in a task -----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        rows = Rows(self._schema, strict=self._options.on_unreadable == "fail")
        with connected(self._options.at, self._options.patience) as connection, without_gc():
            fetch, store = Fetch(connection), connection.store
            members = connection.run(
                store.members, self._options.stream, partition.batch, partition.first, partition.last
            )
            now = connection.run(store.time)
            expected = partition.last - partition.first + 1
            if len(members) != expected:
                raise StreamLost(
                    f"batch {partition.batch} of stream {self._options.stream!r} is not whole any more: it was "
                    "settled, or the box lost data; use the checkpoint that the stream was begun with"
                )
            for some in batches(members, SLICE):
                for events in fetch.held(some, rows, strict=self._options.on_lost == "fail"):
                    yield rows.batch("claimed", now, events)
