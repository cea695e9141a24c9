"""Rows on their way into a box: which columns they may have, and the events they make."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import repeat
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import DataType, MapType, StringType, StructType

from redbox import payloads
from redbox.errors import InvalidEvent, UsageError
from redbox.events import Event
from redbox.pipeline.source.schema import SCHEMA
from redbox.settings import MAX_PAYLOAD
from redbox.store.codec import EncodedEvent, encode_event, encode_plain

REQUIRED: Final = ("event_type", "payload")
WRITABLE: Final = (
    *REQUIRED, "content_type", "event_id", "headers", "metadata", "partition_key", "ordering_key", "unique_key",
    "unique_scope", "available_at",
)  # fmt: skip
#: A column of a job's own, beside those of events: a number for the part of the input that a row came from.
PLACE: Final = "_place"
STEP: Final = 500

Row = tuple[Any, ...]  # the values of WRITABLE, in that order
_PLAIN: Final = (None,) * (len(WRITABLE) - 4)  # what follows the id of a row that has nothing special
_stable = msgspec.msgpack.Encoder(order="sorted").encode


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
            wanted = "binary or string" if name == "payload" else SCHEMA[name].dataType.simpleString()
            raise UsageError(f"column {name!r} must be {wanted}, not {kind.simpleString()}")


def _fits(name: str, kind: DataType) -> bool:
    wanted = SCHEMA[name].dataType
    if isinstance(wanted, MapType):
        return isinstance(kind, MapType) and all(isinstance(e, StringType) for e in (kind.keyType, kind.valueType))
    if isinstance(wanted, StringType) or name == "payload":
        return isinstance(kind, StringType) or kind == wanted
    return kind == wanted


class Rows(msgspec.Struct):
    """A few rows, and where they are from."""

    values: list[Row]
    places: Any
    first: int  # the number of the first one in its partition


def steps(batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[Rows]:
    """The rows of a partition, a few at a time, column by column: a dict for each row would cost more than its put."""
    first = 1
    for batch in batches:
        for at in range(0, batch.num_rows, STEP):
            part = batch.slice(at, STEP)
            given = {name: _values(part.column(name)) for name in part.schema.names if name in (*WRITABLE, PLACE)}
            values = list(zip(*[given.get(name, repeat(None, part.num_rows)) for name in WRITABLE], strict=True))
            yield Rows(values, given.get(PLACE) or [partition] * part.num_rows, first)
            first += part.num_rows


def _values(column: pa.Array) -> list[Any]:
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_map(column.type):
        return [None if each is None else dict(each) for each in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


class Maker:
    """Makes events of rows. A row without an id gets one by its job, the part of the input it is in and its content,
    and by how often that came before: so a task that is run again makes the same ids, in whatever order it sees its
    rows."""

    def __init__(self, job: str) -> None:
        self._start = blake2b(_stable(job), digest_size=16)
        self._seen: set[int] = set()
        self._repeated: dict[int, int] = {}
        self._known: set[tuple[Any, Any]] = set()  # types and content types that were looked at
        self.size = 0

    def arguments(self, row: Row, place: int) -> EncodedEvent:
        """What the put script takes for a row. Most have only a type and a payload, and are spared what is for the
        others."""
        event_type, payload, content_type, event_id = row[:4]
        if payload is None:
            raise InvalidEvent("payload", "is null; give bytes or a text, if need be an empty one")
        payload, content_type = payloads.encode(payload, content_type)
        if len(payload) > MAX_PAYLOAD:
            raise InvalidEvent("payload", f"is {len(payload):,} bytes, and a box takes at most {MAX_PAYLOAD:,}")
        if event_id is None:
            event_id = self._id(row, place)
            if row[4:] == _PLAIN and (event_type, content_type) in self._known:
                self.size += len(payload)
                return encode_plain(event_id, event_type, payload, content_type)
        event = as_event(row, event_id)
        self._known.add((event_type, content_type))
        self.size += len(payload)
        return encode_event(event, MAX_PAYLOAD, event.metadata)

    def _id(self, row: Row, place: int) -> str:
        text = self._digest((place, row))
        number = int(text[:16], 16)
        if number in self._seen:
            again = self._repeated[number] = self._repeated.get(number, 0) + 1
            text = self._digest((text, again))
        else:
            self._seen.add(number)
        return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-8{text[17:20]}-{text[20:]}"  # a UUID of one's own making

    def _digest(self, content: Any) -> str:
        digest = self._start.copy()
        digest.update(_stable(content))
        return digest.hexdigest()


def as_event(row: Row, event_id: str) -> Event:
    """A row as an event, validated; under the id that was made for it, if it has none."""
    further = {name: value for name, value in zip(WRITABLE[2:], row[2:], strict=True) if value is not None}
    return Event(row[0], row[1], **{**further, "event_id": event_id})


def describe(row: Row, number: int, partition: int) -> str:
    """What identifies a row to the person who has to find it."""
    given = dict(zip(WRITABLE, row, strict=True))
    known = "event_id" if given["event_id"] else "event_type"
    return f"row {number} of partition {partition}, {known} {given[known]!r}"
