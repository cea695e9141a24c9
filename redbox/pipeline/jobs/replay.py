"""replay: archived events back to PENDING, even if they are no longer in Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from redbox.box.bulk.pace import check_rate
from redbox.box.operate import operator_name
from redbox.errors import UsageError
from redbox.pipeline.archive.layout import READ_SETTINGS, read_archive
from redbox.pipeline.jobs.condition import check_condition, select
from redbox.pipeline.jobs.operations_log import LoggedJob
from redbox.pipeline.source.connection import Connection, connected
from redbox.pipeline.source.options import PATIENCE, Address
from redbox.pipeline.source.rows import EVENT_COLUMNS, event_of
from redbox.pipeline.spark_session import set_for
from redbox.pipeline.tasks import in_line_order, map_arrow
from redbox.store.codec import encode_restored
from redbox.store.scripts.items import SeenClaim
from redbox.store.scripts.replies import CREATED, EXISTS
from redbox.store.scripts.steps import batches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

STEP: Final = 500
SAMPLE: Final = 20
COUNTS: Final = ("replayed", "restored", "changed", "live", "refused")
ArchivedRow = dict[str, Any]


class ReplayedArchive(msgspec.Struct, kw_only=True):
    """Numbers of events of a replay.

    `replayed` were still in Redis, `restored` were not. `changed` were claimed again since they were archived, `live`
    are PENDING or CLAIMED. `refused`: another event holds the unique_key, or supersedes the event.
    """

    matched: int = 0
    replayed: int = 0
    restored: int = 0
    changed: int = 0
    live: int = 0
    refused: int = 0
    sample: list[str] = []
    dry_run: bool = False


def replay(
    spark: SparkSession,
    at: Address,
    archive: str,
    *,
    where: str | Column = "true",
    rate: float | None = None,
    dry_run: bool = False,
    who: str | None = None,
    why: str = "",
    patience: float = PATIENCE,
) -> ReplayedArchive:
    """Returns the archived events for which `where` holds to PENDING, `rate` of them per second.

    `where` is SQL over the columns of events and built-in functions, or a Column of PySpark, which may call anything.

    Of an event that was archived several times, the last one counts, and `where` applies to that one. Running a replay
    again is harmless while the events are pending. An event that was delivered since is delivered once more if it was
    archived again, or has left Redis. An unreachable store is waited for, up to `patience` seconds.

    The events of one ordering key join the tail of their line in their old order, with one exception. With
    `dead_head="block"`, DEAD events that are still in Redis return to their own positions, and so come before events
    that were PUBLISHED or are no longer in Redis, even before earlier ones.
    """
    check_rate(rate)
    who = operator_name() if who is None else who
    with _explained(where):
        check_condition(spark, where)
    archived = read_archive(spark, archive, box=at.box)
    with _explained(where):
        selected = select(archived, where)
    chosen = _latest(selected, archived)
    if dry_run:
        with set_for(spark, READ_SETTINGS):
            return ReplayedArchive(matched=chosen.count(), dry_run=True)
    table = chosen.select(*EVENT_COLUMNS, "claim", "superseded_by", "created_at", "seq")
    table = in_line_order(table, tasks=None if rate is None else 1)  # with a rate, one task keeps it for all events
    schema = ", ".join(f"{name} long" for name in COUNTS) + ", sample array<string>"
    job = LoggedJob(at=at, action="replay", who=who, why=why, detail=f"from the archive {archive} where {where}")
    with job.logged_if_it_fails("more may be replayed"), set_for(spark, READ_SETTINGS):
        rows = map_arrow(table, partial(_replay_task, at, rate, patience), schema).collect()
    done = ReplayedArchive(**{name: sum(row[name] for row in rows) for name in COUNTS})
    done.matched = sum(getattr(done, name) for name in COUNTS)
    done.sample = [event_id for row in rows for event_id in row["sample"]][:SAMPLE]
    job.log(done.replayed + done.restored, done.sample)
    return done


@contextmanager
def _explained(where: str | Column) -> Iterator[None]:
    """Reports an invalid condition in one sentence."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        first = str(error).strip().splitlines()[0]
        raise UsageError(f"--where {where!r} is not a condition over the columns of events: {first}") from None


def _latest(table: DataFrame, archived: DataFrame) -> DataFrame:
    """The rows for which the archive has no later one of the same event. If an event was archived twice under one
    claim, which only a box that lost its counters can cause, the one of the last run counts."""
    from pyspark.sql import functions as f

    later = archived.selectExpr("event_id AS later_id", "claim AS later_claim", "run AS later_run")
    is_later = f.expr("event_id = later_id AND (later_claim > claim OR later_claim = claim AND later_run > run)")
    return table.join(later, is_later, "left_anti")


def _replay_task(
    at: Address, rate: float | None, patience: float, parts: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    step = STEP if rate is None else max(1, min(STEP, int(rate / 5)))
    done, sample = dict.fromkeys(COUNTS, 0), list[str]()
    started, sent = time.monotonic(), 0
    with connected(at, patience) as connection:
        for part in parts:
            for rows in batches(part.to_pylist(maps_as_pydicts="lossy"), step):
                if rate is not None:
                    time.sleep(max(0.0, started + sent / rate - time.monotonic()))
                sent += len(rows)
                for row, word in zip(rows, _send(connection, rows), strict=True):
                    done[word] += 1
                    if word in ("replayed", "restored") and len(sample) < SAMPLE:
                        sample.append(row["event_id"])
    counts = {name: [count] for name, count in done.items()}
    yield pa.RecordBatch.from_pydict({**counts, "sample": pa.array([sample], pa.list_(pa.string()))})


def _send(connection: Connection, rows: list[ArchivedRow]) -> list[str]:
    """Replays events that are in Redis, fenced by the archived claim, and puts the others; returns the outcome of each.
    The events of one ordering key join their line in the order of the rows, with the exception that `replay` names."""
    words: dict[str, str] = {}
    for there, gone in _turns(connection, rows):
        words |= _replayed(connection, there, dry=False)
        words |= _restored(connection, [*(row for row in there if words[row["event_id"]] == "UNKNOWN"), *gone])
    outcomes = {"OK": "replayed", "NOTTERMINAL": "live", "CHANGED": "changed", "restored": "restored"}
    return [outcomes.get(words[row["event_id"]], "refused") for row in rows]


def _turns(connection: Connection, rows: list[ArchivedRow]) -> Iterator[tuple[list[ArchivedRow], list[ArchivedRow]]]:
    """The rows in as few turns as keep the order of each key. Of each turn, events that are in Redis come first, then
    those that are not."""
    if all(row["ordering_key"] is None for row in rows):
        yield rows, []
        return
    words = _replayed(connection, rows, dry=True)
    turns: list[tuple[list[ArchivedRow], list[ArchivedRow]]] = []
    reached: dict[str, int] = {}  # by key: two slots for each turn, the odd one for events that are not in Redis
    for row in rows:
        is_gone, key = words[row["event_id"]] == "UNKNOWN", row["ordering_key"]
        at = 0 if key is None else reached.get(key, 0)
        at += at % 2 != is_gone
        if key is not None:
            reached[key] = at
        while len(turns) <= at // 2:
            turns.append(([], []))
        turns[at // 2][at % 2].append(row)
    yield from turns


def _replayed(connection: Connection, rows: list[ArchivedRow], *, dry: bool) -> dict[str, str]:
    if not rows:
        return {}
    seen = [SeenClaim(row["event_id"], row["claim"]) for row in rows]
    replies = connection.run(
        connection.store.replay, seen, reset=True, available="", force=False, dry=dry, who="", why=""
    )
    return {event_id: reply.outcome.value for (event_id, _), reply in zip(seen, replies, strict=True)}


def _restored(connection: Connection, rows: list[ArchivedRow]) -> dict[str, str]:
    """Puts events again as they were, with their old id and created_at."""
    words: dict[str, str] = {}
    encoded = []
    for row in rows:
        if row["superseded_by"] is None:
            encoded.append((row["event_id"], encode_restored(event_of(row), row["created_at"])))
        else:
            words[row["event_id"]] = "SUPERSEDED"
    for (event_id, _), reply in zip(encoded, connection.put_each(encoded), strict=True):
        words[event_id] = "restored" if reply == CREATED else "NOTTERMINAL" if reply == EXISTS else "REFUSED"
    return words
