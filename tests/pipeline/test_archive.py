"""Terminal events into a lake, and out of Redis only when they are safely there."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JNetworkError

from redbox import Event
from redbox.errors import RedboxError, UsageError
from redbox.events import State
from redbox.pipeline.archive import job
from redbox.pipeline.archive.job import archive, read_archive
from redbox.pipeline.archive.layout import Archive
from redbox.pipeline.source.options import Address
from redbox.pipeline.spark_session import set_for
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import claim_one, contents, known, make_dead, publish

from .conftest import Command, Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-5")


class Power(Exception):
    """It went out."""


def fill(played: Played, count: int = 20) -> set[str]:
    """Published and dead events of two types, and one that is neither."""
    box = played.box
    done = [Event(f"user.{number % 2}", {"n": number}, event_id=f"p{number:03}") for number in range(count)]
    played.run(publish(box, *done))
    played.run(
        make_dead(box, *[Event("user.1", event_id=f"d{number:03}", headers={"a": "b"}) for number in range(count)])
    )
    played.run(box.put(Event("waits", event_id="waits")))
    return {f"{kind}{number:03}" for kind in "pd" for number in range(count)}


def address(played: Played) -> Address:
    return Address(played.url, played.name)


def archived(spark: SparkSession, path: Path) -> Counter[tuple[str, int]]:
    return Counter((row[0], row[1]) for row in read_archive(spark, str(path)).select("event_id", "claim").collect())


def in_redis(played: Played) -> set[str]:
    async def ids() -> set[str]:
        return {record.event_id async for record in played.box.list()}

    return played.run(ids())


def test_a_manifest_lists_the_rows_of_each_file(redis_played: Played, spark: SparkSession, tmp_path: Path):
    """Whatever the types are called: one task writes files of the same name into several directories."""
    types = ["a:b", "a%3Ab", "plain", "ä/ö?", "x=1&y+{z}"]
    events = [Event(name, event_id=f"{at}-{n}") for at, name in enumerate(types) for n in range(at + 1)]
    redis_played.run(publish(redis_played.box, *events))
    lake = tmp_path / "my lake"
    assert archive(spark, address(redis_played), str(lake)).removed == len(events)
    (manifest,) = Archive(spark, str(lake)).manifests()
    assert manifest.rows == sum(file.rows for file in manifest.files) == len(events)
    assert {file.path: file.rows for file in manifest.files} == {
        str(file.relative_to(lake)): pq.read_metadata(file).num_rows for file in lake.rglob("*.parquet")
    }
    read = read_archive(spark, str(lake)).groupBy("event_type").count().collect()
    assert {row["event_type"]: row["count"] for row in read} == {name: at + 1 for at, name in enumerate(types)}


def test_terminal_events_are_moved_whole(played: Played, spark: SparkSession, tmp_path: Path):
    ids = fill(played)
    before = {row["event_id"]: row for row in played.read(spark, state="PUBLISHED,DEAD").collect()}
    done = archive(spark, address(played), str(tmp_path / "lake"))
    assert (done.rows, done.removed, done.left) == (40, 40, 0)
    assert done.bytes > 0
    assert in_redis(played) == {"waits"}
    assert played.run(check_invariants(played.box)) == []
    table = read_archive(spark, str(tmp_path / "lake"))
    rows = {row["event_id"]: row for row in table.drop("run", "date").collect()}
    assert rows == before
    assert rows.keys() == ids
    paths = {str(path.parent.relative_to(tmp_path / "lake/data")) for path in (tmp_path / "lake").rglob("*.parquet")}
    assert {path.partition("/")[2].partition("/")[2] for path in paths} == {"event_type=user.0", "event_type=user.1"}
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) == 2
    again = archive(spark, address(played), str(tmp_path / "lake"))
    assert (again.rows, again.removed) == (0, 0)
    assert archived(spark, tmp_path / "lake").keys() == {(row["event_id"], row["claim"]) for row in before.values()}


@pytest.mark.campaign
def test_times_are_what_other_readers_understand(redis_played: Played, spark: SparkSession, tmp_path: Path):
    """Whole microseconds in UTC, with statistics, although the session would write INT96."""
    redis_played.run(make_dead(redis_played.box, Event("n", event_id="a")))
    put_at = redis_played.run(known(redis_played.box, "a")).created_at
    with set_for(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        archive(spark, address(redis_played), str(tmp_path))
        assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"
    (file,) = tmp_path.rglob("*.parquet")
    check_times(file, {"created_at", "available_at", "claimed_at", "lease_until", "published_at", "died_at", "at"})
    group = pq.read_metadata(file).row_group(0)
    (column,) = [at for at in map(group.column, range(group.num_columns)) if at.path_in_schema == "created_at"]
    assert (column.statistics.min, column.statistics.max) == (put_at, put_at)


def check_times(file: Path, names: set[str]) -> None:
    """Which columns of a Parquet file are times, and that all of them are INT64 in UTC."""
    columns = pq.ParquetFile(file).schema
    kinds = {
        column.name: (column.physical_type, str(column.logical_type))
        for column in (columns.column(at) for at in range(len(columns)))
        if column.physical_type == "INT96" or column.logical_type.type == "TIMESTAMP"
    }
    assert kinds.keys() == names
    for kind, logical in kinds.values():
        assert kind == "INT64"
        assert "isAdjustedToUTC=true, timeUnit=microseconds" in logical


def test_only_what_is_older_goes(redis_played: Played, spark: SparkSession, tmp_path: Path):
    redis_played.run(publish(redis_played.box, Event("n", event_id="old")))
    redis_played.run(advance(redis_played.box, days=8))
    redis_played.run(publish(redis_played.box, Event("n", event_id="new")))
    dry = archive(spark, address(redis_played), str(tmp_path), older_than=timedelta(days=7), dry_run=True)
    assert (dry.rows, dry.removed) == (1, 0)
    assert list(tmp_path.iterdir()) == []
    assert archive(spark, address(redis_played), str(tmp_path), older_than=timedelta(days=7)).removed == 1
    assert in_redis(redis_played) == {"new"}


def die_at(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The power goes out before or after a step of the run."""
    owner: Any = {"_settle": job, "_write": job, "_remove_known": job}.get(step.partition(":")[0], Archive)
    name, _, when = step.partition(":")
    real = getattr(owner, name)

    def dies(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, real)
        if when == "after":
            real(*arguments, **options)
        raise Power

    monkeypatch.setattr(owner, name, dies)


@pytest.mark.parametrize(
    "step",
    [
        "write_removal:before",
        *[
            pytest.param(step, marks=pytest.mark.campaign)
            for step in (
                "_write:before", "_write:after", "write_manifest:before", "write_manifest:after", "_settle:after",
                "write_removal:after", "read_files:before",
            )
        ],
    ],
)  # fmt: skip
def test_cut_short_anywhere_and_run_again_nothing_is_lost_or_doubled(
    redis_played: Played, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
):
    ids = fill(redis_played, 5)
    die_at(monkeypatch, step)
    with pytest.raises(Power):
        archive(spark, address(redis_played), str(tmp_path))
    known = archived(spark, tmp_path)
    assert {event_id for event_id, _ in known} | in_redis(redis_played) >= ids
    assert all(count == 1 for count in known.values())
    archive(spark, address(redis_played), str(tmp_path))
    known = archived(spark, tmp_path)
    assert {event_id for event_id, _ in known} == ids
    assert all(count == 1 for count in known.values())
    assert in_redis(redis_played) == {"waits"}
    runs = {path.name for path in (tmp_path / "data").iterdir() if not path.name.startswith(".")}
    assert runs == {f"run={manifest.run}" for manifest in Archive(spark, str(tmp_path)).manifests()}


@pytest.mark.campaign
def test_what_is_replayed_while_it_is_archived_stays(
    redis_played: Played, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The new life of the event is archived by the next run, under its own claim number."""
    box = redis_played.box
    redis_played.run(publish(box, Event("n", event_id="a"), Event("n", event_id="b")))
    real = job._settle

    def replayed(*arguments: Any, **options: Any) -> Any:
        redis_played.run(box.replay(["a"]))
        redis_played.run(box.ack(redis_played.run(claim_one(box))))
        return real(*arguments, **options)

    monkeypatch.setattr(job, "_settle", replayed)
    done = archive(spark, address(redis_played), str(tmp_path))
    assert (done.rows, done.removed, done.left) == (2, 1, 1)
    assert in_redis(redis_played) == {"a"}
    monkeypatch.setattr(job, "_settle", real)
    assert archive(spark, address(redis_played), str(tmp_path)).removed == 1
    assert sorted(event_id for event_id, _ in archived(spark, tmp_path)) == ["a", "a", "b"]
    assert max(archived(spark, tmp_path).values()) == 1


def test_keep_leaves_redis_alone_and_the_next_run_does_not_copy_again(
    redis_played: Played, spark: SparkSession, tmp_path: Path
):
    redis_played.run(publish(redis_played.box, *[Event("n", event_id=f"p{number}") for number in range(4)]))
    redis_played.run(make_dead(redis_played.box, *[Event("n", event_id=f"d{number}") for number in range(3)]))
    assert archive(spark, address(redis_played), str(tmp_path), keep=True).rows == 7
    assert len(in_redis(redis_played)) == 7
    redis_played.run(publish(redis_played.box, Event("n", event_id="new")))
    assert archive(spark, address(redis_played), str(tmp_path), keep=True).rows == 1
    assert max(archived(spark, tmp_path).values()) == 1
    redis_played.run(redis_played.box.operate.configure(sweep="archived", who="ada", why="a test"))
    redis_played.run(publish(redis_played.box, Event("n", event_id="notyet")))
    swept = redis_played.run(redis_played.box.sweep(keep_published=0, keep_dead=0))
    assert (swept.published, swept.dead) == (5, 3)
    assert in_redis(redis_played) == {"notyet"}


@pytest.mark.campaign
def test_a_run_that_was_to_keep_is_finished_without_removing(
    redis_played: Played, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ids = fill(redis_played, 3)
    die_at(monkeypatch, "_settle:before")
    with pytest.raises(Power):
        archive(spark, address(redis_played), str(tmp_path), keep=True)
    done = archive(spark, address(redis_played), str(tmp_path), keep=True)
    assert (done.finished, done.rows, done.removed) == (1, 0, 6)
    assert in_redis(redis_played) == ids | {"waits"}


@pytest.mark.campaign
def test_the_finished_removal_of_an_earlier_run_is_reported(
    redis_played: Played, spark: SparkSession, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
):
    fill(redis_played, 3)
    die_at(monkeypatch, "_settle:before")
    with pytest.raises(Power):
        archive(spark, address(redis_played), str(tmp_path / "lake"))
    told = command(redis_played, "pipeline", "archive", "--to", str(tmp_path / "lake")).output
    assert "finished the removal of 1 earlier run; the events are counted below" in told
    assert "0 events archived in 0 files, 6 removed, 0 left" in told


@pytest.mark.campaign
def test_a_dead_head_that_blocks_its_line_stays(redis_played: Played, spark: SparkSession, tmp_path: Path):
    box = redis_played.box
    redis_played.run(box.operate.configure(dead_head="block", who="ada", why="a test"))
    redis_played.run(make_dead(box, Event("n", event_id="head", ordering_key="k")))
    for _ in range(2):
        done = archive(spark, address(redis_played), str(tmp_path))
        assert in_redis(redis_played) == {"head"}
    assert (done.rows, done.removed, done.left) == (0, 0, 1)
    redis_played.run(box.operate.configure(dead_head="skip", who="ada", why="a test"))
    done = archive(spark, address(redis_played), str(tmp_path))
    assert (done.rows, done.removed, done.left) == (0, 1, 0)
    assert in_redis(redis_played) == set()
    assert archived(spark, tmp_path).total() == 1


@pytest.mark.campaign
def test_what_was_kept_leaves_with_a_later_run_that_does_not_keep(
    redis_played: Played, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    box, at, lake = redis_played.box, address(redis_played), str(tmp_path)
    redis_played.run(publish(box, *[Event("n", event_id=f"p{number}") for number in range(3)]))
    redis_played.run(make_dead(box, Event("n", event_id="dead")))
    redis_played.run(advance(box, days=8))
    redis_played.run(publish(box, Event("n", event_id="young")))
    assert archive(spark, at, lake, keep=True).rows == 5
    redis_played.run(box.replay(["p0"]))

    def later(**options: Any) -> tuple[int, int, int]:
        done = archive(spark, at, lake, **options)
        return done.rows, done.removed, done.left

    die_at(monkeypatch, "_remove_known:before")
    with pytest.raises(Power):
        later(older_than=timedelta(days=7), states=(State.PUBLISHED,))
    assert in_redis(redis_played) == {"p0", "p1", "p2", "dead", "young"}
    assert later(older_than=timedelta(days=7), states=(State.PUBLISHED,)) == (0, 2, 0)
    assert in_redis(redis_played) == {"p0", "dead", "young"}
    assert later(keep=True) == (0, 0, 0)
    redis_played.run(box.put(Event("n", event_id="new")))
    redis_played.run(box.ack(redis_played.run(box.claim("relay-1"))))
    assert later() == (2, 4, 0)
    assert in_redis(redis_played) == set()
    assert max(archived(spark, tmp_path).values()) == 1


@pytest.mark.campaign
def test_what_a_kill_left_of_a_small_file_is_no_part_of_the_archive(
    redis_played: Played, spark: SparkSession, tmp_path: Path
):
    home = tmp_path / "_redbox"
    home.mkdir()
    (home / ".archive.json.0123456789ab.part").write_text('{"form')
    with pytest.raises(UsageError, match="there is no archive at"):
        read_archive(spark, str(tmp_path))
    redis_played.run(publish(redis_played.box, Event("n", event_id="a")))
    assert archive(spark, address(redis_played), str(tmp_path)).removed == 1
    for directory in ("runs", "removed"):
        (home / directory / ".20260131T120000-0.json.0123456789ab.part").write_text('{"run')
    assert archive(spark, address(redis_played), str(tmp_path)).rows == 0
    assert archived(spark, tmp_path).total() == 1


def test_readers_use_only_what_manifests_list(redis_played: Played, spark: SparkSession, tmp_path: Path):
    fill(redis_played, 3)
    archive(spark, address(redis_played), str(tmp_path))
    known = archived(spark, tmp_path)
    (some, *_) = tmp_path.rglob("*.parquet")
    stray = tmp_path / "data" / "run=stray" / "date=2026-01-01" / "event_type=n" / "part-0.parquet"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(some.read_bytes())
    (some.parent / "stray.parquet").write_bytes(some.read_bytes())
    assert archived(spark, tmp_path) == known


def test_a_file_that_is_not_as_it_was_written_removes_nothing(
    redis_played: Played, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fill(redis_played, 3)
    before = redis_played.run(contents(redis_played.box))
    real = Archive.list_data

    def without_one(self: Archive, run: str) -> dict[str, int]:
        found = real(self, run)
        found.pop(next(iter(found)))
        return found

    monkeypatch.setattr(Archive, "list_data", without_one)
    with pytest.raises(RedboxError, match="do not hold what was written into them"):
        archive(spark, address(redis_played), str(tmp_path))
    assert archived(spark, tmp_path) == Counter()
    assert redis_played.run(contents(redis_played.box)) == before


def test_paths_that_are_not_ours_are_left_alone(redis_played: Played, spark: SparkSession, tmp_path: Path):
    fill(redis_played, 1)
    before = redis_played.run(contents(redis_played.box))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    (tmp_path / "home" / "_redbox").mkdir(parents=True)
    (tmp_path / "home" / "_redbox" / ".letter").write_text("dear")
    for name in ("full", "home"):
        with pytest.raises(UsageError, match="is not empty and is not an archive"):
            archive(spark, address(redis_played), str(tmp_path / name))
    for name, marker, complaint in (
        ("other", {"format": 1, "box": "other"}, "is the archive of box 'other'"),
        ("newer", {"format": 99, "box": redis_played.name}, "written by a newer redbox"),
    ):
        (tmp_path / name / "_redbox").mkdir(parents=True)
        (tmp_path / name / "_redbox" / "archive.json").write_text(json.dumps(marker))
        with pytest.raises(RedboxError, match=complaint):
            archive(spark, address(redis_played), str(tmp_path / name))
    with pytest.raises(UsageError, match="there is no archive at"):
        read_archive(spark, str(tmp_path / "nothing"))
    assert redis_played.run(contents(redis_played.box)) == before


def test_one_run_at_a_time(redis_played: Played, spark: SparkSession, tmp_path: Path):
    """The lock comes before the first file: two first runs at once do not meet in the same directory."""
    from redbox.pipeline.archive.lock import locked

    fill(redis_played, 1)
    with locked(address(redis_played)) as still_ours:
        still_ours()
        with pytest.raises(RedboxError, match=r"another archive run of box .* is running; try again when it has ended"):
            archive(spark, address(redis_played), str(tmp_path))
        assert list(tmp_path.iterdir()) == []
    assert archive(spark, address(redis_played), str(tmp_path)).removed == 2


def test_two_boxes_that_begin_at_one_path_at_once(
    redis_played: Played, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each has a lock of its own: the marker file decides."""
    fill(redis_played, 1)
    real = Archive._is_empty

    def beaten(self: Archive) -> bool:
        empty = real(self)
        (tmp_path / "_redbox").mkdir()
        (tmp_path / "_redbox" / "archive.json").write_text(json.dumps({"format": 1, "box": "other"}))
        return empty

    monkeypatch.setattr(Archive, "_is_empty", beaten)
    with pytest.raises(UsageError, match="is the archive of box 'other', not of"):
        archive(spark, address(redis_played), str(tmp_path))


@pytest.mark.campaign
@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111), EOFError()]
)
def test_a_spark_that_died_is_reported_as_that(
    redis_played: Played, spark: SparkSession, command: Command, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    def is_gone() -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(job, "archive", fails)
    monkeypatch.setattr(spark, "stop", is_gone)
    done = command(redis_played, "pipeline", "archive", "--to", "lake")
    assert done.exit_code == 1
    assert (
        "error: Spark died, most likely for lack of memory; give it more by setting spark.driver.memory, as in --conf "
        "spark.driver.memory=4g, and on a cluster spark.executor.memory"
    ) in " ".join(done.output.split())
