"""RO-5: the history of rates: a bounded ring of samples, which any number of relays write together."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from redbox import Box, Claim, Event, keys
from redbox.box.desk.rates_history import RateSample
from redbox.errors import ForeignKey, UsageError
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import contents, publish, store_time

RING = {10: 370, 300: 298}

BUSY = 0.5  # real time passes, too: on a busy machine ten seconds are some more


async def slots(box: Box, step: int = 10) -> dict[bytes, bytes]:
    (reply,) = await box._store.exchange([("HGETALL", keys.rates(box.name, step))])
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


async def write(box: Box, *command: Any) -> None:
    await box._store.exchange([command])


async def ten_seconds_pass(box: Box) -> None:
    """Does not end just before the end of a slot, so that the calls that follow fall into one."""
    passed = (await store_time(box)).timestamp() % 10
    if passed > 9:
        await asyncio.sleep(10.1 - passed)
    await advance(box, seconds=10)


async def claim(box: Box, count: int) -> list[Claim]:
    await box.put_many([Event("n") for _ in range(count)])
    return await box.claim("relay-1", limit=count)


async def last(box: Box, window: str = "1h") -> RateSample:
    return (await box.desk.rates_history(window=window)).samples[-1]


@pytest.mark.req("RO-5")
async def test_rates_are_the_growth_of_the_totals_however_many_record_them(box: Box):
    await box.put(Event("n"))
    await box.desk.record_rates()
    await ten_seconds_pass(box)
    await claim(box, 19)
    for _ in range(3):  # as many relays
        await box.desk.record_rates()
    found = await last(box)
    assert found.put == pytest.approx(1.9, rel=BUSY)
    assert (found.published, found.failed, found.dead, found.p50_ms) == (0, 0, 0, None)


@pytest.mark.req("RO-5")
async def test_published_failed_and_dead_events_are_counted(box: Box):
    one, two, three, *others = await claim(box, 10)
    await box.desk.record_rates()
    await ten_seconds_pass(box)
    await box.ack(others)
    await box.retry([one, two], error="refused")
    await box.kill(three, reason="rejected")
    await box.desk.record_rates()
    found = await last(box)
    rates = [found.published, found.failed, found.dead, found.put]
    assert rates == pytest.approx([0.7, 0.3, 0.1, 0], rel=BUSY)


@pytest.mark.req("RO-5")
async def test_the_latencies_of_all_relays_are_added_up(box: Box):
    await box.put(Event("n"))
    await box.desk.record_rates()
    await ten_seconds_pass(box)
    await box.desk.record_rates(latencies={10: 50, 100: 40})
    await box.desk.record_rates(latencies={10: 0, 100: 9, 1000: 1})
    found = await last(box)
    assert found.p50_ms == 10
    assert found.p99_ms == 100
    await ten_seconds_pass(box)
    await box.desk.record_rates()
    assert (await last(box)).p50_ms is None, "a slot does not keep the latencies of another one"
    assert any(b" 10:50 100:49 1000:1" in each for each in (await slots(box, 300)).values())


@pytest.mark.req("RO-5")
async def test_time_without_samples_has_the_mean_rate(box: Box):
    await box.put(Event("n"))
    await box.desk.record_rates()
    await box.put_many([Event("n") for _ in range(60)])
    await advance(box, minutes=1)
    await box.desk.record_rates()
    found = await box.desk.rates_history(window="1h")
    assert found.step == 10
    assert len(found.samples) == 7, "also one for the slot of the first sample"
    assert [each.put for each in found.samples[1:]] == [pytest.approx(1, rel=BUSY)] * 6
    assert {after.at - before.at for before, after in zip(found.samples, found.samples[1:], strict=False)} == {
        timedelta(seconds=10)
    }
    assert found.samples[-1].at <= await store_time(box)
    assert len((await box.desk.rates_history(window="24h")).samples) <= 1


async def counted(box: Box, window: str = "1h") -> float:
    """The puts that the samples add up to."""
    found = await box.desk.rates_history(window=window)
    return sum(each.put * found.step for each in found.samples if each.put is not None)


@pytest.mark.req("RO-5")
@pytest.mark.parametrize("window", ["1h", "24h"])
async def test_the_rates_add_up_to_all_events_of_a_new_box(box: Box, window: str):
    await box.desk.record_rates()
    for _ in range(2):  # also within the slot of the first sample
        await box.put_many([Event("n") for _ in range(100)])
        await box.desk.record_rates()
    for count in (100, 0, 0):  # the last slot has not ended, so it has no put
        await advance(box, minutes=5)  # slots stay slots
        await box.put_many([Event("n") for _ in range(count)])
        await box.desk.record_rates()
    assert await counted(box, window) == pytest.approx(300, rel=0.01)


@pytest.mark.req("RO-5")
async def test_the_first_sample_of_an_older_box_is_where_its_rates_begin(box: Box):
    await box.put_many([Event("n") for _ in range(50)])
    await box.desk.record_rates()
    await box.put_many([Event("n") for _ in range(100)])
    await box.desk.record_rates()
    await ten_seconds_pass(box)
    await box.desk.record_rates()
    await ten_seconds_pass(box)
    await box.desk.record_rates()
    assert await counted(box) == pytest.approx(100, rel=0.01)


@pytest.mark.req("RO-5")
@pytest.mark.parametrize(("window", "step", "hours"), [("1h", 10, 1), ("24h", 300, 24)])
async def test_a_ring_is_bounded_and_its_window_ends(box: Box, window: str, step: int, hours: int):
    await box.put(Event("n"))
    now = int((await store_time(box)).timestamp() * 1000)
    for ago in range(RING[step]):  # as if it had been recorded in each slot
        at = now - ago * step * 1000
        await write(box, "HSET", keys.rates(box.name, step), at // (step * 1000) % RING[step], f"{at} 1 0 0 0 0")
    await advance(box, seconds=step)
    await box.desk.record_rates()
    assert len(await slots(box, step)) == RING[step]
    samples = (await box.desk.rates_history(window=window)).samples
    assert len(samples) == hours * 3600 // step + 1
    assert await store_time(box) - samples[0].at <= timedelta(hours=hours, seconds=step + 1)


@pytest.mark.req("RO-5")
async def test_a_ring_that_nobody_writes_to_is_removed(box: Box):
    await box.put(Event("n"))
    await box.desk.record_rates()
    for step, count in RING.items():
        (left,) = await box._store.exchange([("PTTL", keys.rates(box.name, step))])
        assert 0 < left <= step * count * 1000


@pytest.mark.req("RO-5")
async def test_a_box_that_does_not_exist_is_not_created(box: Box):
    assert not await box.desk.record_rates(latencies={10: 1})
    assert await contents(box) == {}
    assert (await box.desk.rates_history()).samples == []


@pytest.mark.req("RO-5")
async def test_lost_totals_and_damaged_slots_make_a_rate_unknown_and_nothing_else(box: Box):
    await box.put_many([Event("n") for _ in range(5)])
    await box.desk.record_rates()
    await ten_seconds_pass(box)
    await write(box, "HSET", keys.counters(box.name), "put", "many")
    await box.desk.record_rates()
    found = await last(box)
    assert (found.put, found.published) == (None, 0)
    await write(box, "HSET", keys.rates(box.name, 10), "0", "nonsense", "1", b"\xff 1")
    assert (await box.desk.rates_history()).samples
    await box.desk.record_rates()


@pytest.mark.req("RO-5")
async def test_samples_from_before_the_clock_was_set_back_are_left_out(box: Box):
    await box.put(Event("n"))
    await box.desk.record_rates()
    await advance(box, minutes=-30)
    await box.desk.record_rates()
    assert (await box.desk.rates_history()).samples == []


@pytest.mark.req("RO-5")
async def test_a_foreign_ring_is_left_alone(box: Box):
    await box.put(Event("n"))
    await write(box, "SET", keys.rates(box.name, 300), "somebody else's")
    before = await contents(box)
    with pytest.raises(ForeignKey):
        await box.desk.record_rates()
    assert await contents(box) == before


@pytest.mark.req("RO-5")
async def test_the_history_is_no_part_of_any_event(box: Box):
    await publish(box, Event("n"))
    await box.desk.record_rates(latencies={5: 1})
    assert await check_invariants(box) == []


async def test_an_unknown_window_is_refused(box: Box):
    with pytest.raises(UsageError, match="1h or 24h"):
        await box.desk.rates_history(window="2h")
