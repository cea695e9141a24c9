"""patch: dead events through a function, put again as new events that name what they supersede."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from redbox.box.operate import operator_name
from redbox.errors import UsageError
from redbox.events import check_key
from redbox.pipeline.failures import translate
from redbox.pipeline.jobs import functions
from redbox.pipeline.jobs.condition import check_condition, select
from redbox.pipeline.jobs.lines import in_line_order
from redbox.pipeline.jobs.operations_log import Noted
from redbox.pipeline.jobs.reissue import COLUMNS, Counts, Failure, Preview, Reissue
from redbox.pipeline.source.connection import Connection, connected
from redbox.pipeline.source.options import PATIENCE, Address
from redbox.pipeline.tasks import map_arrow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SAMPLE: Final = 5
NAMED_IDS: Final = 20
STEP: Final = 100


class Patched(msgspec.Struct, kw_only=True):
    """What a patch did, or would do. `left` are those for which the function returned None; `failed` those for which it
    raised, or returned what is no event; `refused` those whose unique_key another event holds; `changed` those that
    were replayed or patched by someone else meanwhile. All but the patched ones stay as they are."""

    counts: Counts = msgspec.field(default_factory=Counts)
    previews: list[Preview] = msgspec.field(default_factory=list)
    failures: list[Failure] = msgspec.field(default_factory=list)
    ids: list[str] = msgspec.field(default_factory=list)
    dry_run: bool = False

    def add(self, other: Patched, sample: int) -> None:
        for name in Counts.__struct_fields__:
            setattr(self.counts, name, getattr(self.counts, name) + getattr(other.counts, name))
        self.previews = (self.previews + other.previews)[:sample]
        self.failures = (self.failures + other.failures)[:sample]
        self.ids = (self.ids + other.ids)[:NAMED_IDS]


def patch(
    spark: SparkSession,
    at: Address,
    with_: str | Callable[..., Any],
    *,
    where: str | Column = "true",
    sample: int = SAMPLE,
    dry_run: bool = False,
    who: str | None = None,
    why: str = "",
) -> Patched:
    """Sends the dead events that `where` finds through a function; puts what it makes.

    `where` is SQL over the columns of a box and built-in functions, or a Column of PySpark, which may call anything.

    The function gets an Event and returns another Event, or only a payload, or None to leave this one dead. The new
    event has `supersedes` in its metadata and the old one `superseded_by`; so a patch that is run again, also after it
    was ended in the middle, takes each event once. The new events of one ordering key join the end of its line in the
    order of the old ones; where the box blocks lines behind a dead head, drop the old one to let the line go on.
    """
    check_key("who", who := operator_name() if who is None else who)
    name = with_ if isinstance(with_, str) else getattr(with_, "__qualname__", repr(with_))
    if isinstance(with_, str):
        functions.find(with_)
        functions.ship(spark, with_)
    else:
        functions.check(with_, name)
    dead = candidates(spark, at, where)
    ordered = dead if dry_run else in_line_order(dead)
    told = map_arrow(ordered, partial(_work, at, with_, sample, dry_run), "told binary")
    report = Patched(dry_run=dry_run)
    job = Noted(at=at, action="patch", who=who, why=why, detail=f"with {name} where {where}")
    with nullcontext() if dry_run else job.or_early("more may be patched"):
        rows = told.collect()
    for row in rows:
        report.add(msgspec.json.decode(row["told"], type=Patched), sample)
    if report.counts.patched and not dry_run:
        job.note(report.counts.patched, report.ids)
    return report


def candidates(spark: SparkSession, at: Address, where: str | Column) -> DataFrame:
    """Dead events that nothing supersedes yet, and that the condition finds."""
    from pyspark.errors import PySparkException

    try:
        check_condition(spark, where)
        found = select(spark.read.format("redbox").options(url=at.url, box=at.box, state="DEAD").load(), where)
    except PySparkException as error:
        raise UsageError(f"where: {translate(error).message.removeprefix('Spark says: ')}") from error
    return found.where("superseded_by is null").select(*COLUMNS)


def _work(
    at: Address, with_: str | Callable[..., Any], sample: int, dry_run: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One task: its events through the function, and what became of them."""
    function = functions.find(with_) if isinstance(with_, str) else with_
    done = Patched()
    with connected(at, PATIENCE) as connection:
        for batch in batches:
            for first in range(0, batch.num_rows, STEP):
                rows = batch.slice(first, STEP).to_pylist(maps_as_pydicts="lossy")
                done.add(run_step(connection, function, rows, dry_run=dry_run), sample)
    yield pa.RecordBatch.from_pydict({"told": pa.array([msgspec.json.encode(done)], pa.binary())})


def run_step(
    connection: Connection, function: Callable[..., Any], rows: list[dict[str, Any]], *, dry_run: bool
) -> Patched:
    """A few events: through the function, looked at again, put, and marked. Ended anywhere, it can be run again."""
    step = Reissue(connection, rows)
    step.call(function)
    if not dry_run:
        step.leave_changed()
        step.put()
        step.mark()
    return Patched(counts=step.counts(), previews=step.previews(), failures=step.failures, ids=step.ids())
