"""A stream into a box."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from redbox import Box
from redbox.keys import counters
from redbox.pipeline.failures import translate

from .conftest import Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.req("SP-4"), pytest.mark.campaign]
SCHEMA = "event_type string, payload string"


class Lines:
    """A directory of JSON lines, a query that puts them into a box, and its checkpoint."""

    def __init__(self, spark: SparkSession, played: Played, directory: Path) -> None:
        self._spark, self._played = spark, played
        self.source, self.checkpoint = directory / "lines", directory / "checkpoint"
        self.source.mkdir()

    def add(self, name: str, *payloads: str) -> None:
        lines = [json.dumps({"event_type": "n", "payload": payload}) for payload in payloads]
        (self.source / f"{name}.json").write_text("\n".join(lines))

    def drain(self, **options: Any) -> None:
        stream = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.source))
        options = {"checkpointLocation": str(self.checkpoint), **self._played.options(**options)}
        query = stream.writeStream.format("redbox").options(**options).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def forget_the_last_commit(self) -> int:
        """As if the driver had died between the last write and its entry; tells which epoch it was."""
        commits = self.checkpoint / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        for file in (commits / str(last), commits / f".{last}.crc"):
            file.unlink(missing_ok=True)
        return last

    def payloads(self) -> Counter[bytes]:
        return self._played.run(_payloads(self._played.box))

    def repeated(self) -> int:
        store = self._played.box._store
        (count,) = self._played.run(store.exchange([("HGET", counters(self._played.name), "repeated")]))
        return int(count or 0)


async def _payloads(box: Box) -> Counter[bytes]:
    return Counter([bytes(record.event.payload) async for record in box.list()])


@pytest.fixture
def lines(spark: SparkSession, redis_played: Played, tmp_path: Path) -> Lines:
    return Lines(spark, redis_played, tmp_path)


def test_rows_arrive_once_and_a_restarted_query_goes_on(lines: Lines):
    lines.add("1", "a", "b", "b")
    lines.add("2", "b")
    lines.drain()
    assert lines.payloads() == Counter({b"a": 1, b"b": 3})
    lines.add("3", "a")
    lines.drain()
    assert lines.payloads() == Counter({b"a": 2, b"b": 3})
    lines.drain()
    assert lines.payloads() == Counter({b"a": 2, b"b": 3})
    assert lines.repeated() == 0


@pytest.mark.parametrize("options", [{}, {"job": "orders"}])
def test_an_epoch_that_is_written_again_puts_nothing_twice(lines: Lines, options: dict[str, str]):
    lines.add("1", "a", "a", "b")
    lines.drain(**options)
    lines.add("2", "a", "c")
    lines.drain(**options)
    before = lines.payloads()
    assert lines.forget_the_last_commit() == 1
    lines.drain(**options)
    assert lines.payloads() == before == Counter({b"a": 3, b"b": 1, b"c": 1})
    assert lines.repeated() == 2  # it was written again


def test_another_query_is_another_job(lines: Lines):
    lines.add("1", "a")
    lines.drain()
    lines.drain(checkpointLocation=f"{lines.checkpoint}-2")
    assert lines.payloads() == Counter({b"a": 2})


def test_a_bad_row_ends_the_query_and_is_named(lines: Lines):
    (lines.source / "1.json").write_text('{"event_type": "n"}')
    with pytest.raises(PySparkException) as raised:
        lines.drain()
    assert translate(raised.value).message.startswith("payload: is null; give bytes or a text")


def test_bad_rows_are_kept_aside(lines: Lines, tmp_path: Path, spark: SparkSession):
    (lines.source / "1.json").write_text('{"event_type": "n"}\n{"event_type": "n", "payload": "good"}')
    lines.drain(rejects=str(tmp_path / "rejects"))
    assert lines.payloads() == Counter([b"good"])
    (row,) = spark.read.parquet(str(tmp_path / "rejects")).collect()
    assert row["rejected_field"] == "payload"


def test_only_new_rows_can_be_put(lines: Lines, spark: SparkSession, redis_played: Played):
    lines.add("1", "a")
    stream = (
        spark.readStream.schema(SCHEMA).json(str(lines.source)).groupBy("event_type", "payload").count().drop("count")
    )
    with pytest.raises(PySparkException) as raised:
        stream.writeStream.format("redbox").outputMode("complete").options(
            checkpointLocation=str(lines.checkpoint), **redis_played.options()
        ).trigger(availableNow=True).start().awaitTermination()
    assert translate(raised.value).message == 'a box is never overwritten; use .mode("append")'
