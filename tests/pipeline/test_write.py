"""A DataFrame into a box."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from redbox import Box, Event
from redbox.errors import UsageError
from redbox.keys import counters, pending
from redbox.pipeline.failures import translate
from redbox.pipeline.source import rejects
from redbox.pipeline.tasks import map_arrow
from redbox.testing.conformance.steps import make_dead, publish
from tests import servers

from .conftest import Played

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.req("SP-2")
PLAIN = "event_type string, payload string"
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)


def write(frame: DataFrame, played: Played, **options: Any) -> None:
    frame.write.format("redbox").mode("append").options(**played.options(**options)).save()


def complaint(frame: DataFrame, played: Played, **options: Any) -> str:
    """The one sentence that a write fails with, which is also what Spark's error ends with."""
    with pytest.raises(PySparkException) as raised:
        write(frame, played, **options)
    sentence = translate(raised.value).message
    assert any(sentence in line for line in str(raised.value).strip().splitlines()[-3:])
    return sentence


async def payloads(box: Box) -> Counter[bytes]:
    return Counter([bytes(record.event.payload) async for record in box.list()])


def numbered(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("'n' event_type", "cast(id as string) payload")


# --- columns -----------------------------------------------------------------------------------------------------


def test_every_field_of_an_event_is_a_column(played: Played, spark: SparkSession):
    frame = spark.createDataFrame(
        [
            ("user.created", b"\x00\xff", "a", {"h": "1"}, {"m": "ä"}, "p", "o", "u", "UNTOUCHED", SOON, "x/y"),
            ("user.created", b"", "b", {}, None, None, None, None, None, None, None),
        ],
        "event_type string, payload binary, event_id string, headers map<string,string>, metadata map<string,string>, "
        "partition_key string, ordering_key string, unique_key string, unique_scope string, available_at timestamp, "
        "content_type string",
    )
    write(frame, played)
    records = {record.event_id: record for record in played.run(listed(played.box))}
    assert records.keys() == {"a", "b"}
    assert records["a"].event == Event(
        "user.created", b"\x00\xff", event_id="a", headers={"h": "1"}, metadata={"m": "ä"}, partition_key="p",
        ordering_key="o", unique_key="u", unique_scope="UNTOUCHED", available_at=SOON, content_type="x/y",
    )  # fmt: skip
    assert records["a"].phase == "SCHEDULED"
    plain = records["b"].event
    assert (plain.payload, plain.content_type, dict(plain.headers)) == (b"", "application/octet-stream", {})
    assert records["b"].phase == "AVAILABLE"


async def listed(box: Box) -> list[Any]:
    return [record async for record in box.list()]


def test_a_text_is_a_payload_too(redis_played: Played, spark: SparkSession):
    write(spark.createDataFrame([("n", "tschüß")], PLAIN), redis_played)
    (record,) = redis_played.run(listed(redis_played.box))
    assert (record.event.payload, record.event.content_type) == ("tschüß".encode(), "text/plain; charset=utf-8")


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("payload string", "column 'event_type' is missing; an event needs event_type and payload"),
        ("event_type string", "column 'payload' is missing"),
        (f"{PLAIN}, color string", "column 'color' is not part of an event; there are event_type, payload"),
        ("event_type int, payload string", "column 'event_type' must be string, not int"),
        ("event_type string, payload int", "column 'payload' must be binary or string, not int"),
        (f"{PLAIN}, headers map<string,int>", "column 'headers' must be map<string,string>, not map<string,int>"),
        (f"{PLAIN}, available_at string", "column 'available_at' must be timestamp, not string"),
    ],
)
def test_columns_that_do_not_fit_are_reported(redis_played: Played, spark: SparkSession, schema: str, told: str):
    assert told in complaint(spark.createDataFrame([], schema), redis_played)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "redis://127.0.0.1:1/0"}, "cannot be reached"),
        ({"on_conflict": "ignore"}, "option on_conflict: use 'raise' or 'skip', not 'ignore'"),
        ({"durability": "paper"}, "durability"),
        ({"reject": "x"}, "writing into a box has no option 'reject'; it has box, "),
        ({"box": "no such"}, "box name"),
        ({"rejects": "s3a://lake/rejects"}, "option rejects: 's3a://lake/rejects' is not a location that pyarrow "),
    ],
)
def test_a_mistake_is_one_clear_sentence(redis_played: Played, spark: SparkSession, options: dict[str, Any], told: str):
    assert told in complaint(numbered(spark, 1), redis_played, **options)


def test_a_box_is_never_overwritten(redis_played: Played, spark: SparkSession):
    redis_played.run(redis_played.box.put(Event("n", b"mine")))
    with pytest.raises(PySparkException) as raised:
        numbered(spark, 1).write.format("redbox").mode("overwrite").options(**redis_played.options()).save()
    assert translate(raised.value).message == 'a box is never overwritten; use .mode("append")'
    assert redis_played.run(payloads(redis_played.box)) == Counter([b"mine"])


# --- rows that cannot be put -------------------------------------------------------------------------------------

BAD = [
    ("n", "good", None, None),
    ("has space", "x", None, None),
    ("n", None, None, None),
    ("n", "x", "id\n", None),
    ("n", "x", None, {"redbox-x": "1"}),
    ("n", "y" * (1024 * 1024 + 1), "large", None),
    ("n", "good too", "g", {"x": "1"}),
]
BAD_SCHEMA = f"{PLAIN}, event_id string, headers map<string,string>"


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (1, "event_type: must be printable and without spaces, not 'has space' (row 1 of partition 0, event_type 'has"),
        (2, "payload: is null; give bytes or a text, if need be an empty one (row 1 of partition 0, event_type 'n')"),
        (3, "event_id: must be 1 to 128 printable ASCII characters without spaces (row 1 of partition 0, event_id "),
        (4, "headers: 'redbox-x' is reserved; names must not begin with redbox-, ce-, webhook- (row 1 of "),
        (5, "payload: is 1,048,577 bytes, and a box takes at most 1,048,576 (row 1 of partition 0, event_id 'large')"),
    ],
)
def test_a_bad_row_fails_the_job_and_is_named(redis_played: Played, spark: SparkSession, number: int, told: str):
    frame = spark.createDataFrame([BAD[number]], BAD_SCHEMA).coalesce(1)
    assert complaint(frame, redis_played).startswith(told)


def test_bad_rows_are_kept_aside_and_the_rest_is_put(redis_played: Played, spark: SparkSession, tmp_path: Path):
    frame = spark.createDataFrame(BAD, BAD_SCHEMA).coalesce(1)
    for _ in range(2):  # the same name, the same files, the same events
        write(frame, redis_played, rejects=str(tmp_path / "rejects"), job="bad rows")
        assert redis_played.run(payloads(redis_played.box)) == Counter([b"good", b"good too"])
        rejected = spark.read.parquet(str(tmp_path / "rejects")).orderBy("rejected_field", "event_type").collect()
        assert [(row["rejected_field"], row["event_type"], row["event_id"]) for row in rejected] == [
            ("event_id", "n", "id\n"),
            ("event_type", "has space", None),
            ("headers", "n", None),
            ("payload", "n", None),
            ("payload", "n", "large"),
        ]
    assert rejected[1]["rejected_because"] == "must be printable and without spaces, not 'has space'"
    assert bytes(rejected[1]["payload"]) == b"x"
    assert dict(rejected[2]["headers"]) == {"redbox-x": "1"}
    good = spark.createDataFrame(BAD[:1], BAD_SCHEMA).coalesce(1)
    write(good, redis_played, rejects=str(tmp_path / "rejects"), job="bad rows")
    assert list((tmp_path / "rejects").iterdir()) == []


def test_many_rejects_make_one_file(redis_played: Played, spark: SparkSession, tmp_path: Path):
    frame = spark.range(0, 2500, 1, 1).selectExpr("'a b' event_type", "cast(id as string) payload")
    write(frame, redis_played, rejects=f"file://{tmp_path}/rejects/")
    (file,) = (tmp_path / "rejects").iterdir()
    assert pq.read_table(file).num_rows == 2500


@pytest.mark.campaign
def test_rejects_that_cannot_be_written_are_reported(redis_played: Played, spark: SparkSession, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    frame = spark.createDataFrame(BAD[1:2], BAD_SCHEMA)
    told = complaint(frame, redis_played, rejects=str(tmp_path / "file" / "rejects"))
    assert told.startswith(f"rejects: {tmp_path}/file/rejects cannot be written")


def test_rejects_on_a_file_system_that_does_not_answer_are_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch):
    def fails(path: str) -> None:
        raise OSError("no libjvm\nnor there")

    monkeypatch.setattr(rejects, "_find", fails)
    with pytest.raises(UsageError, match=r"^option rejects: hdfs://lake/x cannot be used: no libjvm$"):
        rejects.check_path("hdfs://lake/x")


@pytest.mark.campaign
def test_a_held_unique_key(redis_played: Played, spark: SparkSession, tmp_path: Path):
    redis_played.run(redis_played.box.put(Event("n", b"first", event_id="holder", unique_key="u")))
    frame = spark.createDataFrame([("n", "second", "u"), ("n", "third", None)], f"{PLAIN}, unique_key string")
    told = complaint(frame, redis_played)
    assert "unique_key 'u' is held by event holder (row 1 of partition" in told
    write(frame, redis_played, on_conflict="skip", job="once")
    assert redis_played.run(payloads(redis_played.box)).keys() == {b"first", b"third"}
    write(frame, redis_played, rejects=str(tmp_path / "rejects"), job="once")
    (row,) = spark.read.parquet(str(tmp_path / "rejects")).collect()
    assert (row["rejected_field"], row["unique_key"], bytes(row["payload"])) == ("unique_key", "u", b"second")
    assert "is held by event holder" in row["rejected_because"]


@pytest.mark.campaign
def test_an_id_with_other_content(redis_played: Played, spark: SparkSession, tmp_path: Path):
    redis_played.run(redis_played.box.put(Event("n", "first", event_id="one")))
    schema = f"{PLAIN}, event_id string"
    write(spark.createDataFrame([("n", "first", "one")], schema), redis_played)  # the same: harmless
    frame = spark.createDataFrame([("n", "second", "one")], schema)
    for options in ({}, {"on_conflict": "skip"}):
        told = complaint(frame, redis_played, **options)
        assert told.startswith("event_id one already belongs to an event with a different payload")
        assert "event_id 'one')" in told
    write(frame, redis_played, rejects=str(tmp_path / "rejects"))
    (row,) = spark.read.parquet(str(tmp_path / "rejects")).collect()
    assert row["rejected_field"] == "event_id"
    assert redis_played.run(payloads(redis_played.box)) == Counter([b"first"])


@pytest.mark.campaign
def test_a_full_box_fails_the_job_and_rejects_no_row(redis_played: Played, spark: SparkSession, tmp_path: Path):
    redis_played.run(redis_played.box.operate.configure(max_pending=3, who="ada", why="a test"))
    told = complaint(numbered(spark, 5, 1), redis_played, rejects=str(tmp_path / "rejects"))
    assert "holds max_pending (3) events already" in told
    assert not (tmp_path / "rejects").exists()


def test_from_one_box_into_another(redis_played: Played, spark: SparkSession):
    box = redis_played.box

    async def fill() -> list[Any]:
        await publish(box, Event("a", b"\x00", event_id="published", headers={"h": "1"}, metadata={"m": "1"}))
        await make_dead(box, Event("b", {"n": 1}, event_id="dead", unique_key="u", unique_scope="UNTOUCHED"))
        await box.put(Event("c", "text", event_id="pending", ordering_key="o", partition_key="p"))
        return await listed(box)

    records = redis_played.run(fill())
    other = Played(redis_played.url, redis_played)  # type: ignore[arg-type]  # has run, as a runner has
    write(redis_played.read(spark), other)
    copies = {record.event_id: record for record in redis_played.run(listed(other.box))}
    redis_played.run(other.box.aclose())

    def as_put(record: Any) -> Event:
        return msgspec.structs.replace(record.event, available_at=None)  # what was due before is due now

    assert {event_id: as_put(copy) for event_id, copy in copies.items()} == {r.event_id: as_put(r) for r in records}
    assert {(copy.state, copy.attempts) for copy in copies.values()} == {("PENDING", 0)}


# --- once --------------------------------------------------------------------------------------------------------


def failing_once(frame: DataFrame, after: int) -> DataFrame:
    """The frame; in the first attempt of each task, rows after the first `after` cannot be put."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context, seen = TaskContext.get(), 0
        assert context is not None
        for batch in batches:
            seen += batch.num_rows
            if context.attemptNumber() == 0 and seen > after:
                bad = [pa.array(["not good"] * batch.num_rows), batch.column("payload")]
                batch = pa.RecordBatch.from_arrays(bad, schema=batch.schema)  # noqa: PLW2901
            yield batch

    return map_arrow(frame, work, PLAIN)


def repeated(played: Played) -> int:
    """How many events were put that were there already: without them, nothing was tried again."""
    (count,) = played.run(played.box._store.exchange([("HGET", counters(played.name), "repeated")]))
    return int(count or 0)


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "50")
    yield
    spark.conf.set(name, before)


@pytest.mark.usefixtures("small_batches")
def test_a_task_that_is_run_again_puts_each_row_once(redis_played: Played, spark: SparkSession):
    write(failing_once(numbered(spark, 1000), after=300), redis_played)
    assert redis_played.run(payloads(redis_played.box)) == Counter(str(n).encode() for n in range(1000))
    assert repeated(redis_played) == 600  # of each of the two partitions, what came before the bad rows


@pytest.mark.usefixtures("small_batches")
def test_rows_that_are_the_same_stay_as_many_as_there_are(redis_played: Played, spark: SparkSession):
    frame = spark.range(0, 600, 1, 2).selectExpr("'n' event_type", "cast(id % 3 as string) payload")
    write(failing_once(frame, after=150), redis_played)
    assert redis_played.run(payloads(redis_played.box)) == Counter({b"0": 200, b"1": 200, b"2": 200})
    assert repeated(redis_played) == 300


def test_the_order_of_the_rows_does_not_matter(redis_played: Played, spark: SparkSession):
    frame = numbered(spark, 100, 1)
    write(frame, redis_played, job="once")
    write(frame.sortWithinPartitions("payload"), redis_played, job="once")
    assert redis_played.run(payloads(redis_played.box)) == Counter(str(n).encode() for n in range(100))


def test_a_job_that_is_run_again_puts_what_is_missing(redis_played: Played, spark: SparkSession):
    frame = numbered(spark, 1000)
    bad = frame.selectExpr("if(payload = '990', 'not good', event_type) event_type", "payload")
    assert "'not good'" in complaint(bad, redis_played, job="import 1")
    before = redis_played.run(payloads(redis_played.box))
    assert 0 < before.total() < 1000
    for _ in range(2):
        write(frame, redis_played, job="import 1")
        assert redis_played.run(payloads(redis_played.box)) == Counter(str(n).encode() for n in range(1000))
    write(frame, redis_played)  # another job, other ids
    assert redis_played.run(payloads(redis_played.box)).total() == 2000


# --- a server that goes away -------------------------------------------------------------------------------------


class Absence:
    """A server that goes away when some rows were put, and rows that wait for it."""

    def __init__(self, server: servers.Server, directory: Path) -> None:
        self._server = server
        self._gone, self._again, self._back = (directory / name for name in ("gone", "again", "back"))
        self.there = 0

    def rows(self, spark: SparkSession) -> DataFrame:
        """Three thousand. The first attempt of a task goes on with the last third when the server is away, the others
        begin when it is back. Spark hands on some 64 KiB at a time: these come a batch at a time."""
        gone, again, back = self._gone, self._again, self._back

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            if context.attemptNumber() > 0:
                again.touch()
                servers.poll(back.exists, "the server did not come back", 60)
            for number, batch in enumerate(batches):
                if number == 20:
                    servers.poll(gone.exists, "the server did not go away", 60)
                yield batch

        frame = spark.range(0, 3000, 1, 2).selectExpr("'n' event_type", "lpad(cast(id as string), 2000, '0') payload")
        return map_arrow(frame, work, PLAIN)

    def begin(self) -> None:
        with self._server.client() as client:
            servers.poll(lambda: client.hget(counters("b"), "put") not in (None, "0"), "nothing was put", 60)
            self.there = int(client.hget(counters("b"), "put"))
        self._server.stop()
        self._gone.touch()

    def end(self, seconds: float | None) -> None:
        """After `seconds`, or when a task is retried."""
        if seconds is None:
            servers.poll(self._again.exists, "no task was tried again", 60)
        else:
            time.sleep(seconds)
        self._server.start()
        self._back.touch()

    def during(self, *steps: Callable[[], None]) -> threading.Thread:
        """Does these beside the test."""
        thread = threading.Thread(target=lambda: [step() for step in steps])
        thread.start()
        return thread


@pytest.mark.campaign
@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("patience", [0, 30])
def test_a_server_that_goes_and_comes_back(spark: SparkSession, patience: int, tmp_path: Path):
    """Once by being run again, once by waiting: for longer than four attempts of a task without patience take."""
    with servers.redis_server(appendonly="yes", appendfsync="always") as server:
        absence = Absence(server, tmp_path)
        breaker = absence.during(absence.begin, lambda: absence.end(1.5 if patience else None))
        absence.rows(spark).write.format("redbox").mode("append").options(
            url=server.url, box="b", patience=patience
        ).save()
        breaker.join()
        assert 0 < absence.there < 3000
        with server.client() as client:
            assert client.zcard(pending("b")) == 3000


@pytest.mark.campaign
@pytest.mark.usefixtures("small_batches")
def test_a_server_that_is_gone_for_good_is_reported(spark: SparkSession, tmp_path: Path):
    with servers.redis_server() as server:
        absence = Absence(server, tmp_path)
        breaker = absence.during(absence.begin, (tmp_path / "back").touch)
        with pytest.raises(PySparkException) as raised:
            absence.rows(spark).write.format("redbox").mode("append").options(
                url=server.url, box="b", patience="0.5"
            ).save()
        breaker.join()
    told = translate(raised.value).message
    assert told.startswith(f"redis://127.0.0.1:{server.port}/0 cannot be reached")
