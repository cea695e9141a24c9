"""load: files into a box."""

from __future__ import annotations

import csv
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from redbox import Box, Record
from redbox.errors import RedboxError
from redbox.pipeline.failures import translate
from redbox.pipeline.jobs.load import SPLIT_SETTINGS, Loaded, load
from redbox.pipeline.source.options import Address
from redbox.testing.conformance.steps import contents

from .conftest import Command, Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-2")
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)


def run(spark: SparkSession, played: Played, path: Path | str, **options: Any) -> Loaded:
    return load(spark, Address(played.url, played.name), str(path), **options)


def complaint(spark: SparkSession, played: Played, path: Path | str, **options: Any) -> str:
    with pytest.raises((RedboxError, PySparkException, Py4JError)) as raised:
        run(spark, played, path, **options)
    message = translate(raised.value).message
    assert "SQLSTATE" not in message
    assert "\n" not in message
    return message


def counted(loaded: Loaded) -> dict[str, int]:
    return {name: count for name, count in msgspec.structs.asdict(loaded).items() if count and name != "size"}


def records(played: Played) -> list[Record]:
    async def listed(box: Box) -> list[Record]:
        return [record async for record in box.list()]

    found: list[Record] = played.run(listed(played.box))
    return found


def payloads(played: Played) -> Counter[bytes]:
    return Counter(bytes(record.event.payload) for record in records(played))


def test_parquet_with_every_column(redis_played: Played, spark: SparkSession, tmp_path: Path):
    table = pa.table(
        {
            "event_type": ["a"], "payload": [b"\x00"], "event_id": ["one"], "headers": pa.array([[("h", "1")]], TEXTS),
            "metadata": pa.array([[("m", "1")]], TEXTS), "partition_key": ["p"], "ordering_key": ["o"],
            "unique_key": ["u"], "unique_scope": ["UNTOUCHED"], "available_at": [SOON], "content_type": ["x/y"],
            "unknown": [1],
        }
    )  # fmt: skip
    pq.write_table(table, tmp_path / "events.parquet")
    loaded = run(spark, redis_played, tmp_path / "events.parquet")
    assert loaded == Loaded(rows=1, put=1, size=1)
    (record,) = records(redis_played)
    event = record.event
    assert (event.event_type, event.payload, event.event_id, event.content_type) == ("a", b"\x00", "one", "x/y")
    assert (dict(event.headers), dict(event.metadata)) == ({"h": "1"}, {"m": "1"})
    assert (event.partition_key, event.ordering_key, event.unique_key) == ("p", "o", "u")
    assert (event.unique_scope, event.available_at) == ("UNTOUCHED", SOON)


TEXTS = pa.map_(pa.string(), pa.string())


def test_json_lines_with_a_payload_that_is_an_object(redis_played: Played, spark: SparkSession, tmp_path: Path):
    rows = [
        {"event_type": "a", "payload": {"id": 1, "tags": ["x"]}, "headers": {"h": "1"}},
        {"event_type": "a", "payload": {"id": 2}, "available_at": SOON.isoformat()},
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert counted(run(spark, redis_played, tmp_path / "events.jsonl")) == {"rows": 2, "put": 2}
    found = {record.event.decode()["id"]: record for record in records(redis_played)}
    assert found[1].event.decode() == {"id": 1, "tags": ["x"]}
    assert {record.event.content_type for record in found.values()} == {"application/json"}
    assert dict(found[1].event.headers) == {"h": "1"}
    assert found[2].available_at == SOON


def test_csv_with_columns_and_constants(redis_played: Played, spark: SparkSession, tmp_path: Path):
    (tmp_path / "users.csv").write_text("user,profile\n7,ada\n8,bob\n")
    loaded = run(
        spark, redis_played, tmp_path / "users.csv", columns={"payload": "profile", "partition_key": "user"},
        constants={"event_type": "user.imported", "content_type": "text/x-name", "available_at": SOON.isoformat()},
    )  # fmt: skip
    assert counted(loaded) == {"rows": 2, "put": 2}
    assert {(r.event.event_type, r.event.payload, r.event.partition_key) for r in records(redis_played)} == {
        ("user.imported", b"ada", "7"), ("user.imported", b"bob", "8"),
    }  # fmt: skip
    assert {(r.event.content_type, r.available_at) for r in records(redis_played)} == {("text/x-name", SOON)}


def test_csv_with_quotes_commas_and_lines_in_it(redis_played: Played, spark: SparkSession, tmp_path: Path):
    profiles = ['{"id": 1, "name": "ada"}', "two\nlines, and a comma", "one\r\ntwo", "back\\slash\\", '"', "größe"]
    with (tmp_path / "users.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["user", "profile"], *enumerate(profiles)])
    options: dict[str, Any] = {"columns": {"payload": "profile"}, "constants": {"event_type": "n"}}
    assert counted(run(spark, redis_played, tmp_path / "users.csv", **options)) == {"rows": 6, "put": 6}
    assert payloads(redis_played) == Counter(profile.encode() for profile in profiles)


@pytest.mark.parametrize(
    ("name", "lines", "told"),
    [
        ("a.csv", ["event_type,payload,more", "n,1,x", "n,2,x,too many"],
         "a row does not have as many fields as the header: 'n,2,x,too many'"),
        ("a.csv", ["event_type,payload,more", "n,1,x", "n,2"],
         "a row does not have as many fields as the header: 'n,2'"),
        ("a.csv", ["event_type,payload", "n,größe"], "a line is not UTF-8: 'n,gr"),
        ("a.jsonl", ['{"event_type": "n", "payload": "1"}', "nonsense"], "a line is not one JSON object: 'nonsense'"),
        ("a.jsonl", ['{"event_type": "n", "payload": "1"}', '{"event_type": "n", "pay'],
         "a line is not one JSON object: '{\"event_type\": \"n\", \"pay'"),
        ("a.jsonl", ['{"event_type": "n", "payload": "1"}{"event_type": "n", "payload": "2"}'],
         "a line is not one JSON object: '{\"event_type\": \"n\", \"payload\": \"1\"}{\"ev"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_read_ends_the_load(
    redis_played: Played, spark: SparkSession, tmp_path: Path, name: str, lines: list[str], told: str
):
    (tmp_path / name).write_text("\n".join(lines), encoding="latin-1")
    for options in ({"dry_run": True}, {"rejects": str(tmp_path / "rejects")}):
        assert complaint(spark, redis_played, tmp_path / name, **options).startswith(f"{tmp_path / name}: {told}")


@pytest.mark.campaign
def test_csv_files_with_other_headers_end_the_load(redis_played: Played, spark: SparkSession, tmp_path: Path):
    (tmp_path / "1.csv").write_text("event_type,payload\nn,1\n")
    (tmp_path / "2.csv").write_text("payload,event_type\n2,n\n")
    told = complaint(spark, redis_played, tmp_path, format="csv")
    assert told == f"{tmp_path}: the CSV files there must all have the same header, with a name for each column"
    (tmp_path / "1.csv").write_text(",event_type,payload\n0,n,1\n")
    assert counted(run(spark, redis_played, tmp_path / "1.csv")) == {"rows": 1, "put": 1}


def test_a_dry_run_puts_nothing(redis_played: Played, spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.csv").write_text("event_type,payload\na,1\na,2\n")
    assert counted(run(spark, redis_played, tmp_path / "a.csv", dry_run=True)) == {"rows": 2}
    assert redis_played.run(contents(redis_played.box)) == {}


def many(directory: Path, files: int = 3, rows: int = 200) -> Path:
    """Files in which every row stands twice, and once more in each other file."""
    directory.mkdir()
    for number in range(files):
        lines = [f"n,{row % (rows // 2)}" for row in range(rows)]
        (directory / f"{number}.csv").write_text("event_type,payload\n" + "\n".join(lines))
    return directory


def test_a_load_that_is_run_again_puts_what_is_missing(redis_played: Played, spark: SparkSession, tmp_path: Path):
    path = many(tmp_path / "files")
    full = Counter({str(number).encode(): 6 for number in range(100)})
    assert counted(run(spark, redis_played, path, format="csv")) == {"rows": 600, "put": 600}
    assert payloads(redis_played) == full
    some = [record.event_id for record in records(redis_played)][::7]
    redis_played.run(redis_played.box.operate.kill(some, who="ada", why="x"))
    redis_played.run(redis_played.box.operate.drop(some, who="ada", why="x"))
    again = run(spark, redis_played, path, format="csv")
    assert counted(again) == {"rows": 600, "put": len(some), "existing": 600 - len(some)}
    assert payloads(redis_played) == full
    assert counted(run(spark, redis_played, path, format="csv", job="another")) == {"rows": 600, "put": 600}


@pytest.mark.campaign
def test_ids_do_not_hang_on_how_many_work(redis_played: Played, spark: SparkSession, tmp_path: Path):
    """More cores, other settings, further files: the same rows are the same events."""
    path = many(tmp_path / "files")
    run(spark, redis_played, path, format="csv", job="once")
    for name, value in zip(SPLIT_SETTINGS, ("1000", "1", "50"), strict=True):
        spark.conf.set(name, value)
    try:
        (path / "further.csv").write_text("event_type,payload\nn,further\n")
        again = run(spark, redis_played, path, format="csv", job="once")
        assert {name: spark.conf.get(name) for name in SPLIT_SETTINGS} == dict(
            zip(SPLIT_SETTINGS, ("1000", "1", "50"), strict=True)
        )
    finally:
        for name in SPLIT_SETTINGS:
            spark.conf.unset(name)
    assert counted(again) == {"rows": 601, "put": 1, "existing": 600}


@pytest.mark.campaign
def test_rejects(redis_played: Played, spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.csv").write_text("event_type,payload\na,1\nb c,2\n")
    told = complaint(spark, redis_played, tmp_path / "a.csv")
    assert told.startswith("event_type: must be printable and without spaces, not 'b c' (row 2 of partition 0")
    loaded = run(spark, redis_played, tmp_path / "a.csv", rejects=str(tmp_path / "rejects"))
    assert counted(loaded) == {"rows": 2, "put": 1, "rejected": 1}
    (row,) = spark.read.parquet(str(tmp_path / "rejects")).collect()
    assert (row["event_type"], bytes(row["payload"]), row["rejected_field"]) == ("b c", b"2", "event_type")
    fixed = run(spark, redis_played, tmp_path / "rejects", format="parquet", constants={"event_type": "fixed"})
    assert counted(fixed) == {"rows": 1, "put": 1}


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("missing.csv", {}, "there is nothing at {path}"),
        (
            "a.csv",
            {"columns": {"payload": "body"}},
            "there is no column 'body' in the files; there are event_type, pay",
        ),
        ("a.csv", {"columns": {"colour": "payload"}}, "'colour' is not a column of events; there are event_type, payl"),
        (
            "a.csv",
            {"constants": {"payload": "x"}, "columns": {"payload": "event_type"}},
            "'payload' is given both by a",
        ),
        ("a.csv", {"constants": {"headers": "x"}}, "column 'headers' must be map<string,string>, not string"),
        ("a.dat", {}, "the name {path} does not show its format; give the format: parquet, json, csv"),
        ("a.csv", {"format": "xml"}, "there is no format 'xml'; there are parquet, json, csv"),
        ("b.csv", {}, "column 'payload' is missing; an event needs event_type and payload"),
        ("bad.parquet", {}, "{path} cannot be read; is it of another format?"),
        ("empty", {"format": "parquet"}, "there is no Parquet file to read there"),
        ("a.csv", {"rejects": "s3a://lake/rejects"}, "option rejects: 's3a://lake/rejects' is not a location "),
        ("when.csv", {}, 'Spark says: The value \'yesterday\' of the type "STRING" cannot be cast to "TIMESTAMP"'),
    ],
)
def test_a_mistake_is_one_clear_sentence(
    redis_played: Played, spark: SparkSession, tmp_path: Path, name: str, options: dict[str, Any], told: str
):
    (tmp_path / "a.csv").write_text("event_type,payload\na,1\n")
    (tmp_path / "b.csv").write_text("event_type\na\n")
    (tmp_path / "when.csv").write_text("event_type,payload,available_at\na,1,yesterday\n")
    (tmp_path / "bad.parquet").write_text("nonsense")
    (tmp_path / "empty").mkdir()
    path = tmp_path / name
    assert complaint(spark, redis_played, path, **options).startswith(told.format(path=path))


def test_a_server_that_is_not_there_is_reported_before_there_are_tasks(spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.csv").write_text("event_type,payload\na,1\n")
    with pytest.raises(RedboxError, match="cannot be reached"):
        load(spark, Address("redis://127.0.0.1:1/0", "b"), str(tmp_path / "a.csv"))


def test_the_command(redis_played: Played, command: Command, tmp_path: Path):
    (tmp_path / "users.csv").write_text("profile\nada\nbob\n")

    def load_file(name: str, *options: str) -> Result:
        return command(redis_played, "--json", "pipeline", "load", str(tmp_path / name), *options)

    done = load_file("users.csv", "--set", "event_type=user.imported", "--column", "payload=profile")
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["rows"], data["put"], data["rejected"], data["bytes"]) == (2, 2, 0, 6)
    assert payloads(redis_played) == Counter([b"ada", b"bob"])
    failed = load_file("gone.csv")
    assert failed.exit_code != 0
    assert failed.stdout == ""
    assert f"there is nothing at {tmp_path}/gone.csv" in failed.stderr.splitlines()[-1]
    assert "Traceback" not in failed.stderr
