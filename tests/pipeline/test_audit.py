"""audit: a sound box has no problem, a broken one has exactly that, and a busy one raises no false alarm."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from redbox import Box, Event
from redbox.errors import UnknownBox, UsageError
from redbox.pipeline.failures import translate
from redbox.pipeline.jobs.audit import Audit, audit
from redbox.pipeline.source.options import Address
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import contents
from redbox.testing.conformance.test_rules import one_of_each, write_directly

from .conftest import Command, Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-9")


def audited(played: Played, spark: SparkSession, **options: Any) -> Audit:
    return audit(spark, Address(played.url, played.name), **options)


def told(done: Audit) -> set[tuple[str, str | None]]:
    assert sum(done.by_rule.values()) == len(done.sample)
    return {(problem.rule, problem.event_id) for problem in done.sample}


def test_a_sound_box_has_no_problem_and_is_not_changed(played: Played, spark: SparkSession):
    played.run(one_of_each(played.box))
    before = played.run(contents(played.box))
    done = audited(played, spark, partition_size=2)
    assert (done.problems, done.sample, done.by_rule) == (0, [], {})
    assert (done.events, done.keys) == (10, 6)
    assert played.run(contents(played.box)) == before


#: Defects that do not meet.
AT_ONCE: list[tuple[tuple[Any, ...], tuple[str, str | None]]] = [
    (("HSET", ":e:pending", "excused", "1"), ("attempts", "pending")),
    (("HDEL", ":e:published", "published_at"), ("times", "published")),
    (("ZREM", ":pending", "later"), ("index", "later")),
    (("DEL", ":b:dead"), ("body", "dead")),
    (("SET", ":b:dead-2", b"x"), ("orphan", "dead-2")),
    (("ZADD", ":dead", 9e15, "dead-3"), ("orphan", "dead-3")),
    (("ZREM", ":retries", "retried"), ("retries", "retried")),
    (("ZREM", ":line:k", "waiting"), ("line", "waiting")),
    (("ZADD", ":line:k", 4, "dead-4"), ("orphan", "dead-4")),
    (("ZADD", ":unique:u9", 5, "dead-5"), ("orphan", "dead-5")),
    (("ZREM", ":blocked", "stuck"), ("blocked", "blocking")),
    (("ZADD", ":lost", 5, "dead-6"), ("lost", "dead-6")),
    (("SET", ":line:none", "x"), ("foreign", None)),
]


def test_all_problems_are_reported_in_one_audit(played: Played, spark: SparkSession, tmp_path: Path):
    played.run(one_of_each(played.box))
    for command, _ in AT_ONCE:
        played.run(write_directly(played.box, *command))
    done = audited(played, spark, to=str(tmp_path / "problems"), format="json", partition_size=3)
    expected = {problem for _, problem in AT_ONCE}
    assert told(done) == expected
    assert done.problems == len(AT_ONCE)
    written = spark.read.json(str(tmp_path / "problems")).collect()
    assert {(row["rule"], row["event_id"]) for row in written} == expected
    assert all(row["sentence"] for row in written)
    few = audited(played, spark, sample=2)
    assert (len(few.sample), few.problems, few.by_rule) == (2, done.problems, done.by_rule)


def test_long_lines_and_many_keys_are_looked_at_whole(redis_played: Played, spark: SparkSession):
    box = redis_played.box

    async def fill() -> None:
        await box.put_many([Event("n", event_id=f"long{n}", ordering_key="long") for n in range(2500)])
        await box.put_many([Event("n", ordering_key=f"k{n}", unique_key=f"u{n}") for n in range(300)])
        assert await check_invariants(box) == []
        await write_directly(box, "ZADD", ":line:long", 2000.5, "nobody")
        await write_directly(box, "ZADD", ":unique:u299", 1, "nobody else")

    redis_played.run(fill())
    done = audited(redis_played, spark, partition_size=500)
    assert told(done) == {("orphan", "nobody"), ("orphan", "nobody else")}
    assert (done.events, done.keys) == (2800, 601)


def test_a_box_in_use_raises_no_false_alarm(redis_played: Played, spark: SparkSession):
    """Events are put, claimed, settled every way, replayed, dropped and expire, while the box is audited."""
    stop, failures, rounds = threading.Event(), list[BaseException](), [0]

    def events(number: int) -> list[Event]:
        keyed = [{}, {"ordering_key": f"k{number % 7}"}, {"unique_key": f"u{number % 50}"}]
        return [Event("n", {"n": number}, **keyed[each % 3]) for each in range(6)]

    async def traffic() -> None:
        async with Box.open(redis_played.url, name=redis_played.name) as box:
            await box.operate.configure(dead_head="block", who="test", why="blocked lines")
            while not stop.is_set():
                await box.put_many(events(rounds[0]), on_conflict="skip")
                claims = await box.claim("relay-1", limit=60)
                await box.ack(claims[::4])
                await box.retry(claims[1::4], error="again", delay=0.01)
                await box.release(claims[2::4])
                await box.kill(claims[3::8], reason="no")
                if rounds[0] % 5 == 0:
                    await box.claim("relay-2", limit=10, lease=0.001)
                    await box.reap()
                    await box.replay(state="DEAD", force=True, reset=rounds[0] % 2 == 0)
                    await box.sweep(keep_published_count=20)  # more leave the box than come
                    await box.replay(state="PUBLISHED", reset=False)
                rounds[0] += 1

    def run() -> None:
        try:
            asyncio.run(traffic())
        except BaseException as error:
            failures.append(error)

    redis_played.run(redis_played.box.put_many([Event("n", delay=3600) for _ in range(1000)]))
    mover = threading.Thread(target=run)
    mover.start()
    try:
        for _ in range(4):
            before = rounds[0]
            done = audited(redis_played, spark)
            assert done.sample == []
            assert rounds[0] > before
            assert done.events > 0
    finally:
        stop.set()
        mover.join()
    assert failures == []
    assert redis_played.run(check_invariants(redis_played.box)) == []


def test_mistakes_are_reported(redis_played: Played, spark: SparkSession, tmp_path: Path):
    with pytest.raises(UnknownBox, match="there is no box"):
        audited(redis_played, spark)
    redis_played.run(redis_played.box.put(Event("n")))
    with pytest.raises(UsageError, match="use 'parquet' or 'json'"):
        audited(redis_played, spark, format="csv")
    with pytest.raises(PySparkException) as raised:
        audited(redis_played, spark, to=str(tmp_path))
    assert "already exists" in translate(raised.value).message


def test_the_command_lists_problems_and_exits_with_1(redis_played: Played, command: Command, tmp_path: Path):
    redis_played.run(one_of_each(redis_played.box))
    sound = command(redis_played, "pipeline", "audit")
    assert (sound.exit_code, sound.exception) == (0, None)
    assert sound.stdout.startswith("no problem; 10 events and 6 lines and unique keys audited in ")
    redis_played.run(write_directly(redis_played.box, "DEL", ":b:dead"))
    broken = command(redis_played, "pipeline", "audit", "--to", str(tmp_path / "all"))
    assert broken.exit_code == 1
    header, row, last = broken.stdout.splitlines()
    assert header.split() == ["ID", "RULE", "KEY", "PROBLEM"]
    assert row.split(maxsplit=2) == ["dead", "body", "has no body"]
    assert last.startswith("1 problem (body 1); 10 events")
    assert list((tmp_path / "all").glob("*.parquet"))


def test_the_command_prints_problems_as_json(redis_played: Played, command: Command):
    redis_played.run(one_of_each(redis_played.box))
    redis_played.run(write_directly(redis_played.box, "DEL", ":b:dead"))
    redis_played.run(write_directly(redis_played.box, "ZADD", ":blocked", 5, "none"))
    broken = command(redis_played, "--json", "pipeline", "audit")
    assert broken.exit_code == 1, broken.stderr
    *problems, last = map(json.loads, broken.stdout.splitlines())
    assert problems == [
        {"rule": "blocked", "event_id": None, "key": "none", "sentence": "line 'none' is blocked, but has no events"},
        {"rule": "body", "event_id": "dead", "key": None, "sentence": "has no body"},
    ]
    assert (last["problems"], last["by_rule"], last["rows"]) == (2, {"blocked": 1, "body": 1}, 10)
