"""OP: ordering keys, dead heads, and the events that wait behind them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from redbox import Box, Claim, Event, Outcome, Phase, State, keys
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import fail, fields_of


async def put_line(box: Box, count: int, key: str = "a", **fields: Any) -> list[str]:
    """Puts events n0, n1, ... into one line."""
    events = [Event(f"n{n}", ordering_key=key, **fields) for n in range(count)]
    return [receipt.event_id for receipt in await box.put_many(events)]


async def claim_types(box: Box, relay: str = "relay") -> list[str]:
    return [claim.event.event_type for claim in await box.claim(relay)]


async def the_one(box: Box, **options: Any) -> Claim:
    (claim,) = await box.claim("relay", **options)
    return claim


async def block(box: Box) -> None:
    await box.operate.configure(dead_head="block", who="me", why="order matters")


@pytest.mark.req("OP-1", "EM-7")
async def test_one_at_a_time_in_put_order(box: Box):
    await put_line(box, 5)
    seen = []
    while claims := await box.claim("relay", limit=10):
        assert len(claims) == 1
        assert await box.claim("another") == []
        seen.append(claims[0].event.event_type)
        await box.ack(claims)
        assert await check_invariants(box) == []
    assert seen == ["n0", "n1", "n2", "n3", "n4"]


@pytest.mark.req("OP-1")
async def test_lines_run_in_parallel_and_events_without_a_key_do_not_wait(box: Box):
    await put_line(box, 2, "a")
    await put_line(box, 2, "b")
    await box.put_many([Event("free"), Event("free")])
    assert sorted(await claim_types(box)) == ["free", "free", "n0", "n0"]


@pytest.mark.req("OP-1", "EM-6")
async def test_partition_keys_do_not_order(box: Box):
    await box.put_many([Event("n", partition_key="p") for _ in range(3)])
    assert [claim.event.partition_key for claim in await box.claim("relay")] == ["p", "p", "p"]


@pytest.mark.req("OP-1")
async def test_put_order_decides_and_not_ids_or_batches(box: Box):
    await box.put(Event("first", event_id="z", ordering_key="a"))
    await asyncio.gather(*(box.put(Event(f"m{n}", event_id=f"y{9 - n}", ordering_key="a")) for n in range(5)))
    await box.put_many([Event("last", event_id="a", ordering_key="a")])
    seen = []
    while claims := await box.claim("relay"):
        seen += [claim.event.event_type for claim in claims]
        await box.ack(claims)
    assert seen == ["first", "m0", "m1", "m2", "m3", "m4", "last"]


@pytest.mark.req("OP-2", "OP-1")
@pytest.mark.parametrize("how", ["retry", "release", "expiry"])
async def test_a_returned_event_stays_the_head(box: Box, how: str):
    await put_line(box, 3)
    claim = await the_one(box, lease=30)
    if how == "retry":
        await box.retry(claim, error="503", delay=60)
    elif how == "release":
        await box.release(claim, delay=60)
    else:
        await advance(box, seconds=31)
        await box.reap(delay=60)
    assert await box.claim("relay") == []  # while the head waits, the line waits
    assert (await box.stats()).waiting == 2
    await advance(box, seconds=61)
    again = await the_one(box)
    assert again.event_id == claim.event_id
    assert again.number > claim.number
    await box.ack(again)
    assert await claim_types(box) == ["n1"]
    assert await check_invariants(box) == []


@pytest.mark.req("OP-1", "EM-12")
async def test_a_scheduled_head_holds_up_its_line(box: Box):
    await box.put(Event("head", ordering_key="a", delay=60))
    await box.put(Event("next", ordering_key="a"))
    assert await box.claim("relay") == []
    await advance(box, seconds=61)
    claim = await the_one(box)
    assert claim.event.event_type == "head"
    await box.ack(claim)
    assert await claim_types(box) == ["next"]


@pytest.mark.req("OP-1", "EM-12")
async def test_a_promoted_event_keeps_its_own_time(box: Box):
    await box.put(Event("head", ordering_key="a"))
    await box.put(Event("next", ordering_key="a", delay=60))
    await box.ack(await the_one(box))
    assert await box.claim("relay") == []
    await advance(box, seconds=61)
    assert await claim_types(box) == ["next"]


@pytest.mark.req("OP-2")
async def test_skip_lets_the_line_continue(box: Box):
    await put_line(box, 2)
    await box.kill(await the_one(box), reason="no")
    assert await claim_types(box) == ["n1"]
    assert (await box.stats()).blocked == 0
    assert await check_invariants(box) == []


@pytest.mark.req("OP-2")
async def test_block_stops_the_line_until_the_head_is_dropped(box: Box):
    await block(box)
    first, *_ = await put_line(box, 3)
    await put_line(box, 1, "other")
    for claim in await box.claim("relay"):
        await (box.kill if claim.event.ordering_key == "a" else box.ack)(claim)
    assert await box.claim("relay") == []
    stats = await box.stats()
    assert (stats.blocked, stats.waiting) == (1, 2)
    assert await check_invariants(box) == []
    assert await box.operate.drop([first], who="me", why="bad data") == [Outcome.OK]
    assert await claim_types(box) == ["n1"]
    assert (await box.stats()).blocked == 0
    assert await check_invariants(box) == []


@pytest.mark.req("OP-2", "MQ-5")
async def test_sweep_leaves_a_dead_head_that_blocks(box: Box):
    await block(box)
    first, *_ = await put_line(box, 2)
    await box.kill(await the_one(box))
    free = await box.put(Event("free"))
    await box.kill(await the_one(box))
    await advance(box, days=1)
    assert (await box.sweep(keep_dead=0)).dead == 1
    assert await box.get(free.event_id) is None
    record = await box.get(first)
    assert record is not None
    assert record.state is State.DEAD
    assert await check_invariants(box) == []


@pytest.mark.req("OP-4", "RO-2")
async def test_replay_joins_the_tail(box: Box):
    first, *_ = await put_line(box, 3)
    await box.kill(await the_one(box))
    assert (await box.replay([first])).replayed == 1
    seen = []
    while claims := await box.claim("relay"):
        seen += [claim.event.event_type for claim in claims]
        await box.ack(claims)
    assert seen == ["n1", "n2", "n0"]
    assert await check_invariants(box) == []


@pytest.mark.req("OP-1", "OP-4")
async def test_an_event_keeps_its_place_number_after_it_has_left_the_line(box: Box):
    """An archive uses it to restore the order of a key. A replay to the tail takes a new place."""
    first, second, third = await put_line(box, 3)
    await box.put(Event("no.line", event_id="no.line"))
    await box.ack(await box.claim("relay"))
    numbers = {event_id: (await fields_of(box, event_id)).get("seq") for event_id in (first, second, third, "no.line")}
    assert [numbers[event_id] for event_id in (first, second, third, "no.line")] == ["1", "2", "3", None]
    await box.replay([first])
    assert (await fields_of(box, first))["seq"] == "4"
    assert await check_invariants(box) == []


@pytest.mark.req("OP-4")
async def test_an_event_replayed_into_an_empty_line_is_its_head(box: Box):
    (first,) = await put_line(box, 1)
    await box.ack(await the_one(box))
    await box.replay([first])
    assert (await box.stats()).waiting == 0
    await put_line(box, 1)
    assert (await the_one(box)).event_id == first
    assert await check_invariants(box) == []


@pytest.mark.req("OP-4")
async def test_replay_under_block_returns_to_its_place(box: Box):
    await block(box)
    first, *_ = await put_line(box, 3)
    await box.kill(await the_one(box))
    assert (await box.replay([first])).replayed == 1
    assert (await box.stats()).blocked == 0
    assert await check_invariants(box) == []
    seen = []
    while claims := await box.claim("relay"):
        seen += [claim.event.event_type for claim in claims]
        await box.ack(claims)
    assert seen == ["n0", "n1", "n2"]


async def rest_of_the_line(box: Box) -> list[str]:
    """Delivers the remaining events, and checks that never two events of the line are in flight."""
    seen = []
    while claims := await box.claim("relay"):
        assert len(claims) == 1
        assert await check_invariants(box) == []
        seen += [claim.event.event_type for claim in claims]
        await box.ack(claims)
    return seen


async def kill_by_hand(box: Box, *ids: str) -> None:
    assert await box.operate.kill(ids, who="me", why="not yet") == [Outcome.OK] * len(ids)


@pytest.mark.req("OP-4", "OP-1")
async def test_under_block_an_event_killed_behind_the_head_returns_to_its_place(box: Box):
    await block(box)
    ids = await put_line(box, 5)
    await kill_by_hand(box, ids[1], ids[2])
    assert (await box.replay([ids[2]])).replayed == 1  # behind the head
    assert (await box.stats()).waiting == 3
    await box.ack(await the_one(box))
    assert (await box.replay([ids[1]])).replayed == 1  # before a head that was not claimed
    assert (await box.stats()).waiting == 3
    assert await check_invariants(box) == []
    assert await rest_of_the_line(box) == ["n1", "n2", "n3", "n4"]


@pytest.mark.req("OP-4", "OP-1")
@pytest.mark.parametrize("head", ["claimed", "failed", "dead"])
async def test_under_block_a_replay_does_not_pass_a_later_event_that_was_claimed(box: Box, head: str):
    await block(box)
    ids = await put_line(box, 4)
    await kill_by_hand(box, ids[1])
    await box.ack(await the_one(box))
    claim = await the_one(box)
    assert claim.event.event_type == "n2"
    if head == "failed":
        await fail(box, claim, error="503")
    elif head == "dead":
        await box.kill(claim)
    assert (await box.replay([ids[1]])).replayed == 1
    assert await check_invariants(box) == []
    if head == "claimed":
        assert await box.claim("another") == []
        await box.release(claim)
    elif head == "dead":
        assert await box.claim("another") == []
        await box.replay([ids[2]])
    assert await rest_of_the_line(box) == ["n2", "n3", "n1"]


@pytest.mark.req("OP-4", "OP-2")
async def test_under_block_a_replay_does_not_pass_a_dead_head_that_was_never_claimed(box: Box):
    await block(box)
    ids = await put_line(box, 4)
    await kill_by_hand(box, ids[1])
    await box.ack(await the_one(box))
    await kill_by_hand(box, ids[2])
    await box.replay([ids[1]])
    assert await box.claim("another") == []
    assert (await box.stats()).blocked == 1
    assert await check_invariants(box) == []
    await box.replay([ids[2]])
    assert await rest_of_the_line(box) == ["n2", "n3", "n1"]


@pytest.mark.req("OP-4", "RO-2")
async def test_under_block_dead_events_replayed_together_keep_their_order(box: Box):
    await block(box)
    ids = await put_line(box, 4)
    await kill_by_hand(box, ids[1])
    await box.ack(await the_one(box))
    await box.kill(await the_one(box))  # n2 blocks the line
    assert (await box.replay([ids[1], ids[2]])).replayed == 2
    assert await rest_of_the_line(box) == ["n1", "n2", "n3"]


@pytest.mark.req("OP-4")
async def test_under_block_a_published_event_is_replayed_at_the_tail(box: Box):
    await block(box)
    ids = await put_line(box, 3)
    await box.ack(await the_one(box))
    await box.replay([ids[0]])
    assert await rest_of_the_line(box) == ["n1", "n2", "n0"]


@pytest.mark.req("OP-4")
async def test_a_replay_joins_the_tail_when_the_line_has_moved_on(box: Box):
    ids = await put_line(box, 3)
    await kill_by_hand(box, ids[1])
    await box.replay([ids[1]])
    assert await rest_of_the_line(box) == ["n0", "n2", "n1"]


@pytest.mark.req("OP-4")
async def test_a_replayed_line_has_the_order_of_the_replay(box: Box):
    ids = await put_line(box, 3)
    while claims := await box.claim("relay"):
        await box.kill(claims)
    assert (await box.replay(ids)).replayed == 3
    assert (await box.stats()).waiting == 2
    await put_line(box, 1, "a")
    seen = []
    while claims := await box.claim("relay"):
        seen += [claim.event_id for claim in claims]
        await box.ack(claims)
    assert seen[:3] == ids
    assert await check_invariants(box) == []


@pytest.mark.req("OP-2", "RO-3")
@pytest.mark.parametrize("policy", ["skip", "block"])
async def test_killing_an_event_in_the_middle_removes_it_from_the_line(box: Box, policy: str):
    await box.operate.configure(dead_head=policy, who="me", why="test")
    ids = await put_line(box, 3)
    assert await box.operate.kill([ids[1]], who="me", why="not wanted") == [Outcome.OK]
    assert (await box.stats()).blocked == 0
    assert await check_invariants(box) == []
    seen = []
    while claims := await box.claim("relay"):
        seen += [claim.event.event_type for claim in claims]
        await box.ack(claims)
    assert seen == ["n0", "n2"]


@pytest.mark.req("OP-1", "RO-3")
async def test_killing_an_event_behind_a_claimed_head_does_not_affect_the_head(box: Box):
    ids = await put_line(box, 3)
    (head,) = await box.claim("relay")
    assert await box.operate.kill([ids[1]], who="me", why="not wanted") == [Outcome.OK]
    assert await check_invariants(box) == []
    assert await box.claim("relay-2") == []
    assert await box.ack(head) == [True]
    assert await claim_types(box) == ["n2"]


@pytest.mark.req("OP-2", "RO-3")
async def test_killing_a_waiting_head(box: Box):
    ids = await put_line(box, 2, delay=60)
    await box.put(Event("n2", ordering_key="a"))
    assert await box.operate.kill(ids, who="me", why="not wanted") == [Outcome.OK, Outcome.OK]
    assert await claim_types(box) == ["n2"]
    assert await check_invariants(box) == []


@pytest.mark.req("OP-2")
async def test_changing_the_policy_to_skip_frees_blocked_lines(box: Box):
    await block(box)
    for key in range(5):
        await put_line(box, 2, f"k{key}")
    await box.kill(await box.claim("relay"))
    assert (await box.stats()).blocked == 5
    await box.operate.configure(dead_head="skip", who="me", why="go on")
    assert (await box.stats()).blocked == 0
    assert await claim_types(box) == ["n1"] * 5
    assert await check_invariants(box) == []


@pytest.mark.req("OP-2")
async def test_a_reap_frees_the_blocked_lines_that_an_operator_left(box: Box):
    """The process of the operator ended after its first step."""
    await block(box)
    for key in range(5):
        await put_line(box, 2, f"k{key}")
    await box.kill(await box.claim("relay"))
    await box.reap()
    assert (await box.stats()).blocked == 5  # as dead_head says
    left = await box._store.configure("configure", [("dead_head", "skip")], who="me", why="go on", limit=1)
    assert (left, (await box.stats()).blocked) == (4, 4)
    assert await box.reap(limit=3) == []
    assert (await box.stats()).blocked == 1  # bounded
    assert await box.reap(limit=3) == []
    assert (await box.stats()).blocked == 0
    assert await claim_types(box) == ["n1"] * 5
    assert await check_invariants(box) == []


@pytest.mark.req("OP-2", "RO-3")
async def test_reschedule_keeps_the_place_in_the_line(box: Box):
    ids = await put_line(box, 3)
    assert await box.operate.reschedule([ids[0], ids[2]], delay=60, who="me", why="later") == [Outcome.OK, Outcome.OK]
    assert await box.claim("relay") == []
    assert await check_invariants(box) == []
    await advance(box, seconds=61)
    seen = []
    while claims := await box.claim("relay"):
        seen += [claim.event.event_type for claim in claims]
        await box.ack(claims)
    assert seen == ["n0", "n1", "n2"]


@pytest.mark.req("OP-1", "PL-7")
async def test_order_across_relays_retries_and_crashes(box: Box):
    keys, length = 5, 8
    for n in range(length):
        await box.put_many([Event(f"n{n}", ordering_key=f"k{key}") for key in range(keys)])
    delivered: dict[str, list[str]] = {f"k{key}": [] for key in range(keys)}
    for turn in range(200):
        claims = await box.claim(f"relay-{turn % 3}", limit=3, lease=30)
        if not claims and not (await box.stats()).phases[Phase.IN_FLIGHT]:
            break
        for at, claim in enumerate(claims):
            fate = (turn + at) % 4
            if fate == 0:
                continue  # a crash before the publish: its lease expires
            delivered[str(claim.event.ordering_key)].append(claim.event.event_type)
            if fate == 1:
                continue  # a crash after the publish
            assert await (box.ack if fate == 2 else box.retry)(claim) == [True]
        await advance(box, seconds=31)
        await box.reap()
    for seen in delivered.values():
        firsts = list(dict.fromkeys(seen))
        assert firsts == [f"n{n}" for n in range(length)]
    assert await check_invariants(box) == []


@pytest.mark.req("OP-3")
async def test_a_claim_does_not_scan_waiting_events(box: Box):
    """Events behind a head are in no set that a claim reads."""
    await put_line(box, 300)
    await box.put(Event("free"))
    stats = await box.stats()
    assert (stats.phases[Phase.AVAILABLE], stats.waiting) == (2 + 299, 299)
    assert len(await box.claim("relay", limit=1)) == 1
    assert await claim_types(box) == ["free"]


@pytest.mark.req("OP-3")
async def test_a_claim_reads_no_waiting_events(box: Box):
    """Neither the index of waiting events nor their line: with a foreign type there, a claim that reads them would
    fail."""
    await put_line(box, 3, "k")
    await box.put(Event("free"))
    for key in (keys.waiting(box.name), keys.line(box.name, "k")):
        await box._store.exchange([("DEL", key), ("SET", key, "not to be read")])
    assert len(await box.claim("relay", limit=10)) == 2


@pytest.mark.req("OP-3")
@pytest.mark.needs("server")
async def test_the_cost_of_a_claim_and_an_ack_does_not_grow_with_the_line(open_box: Callable[..., Box]):
    """The server counts as many commands for 300 waiting events as for 3."""

    async def commands(waiting: int) -> dict[str, int]:
        box = open_box()
        await put_line(box, waiting + 2, "k")
        before = await calls(box)
        assert await box.ack(await box.claim("relay", limit=10)) == [True]
        after = await calls(box)
        return {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}

    assert await commands(300) == await commands(3)


async def calls(box: Box) -> dict[str, int]:
    """Returns how often the server ran each command that reads or writes events, including calls of scripts."""
    (raw,) = await box._store.exchange([("INFO", "commandstats")])
    counts = re.findall(r"cmdstat_([hz]\w+):calls=(\d+)", raw.decode() if isinstance(raw, bytes) else str(raw))
    return {name: int(count) for name, count in counts}
