"""LM-1, LM-2, LM-4: max_rate and max_in_flight of a box, for all relays together, by the store's clock."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from redbox import Box, Event, keys
from redbox.errors import ForeignKey, InvalidSetting
from redbox.events import Phase
from redbox.store.scripts.items import StreamBatch
from redbox.store.scripts.replies import Packed
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.operations.steps import ADA
from redbox.testing.conformance.steps import contents, put_and_claim, store_time


async def packed(box: Box, limit: int = 1000, relay: str = "relay-1", **options: Any) -> Packed:
    return await box.claim_packed(relay, limit=limit, lease=60, attempts=None, holding=0, **options)


async def put(box: Box, count: int) -> None:
    await box.put_many([Event("n") for _ in range(count)])


async def limit(box: Box, **limits: Any) -> None:
    await box.operate.configure(**limits, **ADA)


async def settle(box: Box, reply: Packed) -> None:
    await box.ack(await box.unpack(reply))


async def forget_hints(box: Box) -> None:
    while await box.wait_for_hint(0.01):
        pass


def most_in_windows(moments: list[datetime], rate: float) -> float:
    """By how much the claims of a window exceed what the rate brings in it, for the worst window."""
    times = [moment.timestamp() for moment in sorted(moments)]
    worst = lowest = 0.0
    for number, moment in enumerate(times):
        lowest = min(lowest, number - rate * (moment - times[0]))  # the best beginning of a window: before this claim
        worst = max(worst, number + 1 - rate * (moment - times[0]) - lowest)
    return worst


# --- max_rate --------------------------------------------------------------------------------------------------------


@pytest.mark.req("LM-1")
async def test_a_bucket_begins_with_one_event_and_fills_at_the_rate(box: Box):
    await put(box, 100)
    await limit(box, max_rate="20/s")
    assert len(await packed(box)) == 1
    await advance(box, milliseconds=200)
    assert 4 <= len(await packed(box)) <= 5
    await advance(box, minutes=10)
    assert len(await packed(box)) == 5  # what 250 ms bring
    assert await check_invariants(box) == []


@pytest.mark.req("LM-1")
async def test_the_burst_is_a_setting(box: Box):
    await put(box, 100)
    await limit(box, max_rate="60/h", max_burst=30)
    await packed(box)
    await advance(box, minutes=10)
    assert len(await packed(box)) == 10
    await advance(box, hours=1)
    assert len(await packed(box)) == 30
    assert len(await packed(box)) == 0


@pytest.mark.req("LM-1")
async def test_a_claim_at_the_rate_says_when_the_next_one_is_worthwhile(box: Box):
    await put(box, 10)
    await limit(box, max_rate="6/h")
    first = await packed(box)
    assert (len(first), first.limited, first.full) == (1, True, False)
    assert first.more_in == 600
    again = await packed(box, relay="relay-2")
    assert (len(again), again.limited) == (0, True)
    assert again.more_in is not None
    assert 540 < again.more_in <= 600
    await advance(box, milliseconds=round(again.more_in * 1000))
    assert len(await packed(box)) == 1


@pytest.mark.req("LM-1")
async def test_a_claim_that_finds_nothing_is_not_limited(box: Box):
    await limit(box, max_rate="1/h", max_in_flight=1)
    nothing = await packed(box)
    assert (len(nothing), nothing.more_in, nothing.limited, nothing.full) == (0, None, False, False)
    await box.put(Event("n", delay=7200))
    await put(box, 1)
    one = await packed(box)
    assert (len(one), one.limited, one.full) == (1, False, False)
    assert one.more_in is not None
    assert one.more_in > 7000


@pytest.mark.req("LM-1", "LM-4")
async def test_the_rate_does_not_hold_back_what_is_due_later(box: Box):
    """A drain ends when nothing is due."""
    await limit(box, max_rate="1/h")
    await put(box, 1)
    await box.put(Event("n", delay=60))
    for claimed in (1, 0):
        reply = await packed(box)
        assert (len(reply), reply.limited, reply.full) == (claimed, False, False)
        assert reply.more_in is not None
        assert 3000 < reply.more_in <= 3601  # no token before
    await advance(box, seconds=60)
    held_back = await packed(box)
    assert (len(held_back), held_back.limited) == (0, True)
    assert held_back.more_in is not None
    assert 3000 < held_back.more_in < 3600


@pytest.mark.req("LM-1", "LM-4")
async def test_the_rate_holds_back_what_is_due_within_milliseconds(box: Box):
    """As after a retry without a delay: a drain waits for it, as it does without limits."""
    await limit(box, max_rate="1/h")
    await put(box, 1)
    assert len(await packed(box)) == 1
    await box.put(Event("n", delay=0.009))
    reply = await packed(box)
    assert (len(reply), reply.limited) == (0, True)


@pytest.mark.req("LM-2", "LM-4")
async def test_a_relay_without_a_place_looks_again_when_an_event_is_due(box: Box):
    """If a place becomes free before, nobody sends a hint."""
    await limit(box, max_in_flight=1)
    await put(box, 1)
    await box.put(Event("n", delay=4))
    for claimed in (1, 0):
        reply = await packed(box)
        assert (len(reply), reply.limited, reply.full) == (claimed, False, False)
        assert reply.more_in is not None
        assert 0 < reply.more_in <= 4
    await advance(box, seconds=4)
    full = await packed(box)
    assert (len(full), full.full, full.more_in) == (0, True, 5)


@pytest.mark.req("LM-1")
@pytest.mark.timeout(60)
async def test_several_relays_never_exceed_the_rate_in_any_window(box: Box):
    """In real time, by the store's clock: each claim knows when it was made."""
    rate, burst, seconds = 400, 30, 2.0
    await put(box, 2000)
    await limit(box, max_rate=f"{rate}/s", max_burst=burst)
    ends = await store_time(box) + timedelta(seconds=seconds)
    moments: list[datetime] = []

    async def relay(name: str) -> None:
        while (await store_time(box)) < ends:
            reply = await packed(box, 100, name)
            moments.extend(claim.claimed_at for claim in await box.unpack(reply))
            await asyncio.sleep(min(reply.more_in or 0, 0.05))

    await asyncio.gather(*(relay(f"relay-{number}") for number in range(4)))
    assert most_in_windows(moments, rate) <= burst + 0.01
    assert len(moments) > burst + rate * seconds / 10  # it does go on
    assert await check_invariants(box) == []


@pytest.mark.req("LM-1")
async def test_the_rate_can_be_changed_and_removed(box: Box):
    await put(box, 500)
    await limit(box, max_rate="1/h")
    assert len(await packed(box)) == 1
    assert len(await packed(box)) == 0
    await limit(box, max_rate="1000/s")
    await advance(box, milliseconds=100)
    assert 100 <= len(await packed(box)) <= 250
    await limit(box, max_rate=None)
    assert len(await packed(box)) > 100
    assert keys.limits(box.name) not in await contents(box)
    assert "max_rate" not in await box._store.meta()


@pytest.mark.req("LM-1")
async def test_a_suspect_a_probe_and_a_stream_count_too(box: Box):
    await put_and_claim(box, Event("n", event_id="suspect"))
    await box._store.exchange([("HSET", keys.event(box.name, "suspect"), "expiries", "1"),
                               ("ZADD", keys.claimed(box.name), 1, "suspect")])  # fmt: skip
    await box.reap()
    await put(box, 10)
    await box._store.track_stream("own", "lake", "me")
    await limit(box, max_rate="1/min")

    async def cut() -> int:
        return await box._store.cut_batch(StreamBatch("lake", "me", 1), "stream:lake", 10, 60_000, 1_000_000, None)

    first = await packed(box)
    assert (len(first), first.suspect) == (1, True)
    assert await cut() == 0
    assert len(await packed(box, spread=True)) == 0
    await advance(box, minutes=1)
    assert await cut() == 1
    await advance(box, minutes=1)
    assert len(await packed(box, spread=True)) == 1
    assert len(await packed(box)) == 0


# --- max_in_flight ---------------------------------------------------------------------------------------------------


@pytest.mark.req("LM-2")
async def test_no_more_events_are_claimed_at_once(box: Box):
    await put(box, 20)
    await limit(box, max_in_flight=5)
    first = await packed(box, 3)
    assert (len(first), first.full, first.more_in) == (3, False, 0)
    second = await packed(box, relay="relay-2")
    assert (len(second), second.full, second.limited) == (2, True, False)
    third = await packed(box)
    assert (len(third), third.full) == (0, True)
    assert third.more_in is not None
    assert third.more_in >= 1  # a relay must not poll
    await settle(box, second)
    assert len(await packed(box)) == 2
    assert await check_invariants(box) == []


@pytest.mark.req("LM-2")
@pytest.mark.parametrize("how", ["ack", "retry", "release", "kill", "operator", "reap"])
async def test_every_end_of_a_claim_wakes_a_relay(box: Box, how: str):
    await put(box, 5)
    await limit(box, max_in_flight=1)
    await forget_hints(box)
    (claim,) = await box.unpack(await packed(box))
    assert not await box.wait_for_hint(0.01)  # nobody else can claim now
    if how in ("ack", "release", "kill"):
        await getattr(box, how)(claim)
    elif how == "retry":
        await box.retry(claim, delay=60)
    elif how == "operator":
        await box.operate.kill([claim.event_id], **ADA)
    else:
        await advance(box, seconds=61)
        assert await box.reap(delay=60) == [claim.event_id]
    assert await box.wait_for_hint(1)
    assert len(await packed(box)) == 1


@pytest.mark.req("LM-2")
async def test_a_settlement_without_effect_on_the_limit_sends_no_hint(box: Box):
    await put(box, 5)
    await limit(box, max_in_flight=5)
    two = await box.unpack(await packed(box, 2))
    await forget_hints(box)
    await box.ack(two[0])
    assert not await box.wait_for_hint(0.01)  # the limit was not reached
    rest = await box.unpack(await packed(box))
    await box.ack(rest[0])
    assert not await box.wait_for_hint(0.01)  # nothing is due


@pytest.mark.req("LM-2")
async def test_a_stream_takes_part(box: Box):
    await put(box, 10)
    await limit(box, max_in_flight=4)
    await box._store.track_stream("own", "lake", "me")
    batch = StreamBatch("lake", "me", 1)
    assert len(await packed(box, 1)) == 1
    assert await box._store.cut_batch(batch, "stream:lake", 10, 60_000, 1_000_000, None) == 3
    assert await box._store.cut_batch(batch, "stream:lake", 10, 60_000, 1_000_000, None) == 0
    await forget_hints(box)
    members = await box._store.members("lake", 1, 0, 10)
    await box._store.settle_batch(batch, "stream:lake", members)
    assert await box.wait_for_hint(1)
    assert len(await packed(box)) == 3


@pytest.mark.req("LM-2")
@pytest.mark.req("LM-4")
async def test_a_lower_limit_ends_no_claim(box: Box):
    await put(box, 10)
    held = await packed(box, 6)
    await limit(box, max_in_flight=2)
    assert len(await packed(box)) == 0
    await settle(box, held)
    assert len(await packed(box)) == 2


@pytest.mark.req("LM-4")
async def test_the_places_of_a_relay_that_ended_are_free_when_its_leases_end(box: Box):
    """Also if nobody reaps: a box may have no relay, only callers of `claim` and streams."""
    await put(box, 10)
    await limit(box, max_in_flight=3)
    await packed(box, relay="ended")
    await advance(box, seconds=59)
    assert len(await packed(box)) == 0
    await advance(box, seconds=2)
    again = await packed(box)
    assert (len(again), again.full) == (3, True)
    assert len(await packed(box)) == 0
    assert len(await box.reap()) == 3
    assert len(await packed(box)) == 0  # the others are still held
    await settle(box, again)
    assert len(await packed(box)) == 3
    assert await check_invariants(box) == []


@pytest.mark.req("LM-4")
async def test_a_stream_takes_places_whose_leases_have_ended(box: Box):
    await put(box, 10)
    await limit(box, max_in_flight=3)
    await packed(box, relay="ended")
    await advance(box, seconds=61)
    await box._store.track_stream("own", "lake", "me")
    batch = StreamBatch("lake", "me", 1)
    assert await box._store.cut_batch(batch, "stream:lake", 10, 60_000, 1_000_000, None) == 3
    assert await box._store.cut_batch(batch, "stream:lake", 10, 60_000, 1_000_000, None) == 0


@pytest.mark.req("LM-2", "LM-4")
async def test_a_lease_that_ended_is_renewed_only_if_a_place_is_free(box: Box):
    """Its place may have been given away, and all relays together never hold more."""
    await put(box, 10)
    await limit(box, max_in_flight=3)
    late = await box.unpack(await packed(box, relay="late"))
    await advance(box, seconds=61)
    taken = await box.unpack(await packed(box, 2))
    assert await box.renew(late, lease=60) == [True, False, False]
    assert len(await packed(box)) == 0
    assert await box.renew([late[0], *taken], lease=60) == [True, True, True]  # they hold their places
    assert await box.ack(late) == [True, True, True]  # nobody else has claimed the events
    assert len(await packed(box)) == 1
    assert await check_invariants(box) == []


@pytest.mark.req("LM-4")
async def test_without_the_limit_a_lease_that_ended_is_renewed(box: Box):
    await put(box, 3)
    late = await box.unpack(await packed(box, 2))
    await advance(box, seconds=61)
    assert len(await packed(box)) == 1
    assert await box.renew(late, lease=60) == [True, True]


@pytest.mark.req("LM-2")
async def test_an_operator_kills_in_spite_of_limits(box: Box):
    await put(box, 3)
    await box.put(Event("n", event_id="mine"))
    await limit(box, max_in_flight=1, max_rate="1/h")
    await packed(box)
    assert await box.operate.kill(["mine"], **ADA) == ["OK"]
    assert (await box.stats()).phases[Phase.DEAD] == 1


# --- together --------------------------------------------------------------------------------------------------------


@pytest.mark.req("LM-1")
@pytest.mark.req("LM-2")
async def test_of_several_limits_the_smallest_holds(box: Box):
    await put(box, 100)
    await limit(box, max_rate="1000/s", max_in_flight=50)
    await packed(box)
    await advance(box, seconds=1)
    both = await packed(box)
    assert (len(both), both.full, both.limited) == (49, True, False)
    await settle(box, both)
    await limit(box, max_rate="10/s")
    await advance(box, seconds=1)
    slow = await packed(box)
    assert (len(slow), slow.full, slow.limited) == (2, False, True)
    await box.operate.resume(ramp=3600, **ADA)
    await advance(box, seconds=1)
    assert len(await packed(box)) == 1  # that of the ramp
    assert len(await packed(box)) == 0


# --- limits cannot jam a box, and cannot be exceeded -----------------------------------------------------------------


@pytest.mark.req("LM-4")
async def test_a_clock_that_is_set_back_does_not_stop_the_claims(box: Box):
    await put(box, 10)
    await limit(box, max_rate="1/min")
    assert len(await packed(box)) == 1
    await advance(box, hours=-1)  # every time lies in the future now, as after a clock that was set back
    await _make_due(box)
    assert len(await packed(box)) == 0
    await advance(box, minutes=2)
    assert len(await packed(box)) == 1
    assert len(await packed(box)) == 0


async def _make_due(box: Box) -> None:
    (ids,) = await box._store.exchange([("ZRANGE", keys.pending(box.name), 0, -1)])
    await box._store.exchange([("ZADD", keys.pending(box.name), 10**12, event_id) for event_id in ids])


@pytest.mark.req("LM-4")
@pytest.mark.parametrize("value", ["", "x", "-1", "nan", "inf", "-inf", "1e300", "9" * 15, "9" * 30])
@pytest.mark.parametrize("field", ["rate_at", "rate_tokens"])
async def test_a_damaged_bucket_neither_jams_nor_lifts_the_limit(box: Box, field: str, value: str):
    await put(box, 50)
    await limit(box, max_rate="1/min", max_burst=20)
    await packed(box)
    await box._store.exchange([("HSET", keys.limits(box.name), field, value)])
    assert len(await packed(box)) <= 2
    await box.stats()
    claimed = 0
    for _ in range(3):
        await advance(box, minutes=2)
        claimed += len(await packed(box))
    assert 5 <= claimed <= 9


@pytest.mark.req("LM-4")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("max_rate", value) for value in ("", "x", "0/s", "-5/s", "50", "50/x", "nan/s", "1e3/s", "/s")),
        ("max_rate", "9" * 400 + "/s"),
        *(("max_in_flight", value) for value in ("", "x", "0", "-5", "nan", "1.5", "9" * 30)),
    ],
)  # fmt: skip
async def test_a_damaged_setting_is_no_limit(box: Box, name: str, value: str):
    await put(box, 10)
    await box._store.exchange([("HSET", keys.meta(box.name), name, value)])
    assert len(await packed(box)) == 10
    stats = await box.stats()
    assert getattr(stats.settings, name) is None
    assert stats.unreadable == [f"the setting {name}"]


@pytest.mark.req("LM-4")
@pytest.mark.parametrize("value", ["", "x", "0", "-5", "inf"])
async def test_a_damaged_burst_is_the_default(box: Box, value: str):
    await put(box, 50)
    await limit(box, max_rate="20/s")
    await box._store.exchange([("HSET", keys.meta(box.name), "max_burst", value)])
    await packed(box)
    await advance(box, minutes=1)
    assert len(await packed(box)) == 5


@pytest.mark.req("LM-4")
async def test_a_bucket_that_is_lost_begins_again(box: Box):
    await put(box, 50)
    await limit(box, max_rate="20/s")
    await packed(box)
    await advance(box, minutes=1)
    await box._store.exchange([("DEL", keys.limits(box.name))])
    assert len(await packed(box)) == 1


@pytest.mark.req("LM-4")
async def test_a_foreign_key_instead_of_the_limits_changes_nothing(box: Box):
    await put(box, 10)
    await limit(box, max_rate="20/s")
    await box._store.exchange([("DEL", keys.limits(box.name)), ("SET", keys.limits(box.name), "somebody else's")])
    before = await contents(box)
    for call in (lambda: packed(box), lambda: limit(box, max_rate=None)):
        with pytest.raises(ForeignKey):
            await call()
    assert await contents(box) == before


@pytest.mark.req("LM-4")
async def test_a_claim_without_limits_keeps_no_account(box: Box):
    await put(box, 1)
    await packed(box)
    assert keys.limits(box.name) not in await contents(box)
    assert {"max_rate", "max_burst", "max_in_flight"}.isdisjoint(await box._store.meta())


# --- what stats say --------------------------------------------------------------------------------------------------


async def reached(box: Box) -> tuple[int | None, list[str]]:
    stats = await box.stats()
    return stats.tokens, stats.limits_reached


@pytest.mark.req("LM-1", "LM-2")
async def test_stats_name_the_limits_that_hold_events_back(box: Box):
    assert await reached(box) == (None, [])
    await put(box, 20)
    await limit(box, max_rate="20/h", max_burst=10, max_in_flight=3)
    assert await reached(box) == (1, [])  # nothing was claimed
    await packed(box)
    assert await reached(box) == (0, ["max_rate"])
    await advance(box, minutes=18)
    assert await reached(box) == (6, [])
    assert len(await packed(box)) == 3  # the lease of the first has ended
    assert await reached(box) == (3, ["max_rate", "max_in_flight"])
    await limit(box, max_in_flight=30)
    assert len(await packed(box)) == 3
    await limit(box, max_rate=None)
    assert len(await packed(box)) == 13
    await limit(box, max_rate="20/h", max_in_flight=1)
    assert await reached(box) == (1, [])  # nothing is due


@pytest.mark.req("LM-4")
async def test_stats_do_not_count_claims_whose_leases_have_ended(box: Box):
    await put(box, 5)
    await limit(box, max_in_flight=2)
    await packed(box)
    assert await reached(box) == (None, ["max_in_flight"])
    await advance(box, seconds=61)
    assert await reached(box) == (None, [])


# --- the settings ----------------------------------------------------------------------------------------------------


@pytest.mark.req("LM-1")
@pytest.mark.parametrize(
    ("given", "stored"),
    [("50/s", "50/s"), (" 1000/min ", "1000/min"), ("1000/m", "1000/min"), ("0.1/s", "0.1/s"), ("2.50/S", "2.5/s"),
     ("007/h", "7/h"), ("1/d", "1/d"), ("1000000/s", "1000000/s")],
)  # fmt: skip
async def test_rates_that_are_accepted(box: Box, given: str, stored: str):
    settings = await box.operate.configure(max_rate=given, **ADA)
    assert settings.max_rate == stored
    assert (await box.stats()).unreadable == []
    await put(box, 2)
    assert len(await packed(box, 2)) >= 1


@pytest.mark.req("LM-1")
@pytest.mark.parametrize(
    "given", ["0/s", "0.0/min", "-1/s", "50", "50/x", "50/", "/s", "1e9/s", "1000001/s", "1000000000/s", "0.5/d", "",
              "inf/s", "nan/s", "5/s/s", "٣/s", "5\n/s", 50, 1.5, True, b"50/s", ["50/s"], "9" * 400 + "/s"],
)  # fmt: skip
async def test_rates_that_are_refused(box: Box, given: Any):
    with pytest.raises(InvalidSetting, match="max_rate"):
        await limit(box, max_rate=given)


@pytest.mark.req("LM-2")
@pytest.mark.parametrize("given", [0, -1, 1.5, "5", True, 10**10, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["max_in_flight", "max_burst"])
async def test_numbers_that_are_refused(box: Box, name: str, given: Any):
    with pytest.raises(InvalidSetting, match=name):
        await limit(box, **{name: given})


def test_windows_are_measured_from_every_beginning():
    start = datetime(2026, 1, 1)
    moments = [start + timedelta(seconds=second) for second in (0, 10, 10, 10, 20)]
    assert most_in_windows(moments, 0.1) == pytest.approx(3)
    assert all(after >= before for before, after in pairwise(moments))
