"""LM-3, LM-4: a box that is resumed gradually: the claims of all relays together stay below the curve of the ramp."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime, timedelta

import pytest

from redbox import Box, BoxPaused, Event, keys
from redbox.errors import ForeignKey, InvalidEvent, UsageError
from redbox.store.scripts.items import StreamBatch
from redbox.store.scripts.replies import Packed
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.operations.steps import ADA
from redbox.testing.conformance.steps import contents, put_and_claim, store_time

GROWTH = math.log(10_000)


def allowed(elapsed: float, length: float) -> float:
    """How many events may be claimed in the first `elapsed` seconds of a ramp."""
    growth = GROWTH / length
    return 1 + (math.exp(growth * min(elapsed, length)) - 1) / growth


async def packed(box: Box, limit: int = 1000, relay: str = "relay-1") -> Packed:
    return await box.claim_packed(relay, limit=limit, lease=60, attempts=None, holding=0)


async def put(box: Box, count: int) -> None:
    await box.put_many([Event("n") for _ in range(count)])


@pytest.mark.req("LM-3")
async def test_the_rate_grows_from_a_trickle_until_the_limit_ends(box: Box):
    await put(box, 300)
    await box.operate.pause(**ADA)
    assert await box.operate.resume(ramp=100, **ADA)
    claimed, rates = 0, []
    for _ in range(35):
        found = len(await packed(box))
        claimed += found
        rates.append(found)
        left = (await box.stats()).ramp_ends
        assert left is not None
        assert claimed <= allowed(100 - left.total_seconds(), 100)
        await advance(box, seconds=1)
    assert rates[:8] == [1] * 8
    assert 12 <= sum(rates[15:25]) < sum(rates[25:]) * 0.7
    await advance(box, seconds=100)
    assert (await box.stats()).ramp_ends is None
    assert len(await packed(box)) == 300 - claimed > 50
    assert "ramp" not in await box._store.meta()
    assert await box._store.exchange([("EXISTS", keys.limits(box.name))]) == [0]
    assert await check_invariants(box) == []


@pytest.mark.req("LM-3")
@pytest.mark.timeout(60)
async def test_several_relays_stay_below_the_curve(box: Box):
    """In real time, by the store's clock: each claim knows when it was made."""
    length = 2.0
    await put(box, 2500)
    await box.operate.pause(**ADA)
    began = await store_time(box)
    await box.operate.resume(ramp=length, **ADA)
    moments: list[datetime] = []

    async def relay(name: str) -> None:
        while (await store_time(box)) < began + timedelta(seconds=length):
            reply = await packed(box, 100, name)
            moments.extend(claim.claimed_at for claim in await box.unpack(reply))
            await asyncio.sleep(min(reply.more_in or 0, 0.2))

    await asyncio.gather(*(relay(f"relay-{number}") for number in range(4)))
    moments.sort()
    margin = timedelta(milliseconds=1)  # times are in whole milliseconds
    above = [
        (number, moment - began)
        for number, moment in enumerate(moments, start=1)
        if moment - began < timedelta(seconds=length)
        and number > allowed((moment - began + margin).total_seconds(), length)
    ]
    assert above == []
    assert len(moments) > allowed(length * 0.5, length) / 2  # it does grow
    assert await check_invariants(box) == []


@pytest.mark.req("LM-3")
async def test_a_limited_claim_says_when_the_next_one_is_worthwhile(box: Box):
    await put(box, 10)
    await box.operate.resume(ramp=3600, **ADA)
    first = await packed(box)
    assert (len(first), first.limited) == (1, True)
    assert first.more_in is not None
    assert 0.9 < first.more_in <= 1
    again = await packed(box, relay="relay-2")
    assert (len(again), again.limited) == (0, True)
    assert again.more_in is not None
    assert first.more_in - 0.5 < again.more_in <= first.more_in
    await advance(box, milliseconds=round(again.more_in * 1000))
    assert len(await packed(box)) == 1


@pytest.mark.req("LM-3")
async def test_a_claim_that_finds_nothing_is_not_limited(box: Box):
    await box.operate.resume(ramp=3600, **ADA)
    nothing = await packed(box)
    assert (len(nothing), nothing.more_in, nothing.limited) == (0, None, False)
    await box.put(Event("n", delay=600))
    later = await packed(box)
    assert (later.limited, later.more_in is not None and later.more_in > 500) == (False, True)
    await put(box, 1)
    one = await packed(box)
    assert (len(one), one.limited) == (1, False)
    used_up = await packed(box)
    assert (len(used_up), used_up.limited, used_up.more_in is not None and used_up.more_in > 500) == (0, False, True)


@pytest.mark.req("LM-3")
async def test_no_hint_is_sent_while_the_limit_is_reached(box: Box):
    """Other relays would find nothing to claim."""
    await put(box, 10)
    await box.operate.resume(ramp=3600, **ADA)
    while await box.wait_for_hint(0.01):
        pass
    assert len(await packed(box)) == 1
    assert not await box.wait_for_hint(0.01)
    await advance(box, minutes=50)
    assert len(await packed(box, limit=2)) == 2
    assert await box.wait_for_hint(1)


@pytest.mark.req("LM-3")
async def test_tokens_do_not_pile_up_while_nothing_is_claimed(box: Box):
    await put(box, 100)
    await box.operate.resume(ramp=100, **ADA)
    await advance(box, seconds=20)  # 50 in all could have been claimed meanwhile, and the rate is about 6 a second
    assert 1 <= len(await packed(box)) <= 3


@pytest.mark.req("LM-3")
async def test_a_stream_shares_the_ramp(box: Box):
    await put(box, 10)
    await box._store.track_stream("own", "lake", "me")
    await box.operate.resume(ramp=3600, **ADA)

    async def cut() -> int:
        return await box._store.cut_batch(StreamBatch("lake", "me", 1), "stream:lake", 10, 60_000, 1_000_000, None)

    assert await cut() == 1
    assert await cut() == 0
    assert len(await packed(box)) == 0
    await advance(box, milliseconds=1001)
    assert len(await packed(box)) == 1
    assert await cut() == 0
    assert await check_invariants(box) == []


@pytest.mark.req("LM-3")
async def test_a_suspect_counts_too(box: Box):
    await put_and_claim(box, Event("n", event_id="suspect"))
    await box._store.exchange([("HSET", keys.event(box.name, "suspect"), "expiries", "1"),
                               ("ZADD", keys.claimed(box.name), 1, "suspect")])  # fmt: skip
    await box.reap()
    await put(box, 3)
    await box.operate.resume(ramp=3600, **ADA)
    first = await packed(box)
    assert (len(first), first.suspect) == (1, True)
    assert len(await packed(box)) == 0


@pytest.mark.req("LM-3")
async def test_a_pause_stops_the_time_of_a_ramp(box: Box):
    await put(box, 100)
    await box.operate.resume(ramp=100, **ADA)
    await advance(box, seconds=30)
    await box.operate.pause(duration=60, **ADA)
    await box.operate.pause(duration=120, **ADA)
    left = (await box.stats()).ramp_ends
    assert left is not None
    assert timedelta(seconds=65) < left <= timedelta(seconds=70)
    await advance(box, seconds=110)
    with pytest.raises(BoxPaused):
        await packed(box)
    assert (await box.stats()).ramp_ends == left
    await advance(box, seconds=11)
    assert 1 <= len(await packed(box)) <= 10
    later = (await box.stats()).ramp_ends
    assert later is not None
    assert timedelta(seconds=1) <= left - later < timedelta(seconds=5)


@pytest.mark.req("LM-3")
async def test_a_pause_without_an_end_stops_the_time_of_a_ramp(box: Box):
    """A pause for a time replaces it later, and the ramp continues after that one."""
    await put(box, 100)
    await box.operate.resume(ramp=600, **ADA)
    await advance(box, seconds=30)
    await box.operate.pause(**ADA)
    left = (await box.stats()).ramp_ends
    assert left is not None
    assert timedelta(seconds=565) < left <= timedelta(seconds=570)
    await advance(box, minutes=30)
    await box.operate.pause(**ADA)
    assert (await box.stats()).ramp_ends == left
    await advance(box, minutes=30)
    await box.operate.pause(duration=60, **ADA)
    assert (await box.stats()).ramp_ends == left
    await advance(box, seconds=61)
    assert len(await packed(box)) == 1
    later = (await box.stats()).ramp_ends
    assert later is not None
    assert timedelta(seconds=1) <= left - later < timedelta(seconds=5)


@pytest.mark.req("LM-4")
async def test_a_ramp_continues_if_the_mark_of_a_pause_is_lost(box: Box):
    await put(box, 100)
    await box.operate.resume(ramp=600, **ADA)
    await packed(box)
    await box.operate.pause(**ADA)
    await advance(box, minutes=30)
    await box._store.exchange([("HDEL", keys.meta(box.name), "paused")])
    assert len(await packed(box)) <= 1
    await advance(box, seconds=2)
    assert len(await packed(box)) == 1


@pytest.mark.req("LM-3")
async def test_resuming_ends_a_ramp_or_begins_another(box: Box):
    await put(box, 20)
    await box.operate.resume(ramp=100, **ADA)
    await packed(box)
    await advance(box, seconds=50)
    await box.operate.resume(ramp=200, **ADA)
    assert len(await packed(box)) == 1
    left = (await box.stats()).ramp_ends
    assert left is not None
    assert timedelta(seconds=190) < left <= timedelta(seconds=200)
    assert [entry.detail for entry in await box.operate.log()] == ["ramp=200000", "ramp=100000"]
    await box.operate.resume(**ADA)
    assert (await box.stats()).ramp_ends is None
    assert len(await packed(box)) == 18
    with pytest.raises(UsageError, match="not both"):
        await box.operate.resume(ramp=1, key="k", **ADA)
    for wrong in (0, -1):
        with pytest.raises((UsageError, InvalidEvent)):
            await box.operate.resume(ramp=wrong, **ADA)


# --- a limit cannot jam a box ----------------------------------------------------------------------------------------


@pytest.mark.req("LM-4")
async def test_a_clock_that_is_set_back_does_not_stop_a_ramp(box: Box):
    await put(box, 10)
    await box.operate.resume(ramp=60, **ADA)
    assert len(await packed(box)) == 1
    await advance(box, hours=-1)  # every time lies in the future now, as after a clock that was set back
    await box._store.exchange([("ZADD", keys.pending(box.name), 1, event_id)
                               for event_id in await _pending(box)])  # fmt: skip
    assert len(await packed(box)) == 0
    await advance(box, seconds=2)
    assert len(await packed(box)) == 1
    await advance(box, seconds=60)
    assert (await box.stats()).ramp_ends is None
    assert len(await packed(box)) == 8


async def _pending(box: Box) -> list[str]:
    (ids,) = await box._store.exchange([("ZRANGE", keys.pending(box.name), 0, -1)])
    return [raw.decode() for raw in ids]


@pytest.mark.req("LM-4")
@pytest.mark.parametrize("value", ["", "x", "-1", "nan", "inf", "1e300", "9" * 30])
@pytest.mark.parametrize("field", ["ramp_at", "ramp_elapsed", "ramp_tokens"])
async def test_damaged_values_of_a_ramp_do_not_jam_it(box: Box, field: str, value: str):
    await put(box, 50)
    await box.operate.resume(ramp=60, **ADA)
    await box._store.exchange([("HSET", keys.limits(box.name), field, value)])
    assert len(await packed(box)) <= 1
    await box.stats()
    claimed = 0
    for _ in range(3):
        await advance(box, seconds=1)
        claimed += len(await packed(box))
    assert 2 <= claimed <= 10
    await advance(box, seconds=60)
    assert len(await packed(box)) >= 39


@pytest.mark.req("LM-4")
@pytest.mark.parametrize("value", ["", "x", "-5", "0", "nan", "inf", "9" * 30])
async def test_a_ramp_of_a_damaged_length_is_no_limit(box: Box, value: str):
    await put(box, 10)
    await box._store.exchange([("HSET", keys.meta(box.name), "ramp", value)])
    assert (await box.stats()).ramp_ends is None
    assert len(await packed(box)) == 10
    assert "ramp" not in await box._store.meta()


@pytest.mark.req("LM-4")
async def test_the_state_of_a_ramp_that_is_lost_begins_again(box: Box):
    await put(box, 10)
    await box.operate.resume(ramp=60, **ADA)
    await box._store.exchange([("DEL", keys.limits(box.name))])
    assert len(await packed(box)) == 0
    await advance(box, milliseconds=1001)
    assert len(await packed(box)) == 1


@pytest.mark.req("LM-4")
async def test_a_foreign_key_instead_of_the_limits_changes_nothing(box: Box):
    await put(box, 10)
    await box.operate.resume(ramp=60, **ADA)
    await box._store.exchange([("DEL", keys.limits(box.name)), ("SET", keys.limits(box.name), "somebody else's")])
    before = await contents(box)
    for call in (lambda: packed(box), lambda: box.operate.pause(duration=60, **ADA),
                 lambda: box.operate.resume(**ADA)):  # fmt: skip
        with pytest.raises(ForeignKey):
            await call()
    assert await contents(box) == before
    await box.put(Event("n"))


@pytest.mark.req("LM-4")
async def test_a_claim_without_limits_reads_no_more_than_before(box: Box):
    """A limit that is not set costs a claim no command of its own."""
    await put(box, 1)
    await packed(box)
    limits = {keys.limits(box.name), keys.paused(box.name), keys.pauses(box.name)}
    assert limits.isdisjoint(await contents(box))
    assert {"ramp", "keys_paused", "paused"}.isdisjoint(await box._store.meta())
