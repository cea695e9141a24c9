"""Reads a box in parallel: each task reads a range of an index, or a list of ids, in slices."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, In, InputPartition
from pyspark.sql.types import StructType

from redbox import keys
from redbox.pipeline.source.connection import Connection, connected, without_gc
from redbox.pipeline.source.fetch import Fetch
from redbox.pipeline.source.options import LOOK, RANGES_AT_ONCE, SLICE, ReadOptions
from redbox.pipeline.source.rows import STATE_OF, BatchBuilder
from redbox.store.scripts.replies import START, Position
from redbox.store.scripts.steps import batches

END: Final = Position(b"%d" % 2**53, b"")
AFTER_ALL: Final = "\x7f"  # sorts after every id


class ReadRange(InputPartition):
    """A part of one index: the events after one position, up to and including another, that have not changed since a
    moment."""

    def __init__(self, index: str, after: Position, last: Position, moment: int, claims: int) -> None:
        self.index, self.after, self.last, self.moment, self.claims = index, after, last, moment, claims


class ClaimedIds(InputPartition):
    """Claimed events by id that have not changed since a moment. Not a range: a renewal does not count as a change, but
    it moves an event to a later position in the index, and so out of its range."""

    def __init__(self, ids: tuple[str, ...], moment: int, claims: int) -> None:
        self.ids, self.moment, self.claims = ids, moment, claims


class ChosenIds(InputPartition):
    """Events by id."""

    def __init__(self, ids: tuple[str, ...]) -> None:
        self.ids = ids


class BoxReader(DataSourceReader):
    """A batch read. Holds options only: each task opens its own connection."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        if not options.waits_at_once:  # a wrong address is reported at once
            with connected(options.at) as connection:
                connection.require_box()
        with connected(options.at, options.patience) as connection:
            connection.require_box()
            if options.ids is not None:
                size = options.partition_size
                return [ChosenIds(options.ids[at : at + size]) for at in range(0, len(options.ids), size)] or [
                    ChosenIds(())
                ]
            moment = _moment(connection)
            parts: list[InputPartition] = []
            for state in dict.fromkeys(options.states):
                for index in keys.INDEXES_OF[state]:
                    parts += _parts(connection, options, index, moment)
            return parts or [ChosenIds(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        with connected(options.at, options.patience) as connection, without_gc():
            if isinstance(partition, ReadRange):
                yield from read_range(connection, partition, options, self._schema)
            elif isinstance(partition, ClaimedIds):
                slices = batches(partition.ids, options.slice)
                yield from _read_unchanged(connection, "claimed", slices, partition, self._schema)
            elif isinstance(partition, ChosenIds):
                yield from _read_chosen(connection, partition.ids, options, self._schema)


class PushdownReader(BoxReader):
    """A batch read that is narrowed by the filters on state and event type that Spark pushes down.

    Only used with the option `pushdown`, for a DataFrame that is read once: Spark keeps the filters with the relation,
    so after `df.where("state = 'DEAD'").count()`, `df.count()` on the same DataFrame counts only dead events. A test
    pins that behaviour, and shows when Spark has fixed it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for condition in filters:
            self._narrow(condition)
            yield condition  # Spark applies it again, which costs little

    def _narrow(self, condition: Filter) -> None:
        options = self._options
        if isinstance(condition, EqualTo | In) and condition.attribute == ("state",):
            wanted = (condition.value,) if isinstance(condition, EqualTo) else condition.value
            states = tuple(state for state in options.states if state in {str(word) for word in wanted})
            self._options = msgspec.structs.replace(options, states=states)
        elif isinstance(condition, EqualTo) and condition.attribute == ("event_type",):
            text = str(condition.value)
            if not options.event_type and not {"*", "?"} & set(text):  # a pattern would match more than the text
                self._options = msgspec.structs.replace(options, event_type=text)


def _moment(connection: Connection) -> int:
    """A millisecond that has passed on the store: every later change has a later time."""
    start = connection.run(connection.store.time)
    while connection.run(connection.store.time) <= start:
        time.sleep(0.001)
    return start


def _parts(connection: Connection, options: ReadOptions, index: str, moment: int) -> Iterator[InputPartition]:
    if index == "claimed":
        return _claimed(connection, options, moment)
    until = options.until
    if index in ("published", "dead"):
        until = moment if until is None else min(until, moment)
    return ranges(connection, index, moment, options.partition_size, since=options.since, until=until)


def ranges(
    connection: Connection,
    index: str,
    moment: int,
    size: int,
    *,
    after: Position = START,
    since: int | None = None,
    until: int | None = None,
) -> Iterator[ReadRange]:
    """An index in ranges of `size` events each."""
    count = RANGES_AT_ONCE
    while count == RANGES_AT_ONCE:  # fewer: the end of the index
        found = connection.run(
            connection.store.split_index,
            index,
            since=since,
            until=until,
            after=after,
            size=size,
            ranges=RANGES_AT_ONCE,
        )
        count = len(found.last)
        for last in found.last:
            yield ReadRange(index, after, last, moment, found.claims)
            after = last


def _claimed(connection: Connection, options: ReadOptions, moment: int) -> Iterator[ClaimedIds]:
    """The claimed events, in parts. They are listed upwards: an event that is renewed meanwhile moves to a later
    position, so it is found, perhaps twice. Only one whose lease is shortened in that time may be missed."""
    claims = connection.run(connection.store.split_index, "claimed", size=1, ranges=0).claims
    last = END if options.until is None else Position(b"%d" % options.until, AFTER_ALL.encode())
    slices = _slices(connection, "claimed", START, last, options, SLICE)
    found = dict.fromkeys(event_id for some in slices for event_id in some)
    for ids in batches(found, options.partition_size):
        yield ClaimedIds(tuple(ids), moment, claims)


def _slices(
    connection: Connection, index: str, after: Position, last: Position, options: ReadOptions, size: int
) -> Iterator[list[str]]:
    """The ids after one position, up to and including another."""
    more = True
    while more:
        found = connection.run(
            connection.store.list_ids,
            index,
            after=after,
            last=last,
            since=options.since,
            limit=min(size, LOOK),
            event_type=options.event_type,
        )
        more, after = found.more, found.after
        yield [raw.decode() for raw in found.ids]


def read_range(
    connection: Connection, part: ReadRange, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The events of a range, one batch for each slice."""
    slices = _slices(connection, part.index, part.after, part.last, options, options.slice)
    return _read_unchanged(connection, part.index, slices, part, schema)


def _read_unchanged(
    connection: Connection, index: str, slices: Iterable[list[str]], part: ReadRange | ClaimedIds, schema: StructType
) -> Iterator[pa.RecordBatch]:
    builder, fetch = BatchBuilder(schema), Fetch(connection, part.moment, part.claims)
    for ids in slices:
        for events in fetch.unchanged(index, ids, builder):
            yield builder.build(index, part.moment, events)


def _read_chosen(
    connection: Connection, ids: tuple[str, ...], options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    builder, fetch = BatchBuilder(schema), Fetch(connection)
    now = connection.run(connection.store.time)
    for batch in batches(ids, options.slice):
        for events in fetch.wherever(batch, builder):
            for index in STATE_OF:
                here = [event for event in events if event.index == index and STATE_OF[index] in options.states]
                if here:
                    yield builder.build(index, now, here)
