"""The basis of the pipeline, without Spark: streams that drain a box, ranges of indexes, and locks."""

from __future__ import annotations

from typing import Any

import pytest

from redbox import Box, Event, Outcome, Phase, State, keys
from redbox.errors import BoxPaused, InvalidSetting, StreamTaken
from redbox.store.scripts.items import KillItem, RetryItem, SeenClaim, StreamBatch
from redbox.store.scripts.replies import START
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import claim_one, contents, expire, fields_of, known, make_dead, publish

RELAY = "stream:lake"
LEASE = 60_000
BYTES = 1_000_000


async def own(box: Box, owner: str = "me") -> tuple[int, int]:
    return await box._store.track_stream("own", "lake", owner)


async def cut(box: Box, batch: int, limit: int = 100, owner: str = "me", until: int | None = None, **more: Any) -> int:
    """Claims events into a batch. Returns how many it has then."""
    await box._store.cut_batch(StreamBatch("lake", owner, batch), RELAY, limit, LEASE, more.get("size", BYTES), until)
    return await box._store.member_count("lake", batch)


async def members(box: Box, batch: int) -> list[tuple[str, int]]:
    return await box._store.members("lake", batch, 0, -1)


async def settle(box: Box, batch: int, claims: list[tuple[str, int]], owner: str = "me") -> list[bytes]:
    words: list[bytes] = await box._store.settle_batch(StreamBatch("lake", owner, batch), RELAY, claims)
    return words


async def filled(box: Box, count: int = 5) -> list[str]:
    ids = [f"e{number}" for number in range(count)]
    await box.put_many([Event("n", event_id=event_id) for event_id in ids])
    return ids


# --- streams ---------------------------------------------------------------------------------------------------


@pytest.mark.req("SP-3")
async def test_a_batch_is_cut_closed_and_settled(box: Box):
    ids = await filled(box)
    assert await own(box) == (0, 0)
    assert await cut(box, 1, limit=2) == 2
    assert await cut(box, 1, limit=1) == 3
    assert await box._store.track_stream("cut", "lake", "me", 1) == (1, 0)
    held = await members(box, 1)
    assert [event_id for event_id, _ in held] == ids[:3]
    records = [await known(box, event_id) for event_id in ids[:3]]
    assert [(record.state, record.claimed_by, record.number) for record in records] == [
        (State.CLAIMED, RELAY, number) for _, number in held
    ]
    assert await box._store.track_stream("settle", "lake", "me", 1) == (1, 0)  # not before its members are
    assert await settle(box, 1, held[:2]) == [b"OK", b"OK"]
    assert await members(box, 1) == held[2:]
    assert await settle(box, 1, held[2:]) == [b"OK"]
    assert await box._store.track_stream("settle", "lake", "me", 1) == (1, 1)
    assert [(await known(box, event_id)).state for event_id in ids] == [*[State.PUBLISHED] * 3, *[State.PENDING] * 2]
    assert await check_invariants(box) == []


@pytest.mark.parametrize("name", ["lake:1", "lake:", ":", ""])
async def test_a_stream_cannot_have_the_name_of_a_batch(box: Box, name: str):
    await filled(box)
    for action, batch in (("own", 0), ("look", 0), ("cut", 1), ("settle", 1)):
        with pytest.raises(InvalidSetting, match=r"stream name .*: use 1 to 64 letters, digits"):
            await box._store.track_stream(action, name, "other", batch)
    with pytest.raises(InvalidSetting, match="stream name"):
        await box._store.member_count(name, 1)
    await own(box)
    assert await cut(box, 1) == 5  # no stream has taken its key
    assert await box._store.track_stream("cut", "lake", "me", 1) == (1, 0)


@pytest.mark.req("SP-3")
async def test_a_batch_is_closed_once_in_order_and_not_empty(box: Box):
    await filled(box)
    await own(box)
    assert await box._store.track_stream("cut", "lake", "me", 1) == (0, 0)
    await cut(box, 1, limit=1)
    await cut(box, 2, limit=1)
    assert await box._store.track_stream("cut", "lake", "me", 2) == (0, 0)
    assert await box._store.track_stream("cut", "lake", "me", 1) == (1, 0)
    assert await box._store.track_stream("cut", "lake", "me", 1) == (1, 0)
    assert await box._store.track_stream("settle", "lake", "me", 2) == (1, 0)
    assert await box._store.track_stream("look", "lake", "me") == (1, 0)


@pytest.mark.req("SP-3")
async def test_members_leave_their_batch_also_if_their_claims_are_gone(box: Box):
    await filled(box, 2)
    await own(box)
    await cut(box, 1)
    held = await members(box, 1)
    await expire(box)
    assert await settle(box, 1, held) == [b"LEASELOST"] * 2
    assert await members(box, 1) == []
    assert (await box.stats()).phases[Phase.AVAILABLE] == 2


@pytest.mark.req("SP-3")
async def test_only_a_driver_at_the_position_of_the_stream_can_take_it(box: Box):
    await filled(box)
    await own(box)
    await cut(box, 1)
    await box._store.track_stream("cut", "lake", "me", 1)
    await settle(box, 1, await members(box, 1))
    await box._store.track_stream("settle", "lake", "me", 1)
    before = await contents(box)
    for position in (0, 2):
        assert await box._store.track_stream("own", "lake", "other", position) == (1, 1)
    assert await contents(box) == before
    assert await box._store.track_stream("look", "lake", "me") == (1, 1)
    assert await box._store.track_stream("own", "lake", "other", 1) == (1, 1)
    with pytest.raises(StreamTaken):
        await box._store.track_stream("look", "lake", "me")


@pytest.mark.req("SP-3", "PL-6")
async def test_a_stream_is_taken_from_a_named_owner_only_while_it_holds_it(box: Box):
    await filled(box, 1)
    await own(box)
    before = await contents(box)
    with pytest.raises(StreamTaken):
        await box._store.track_stream("own", "lake", "other", 0, "somebody")
    assert await contents(box) == before
    for _ in range(2):  # it can be repeated
        assert await box._store.track_stream("own", "lake", "other", 0, "me") == (0, 0)
        assert await box._store.track_stream("look", "lake", "other") == (0, 0)
    with pytest.raises(StreamTaken):
        await box._store.track_stream("own", "lake", "third", 0, "me")
    assert await box._store.track_stream("look", "lake", "other") == (0, 0)


@pytest.mark.req("SP-3", "PL-6")
async def test_taking_over_a_stream_fences_the_previous_owner(box: Box):
    await filled(box)
    await own(box)
    await cut(box, 1, limit=2)
    held = await members(box, 1)
    assert await own(box, "other") == (0, 0)
    before = await contents(box)
    refused = [
        lambda: cut(box, 1),
        lambda: settle(box, 1, held),
        lambda: box._store.track_stream("cut", "lake", "me", 1),
        lambda: box._store.track_stream("settle", "lake", "me", 1),
        lambda: box._store.track_stream("look", "lake", "me"),
        lambda: box._store.reclaim(StreamBatch("lake", "me", 1), RELAY, LEASE, [each for each, _ in held]),
    ]
    for act in refused:
        with pytest.raises(StreamTaken, match="has taken over the stream lake"):
            await act()
    assert await contents(box) == before
    assert await cut(box, 1, owner="other") == 5


@pytest.mark.req("SP-3")
async def test_a_cut_takes_only_events_available_by_a_given_time(box: Box):
    """The time itself is included."""
    await filled(box, 2)
    await advance(box, seconds=10)
    latest = int((await fields_of(box, "e1"))["created_at"])
    await box.put(Event("n", event_id="later"))
    await own(box)
    assert await cut(box, 1, until=latest) == 2
    assert (await known(box, "later")).state is State.PENDING


@pytest.mark.req("SP-3")
async def test_a_cut_is_bounded_in_bytes_and_takes_at_least_one(box: Box):
    await box.put_many([Event("n", bytes(1000)) for _ in range(3)])
    await own(box)
    assert await cut(box, 1, size=2500) == 2
    assert await cut(box, 1, size=1) == 3


@pytest.mark.req("SP-3", "RO-3")
async def test_no_batch_is_cut_from_a_paused_box(box: Box):
    await filled(box, 1)
    await own(box)
    await box.operate.pause(who="ada", why="a test")
    with pytest.raises(BoxPaused):
        await cut(box, 1)


@pytest.mark.req("SP-3")
async def test_released_members_are_reclaimed_unless_others_claimed_them(box: Box):
    every = ("taken", "reaped", "released", "held")
    await box.put_many([Event("n", event_id=each, unique_key=each) for each in every])
    await own(box)
    await cut(box, 1)
    held = dict(await members(box, 1))
    await box._store.release(RELAY, [SeenClaim("taken", held["taken"])])
    await box.release(await claim_one(box, "relay-1"))  # another relay had it in between
    await box._store.renew(RELAY, 10 * LEASE, [("held", held["held"])])
    await box._store.release(RELAY, [SeenClaim("released", held["released"])])
    await advance(box, minutes=2)
    assert await box.reap() == ["reaped"]
    await box._store.track_stream("cut", "lake", "me", 1)
    words = dict(zip(every, await box._store.reclaim(StreamBatch("lake", "me", 1), RELAY, LEASE, every), strict=True))
    assert words == {"taken": b"LEASELOST", "reaped": b"OK", "released": b"OK", "held": b"OK"}
    again = dict(await members(box, 1))
    for event_id in ("reaped", "released"):
        record = await known(box, event_id)
        assert (record.state, record.claimed_by, record.number) == (State.CLAIMED, RELAY, again[event_id])
        assert record.number > held[event_id]
    assert again["held"] == held["held"]
    assert (await known(box, "taken")).state is State.PENDING
    assert (await box.reap()) == []
    assert await check_invariants(box) == []


@pytest.mark.req("SP-3")
async def test_a_reclaim_can_be_repeated(box: Box):
    await box.put(Event("n", event_id="a"))
    await own(box)
    await cut(box, 1)
    held = await members(box, 1)
    await expire(box)
    assert await box._store.reclaim(StreamBatch("lake", "me", 1), RELAY, LEASE, [each for each, _ in held]) == [b"OK"]
    before = await contents(box)
    assert await box._store.reclaim(StreamBatch("lake", "me", 1), RELAY, LEASE, [each for each, _ in held]) == [b"OK"]
    assert await contents(box) == before
    assert (await known(box, "a")).attempts == 2


@pytest.mark.req("SP-3")
async def test_only_members_are_reclaimed(box: Box):
    await box.put(Event("n", event_id="stranger"))
    await box.release(await claim_one(box))
    await own(box)
    assert await box._store.reclaim(StreamBatch("lake", "me", 1), RELAY, LEASE, ["stranger"]) == [b"LEASELOST"]
    assert (await known(box, "stranger")).state is State.PENDING


async def reclaim(box: Box, *ids: str) -> list[bytes]:
    words: list[bytes] = await box._store.reclaim(StreamBatch("lake", "me", 1), RELAY, LEASE, ids)
    return words


@pytest.mark.req("SP-3", "EM-12")
async def test_a_member_is_not_reclaimed_before_it_is_due(box: Box):
    await box.put_many([Event("n", event_id=each) for each in ("delayed", "suspect", "released")])
    await own(box)
    await cut(box, 1)
    await box._store.track_stream("cut", "lake", "me", 1)
    before = await members(box, 1)
    await box._store.exchange([("HSET", keys.event(box.name, "suspect"), "expiries", "2")])
    assert {*await box.operate.release(["delayed", "suspect"], delay=3600, who="ada", why="a test")} == {Outcome.OK}
    await box.operate.release(["released"], who="ada", why="a test")
    assert (await box.stats()).suspects == 1
    assert await reclaim(box, "delayed", "suspect", "released") == [b"NOTDUE", b"NOTDUE", b"OK"]
    assert {(await known(box, each)).state for each in ("delayed", "suspect")} == {State.PENDING}
    assert {each for each, _ in await members(box, 1)} == {each for each, _ in before}
    await advance(box, minutes=59)
    assert await reclaim(box, "delayed", "suspect") == [b"NOTDUE", b"NOTDUE"]
    await advance(box, minutes=1)
    assert await reclaim(box, "delayed", "suspect") == [b"OK", b"OK"]
    assert (await box.stats()).suspects == 0
    assert await check_invariants(box) == []


@pytest.mark.req("SP-3")
async def test_a_reclaim_clears_the_flags_of_the_earlier_claim(box: Box):
    await box.put(Event("n", event_id="a"))
    await own(box)
    await cut(box, 1)
    await expire(box)
    await box._store.exchange([("HSET", keys.event(box.name, "a"), "alone", "1", "exhausted", "1")])
    assert await reclaim(box, "a") == [b"OK"]
    assert not {"alone", "exhausted"} & {*await fields_of(box, "a")}


@pytest.mark.req("SP-3", "RO-3")
async def test_nothing_is_reclaimed_from_a_paused_box(box: Box):
    await filled(box, 2)
    await own(box)
    await cut(box, 1)
    await box._store.track_stream("cut", "lake", "me", 1)
    await box.operate.release(["e0"], who="ada", why="a test")
    await box.operate.pause(who="ada", why="a test")
    before = await contents(box)
    with pytest.raises(BoxPaused):
        await reclaim(box, "e0", "e1")
    assert await contents(box) == before
    assert await reclaim(box, "e1") == [b"OK"]  # it was not removed
    await box.operate.resume(who="ada", why="a test")
    assert await reclaim(box, "e0", "e1") == [b"OK", b"OK"]


@pytest.mark.req("SP-3")
async def test_a_member_that_cannot_be_reclaimed_leaves_an_open_batch(box: Box):
    every = await filled(box, 3)
    await own(box)
    await cut(box, 1)
    await box.operate.release(["e0"], delay=3600, who="ada", why="a test")
    await box.operate.release(["e1"], who="ada", why="a test")
    await claim_one(box)
    assert await reclaim(box, *every) == [b"LEFT", b"LEFT", b"OK"]
    assert [each for each, _ in await members(box, 1)] == ["e2"]
    assert (await known(box, "e0")).state is State.PENDING
    assert (await known(box, "e1")).claimed_by == "relay-1"
    assert await check_invariants(box) == []


@pytest.mark.req("PL-1", "SP-3")
@pytest.mark.parametrize("state", list(State))
async def test_only_pending_members_are_reclaimed(box: Box, state: State):
    """The claim number is that of the batch in every state; only PENDING → CLAIMED is legal."""
    await box.put(Event("n", event_id="a"))
    await own(box)
    await cut(box, 1)
    await box._store.track_stream("cut", "lake", "me", 1)
    (fence,) = await members(box, 1)
    if state is State.PUBLISHED:
        await box._store.ack(RELAY, False, [fence])
    elif state is State.DEAD:
        await box._store.kill(RELAY, [KillItem(*fence, "never")])
    elif state is State.PENDING:
        await box._store.retry(RELAY, [RetryItem(*fence, 0, 0, "again")])
        await advance(box, seconds=1)
    before = await known(box, "a")
    assert (before.state, before.number) == (state, fence[1])
    taken = await reclaim(box, "a")
    if state is State.PENDING:
        assert (taken, (await known(box, "a")).state) == ([b"OK"], State.CLAIMED)
    else:
        assert taken == ([b"OK"] if state is State.CLAIMED else [b"LEASELOST"])
        assert await known(box, "a") == before
    assert await check_invariants(box) == []


# --- slices ----------------------------------------------------------------------------------------------------


@pytest.mark.req("SP-1")
async def test_an_index_is_split_into_ranges_that_are_read_completely(box: Box):
    ids = await filled(box, 7)
    ranges = await box._store.split_index("pending", size=3, ranges=100)
    assert (ranges.claims, ranges.count, len(ranges.last)) == (0, 7, 3)
    found, after = [], START
    for last in ranges.last:
        more = True
        while more:
            ids_found = await box._store.list_ids("pending", after=after, last=last, limit=2)
            more, after = ids_found.more, ids_found.after
            found += [raw.decode() for raw in ids_found.ids]
        after = last
    assert found == ids


@pytest.mark.req("SP-1")
async def test_ranges_are_narrowed_by_time_position_and_size(box: Box):
    await publish(box, Event("n", event_id="old"))
    await advance(box, hours=1)
    await publish(box, Event("n", event_id="new"))
    now = await box._store.time()
    half = now - 1_800_000

    async def ids(ranges: int = 100, **narrowed: Any) -> list[str]:
        found = await box._store.split_index("published", size=1, ranges=ranges, **narrowed)
        return [raw.decode() for _, raw in found.last]

    assert await ids() == ["old", "new"]
    assert await ids(since=half) == ["new"]
    assert await ids(until=half) == ["old"]
    assert await ids(ranges=1) == ["old"]
    ranges = await box._store.split_index("published", size=1, ranges=100)
    assert await ids(after=ranges.last[0]) == ["new"]
    assert ranges.claims == 2


@pytest.mark.req("SP-1")
async def test_listed_ids_are_narrowed_by_type_and_time(box: Box):
    await box.put_many([Event("user.created", event_id="a"), Event("invoice.paid", event_id="b")])
    (last,) = (await box._store.split_index("pending", size=10, ranges=10)).last
    assert (await box._store.list_ids("pending", last=last, limit=10, event_type="user.*")).ids == [b"a"]
    later = await box._store.time() + 1
    assert await box._store.list_ids("pending", last=last, since=later, limit=10) == ([], False, (b"", b""))


@pytest.mark.req("SP-1")
async def test_a_slice_by_an_expensive_type_pattern_ends_early_and_continues(box: Box):
    glob = "*?" + "a" * 127 + "b"
    types = ["a" * 255] * 10 + ["a" * 128 + "b"]
    await box.put_many([Event(each, event_id=f"e{n:02}") for n, each in enumerate(types)])
    (last,) = (await box._store.split_index("pending", size=100, ranges=1)).last
    steps, found, after, more = 0, [], START, True
    while more:
        part = await box._store.list_ids("pending", after=after, last=last, limit=100, event_type=glob)
        more, after, steps = part.more, part.after, steps + 1
        found += part.ids
    assert found == [b"e10"]
    assert 5 <= steps <= 11


@pytest.mark.req("SP-1")
async def test_events_are_picked_with_their_place_and_history(box: Box):
    await make_dead(box, Event("n", event_id="dead"))
    await box.put_many([Event("n", event_id=each, ordering_key="k") for each in ("head", "behind")])
    await box.retry(await claim_one(box), error="again", delay=60)
    read = await box._store.read_states(["dead", "gone", "head", "behind"])
    picked = {each.event_id: each for each in read}
    assert {each.event_id: each.index for each in read} == {"dead": "dead", "head": "pending", "behind": "waiting"}
    assert [len(picked[event_id].history) for event_id in ("dead", "head", "behind")] == [1, 1, 0]
    died = (await known(box, "dead")).died_at
    assert died is not None
    assert int(picked["dead"].score) == int(died.timestamp() * 1000)


# --- locks -----------------------------------------------------------------------------------------------------


@pytest.mark.req("SP-5")
async def test_a_lock_has_one_holder_at_a_time(box: Box):
    await filled(box, 1)
    store = box._store
    assert await store.lock("keep", "archive", "one", 60) == ""
    assert await store.lock("take", "archive", "one", 60) == "one"
    for action in ("take", "keep", "free"):
        assert await store.lock(action, "archive", "two", 60) == "one"
    assert await store.lock("take", "archive", "one", 60) == "one"
    assert await store.lock("keep", "archive", "one", 60) == "one"
    assert await store.lock("take", "other", "two", 60) == "two"
    assert await store.lock("free", "archive", "one") == ""
    assert await store.lock("keep", "archive", "one", 60) == ""
    assert await store.lock("take", "archive", "two", 60) == "two"
    assert await store.lock("keep", "archive", "one", 60) == "two"


async def test_a_cut_clears_the_marks_of_the_last_claim(box: Box):
    await filled(box, 1)
    await box.release(await claim_one(box))
    assert (await fields_of(box, "e0"))["alone"] == "1"
    await own(box)
    assert await cut(box, 1) == 1
    assert "alone" not in await fields_of(box, "e0")


async def test_a_settled_member_is_removed_if_the_box_deletes(box: Box):
    await box.operate.configure(keep_published=0, who="ada", why="a test")
    await filled(box, 1)
    await own(box)
    await cut(box, 1)
    assert await settle(box, 1, await members(box, 1)) == [b"OK"]
    assert await box.get("e0") is None
    assert await check_invariants(box) == []
