"""LM-3: one ordering key is paused: none of its events is claimed, and all others are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redbox import Box, Event, Outcome, PausedKey, Phase, State, keys
from redbox.errors import ForeignKey
from redbox.store.scripts.items import SeenClaim, StreamBatch
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.operations.steps import ADA
from redbox.testing.conformance.steps import claim_one, expire, known, store_time

KEY = "order-7"


async def put(box: Box, *ids: str, key: str = KEY, **options: Any) -> None:
    await box.put_many([Event("n", event_id=event_id, ordering_key=key, **options) for event_id in ids])


async def claimed_ids(box: Box) -> list[str]:
    """Claims and acknowledges until nothing is available, and checks the box after each step."""
    ids = []
    while claims := await box.claim("relay-1", limit=10):
        ids += [claim.event_id for claim in claims]
        assert await check_invariants(box) == []
        await box.ack(claims)
        assert await check_invariants(box) == []
    return ids


async def resumed_ids(box: Box) -> list[str]:
    """Resumes the key, and claims all that is available then."""
    assert await check_invariants(box) == []
    assert await claimed_ids(box) == []
    assert await box.operate.resume(key=KEY, **ADA)
    assert await check_invariants(box) == []
    return await claimed_ids(box)


@pytest.mark.req("LM-3")
async def test_a_paused_key_holds_its_events_and_no_others(box: Box):
    await put(box, "a", "b")
    await box.operate.pause(key=KEY, **ADA)
    await put(box, "c")
    await put(box, "x", "y", key="order-8")
    await box.put(Event("n", event_id="plain"))
    stats = await box.stats()
    assert (stats.paused, stats.paused_keys, stats.waiting) == (False, 1, 4)
    assert stats.phases[Phase.AVAILABLE] == 6
    assert sorted(await claimed_ids(box)) == ["plain", "x", "y"]
    assert await resumed_ids(box) == ["a", "b", "c"]
    assert (await box.stats()).paused_keys == 0
    assert not await box.operate.resume(key=KEY, **ADA)
    assert set(await box._store.meta()) == {"layout", "longest_lease"}


@pytest.mark.req("LM-3")
async def test_a_key_is_paused_before_its_first_event(box: Box):
    await box.operate.pause(key=KEY, **ADA)
    await put(box, "a")
    assert await resumed_ids(box) == ["a"]


@pytest.mark.req("LM-3")
async def test_a_pause_of_a_key_ends_by_itself_in_a_claim(box: Box):
    await put(box, "a", "b")
    await put(box, "x", key="forever")
    await box.operate.pause(key="forever", **ADA)
    await box.operate.pause(key=KEY, duration=600, **ADA)
    reply = await box.claim_packed("relay-1", limit=1, lease=60, attempts=None, holding=0)
    assert reply.more_in is not None
    assert 500 < reply.more_in <= 600
    await advance(box, seconds=590)
    assert await claimed_ids(box) == []
    await advance(box, seconds=10)
    assert (await box.stats()).paused_keys == 1
    assert [each.key for each in await box.operate.paused_keys()] == ["forever"]
    assert await box.operate.paused_keys(key=KEY) == []
    assert await claimed_ids(box) == ["a", "b"]
    assert await box.operate.resume(key="forever", **ADA)
    assert await claimed_ids(box) == ["x"]
    assert "keys_paused" not in await box._store.meta()


@pytest.mark.req("LM-3")
@pytest.mark.parametrize("flag", [None, "x", "inf"])
async def test_a_pause_of_a_key_ends_by_itself_in_a_reap(box: Box, flag: str | None):
    """Also if the note in meta that says when was damaged."""
    await put(box, "a")
    await box.operate.pause(key=KEY, duration=60, **ADA)
    if flag is not None:
        await box._store.exchange([("HSET", keys.meta(box.name), "keys_paused", flag)])
    await box.reap()
    assert await claimed_ids(box) == []
    await advance(box, seconds=61)
    await box.reap()
    assert "keys_paused" not in await box._store.meta()
    assert await claimed_ids(box) == ["a"]


@pytest.mark.req("LM-3")
@pytest.mark.parametrize("how", ["claim", "reap"])
async def test_many_pauses_end_at_once(box: Box, how: str):
    """A script ends some at a time, and says that there are more."""
    names = [f"k{number}" for number in range(45)]
    for name in names:
        await box.operate.pause(key=name, duration=60, **ADA)
    await box.put_many([Event("n", event_id=name, ordering_key=name) for name in names])
    await advance(box, seconds=61)
    if how == "reap":
        for _ in range(3):
            await box.reap(limit=1)
    else:
        replies = [await box.claim_packed("r", limit=1, lease=60, attempts=None, holding=0) for _ in range(2)]
        assert [(len(reply), reply.more_in) for reply in replies] == [(1, 0)] * 2
    assert len(await claimed_ids(box)) == (45 if how == "reap" else 43)
    assert "keys_paused" not in await box._store.meta()


@pytest.mark.req("LM-3")
async def test_paused_keys_are_listed_with_who_why_and_until(box: Box):
    assert await box.operate.paused_keys() == []
    for number in range(3):
        await box.operate.pause(key=f"k{number}", who="bob", why=f"a\treason {number}", duration=600 - number)
    pause = await box.operate.pause(key="k1", who="ada", why="replaced")
    assert pause.until is None
    listed = await box.operate.paused_keys()
    assert [(each.key, each.who, each.why) for each in listed] == [
        ("k2", "bob", "a\treason 2"),
        ("k0", "bob", "a\treason 0"),
        ("k1", "ada", "replaced"),
    ]
    assert listed[2] == PausedKey("k1", "ada", "replaced", pause.since, None)
    now = await store_time(box)
    assert listed[1].until is not None
    assert timedelta(seconds=590) < listed[1].until - now <= timedelta(seconds=600)
    assert [each.key for each in await box.operate.paused_keys(limit=1)] == ["k2"]
    for each in listed:
        assert await box.operate.paused_keys(key=each.key) == [each]
    assert await box.operate.paused_keys(key="another") == []
    entries = await box.operate.log()
    assert (entries[0].detail, entries[0].action) == ("key=k1", "pause")
    assert entries[1].detail.startswith("key=k2 until=")


@pytest.mark.req("LM-3")
async def test_details_that_are_lost_or_damaged(box: Box):
    await box.operate.pause(key="a", **ADA)
    await box.operate.pause(key="b", **ADA)
    await box._store.exchange([("HSET", keys.pauses(box.name), "a", "nonsense"), ("HDEL", keys.pauses(box.name), "b")])
    assert await box.operate.paused_keys() == [PausedKey(key, "", "", None, None) for key in ("a", "b")]


@pytest.mark.req("LM-3", "LM-4")
@pytest.mark.parametrize("foreign", ["line", "head"])
@pytest.mark.parametrize("how", ["claim", "reap", "cut"])
async def test_the_end_of_a_pause_whose_line_is_foreign_stops_no_other_key(box: Box, how: str, foreign: str):
    """Its pause goes on for a minute, and is then looked at again."""
    store = box._store
    await put(box, "a", "b")
    await put(box, "x", key="order-8")
    await put(box, "y", key="order-9")
    for key in (KEY, "order-8"):
        await box.operate.pause(key=key, duration=60, **ADA)
    damaged = keys.line(box.name, KEY) if foreign == "line" else keys.event(box.name, "a")
    await store.exchange([("RENAME", damaged, keys.body(box.name, "kept")), ("SET", damaged, "somebody else's")])
    await advance(box, seconds=61) if foreign == "line" else await _end_pauses(box)
    if how == "cut":
        await store.track_stream("own", "lake", "me")
        assert await store.cut_batch(StreamBatch("lake", "me", 1), "stream:lake", 10, 60_000, 1_000_000, None) == 2
    else:
        if how == "reap":
            assert await box.reap() == []
        assert sorted(claim.event_id for claim in await box.claim("relay-1", limit=10)) == ["x", "y"]
    (listed,) = await box.operate.paused_keys()
    assert listed.key == KEY
    assert listed.until is not None
    assert timedelta(seconds=50) < listed.until - await store_time(box) <= timedelta(seconds=60)
    with pytest.raises(ForeignKey, match=f"^ordering key '{KEY}' cannot be resumed: something else uses"):
        await box.operate.resume(key=KEY, **ADA)
    await store.exchange([("RENAME", keys.body(box.name, "kept"), damaged)])
    await advance(box, seconds=61)
    assert [claim.event_id for claim in await box.claim("relay-1", limit=10)] == ["a"]
    assert "keys_paused" not in await store.meta()
    assert await check_invariants(box) == []


async def _end_pauses(box: Box) -> None:
    """Like advance(), which reads every event."""
    await box._store.exchange([
        ("ZADD", keys.paused(box.name), 1, KEY, 1, "order-8"),
        ("HSET", keys.meta(box.name), "keys_paused", "1"),
    ])  # fmt: skip


# --- a key is paused while its head is ... ---------------------------------------------------------------------------


@pytest.mark.req("LM-3")
@pytest.mark.parametrize("settle", ["ack", "retry", "release", "kill", "expire"])
async def test_while_its_head_is_claimed(box: Box, settle: str):
    """The claimed event can be settled; neither it nor the next one is claimed then."""
    await put(box, "a", "b")
    claim = await claim_one(box)
    await box.operate.pause(key=KEY, **ADA)
    assert await check_invariants(box) == []
    if settle == "expire":
        assert await expire(box) == ["a"]
    else:
        assert await getattr(box, settle)(claim) == [True]
    await advance(box, seconds=1)
    assert await resumed_ids(box) == (["b"] if settle in ("ack", "kill") else ["a", "b"])


@pytest.mark.req("LM-3")
async def test_while_its_head_waits_for_a_retry(box: Box):
    await put(box, "a", "b")
    await box.retry(await claim_one(box), error="503", delay=600)
    await box.operate.pause(key=KEY, **ADA)
    stats = await box.stats()
    assert (stats.phases[Phase.RETRY_SCHEDULED], stats.phases[Phase.AVAILABLE]) == (1, 1)
    assert await resumed_ids(box) == []
    await advance(box, seconds=601)
    assert await claimed_ids(box) == ["a", "b"]


@pytest.mark.req("LM-3")
async def test_while_its_head_is_a_suspect(box: Box):
    await put(box, "a", "b")
    for _ in range(2):
        await claim_one(box)
        await expire(box)
    assert (await box.stats()).suspects == 1
    await box.operate.pause(key=KEY, **ADA)
    assert (await box.stats()).suspects == 0
    assert await check_invariants(box) == []
    assert await claimed_ids(box) == []
    await box.operate.resume(key=KEY, **ADA)
    assert (await box.stats()).suspects == 1
    claim = await claim_one(box)
    assert (claim.event_id, claim.suspect) == ("a", True)


@pytest.mark.req("LM-3")
async def test_while_its_head_becomes_a_suspect(box: Box):
    await put(box, "a", "b")
    await claim_one(box)
    await expire(box)
    await claim_one(box)
    await box.operate.pause(key=KEY, **ADA)
    await expire(box)
    assert await check_invariants(box) == []
    assert await claimed_ids(box) == []
    await box.operate.resume(key=KEY, **ADA)
    assert (await claim_one(box)).suspect
    assert await check_invariants(box) == []


@pytest.mark.req("LM-3")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("then", ["replay", "drop", "skip", "nothing"])
async def test_while_a_dead_head_blocks_its_line(box: Box, when: str, then: str):
    await box.operate.configure(dead_head="block", **ADA)
    await put(box, "a", "b")
    claim = await claim_one(box)
    if when == "before":
        await box.kill(claim)
    await box.operate.pause(key=KEY, **ADA)
    if when == "after":
        await box.kill(claim)
    assert (await box.stats()).blocked == 1
    assert await check_invariants(box) == []
    if then == "replay":
        assert (await box.replay(["a"])).replayed == 1
    elif then == "drop":
        assert await box.operate.drop(["a"], **ADA) == [Outcome.OK]
    elif then == "skip":
        await box.operate.configure(dead_head="skip", **ADA)
    assert await resumed_ids(box) == {"replay": ["a", "b"], "nothing": []}.get(then, ["b"])


@pytest.mark.req("LM-3")
async def test_while_its_events_are_killed_replayed_and_rescheduled_by_hand(box: Box):
    await put(box, "a", "b", "c", "d")
    await box.operate.pause(key=KEY, **ADA)
    assert await box.operate.kill(["a", "c"], **ADA) == [Outcome.OK] * 2
    assert await check_invariants(box) == []
    assert (await box.replay(["a"])).replayed == 1
    assert await box.operate.reschedule(["b", "d"], delay=60, **ADA) == [Outcome.OK] * 2
    assert await check_invariants(box) == []
    assert await box.operate.reschedule(["b", "d"], **ADA) == [Outcome.OK] * 2
    assert await resumed_ids(box) == ["b", "d", "a"]


@pytest.mark.req("LM-3")
async def test_while_a_replayed_event_returns_to_the_front(box: Box):
    await box.operate.configure(dead_head="block", **ADA)
    await put(box, "a", "b", "c")
    await box.kill(await claim_one(box))
    await box.operate.configure(dead_head="skip", **ADA)
    await box.operate.configure(dead_head="block", **ADA)
    await box.operate.pause(key=KEY, **ADA)
    assert (await box.replay(["a"])).replayed == 1
    assert await resumed_ids(box) == ["a", "b", "c"]


@pytest.mark.req("LM-3")
async def test_while_its_published_events_are_swept(box: Box):
    await put(box, "a", "b", "c")
    await box.ack(await claim_one(box))
    await box.kill(await claim_one(box))
    await box.operate.pause(key=KEY, **ADA)
    swept = await box.sweep(keep_published=0, keep_dead=0)
    assert (swept.published, swept.dead) == (1, 1)
    assert await resumed_ids(box) == ["c"]


@pytest.mark.req("LM-3")
async def test_while_its_head_is_lost(box: Box):
    await put(box, "a", "b")
    await box.operate.pause(key=KEY, **ADA)
    await box._store.exchange([("DEL", keys.event(box.name, "a"), keys.body(box.name, "a"))])
    await box.operate.resume(key=KEY, **ADA)
    assert (await claim_one(box)).event_id == "b"
    assert (await box.stats()).lost_ids == ["a"]


@pytest.mark.req("LM-3")
@pytest.mark.parametrize("how", ["claim", "reap", "cut", "resume", "ack", "kill"])
@pytest.mark.parametrize("indexed", [True, False])
async def test_while_its_line_has_many_ids_without_an_event(box: Box, how: str, indexed: bool):
    """A script moves some of them to lost, and the next claim or reap continues."""
    store, paused = box._store, how not in ("ack", "kill")
    await put(box, "a", "b")
    claim = None if paused else await claim_one(box)
    if paused:
        await box.operate.pause(key=KEY, duration=None if how == "resume" else 60, **ADA)
        await store.exchange([("DEL", keys.event(box.name, "a"), keys.body(box.name, "a"))])
    ids = [f"lost-{number}" for number in range(2500 - paused)]
    scores = [part for number, event_id in enumerate(ids) for part in (1 + number / 10_000, event_id)]
    await store.exchange([("ZADD", keys.line(box.name, KEY), *scores)])
    if indexed:
        await store.exchange([("ZADD", keys.waiting(box.name), *scores)])
    await _end_pause(box, how)
    reply = 0
    if how == "resume":
        assert await box.operate.resume(key=KEY, **ADA)
    elif how == "cut":
        await store.track_stream("own", "lake", "me")
        reply = await store.cut_batch(StreamBatch("lake", "me", 1), "stream:lake", 10, 60_000, 1_000_000, None)
    elif how == "reap":
        assert (await store.reap(limit=10, delay=0)).more
    elif claim is not None:
        assert await (box.ack(claim) if how == "ack" else box.kill(claim)) == [True]
    else:
        first = await box.claim_packed("relay-1", limit=10, lease=60, attempts=None, holding=0)
        assert (len(first), first.more_in) == (0, 0)
    assert reply == 0
    assert (await store.exchange([("ZCARD", keys.lost(box.name))])) == [1000]
    stats = await box.stats()
    assert (stats.paused_keys, await box.operate.paused_keys()) == (0, [])
    if how == "reap":
        assert [(await store.reap(limit=10, delay=0)).more for _ in range(2)] == [True, False]
    else:
        assert await box.claim("relay-1", limit=10) == []
    assert (await claim_one(box)).event_id == "b"
    assert (await store.exchange([("ZCARD", keys.lost(box.name))])) == [2500]
    assert "keys_paused" not in await store.meta()
    assert await store.exchange([("EXISTS", keys.paused(box.name))]) == [0]


async def _end_pause(box: Box, how: str) -> None:
    if how in ("claim", "reap", "cut"):
        await box._store.exchange([
            ("ZADD", keys.paused(box.name), 1, KEY),
            ("HSET", keys.meta(box.name), "keys_paused", "1"),
        ])  # fmt: skip


@pytest.mark.req("LM-3")
async def test_an_acknowledged_event_leaves_many_ids_without_an_event_to_a_paused_key(box: Box):
    await put(box, "a", "b")
    claim, store = await claim_one(box), box._store
    await box.operate.pause(key=KEY, **ADA)
    scores = [part for number in range(1500) for part in (1 + number / 10_000, f"lost-{number}")]
    await store.exchange([("ZADD", keys.line(box.name, KEY), *scores)])
    await box.ack(claim)
    assert [each.until for each in await box.operate.paused_keys()] == [None]
    assert await box.claim("relay-1", limit=10) == []
    assert await box.operate.resume(key=KEY, **ADA)
    assert (await claim_one(box)).event_id == "b"


@pytest.mark.req("LM-4")
async def test_a_foreign_key_instead_of_the_paused_keys_stops_no_acknowledgement(box: Box):
    await put(box, "a", "b")
    claim, store = await claim_one(box), box._store
    scores = [part for number in range(1500) for part in (1 + number / 10_000, f"lost-{number}")]
    await store.exchange([("ZADD", keys.line(box.name, KEY), *scores), ("SET", keys.paused(box.name), "foreign")])
    assert await box.ack(claim) == [True]
    assert (await claim_one(box)).event_id == "b"


@pytest.mark.req("LM-3")
async def test_a_unique_key_is_held_while_its_event_is_paused(box: Box):
    await put(box, "a", unique_key="u")
    await box.operate.pause(key=KEY, **ADA)
    assert not (await box.put(Event("n", unique_key="u"), on_conflict="skip")).created
    assert await resumed_ids(box) == ["a"]


@pytest.mark.req("LM-3")
async def test_a_transaction_puts_into_a_paused_key(box: Box):
    await box.operate.pause(key=KEY, **ADA)
    async with box.transaction() as tx:
        tx.put(Event("n", event_id="a", ordering_key=KEY))
    assert (await known(box, "a")).state is State.PENDING
    assert await resumed_ids(box) == ["a"]


@pytest.mark.req("LM-3")
async def test_a_stream_neither_cuts_nor_reclaims_events_of_a_paused_key(box: Box):
    store, batch = box._store, StreamBatch("lake", "me", 1)
    await put(box, "a", "b")
    await store.track_stream("own", "lake", "me")
    assert await store.cut_batch(batch, "stream:lake", 10, 60_000, 1_000_000, None) == 1
    await store.track_stream("cut", "lake", "me", 1)
    (member,) = await store.members("lake", 1, 0, -1)
    await store.release("stream:lake", [SeenClaim(*member)])
    await box.operate.pause(key=KEY, duration=60, **ADA)
    assert await store.cut_batch(StreamBatch("lake", "me", 2), "stream:lake", 10, 60_000, 1_000_000, None) == 0
    assert await store.reclaim(batch, "stream:lake", 60_000, ["a"]) == [b"NOTDUE"]
    assert await check_invariants(box) == []
    await advance(box, seconds=61)
    await box.reap()
    assert await store.reclaim(batch, "stream:lake", 60_000, ["a"]) == [b"OK"]
    assert await check_invariants(box) == []


@pytest.mark.req("LM-3")
async def test_resuming_a_key_gives_a_hint(box: Box):
    await put(box, "a")
    await box.operate.pause(key=KEY, **ADA)
    while await box.wait_for_hint(0.01):
        pass
    await put(box, "b")
    assert not await box.wait_for_hint(0.01)
    await box.operate.resume(key=KEY, **ADA)
    assert await box.wait_for_hint(1)


@pytest.mark.req("LM-3")
async def test_a_pause_of_the_box_and_of_a_key(box: Box):
    """Each ends for itself."""
    await put(box, "a")
    await box.operate.pause(key=KEY, **ADA)
    await box.operate.pause(**ADA)
    await box.operate.resume(**ADA)
    assert (await box.stats()).paused_keys == 1
    assert await claimed_ids(box) == []
    await box.operate.pause(**ADA)
    await box.operate.resume(key=KEY, **ADA)
    assert (await box.stats()).paused
    await box.operate.resume(**ADA)
    assert await claimed_ids(box) == ["a"]
