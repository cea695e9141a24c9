"""RO-4, SC-4: a repair mends every broken rule that it can, and loses no event."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from redbox import Backoff, Box, Event, RedboxError, Relay, State, keys
from redbox.audit import all_problems, repair
from redbox.audit.repair import read_body
from redbox.audit.rules import BY_HAND
from redbox.store.codec import encode_event
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import contents, fields_of, known
from redbox.testing.conformance.test_rules import BROKEN, one_of_each, write_directly

pytestmark = pytest.mark.req("RO-4", "SC-4")

ALL = {"published", "dead", "retried", "blocking", "behind", "suspect", "claimed", "waiting", "later", "pending"}
#: Damage that the rules' own table does not have: the commands, and the state that the event has afterwards.
DAMAGE: dict[str, tuple[list[tuple[Any, ...]], str, str]] = {
    "claimed without its claim": ([("HDEL", ":e:claimed", "claimed_by")], "claimed", "PENDING"),
    "claimed in no index": ([("ZREM", ":claimed", "claimed")], "claimed", "CLAIMED"),
    "claimed in pending": ([("ZREM", ":claimed", "claimed"), ("ZADD", ":pending", 5, "claimed")], "claimed", "CLAIMED"),
    "claimed and pending": ([("ZADD", ":pending", 5, "claimed")], "claimed", "CLAIMED"),
    "pending in claimed": ([("ZREM", ":pending", "pending"), ("ZADD", ":claimed", 5, "pending")], "pending", "PENDING"),
    "published in no index": ([("ZREM", ":published", "published")], "published", "PUBLISHED"),
    "published in pending too": ([("ZADD", ":pending", 5, "published")], "published", "PUBLISHED"),
    "published without a proof": (
        [("HDEL", ":e:published", "published_at"), ("ZREM", ":published", "published")], "published", "PENDING",
    ),
    "dead in no index": ([("ZREM", ":dead", "dead")], "dead", "DEAD"),
    "dead without a proof": (
        [("HDEL", ":e:dead", "died_at"), ("ZREM", ":dead", "dead"), ("ZADD", ":pending", 5, "dead")], "dead", "PENDING",
    ),
    "no state": ([("HDEL", ":e:published", "state")], "published", "PUBLISHED"),
    "no state in two indexes": ([("HDEL", ":e:dead", "state"), ("ZADD", ":published", 5, "dead")], "dead", "PENDING"),
    "no state while claimed": ([("HDEL", ":e:claimed", "state")], "claimed", "CLAIMED"),
    "no state while claimed, and pending": (
        [("HDEL", ":e:claimed", "state"), ("ZADD", ":pending", 5, "claimed")], "claimed", "CLAIMED",
    ),
    "no state, pending, and an ended lease": (
        [("HDEL", ":e:claimed", "state"), ("ZADD", ":pending", 5, "claimed"), ("ZADD", ":claimed", 5, "claimed")],
        "claimed", "PENDING",
    ),
    "no created_at": ([("HDEL", ":e:later", "created_at")], "later", "PENDING"),
    "created_at after the year 9999": ([("HSET", ":e:pending", "created_at", "9" * 15)], "pending", "PENDING"),
    "available_at after the year 9999": (
        [("HSET", ":e:later", "available_at", "9" * 15), ("ZADD", ":pending", 10**15 - 1, "later")], "later", "PENDING",
    ),
    "published_at after the year 9999": (
        [("HSET", ":e:published", "published_at", "9" * 15), ("ZADD", ":published", 10**15 - 1, "published")],
        "published", "PUBLISHED",
    ),
    "no hash, due after the year 9999": (
        [("DEL", ":e:later"), ("ZADD", ":pending", 10**15 - 1, "later")], "later", "PENDING",
    ),
    "no event_type": ([("HDEL", ":e:later", "event_type")], "later", "PENDING"),
    "no ordering_key": ([("HDEL", ":e:waiting", "ordering_key")], "waiting", "PENDING"),
    "another ordering_key": ([("HSET", ":e:waiting", "ordering_key", "other")], "waiting", "PENDING"),
    "no unique_key": ([("HDEL", ":e:retried", "unique_key")], "retried", "PENDING"),
    "a huge claim number": ([("HSET", ":e:claimed", "claim", "9" * 15)], "claimed", "PENDING"),
    "no counters": ([("DEL", ":counters")], "waiting", "PENDING"),
    "a lease until the year 30,000": ([("ZADD", ":claimed", 10**15 - 1, "claimed")], "claimed", "CLAIMED"),
    "a lease without an end": ([("ZADD", ":claimed", "+inf", "claimed")], "claimed", "CLAIMED"),
    "more earlier attempts than attempts": ([("HSET", ":e:retried", "earlier_attempts", "9")], "retried", "PENDING"),
    "a hash in nothing, PENDING": ([("ZREM", ":pending", "pending")], "pending", "PENDING"),
    "lost, but whole": ([("ZREM", ":pending", "pending"), ("ZADD", ":lost", 5, "pending")], "pending", "PENDING"),
    "no body, PENDING": ([("DEL", ":b:pending")], "pending", "DEAD"),
    "no body, waiting": ([("DEL", ":b:waiting")], "waiting", "DEAD"),
    "no body, suspect and head": ([("DEL", ":b:suspect")], "suspect", "DEAD"),
    "no body, PUBLISHED": ([("DEL", ":b:published")], "published", "PUBLISHED"),
    "no hash, pending": ([("DEL", ":e:later")], "later", "PENDING"),
    "no hash, published": ([("DEL", ":e:published")], "published", "PUBLISHED"),
    "no hash, dead": ([("DEL", ":e:dead")], "dead", "DEAD"),
    "no hash, claimed": ([("DEL", ":e:claimed")], "claimed", "PENDING"),
    "no hash, waiting": ([("DEL", ":e:waiting")], "waiting", "PENDING"),
    "no hash, in no index": ([("DEL", ":e:later"), ("ZREM", ":pending", "later")], "later", "PENDING"),
    "suspect in pending": (
        [("ZREM", ":suspect", "suspect"), ("ZADD", ":pending", 5, "suspect")], "suspect", "PENDING",
    ),
    "a head that waits": (
        [("ZREM", ":suspect", "suspect"), ("ZADD", ":waiting", 5, "suspect")], "suspect", "PENDING",
    ),
    "a waiting event in pending": (
        [("ZREM", ":waiting", "waiting"), ("ZADD", ":pending", 5, "waiting")], "waiting", "PENDING",
    ),
    "no line": ([("DEL", ":line:k")], "waiting", "PENDING"),
    "a dead event behind the head": ([("ZADD", ":line:stuck", 999, "dead")], "dead", "DEAD"),
    "no unique keys": ([("DEL", ":unique:u2"), ("DEL", ":unique:u3"), ("DEL", ":unique:u4")], "claimed", "CLAIMED"),
    "no retries and no blocked": ([("DEL", ":retries"), ("DEL", ":blocked")], "retried", "PENDING"),
    "no indexes": (
        [("DEL", f":{index}") for index in ("pending", "waiting", "suspect", "claimed", "published", "dead")],
        "published", "PUBLISHED",
    ),
}  # fmt: skip


async def ids_of(box: Box) -> set[str]:
    """The ids of all events of the box."""
    return {record.event_id async for record in box.list()}


async def mend(box: Box) -> set[str]:
    """Repairs; returns the ids of the events that were mended. Checks that a dry run changes nothing, that the box is
    sound afterwards, and that a second repair changes nothing."""
    before = await contents(box)
    planned = await repair(box, dry_run=True)
    assert await contents(box) == before
    done = await repair(box, who="ada", why="test")
    assert bool(planned.mended) == bool(done.mended)
    assert await check_invariants(box) == []
    after = await contents(box)
    again = await repair(box, who="ada")
    assert (again.mended, again.left) == ([], [])
    assert await contents(box) == after
    return set(done.ids)


@pytest.mark.parametrize(
    "commands",
    [
        commands
        for commands, found in BROKEN
        if not {rule for rule, _ in found} & set(BY_HAND) and commands != [("SET", ":b:nobody", b"x")]
    ],
)
async def test_each_broken_rule_is_mended(box: Box, commands: list[tuple[Any, ...]]):
    await one_of_each(box)
    for command in commands:
        await write_directly(box, *command)
    await mend(box)
    assert await ids_of(box) == ALL


@pytest.mark.parametrize("damage", DAMAGE)
async def test_each_damage_is_found_and_mended(box: Box, damage: str):
    await one_of_each(box)
    commands, event_id, state = DAMAGE[damage]
    for command in commands:
        await write_directly(box, *command)
    assert await check_invariants(box) != []
    await mend(box)
    assert await ids_of(box) == ALL
    assert (await known(box, event_id)).state == state


@pytest.mark.req("LM-3")
async def test_the_head_of_a_paused_key_waits_after_a_repair(box: Box):
    await box.put_many([Event("a", event_id=name, ordering_key="k") for name in ("first", "second")])
    await box.operate.pause(who="ada", why="test", key="k")
    assert (await repair(box, who="ada")).mended == []
    await write_directly(box, "ZREM", ":waiting", "first")
    await write_directly(box, "ZADD", ":pending", 5, "first")
    assert await mend(box) == {"first"}
    assert await box.claim("relay-1") == []
    await box.operate.resume(who="ada", why="test", key="k")
    assert [claim.event_id for claim in await box.claim("relay-1")] == ["first"]


@pytest.mark.req("LM-3")
@pytest.mark.parametrize("flag", [None, "inf", "nan"])
async def test_a_repair_ends_no_pause_that_meta_lost(box: Box, flag: str | None):
    await box.put_many([Event("a", event_id=name, ordering_key="k") for name in ("first", "second")])
    await box.operate.pause(who="ada", why="test", key="k", duration=600)
    await box.operate.pause(who="ada", why="test", key="empty", duration=900)
    meta = await box._store.meta()
    await write_directly(box, "HDEL", ":meta", "keys_paused")
    if flag is not None:
        await write_directly(box, "HSET", ":meta", "keys_paused", flag)
    assert {(each.rule, each.event_id, each.key) async for each in all_problems(box._store)} == {
        ("paused", None, "k"),
        ("paused", None, "empty"),
    }
    assert await mend(box) == set()
    assert await box._store.meta() == meta
    assert await box.claim("relay-1") == []
    await advance(box, minutes=11)
    assert [claim.event_id for claim in await box.claim("relay-1")] == ["first"]


@pytest.mark.req("LM-3")
async def test_the_repair_of_an_event_ends_no_pause_that_meta_lost(box: Box):
    await box.put_many([Event("a", event_id=name, ordering_key="k") for name in ("first", "second")])
    await box.operate.pause(who="ada", why="test", key="k")
    meta = await box._store.meta()
    await write_directly(box, "HDEL", ":meta", "keys_paused")
    await write_directly(box, "ZREM", ":waiting", "first")
    assert await box._store.repair(b"first", await read_body(box._store, b"first"), dry=False)
    assert await box._store.meta() == meta
    assert await check_invariants(box) == []
    assert await box.claim("relay-1") == []


HALF_DONE: dict[str, tuple[list[tuple[Any, ...]], str, str]] = {
    "another index": ([("ZREM", ":pending", "pending"), ("ZADD", ":claimed", 5, "pending")], "pending", ""),
    "no body": ([("DEL", ":b:waiting")], "waiting", ""),
    "no body of a head": ([("DEL", ":b:suspect")], "suspect", ""),
    "no event": ([("DEL", ":e:waiting")], "waiting", ""),
    "nothing": ([("ZADD", ":dead", 5, "nobody"), ("RPUSH", ":h:nobody", "x")], "nobody", ""),
    "not in its line": ([("ZREM", ":line:k", "waiting"), ("HDEL", ":e:waiting", "seq")], "waiting", ""),
    "in no unique key": ([("DEL", ":unique:u2"), ("HSET", ":e:claimed", "claim", "99")], "claimed", ""),
    "another line": ([("HSET", ":e:waiting", "ordering_key", "alone")], "waiting", ""),
    "a member of a line": ([("ZADD", ":line:k", 0, "published")], "published", "k"),
    "a line that is not blocked": ([("ZREM", ":blocked", "stuck")], "blocking", "stuck"),
    "a line that is blocked": ([("ZADD", ":blocked", 5, "alone")], "suspect", "alone"),
}


@pytest.mark.parametrize("damage", HALF_DONE)
async def test_a_repair_that_cannot_finish_writes_nothing(open_box: Callable[..., Box], damage: str):
    commands, event_id, key = HALF_DONE[damage]

    async def damaged() -> Box:
        box = open_box()
        await one_of_each(box)
        for command in commands:
            await write_directly(box, *command)
        return box

    async def call(box: Box) -> list[str]:
        if key:
            return await box._store.repair_key("line", key.encode(), event_id.encode(), dry=False)
        return await box._store.repair(event_id.encode(), await read_body(box._store, event_id.encode()), dry=False)

    def kinds(box: Box, found: dict[str, Any]) -> dict[str, Any]:
        return {name.removeprefix(keys.prefix(box.name)): value for name, value in found.items()}

    box = await damaged()
    before = kinds(box, await contents(box))
    assert await call(box)
    after = kinds(box, await contents(box))
    written = {kind for kind in before.keys() | after.keys() if before.get(kind) != after.get(kind)}
    box = await damaged()
    whole, spare = await contents(box), f"{keys.prefix(box.name)}:spare"
    for kind in sorted(written | {":pending", ":waiting", ":suspect", ":retries", ":lost", ":blocked", ":wake"}):
        name = keys.prefix(box.name) + kind
        if name in whole:
            await box._store.exchange([("RENAME", name, spare)])
        await box._store.exchange([("SET", name, "somebody else's")])
        with pytest.raises(RedboxError):
            await call(box)
        await box._store.exchange([("DEL", name)])
        if name in whole:
            await box._store.exchange([("RENAME", spare, name)])
        assert await contents(box) == whole, kind
    assert await call(box)


async def test_an_event_that_was_due_after_the_year_9999_is_due_when_it_was_created(box: Box):
    await box.put_many([Event("n", event_id=each) for each in ("a", "b")])
    for command in (("HSET", ":e:a", "available_at", "9" * 15), ("HSET", ":e:b", "created_at", "9" * 15)):
        await write_directly(box, *command)
    for event_id in ("a", "b"):
        await write_directly(box, "ZADD", ":pending", 10**15 - 1, event_id)
    assert await box.claim("relay-1") == []
    assert await mend(box) == {"a", "b"}
    assert {claim.event_id for claim in await box.claim("relay-1")} == {"a", "b"}


async def test_a_repair_is_one_entry_of_the_log(box: Box):
    await one_of_each(box)
    await write_directly(box, "ZADD", ":pending", 5, "later")
    await write_directly(box, "ZREM", ":retries", "retried")
    await repair(box, dry_run=True, who="ada", why="try")
    await repair(box, who="ada", why="after the outage")
    entry, before, *_ = await box.operate.log()
    assert (entry.action, entry.who, entry.why, entry.count) == ("repair", "ada", "after the outage", 2)
    assert set(entry.ids) == {"later", "retried"}
    assert "score 1" in entry.detail
    assert before.action != "repair"
    assert (await repair(box)).mended == []
    assert (await box.operate.log())[0] == entry


async def test_an_interrupted_repair_is_in_the_log(box: Box, monkeypatch: pytest.MonkeyPatch):
    await one_of_each(box)
    await write_directly(box, "SET", ":b:dead", b"\xc1")
    await write_directly(box, "ZADD", ":pending", 5, "later")
    mend_event = box._store.repair

    async def interrupted(raw: bytes, body: Any, *, dry: bool) -> list[str]:
        actions = await mend_event(raw, body, dry=dry)
        if actions and not dry:
            raise asyncio.CancelledError
        return actions

    with monkeypatch.context() as patched:
        patched.setattr(box._store, "repair", interrupted)
        await repair(box, dry_run=True, who="ada", why="a plan")
        with pytest.raises(asyncio.CancelledError):
            await repair(box, who="ada", why="after the outage")
    entry, before, *_ = await box.operate.log()
    assert (entry.action, entry.who, entry.why, entry.count) == ("repair", "ada", "after the outage", 0)
    assert before.action != "repair"
    assert (await repair(box, who="ada")).mended == []
    assert (await box.operate.log())[0] == entry


async def test_a_repair_says_what_it_did_and_what_is_left(box: Box):
    await one_of_each(box)
    await write_directly(box, "ZADD", ":pending", 5, "later")
    await write_directly(box, "SET", ":b:dead", b"\xc1")
    done = await repair(box)
    (mended,) = done.mended
    assert (mended.event_id, mended.rule, mended.actions) == ("later", "score", ("its score in pending is corrected",))
    assert dict(done.by_rule) == {"score": 1}
    assert [(problem.rule, problem.event_id) for problem in done.left] == [("damaged", "dead")]
    assert done.events == len(ALL)


async def test_an_id_without_an_event_is_one_problem_of_the_report(box: Box):
    await one_of_each(box)
    for command in (
        ("ZADD", ":pending", 5, "nobody"),
        ("ZADD", ":retries", 5, "nobody"),
        ("ZADD", ":line:k", 99, "nobody"),
    ):
        await write_directly(box, *command)
    done = await repair(box)
    (mended,) = done.mended
    assert (mended.event_id, mended.key, mended.rule) == ("nobody", "k", "orphan")
    assert len(mended.actions) == len(set(mended.actions)) == 3
    assert dict(done.by_rule) == {"orphan": 1}


async def test_a_body_that_cannot_be_read_is_not_removed(box: Box):
    await one_of_each(box)
    await write_directly(box, "SET", ":b:nobody", b"x")
    before = await contents(box)
    done = await repair(box)
    assert (done.mended, [problem.event_id for problem in done.left]) == ([], ["nobody"])
    assert await contents(box) == before


async def test_an_event_that_lost_its_body_is_dead_with_a_reason(box: Box):
    await box.put_many([Event("n", event_id=each, ordering_key="k") for each in ("a", "b")])
    await write_directly(box, "DEL", ":b:a")
    assert await mend(box) == {"a"}
    assert (await fields_of(box, "a"))["last_error"] == "body missing"
    assert (await known(box, "a")).state is State.DEAD
    (claim,) = await box.claim("relay-1")
    assert claim.event_id == "b"  # the line goes on
    assert (await box.stats()).totals["dead"] == 1


async def test_under_block_an_event_that_lost_its_body_blocks_its_line(box: Box):
    await box.operate.configure(dead_head="block", who="test", why="blocks")
    await box.put_many([Event("n", event_id=each, ordering_key="k") for each in ("a", "b")])
    await write_directly(box, "DEL", ":b:a")
    assert await mend(box) == {"a"}
    assert await box.claim("relay-1") == []
    assert (await box.stats()).blocked == 1


async def test_a_body_without_an_event_is_delivered_with_its_keys(box: Box):
    await box.put_many([Event("n", {"a": 1}, event_id=each, ordering_key="k", unique_key=each) for each in ("a", "b")])
    await write_directly(box, "DEL", ":e:a")
    assert await mend(box) == {"a"}
    (claim,) = await box.claim("relay-1")
    assert (claim.event_id, claim.event.payload, claim.event.ordering_key) == ("a", b'{"a":1}', "k")
    assert await box.ack(claim) == [True]
    (claim,) = await box.claim("relay-1")
    assert claim.event_id == "b"


async def test_a_member_that_can_be_restored_stays_in_its_line(box: Box):
    await box.put_many([Event("n", event_id=each, ordering_key="k") for each in ("a", "b")])
    await write_directly(box, "DEL", ":e:a")
    assert await box._store.repair_key("line", b"k", b"a", dry=False) == []
    await write_directly(box, "DEL", ":b:a")
    assert await box._store.repair_key("line", b"k", b"a", dry=False) == ["removed from line k"]
    assert [claim.event_id for claim in await box.claim("relay-1")] == ["b"]


async def test_a_dead_head_stays_in_a_line_that_it_blocks(box: Box):
    await one_of_each(box)
    assert await box._store.repair_key("line", b"stuck", b"blocking", dry=False) == []
    assert await check_invariants(box) == []


async def test_a_seq_that_was_never_given_out_moves_no_event(box: Box):
    await box.put_many([Event("n", event_id=each, ordering_key="k") for each in ("a", "b", "c")])
    await write_directly(box, "HSET", ":e:b", "seq", 999)
    assert await mend(box) == {"b"}
    assert (await fields_of(box, "b"))["seq"] == "2"


async def test_an_event_that_leaves_another_line_makes_way_at_once(box: Box):
    await box.put(Event("n", event_id="a", ordering_key="k"))
    await box.put(Event("n", event_id="x", ordering_key="other"))
    created_at = (await fields_of(box, "x"))["created_at"]
    await write_directly(box, "HSET", ":e:a", "ordering_key", "other")
    await write_directly(box, "ZADD", ":line:other", 0, "a")
    await write_directly(box, "ZREM", ":pending", "x")
    await write_directly(box, "ZADD", ":waiting", created_at, "x")
    assert await box._store.repair(b"a", await read_body(box._store, b"a"), dry=False)
    assert await check_invariants(box) == []


async def test_a_claim_is_not_taken_from_its_relay(box: Box):
    await box.put(Event("n", event_id="a", unique_key="u"))
    (claim,) = await box.claim("relay-1", lease=60)
    await write_directly(box, "DEL", ":claimed")
    await write_directly(box, "DEL", ":unique:u")
    assert await mend(box) == {"a"}
    await advance(box, seconds=20)
    assert await box.reap() == []
    assert await box.ack(claim) == [True]
    assert (await known(box, "a")).state is State.PUBLISHED


async def test_a_claim_without_its_body_is_left_to_its_relay_while_the_lease_runs(box: Box):
    await box.put(Event("n", event_id="a"))
    (claim,) = await box.claim("relay-1", lease=60)
    await write_directly(box, "DEL", ":b:a")
    assert [problem.rule for problem in (await repair(box)).left] == ["body"]
    assert await box.ack(claim) == [True]
    assert await mend(box) == {"a"}
    assert (await known(box, "a")).state is State.PUBLISHED


async def test_an_expired_claim_that_is_in_no_index_becomes_available_again(box: Box):
    await box.put(Event("n", event_id="a"))
    await box.claim("relay-1", lease=60)
    await write_directly(box, "DEL", ":claimed")
    await mend(box)
    await advance(box, minutes=2)
    assert await box.reap() == ["a"]
    assert [claim.event_id for claim in await box.claim("relay-1")] == ["a"]


async def test_claim_numbers_never_repeat_after_a_repair(box: Box):
    await box.put_many([Event("n", event_id=each) for each in ("a", "b")])
    for _ in range(3):
        await box.release(await box.claim("relay-1", limit=1))
    (first,) = await box.claim("relay-1", limit=1)
    await write_directly(box, "HDEL", ":counters", "claimed")
    await mend(box)
    (second,) = await box.claim("relay-2", limit=1)
    assert second.number > first.number


async def test_an_event_joins_its_line_at_its_own_place(box: Box):
    await box.put_many([Event("n", event_id=each, ordering_key="k") for each in ("a", "b", "c")])
    await write_directly(box, "ZREM", ":line:k", "a")
    await repair(box)
    delivered = []
    while claims := await box.claim("relay-1"):
        delivered += [claim.event_id for claim in claims]
        await box.ack(claims)
    assert delivered == ["a", "b", "c"]


async def test_an_event_does_not_pass_a_head_that_is_claimed(box: Box):
    await box.put_many([Event("n", event_id=each, ordering_key="k") for each in ("a", "b", "c")])
    await write_directly(box, "ZREM", ":line:k", "a")
    await write_directly(box, "ZREM", ":pending", "a")
    await write_directly(box, "ZREM", ":waiting", "b")
    await write_directly(box, "ZADD", ":pending", int((await fields_of(box, "b"))["created_at"]), "b")
    (claim,) = await box.claim("relay-1", lease=60)
    assert claim.event_id == "b"
    await mend(box)
    assert await box.claim("relay-2") == []
    assert await box.ack(claim) == [True]
    assert [each.event_id for each in await box.claim("relay-2")] == ["c"]


async def test_a_line_whose_members_are_gone_continues(box: Box):
    await box.put_many([Event("n", event_id=each, ordering_key="k") for each in ("a", "b", "c")])
    for event_id in ("a", "b"):
        await write_directly(box, "DEL", f":e:{event_id}", f":b:{event_id}")
    await repair(box)
    assert await check_invariants(box) == []
    assert [claim.event_id for claim in await box.claim("relay-1")] == ["c"]


async def test_every_event_of_a_box_without_hashes_is_restored(box: Box):
    ids = {f"e{n}" for n in range(150)}
    await box.put_many([Event("n", event_id=each) for each in sorted(ids)])
    for event_id in ids:
        await write_directly(box, "DEL", f":e:{event_id}")
    assert await mend(box) == ids
    assert await ids_of(box) == ids


@pytest.mark.req("PL-7", "SC-4")
async def test_a_repair_beside_a_relay_loses_nothing(box: Box):
    """Damage, a relay and repairs at once: every event is delivered at least once."""
    chance = random.Random(7)
    ids = [f"e{n}" for n in range(240)]
    await box.put_many(
        [
            Event("n", event_id=each, ordering_key=f"k{n % 9}" if n % 2 else None, unique_key=each if n % 3 else None)
            for n, each in enumerate(ids)
        ]
    )
    delivered: set[str] = set()

    async def publish(event: Event) -> None:
        await asyncio.sleep(0)
        delivered.add(event.event_id)

    async def damage() -> None:
        for _ in range(120):
            victim = chance.choice(ids)
            kinds: list[tuple[Any, ...]] = [
                ("ZREM", ":pending", victim),
                ("ZREM", ":waiting", victim),
                ("ZREM", ":claimed", victim),
                ("ZADD", ":pending", 1, victim),
                # An event that has only its body and an entry in published counts as published: an id gets one of both.
                ("ZADD", ":published", 1, victim) if victim in ids[::2] else ("DEL", f":e:{victim}"),
                ("HDEL", f":e:{victim}", "claimed_by"),
                ("HDEL", f":e:{victim}", "ordering_key"),
                ("DEL", f":line:k{chance.randrange(9)}"),
                ("DEL", f":unique:{victim}"),
                ("DEL", ":waiting"),
            ]
            await write_directly(box, *chance.choice(kinds))
            await asyncio.sleep(0)

    async def repairs() -> None:
        while not damaging.done():
            await repair(box)

    relay = Relay(box, publish, lease=5.0, concurrency=4, backoff=Backoff.fixed(0.01))
    async with relay:
        damaging = asyncio.create_task(damage())
        await repairs()
        await damaging
        async with asyncio.timeout(60):
            while not delivered >= set(ids):
                await repair(box)
                await advance(box, seconds=10)
                await asyncio.sleep(0.05)
    await repair(box)
    assert await check_invariants(box) == []
    assert await ids_of(box) == set(ids)


@pytest.mark.parametrize("stale", [{"created_at": "1"}, {"size": 1}, {"event_type": ""}])
async def test_what_a_body_said_counts_only_while_it_is_the_same(box: Box, stale: dict[str, Any]):
    await box.put(Event("n", event_id="e"))
    read = await read_body(box._store, b"e")
    other = read._replace(event_type="other")
    assert await box._store.repair(b"e", other._replace(**stale), dry=False) == []
    assert await check_invariants(box) == []
    assert await box._store.repair(b"e", other, dry=True) == ["event_type is set"]


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"\\xff"])
async def test_an_event_with_any_id_is_mended(box: Box, raw: bytes):
    await one_of_each(box)
    prefix = keys.prefix(box.name).encode()
    for kind in (b":e:", b":b:"):
        await box._store.exchange([("RENAME", prefix + kind + b"waiting", prefix + kind + raw)])
    for index in (":line:k", ":waiting", ":unique:u3"):
        await write_directly(box, "ZREM", index, b"waiting")
    await write_directly(box, "ZADD", ":line:alone", 99, raw)
    done = await repair(box)
    assert done.mended
    assert done.left == []
    assert await check_invariants(box) == []
    (place,) = await box._store.exchange([("ZSCORE", prefix + b":line:k", raw)])
    assert place is not None


async def test_an_empty_ordering_key_is_none(box: Box):
    await box.put(Event("n", event_id="a"))
    for command in (
        ("HSET", ":e:a", "ordering_key", ""),
        ("ZADD", ":line:", 7, "a"),
        ("ZADD", ":line:", 8, "nobody"),
        ("SET", ":b:a", encode_empty_key()),
    ):
        await write_directly(box, *command)
    done = await repair(box)
    assert done.mended
    assert done.left == []
    assert await check_invariants(box) == []
    assert "ordering_key" not in await fields_of(box, "a")
    assert f"{keys.prefix(box.name)}:line:" not in await contents(box)


def encode_empty_key() -> bytes:
    """The body of an event whose ordering_key is the empty string, which no put accepts."""
    event = Event("n", event_id="a", ordering_key="k")
    msgspec.structs.force_setattr(event, "ordering_key", "")
    return encode_event(event, 1000, {}).body


async def test_what_another_repair_mended_meanwhile_is_not_left(box: Box, monkeypatch: pytest.MonkeyPatch):
    await one_of_each(box)
    await write_directly(box, "ZADD", ":pending", 5, "later")
    await write_directly(box, "SET", ":b:dead", b"\xc1")
    mend_event = box._store.repair

    async def second(raw: bytes, body: Any, *, dry: bool) -> list[str]:
        await mend_event(raw, body, dry=False)
        return await mend_event(raw, body, dry=dry)

    monkeypatch.setattr(box._store, "repair", second)
    done = await repair(box)
    assert done.mended == []
    assert [(problem.rule, problem.event_id) for problem in done.left] == [("damaged", "dead")]
