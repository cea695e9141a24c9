"""audit: a sound box has no problem, a broken one has exactly that, and a busy one raises no false alarm."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from redbox import Box, Event, keys
from redbox.box.examine import all_problems
from redbox.errors import UnknownBox, UsageError
from redbox.pipeline.audit import Audit, audit
from redbox.pipeline.failures import translate
from redbox.pipeline.options import Address
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import bury, contents, expire, publish

from .conftest import Command, Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-9")


async def one_of_each(box: Box) -> None:
    """Something in every place there is: every state, a suspect, a blocked line, a waiting one, unique keys."""
    await publish(box, Event("n", event_id="published", unique_key="u0"))
    await bury(box, Event("n", {"id": 7}, event_id="dead", unique_key="u1", unique_scope="UNTOUCHED"))
    await box.put(Event("n", event_id="retried", unique_key="u4"))
    await box.retry(await box.claim("relay-3"), delay=3600)
    await box.operate.configure(dead_head="block", who="test", why="a line that is blocked")
    await bury(box, Event("n", event_id="blocking", ordering_key="stuck"))
    await box.put(Event("n", event_id="behind", ordering_key="stuck"))
    await box.put(Event("n", event_id="suspect", ordering_key="alone"))
    for _ in range(2):
        await box.claim("relay-1", lease=0.001)
        await expire(box)
    await box.put(Event("n", event_id="claimed", ordering_key="k", unique_key="u2"))
    claims = [claim for _ in range(2) for claim in await box.claim("relay-2", limit=1, lease=600)]
    await box.release([claim for claim in claims if claim.event_id == "suspect"])
    await box.put(Event("n", event_id="waiting", ordering_key="k", unique_key="u3"))
    await box.put_many([Event("n", b"x", event_id="later", delay=3600), Event("n", "text", event_id="pending")])


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


async def meddle(box: Box, *command: Any) -> None:
    """A command behind redbox's back; `:name` is a key of the box."""
    prefix = keys.prefix(box.name)
    full = [f"{prefix}{part}" if isinstance(part, str) and part.startswith(":") else part for part in command]
    await box._store.exchange([tuple(full)])


MEDDLED: list[tuple[list[tuple[Any, ...]], set[tuple[str, str | None]]]] = [
    ([("HSET", ":e:pending", "state", "CLAIMED")], {("state", "pending"), ("claim", "pending")}),
    ([("HSET", ":e:pending", "state", "ASLEEP")], {("fields", "pending")}),
    ([("HSET", ":e:pending", "attempts", "many")], {("fields", "pending")}),
    ([("HSET", ":e:pending", "excused", "1")], {("attempts", "pending")}),
    ([("HSET", ":e:pending", "expiries", "2")], {("suspect", "pending")}),
    ([("HSET", ":e:claimed", "claim", "999")], {("claim", "claimed")}),
    ([("HDEL", ":e:published", "published_at")], {("times", "published")}),
    ([("HSET", ":e:later", "died_at", "1")], {("times", "later")}),
    ([("HSET", ":e:later", "event_type", "other")], {("body", "later")}),
    ([("ZREM", ":pending", "later")], {("index", "later")}),
    ([("ZADD", ":dead", 1, "pending")], {("index", "pending")}),
    ([("ZADD", ":pending", 1, "later")], {("score", "later")}),
    ([("ZADD", ":published", 9e15, "published")], {("score", "published")}),
    ([("ZADD", ":dead", 9e15, "nobody")], {("orphan", "nobody")}),
    ([("DEL", ":e:later")], {("orphan", "later")}),
    ([("DEL", ":b:dead")], {("body", "dead")}),
    ([("SET", ":b:dead", b"\xc1")], {("damaged", "dead")}),
    ([("SET", ":b:dead", b"\x93\x02\xa1x\xc0")], {("newer", "dead")}),
    ([("SET", ":b:nobody", b"x")], {("orphan", "nobody")}),
    ([("RPUSH", ":h:nobody", "x")], {("orphan", "nobody")}),
    ([("RPUSH", ":h:dead", *"123456789")], {("history", "dead")}),
    ([("ZREM", ":retries", "retried")], {("retries", "retried")}),
    ([("ZADD", ":retries", 5, "later")], {("retries", "later")}),
    ([("ZADD", ":retries", 5, "nobody")], {("orphan", "nobody")}),
    ([("ZADD", ":lost", 5, "nobody")], {("lost", "nobody")}),
    ([("ZREM", ":line:k", "waiting")], {("line", "waiting")}),
    ([("ZADD", ":line:k", 4, "nobody")], {("orphan", "nobody")}),
    ([("ZADD", ":line:k", 0.5, "waiting")], {("head", "waiting"), ("head", "claimed")}),
    ([("ZADD", ":line:k", 4, "published")], {("line", "published")}),
    ([("ZREM", ":blocked", "stuck")], {("blocked", "blocking")}),
    ([("ZADD", ":blocked", 5, "k")], {("blocked", "claimed")}),
    ([("ZADD", ":blocked", 5, "none")], {("blocked", None)}),
    ([("ZADD", ":unique:u0", 5, "published")], {("unique", "published")}),
    ([("ZADD", ":unique:u9", 5, "nobody")], {("orphan", "nobody")}),
    ([("ZADD", ":unique:u3", 5, "waiting")], {("unique", "waiting")}),
    ([("DEL", ":h:dead"), ("SET", ":h:dead", "x")], {("foreign", "dead")}),
    ([("SET", ":line:none", "x")], {("foreign", None)}),
    ([("SET", ":unique:\xff", "x"), ("ZADD", ":dead", 1, b"\xff\xfe")], {("foreign", None), ("orphan", "\\xff\\xfe")}),
]


def test_each_thing_that_is_broken_is_told_with_its_id(redis_played: Played):
    """By the checker, in one process; that Spark finds the same is below."""
    redis_played.run(one_of_each(redis_played.box))
    box = redis_played.box
    whole = redis_played.run(_copied(box))

    async def found() -> set[tuple[str, str | None]]:
        return {(problem.rule, problem.event_id) async for problem in all_problems(box._store)}

    for commands, expected in MEDDLED:
        for command in commands:
            redis_played.run(meddle(box, *command))
        assert redis_played.run(found()) == expected, commands
        redis_played.run(_restored(box, whole))
    assert redis_played.run(check_invariants(box)) == []


async def _copied(box: Box) -> dict[str, bytes]:
    names = list(await contents(box))
    return dict(zip(names, await box._store.exchange([("DUMP", name) for name in names]), strict=True))


async def _restored(box: Box, whole: dict[str, bytes]) -> None:
    await box._store.exchange([("DEL", *(await contents(box)))])
    await box._store.exchange([("RESTORE", name, 0, dumped) for name, dumped in whole.items()])


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


def test_all_that_is_broken_is_told_in_one_audit(played: Played, spark: SparkSession, tmp_path: Path):
    played.run(one_of_each(played.box))
    for command, _ in AT_ONCE:
        played.run(meddle(played.box, *command))
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
        await meddle(box, "ZADD", ":line:long", 2000.5, "nobody")
        await meddle(box, "ZADD", ":unique:u299", 1, "nobody else")

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


def test_mistakes_are_told(redis_played: Played, spark: SparkSession, tmp_path: Path):
    with pytest.raises(UnknownBox, match="there is no box"):
        audited(redis_played, spark)
    redis_played.run(redis_played.box.put(Event("n")))
    with pytest.raises(UsageError, match="use 'parquet' or 'json'"):
        audited(redis_played, spark, format="csv")
    with pytest.raises(PySparkException) as raised:
        audited(redis_played, spark, to=str(tmp_path))
    assert "already exists" in translate(raised.value).message


def test_the_command_tells_and_ends_with_1_when_a_rule_is_broken(
    redis_played: Played, command: Command, tmp_path: Path
):
    redis_played.run(one_of_each(redis_played.box))
    sound = command(redis_played, "pipeline", "audit")
    assert (sound.exit_code, sound.exception) == (0, None)
    assert sound.stdout.startswith("no problem; 10 events and 6 lines and unique keys audited in ")
    redis_played.run(meddle(redis_played.box, "DEL", ":b:dead"))
    broken = command(redis_played, "pipeline", "audit", "--to", str(tmp_path / "all"))
    assert broken.exit_code == 1
    header, row, last = broken.stdout.splitlines()
    assert header.split() == ["ID", "RULE", "KEY", "PROBLEM"]
    assert row.split(maxsplit=2) == ["dead", "body", "has no body"]
    assert last.startswith("1 problem (body 1); 10 events")
    assert list((tmp_path / "all").glob("*.parquet"))


def test_the_command_tells_problems_as_json(redis_played: Played, command: Command):
    redis_played.run(one_of_each(redis_played.box))
    redis_played.run(meddle(redis_played.box, "DEL", ":b:dead"))
    redis_played.run(meddle(redis_played.box, "ZADD", ":blocked", 5, "none"))
    broken = command(redis_played, "--json", "pipeline", "audit")
    assert broken.exit_code == 1, broken.stderr
    *problems, last = map(json.loads, broken.stdout.splitlines())
    assert problems == [
        {"rule": "blocked", "event_id": None, "key": "none", "sentence": "line 'none' is blocked, but has no events"},
        {"rule": "body", "event_id": "dead", "key": None, "sentence": "has no body"},
    ]
    assert (last["problems"], last["by_rule"], last["rows"]) == (2, {"blocked": 1, "body": 1}, 10)
