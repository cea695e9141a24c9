"""Writes rows into a box: validated like events, and safe to repeat when a task is run again."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import repeat
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import DataType, MapType, StringType, StructType

from redbox import payloads
from redbox.box.receipts import Receipts
from redbox.errors import BoxFull, Conflict, IdReused, InvalidEvent, Refused, UsageError
from redbox.events import Event
from redbox.pipeline.source.connection import Connection, connected, without_gc
from redbox.pipeline.source.options import WriteOptions
from redbox.pipeline.source.rejects import Rejects, check_path
from redbox.pipeline.source.schema import SCHEMA
from redbox.pipeline.tasks import current_task
from redbox.settings import MAX_PAYLOAD, Settings
from redbox.store.codec import EncodedEvent, encode_event, encode_plain
from redbox.store.scripts.replies import CREATED, EXISTS, PutReply
from redbox.store.server.durability import Durability

REQUIRED: Final = ("event_type", "payload")
WRITABLE: Final = (
    *REQUIRED, "content_type", "event_id", "headers", "metadata", "partition_key", "ordering_key", "unique_key",
    "unique_scope", "available_at",
)  # fmt: skip
#: A column that a job may add to those of an event: a number for the part of the input that a row came from.
PLACE: Final = "_place"
STEP: Final = 500  # rows

Values = tuple[Any, ...]  # of a row, in the order of WRITABLE
_PLAIN: Final = (None,) * (len(WRITABLE) - 4)  # what follows the id in a row with only a type and a payload
_stable = msgspec.msgpack.Encoder(order="sorted").encode


# --- checks, before there are tasks ----------------------------------------------------------------------------------


def check_columns(schema: StructType) -> None:
    """Raises UsageError unless the columns are those of events to put, with types that fit, and none is missing."""
    kinds = {field.name: field.dataType for field in schema}
    for name in REQUIRED:
        if name not in kinds:
            raise UsageError(f"column {name!r} is missing; an event needs {' and '.join(REQUIRED)}")
    for name, kind in kinds.items():
        if name not in SCHEMA.fieldNames():
            raise UsageError(f"column {name!r} is not part of an event; there are {', '.join(WRITABLE)}")
        if name in WRITABLE and not _fits(name, kind):
            wanted = "binary or string" if name == "payload" else SCHEMA[name].dataType.simpleString()
            raise UsageError(f"column {name!r} must be {wanted}, not {kind.simpleString()}")


def _fits(name: str, kind: DataType) -> bool:
    wanted = SCHEMA[name].dataType
    if isinstance(wanted, MapType):
        return isinstance(kind, MapType) and all(isinstance(e, StringType) for e in (kind.keyType, kind.valueType))
    if isinstance(wanted, StringType) or name == "payload":
        return isinstance(kind, StringType) or kind == wanted
    return kind == wanted


def check_store(options: WriteOptions) -> None:
    """Reports an unusable store, durability or path for rejects once, and not after every attempt of every task."""
    Durability.parse(options.durability)
    if options.rejects:
        check_path(options.rejects)
    with connected(options.at) as connection:
        Settings.from_meta(connection.run(connection.store.meta))


# --- what Spark calls ------------------------------------------------------------------------------------------------


class Written(WriterCommitMessage):
    """The counts of one task."""

    def __init__(self) -> None:
        self.put = self.existing = self.skipped = self.rejected = self.size = 0


class BoxWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(iterator, self._options, self._options.job, current_task().partitionId())


class BoxStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: each epoch of a query is a job of its own, and can be written again safely."""

    def __init__(self, options: WriteOptions, named: bool) -> None:
        self._options = options
        self._named = named

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        running = current_task()
        query = self._options.job if self._named else running.getLocalProperty("sql.streaming.queryId")
        epoch = running.getLocalProperty("streaming.sql.batchId")
        if query is None or epoch is None:
            raise UsageError("this Spark does not give a task its query and epoch; give event_id as a column")
        return write_rows(iterator, self._options, f"{query}/{epoch}", running.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Does nothing: the events are already in the box."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - same
        """Does nothing: the epoch will be written again, and events that are there already are recognized."""


def write_rows(batches: Iterator[pa.RecordBatch], options: WriteOptions, job: str, partition: int) -> Written:
    """Puts the rows of one task."""
    with connected(options.at, options.patience) as connection, without_gc():
        rejects = Rejects(options.rejects, job, partition) if options.rejects else None
        writing = _Writing(connection, options, job, partition, rejects)
        try:
            for rows in row_slices(batches, partition):
                writing.put(rows)
        except BaseException:
            if rejects is not None:
                rejects.abandon()
            raise
        if rejects is not None:
            rejects.close()
        return writing.done


class _Writing:
    """Puts the rows of one task, and counts or rejects those that the box refuses."""

    def __init__(
        self, connection: Connection, options: WriteOptions, job: str, partition: int, rejects: Rejects | None
    ) -> None:
        self.done = Written()
        self._connection, self._options, self._partition, self._rejects = connection, options, partition, rejects
        self._encoder = RowEncoder(job)
        self._level = Durability.parse(options.durability)
        self._receipts = Receipts(options.at.box, MAX_PAYLOAD)

    def put(self, rows: RowSlice) -> None:
        numbers, encoded = self._encode(rows)
        self.done.size = self._encoder.size
        replies = self._connection.put_each(encoded, self._level)
        created = replies.count(CREATED)
        self.done.put += created
        if created < len(numbers):
            for number, (event_id, _), reply in zip(numbers, encoded, replies, strict=True):
                if reply != CREATED:
                    self._account(event_id, reply, rows.values[number], rows.first + number)

    def _encode(self, rows: RowSlice) -> tuple[list[int], list[tuple[str, EncodedEvent]]]:
        """The numbers of the valid rows, and for each its id and the arguments of the put script."""
        numbers, encoded, encode = [], [], self._encoder.encode
        for number, (row, place) in enumerate(zip(rows.values, rows.places, strict=True)):
            try:
                arguments = encode(row, place)
                encoded.append((arguments.event_id, arguments))
                numbers.append(number)
            except InvalidEvent as error:
                if self._rejects is None:
                    where = describe(row, rows.first + number, self._partition)
                    raise InvalidEvent(error.field, f"{error.problem} ({where})") from None
                self._reject(row, error.field, error.problem)
        return numbers, encoded

    def _account(self, event_id: str, reply: PutReply, row: Values, number: int) -> None:
        if reply == EXISTS:
            self.done.existing += 1
            return
        try:
            self._receipts.of(new_event(row, event_id), reply, self._level)
        except BoxFull:  # not the row's fault
            raise
        except Refused as refusal:
            if self._rejects is not None and isinstance(refusal, Conflict | IdReused):
                self._reject(row, "unique_key" if isinstance(refusal, Conflict) else "event_id", refusal.message)
            elif self._options.on_conflict == "skip" and isinstance(refusal, Conflict):
                self.done.skipped += 1
            else:
                where = describe(row, number, self._partition)
                raise Refused(f"{refusal.message} ({where})") from None

    def _reject(self, row: Values, field: str, because: str) -> None:
        assert self._rejects is not None
        self._rejects.add(dict(zip(WRITABLE, row, strict=True)), field, because)
        self.done.rejected += 1


# --- rows and events -------------------------------------------------------------------------------------------------


class RowSlice(msgspec.Struct):
    """A few rows of a partition, with the place that each came from."""

    values: list[Values]
    places: Any
    first: int  # the number of the first row in its partition, from 1


def row_slices(batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[RowSlice]:
    """The rows of a partition, up to STEP at a time. Column by column: a dict for each row would cost more than its
    put."""
    first = 1
    for batch in batches:
        for at in range(0, batch.num_rows, STEP):
            part = batch.slice(at, STEP)
            given = {name: _values(part.column(name)) for name in part.schema.names if name in (*WRITABLE, PLACE)}
            values = list(zip(*[given.get(name, repeat(None, part.num_rows)) for name in WRITABLE], strict=True))
            yield RowSlice(values, given.get(PLACE) or [partition] * part.num_rows, first)
            first += part.num_rows


def _values(column: pa.Array) -> list[Any]:
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_map(column.type):
        return [None if each is None else dict(each) for each in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


class RowEncoder:
    """Encodes rows for the put script.

    A row without an id gets one that is derived from the job, the row's place in the input, its content, and the number
    of equal rows before it. So a task that is run again makes the same ids, whatever the order of its rows.
    """

    def __init__(self, job: str) -> None:
        self._start = blake2b(_stable(job), digest_size=16)
        self._seen: set[int] = set()
        self._repeated: dict[int, int] = {}
        self._valid: set[tuple[Any, Any]] = set()  # event types and content types that passed validation
        self.size = 0  # bytes of all payloads

    def encode(self, row: Values, place: int) -> EncodedEvent:
        """The arguments of the put script for a row. Most rows have only a type and a payload, and take a short way."""
        event_type, payload, content_type, event_id = row[:4]
        if payload is None:
            raise InvalidEvent("payload", "is null; give bytes or a text, if need be an empty one")
        payload, content_type = payloads.encode(payload, content_type)
        if len(payload) > MAX_PAYLOAD:
            raise InvalidEvent("payload", f"is {len(payload):,} bytes, and a box takes at most {MAX_PAYLOAD:,}")
        if event_id is None:
            event_id = self._id(row, place)
            if row[4:] == _PLAIN and (event_type, content_type) in self._valid:
                self.size += len(payload)
                return encode_plain(event_id, event_type, payload, content_type)
        event = new_event(row, event_id)
        self._valid.add((event_type, content_type))
        self.size += len(payload)
        return encode_event(event, MAX_PAYLOAD, event.metadata)

    def _id(self, row: Values, place: int) -> str:
        text = self._digest((place, row))
        number = int(text[:16], 16)
        if number in self._seen:
            again = self._repeated[number] = self._repeated.get(number, 0) + 1
            text = self._digest((text, again))
        else:
            self._seen.add(number)
        return uuid_of(text)

    def _digest(self, content: Any) -> str:
        digest = self._start.copy()
        digest.update(_stable(content))
        return digest.hexdigest()


def uuid_of(digest: str) -> str:
    """A digest of 32 hex digits as a UUID of version 8, the one for ids of one's own making."""
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:]}"


def new_event(row: Values, event_id: str) -> Event:
    """A row as an event to put, validated, with this id."""
    further = {name: value for name, value in zip(WRITABLE[2:], row[2:], strict=True) if value is not None}
    return Event(row[0], row[1], **{**further, "event_id": event_id})


def describe(row: Values, number: int, partition: int) -> str:
    """Words that help a person to find a row."""
    given = dict(zip(WRITABLE, row, strict=True))
    known = "event_id" if given["event_id"] else "event_type"
    return f"row {number} of partition {partition}, {known} {given[known]!r}"
