"""The format `redbox` through Spark's own interface: sessions, schemas, and what an error says last."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from redbox import Event, pipeline

from .conftest import Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def last_line(act: Callable[[], Any]) -> str:
    """The last line that Python prints of the error that this raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has many classes
        act()
    return "".join(traceback.format_exception(raised.value)).rstrip().splitlines()[-1]


@pytest.mark.req("SP-1")
def test_a_further_session_learns_the_format(redis_played: Played, spark: SparkSession):
    redis_played.run(redis_played.box.put(Event("n")))
    further = spark.newSession()
    for _ in range(2):
        pipeline.register(further)
        assert redis_played.read(further).count() == 1
    assert redis_played.read(spark).count() == 1


@pytest.mark.req("SP-1")
@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("event_id string, colour string", "schema: there is no column 'colour'; there are event_id, event_type, "),
        ("payload string", "schema: column 'payload' is binary, not string"),
        ("headers map<string,int>", "schema: column 'headers' is map<string,string>, not map<string,int>"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    redis_played: Played, spark: SparkSession, tmp_path: Path, schema: str, complaint: str
):
    redis_played.run(redis_played.box.put(Event("n")))
    batch = spark.read.format("redbox").schema(schema).options(**redis_played.options()).load()
    assert last_line(batch.collect).startswith(f"redbox.errors.UsageError: {complaint}")
    if "colour" not in schema:
        return  # a query takes seconds to start
    for mode in ({"stream": "lake"}, {"mode": "follow"}):
        reader = spark.readStream.format("redbox").schema(schema).options(**redis_played.options(**mode))
        query = reader.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
        assert last_line(query.awaitTermination).startswith(f"redbox.errors.UsageError: {complaint}")


@pytest.mark.req("SP-1")
def test_a_schema_may_name_some_columns_in_any_order(redis_played: Played, spark: SparkSession):
    redis_played.run(redis_played.box.put(Event("n", {"a": 1}, event_id="e1", headers={"h": "x"})))
    schema = "headers map<string,string> not null, attempts int, event_id string"
    rows = spark.read.format("redbox").schema(schema).options(**redis_played.options()).load().collect()
    assert [tuple(row) for row in rows] == [({"h": "x"}, 0, "e1")]


@pytest.mark.campaign
@pytest.mark.req("SP-1")
def test_redbox_has_the_last_line_of_sparks_error(redis_played: Played, spark: SparkSession):
    nobody = f"redbox.errors.UnknownBox: there is no box 'nobody-knows-it' on {redis_played.url}"
    options = {**redis_played.options(), "box": "nobody-knows-it"}
    assert last_line(spark.read.format("redbox").options(**options).load().count).startswith(nobody)
    wrong = spark.createDataFrame([("a b", b"")], "event_type string, payload binary")
    written = wrong.write.format("redbox").mode("append").options(**redis_played.options())
    assert last_line(written.save).startswith("redbox.errors.InvalidEvent: event_type: must be printable")


def test_an_error_that_is_not_redboxs_is_left_alone(spark: SparkSession):
    with pytest.raises(Exception, match="PATH_NOT_FOUND") as raised:
        spark.read.parquet("/nowhere-to-be-found")
    assert not hasattr(raised.value, "__notes__")
