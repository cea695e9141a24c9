"""Events as rows: from the replies of the scripts to Arrow, column by column since that costs least; and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import ne
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from redbox.errors import StoreError
from redbox.events import Event, State, UniqueScope, stored_event
from redbox.pipeline.source.schema import SCHEMA_VERSION
from redbox.store.codec import Body, content_type_of, decode_bodies, decode_body, phase_of
from redbox.store.damage import HistoryEntry, read_history

STATE_OF: Final = {
    "pending": State.PENDING,
    "waiting": State.PENDING,
    "suspect": State.PENDING,
    "claimed": State.CLAIMED,
    "published": State.PUBLISHED,
    "dead": State.DEAD,
}
_IN_BODY: Final = frozenset(
    {"payload", "content_type", "headers", "metadata", "partition_key", "ordering_key", "unique_key", "unique_scope",
     "problem"}
)  # fmt: skip
#: Columns that only events of one state have.
_ONLY: Final = {
    "claimed_at": State.CLAIMED,
    "claimed_by": State.CLAIMED,
    "lease_until": State.CLAIMED,
    "published_at": State.PUBLISHED,
    "published_by": State.PUBLISHED,
    "died_at": State.DEAD,
}
#: The columns from which an event can be put again as it was.
EVENT_COLUMNS: Final = (
    "event_id", "event_type", "payload", "content_type", "headers", "metadata", "partition_key", "ordering_key",
    "unique_key", "unique_scope",
)  # fmt: skip
ColumnValues = Sequence[Any]


def event_of(row: Mapping[str, Any]) -> Event:
    """A row of a box or an archive as the event that was put. Not validated again: rules may have become stricter."""
    given = {name: row[name] for name in EVENT_COLUMNS if row[name] is not None}
    if "unique_scope" in given:
        given["unique_scope"] = UniqueScope(given["unique_scope"])
    event: Event = stored_event(**given)
    return event


class FetchedEvent(msgspec.Struct, gc=False):
    """The stored parts of one event; `history` and `score`, the end of a lease, only if a column needs them."""

    event_id: str
    fields: dict[bytes, bytes]
    body: bytes | None
    index: str
    score: float = 0.0
    history: Sequence[bytes] = ()


class BatchBuilder:
    """Builds Arrow batches of events. An event with an unreadable body gets a `problem`, or with `strict` an error."""

    def __init__(self, schema: StructType, *, strict: bool = False) -> None:
        self._strict = strict
        columns = schema.fieldNames()
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        self.with_body = not _IN_BODY.isdisjoint(columns)
        self.with_history = "history" in columns
        self.with_lease = "lease_until" in columns

    def build(self, index: str, now: int, events: Sequence[FetchedEvent]) -> pa.RecordBatch:
        """Events of one index, as they were at `now`."""
        made = _Slice(index, now, events, self.with_body)
        if self._strict:
            made.check()
        return pa.RecordBatch.from_arrays([made.column(field) for field in self._arrow], schema=self._arrow)


class _Slice:
    """Events of one index, and their columns when asked for."""

    def __init__(self, index: str, now: int, events: Sequence[FetchedEvent], with_body: bool) -> None:
        self._index, self._state, self._now = index, STATE_OF[index], now
        self._events, self._count = events, len(events)
        self._fields = [event.fields for event in events]
        self._body: dict[str, ColumnValues] = {}
        self._problems: list[str | None] | None = None
        if with_body:
            bodies = [event.body or b"" for event in events]
            self._body.update(decode_bodies(bodies) or self._read_singly(bodies))

    def _read_singly(self, bodies: Sequence[bytes]) -> dict[str, ColumnValues]:
        """Decodes the bodies one by one: an unreadable event must not hide the others."""
        self._problems, read = [None] * self._count, []
        for number, raw in enumerate(bodies):
            try:
                body = decode_body(self._events[number].event_id, raw)
                read.append(msgspec.structs.astuple(msgspec.structs.replace(body, content_type=content_type_of(body))))
            except StoreError as error:
                self._problems[number] = str(error)
                read.append((0, "", None, None, {}, None, None, None, {}, None))
        return dict(zip(Body.__struct_fields__, zip(*read, strict=True), strict=True))

    def check(self) -> None:
        problems = [problem for problem in self._problems or () if problem is not None]
        if problems:
            further = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise StoreError(
                f"{problems[0]}{further}; nothing of this batch was settled; to get such events without their "
                "payload, and settle them, set onUnreadable to continue"
            )

    def column(self, field: pa.Field) -> pa.Array:
        name, kind = field.name, field.type
        if _ONLY.get(name, self._state) is not self._state:
            return pa.nulls(self._count, kind)
        make = _COLUMNS.get(name)
        if make is not None:
            return make(self, kind)
        if name in self._body:
            return _values(self._body[name], kind)
        return _texts(self.field(name), kind)

    def field(self, name: str, default: bytes | None = None) -> list[Any]:
        key = name.encode()
        return [event.get(key, default) for event in self._fields]

    # --- columns that need more than one field of the hash -------------------------------------------------------

    def ids(self, kind: pa.DataType) -> pa.Array:
        return pa.array([event.event_id for event in self._events], kind)

    def state(self, kind: pa.DataType) -> pa.Array:
        return self._all(self._state.value, kind)

    def phase(self, kind: pa.DataType) -> pa.Array:
        if self._state is not State.PENDING:
            return self._all(phase_of(self._state, 0, 0, self._now).value, kind)
        tried = map(ne, self.field("attempts", b"0"), self.field("earlier_attempts", b"0"))
        now, pairs = self._now, zip(tried, self._available(), strict=True)
        names = {
            (tried, later): phase_of(self._state, int(tried), now + int(later), now).value
            for tried in (True, False)
            for later in (True, False)
        }
        return pa.array([names[again, int(at) > now] for again, at in pairs], kind)

    def available_at(self, kind: pa.DataType) -> pa.Array:
        return _texts(self._available(), kind)

    def _available(self) -> list[bytes]:
        return [event.get(b"available_at") or event[b"created_at"] for event in self._fields]

    def lease_until(self, kind: pa.DataType) -> pa.Array:
        ends = pa.array([int(event.score) or None for event in self._events], pa.timestamp("ms", tz="UTC"))
        return ends.cast(kind)

    def published_by(self, kind: pa.DataType) -> pa.Array:
        return _texts(self.field("claimed_by"), kind)

    def expiries(self, kind: pa.DataType) -> pa.Array:
        """Expired leases before a success no longer matter."""
        if self._state is State.PUBLISHED:
            return self._all(0, kind)
        return _texts(self.field("expiries", b"0"), kind)

    def unique_scope(self, kind: pa.DataType) -> pa.Array:
        pairs = zip(self._body["unique_key"], self._body["unique_scope"], strict=True)
        return _values([None if key is None else str(scope or UniqueScope.ALL_LIVE) for key, scope in pairs], kind)

    def waiting(self, kind: pa.DataType) -> pa.Array:
        return self._all(self._index == "waiting", kind)

    def suspect(self, kind: pa.DataType) -> pa.Array:
        return self._all(self._index == "suspect", kind)

    def history(self, kind: pa.DataType) -> pa.Array:
        histories = [event.history for event in self._events]
        if not any(histories):
            return _empty_lists(self._count, kind)
        return pa.array(
            [[_attempt(entry) for line in lines if (entry := read_history(line))] for lines in histories], kind
        )

    def problem(self, kind: pa.DataType) -> pa.Array:
        return pa.array(self._problems or [None] * self._count, kind)

    def schema_version(self, kind: pa.DataType) -> pa.Array:
        return self._all(SCHEMA_VERSION, kind)

    def count_of(self, name: str, kind: pa.DataType) -> pa.Array:
        return _texts(self.field(name, b"0"), kind)

    def map_of(self, name: str, kind: pa.DataType) -> pa.Array:
        maps = self._body[name]
        return pa.array([list(each.items()) for each in maps], kind) if any(maps) else _empty_maps(self._count, kind)

    def _all(self, value: Any, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), self._count)


_COLUMNS: Final[dict[str, Callable[[_Slice, pa.DataType], pa.Array]]] = {
    "event_id": _Slice.ids,
    "state": _Slice.state,
    "phase": _Slice.phase,
    "headers": lambda events, kind: events.map_of("headers", kind),
    "metadata": lambda events, kind: events.map_of("metadata", kind),
    "event_type": lambda events, kind: _texts(events.field("event_type"), kind),  # also if the body is unreadable
    "unique_scope": _Slice.unique_scope,
    "available_at": _Slice.available_at,
    "attempts": lambda events, kind: events.count_of("attempts", kind),
    "excused": lambda events, kind: events.count_of("excused", kind),
    "claim": lambda events, kind: events.count_of("claim", kind),
    "expiries": _Slice.expiries,
    "lease_until": _Slice.lease_until,
    "published_by": _Slice.published_by,
    "waiting": _Slice.waiting,
    "suspect": _Slice.suspect,
    "history": _Slice.history,
    "problem": _Slice.problem,
    "schema_version": _Slice.schema_version,
}


def _values(column: ColumnValues, kind: pa.DataType) -> pa.Array:
    return pa.array(column, kind)


def _texts(column: ColumnValues, kind: pa.DataType) -> pa.Array:
    """Texts, whole numbers or milliseconds as the store holds them."""
    try:
        texts = pa.array(column, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:  # an error text may hold any bytes
        texts = pa.array([None if value is None else value.decode(errors="replace") for value in column], pa.string())
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_timestamp(kind):
        return texts.cast(pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(kind)
    return texts.cast(kind)


def _empty_maps(count: int, kind: pa.DataType) -> pa.Array:
    offsets = pa.repeat(pa.scalar(0, pa.int32()), count + 1)
    return pa.MapArray.from_arrays(offsets, pa.array([], kind.key_type), pa.array([], kind.item_type)).cast(kind)


def _empty_lists(count: int, kind: pa.DataType) -> pa.Array:
    offsets = pa.repeat(pa.scalar(0, pa.int32()), count + 1)
    return pa.ListArray.from_arrays(offsets, pa.array([], kind.value_type)).cast(kind)


def _attempt(entry: HistoryEntry) -> dict[str, Any]:
    at, number, outcome, by, error = entry
    return {"at": at * 1000, "outcome": outcome, "by": by, "claim": number, "error": error}
