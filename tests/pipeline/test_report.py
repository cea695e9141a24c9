"""The report: figures against those worked out by hand, tables, page and command."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from redbox import Event, fingerprints, keys
from redbox.errors import UnknownBox, UsageError
from redbox.pipeline import files
from redbox.pipeline.report import tables as report_tables
from redbox.pipeline.report.facts import STEPS, time_axis
from redbox.pipeline.report.job import Report, report, table_path
from redbox.pipeline.report.tables import TABLES, fingerprint
from redbox.pipeline.source.options import Address
from redbox.pipeline.spark_session import set_for
from redbox.testing.conformance.steps import claim_one, claim_soon, make_dead, publish, store_time
from tests.unit.test_fingerprints import PRINTS, corpus

from .conftest import Command, Played
from .test_archive import check_times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.req("SP-8")

MINUTE, HOUR = 60_000, 3_600_000
REJECTED = 'HTTP 422 Unprocessable Entity: {"error": "order %d has no address"}'
DOWN = "HTTP 503 Service Unavailable: request %s took 10.5 s"
EVIL = "<script>alert(1)</script> & 'x' is no field"
UUIDS = [f"0190d1b4-1111-7abc-8def-00000000000{number}" for number in range(3)]


class Scene:
    """A box six hours long, with times in milliseconds after its first hour."""

    def __init__(self, played: Played) -> None:
        self.played, self.box = played, played.box
        now = played.run(store_time(self.box))
        self.start = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=6)

    async def at(self, event_id: str, **times: int) -> None:
        """Moves an event to times of its own."""
        begin = int(self.start.timestamp() * 1000)
        moved = {name: begin + at for name, at in times.items()}
        event = keys.event(self.box.name, event_id)
        commands: list[Any] = [("HSET", event, *[part for item in moved.items() for part in item])]
        for name, index in (("published_at", "published"), ("died_at", "dead")):
            if name in moved:
                commands.append(("ZADD", f"{keys.prefix(self.box.name)}:{index}", moved[name], event_id))
        await self.box._store.exchange(commands)

    async def play(self) -> None:
        box = self.box
        await publish(box, *[Event("order.paid", event_id=f"o{n}", partition_key="eu") for n in range(1, 6)])
        for number in range(1, 6):
            await self.at(f"o{number}", created_at=0, published_at=100 * number)
        # Scheduled for an hour later, and published 50 ms after that.
        await publish(box, Event("mail.send", event_id="scheduled"))
        await self.at("scheduled", created_at=MINUTE, available_at=HOUR, published_at=HOUR + 50)
        # Published at the third attempt, a minute after it was put.
        await box.put(Event("mail.send", event_id="retried", ordering_key="line-7"))
        for each in UUIDS[:2]:
            await box.retry([await claim_soon(box)], error=DOWN % each)
        await box.ack([await claim_soon(box)])
        await self.at("retried", created_at=30 * MINUTE, available_at=30 * MINUTE + 50_000, published_at=31 * MINUTE)
        # Published, replayed two hours later, and published 70 ms after that.
        await publish(box, Event("mail.send", event_id="replayed"))
        await box.replay(["replayed"])
        await box.ack([await claim_one(box)])
        await self.at("replayed", created_at=0, available_at=2 * HOUR, published_at=2 * HOUR + 70)
        # The same, but it kept its attempts: it counts from its replay, which is now.
        await publish(box, Event("kept", event_id="kept"))
        await box.replay(["kept"], reset=False)
        await box.ack([await claim_one(box)])
        await self.at("kept", created_at=0)
        # The dead.
        await box.put(Event("order.paid", event_id="d1"))
        await box.retry([await claim_one(box)], error=DOWN % UUIDS[2])
        await box.kill([await claim_soon(box)], reason=REJECTED % 17)
        await make_dead(box, Event("order.paid", event_id="d2"), reason=REJECTED % 18)
        await make_dead(box, Event("<b>user</b>", event_id="d3"), reason=EVIL)
        for event_id in ("d1", "d2", "d3"):
            await self.at(event_id, created_at=HOUR, died_at=HOUR + 1000)
        # Those that wait.
        await box.put(Event("later", event_id="later", delay=7200))
        await box.put(Event("order.paid", event_id="due"))
        await self.at("due", created_at=5 * HOUR)


@pytest.fixture(scope="module")
def scene(redis_url: str) -> Iterator[Scene]:
    """Played once: reports change nothing."""
    with asyncio.Runner() as runner:
        made = Scene(Played(redis_url, runner))
        runner.run(made.play())
        yield made
        runner.run(made.box.aclose())


@pytest.fixture(scope="module")
def reported(scene: Scene, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of its report: given as a URL, and made by the report; the second one replaces the first."""
    to = tmp_path_factory.mktemp("report") / "new"
    with set_for(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        for until in (scene.start - timedelta(days=1), None):
            done = report(spark, address(scene.played), f"file:{to}", until=until)
    assert (done.events, done.published, done.dead, done.pending, done.failures) == (14, 9, 3, 2, 6)
    assert done.tables == list(TABLES)
    assert done.page == f"file:{to}/report.html"
    return to


def address(played: Played) -> Address:
    return Address(played.url, played.name)


def read(spark: SparkSession, to: Path, name: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.read.parquet(table_path(str(to), name, "parquet")).collect()]


def by(rows: list[dict[str, Any]], *names: str) -> dict[Any, dict[str, Any]]:
    return {tuple(row[name] for name in names) if len(names) > 1 else row[names[0]]: row for row in rows}


def figures(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def test_the_figures_are_those_worked_out_by_hand(scene: Scene, spark: SparkSession, reported: Path):
    overview = by(read(spark, reported, "overview"), "state", "phase")
    assert {key: row["events"] for key, row in overview.items()} == {
        ("PUBLISHED", "COMPLETED"): 9, ("DEAD", "DEAD"): 3, ("PENDING", "SCHEDULED"): 1, ("PENDING", "AVAILABLE"): 1,
    }  # fmt: skip

    volume = {
        (hours_in(scene, row["hour"]), row["event_type"]): figures(row, "events", "published", "dead")
        for row in read(spark, reported, "volume")
        if row["event_type"] != "later"
    }
    assert volume == {
        (0, "order.paid"): (5, 5, 0), (0, "mail.send"): (3, 3, 0), (0, "kept"): (1, 1, 0), (1, "order.paid"): (2, 0, 2),
        (1, "<b>user</b>"): (1, 0, 1), (5, "order.paid"): (1, 0, 0),
    }  # fmt: skip

    latency = by(read(spark, reported, "latency"), "event_type")
    names = ("published", "retried", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
    assert figures(latency["order.paid"], *names) == (5, 0, 300, 500, 500, 500, 500)
    assert figures(latency["mail.send"], *names) == (3, 1, 70, MINUTE, MINUTE, MINUTE, MINUTE)
    assert latency["kept"]["max_ms"] < MINUTE
    assert figures(latency[None], "published", "retried", "max_ms") == (9, 1, MINUTE)

    throughput = {
        hours_in(scene, row["hour"]): figures(row, "published", "died", "p50_ms", "p99_ms")
        for row in read(spark, reported, "throughput")
    }
    assert throughput[0] == (6, 0, 300, MINUTE)
    assert throughput[1] == (1, 3, 50, 50)
    assert throughput[2] == (1, 0, 70, 70)

    attempts = {row["attempts"]: figures(row, "published", "dead") for row in read(spark, reported, "attempts")}
    assert attempts == {1: (6, 2), 2: (2, 1), 3: (1, 0)}

    keys_ = read(spark, reported, "slowest_keys")  # line-7 has one event only
    assert [figures(row, "kind", "key", "published", "p50_ms", "p99_ms") for row in keys_] == [
        ("partition", "eu", 5, 300, 500)
    ]


def hours_in(scene: Scene, at: datetime) -> float:
    return (at.astimezone(UTC) - scene.start).total_seconds() / 3600


def test_errors_that_differ_in_ids_and_numbers_are_one_cause(spark: SparkSession, reported: Path):
    causes = read(spark, reported, "causes")
    names = ("fingerprint", "failures", "events", "retried", "expired", "died", "dead_now", "event_types")
    assert [figures(row, *names) for row in causes] == [
        ("http 503 service unavailable: request <id> took <n> s", 3, 2, 3, 0, 0, 0, "mail.send, order.paid"),
        ('http 422 unprocessable entity: {"error": "order <n> has no address"}', 2, 2, 0, 0, 2, 2, "order.paid"),
        ("<script>alert(<n>)</script> & <text> is no field", 1, 1, 0, 0, 1, 1, "<b>user</b>"),
    ]
    assert causes[0]["example"] in {DOWN % each for each in UUIDS}
    assert causes[0]["first_seen"] <= causes[0]["last_seen"]
    dead = [figures(row, "event_type", "fingerprint", "dead") for row in read(spark, reported, "dead")]
    assert dead == [("order.paid", causes[1]["fingerprint"], 2), ("<b>user</b>", causes[2]["fingerprint"], 1)]


def test_tables_are_single_files_that_other_programs_open(scene: Scene, reported: Path):
    check_times(reported / "tables" / "causes.parquet", {"first_seen", "last_seen"})
    written = {path.name for path in (reported / "tables").iterdir() if not path.name.endswith(".crc")}
    assert written == {f"{name}.{kind}" for name in TABLES for kind in ("parquet", "csv")}
    with (reported / "tables" / "causes.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["failures"] for row in rows] == ["3", "2", "1"]
    assert rows[1]["example"] in {REJECTED % 17, REJECTED % 18}  # with its quotes
    with (reported / "tables" / "volume.csv").open(newline="", encoding="utf-8") as file:
        assert datetime.fromisoformat(next(csv.DictReader(file))["hour"]) == scene.start


@pytest.mark.campaign
def test_a_text_that_a_spreadsheet_would_run_is_defused(redis_played: Played, spark: SparkSession, tmp_path: Path):
    evil = '=HYPERLINK("x")'
    redis_played.run(make_dead(redis_played.box, Event("-type", event_id="d"), reason=evil))
    report(spark, address(redis_played), str(tmp_path))
    with (tmp_path / "tables" / "dead.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["event_type"], row["example"]) == ("'-type", f"'{evil}")
    assert read(spark, tmp_path, "dead")[0]["example"] == evil


@pytest.mark.campaign
def test_what_is_in_the_box_and_in_the_archive_counts_once(scene: Scene, spark: SparkSession, tmp_path: Path):
    from pyspark.sql import functions as f

    live = scene.played.read(spark)
    settled = live.where("state IN ('PUBLISHED', 'DEAD')")

    def changed(table: DataFrame, **columns: Any) -> DataFrame:
        return table.withColumns({name: f.lit(value) for name, value in columns.items()})

    removed = changed(live.where("event_id = 'o5'"), event_id="removed")
    # It died, was archived, replayed, and published since: two deliveries of one event.
    earlier = live.where("event_id = 'o1'").withColumns(
        {"claim": f.lit(0).cast("long"), "state": f.lit("DEAD"), "phase": f.lit("DEAD"),
         "died_at": f.col("published_at"),
         "published_at": f.lit(None).cast("timestamp"), "last_error": f.lit("HTTP 500")}
    )  # fmt: skip
    # It is dead in the archive, and in the box it waits again, without having been claimed since.
    stale = changed(live.where("event_id = 'due'"), state="DEAD", phase="DEAD", last_error="HTTP 500")
    archive = settled.unionByName(removed).unionByName(earlier).unionByName(stale)
    archive.write.parquet(f"{tmp_path}/archive")

    done = report(spark, address(scene.played), f"{tmp_path}/out", archive=spark.read.parquet(f"{tmp_path}/archive"))
    assert (done.events, done.published, done.dead, done.pending, done.failures) == (15, 10, 3, 2, 7)
    to = tmp_path / "out"
    places = {(row["place"], row["state"]): row["events"] for row in read(spark, to, "overview")}
    assert places[("archive", "PUBLISHED")] == 1
    assert places[("box", "PUBLISHED")] == 9
    assert by(read(spark, to, "latency"), "event_type")["order.paid"]["published"] == 6
    assert by(read(spark, to, "causes"), "fingerprint")["http 500"]["dead_now"] == 0
    assert by(read(spark, to, "attempts"), "attempts")[1]["dead"] == 3  # the earlier delivery is one
    assert "live box and archive" in (to / "report.html").read_text().lower()


@pytest.mark.campaign
def test_since_and_until_take_in_what_was_put_between(scene: Scene, spark: SparkSession, tmp_path: Path):
    live, later = scene.played.read(spark), scene.start + timedelta(hours=1)

    def counted(since: datetime | None, until: datetime | None) -> dict[str, int]:
        rows = report_tables.events(live, None, since, until).groupBy("state").count().collect()
        return {row[0]: row[1] for row in rows}

    assert counted(later, None) == {"DEAD": 3, "PENDING": 2}
    assert counted(None, scene.start + timedelta(minutes=1)) == {"PUBLISHED": 8}
    none = report(spark, address(scene.played), str(tmp_path), since=later, until=scene.start - timedelta(days=1))
    assert none.events == 0
    assert "does not hold any event that was put in the time asked for" in (tmp_path / "report.html").read_text()


def test_the_page_escapes_what_strangers_wrote_and_loads_nothing(scene: Scene, reported: Path):
    text = (reported / "report.html").read_text()
    assert EVIL not in text
    assert "<script>alert" not in text
    assert "<b>user" not in text
    assert EVIL in unescape(text)
    assert text.count("<script") == 1  # its own
    for way in ("http://", "https://", "src=", "href=", "@import", "url("):
        assert way not in text.lower()
    assert "default-src 'none'" in text
    told = unescape(text)
    assert scene.box.name in told
    assert "<b>14</b>" in text  # events
    assert "25 %" in told  # 3 of 12 settled
    assert "2 events died of it" in told
    assert "1 event is due and not delivered" in told
    assert "line-7" not in told


class Tags(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{self.open} and then </{tag}> at {self.getpos()}"


def test_the_page_is_well_formed(reported: Path):
    tags = Tags()
    tags.feed((reported / "report.html").read_text())
    assert tags.open == []


@pytest.mark.campaign
def test_an_empty_box_says_so(redis_played: Played, spark: SparkSession, tmp_path: Path):
    async def empty() -> None:
        await publish(redis_played.box, Event("n", event_id="gone"))
        await redis_played.box.operate.drop(["gone"], who="ada", why="to have none")

    redis_played.run(empty())
    done = report(spark, address(redis_played), str(tmp_path))
    assert done == Report(page=f"{tmp_path}/report.html", tables=list(TABLES), events=0, published=0, dead=0, pending=0,
                          failures=0, p50_ms=None, p99_ms=None)  # fmt: skip
    assert "The box does not hold any event." in (tmp_path / "report.html").read_text()
    for name in TABLES:
        assert read(spark, tmp_path, name) == []
    header = (tmp_path / "tables" / "latency.csv").read_text().strip()
    assert header == "event_type,published,retried,p50_ms,p90_ms,p99_ms,p999_ms,max_ms"


@pytest.mark.campaign
def test_a_box_without_failures_says_so(redis_played: Played, spark: SparkSession, tmp_path: Path):
    redis_played.run(publish(redis_played.box, Event("n"), Event("n")))
    report(spark, address(redis_played), str(tmp_path))
    text = (tmp_path / "report.html").read_text()
    for said in ("Nothing needs attention", "No failed attempt is remembered", "No event is dead", "none is dead"):
        assert said in text


@pytest.mark.campaign
def test_a_box_in_which_nothing_is_settled_says_so(redis_played: Played, spark: SparkSession, tmp_path: Path):
    redis_played.run(redis_played.box.put(Event("n")))
    assert report(spark, address(redis_played), str(tmp_path)).pending == 1
    text = (tmp_path / "report.html").read_text()
    for said in ("Nothing was published yet", "Nothing is settled yet", "nothing is settled"):
        assert said in text


def test_invalid_arguments_of_a_report_are_refused(redis_played: Played, spark: SparkSession, tmp_path: Path):
    with pytest.raises(UnknownBox, match="there is no box"):
        report(spark, address(redis_played), str(tmp_path / "none"))
    assert files.list(spark, str(tmp_path)) == ()
    with pytest.raises(UsageError, match="needs a directory"):
        report(spark, address(redis_played), "/")
    with pytest.raises(UsageError, match="since needs a time zone"):
        report(spark, address(redis_played), str(tmp_path), since=datetime(2026, 1, 1))


@pytest.mark.req("RF-3")
def test_spark_and_python_compute_the_same_fingerprints(spark: SparkSession):
    texts = [text for text in (*PRINTS, *corpus()) if text is not None]
    expected = [fingerprints.fingerprint(text) for text in texts]
    assert list(zip(texts, prints(spark, *texts), strict=True)) == list(zip(texts, expected, strict=True))
    assert prints(spark, None) == [None]


def prints(spark: SparkSession, *texts: str | None) -> list[str | None]:
    from pyspark.sql import functions as f

    table = spark.createDataFrame([(text,) for text in texts], "text string")
    return [row[0] for row in table.select(fingerprint(f.col("text"))).collect()]


@pytest.mark.parametrize("seconds", [0, 30, 3600, 86_400, 30 * 86_400, 3000 * 86_400, 30_000 * 86_400])
def test_the_time_axis_has_few_bars_and_holds_everything(seconds: int):
    first = datetime(2026, 1, 5, 10, 17, 3, tzinfo=UTC)
    axis = time_axis([{"first_created": first, "last_change": first + timedelta(seconds=seconds)}])
    assert axis.start <= first
    assert 1 <= axis.count <= 96
    assert axis.start + timedelta(seconds=axis.step * axis.count) > first + timedelta(seconds=seconds)
    assert axis.step in STEPS or seconds > 7000 * 86_400


def test_the_command_writes_the_report_and_prints_its_figures(scene: Scene, command: Command, tmp_path: Path):
    job = ["pipeline", "report", "--to", str(tmp_path / "out"), "--since", "1d"]
    done = command(scene.played, "--json", *job)
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["events"], told["published"], told["dead"], told["pending"]) == (14, 9, 3, 2)
    assert told["page"] == f"{tmp_path}/out/report.html"
    assert told["tables"] == list(TABLES)
    assert "<title>" in (tmp_path / "out" / "report.html").read_text()
    gone = command(scene.played, "--box", "nobody", *job)
    assert gone.exit_code != 0
    assert "there is no box 'nobody'" in gone.stderr
    assert "starting Spark" not in gone.stderr
