"""SP-9: the audit finds each broken rule in a box. The tests break them by direct writes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from redbox import Box, Event, ForeignKey, keys
from redbox.audit import all_problems, audit_box, repair
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import contents, expire, fields_of, make_dead, publish


async def one_of_each(box: Box) -> None:
    """Fills every index: every state, a suspect, a blocked line, a waiting event, unique keys."""
    await publish(box, Event("n", event_id="published", unique_key="u0"))
    await make_dead(box, Event("n", {"id": 7}, event_id="dead", unique_key="u1", unique_scope="UNTOUCHED"))
    await box.put(Event("n", event_id="retried", unique_key="u4"))
    await box.retry(await box.claim("relay-3"), delay=3600)
    await box.operate.configure(dead_head="block", who="test", why="a line that is blocked")
    await make_dead(box, Event("n", event_id="blocking", ordering_key="stuck"))
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


async def write_directly(box: Box, *command: Any) -> None:
    """Sends a command directly to the server; `:name` is a key of the box."""
    prefix = keys.prefix(box.name)
    full = [f"{prefix}{part}" if isinstance(part, str) and part.startswith(":") else part for part in command]
    await box._store.exchange([tuple(full)])


BROKEN: list[tuple[list[tuple[Any, ...]], set[tuple[str, str | None]]]] = [
    ([("HSET", ":e:pending", "state", "CLAIMED")], {("state", "pending"), ("claim", "pending")}),
    ([("HSET", ":e:pending", "state", "ASLEEP")], {("fields", "pending")}),
    ([("HSET", ":e:pending", "attempts", "many")], {("fields", "pending")}),
    ([("HSET", ":e:pending", "attempts", "-1")], {("fields", "pending")}),
    ([("HSET", ":e:pending", "attempts", "9" * 16)], {("fields", "pending")}),
    ([("HSET", ":e:later", "available_at", "-5")], {("fields", "later")}),
    ([("ZADD", ":claimed", 9e15, "claimed")], {("claim", "claimed")}),
    ([("HSET", ":e:later", "available_at", "9" * 15)], {("fields", "later")}),
    ([("HSET", ":e:pending", "created_at", "9" * 15)], {("fields", "pending")}),
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
    ([("ZADD", ":line:k", 0.5, "waiting")], {("head", "waiting"), ("head", "claimed"), ("line", "waiting")}),
    ([("HSET", ":e:waiting", "seq", 9)], {("line", "waiting")}),
    ([("ZADD", ":line:k", 4, "published")], {("line", "published")}),
    ([("ZREM", ":blocked", "stuck")], {("blocked", "blocking")}),
    ([("ZADD", ":blocked", 5, "k")], {("blocked", "claimed")}),
    ([("ZADD", ":blocked", 5, "none")], {("blocked", None)}),
    ([("ZADD", ":unique:u0", 5, "published")], {("unique", "published")}),
    ([("ZADD", ":unique:u9", 5, "nobody")], {("orphan", "nobody")}),
    ([("ZADD", ":unique:u3", 5, "waiting")], {("unique", "waiting")}),
    ([("ZADD", ":unique:u3", 5, "later")], {("unique", "later")}),
    ([("ZADD", ":line:k", 9, "later")], {("line", "later")}),
    ([("DEL", ":h:dead"), ("SET", ":h:dead", "x")], {("foreign", "dead")}),
    ([("SET", ":line:none", "x")], {("foreign", None)}),
    ([("SET", ":pauses", "x")], {("foreign", None)}),
    ([("SET", ":limits", "x")], {("foreign", None)}),
    ([("DEL", ":log"), ("SET", ":log", "x")], {("foreign", None)}),
    ([("SET", ":relays", "x")], {("foreign", None)}),
    ([("DEL", ":alone"), ("RPUSH", ":alone", "x")], {("foreign", None)}),
    ([("SET", ":paused", "x")], {("foreign", None)}),
    ([("DEL", ":e:claimed"), ("SET", ":e:claimed", "x")], {("foreign", "claimed")}),
    (
        [("DEL", ":line:k"), ("SET", ":line:k", "x")],
        {("foreign", None), ("foreign", "claimed"), ("foreign", "waiting")},
    ),
    ([("SET", ":unique:\xff", "x"), ("ZADD", ":dead", 1, b"\xff\xfe")], {("foreign", None), ("orphan", "\\xff\\xfe")}),
]


@pytest.mark.req("SP-9")
async def test_a_sound_box_has_no_problem_and_is_not_changed(box: Box):
    await one_of_each(box)
    before = await contents(box)
    assert await check_invariants(box) == []
    assert await contents(box) == before


@pytest.mark.req("SP-9")
@pytest.mark.parametrize(("commands", "expected"), BROKEN)
async def test_each_broken_rule_is_reported_with_its_id(
    box: Box, commands: list[tuple[Any, ...]], expected: set[tuple[str, str | None]]
):
    await one_of_each(box)
    for command in commands:
        await write_directly(box, *command)
    assert {(problem.rule, problem.event_id) async for problem in all_problems(box._store)} == expected


#: The keys of a box with which its events are read.
READ_WITH_EVENTS = (*keys.INDEXES, "retries", "lost", "counters", "meta")


@pytest.mark.req("SP-9", "RO-4")
@pytest.mark.parametrize("sample", [None, 10])
@pytest.mark.parametrize("name", [*READ_WITH_EVENTS, "blocked"])
async def test_a_foreign_key_of_the_box_is_reported_by_name(box: Box, name: str, sample: int | None):
    await one_of_each(box)
    await write_directly(box, "ZADD", ":line:k", 99, "nobody")
    await write_directly(box, "ZADD", ":dead", 1, "absent")
    await write_directly(box, "DEL", f":{name}")
    await write_directly(box, "RPUSH", f":{name}", "x")
    key, expected = f"{keys.prefix(box.name)}:{name}", "a hash" if name in ("meta", "counters") else "a sorted set"
    found = [problem async for problem in audit_box(box, sample=sample, progress=lambda done, total: None)]
    (foreign,) = (problem for problem in found if problem.rule == "foreign")
    assert foreign.sentence.startswith(f"{key} is a list, but redbox expects {expected}; ")
    others = {"blocked": {"absent"}, "meta": set[str]()}  # what can still be read
    assert {problem.event_id for problem in found if problem.rule == "orphan"} == others.get(name, {"nobody"})
    assert (await repair(box, who="test", why="")).left[0] == foreign
    for read in (box.stats, box.why):
        with pytest.raises(ForeignKey, match=f"{re.escape(key)} is a list, but .* `RENAME .* `redbox doctor --repair`"):
            await read()


@pytest.mark.req("SP-9", "RO-4")
@pytest.mark.parametrize("name", ["pending", "waiting", "suspect", "claimed", "published", "dead", "retries", "lost"])
async def test_a_repair_rebuilds_an_index_after_the_foreign_key_was_renamed(box: Box, name: str):
    await one_of_each(box)
    await write_directly(box, "DEL", f":{name}")
    await write_directly(box, "SET", f":{name}", "x")
    await write_directly(box, "RENAME", f":{name}", f":{name}.foreign")
    assert (await repair(box, who="test", why="")).left == []
    assert await check_invariants(box) == []
    assert sum((await box.stats()).phases.values()) == 10


@pytest.mark.req("SP-9")
async def test_the_body_of_an_id_that_is_not_utf_8_is_not_mistaken_for_another(box: Box):
    await box.put_many([Event("one", event_id="\\xff"), Event("two", event_id="raw")])
    for kind in (b":e:", b":b:"):
        old, new = (keys.prefix(box.name).encode() + kind + raw for raw in (b"raw", b"\xff"))
        await write_directly(box, "RENAME", old, new)
    available_at = (await fields_of(box, "\\xff"))["created_at"]
    await write_directly(box, "ZREM", ":pending", "raw")
    await write_directly(box, "ZADD", ":pending", available_at, b"\xff")
    assert await check_invariants(box) == []
    await write_directly(box, "SET", keys.prefix(box.name).encode() + b":b:\xff", b"\xc1")
    (problem,) = [problem async for problem in all_problems(box._store)]
    assert (problem.rule, problem.raw_id) == ("damaged", b"\xff")


@pytest.mark.req("SP-9")
async def test_large_bodies_are_not_read_with_their_events_and_are_checked_too(box: Box):
    """One script returns a bounded number of bytes."""
    ids = [b"a", b"b", b"c", b"d"]
    sizes = (150_000, 150_000, 20, 150_000)
    await box.put_many([Event("n", b"x" * size, event_id=raw.decode()) for raw, size in zip(ids, sizes, strict=True)])
    examined = await box._store.examine(ids, bodies=200_000)
    stored = await box._store.bodies(ids)
    assert [event.body for event in examined.events] == [stored[0], None, stored[2], None]
    for raw in ids:
        await write_directly(box, "SET", f":b:{raw.decode()}", b"\xc1" * 150_000)
    assert {problem.event_id async for problem in audit_box(box) if problem.rule == "damaged"} == set("abcd")
    assert [problem async for problem in audit_box(box, bodies=False)] == []


@pytest.mark.req("SP-9")
async def test_a_long_line_is_checked_completely(box: Box):
    await box.put_many([Event("n", ordering_key="long") for _ in range(2500)])
    assert await check_invariants(box) == []
    await write_directly(box, "ZADD", ":line:long", 2400.5, "nobody")
    assert [(problem.rule, problem.event_id) async for problem in all_problems(box._store)] == [("orphan", "nobody")]
