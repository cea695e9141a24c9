"""A box as a stream: each event exactly once in a file sink, wherever a process dies."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from redbox import Event, State, keys
from redbox.pipeline.failures import translate
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import expire

from .conftest import Played
from .dying import PLAN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-3")


class Drain:
    """One query: its sink and checkpoint, to be started as often as need be."""

    def __init__(self, spark: SparkSession, played: Played, directory: Path, source: str = "redbox", **options: Any):
        self.spark, self.played, self.source = spark, played, source
        self.sink, self.checkpoint = directory / "sink", directory / "checkpoint"
        self.options = {"stream": "lake", "maxEventsPerTrigger": 40, "partition_size": 15, **options}

    def once(self) -> None:
        """Until nothing is available; raises what failed the query."""
        query = (
            self.spark.readStream.format(self.source)
            .options(**self.played.options(**self.options))
            .load()
            .writeStream.format("parquet")
            .option("path", str(self.sink))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def until_done(self, tries: int = 4) -> int:
        """Starts it again whenever it fails; how often it failed."""
        for failures in range(tries):
            try:
                self.once()
            except StreamingQueryException:
                continue
            return failures
        raise AssertionError(f"it failed {tries} times")

    def rows(self) -> Counter[str]:
        return Counter(row[0] for row in self.spark.read.parquet(str(self.sink)).select("event_id").collect())


def fill(played: Played, count: int, first: int = 0, **fields: Any) -> Counter[str]:
    ids = [f"e{number:04}" for number in range(first, first + count)]
    played.run(played.box.put_many([Event("n", {"id": each}, event_id=each, **fields) for each in ids]))
    return Counter(ids)


def check_published(played: Played, count: int) -> None:
    stats = played.run(played.box.stats())
    assert {str(phase): number for phase, number in stats.phases.items() if number} == {"COMPLETED": count}
    assert played.run(check_invariants(played.box)) == []


def test_a_box_is_drained_and_what_is_committed_is_published(played: Played, spark: SparkSession, tmp_path: Path):
    drain = Drain(spark, played, tmp_path)
    ids = fill(played, 100)
    later = fill(played, 1, first=900, delay=3600)
    drain.once()
    assert drain.rows() == ids
    stats = played.run(played.box.stats())
    assert stats.phases["COMPLETED"] == 100
    assert stats.phases["SCHEDULED"] == 1
    ids += fill(played, 10, first=100)
    drain.once()
    assert drain.rows() == ids
    played.run(advance(played.box, hours=2))
    drain.once()
    assert drain.rows() == ids + later
    check_published(played, 111)
    row = spark.read.parquet(str(drain.sink)).where("event_id = 'e0007'").first()
    assert row is not None
    assert (bytes(row["payload"]), row["state"], row["claimed_by"]) == (b'{"id":"e0007"}', "CLAIMED", "stream:lake")


#: Steps at which a process dies, each with the number of the time that it comes there.
DEATHS = [("claim:after", 2)]
FURTHER_DEATHS = [
    ("read:after", 1),
    ("settle_some:after", 1),
    ("own:after", 1),
    ("claim:before", 1),
    ("claim:after", 1),
    ("cut:before", 1),
    ("cut:after", 1),
    ("cut:after", 2),
    ("latest:after", 1),
    ("partitions:before", 1),
    ("partitions:after", 2),
    ("read:before", 2),
    ("latest:before", 2),
    ("settle_some:before", 1),
    ("settle:before", 2),
    ("settle:after", 1),
    ("commit:before", 1),
    ("commit:after", 1),
]


@pytest.mark.parametrize(
    ("step", "time"), [*DEATHS, *[pytest.param(*death, marks=pytest.mark.campaign) for death in FURTHER_DEATHS]]
)
def test_wherever_a_process_dies_each_event_comes_once(
    redis_played: Played, spark: SparkSession, tmp_path: Path, step: str, time: int
):
    ids = fill(redis_played, 60)
    drain = Drain(spark, redis_played, tmp_path, "redbox_dying")
    plan = Path(os.environ[PLAN])
    plan.write_text(f"{step} {time}")
    try:
        failures = drain.until_done()
    finally:
        was_there = not plan.exists()
        plan.unlink(missing_ok=True)
    assert was_there, "nothing came to this step"
    assert failures == (0 if step.startswith("read") else 1)  # Spark tries a task again by itself
    assert drain.rows() == ids
    check_published(redis_played, 60)


@pytest.mark.campaign
def test_a_death_between_the_sink_and_sparks_commit_log(redis_played: Played, spark: SparkSession, tmp_path: Path):
    ids = fill(redis_played, 60)
    drain = Drain(spark, redis_played, tmp_path, "redbox_dying")
    Path(os.environ[PLAN]).write_text("latest:before 2")
    with pytest.raises(StreamingQueryException):
        drain.once()
    committed = sorted(drain.checkpoint.glob("commits/[0-9]*"))
    committed[-1].unlink()
    (drain.checkpoint / "commits" / f".{committed[-1].name}.crc").unlink(missing_ok=True)
    drain.once()
    assert drain.rows() == ids
    check_published(redis_played, 60)


@pytest.mark.campaign
def test_members_that_were_reaped_are_taken_back(redis_played: Played, spark: SparkSession, tmp_path: Path):
    ids = fill(redis_played, 30, unique_key=None)
    drain = Drain(spark, redis_played, tmp_path, "redbox_dying")
    Path(os.environ[PLAN]).write_text("partitions:before 1")
    with pytest.raises(StreamingQueryException):
        drain.once()
    assert len(redis_played.run(expire(redis_played.box))) == 30
    drain.once()
    assert drain.rows() == ids
    check_published(redis_played, 30)


@pytest.mark.campaign
def test_members_that_others_took_fail_the_query_unless_it_may_go_on(
    redis_played: Played, spark: SparkSession, tmp_path: Path
):
    ids = fill(redis_played, 30)
    drain = Drain(spark, redis_played, tmp_path, "redbox_dying")
    Path(os.environ[PLAN]).write_text("partitions:before 1")
    with pytest.raises(StreamingQueryException):
        drain.once()
    redis_played.run(expire(redis_played.box))
    taken = redis_played.run(redis_played.box.claim("relay-1", limit=3))
    redis_played.run(redis_played.box.ack(taken))
    drain.source = "redbox"
    with pytest.raises(StreamingQueryException) as raised:
        drain.once()
    assert "lost 3 events of 30 that it held" in translate(raised.value).message
    drain.options["onLost"] = "continue"
    drain.once()
    assert drain.rows() == ids - Counter(claim.event_id for claim in taken)
    check_published(redis_played, 30)


@pytest.mark.campaign
def test_a_checkpoint_that_does_not_fit_is_reported(redis_played: Played, spark: SparkSession, tmp_path: Path):
    fill(redis_played, 30)
    Drain(spark, redis_played, tmp_path / "one").once()
    fill(redis_played, 30, first=30)
    with pytest.raises(StreamingQueryException) as raised:
        Drain(spark, redis_played, tmp_path / "two").once()
    assert "it is at batch 0, and stream 'lake'" in translate(raised.value).message
    assert "has cut 1 and settled 1" in translate(raised.value).message
    redis_played.run(redis_played.box._store.exchange([("DEL", keys.stream(redis_played.name, "lake"))]))
    with pytest.raises(StreamingQueryException) as raised:
        Drain(spark, redis_played, tmp_path / "one").once()
    assert "it is at batch 1, and stream 'lake'" in translate(raised.value).message


@pytest.mark.campaign
def test_two_streams_share_a_box_and_relays_too(redis_played: Played, spark: SparkSession, tmp_path: Path):
    ids = fill(redis_played, 60)
    claims = redis_played.run(redis_played.box.claim("relay-1", limit=20))
    redis_played.run(redis_played.box.ack(claims))
    one, two = (Drain(spark, redis_played, tmp_path / name, stream=name) for name in ("one", "two"))
    one.once()
    ids += fill(redis_played, 20, first=60)
    two.once()
    assert one.rows() + two.rows() + Counter(claim.event_id for claim in claims) == ids
    check_published(redis_played, 80)


def test_order_is_kept(redis_played: Played, spark: SparkSession, tmp_path: Path):
    ids = fill(redis_played, 4, ordering_key="k")
    drain = Drain(spark, redis_played, tmp_path)
    drain.once()
    assert drain.rows() == ids
    claims = spark.read.parquet(str(drain.sink)).orderBy("claim").select("event_id").collect()
    assert [row[0] for row in claims] == sorted(ids)


def test_a_paused_box_is_not_drained(redis_played: Played, spark: SparkSession, tmp_path: Path):
    ids = fill(redis_played, 3)
    redis_played.run(redis_played.box.operate.pause(who="ada", why="a test"))
    drain = Drain(spark, redis_played, tmp_path)
    drain.once()
    assert {record.state for record in redis_played.run(_records(redis_played))} == {State.PENDING}
    redis_played.run(redis_played.box.operate.resume(who="ada", why="a test"))
    drain.once()
    assert drain.rows() == ids


async def _records(played: Played) -> list[Any]:
    return [record async for record in played.box.list()]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"stream": ""}, "draining a box needs the option stream"),
        ({"stream": "a b"}, "option stream: use 1 to 64"),
        ({"lease": "0.5"}, "option lease: must be at least one second"),
        ({"onlost": "maybe"}, "option onLost: use 'fail' or 'continue'"),
        ({"leas": "1"}, "draining a box has no option 'leas'"),
        ({"box": "nobody-knows-it"}, "there is no box 'nobody-knows-it'"),
    ],
)
def test_a_mistake_is_one_clear_sentence(
    redis_played: Played, spark: SparkSession, tmp_path: Path, options: dict[str, str], complaint: str
):
    fill(redis_played, 1)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - at the start or in the query
        Drain(spark, redis_played, tmp_path, **options).once()
    assert complaint in translate(raised.value).message
