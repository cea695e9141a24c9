"""Writes rows into a box: validated like events, and harmless when a task is run again."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import DataType, MapType, StringType, StructType

from redbox import payloads
from redbox.box import Box
from redbox.errors import InvalidEvent, Refused, UsageError
from redbox.events import Event, Receipt
from redbox.pipeline.connection import opened
from redbox.pipeline.options import Address, Given
from redbox.pipeline.rejects import Rejects
from redbox.pipeline.schema import SCHEMA
from redbox.settings import MAX_PAYLOAD

REQUIRED: Final = ("event_type", "payload")
WRITABLE: Final = (
    *REQUIRED, "event_id", "headers", "metadata", "partition_key", "ordering_key", "unique_key", "unique_scope",
    "available_at", "content_type",
)  # fmt: skip
STEP: Final = 500
_stable = msgspec.msgpack.Encoder(order="sorted").encode


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows go, and what becomes of those that cannot be put.

    `job` names the write: the ids of rows without one are made from it, so a job that failed can be run again under
    its name and puts only what is missing.
    """

    at: Address
    job: str
    on_conflict: str = "raise"
    rejects: str | None = None
    durability: str = "server"


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
    )
    given.text("checkpointlocation")  # Spark hands it to every sink
    given.end()
    check_columns(schema)
    return write


def check_columns(schema: StructType) -> None:
    """The columns of rows that are to be put: those that are needed, of types that fit, and none that is unknown."""
    kinds = {field.name: field.dataType for field in schema}
    for name in REQUIRED:
        if name not in kinds:
            raise UsageError(f"column {name!r} is missing; an event needs {' and '.join(REQUIRED)}")
    for name, kind in kinds.items():
        if name not in SCHEMA.fieldNames():
            raise UsageError(f"column {name!r} is not part of an event; there are {', '.join(WRITABLE)}")
        if name in WRITABLE and not _fits(name, kind):
            wanted = SCHEMA[name].dataType.simpleString()
            raise UsageError(f"column {name!r} must be {wanted}, not {kind.simpleString()}")


def _fits(name: str, kind: DataType) -> bool:
    wanted = SCHEMA[name].dataType
    if isinstance(wanted, MapType):
        return isinstance(kind, MapType) and kind.keyType == kind.valueType == StringType()
    return kind == wanted or (name == "payload" and isinstance(kind, StringType))


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


def write_rows(iterator: Iterator[pa.RecordBatch], options: WriteOptions, job: str, partition: int) -> Written:
    """Puts the rows of one task."""
    made, done = _Maker(job, partition), Written()
    rejects = Rejects(options.rejects, job, partition) if options.rejects else None
    with opened(options.at, durability=options.durability) as (box, run):
        for batch in iterator:
            for rows in _steps(batch):
                events = _valid(rows, made, done, rejects)
                receipts = run(_put(box, [event for event, _ in events]))
                done.size += sum(len(event.payload) for event, _ in events)
                for (_, row), receipt in zip(events, receipts, strict=True):
                    _account(receipt, options, done, rejects, row, made.describe(row))
    if rejects is not None:
        rejects.close()
    return done


async def _put(box: Box, events: list[Event]) -> list[Receipt]:
    return await box.put_many(events, on_conflict="skip") if events else []


def _steps(batch: pa.RecordBatch) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, batch.num_rows, STEP):
        yield batch.slice(first, STEP).to_pylist(maps_as_pydicts="lossy")


def _valid(
    rows: list[dict[str, Any]], made: _Maker, done: Written, rejects: Rejects | None
) -> list[tuple[Event, dict[str, Any]]]:
    events = []
    for row in rows:
        try:
            events.append((made.event(row), row))
        except InvalidEvent as error:
            if rejects is None:
                raise InvalidEvent(error.field, f"{error.problem} ({made.describe(row)})") from None
            rejects.add(row, error.field, error.problem)
            done.rejected += 1
    return events


def _account(
    receipt: Receipt, options: WriteOptions, done: Written, rejects: Rejects | None, row: dict[str, Any], where: str
) -> None:
    if receipt.refused is None:
        done.put += receipt.created
        done.existing += not receipt.created
    elif rejects is not None:
        rejects.add(row, "event_id" if receipt.refused == "id_reused" else "unique_key", receipt.reason or "")
        done.rejected += 1
    elif options.on_conflict == "skip" and receipt.refused == "conflict":
        done.skipped += 1
    else:
        raise Refused(f"{receipt.reason} ({where})")


class _Maker:
    """Makes events of rows. A row without an id gets one by its job, partition and content, and by how often that came
    before: so a task that is run again makes the same ids, in whatever order it sees its rows."""

    def __init__(self, job: str, partition: int) -> None:
        self._job, self._partition = job, partition
        self._seen: Counter[bytes] = Counter()
        self._rows = 0

    def event(self, row: Mapping[str, Any]) -> Event:
        self._rows += 1
        given = {name: row[name] for name in WRITABLE if row.get(name) is not None}
        if "payload" not in given:
            raise InvalidEvent("payload", "is null; give bytes or a text, if need be an empty one")
        event_type = given.pop("event_type", None)
        payload, given["content_type"] = payloads.encode(given.pop("payload"), given.get("content_type"))
        if len(payload) > MAX_PAYLOAD:
            raise InvalidEvent("payload", f"is {len(payload):,} bytes, and a box takes at most {MAX_PAYLOAD:,}")
        if "event_id" not in given:
            given["event_id"] = self._id(event_type, payload, given)
        return Event(event_type, payload, **given)

    def _id(self, event_type: Any, payload: bytes, given: Mapping[str, Any]) -> str:
        content = [event_type, payload, {name: given.get(name) for name in WRITABLE if name not in REQUIRED}]
        digest = hashlib.sha256(_stable([self._job, self._partition, content])).digest()
        self._seen[digest] += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{digest.hex()}/{self._seen[digest]}"))

    def describe(self, row: Mapping[str, Any]) -> str:
        """What identifies a row to the person who has to find it."""
        given = row.get("event_id")
        known = f"event_id {given!r}" if given else f"event_type {row.get('event_type')!r}"
        return f"row with {known}, about row {self._rows} of partition {self._partition}"
