"""SC-6, SC-8: terminal events stay readable, and reading changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from redbox import Box, Event, Outcome, State, keys
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import (
    claim_one,
    contents,
    known,
    make_dead,
    publish,
    put_and_claim,
)

# --- SC-4: updates ---------------------------------------------------------------------------------------------------


async def scene(box: Box) -> dict[str, Any]:
    """One event in each state, each named after it; returns the claims."""
    await publish(box, Event("n", event_id="published"))
    await make_dead(box, Event("n", event_id="dead", ordering_key="o", unique_key="d"))
    claims = [
        await put_and_claim(box, Event("n", event_id="claimed", ordering_key="o", unique_key="c")),
        await put_and_claim(box, Event("n", event_id="expired"), lease=0.001),
    ]
    await put_and_claim(box, Event("n", event_id="suspect"))
    await box._store.exchange([("HSET", keys.event(box.name, "suspect"), "expiries", "1"),
                               ("ZADD", keys.claimed(box.name), 1, "suspect")])  # fmt: skip
    await box.reap(limit=1, delay=3600)
    await box.put(Event("n", event_id="pending", unique_key="p"))
    await box.put(Event("n", event_id="waiting", ordering_key="o"))
    await box.operate.pause(who="ada", why="so that there is a log")
    await box.operate.resume(who="ada", why="so that there is a log")
    await advance(box, seconds=1)
    return {"claimed": claims[0], "expired": claims[1]}


# --- SC-6: terminal events -------------------------------------------------------------------------------------------


@pytest.mark.req("SC-6", "PL-9")
async def test_terminal_events_stay_readable_and_are_never_eligible(box: Box):
    await publish(box, Event("user.created", {"id": 1}, event_id="published", ordering_key="o", unique_key="u"))
    await make_dead(box, Event("user.deleted", {"id": 2}, event_id="dead", ordering_key="o", unique_key="u"))
    await advance(box, hours=20)
    assert await box.reap() == []  # without claims it resets the longest lease
    before = await contents(box)
    assert await box.claim("relay-1") == []
    assert await box.reap() == []
    assert await box.sweep() == await box.sweep(keep_published=None, keep_published_count=1, keep_dead_count=1)
    assert await contents(box) == before
    for event_id, state, event_type in (
        ("published", State.PUBLISHED, "user.created"),
        ("dead", State.DEAD, "user.deleted"),
    ):
        record = await known(box, event_id)
        assert record.state == state
        moment = record.published_at or record.died_at
        assert moment is not None
        for filters in ({"state": state}, {"event_type": event_type}, {"since": moment, "state": state},
                        {"until": moment, "state": state}):  # fmt: skip
            assert [found async for found in box.list(**filters)] == [record]
    await advance(box, hours=5)
    assert (await box.sweep()).published == 1
    assert await box.get("published") is None
    assert (await known(box, "dead")).state == State.DEAD
    assert await check_invariants(box) == []


# --- SC-8: reading ---------------------------------------------------------------------------------------------------


@pytest.mark.req("SC-8")
async def test_reading_changes_nothing(box: Box):
    await scene(box)
    before = await contents(box)
    for event_id in ("published", "dead", "claimed", "expired", "suspect", "pending", "waiting", "unknown"):
        await box.get(event_id)
    assert len([record async for record in box.list()]) == 7
    for state in State:
        assert [record async for record in box.list(state=state)]
    page = await box.page(limit=2, event_type="n*", key="o", error="x")
    assert page.cursor is None
    await box.page(limit=3, cursor=(await box.page(limit=3)).cursor)
    await box.stats()
    await box.settings()
    await box.exists()
    await box.names()
    await box.operate.log()
    assert (await box.replay(state="DEAD", dry_run=True)).matched == 1
    assert (await box.sweep(keep_published=0, keep_dead=0, dry_run=True)).published == 1
    assert await contents(box) == before


@pytest.mark.req("SC-8")
async def test_reading_never_creates_a_box(box: Box):
    assert await box.get("one") is None
    assert [record async for record in box.list()] == []
    assert (await box.page()).records == []
    assert (await box.stats()).layout == 0
    assert not await box.exists()
    assert await box.operate.log() == []
    assert await box.claim("relay-1") == []
    assert await box.reap() == []
    assert (await box.sweep(keep_published=0, keep_dead=0)).published == 0
    assert await box.operate.kill(["one"], who="ada", why="x") == [Outcome.UNKNOWN]
    assert not await box.exists()


@pytest.mark.req("DC-3")
async def test_an_event_is_a_hash_in_a_sorted_set(box: Box):
    """The score of PENDING is available_at, that of CLAIMED the end of the lease; another relay cannot settle the
    claim."""
    await box.put(Event("user.created", event_id="one", delay=60))
    store, name = box._store, box.name
    event, pending, claimed = keys.event(name, "one"), keys.pending(name), keys.claimed(name)
    record = await known(box, "one")
    kind, score = await store.exchange([("TYPE", event), ("ZSCORE", pending, "one")])
    assert (kind, float(score)) == (b"hash", record.available_at.timestamp() * 1000)
    await advance(box, minutes=2)
    claim = await claim_one(box, lease=30.0)
    before, score = await store.exchange([("ZSCORE", pending, "one"), ("ZSCORE", claimed, "one")])
    assert (before, float(score)) == (None, claim.lease_until_ms)
    assert await box.ack(msgspec.structs.replace(claim, claimed_by="relay-2")) == [False]
    assert await box.ack(claim) == [True]
