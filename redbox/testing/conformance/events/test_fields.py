"""EM-4 to EM-7, EM-13, EM-15: the other fields of an event, and those that never change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redbox import Box, Claim, Event, InvalidEvent, Phase, State, keys
from redbox.store.codec import encode_restored
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import (
    body_of,
    claim_one,
    expire,
    fail,
    fields_of,
    known,
    make_dead,
    publish,
    store_time,
)

# --- EM-4, EM-5, EM-6, EM-7 ------------------------------------------------------------------------------------------


@pytest.mark.req("EM-4", "EM-13")
async def test_state_and_claim_fields_through_the_whole_lifecycle(box: Box):
    event_id = (await box.put(Event("user.created"))).event_id
    seen = []

    async def look() -> None:
        stored = await fields_of(box, event_id)
        record = await known(box, event_id)
        assert record.state == stored["state"]
        claim = (record.claimed_by, record.claimed_at is not None)
        assert claim == (("r", True) if stored["state"] == "CLAIMED" else (None, False))
        assert (record.lease_until is not None) == (stored["state"] == "CLAIMED")
        if stored["state"] != "PUBLISHED":  # a success does not remove them, to keep the hot path short
            kept = {"claimed_at", "claimed_by"} & stored.keys()
            assert kept == ({"claimed_at", "claimed_by"} if stored["state"] == "CLAIMED" else set())
        seen.append(stored["state"])
        assert await check_invariants(box) == []

    await look()
    claim = await claim_one(box, "r")
    await look()
    await fail(box, claim, error="503")
    await look()
    await box.release(await claim_one(box, "r"))
    await look()
    await claim_one(box, "r")
    await expire(box)
    await look()
    await box.ack(await claim_one(box, "r"))
    await look()
    await box.replay([event_id])
    await look()
    await box.kill(await claim_one(box, "r"))
    await look()
    await box.replay([event_id])
    await look()
    await claim_one(box, "r")
    await box.operate.release([event_id], who="ada", why="stuck")
    await look()
    await claim_one(box, "r")
    await box.operate.kill([event_id], who="ada", why="poison")
    await look()
    assert seen == [
        "PENDING", "CLAIMED", "PENDING", "PENDING", "PENDING", "PUBLISHED", "PENDING", "DEAD", "PENDING", "PENDING",
        "DEAD",
    ]  # fmt: skip
    assert set(State) == {"PENDING", "CLAIMED", "PUBLISHED", "DEAD"}


@pytest.mark.req("EM-5")
async def test_an_event_restored_from_an_archive_keeps_its_created_at(box: Box):
    """Only the encoding for restores can set it. The event is due now, and its age counts from now."""
    now = await store_time(box)
    event = Event("n", event_id="a", ordering_key="k", unique_key="u", unique_scope="UNTOUCHED")
    plain = Event("n", event_id="b")
    created_at = now - timedelta(days=3)
    arguments = [encode_restored(each, created_at) for each in (event, plain)]
    assert await box._store.put("each", arguments) == [b"CREATED", b"CREATED"]
    for each in (event, plain):
        record = await known(box, each.event_id)
        assert (record.created_at, record.phase) == (created_at, Phase.AVAILABLE)
        assert record.available_at >= now
        assert [entry.outcome for entry in record.history] == ["replayed"]
        assert (record.event.ordering_key, record.event.unique_key) == (each.ordering_key, each.unique_key)
        assert record.event.unique_scope == each.unique_scope
    assert await check_invariants(box) == []
    claims = await box.claim("relay")
    assert all(claim.due_at >= now for claim in claims)
    await box.retry(claims, error="no", delay=0)
    await advance(box, seconds=1)
    again = await box.claim("relay")
    assert len(again) == 2
    assert all(claim.due_at >= now - timedelta(seconds=1) for claim in again)


@pytest.mark.req("EM-5")
async def test_created_at_is_the_stores_time_of_the_put(box: Box):
    before = await store_time(box)
    ids = [(await box.put(Event("n"))).event_id, (await box.put(Event("n", delay=60))).event_id]
    after = await store_time(box)
    for event_id in ids:
        assert before <= (await known(box, event_id)).created_at <= after
    assert (await claim_one(box)).created_at == (await known(box, ids[0])).created_at


@pytest.mark.req("EM-6")
async def test_partition_key_reaches_the_relay_and_has_no_effect_on_order(box: Box):
    await box.put_many([Event(f"n{n}", partition_key="p") for n in range(3)])
    claims = await box.claim("relay-1")
    assert [(claim.event.event_type, claim.event.partition_key) for claim in claims] == [
        ("n0", "p"), ("n1", "p"), ("n2", "p"),
    ]  # fmt: skip
    record = await known(box, claims[0].event_id)
    assert (record.event.partition_key, record.event.ordering_key) == ("p", None)


@pytest.mark.req("EM-7")
async def test_ordering_key_puts_events_into_a_line(box: Box):
    first, second = (await box.put_many([Event("a", ordering_key="user 42"), Event("b", ordering_key="user 42")]))[:2]
    claim = await claim_one(box)
    assert (claim.event_id, claim.event.ordering_key) == (first.event_id, "user 42")
    record = await known(box, second.event_id)
    assert (record.waiting, record.event.ordering_key) == (True, "user 42")
    await box.ack(claim)
    assert not (await known(box, second.event_id)).waiting
    assert (await claim_one(box)).event_id == second.event_id
    assert await check_invariants(box) == []


@pytest.mark.req("EM-6", "EM-7", "EM-15")
@pytest.mark.parametrize("field", ["partition_key", "ordering_key", "unique_key"])
@pytest.mark.parametrize("value", ["", "x" * 256, "line\nbreak", 42])
def test_invalid_keys_are_refused(field: str, value: Any):
    with pytest.raises(InvalidEvent, match=field):
        Event("n", **{field: value})


# --- EM-15: what never changes ---------------------------------------------------------------------------------------


@pytest.mark.req("EM-15", "EM-5", "EM-3")
async def test_nothing_changes_the_immutable_fields(box: Box):
    event = Event(
        "user.created", b"\x00\xffpayload", event_id="one", headers={"a": "b"}, metadata={"c": "d"},
        partition_key="p", ordering_key="o", unique_key="u", unique_scope="UNTOUCHED", content_type="a/b",
    )  # fmt: skip
    await box.put(event)
    immutable = ("event_type", "ordering_key", "unique_key", "unique_scope", "created_at")
    stored = await fields_of(box, "one")
    fixed = {name: stored[name] for name in immutable}
    assert {name: value for name, value in fixed.items() if name != "created_at"} == {
        "event_type": "user.created", "ordering_key": "o", "unique_key": "u", "unique_scope": "UNTOUCHED",
    }  # fmt: skip
    body = await body_of(box, "one")

    async def same() -> None:
        now = await fields_of(box, "one")
        assert {name: now.get(name) for name in immutable} == fixed
        assert await body_of(box, "one") == body
        record = await known(box, "one")
        kept = record.event
        assert (kept.event_type, kept.payload, kept.event_id, kept.headers, kept.metadata, kept.partition_key) == (
            "user.created", b"\x00\xffpayload", "one", {"a": "b"}, {"c": "d"}, "p",
        )  # fmt: skip
        assert (kept.ordering_key, kept.unique_key, kept.unique_scope, kept.content_type) == (
            "o", "u", "UNTOUCHED", "a/b",
        )  # fmt: skip

    async def claimed() -> Claim:
        claim = await claim_one(box)
        assert (await known(box, "one")).event == claim.event
        await same()
        return claim

    await same()
    await box.operate.reschedule(["one"], who="ada", why="sooner")
    await same()
    await box.renew(await claimed())
    await same()
    await box.operate.release(["one"], who="ada", why="x")
    await same()
    await box.release(await claimed())
    await same()
    await box.retry(await claimed(), error="503")
    await box.operate.reschedule(["one"], who="ada", why="at once")
    await same()
    claim = await claimed()
    await box._store.exchange([("ZADD", keys.claimed(box.name), 1, "one")])  # advance() would move created_at
    assert await box.reap() == ["one"]
    assert await box.ack(claim) == [False]
    await same()
    await box.ack(await claimed())
    await same()
    await box.replay(["one"], who="ada", why="x")
    await same()
    await box.kill(await claimed(), reason="422")
    await same()
    await box.replay(["one"], reset=False, force=True)
    await same()
    await box.operate.kill(["one"], who="ada", why="x")
    await same()
    await box.operate.configure(dead_head="block", who="ada", why="x")
    await box.operate.pause(who="ada", why="x")
    await box.sweep(dry_run=True)
    await same()
    assert await check_invariants(box) == []


@pytest.mark.req("EM-15")
async def test_events_of_one_batch_keep_their_own_fields(box: Box):
    """Events of one batch, with and without keys, do not mix."""
    batch = [
        Event("plain", 1, event_id="1"),
        Event("line", 2, event_id="2", ordering_key="o"),
        Event("unique", 3, event_id="3", unique_key="u", unique_scope="UNTOUCHED"),
        Event("both", 4, event_id="4", ordering_key="o", unique_key="v", delay=60),
        Event("later", 5, event_id="5", delay=60),
    ]
    await box.put_many(batch)
    records = []
    for event_id in "12345":
        record = await known(box, event_id)
        event = record.event
        records.append((event.event_type, event.payload, event.ordering_key, event.unique_key, event.unique_scope,
                        record.waiting, (record.available_at - record.created_at).total_seconds()))  # fmt: skip
    assert records == [
        ("plain", b"1", None, None, "ALL_LIVE", False, 0),
        ("line", b"2", "o", None, "ALL_LIVE", False, 0),
        ("unique", b"3", None, "u", "UNTOUCHED", False, 0),
        ("both", b"4", "o", "v", "ALL_LIVE", True, 60),
        ("later", b"5", None, None, "ALL_LIVE", False, 60),
    ]
    claims = await box.claim("relay-1")
    assert [(claim.event_id, claim.event.ordering_key, claim.event.unique_key, claim.event.unique_scope)
            for claim in claims] == [
        ("1", None, None, "ALL_LIVE"), ("2", "o", None, "ALL_LIVE"), ("3", None, "u", "UNTOUCHED"),
    ]  # fmt: skip
    assert await check_invariants(box) == []


@pytest.mark.req("EM-14", "EM-15")
async def test_terminal_records_are_complete(box: Box):
    (published,) = await publish(box, Event("n", {"a": 1}))
    (dead,) = await make_dead(box, Event("n", {"a": 1}), reason="422")
    record = await known(box, published)
    assert (record.phase, record.attempts, record.died_at, record.last_error) == (Phase.COMPLETED, 1, None, None)
    record = await known(box, dead)
    assert (record.phase, record.attempts, record.published_at, record.last_error) == (Phase.DEAD, 1, None, "422")
    assert record.died_at is not None
    assert record.created_at <= record.died_at <= await store_time(box)
    assert [attempt.outcome for attempt in record.history] == ["died"]
