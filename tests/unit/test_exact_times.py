"""To the millisecond: what is due, expired or old enough. In memory, where the store's clock can be stopped."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from redbox import Box, Conflict, Event
from redbox.events import from_ms


class Clock:
    """The store's clock, in ms."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def time(self) -> float:
        return self.ms / 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stopped = Clock()
    monkeypatch.setattr("fakeredis.commands_mixins.server_mixin.time", SimpleNamespace(time=stopped.time))
    return stopped


@pytest.mark.req("EM-12", "PL-2")
async def test_claimed_at_its_moment_and_not_before(redbox_box: Box, clock: Clock):
    await redbox_box.put(Event("n", delay=5))
    clock.ms += 4_999
    assert await redbox_box.claim("relay") == []
    clock.ms += 1
    assert len(await redbox_box.claim("relay")) == 1


@pytest.mark.req("EM-12")
async def test_an_absolute_moment(redbox_box: Box, clock: Clock):
    event = Event("n", available_at=from_ms(clock.ms + 250))
    await redbox_box.put(event)
    clock.ms += 249
    assert await redbox_box.claim("relay") == []
    clock.ms += 1
    (claim,) = await redbox_box.claim("relay")
    assert claim.event.available_at == event.available_at


@pytest.mark.req("SC-7", "PL-4")
async def test_reaped_at_the_end_of_its_lease_and_not_before(redbox_box: Box, clock: Clock):
    await redbox_box.put(Event("n"))
    (claim,) = await redbox_box.claim("relay", lease=30)
    clock.ms += 29_999
    assert (await redbox_box.stats()).overdue == 0
    assert await redbox_box.reap() == []
    clock.ms += 1
    assert (await redbox_box.stats()).overdue == 1
    assert await redbox_box.reap() == [claim.event_id]
    record = await redbox_box.get(claim.event_id)
    assert record is not None
    assert record.available_at == from_ms(clock.ms)


@pytest.mark.req("PL-6")
async def test_renewed_from_now(redbox_box: Box, clock: Clock):
    await redbox_box.put(Event("n"))
    (claim,) = await redbox_box.claim("relay", lease=30)
    clock.ms += 10_000
    assert await redbox_box.renew(claim, lease=30) == [True]
    record = await redbox_box.get(claim.event_id)
    assert record is not None
    assert record.lease_until == from_ms(clock.ms + 30_000)


@pytest.mark.req("PL-4", "SC-5")
async def test_delays_are_exact(redbox_box: Box, clock: Clock):
    await redbox_box.put_many([Event("n"), Event("n")])
    first, second = await redbox_box.claim("relay")
    clock.ms += 7
    await redbox_box.retry(first, delay=1.5)
    await redbox_box.release(second, delay=2.5)
    times = [(await redbox_box.get(claim.event_id)).available_at for claim in (first, second)]  # type: ignore[union-attr]
    assert times == [from_ms(clock.ms + 1_500), from_ms(clock.ms + 2_500)]


@pytest.mark.req("PL-4")
async def test_released_without_a_delay_keeps_its_moment(redbox_box: Box, clock: Clock):
    await redbox_box.put(Event("n"))
    put_at = clock.ms
    clock.ms += 1_000
    (claim,) = await redbox_box.claim("relay")
    await redbox_box.release(claim)
    record = await redbox_box.get(claim.event_id)
    assert record is not None
    assert record.available_at == from_ms(put_at)


@pytest.mark.req("MQ-3")
async def test_untouched_is_back_in_scope_when_its_retry_is_due(redbox_box: Box, clock: Clock):
    def again() -> Event:
        return Event("n", unique_key="u", unique_scope="UNTOUCHED")

    await redbox_box.put(again())
    (claim,) = await redbox_box.claim("relay")
    await redbox_box.retry(claim, delay=10)
    clock.ms += 9_999
    other = await redbox_box.put(again())
    (taken,) = await redbox_box.claim("relay")
    assert taken.event_id == other.event_id
    await redbox_box.ack(taken)
    clock.ms += 1
    with pytest.raises(Conflict, match=claim.event_id):
        await redbox_box.put(again())


@pytest.mark.req("MQ-5")
async def test_swept_at_its_age_and_not_before(redbox_box: Box, clock: Clock):
    await redbox_box.put(Event("n"))
    await redbox_box.ack(await redbox_box.claim("relay"))
    clock.ms += 59_999
    assert (await redbox_box.sweep(keep_published=60)).published == 0
    clock.ms += 1
    assert (await redbox_box.sweep(keep_published=60)).published == 1


@pytest.mark.req("MQ-1")
async def test_phases_change_at_the_moment(redbox_box: Box, clock: Clock):
    await redbox_box.put(Event("n", delay=5, event_id="one"))
    clock.ms += 4_999
    assert (await redbox_box.stats()).phases["SCHEDULED"] == 1
    assert [record.phase async for record in redbox_box.list()] == ["SCHEDULED"]
    clock.ms += 1
    stats = await redbox_box.stats()
    assert (stats.phases["SCHEDULED"], stats.phases["AVAILABLE"]) == (0, 1)
    assert [record.phase async for record in redbox_box.list()] == ["AVAILABLE"]
    clock.ms += 3_000
    age = (await redbox_box.stats()).oldest_available
    assert age is not None
    assert age.total_seconds() == 3


@pytest.mark.req("RO-2")
async def test_a_replay_by_filter_stops_at_the_moment_it_started(redbox_box: Box, clock: Clock):
    await redbox_box.put_many([Event("n"), Event("n")])
    first, second = await redbox_box.claim("relay")
    await redbox_box.kill(first)
    page_claims = redbox_box._store.page_claims

    async def meanwhile(*arguments, **options):  # the second one is killed after the replay started, before it looked
        clock.ms += 1
        await redbox_box.kill(second)
        return await page_claims(*arguments, **options)

    redbox_box._store.page_claims = meanwhile  # type: ignore[method-assign]
    report = await redbox_box.replay(state="DEAD")
    assert (report.matched, report.replayed) == (1, 1)
