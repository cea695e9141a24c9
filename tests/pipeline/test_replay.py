"""From the archive back to PENDING, whatever became of the events in Redis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from redbox import Box, Event
from redbox.errors import RedboxError, UsageError
from redbox.pipeline.archive.job import archive, read_archive
from redbox.pipeline.jobs.replay import _latest, replay
from redbox.pipeline.report.tables import events
from redbox.pipeline.source.options import Address
from redbox.pipeline.tasks import in_line_order
from redbox.store.scripts.items import MarkItem
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import claim_one, contents, known, make_dead, publish, store_time

from .conftest import Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-6")


def address(played: Played) -> Address:
    return Address(played.url, played.name)


def test_what_is_gone_is_restored_and_what_is_there_is_replayed(played: Played, spark: SparkSession, tmp_path: Path):
    box, lake = played.box, str(tmp_path)
    event = Event(
        "user.created", b"\x00\xff", event_id="gone", headers={"a": "1"}, metadata={"m": "x"}, partition_key="p",
        ordering_key="o", unique_key="u", unique_scope="UNTOUCHED", content_type="application/x-thing",
    )  # fmt: skip
    played.run(publish(box, event))
    archive(spark, address(played), lake)
    played.run(make_dead(box, Event("user.deleted", event_id="there"), Event("invoice.paid", event_id="other")))
    archive(spark, address(played), lake, keep=True)
    counted = replay(spark, address(played), lake, where="event_type like 'user.%'", dry_run=True)
    assert (counted.matched, counted.replayed) == (2, 0)
    done = replay(spark, address(played), lake, where="event_type like 'user.%'", who="ada", why="again")
    assert (done.matched, done.replayed, done.restored) == (2, 1, 1)
    assert played.run(check_invariants(box)) == []
    claims = {claim.event_id: claim for claim in played.run(box.claim("relay-1"))}
    assert claims.keys() == {"gone", "there"}
    back = claims["gone"].event
    for field in ("event_type", "payload", "headers", "metadata", "partition_key", "ordering_key", "unique_key",
                  "unique_scope", "content_type"):  # fmt: skip
        assert getattr(back, field) == getattr(event, field)
    (entry, *_) = played.run(box.operate.log())
    assert (entry.action, entry.who, entry.why, entry.count) == ("replay", "ada", "again", 2)
    assert set(entry.ids) == {"gone", "there"}
    assert "event_type like 'user.%'" in entry.detail


def test_running_it_again_is_harmless(redis_played: Played, spark: SparkSession, tmp_path: Path):
    box, lake = redis_played.box, str(tmp_path)
    redis_played.run(publish(box, Event("n", event_id="a"), Event("n", event_id="b")))
    archive(spark, address(redis_played), lake)
    assert replay(spark, address(redis_played), lake).restored == 2
    before = redis_played.run(contents(box))
    assert replay(spark, address(redis_played), lake, who="").live == 2
    assert redis_played.run(contents(box)) == before
    redis_played.run(box.ack(redis_played.run(box.claim("relay-1", limit=1))))
    assert replay(spark, address(redis_played), lake, who="").changed == 1


@pytest.mark.campaign
def test_the_last_life_counts(redis_played: Played, spark: SparkSession, tmp_path: Path):
    box, lake = redis_played.box, str(tmp_path)
    redis_played.run(make_dead(box, Event("n", event_id="a")))
    archive(spark, address(redis_played), lake, keep=True)
    redis_played.run(box.replay(["a"]))
    redis_played.run(box.ack(redis_played.run(claim_one(box))))
    archive(spark, address(redis_played), lake, keep=True)
    redis_played.run(make_dead(box, Event("n", event_id="b")))
    archive(spark, address(redis_played), lake)
    done = replay(spark, address(redis_played), lake, where="state = 'DEAD'")
    assert (done.matched, done.restored) == (1, 1)
    assert redis_played.run(box.get("a")) is None
    assert replay(spark, address(redis_played), lake, dry_run=True).matched == 2


def test_a_claim_that_was_archived_twice_counts_once(spark: SparkSession):
    archived = spark.createDataFrame(
        [("a", 1, "run1"), ("a", 1, "run2"), ("b", 3, "run1"), ("b", 2, "run2")],
        "event_id string, claim long, run string",
    )
    chosen = _latest(archived.where("run <> 'run3'"), archived).collect()
    assert sorted(tuple(row) for row in chosen) == [("a", 1, "run2"), ("b", 3, "run1")]


def test_a_unique_key_that_is_held_refuses(redis_played: Played, spark: SparkSession, tmp_path: Path):
    box, lake = redis_played.box, str(tmp_path)
    redis_played.run(publish(box, Event("n", event_id="a", unique_key="u")))
    archive(spark, address(redis_played), lake)
    redis_played.run(box.put(Event("n", event_id="b", unique_key="u")))
    assert replay(spark, address(redis_played), lake).refused == 1


@pytest.mark.campaign
def test_what_was_superseded_after_it_was_archived_is_refused(
    redis_played: Played, spark: SparkSession, tmp_path: Path
):
    """The copy that was made before is of an earlier life; in a report both are one death."""
    box, lake, at = redis_played.box, str(tmp_path), address(redis_played)
    redis_played.run(make_dead(box, Event("n", event_id="a")))
    archive(spark, at, lake, keep=True)
    redis_played.run(
        box._store.mark_event("superseded_by", [MarkItem("a", redis_played.run(known(box, "a")).number, "new")])
    )
    done = archive(spark, at, lake)
    assert (done.rows, done.removed, done.left) == (1, 1, 0)
    assert redis_played.run(box.get("a")) is None
    assert replay(spark, at, lake).refused == 1
    assert redis_played.run(box.get("a")) is None
    lives = {row["claim"]: row["superseded_by"] for row in read_archive(spark, lake).collect()}
    assert [lives[claim] for claim in sorted(lives)] == [None, "new"]
    rows = events(redis_played.read(spark), read_archive(spark, lake)).collect()
    assert [(row["claim"], row["latest"]) for row in rows] == [(max(lives), True)]


async def deliver(box: Box) -> list[str]:
    """Delivers everything; the ids in the order in which they were given out."""
    seen: list[str] = []
    while claims := await box.claim("relay", limit=100):
        seen += [claim.event_id for claim in claims]
        assert all(await box.ack(claims))
    return seen


@pytest.mark.req("OP-1", "OP-4")
@pytest.mark.parametrize("rate", [None, 5000.0])
def test_the_order_of_a_key_is_kept(redis_played: Played, spark: SparkSession, tmp_path: Path, rate: float | None):
    """Of two types, so from two files, and every third event is still in Redis."""
    box, at, lake = redis_played.box, address(redis_played), str(tmp_path)
    ids = [f"{7 * number % 40:02}" for number in range(40)]  # not in the order of their puts
    redis_played.run(
        box.put_many([Event(f"n{place % 2}", event_id=each, ordering_key="k") for place, each in enumerate(ids)])
    )
    redis_played.run(box.put(Event("n0", event_id="free")))
    delivered = redis_played.run(deliver(box))
    assert [each for each in delivered if each != "free"] == ids
    archive(spark, at, lake, keep=True)
    gone = [each for place, each in enumerate(ids) if place % 3]
    redis_played.run(box.operate.drop(gone, who="ada", why="a test"))
    done = replay(spark, at, lake, rate=rate)
    assert (done.restored, done.replayed) == (len(gone), 41 - len(gone))
    assert redis_played.run(check_invariants(box)) == []
    assert [each for each in redis_played.run(deliver(box)) if each != "free"] == ids


def test_events_of_an_earlier_version_are_ordered_by_their_time(spark: SparkSession):
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    rows = [("d", 7, early), ("c", 5, late), ("b", None, late), ("z", None, early)]
    table = spark.createDataFrame(
        [(event_id, "k", seq, at) for event_id, seq, at in rows],
        "event_id string, ordering_key string, seq long, created_at timestamp",
    )
    assert [row["event_id"] for row in in_line_order(table).collect()] == ["z", "b", "c", "d"]


@pytest.mark.req("EM-5")
def test_a_restored_event_keeps_its_created_at(redis_played: Played, spark: SparkSession, tmp_path: Path):
    """It is due at the moment of the restore, and its history says so."""
    box, lake = redis_played.box, str(tmp_path)
    redis_played.run(publish(box, Event("n", event_id="a")))
    redis_played.run(advance(box, days=3))
    old = redis_played.run(known(box, "a"))
    archive(spark, address(redis_played), lake)
    before = redis_played.run(store_time(box))
    assert replay(spark, address(redis_played), lake).restored == 1
    new = redis_played.run(known(box, "a"))
    assert new.created_at == old.created_at
    assert new.available_at >= before
    assert [entry.outcome for entry in new.history] == ["replayed"]
    (row,) = redis_played.read(spark).collect()
    assert [entry["outcome"] for entry in row["history"]] == ["replayed"]
    assert redis_played.run(claim_one(box)).due_at >= before


@pytest.mark.campaign
@pytest.mark.parametrize("keep", [True, False])
def test_what_was_superseded_is_refused(redis_played: Played, spark: SparkSession, tmp_path: Path, keep: bool):
    box, lake = redis_played.box, str(tmp_path)
    redis_played.run(make_dead(box, Event("n", event_id="a"), Event("n", event_id="b")))
    number = redis_played.run(known(box, "a")).number
    redis_played.run(box._store.mark_event("superseded_by", [MarkItem("a", number, "new")]))
    archive(spark, address(redis_played), lake, keep=keep)
    done = replay(spark, address(redis_played), lake)
    assert (done.refused, done.replayed + done.restored) == (1, 1)
    assert redis_played.run(known(box, "b")).state == "PENDING"


@pytest.mark.campaign
def test_the_rate_is_kept(redis_played: Played, spark: SparkSession, tmp_path: Path):
    """By when the box got them: of two files, which without a rate would be two tasks."""
    box = redis_played.box
    redis_played.run(publish(box, *[Event(f"n{number % 2}") for number in range(60)]))
    archive(spark, address(redis_played), str(tmp_path))
    assert replay(spark, address(redis_played), str(tmp_path), rate=30).restored == 60

    async def put_at() -> list[datetime]:
        return sorted([record.available_at async for record in box.list()])

    first, *_, last = redis_played.run(put_at())
    assert last - first > timedelta(seconds=1.5)


@pytest.mark.campaign
def test_one_that_ends_early_is_in_the_log(redis_played: Played, spark: SparkSession, tmp_path: Path):
    box, lake = redis_played.box, str(tmp_path)
    redis_played.run(publish(box, Event("n", event_id="a")))
    archive(spark, address(redis_played), lake)
    for file in tmp_path.rglob("*.parquet"):
        file.write_bytes(b"not what it was")
    with pytest.raises((RedboxError, PySparkException, Py4JError)):
        replay(spark, address(redis_played), lake, where="event_type = 'n'", dry_run=True)
    assert redis_played.run(box.operate.log()) == []
    with pytest.raises((RedboxError, PySparkException, Py4JError)):
        replay(spark, address(redis_played), lake, where="event_type = 'n'", who="ada", why="again")
    (entry,) = redis_played.run(box.operate.log())
    assert (entry.action, entry.who, entry.why) == ("replay", "ada", "again")
    assert entry.detail.startswith(f"ended early, so more may be replayed: from the archive {lake} where event_type")


def test_a_mistake_is_one_clear_sentence(redis_played: Played, spark: SparkSession, tmp_path: Path):
    redis_played.run(publish(redis_played.box, Event("n")))
    archive(spark, address(redis_played), str(tmp_path))
    with pytest.raises(UsageError, match="is not a condition over the columns of events"):
        replay(spark, address(redis_played), str(tmp_path), where="no_such_column = 1")
    with pytest.raises(UsageError, match="rate must be between"):
        replay(spark, address(redis_played), str(tmp_path), rate=0)
    with pytest.raises(UsageError, match="there is no archive at"):
        replay(spark, address(redis_played), str(tmp_path / "nowhere"))
