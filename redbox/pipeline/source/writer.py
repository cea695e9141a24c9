"""Writes rows into a box: validated like events, and harmless when a task is run again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from redbox.box.receipts import Receipts
from redbox.errors import BoxFull, Conflict, IdReused, InvalidEvent, Refused, UsageError
from redbox.pipeline.rejects import Rejects, check_path
from redbox.pipeline.source.connection import Connection, connected, without_gc
from redbox.pipeline.source.options import Address, Given
from redbox.pipeline.source.row_events import (
    REQUIRED,
    WRITABLE,
    Maker,
    Row,
    Rows,
    as_event,
    check_columns,
    describe,
    steps,
)
from redbox.settings import MAX_PAYLOAD, Settings
from redbox.store.codec import EncodedEvent
from redbox.store.durability import Durability
from redbox.store.replies import CREATED, EXISTS, PutReply

__all__ = [
    "REQUIRED", "WRITABLE", "BoxStreamWriter", "BoxWriter", "WriteOptions", "Written", "check_columns", "check_store",
    "task", "write_options", "write_rows",
]  # fmt: skip

PATIENCE: Final = 30.0


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows go, and what becomes of those that cannot be put.

    `job` names the write: the ids of rows without one are made from it, so a job that failed can be run again under
    its name and puts only what is missing. `patience`: a server that is away for so many seconds fails the task.
    """

    at: Address
    job: str
    on_conflict: str = "raise"
    rejects: str | None = None
    durability: str = "server"
    patience: float = PATIENCE


class Written(WriterCommitMessage):
    """What one task did."""

    def __init__(self) -> None:
        self.put = self.existing = self.skipped = self.rejected = self.size = 0


def write_options(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> WriteOptions:
    if overwrite:
        raise UsageError('a box is never overwritten; use .mode("append")')
    given = Given(options, "writing into a box")
    write = WriteOptions(
        at=given.address(),
        job=given.text("job") or uuid.uuid4().hex,
        on_conflict=given.choice("on_conflict", ("raise", "skip"), "raise"),
        rejects=given.text("rejects"),
        durability=given.text("durability") or "server",
        patience=given.seconds("patience", PATIENCE),
    )
    given.text("checkpointlocation")  # Spark hands it to every sink
    given.text("path")  # and this one when save() or start() was given one
    given.end()
    check_columns(schema)
    check_store(write)
    return write


def check_store(options: WriteOptions) -> None:
    """What no row can be put into, or be kept aside in, is told before there are tasks: once, and not after every
    attempt of each."""
    Durability.parse(options.durability)
    if options.rejects:
        check_path(options.rejects)
    with connected(options.at) as connection:
        Settings.from_meta(connection.run(connection.store.meta))


class BoxWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(iterator, self._options, self._options.job, task().partitionId())


class BoxStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: each epoch of a query is a job of its own, and is harmless when it is written again."""

    def __init__(self, options: WriteOptions, named: bool) -> None:
        self._options = options
        self._named = named

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        running = task()
        query = self._options.job if self._named else running.getLocalProperty("sql.streaming.queryId")
        epoch = running.getLocalProperty("streaming.sql.batchId")
        if query is None or epoch is None:
            raise UsageError("this Spark does not tell a task its query and epoch; give event_id as a column")
        return write_rows(iterator, self._options, f"{query}/{epoch}", running.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing: what was put is there."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - same
        """Nothing: the epoch will be written again, and finds what is there."""


def task() -> TaskContext:
    running = TaskContext.get()
    assert running is not None, "this runs in a task"
    return running


def write_rows(batches: Iterator[pa.RecordBatch], options: WriteOptions, job: str, partition: int) -> Written:
    """Puts the rows of one task."""
    with connected(options.at, options.patience) as connection, without_gc():
        rejects = Rejects(options.rejects, job, partition) if options.rejects else None
        writing = _Writing(connection, options, job, partition, rejects)
        try:
            for rows in steps(batches, partition):
                writing.put(rows)
        except BaseException:
            if rejects is not None:
                rejects.abandon()
            raise
        if rejects is not None:
            rejects.close()
        return writing.done


class _Writing:
    """The rows of one task on their way into the box."""

    def __init__(
        self, connection: Connection, options: WriteOptions, job: str, partition: int, rejects: Rejects | None
    ) -> None:
        self.done = Written()
        self._connection, self._options, self._partition, self._rejects = connection, options, partition, rejects
        self._maker = Maker(job)
        self._level = Durability.parse(options.durability)
        self._receipts = Receipts(options.at.box, MAX_PAYLOAD)

    def put(self, rows: Rows) -> None:
        numbers, encoded = self._valid(rows)
        self.done.size = self._maker.size
        replies = [reply for _, reply in self._connection.put(encoded, self._level)]
        created = replies.count(CREATED)
        self.done.put += created
        if created < len(numbers):
            for number, (event_id, _), reply in zip(numbers, encoded, replies, strict=True):
                if reply != CREATED:
                    self._account(event_id, reply, rows.values[number], rows.first + number)

    def _valid(self, rows: Rows) -> tuple[list[int], list[tuple[str, EncodedEvent]]]:
        """The numbers of those rows that can be put, and each with its id as the script takes it."""
        numbers, encoded, make = [], [], self._maker.arguments
        for number, (row, place) in enumerate(zip(rows.values, rows.places, strict=True)):
            try:
                arguments = make(row, place)
                encoded.append((arguments.event_id, arguments))
                numbers.append(number)
            except InvalidEvent as error:
                if self._rejects is None:
                    where = describe(row, rows.first + number, self._partition)
                    raise InvalidEvent(error.field, f"{error.problem} ({where})") from None
                self._reject(row, error.field, error.problem)
        return numbers, encoded

    def _account(self, event_id: str, reply: PutReply, row: Row, number: int) -> None:
        if reply == EXISTS:
            self.done.existing += 1
            return
        try:
            self._receipts.of(as_event(row, event_id), reply, self._level)
        except BoxFull:  # no fault of the row's
            raise
        except Refused as refusal:
            if self._rejects is not None and isinstance(refusal, Conflict | IdReused):
                self._reject(row, "unique_key" if isinstance(refusal, Conflict) else "event_id", refusal.message)
            elif self._options.on_conflict == "skip" and isinstance(refusal, Conflict):
                self.done.skipped += 1
            else:
                where = describe(row, number, self._partition)
                raise Refused(f"{refusal.message} ({where})") from None

    def _reject(self, row: Row, field: str, because: str) -> None:
        assert self._rejects is not None
        self._rejects.add(dict(zip(WRITABLE, row, strict=True)), field, because)
        self.done.rejected += 1
