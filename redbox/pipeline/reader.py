"""Reads a box in parallel: ranges of its indexes, each read in slices by one task."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from redbox import keys
from redbox.box.bulk import batches
from redbox.events import State
from redbox.pipeline.connection import Connection, connected, without_gc
from redbox.pipeline.fetch import Fetch
from redbox.pipeline.options import RANGES_AT_ONCE, ReadOptions
from redbox.pipeline.rows import STATE_OF, Rows

Place = tuple[str, str]  # score and id
START: Final[Place] = ("", "")

INDEXES_OF: Final = {
    State.PENDING: keys.PENDING_INDEXES,
    State.CLAIMED: ("claimed",),
    State.PUBLISHED: ("published",),
    State.DEAD: ("dead",),
}


class Range(InputPartition):
    """A part of one index: what comes after one place, up to and with another; of it, what has not changed since a
    moment."""

    def __init__(self, index: str, after: Place, last: Place, moment: int, claims: int) -> None:
        self.index, self.after, self.last, self.moment, self.claims = index, after, last, moment, claims


class Chosen(InputPartition):
    """Events by id."""

    def __init__(self, ids: tuple[str, ...]) -> None:
        self.ids = ids


class BoxReader(DataSourceReader):
    """A batch read. Holds options only: a task opens its own connection."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with connected(options.at) as connection:
            connection.require_box()
            if options.ids is not None:
                size = options.partition_size
                return [Chosen(options.ids[at : at + size]) for at in range(0, len(options.ids), size)] or [Chosen(())]
            moment = _moment(connection)
            ranges: list[InputPartition] = []
            for state in dict.fromkeys(options.states):
                for index in INDEXES_OF[state]:
                    ranges += _ranges(connection, options, index, moment)
            return ranges or [Chosen(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        with connected(options.at) as connection, without_gc():
            if isinstance(partition, Range):
                yield from read_range(connection, partition, options, self._schema)
            elif isinstance(partition, Chosen):
                yield from _read_chosen(connection, partition.ids, options, self._schema)


def _moment(connection: Connection) -> int:
    """A millisecond that is over: what happens from now on happens after it."""
    start = connection.run(connection.store.time)
    while connection.run(connection.store.time) <= start:
        time.sleep(0.001)
    return start


def _ranges(connection: Connection, options: ReadOptions, index: str, moment: int) -> Iterator[Range]:
    until = options.until
    if index in ("published", "dead"):
        until = moment if until is None else min(until, moment)
    after, places = START, [b""] * 2 * RANGES_AT_ONCE
    while len(places) == 2 * RANGES_AT_ONCE:  # fewer: the end, and what came behind it meanwhile is left
        _, claims, _, *places = connection.run(
            connection.store.bounds,
            index,
            "" if options.since is None else options.since,
            "" if until is None else until,
            *after,
            options.partition_size,
            RANGES_AT_ONCE,
        )
        texts = [part.decode() for part in places]
        for last in zip(texts[::2], texts[1::2], strict=True):
            yield Range(index, after, last, moment, claims)
            after = last


def read_range(
    connection: Connection, part: Range, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The events of a range, a batch for each slice."""
    rows, fetch = Rows(schema), Fetch(connection, part.moment, part.claims)
    score, event_id = part.after
    more = 1
    while more:
        more, score, event_id, *ids = connection.run(
            connection.store.slice,
            part.index,
            score,
            event_id,
            *part.last,
            "" if options.since is None else options.since,
            options.slice,
            options.event_type,
        )
        for events in fetch.unchanged(part.index, [raw.decode() for raw in ids], rows):
            yield rows.batch(part.index, part.moment, events)


def _read_chosen(
    connection: Connection, ids: tuple[str, ...], options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    rows, fetch = Rows(schema), Fetch(connection)
    now = connection.run(connection.store.time)
    for batch in batches(ids, options.slice):
        for events in fetch.wherever(batch, rows):
            for index in STATE_OF:
                here = [event for event in events if event.index == index and STATE_OF[index] in options.states]
                if here:
                    yield rows.batch(index, now, here)
