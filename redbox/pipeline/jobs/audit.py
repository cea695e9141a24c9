"""audit: checks every rule of a box in parallel.

First all names are collected: the members of every index, in ranges, and the keys of the box by a SCAN in one task.
Spark removes duplicates, and each name is examined once, atomically. So a box in use raises no false alarm, and an
event that moves meanwhile is not missed: its keys stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from redbox.audit.rules import Problem
from redbox.audit.walk import NAME_KINDS, Auditor, IndexRange, Name
from redbox.errors import UsageError
from redbox.pipeline.source.connection import connected
from redbox.pipeline.source.options import PARTITION_SIZE, PATIENCE, Address
from redbox.pipeline.tasks import map_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLE: Final = 1000
FORMATS: Final = ("parquet", "json")
_COLUMNS: Final = ("rule", "event_id", "key", "sentence")
_COUNTS: Final = ("looked", "broken")
_NAMES: Final = pa.schema([("kind", pa.string()), ("name", pa.binary())])
_FOUND: Final = pa.schema(
    [
        *[(name, pa.string()) for name in _COLUMNS],
        *[(name, pa.map_(pa.string(), pa.int64())) for name in _COUNTS],
    ]
)
_FOUND_DDL: Final = ", ".join(
    [*[f"{name} string" for name in _COLUMNS], *[f"{name} map<string,long>" for name in _COUNTS]]
)


class Audit(msgspec.Struct):
    """The result of an audit: numbers of examined events and keys (lines and unique keys), problems by rule, and the
    first problems, sorted by rule and id."""

    events: int
    keys: int
    by_rule: dict[str, int]
    sample: list[Problem]

    @property
    def problems(self) -> int:
        return sum(self.by_rule.values())


def audit(
    spark: SparkSession,
    at: Address,
    *,
    to: str | None = None,
    format: str = "parquet",  # noqa: A002 - what Spark calls it
    sample: int = SAMPLE,
    partition_size: int = PARTITION_SIZE,
) -> Audit:
    """Checks a whole box. Changes nothing, and may run while relays do.

    `to` is a directory for all problems, as Parquet or JSON Lines; it must not exist yet.
    """
    if format not in FORMATS:
        raise UsageError(f"format: use {' or '.join(map(repr, FORMATS))}, not {format!r}")
    with connected(at) as connection:
        connection.require_box()
        auditor = Auditor(connection.store)
        ranges = [part for index in NAME_KINDS for part in connection.run(auditor.split, index, partition_size)]
    parts = list(_packed(ranges, partition_size))
    table = spark.range(0, len(parts) + 1, 1, len(parts) + 1)
    names = map_arrow(table, partial(_gather, at, parts), "kind string, name binary")
    once = names.repartition(max(1, len(parts)), "kind", "name").dropDuplicates()
    found = map_arrow(once, partial(_examine, at), _FOUND_DDL).persist()
    try:
        return _summarize(found, to, format, sample)
    finally:
        found.unpersist()


def _packed(ranges: Iterable[IndexRange], size: int) -> Iterator[list[IndexRange]]:
    """Ranges in packs of at most `size` members, one for each task; a small box needs one."""
    pack: list[IndexRange] = []
    for part in ranges:
        if pack and sum(each.count for each in pack) + part.count > size:
            yield pack
            pack = []
        pack.append(part)
    if pack:
        yield pack


def _summarize(found: DataFrame, to: str | None, format: str, sample: int) -> Audit:  # noqa: A002 - same
    """Adds up and samples the problems; each task reports its counts in a row without a rule."""
    problems = found.where("rule is not null").select(*_COLUMNS)
    if to is not None:
        problems.write.format(format).save(to)
    looked, broken = Counter[str](), Counter[str]()
    for row in found.where("rule is null").select(*_COUNTS).collect():
        looked.update(row[0])
        broken.update(row[1])
    shown = problems.orderBy(*_COLUMNS).limit(sample).collect() if broken else []
    events = looked.pop("event", 0)
    return Audit(events, looked.total(), dict(sorted(broken.items())), [Problem(*row) for row in shown])


# --- in tasks ------------------------------------------------------------------------------------------------------


def _gather(
    at: Address, parts: Sequence[Sequence[IndexRange]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The names in the parts with these numbers; 0 is the SCAN, which takes longest and so starts first."""
    with connected(at, PATIENCE) as connection:
        auditor = Auditor(connection.store)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                cursor, first = 0, number == 0
                while first or cursor:
                    names, cursor = connection.run(auditor.scan, cursor)
                    first = False
                    yield _named(names)
                for part in parts[number - 1] if number else ():
                    left: IndexRange | None = part
                    while left is not None:
                        names, left = connection.run(auditor.read, left)
                        yield _named(names)


def _named(names: Sequence[Name]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([kind for kind, _ in names], pa.string()), pa.array([name for _, name in names], pa.binary())],
        schema=_NAMES,
    )


def _examine(at: Address, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    looked, broken = Counter[str](), Counter[str]()
    with connected(at, PATIENCE) as connection:
        auditor = Auditor(connection.store)
        for batch in batches:
            kinds, names = (column.to_pylist() for column in batch.columns)
            problems = connection.run(auditor.check, map(Name, kinds, names))
            looked.update(kinds)
            broken.update(problem.rule for problem in problems)
            if problems:
                yield _found([msgspec.structs.asdict(problem) for problem in problems])
    yield _found([{"looked": list(looked.items()), "broken": list(broken.items())}])


def _found(rows: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, _FOUND)
