"""Reads a box in parallel: ranges of its indexes, or lists of ids, each read in slices by one task."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from redbox import keys
from redbox.box.bulk import batches
from redbox.pipeline.source.connection import Connection, connected, without_gc
from redbox.pipeline.source.fetch import Fetch
from redbox.pipeline.source.options import LOOK, RANGES_AT_ONCE, SLICE, ReadOptions
from redbox.pipeline.source.rows import STATE_OF, Rows

Place = tuple[str, str]  # score and id
START: Final[Place] = ("", "")
END: Final[Place] = (str(2**53), "")
BEHIND_ALL: Final = "\x7f"  # no id comes after it


class Range(InputPartition):
    """A part of one index: what comes after one place, up to and with another; of it, what has not changed since a
    moment."""

    def __init__(self, index: str, after: Place, last: Place, moment: int, claims: int) -> None:
        self.index, self.after, self.last, self.moment, self.claims = index, after, last, moment, claims


class Claimed(InputPartition):
    """Claimed events by id; of them, what has not changed since a moment. Not a range: a renewal changes nothing, but
    it moves an event to a later place in the index, and so out of its range."""

    def __init__(self, ids: tuple[str, ...], moment: int, claims: int) -> None:
        self.ids, self.moment, self.claims = ids, moment, claims


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
        if not options.waits_at_once:  # a wrong address is reported at once
            with connected(options.at) as connection:
                connection.require_box()
        with connected(options.at, options.patience) as connection:
            connection.require_box()
            if options.ids is not None:
                size = options.partition_size
                return [Chosen(options.ids[at : at + size]) for at in range(0, len(options.ids), size)] or [Chosen(())]
            moment = _moment(connection)
            parts: list[InputPartition] = []
            for state in dict.fromkeys(options.states):
                for index in keys.INDEXES_OF[state]:
                    parts += _parts(connection, options, index, moment)
            return parts or [Chosen(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        with connected(options.at, options.patience) as connection, without_gc():
            if isinstance(partition, Range):
                yield from read_range(connection, partition, options, self._schema)
            elif isinstance(partition, Claimed):
                slices = batches(partition.ids, options.slice)
                yield from _read_unchanged(connection, "claimed", slices, partition, self._schema)
            elif isinstance(partition, Chosen):
                yield from _read_chosen(connection, partition.ids, options, self._schema)


def _moment(connection: Connection) -> int:
    """A millisecond that is over: what happens from now on happens after it."""
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
    after: Place = START,
    since: int | None = None,
    until: int | None = None,
) -> Iterator[Range]:
    """An index in ranges of so many events, in as many looks at it as that takes."""
    places = [b""] * 2 * RANGES_AT_ONCE
    while len(places) == 2 * RANGES_AT_ONCE:  # fewer: the end, and what came behind it meanwhile is left
        _, claims, _, *places = connection.run(
            connection.store.split_index, index, _or_any(since), _or_any(until), *after, size, RANGES_AT_ONCE
        )
        texts = [part.decode() for part in places]
        for last in zip(texts[::2], texts[1::2], strict=True):
            yield Range(index, after, last, moment, claims)
            after = last


def _claimed(connection: Connection, options: ReadOptions, moment: int) -> Iterator[Claimed]:
    """The claimed events, in parts. They are gathered upwards: one that is renewed meanwhile moves to a later place, so
    it is met, perhaps twice. Only one whose lease is made shorter in that time may be missed."""
    _, claims, *_ = connection.run(connection.store.split_index, "claimed", "", "", *START, 1, 0)
    last = END if options.until is None else (str(options.until), BEHIND_ALL)
    slices = _slices(connection, "claimed", START, last, options, SLICE)
    found = dict.fromkeys(event_id for some in slices for event_id in some)
    for ids in batches(found, options.partition_size):
        yield Claimed(tuple(ids), moment, claims)


def _slices(
    connection: Connection, index: str, after: Place, last: Place, options: ReadOptions, size: int
) -> Iterator[list[str]]:
    """The ids that come after one place, up to and with another."""
    score, event_id = after
    more = 1
    while more:
        more, score, event_id, *ids = connection.run(
            connection.store.list_ids,
            index,
            score,
            event_id,
            *last,
            _or_any(options.since),
            min(size, LOOK),
            options.event_type,
        )
        yield [raw.decode() for raw in ids]


def _or_any(time: int | None) -> int | str:
    return "" if time is None else time


def read_range(
    connection: Connection, part: Range, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The events of a range, a batch for each slice."""
    slices = _slices(connection, part.index, part.after, part.last, options, options.slice)
    return _read_unchanged(connection, part.index, slices, part, schema)


def _read_unchanged(
    connection: Connection, index: str, slices: Iterable[list[str]], part: Range | Claimed, schema: StructType
) -> Iterator[pa.RecordBatch]:
    rows, fetch = Rows(schema), Fetch(connection, part.moment, part.claims)
    for ids in slices:
        for events in fetch.unchanged(index, ids, rows):
            yield rows.batch(index, part.moment, events)


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
