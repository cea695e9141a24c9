"""patch: dead events through a function, put again as new events that name the ones they supersede."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from redbox import payloads
from redbox.box.operate import operator_name
from redbox.box.receipts import Receipts
from redbox.errors import Conflict, IdReused, InvalidEvent, UsageError
from redbox.events import Event, State, check_key, stored_error_text
from redbox.lookup import look_up
from redbox.pipeline.failures import translate
from redbox.pipeline.jobs.condition import check_condition, select
from redbox.pipeline.jobs.operations_log import LoggedJob
from redbox.pipeline.source.connection import Connection, connected
from redbox.pipeline.source.options import PATIENCE, Address
from redbox.pipeline.source.rows import EVENT_COLUMNS, event_of
from redbox.pipeline.source.writer import uuid_of
from redbox.pipeline.tasks import in_line_order, map_arrow
from redbox.settings import MAX_PAYLOAD
from redbox.store.codec import encode_event
from redbox.store.scripts.items import MarkItem
from redbox.store.server.durability import SERVER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SAMPLE: Final = 5
NAMED_IDS: Final = 20
STEP: Final = 100
SUPERSEDES: Final = "supersedes"
#: The columns that a patch reads of an event.
COLUMNS: Final = (*EVENT_COLUMNS, "claim", "problem", "created_at", "seq")
_SHOWN: Final = (
    "event_type", "content_type", "headers", "metadata", "partition_key", "ordering_key", "unique_key", "available_at",
    "delay",
)  # fmt: skip
SHOWN_LENGTH: Final = 1000  # characters of a payload
PREVIEWS_OF_A_STEP: Final = 20

PatchFunction = Callable[..., Any]


class PatchCounts(msgspec.Struct):
    """Numbers of dead events. All but the `patched` ones stay as they are.

    `left`: the function returned None. `failed`: it raised, or did not return an event. `refused`: another event holds
    the unique_key. `changed`: replayed or patched by someone else meanwhile.
    """

    matched: int = 0
    patched: int = 0
    left: int = 0
    failed: int = 0
    refused: int = 0
    changed: int = 0


class PatchFailure(msgspec.Struct):
    """An event that was not patched, and why."""

    event_id: str
    reason: str


class Preview(msgspec.Struct):
    """An event before and after: its payload, and every other field that differs."""

    event_id: str
    new_id: str
    event_type: str
    before: dict[str, str]
    after: dict[str, str]


class Patched(msgspec.Struct, kw_only=True):
    """What a patch did, or would do."""

    counts: PatchCounts = msgspec.field(default_factory=PatchCounts)
    previews: list[Preview] = msgspec.field(default_factory=list)
    failures: list[PatchFailure] = msgspec.field(default_factory=list)
    ids: list[str] = msgspec.field(default_factory=list)
    dry_run: bool = False

    def add(self, other: Patched, sample: int) -> None:
        for name in PatchCounts.__struct_fields__:
            setattr(self.counts, name, getattr(self.counts, name) + getattr(other.counts, name))
        self.previews = (self.previews + other.previews)[:sample]
        self.failures = (self.failures + other.failures)[:sample]
        self.ids = (self.ids + other.ids)[:NAMED_IDS]


def patch(
    spark: SparkSession,
    at: Address,
    with_: str | PatchFunction,
    *,
    where: str | Column = "true",
    sample: int = SAMPLE,
    dry_run: bool = False,
    who: str | None = None,
    why: str = "",
) -> Patched:
    """Passes the dead events that `where` selects to a function, and puts the events that it returns.

    `where` is SQL over the columns of a box and built-in functions, or a Column of PySpark, which may call anything.

    The function gets an Event and returns another Event, or only a payload, or None to leave this one dead. The new
    event has `supersedes` in its metadata and the old one `superseded_by`; so a patch that is run again, even after it
    was interrupted, patches each event once. The new events of one ordering key join the end of its line in the order
    of the old ones. Where the box blocks lines behind a dead head, drop the old event to unblock the line.
    """
    check_key("who", who := operator_name() if who is None else who)
    name = with_ if isinstance(with_, str) else getattr(with_, "__qualname__", repr(with_))
    if isinstance(with_, str):
        find_function(with_)
        ship_module(spark, with_)
    else:
        check_function(with_, name)
    dead = candidates(spark, at, where)
    ordered = dead if dry_run else in_line_order(dead)
    results = map_arrow(ordered, partial(_work, at, with_, sample, dry_run), "result binary")
    total = Patched(dry_run=dry_run)
    job = LoggedJob(at=at, action="patch", who=who, why=why, detail=f"with {name} where {where}")
    with nullcontext() if dry_run else job.logged_if_it_fails("more may be patched"):
        rows = results.collect()
    for row in rows:
        total.add(msgspec.json.decode(row["result"], type=Patched), sample)
    if total.counts.patched and not dry_run:
        job.log(total.counts.patched, total.ids)
    return total


def candidates(spark: SparkSession, at: Address, where: str | Column) -> DataFrame:
    """Dead events for which the condition holds, and that are not superseded yet."""
    from pyspark.errors import PySparkException

    try:
        check_condition(spark, where)
        found = select(spark.read.format("redbox").options(url=at.url, box=at.box, state="DEAD").load(), where)
    except PySparkException as error:
        raise UsageError(f"where: {translate(error, introduction='').message}") from error
    return found.where("superseded_by is null").select(*COLUMNS)


def _work(
    at: Address, with_: str | PatchFunction, sample: int, dry_run: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One task: patches its events, and yields the result as JSON."""
    function = find_function(with_) if isinstance(with_, str) else with_
    done = Patched()
    with connected(at, PATIENCE) as connection:
        for batch in batches:
            for first in range(0, batch.num_rows, STEP):
                rows = batch.slice(first, STEP).to_pylist(maps_as_pydicts="lossy")
                done.add(run_step(connection, function, rows, dry_run=dry_run), sample)
    yield pa.RecordBatch.from_pydict({"result": pa.array([msgspec.json.encode(done)], pa.binary())})


def run_step(connection: Connection, function: PatchFunction, rows: list[dict[str, Any]], *, dry_run: bool) -> Patched:
    """Patches a few events: calls the function, checks the old events again, puts the new ones, marks the old ones.
    Interrupted anywhere, it can be run again."""
    step = PatchStep(connection, rows)
    step.call(function)
    if not dry_run:
        step.leave_changed()
        step.put()
        step.mark()
    return Patched(counts=step.counts(), previews=step.previews(), failures=step.failures, ids=step.ids())


# --- the function ----------------------------------------------------------------------------------------------------


def find_function(name: str) -> PatchFunction:
    """The function that `module:function` names."""
    module_name, _, path = name.partition(":")
    if not path or not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise UsageError(f"write module:function, such as fixes:add_currency, not {name!r}")
    return check_function(look_up(module_name, path), name)


def check_function(function: Any, name: str) -> PatchFunction:
    """Raises UsageError unless this is a plain function, neither async nor a generator."""
    if not callable(function):
        raise UsageError(f"{name} is of type {type(function).__name__}, not a function")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise UsageError(f"{name} must be a plain function of an event: without async, and without yield")
    made: PatchFunction = function
    return made


def ship_module(spark: SparkSession, name: str) -> None:
    """Sends a module in the current directory to the tasks; an installed module must be installed there too."""
    module = sys.modules.get(name.partition(":")[0])
    file = getattr(module, "__file__", None)
    if module is not None and file and Path(file).parent == Path.cwd() and file.endswith(".py"):
        spark.sparkContext.addPyFile(file)


# --- a step ----------------------------------------------------------------------------------------------------------


class PatchStep:
    """A few dead events, and the new events that supersede them. Each method may be repeated."""

    def __init__(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        self._connection, self._rows = connection, rows
        self._old: dict[str, tuple[Event, int]] = {}
        self._new: dict[str, Event] = {}  # by the id of the old one, without those that cannot be patched
        self._done: set[str] = set()  # of these, the ones that an earlier attempt patched
        self._counts = PatchCounts(matched=len(rows))
        self.failures: list[PatchFailure] = []

    # --- the steps ---------------------------------------------------------------------------------------------------

    def call(self, function: PatchFunction) -> None:
        """Calls the function with each event. If it raises, the event stays dead."""
        for row in self._rows:
            event_id, number = row["event_id"], row["claim"]
            if row["problem"]:
                self._counts.failed += 1
                self.failures.append(PatchFailure(event_id, row["problem"]))
                continue
            old = event_of(row)
            try:
                result = function(old)
                if result is None:
                    self._counts.left += 1
                    continue
                self._new[event_id] = successor(old, number, result)
                self._old[event_id] = old, number
            except Exception as error:
                own = error.message if isinstance(error, InvalidEvent) else f"{type(error).__name__}: {error}"
                self._counts.failed += 1
                self.failures.append(PatchFailure(event_id, stored_error_text(own)))

    def leave_changed(self) -> None:
        """Leaves out events that were replayed or superseded since they were read. An event that an earlier attempt of
        this step superseded counts as patched, and is not put again: it may be delivered and removed already."""
        ids = list(self._new)
        found = self._connection.run(self._connection.store.hashes, ids, bodies=False) if ids else []
        for event_id, (fields, _) in zip(ids, found, strict=True):
            if fields.get(b"superseded_by") == self._new[event_id].event_id.encode():
                self._done.add(event_id)
                continue
            same = fields.get(b"state") == State.DEAD.value.encode()
            same = same and int(fields.get(b"claim", b"0")) == self._old[event_id][1]
            if not same or b"superseded_by" in fields:
                self._drop(event_id, "changed", "it was replayed, removed or superseded meanwhile")

    def put(self) -> None:
        """Puts the new events. One that is there already counts as it is: an earlier run ended before it could mark the
        old event, and the function may not return the same twice."""
        receipts = Receipts(self._connection.at.box, MAX_PAYLOAD)
        by_new = {event.event_id: old_id for old_id, event in self._new.items() if old_id not in self._done}
        to_put = [self._new[old_id] for old_id in by_new.values()]
        encoded = [(event, encode_event(event, MAX_PAYLOAD, event.metadata)) for event in to_put]
        for event, reply in zip(to_put, self._connection.put_each(encoded), strict=True):
            try:
                receipts.of(event, reply, SERVER)
            except IdReused:
                continue
            except Conflict as refusal:
                reason = f"unique_key {event.unique_key!r} is held by event {refusal.holder}"
                self._drop(by_new[event.event_id], "refused", reason)

    def mark(self) -> None:
        """Marks the old events with the ids of the new ones, unless they have changed since they were read."""
        new = {old_id: event.event_id for old_id, event in self._new.items() if old_id not in self._done}
        items = [MarkItem(old_id, self._old[old_id][1], new_id) for old_id, new_id in new.items()]
        replies = self._connection.run(self._connection.store.mark_event, "superseded_by", items) if items else []
        for (event_id, _, new_id), word in zip(items, replies, strict=True):
            if word != b"OK":
                reason = f"it was replayed or removed while {new_id} was put in its place; both may be delivered"
                self._drop(event_id, "changed", reason)

    # --- results -----------------------------------------------------------------------------------------------------

    def counts(self) -> PatchCounts:
        return msgspec.structs.replace(self._counts, patched=len(self._new))

    def ids(self) -> list[str]:
        return list(self._new)

    def previews(self) -> list[Preview]:
        return [
            _preview(self._old[event_id][0], event) for event_id, event in list(self._new.items())[:PREVIEWS_OF_A_STEP]
        ]

    def _drop(self, event_id: str, kind: str, reason: str) -> None:
        del self._new[event_id]
        setattr(self._counts, kind, getattr(self._counts, kind) + 1)
        self.failures.append(PatchFailure(event_id, reason))


def successor(old: Event, number: int, result: Any) -> Event:
    """The event that supersedes an old one. Its id is derived from the old id and the claim number: so an event is
    patched once each time it is dead."""
    if inspect.isawaitable(result) or inspect.isgenerator(result):
        raise InvalidEvent(
            "result", "the function must return an Event, a payload or None, not an awaitable or a generator"
        )
    if isinstance(result, Event):
        made = {name: getattr(result, name) for name in Event.__struct_fields__}
    else:
        made = {name: getattr(old, name) for name in Event.__struct_fields__} | {"payload": result}
    made["payload"], made["content_type"] = payloads.encode(made["payload"], made["content_type"])
    made["metadata"] = {**made["metadata"], SUPERSEDES: old.event_id}
    made["event_id"] = new_id(old.event_id, number)
    event = Event(**made)
    encode_event(event, MAX_PAYLOAD, event.metadata)  # raises if it is too large
    return event


def new_id(event_id: str, number: int) -> str:
    return uuid_of(blake2b(f"{number}/{event_id}".encode(), digest_size=16, person=b"redbox patch").hexdigest())


def _preview(old: Event, new: Event) -> Preview:
    before, after = {"payload": shown(old.payload)}, {"payload": shown(new.payload)}
    for name in _SHOWN:
        was, now = getattr(old, name), getattr(new, name)
        if name == "metadata":
            now = {key: value for key, value in now.items() if key != SUPERSEDES}
        if was != now:
            before[name], after[name] = _text(was), _text(now)
    return Preview(old.event_id, new.event_id, new.event_type, before, after)


def shown(payload: bytes) -> str:
    """A payload for people: its text, or its size if it is not text."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"{len(payload):,} bytes"
    if not all(char.isprintable() or char in "\r\n\t" for char in text):
        return f"{len(payload):,} bytes"
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}... ({len(payload):,} bytes)"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True) if isinstance(value, Mapping) else str(value)
