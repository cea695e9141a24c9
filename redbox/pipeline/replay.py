"""replay: archived events back to PENDING, also when they are long gone from Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from redbox.box import Box
from redbox.box.bulk import batches
from redbox.box.operate import operator_name
from redbox.errors import UsageError
from redbox.events import Event, stored_event
from redbox.pipeline.archive_files import read_archive
from redbox.pipeline.connection import Connection, connected, opened
from redbox.pipeline.noted import Noted
from redbox.pipeline.options import Address
from redbox.pipeline.tasks import map_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STEP: Final = 500
SAMPLE: Final = 20
COUNTS: Final = ("replayed", "restored", "changed", "live", "refused")
#: What of an archived event makes it the same event again.
_KEPT: Final = (
    "event_id", "event_type", "payload", "content_type", "headers", "metadata", "partition_key", "ordering_key",
    "unique_key", "unique_scope",
)  # fmt: skip


class ReplayedArchive(msgspec.Struct, kw_only=True):
    """What a replay did. `replayed` were still in Redis, `restored` were not; `changed` were claimed again since they
    were archived, `live` are PENDING or CLAIMED, and of the `refused` another event holds the unique_key, or was put in
    their place."""

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
    where: str = "true",
    rate: float | None = None,
    dry_run: bool = False,
    who: str | None = None,
    why: str = "",
) -> ReplayedArchive:
    """Sends the archived events for which `where` holds back to be delivered, `rate` of them per second.

    Of an event that was archived several times, its last life counts, and `where` is asked of that one. Running it
    again is harmless while the events wait; what was delivered since is delivered once more if it was archived anew,
    or has left Redis.
    """
    if rate is not None and rate <= 0:
        raise UsageError("rate must be positive: events per second")
    who = operator_name() if who is None else who
    archived = read_archive(spark, archive, box=at.box)
    chosen = _last_lives(filtered(archived, where), archived)
    if dry_run:
        return ReplayedArchive(matched=chosen.count(), dry_run=True)
    table = chosen.select(*_KEPT, "claim", "superseded_by")
    if rate is not None:
        table = table.coalesce(1)  # one task keeps the pace for all
    schema = ", ".join(f"{name} long" for name in COUNTS) + ", sample array<string>"
    job = Noted(at=at, action="replay", who=who, why=why, detail=f"from the archive {archive} where {where}")
    with job.or_early("more may be replayed"):
        rows = map_arrow(table, partial(_replay_task, at, rate), schema).collect()
    done = ReplayedArchive(**{name: sum(row[name] for row in rows) for name in COUNTS})
    done.matched = sum(getattr(done, name) for name in COUNTS)
    done.sample = [event_id for row in rows for event_id in row["sample"]][:SAMPLE]
    job.note(done.replayed + done.restored, done.sample)
    return done


def filtered(table: DataFrame, where: str) -> DataFrame:
    """The rows for which an SQL condition holds; one that is wrong is told in a sentence."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        return table.where(where)
    except (AnalysisException, ParseException) as error:
        first = str(error).strip().splitlines()[0]
        raise UsageError(f"--where {where!r} is not a condition over the columns of events: {first}") from None


def _last_lives(table: DataFrame, archived: DataFrame) -> DataFrame:
    """Those rows of which the archive has no later life. What was archived twice under one claim, as only a box that
    lost its counters can cause, counts once, as the last run has it."""
    from pyspark.sql import functions as f

    later = archived.selectExpr("event_id AS later_id", "claim AS later_claim", "run AS later_run")
    is_later = f.expr("event_id = later_id AND (later_claim > claim OR later_claim = claim AND later_run > run)")
    return table.join(later, is_later, "left_anti")


def _replay_task(at: Address, rate: float | None, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    step = STEP if rate is None else max(1, min(STEP, int(rate / 5)))
    done, sample = dict.fromkeys(COUNTS, 0), list[str]()
    started, sent = time.monotonic(), 0
    with opened(at) as (box, run), connected(at) as connection:
        for part in parts:
            for rows in batches(part.to_pylist(maps_as_pydicts="lossy"), step):
                if rate is not None:
                    time.sleep(max(0.0, started + sent / rate - time.monotonic()))
                sent += len(rows)
                for row, word in zip(rows, _send(connection, box, run, rows), strict=True):
                    done[word] += 1
                    if word in ("replayed", "restored") and len(sample) < SAMPLE:
                        sample.append(row["event_id"])
    counts = {name: [count] for name, count in done.items()}
    yield pa.RecordBatch.from_pydict({**counts, "sample": pa.array([sample], pa.list_(pa.string()))})


def _send(connection: Connection, box: Box, run: Callable[..., Any], rows: list[dict[str, Any]]) -> list[str]:
    """Replays what is there, fenced by the claim that was archived, and puts what is not; what became of each."""
    seen = [(row["event_id"], row["claim"]) for row in rows]
    replies = connection.run(
        connection.store.replay, seen, reset=True, available="", force=False, dry=False, who="", why=""
    )
    words = {event_id: word.decode() for (event_id, _), (word, *_) in zip(seen, replies, strict=True)}
    gone = [row for row in rows if words[row["event_id"]] == "UNKNOWN" and row["superseded_by"] is None]
    receipts = run(box.put_many([_event(row) for row in gone], on_conflict="skip")) if gone else []
    for row, receipt in zip(gone, receipts, strict=True):
        words[row["event_id"]] = "restored" if receipt.created else "CONFLICT" if receipt.refused else "NOTTERMINAL"
    told = {"OK": "replayed", "NOTTERMINAL": "live", "CHANGED": "changed", "restored": "restored"}
    return [told.get(words[row["event_id"]], "refused") for row in rows]


def _event(row: dict[str, Any]) -> Event:
    """The archived event as it was put. It is not validated again: rules may have become stricter since."""
    given = {name: row[name] for name in _KEPT if row[name] is not None}
    event: Event = stored_event(**given)
    return event
