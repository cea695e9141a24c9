"""What relays deliver also reaches the lake: published and dead events as a stream that changes nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from redbox import Event
from redbox.pipeline.failures import translate
from redbox.pipeline.source import follow as following
from redbox.pipeline.source import reader
from redbox.pipeline.source.follow import FollowReader
from redbox.pipeline.source.options import follow_options
from redbox.pipeline.source.schema import SCHEMA
from redbox.testing import advance
from redbox.testing.conformance.steps import contents, make_dead, publish
from redbox.testing.conformance.test_rules import write_directly

from .conftest import Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-3")


class Follow:
    def __init__(self, spark: SparkSession, played: Played, directory: Path, **options: Any) -> None:
        self.spark, self.played = spark, played
        self.sink, self.checkpoint = directory / "sink", directory / "checkpoint"
        self.options = {"mode": "follow", "lag": 0, "maxEventsPerTrigger": 10, "partition_size": 5, **options}

    def once(self) -> None:
        query = (
            self.spark.readStream.format("redbox")
            .options(**self.played.options(**self.options))
            .load()
            .writeStream.format("parquet")
            .option("path", str(self.sink))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def rows(self) -> Counter[tuple[str, str]]:
        table = self.spark.read.parquet(str(self.sink))
        return Counter((row[0], row[1]) for row in table.select("event_id", "state").collect())


def test_published_and_dead_events_come_once_as_they_come(played: Played, spark: SparkSession, tmp_path: Path):
    box, follow = played.box, Follow(spark, played, tmp_path)
    played.run(publish(box, *[Event("n", event_id=f"p{number:02}") for number in range(23)]))
    played.run(make_dead(box, *[Event("n", event_id=f"d{number:02}") for number in range(12)]))
    played.run(box.put(Event("n", event_id="waits")))
    before = played.run(contents(box))
    follow.once()
    expected = Counter([(f"p{number:02}", "PUBLISHED") for number in range(23)])
    expected += Counter([(f"d{number:02}", "DEAD") for number in range(12)])
    assert follow.rows() == expected
    assert played.run(contents(box)) == before
    played.run(box.replay(["d03"]))
    played.run(box.ack(played.run(box.claim("relay-1"))))
    follow.once()
    assert follow.rows() == expected + Counter([("d03", "PUBLISHED"), ("waits", "PUBLISHED")])


def test_it_is_narrowed_by_options(redis_played: Played, spark: SparkSession, tmp_path: Path):
    box = redis_played.box
    redis_played.run(make_dead(box, Event("user.created", event_id="a"), Event("invoice.paid", event_id="b")))
    redis_played.run(publish(box, Event("user.created", event_id="c")))
    follow = Follow(spark, redis_played, tmp_path, state="DEAD", event_type="user.*")
    follow.once()
    assert follow.rows() == Counter([("a", "DEAD")])


@pytest.mark.campaign
def test_what_is_younger_than_the_lag_comes_later(redis_played: Played, spark: SparkSession, tmp_path: Path):
    redis_played.run(publish(redis_played.box, Event("n", event_id="young")))
    follow = Follow(spark, redis_played, tmp_path, lag=3600)
    follow.once()
    assert not follow.sink.exists() or follow.rows() == Counter()
    follow.options["lag"] = 0
    follow.once()
    assert follow.rows() == Counter([("young", "PUBLISHED")])


class Direct:
    """The reader without Spark: one trigger after the other."""

    def __init__(self, played: Played, **options: str) -> None:
        self.reader = FollowReader(follow_options(played.options(mode="follow", lag="0", **options)), SCHEMA)
        self.start = self.end = self.reader.initialOffset()

    def plan(self) -> None:
        self.start, self.end = self.end, self.reader.latestOffset(self.end, self.reader.getDefaultReadLimit())

    def read(self) -> list[list[str]]:
        """The ids of each part."""
        return [
            [event_id for batch in self.reader.read(part) for event_id in batch.column("event_id").to_pylist()]
            for part in self.reader.partitions(self.start, self.end)
        ]


def publish_some(played: Played, *ids: str) -> None:
    played.run(publish(played.box, *[Event("n", event_id=each) for each in ids]))
    played.run(advance(played.box, seconds=1))


def test_a_trigger_may_have_more_ranges_than_one_look_gives(redis_played: Played, monkeypatch: pytest.MonkeyPatch):
    for module in (reader, following):
        monkeypatch.setattr(module, "RANGES_AT_ONCE", 2)
    publish_some(redis_played, *[f"e{number:02}" for number in range(14)])
    direct = Direct(redis_played, maxEventsPerTrigger="11", partition_size="2")
    direct.plan()
    assert direct.read() == [[f"e{number:02}", f"e{number + 1:02}"] for number in range(0, 12, 2)]
    direct.plan()
    assert direct.read() == [["e12", "e13"]]
    direct.plan()
    assert direct.start == direct.end
    assert direct.read() == []


def test_what_comes_or_goes_between_plan_and_parts_does_not_shift_the_end(
    redis_played: Played, monkeypatch: pytest.MonkeyPatch
):
    for module in (reader, following):
        monkeypatch.setattr(module, "RANGES_AT_ONCE", 2)
    publish_some(redis_played, *[f"e{number}" for number in range(8)])
    direct = Direct(redis_played, maxEventsPerTrigger="8", partition_size="1")
    direct.plan()
    redis_played.run(redis_played.box.operate.drop(["e1", "e7"], who="test", why="test"))
    redis_played.run(publish(redis_played.box, Event("n", event_id="later")))
    assert direct.read() == [["e0"], ["e2"], ["e3"], ["e4"], ["e5"], ["e6"]]


@pytest.mark.parametrize(("end", "state"), [(publish, "PUBLISHED"), (make_dead, "DEAD")])
def test_a_clock_that_stepped_back_after_the_put_hides_nothing(redis_played: Played, end: Any, state: str):
    redis_played.run(end(redis_played.box, Event("n", event_id="a")))
    redis_played.run(advance(redis_played.box, seconds=1))
    redis_played.run(write_directly(redis_played.box, "HSET", ":e:a", "created_at", 2**42))
    direct = Direct(redis_played, state=state)
    direct.plan()
    assert direct.read() == [["a"]]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"mode": "chase"}, "option mode: use 'drain' or 'follow'"),
        ({"state": "PENDING"}, "'PENDING' is not one of PUBLISHED, DEAD"),
        ({"stream": "lake"}, "following a box has no option 'stream'"),
    ],
)
def test_a_mistake_is_one_clear_sentence(
    redis_played: Played, spark: SparkSession, tmp_path: Path, options: dict[str, str], complaint: str
):
    redis_played.run(redis_played.box.put(Event("n")))
    with pytest.raises(Exception) as raised:  # noqa: PT011 - at the start or in the query
        Follow(spark, redis_played, tmp_path, **options).once()
    assert complaint in translate(raised.value).message
