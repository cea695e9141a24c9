"""When a drain ends, the events that Spark has committed are PUBLISHED, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redbox import Event, Phase
from redbox.errors import UsageError
from redbox.pipeline.jobs import streams
from redbox.pipeline.jobs.streams import run_stream, settle_committed
from redbox.pipeline.source.options import Address, DrainOptions
from redbox.pipeline.source.stream_driver import StreamDriver
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import expire

from .conftest import Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.req("SP-3"), pytest.mark.campaign]
SOURCE = {"stream": "lake", "maxEventsPerTrigger": "40"}


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WATCH_INTERVAL", 0.05)


def fill(played: Played, count: int) -> None:
    played.run(played.box.put_many([Event("n", event_id=f"e{number:03}") for number in range(count)]))


def phases(played: Played) -> dict[str, int]:
    assert played.run(check_invariants(played.box)) == []
    return {str(phase): number for phase, number in played.run(played.box.stats()).phases.items() if number}


def rows(spark: SparkSession, sink: Path) -> Counter[str]:
    return Counter(row[0] for row in spark.read.parquet(str(sink)).select("event_id").collect())


def address(played: Played) -> Address:
    return Address(played.url, played.name)


def commits(sink: Path) -> int:
    return len(list((sink / "_checkpoint" / "commits").glob("[0-9]*")))


@contextmanager
def another_driver(played: Played) -> Iterator[StreamDriver]:
    with closing(StreamDriver(DrainOptions(at=address(played), stream="lake"))) as driver:
        yield driver


def start_once(played: Played, spark: SparkSession, sink: Path) -> None:
    """A query of the application's own, that ends after one micro-batch."""
    reader = spark.readStream.format("redbox").options(**played.options(**SOURCE)).load()
    writer = reader.writeStream.format("parquet").option("path", str(sink))
    writer.option("checkpointLocation", str(sink / "_checkpoint")).trigger(once=True).start().awaitTermination()


def test_a_stopped_stream_publishes_what_is_committed_and_nothing_else(
    redis_played: Played, spark: SparkSession, tmp_path: Path
):
    fill(redis_played, 90)
    done = run_stream(
        spark, address(redis_played), SOURCE, str(tmp_path), every="1 hour", stop=lambda: commits(tmp_path) == 1
    )
    assert (done.rows, done.stopped) == (40, True)
    assert phases(redis_played) == {Phase.COMPLETED: 40, Phase.IN_FLIGHT: 40, Phase.AVAILABLE: 10}
    run_stream(spark, address(redis_played), SOURCE, str(tmp_path))
    assert phases(redis_played) == {Phase.COMPLETED: 90}
    assert rows(spark, tmp_path) == Counter(f"e{number:03}" for number in range(90))


def test_a_stopped_stream_that_another_process_took_over_is_left_to_it(
    redis_played: Played, spark: SparkSession, tmp_path: Path
):
    fill(redis_played, 30)
    with another_driver(redis_played) as other:

        def stop() -> bool:
            if commits(tmp_path) == 0:
                return False
            other.next_batch(0, 40, None)
            return True

        run_stream(spark, address(redis_played), SOURCE, str(tmp_path), every="1 hour", stop=stop)
        assert phases(redis_played) == {Phase.IN_FLIGHT: 30}
        assert other.next_batch(1, 40, None) == 1
    assert phases(redis_played) == {Phase.COMPLETED: 30}


def test_a_stream_that_fails_publishes_what_is_committed(redis_played: Played, spark: SparkSession, tmp_path: Path):
    fill(redis_played, 30)

    def fail() -> bool:
        if commits(tmp_path):
            raise RuntimeError("the process that watches the query failed")
        return False

    with pytest.raises(RuntimeError, match="watches the query"):
        run_stream(spark, address(redis_played), SOURCE, str(tmp_path), every="1 hour", stop=fail)
    assert spark.streams.active == []
    assert phases(redis_played) == {Phase.COMPLETED: 30}


def test_a_query_of_the_applications_own_is_settled_by_a_call(
    redis_played: Played, spark: SparkSession, tmp_path: Path
):
    fill(redis_played, 30)
    start_once(redis_played, spark, tmp_path)
    assert phases(redis_played) == {Phase.IN_FLIGHT: 30}
    assert len(redis_played.run(expire(redis_played.box))) == 30
    for _ in range(2):
        settle_committed(spark, address(redis_played), SOURCE, str(tmp_path / "_checkpoint"))
        assert phases(redis_played) == {Phase.COMPLETED: 30}
    with pytest.raises(UsageError, match="this checkpoint does not fit: it is at batch 1"):
        settle_committed(spark, address(redis_played), {"stream": "other"}, str(tmp_path / "_checkpoint"))


def test_without_a_commit_nothing_is_settled(redis_played: Played, spark: SparkSession, tmp_path: Path):
    fill(redis_played, 3)
    with another_driver(redis_played) as driver:
        driver.next_batch(0, 40, None)
        settle_committed(spark, address(redis_played), SOURCE, str(tmp_path / "_checkpoint"))
        driver.next_batch(0, 40, None)
    assert phases(redis_played) == {Phase.IN_FLIGHT: 3}
