"""Drains a box as a stream: claimed under a lease, PUBLISHED when Spark has committed the micro-batch.

The offset is the number of a batch. `StreamDriver` cuts the batches; here is the interface that Spark calls, and the
reading of a batch in the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from redbox.errors import StreamLost
from redbox.pipeline.source.connection import connected, without_gc
from redbox.pipeline.source.fetch import Fetch
from redbox.pipeline.source.options import MAX_BATCH, SLICE, DrainOptions
from redbox.pipeline.source.rows import BatchBuilder
from redbox.pipeline.source.stream_driver import StreamDriver
from redbox.store.scripts.steps import batches


class BatchPart(InputPartition):
    """The members of a batch from one rank to another."""

    def __init__(self, batch: int, first: int, last: int) -> None:
        self.batch, self.first, self.last = batch, first, last


class DrainReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that drains. It drives the query in one process, and is copied into each task, where it only reads."""

    def __init__(self, options: DrainOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._driver: StreamDriver | None = None
        self._until: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}

    def _drive(self) -> StreamDriver:
        if self._driver is None:
            with connected(self._options.at) as connection:  # without patience: the URL may be wrong
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
        rows = MAX_BATCH if isinstance(limit, ReadAllAvailable) else self._options.batch
        return {"n": self._drive().next_batch(start["n"], rows, self._until)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        driver, size = self._drive(), self._options.partition_size
        driver.settle(start["n"])
        return [
            BatchPart(batch, first, min(first + size, count) - 1)
            for batch, count in driver.sizes(start["n"] + 1, end["n"])
            for first in range(0, count, size)
        ]

    def commit(self, end: dict[str, int]) -> None:
        self._drive().settle(end["n"])

    def stop(self) -> None:
        """Does nothing: Spark kills the process instead of calling this, and the process does not know what Spark has
        committed. `jobs.streams.settle_committed` settles that from outside."""

    # --- in a task -----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, BatchPart)
        builder = BatchBuilder(self._schema, strict=self._options.on_unreadable == "fail")
        with connected(self._options.at, self._options.patience) as connection, without_gc():
            fetch, store = Fetch(connection), connection.store
            members = connection.run(
                store.members, self._options.stream, partition.batch, partition.first, partition.last
            )
            now = connection.run(store.time)
            expected = partition.last - partition.first + 1
            if len(members) != expected:
                raise StreamLost(
                    f"batch {partition.batch} of stream {self._options.stream!r} is no longer complete: it was "
                    "settled, or the box lost data; use the checkpoint that the stream was started with"
                )
            for some in batches(members, SLICE):
                for events in fetch.held(some, builder, strict=self._options.on_lost == "fail"):
                    yield builder.build("claimed", now, events)
