"""Which conditions `--where` takes: comparisons over the columns of events, and nothing that runs code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redbox import Event
from redbox.errors import UsageError
from redbox.pipeline.jobs import condition
from redbox.pipeline.jobs.condition import check_condition, select
from redbox.pipeline.jobs.patch import patch
from redbox.pipeline.jobs.replay import replay
from redbox.pipeline.source.options import Address
from redbox.pipeline.source.schema import SCHEMA
from redbox.testing.conformance.steps import make_dead

from .conftest import Command, Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOWHERE = Address("redis://127.0.0.1:1/0", "orders")  # nobody answers there


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("java_method('java.lang.System', 'getProperty', 'user.home') = 'x'", "calls the function java_method"),
        ("event_id = 'a' OR Reflect('java.lang.Runtime', 'getRuntime') = ''", "calls the function Reflect"),
        ("upper(`try_reflect`('a', 'b')) = 'x'", "calls the function try_reflect"),
        ("exists(map_keys(headers), x -> x = reflect('a', 'b'))", "calls the function reflect"),
        ("IDENTIFIER('reflect')('a', 'b') = 'x'", "contains IDENTIFIER(...)"),
        ("event_id IN (SELECT event_id FROM other)", "contains a subquery"),
        ("EXISTS (SELECT 1)", "contains a subquery"),
        ("(SELECT count(*) FROM parquet.`/etc`) > 0", "contains a subquery"),
        ("input_file_name() LIKE '%a%'", "calls the function input_file_name"),
        ("from_protobuf(payload, 'a', '/etc/passwd') IS NULL", "calls the function from_protobuf"),
        ("system.builtin.upper(event_id) = 'A'", "calls the function system.builtin.upper"),
        ("my_function(event_id)", "calls the function my_function"),
        ("explode(array(1)) = 1", "calls the function explode"),
        ("count(*) OVER () > 1", "contains an expression of the kind WindowExpression"),
        ("raise_error(event_id) IS NULL", "calls the function raise_error"),
    ],
)
def test_what_could_run_code_or_read_elsewhere_is_refused(spark: SparkSession, where: str, problem: str):
    with pytest.raises(UsageError) as raised:
        check_condition(spark, where)
    assert raised.value.message.startswith(f"the condition {where!r} {problem}, which is not allowed; use built-in ")


@pytest.mark.parametrize(
    "where",
    [
        "true",
        "event_type LIKE 'user.%' AND state = 'DEAD' OR NOT last_error ILIKE ANY ('%503%', '%504%')",
        "attempts BETWEEN 2 AND 5 AND attempts % 2 = 0 AND -attempts < +1 AND event_id NOT IN ('a', 'b')",
        "created_at > timestamp '2026-01-31' - interval 1 day AND created_at < current_timestamp()",
        "extract(hour FROM created_at) = 3 OR date_trunc('day', created_at) = date '2026-01-31'",
        "get_json_object(CAST(payload AS string), '$.id')::int = 42",
        "from_json(decode(payload, 'UTF-8'), 'id int').id IS NOT DISTINCT FROM 42",
        "headers['traceparent'] IS NULL AND size(map_keys(metadata)) > 0",
        "exists(map_values(headers), x -> x RLIKE '^a')",
        "CASE WHEN coalesce(ordering_key, '') = '' THEN false ELSE length(trim(ordering_key)) > 3 END",
        "substring(event_id FROM 1 FOR 2) || 'x' = concat('a', 'b', 'x')",
        "sha2(payload, 256) = 'a' AND pmod(hash(event_id), 10) = 0",
    ],
)
def test_conditions_over_the_columns_of_events_are_taken(spark: SparkSession, where: str):
    check_condition(spark, where)
    select(spark.createDataFrame([], SCHEMA), where)


def test_every_listed_function_is_one_of_sparks(spark: SparkSession):
    assert {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()} >= condition.FUNCTIONS


def test_a_function_of_the_session_under_a_listed_name_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch):
    spark.udf.register("of_our_own", lambda text: text)
    monkeypatch.setattr(condition, "FUNCTIONS", condition.FUNCTIONS | {"of_our_own"})
    table, where = spark.createDataFrame([], SCHEMA), "of_our_own(event_id) = 'a'"
    check_condition(spark, where)
    with pytest.raises(UsageError, match="calls a function that was registered in this session"):
        select(table, where)


def test_a_hidden_column_of_the_files_is_refused(spark: SparkSession, tmp_path: Path):
    spark.range(1).write.parquet(str(tmp_path / "files"))
    table = spark.read.parquet(str(tmp_path / "files"))
    with pytest.raises(UsageError, match="names a column that events do not have"):
        select(table, "_metadata.file_name = 'a'")


def test_a_job_refuses_it_before_anything_is_read(spark: SparkSession):
    where = "java_method('java.lang.System', 'lineSeparator') = ''"
    with pytest.raises(UsageError, match="calls the function java_method, which is not allowed"):
        replay(spark, NOWHERE, "/nowhere", where=where)
    with pytest.raises(UsageError, match="calls the function java_method, which is not allowed"):
        patch(spark, NOWHERE, lambda event: event, where=where, who="ada")


def test_a_command_refuses_it_in_one_sentence(redis_played: Played, command: Command):
    redis_played.run(make_dead(redis_played.box, Event("n")))
    result = command(redis_played, "pipeline", "patch", "--with", "json:loads", "--where", "reflect('a', 'b')", "--yes")
    assert result.exit_code == 2
    assert "calls the function reflect, which is not allowed; use built-in functions" in result.stderr


def test_a_column_of_the_caller_may_call_anything(redis_played: Played, spark: SparkSession):
    from pyspark.sql import functions as f

    redis_played.run(make_dead(redis_played.box, Event("n", event_id="a"), Event("n", event_id="b")))
    chosen = f.java_method(f.lit("java.lang.String"), f.lit("valueOf"), f.col("event_id")) == "a"
    at = Address(redis_played.url, redis_played.name)
    assert patch(spark, at, lambda event: event.payload, where=chosen, dry_run=True).counts.patched == 1
