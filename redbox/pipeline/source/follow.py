"""Follows a box as a stream: published and dead events as they come, without claiming or changing anything.

The offset is a position, time and id, in each of the two indexes. The times are the store's, so everything a little
older than now is complete: no event is added before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from redbox.events import State
from redbox.pipeline.source.connection import connected, without_gc
from redbox.pipeline.source.options import RANGES_AT_ONCE, FollowOptions, ReadOptions
from redbox.pipeline.source.reader import AFTER_ALL, ReadRange, ranges, read_range
from redbox.store.scripts.replies import Position

INDEXES: Final = {State.PUBLISHED: "published", State.DEAD: "dead"}


class FollowReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that follows. Holds options only; every call opens its own connection."""

    def __init__(self, options: FollowOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._until: int | None = None

    # --- in the process that drives the query; Spark's names -----------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        before = "" if self._options.since is None else str(self._options.since - 1)
        return {INDEXES[state]: {"time": before, "id": AFTER_ALL if before else ""} for state in self._options.states}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._complete_until()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        size = self._options.partition_size
        parts = RANGES_AT_ONCE if isinstance(limit, ReadAllAvailable) else -(-self._options.batch // size)
        return self._latest(start, parts * size)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._ranges(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: following changes nothing."""

    def stop(self) -> None:
        """Does nothing: nothing is held."""

    def _complete_until(self) -> int:
        with connected(self._options.at, self._options.patience) as connection:
            connection.require_box()
            return connection.run(connection.store.time) - max(1, int(self._options.lag * 1000))

    def _latest(self, start: dict[str, Any], size: int) -> dict[str, Any]:
        until = self._complete_until() if self._until is None else self._until
        end = {}
        with connected(self._options.at, self._options.patience) as connection:
            for index, offset in start.items():
                after = _position(offset)
                found = connection.run(
                    connection.store.split_index, index, until=until, after=after, size=size, ranges=1
                )
                end[index] = offset
                for score, event_id in found.last:
                    end[index] = {"time": score.decode(), "id": event_id.decode()}
        return end

    def _ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges between two offsets. Events that have left the index since are missing."""
        parts: list[InputPartition] = []
        with connected(self._options.at, self._options.patience) as connection:
            for index, last in end.items():
                after = start.get(index, {"time": "", "id": ""})
                if after == last:
                    continue
                goal = _position(last)
                until, size = int(float(last["time"])), self._options.partition_size
                for part in ranges(connection, index, until, size, after=_position(after), until=until):
                    parts.append(part)
                    if _order(part.last) >= _order(goal):
                        part.last = goal
                        break
        return parts

    # --- in a task -----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadRange)
        options = ReadOptions(at=self._options.at, event_type=self._options.event_type)
        with connected(self._options.at, self._options.patience) as connection, without_gc():
            yield from read_range(connection, partition, options, self._schema)


def _position(offset: dict[str, str]) -> Position:
    return Position(offset["time"].encode(), offset["id"].encode())


def _order(position: Position) -> tuple[float, bytes]:
    return (float(position.score) if position.score else float("-inf"), position.member)
