"""A box as a DataFrame."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from redbox import Claim, Event, Record, State, keys
from redbox.pipeline.failures import translate
from redbox.pipeline.source import reader
from redbox.pipeline.source.options import read_options
from redbox.pipeline.source.reader import BoxReader
from redbox.pipeline.source.schema import SCHEMA
from redbox.store.store import Store
from redbox.testing.conformance.steps import contents, expire, make_dead, publish

from .conftest import Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition

pytestmark = pytest.mark.req("SP-1")


async def one_of_each(box: Any) -> dict[str, Record]:
    """An event in every place an event can be in."""
    await publish(box, Event("user.created", b"\x00\xff", event_id="published", headers={"a": "1"}))
    await make_dead(box, Event("user.deleted", {"id": 7}, event_id="dead", unique_key="u1", unique_scope="UNTOUCHED"))
    await box.put(Event("user.created", "text", event_id="suspect"))
    for _ in range(2):
        await box.claim("relay-1", lease=0.001)
        await expire(box)
    await box.put(Event("invoice.paid", {"n": 1}, event_id="claimed", partition_key="p", metadata={"m": "x"}))
    await box.claim("relay-2", limit=1, lease=600)
    await box.put(Event("invoice.paid", event_id="retried"))
    await box.retry(await box.claim("relay-3", limit=1), error="nö\x85", delay=600)
    await box.put_many([Event("line", event_id=each, ordering_key="k") for each in ("head", "waiting")])
    await box.put(Event("later", event_id="later", delay=3600))
    return {record.event_id: record async for record in box.list()}


def as_seen(record: Record) -> dict[str, Any]:
    """A record as its row must be."""
    event = record.event
    row = {name: getattr(event, name) for name in ("event_type", "content_type", "partition_key", "ordering_key")}
    row |= {name: getattr(record, name) for name in SCHEMA.fieldNames() if hasattr(record, name)}
    row |= {
        "payload": bytes(event.encode()[0]),
        "headers": dict(event.headers),
        "metadata": dict(event.metadata),
        "unique_key": event.unique_key,
        "unique_scope": str(event.unique_scope) if event.unique_key else None,
        "claim": record.number,
        "superseded_by": None,
        "schema_version": 1,
        "history": [(a.at, a.outcome, a.by, a.number, a.error) for a in record.history],
    }
    return {name: str(value) if name in ("state", "phase") else value for name, value in row.items()}


def test_every_field_of_every_state_is_a_typed_column(played: Played, spark: SparkSession):
    records = played.run(one_of_each(played.box))
    table = played.read(spark)
    assert table.schema == SCHEMA
    rows = {row["event_id"]: row.asDict() for row in table.collect()}
    assert rows.keys() == records.keys()
    for event_id, record in records.items():
        row = rows[event_id]
        row["payload"] = bytes(row["payload"])
        row["history"] = [(a["at"].replace(tzinfo=UTC), *a[1:]) for a in row["history"]]
        row = {name: value.replace(tzinfo=UTC) if isinstance(value, datetime) else value for name, value in row.items()}
        assert (row.pop("seq") is None) == (record.event.ordering_key is None)
        assert row == as_seen(record)


def test_reading_changes_nothing(played: Played, spark: SparkSession):
    played.run(one_of_each(played.box))
    before = played.run(contents(played.box))
    played.read(spark).collect()
    played.read(spark, ids="dead,claimed").collect()
    assert played.run(contents(played.box)) == before


def test_it_is_narrowed_by_options(redis_played: Played, spark: SparkSession):
    records = redis_played.run(one_of_each(redis_played.box))

    def ids(**options: Any) -> set[str]:
        return {row["event_id"] for row in redis_played.read(spark, **options).collect()}

    assert ids(state="dead") == {"dead"}
    assert ids(state="DEAD, published") == {"dead", "published"}
    assert ids(event_type="user.*") == {"published", "dead", "suspect"}
    assert ids(event_type="user.*", state="DEAD,CLAIMED") == {
        event_id
        for event_id, record in records.items()
        if record.event.event_type.startswith("user.") and record.state in ("DEAD", "CLAIMED")
    }
    assert ids(ids="dead,gone, head") == {"dead", "head"}
    assert ids(ids="dead,head", state="DEAD") == {"dead"}
    assert ids(ids="") == set()
    died = records["dead"].died_at
    assert died is not None
    assert ids(state="DEAD", since=died.isoformat()) == {"dead"}
    assert ids(state="DEAD", since=(died + timedelta(milliseconds=1)).isoformat()) == set()
    assert ids(state="DEAD", until=died.isoformat()) == {"dead"}
    assert ids(state="DEAD", until=(died - timedelta(milliseconds=1)).isoformat()) == set()
    table = redis_played.read(spark, columns="state,event_id")
    assert table.columns == ["state", "event_id"]
    assert Counter(row["state"] for row in table.collect()) == Counter(str(r.state) for r in records.values())


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_ranges_of_any_size_hold_each_event_once(redis_played: Played, spark: SparkSession, size: int):
    async def fill() -> None:
        await redis_played.box.put_many([Event("n", event_id=f"p{number:02}") for number in range(23)])
        await redis_played.box.ack(await redis_played.box.claim("relay-1", limit=10))

    redis_played.run(fill())
    table = redis_played.read(spark, partition_size=size, slice=3)
    assert Counter(row["event_id"] for row in table.collect()) == Counter(f"p{number:02}" for number in range(23))
    assert table.rdd.getNumPartitions() == -(-10 // size) + -(-13 // size)


def test_an_index_may_have_more_ranges_than_one_look_gives(redis_played: Played, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reader, "RANGES_AT_ONCE", 2)
    redis_played.run(redis_played.box.put_many([Event("n", event_id=f"e{number}") for number in range(5)]))
    read = direct(redis_played, partition_size="1")
    assert ids_of(read, read.partitions()) == [[f"e{number}"] for number in range(5)]


def direct(played: Played, **options: str) -> BoxReader:
    """The reader without Spark."""
    return BoxReader(read_options(played.options(**options)), SCHEMA)


def ids_of(read: BoxReader, parts: Sequence[InputPartition]) -> list[list[str]]:
    return [
        [event_id for batch in read.read(part) for event_id in batch.column("event_id").to_pylist()] for part in parts
    ]


def claim_some(played: Played, count: int) -> list[Claim]:
    played.run(played.box.put_many([Event("n", event_id=f"c{number:02}") for number in range(count)]))
    return played.run(played.box.claim("relay-1", limit=count, lease=60))


def test_a_renewal_before_a_task_reads_is_no_change(redis_played: Played):
    claims = claim_some(redis_played, 23)
    read = direct(redis_played, partition_size="10", slice="3")
    parts = read.partitions()
    redis_played.run(redis_played.box.renew(claims, lease=600))
    ids = [f"c{number:02}" for number in range(23)]
    assert ids_of(read, parts) == [ids[:10], ids[10:20], ids[20:]]
    redis_played.run(redis_played.box.release(claims[:2]))
    redis_played.run(redis_played.box.claim("relay-2", limit=1))
    assert ids_of(read, parts) == [ids[2:10], ids[10:20], ids[20:]]


def test_a_renewal_while_claims_are_planned_is_no_change(redis_played: Played, monkeypatch: pytest.MonkeyPatch):
    fences = [(claim.event_id, claim.number) for claim in claim_some(redis_played, 23)]
    real, left = Store.list_ids, [fences[:15]]

    async def renewing(store: Store, *arguments: Any, **options: Any) -> Any:
        reply = await real(store, *arguments, **options)
        if left:
            await store.renew("relay-1", 600_000, left.pop())
        return reply

    monkeypatch.setattr(Store, "list_ids", renewing)
    monkeypatch.setattr(reader, "SLICE", 5)
    read = direct(redis_played)
    (ids,) = ids_of(read, read.partitions())
    assert Counter(ids) == Counter(f"c{number:02}" for number in range(23))


def test_claimed_events_are_narrowed_by_options(redis_played: Played):
    async def fill() -> datetime:
        for number, event_type in enumerate(("user.created", "invoice.paid", "user.deleted")):
            await redis_played.box.put(Event(event_type, event_id=f"e{number}"))
            await redis_played.box.claim("relay-1", lease=100 + number)
        (_, lease, _) = [record.lease_until async for record in redis_played.box.list(state="CLAIMED")]
        return lease

    lease = redis_played.run(fill())

    def ids(**options: str) -> list[str]:
        read = direct(redis_played, state="CLAIMED", **options)
        return [event_id for part in ids_of(read, read.partitions()) for event_id in part]

    assert ids() == ["e0", "e1", "e2"]
    assert ids(event_type="user.*") == ["e0", "e2"]
    assert ids(since=lease.isoformat()) == ["e1", "e2"]
    assert ids(until=lease.isoformat()) == ["e0", "e1"]
    assert ids(since=lease.isoformat(), until=lease.isoformat()) == ["e1"]
    assert ids(since=(lease + timedelta(hours=1)).isoformat()) == []


def test_bodies_are_read_within_bounds_and_large_ones_too(redis_played: Played, spark: SparkSession):
    sizes = [10, 1_000_000, 0, 300_000] * 8
    redis_played.run(redis_played.box.put_many([Event("n", bytes(size)) for size in sizes]))
    lengths = redis_played.read(spark, columns="payload").selectExpr("length(payload)").collect()
    assert sorted(row[0] for row in lengths) == sorted(sizes)


def test_an_event_that_cannot_be_read_does_not_hide_the_others(redis_played: Played, spark: SparkSession):
    async def damage() -> None:
        box = redis_played.box
        await box.put_many([Event("n", event_id=each) for each in ("good", "bad")])
        await box._store.exchange([("SET", f"{{redbox:{box.name}:0}}:b:bad", b"\xc1")])

    redis_played.run(damage())
    rows = {row["event_id"]: row for row in redis_played.read(spark).collect()}
    assert rows["good"]["problem"] is None
    assert "damaged" in rows["bad"]["problem"]
    assert rows["bad"]["payload"] is None
    assert rows["bad"]["event_type"] == "n"


@pytest.mark.campaign
def test_what_moves_meanwhile_comes_once_or_not_at_all(redis_played: Played, spark: SparkSession):
    """Relays claim, renew, publish, retry, and someone replays, while the box is read again and again."""
    box, stop, failures, rounds = redis_played.box, threading.Event(), list[BaseException](), [0]
    held = claim_some(redis_played, 300)
    redis_played.run(box.put_many([Event("n", event_id=f"still{number}", delay=3600) for number in range(300)]))
    redis_played.run(box.put_many([Event("n", event_id=f"moves{number}") for number in range(300)]))
    unchanged = {claim.event_id for claim in held} | {f"still{number}" for number in range(300)}

    async def move() -> None:
        while not stop.is_set():
            claims = await box.claim("relay-1", limit=100)
            assert all(await box.renew([*held, *claims], lease=600))
            assert all(await box.ack(claims[::3]))
            assert all(await box.retry(claims[1::3], error="again"))
            assert all(await box.release(claims[2::3]))
            assert (await box.replay(state="PUBLISHED")).replayed > 0
            rounds[0] += 1

    def run() -> None:
        try:
            redis_played.run(move())
        except BaseException as error:
            failures.append(error)

    mover = threading.Thread(target=run)
    mover.start()
    try:
        for _ in range(4):
            before = rounds[0]
            seen = Counter(row[0] for row in redis_played.read(spark, columns="event_id", partition_size=50).collect())
            assert rounds[0] > before
            assert max(seen.values()) == 1
            assert unchanged <= seen.keys()
    finally:
        stop.set()
        mover.join()
    assert failures == []


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.usefixtures("pushing")
def test_conditions_are_pushed_down_where_that_is_asked_for(redis_played: Played, spark: SparkSession):
    records = redis_played.run(one_of_each(redis_played.box))
    dead = redis_played.read(spark, pushdown="true").where("state = 'DEAD'")
    assert [row["event_id"] for row in dead.collect()] == ["dead"]
    assert dead.rdd.getNumPartitions() == 1
    either = redis_played.read(spark, pushdown="true").where(
        "state in ('DEAD', 'PUBLISHED') and event_type = 'user.created'"
    )
    assert [row["event_id"] for row in either.collect()] == ["published"]
    assert redis_played.read(spark).where("state = 'DEAD'").count() == 1
    assert redis_played.read(spark).count() == len(records)


@pytest.mark.usefixtures("pushing")
def test_why_conditions_are_not_pushed_down_by_themselves(redis_played: Played, spark: SparkSession):
    """When this fails, Spark has mended it: then push down always, and drop the option."""
    records = redis_played.run(one_of_each(redis_played.box))
    table = redis_played.read(spark, pushdown="true")
    assert table.where("state = 'DEAD'").count() == 1
    assert table.count() == 1, "Spark no longer applies the condition of one query to the next"
    assert redis_played.read(spark, pushdown="true").count() == len(records)


def test_without_the_option_nothing_leaks(redis_played: Played, spark: SparkSession):
    records = redis_played.run(one_of_each(redis_played.box))
    table = redis_played.read(spark)
    assert table.where("state = 'DEAD'").count() == 1
    assert table.count() == len(records)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"url": "redis://127.0.0.1:1/0"}, "cannot be reached"),
        ({"url": "redsi://x"}, "this is not a store URL; use one of redis://"),
        ({"url": "memory:"}, "memory: is a box of one process"),
        ({"box": "no such"}, "box name"),
        ({"box": "nobody-knows-it"}, "there is no box 'nobody-knows-it'"),
        ({"stat": "DEAD"}, "has no option 'stat'; it has box, columns"),
        ({"state": "DAED"}, "'DAED' is not one of PENDING"),
        ({"since": "yesterday"}, "must be a time with a zone"),
        ({"columns": "event_id,nonsense"}, "there is no column 'nonsense'"),
        ({"slice": "0"}, "must be a whole number between 1 and"),
    ],
)
def test_a_mistake_is_one_clear_sentence(
    redis_played: Played, spark: SparkSession, options: dict[str, str], complaint: str
):
    redis_played.run(redis_played.box.put(Event("n")))
    with pytest.raises(PySparkException) as raised:
        redis_played.read(spark, **options).collect()
    assert complaint in translate(raised.value).message
    *_, last, sqlstate = str(raised.value).strip().splitlines()
    assert complaint in last
    assert "SQLSTATE" in sqlstate


def test_options_that_are_missing_are_named(spark: SparkSession):
    with pytest.raises(PySparkException, match="needs the option url"):
        spark.read.format("redbox").load()


def test_the_states_of_the_source_are_the_states_of_events():
    assert set(keys.INDEXES_OF) == set(State)
