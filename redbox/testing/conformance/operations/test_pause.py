"""LM-3: a box is paused until it is resumed, for a duration, or until a time, by the store's clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redbox import Box, BoxPaused, Event, Pause, Relay, keys
from redbox.errors import UsageError
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.operations.steps import ADA
from redbox.testing.conformance.steps import contents, put_and_claim, store_time


async def is_paused(box: Box) -> bool:
    """Whether a claim is refused; the claim must agree with what `stats` says."""
    try:
        await box.claim("relay-1")
    except BoxPaused:
        refused = True
    else:
        refused = False
    stats = await box.stats()
    assert (stats.paused, stats.pause is not None) == (refused, refused)
    return refused


@pytest.mark.req("LM-3")
@pytest.mark.parametrize("how", ["duration", "until"])
async def test_a_pause_ends_by_itself(box: Box, how: str):
    before = await store_time(box)
    ending: dict[str, Any] = (
        {"duration": timedelta(minutes=10)} if how == "duration" else {"until": before + timedelta(minutes=10)}
    )
    pause = await box.operate.pause(**ending, **ADA)
    assert pause.until is not None
    assert timedelta(minutes=10) <= pause.until - before < timedelta(minutes=10, seconds=1)
    await box.put(Event("n"))
    assert await is_paused(box)
    await advance(box, minutes=9, seconds=58)
    assert await is_paused(box)
    await advance(box, seconds=2)
    assert (await box.stats()).pause is None
    assert len(await box.claim("relay-1")) == 1
    assert not await is_paused(box)
    assert await check_invariants(box) == []


@pytest.mark.req("LM-3")
async def test_a_pause_says_by_whom_why_and_until_when(box: Box):
    began = await store_time(box)
    pause = await box.operate.pause(who="ada", why="target\nis down ⏳", duration=60)
    assert (pause.who, pause.why) == ("ada", "target\nis down ⏳")
    assert (await box.stats()).pause == pause
    assert pause.since is not None
    assert began <= pause.since <= await store_time(box)
    with pytest.raises(BoxPaused, match=r"paused by ada until .* UTC \(target\sis down ⏳\).*redbox resume") as caught:
        await box.claim("relay-1")
    error = caught.value
    assert (error.who, error.why, error.until) == ("ada", "target\nis down ⏳", pause.until)
    assert error.ends_in is not None
    assert 50 < error.ends_in <= 60
    (entry,) = await box.operate.log()
    assert entry.detail == f"until={round(error.until.timestamp() * 1000)}" if error.until else False


@pytest.mark.req("LM-3")
async def test_a_pause_without_an_end(box: Box):
    pause = await box.operate.pause(who="ada", why="x" * 3000)
    assert pause.until is None
    assert (await box.stats()).pause == pause
    await advance(box, days=1000)
    with pytest.raises(BoxPaused) as caught:
        await box.claim("relay-1")
    assert (caught.value.until, caught.value.ends_in) == (None, None)
    assert len(str(caught.value)) < 400
    assert await box.operate.resume(**ADA)
    assert not await box.operate.resume(**ADA)
    assert not await is_paused(box)


@pytest.mark.req("LM-3")
@pytest.mark.parametrize("length", range(195, 205))
async def test_a_long_reason_is_cut_between_two_characters(box: Box, length: int):
    await box.operate.pause(who="ada", why="x" * (length - 3) + "é" * 50)
    with pytest.raises(BoxPaused) as caught:
        await box.claim("relay-1")
    assert caught.value.why.rstrip("é…").strip("x") == ""
    assert caught.value.why.endswith("…")


@pytest.mark.req("LM-3")
async def test_a_second_pause_replaces_the_first(box: Box):
    await box.operate.pause(duration=3600, who="ada", why="long")
    await box.operate.pause(duration=60, who="bob", why="short")
    stats = await box.stats()
    assert stats.pause is not None
    assert (stats.pause.who, stats.pause.why) == ("bob", "short")
    await advance(box, seconds=61)
    assert not await is_paused(box)
    await box.operate.pause(duration=60, **ADA)
    await box.operate.pause(**ADA)
    await advance(box, seconds=61)
    assert await is_paused(box)


@pytest.mark.req("LM-3")
async def test_a_pause_that_would_be_over_is_refused(box: Box):
    await box.put(Event("n"))
    before = await contents(box)
    with pytest.raises(UsageError, match=r"^until: 2020-01-01T00:00:00\+00:00 has passed by the store's clock"):
        await box.operate.pause(until=datetime(2020, 1, 1, tzinfo=UTC), **ADA)
    with pytest.raises(UsageError, match="duration must be positive"):
        await box.operate.pause(duration=0, **ADA)
    for invalid in ({"duration": -1}, {"until": datetime(2100, 1, 1)}, {"key": ""}):
        with pytest.raises(UsageError):
            await box.operate.pause(**invalid, **ADA)
    with pytest.raises(UsageError, match="not both"):
        await box.operate.pause(duration=1, until=datetime(2100, 1, 1, tzinfo=UTC), **ADA)
    assert await contents(box) == before


@pytest.mark.req("LM-3")
@pytest.mark.parametrize("stored", ["1", "", "x", "-", "1-2-3", "9" * 40 + "-" + "9" * 40, "9" * 15 + "-" + "9" * 40])
async def test_a_pause_of_an_earlier_version_or_damaged_lasts_until_resumed(box: Box, stored: str):
    """Details that a later pause has left behind are not those of this pause."""
    await box.operate.pause(who="ada", why="another pause", duration=60)
    await box._store.exchange([("HSET", keys.meta(box.name), "paused", stored)])
    with pytest.raises(BoxPaused) as caught:
        await box.claim("relay-1")
    assert (caught.value.until, caught.value.ends_in) == (None, None)
    stats = await box.stats()
    assert stats.paused
    if stored == "1":
        assert stats.pause == Pause("", "", None, None)
        assert "ada" not in str(caught.value)
    assert await box.operate.resume(**ADA)
    assert not await is_paused(box)


@pytest.mark.req("LM-3")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("key", [None, "order-7"])
async def test_an_idle_relay_goes_on_when_a_pause_ends(box: Box, key: str | None):
    """It waits neither for its next poll nor for a hint: nothing sends one."""
    await box.put(Event("n", ordering_key="order-7"))
    pause = await box.operate.pause(duration=1, key=key, **ADA)
    assert pause.until is not None
    published = asyncio.Event()

    async def publish(event: Event) -> None:
        published.set()

    async with Relay(box, publish, poll=30):
        await asyncio.wait_for(published.wait(), 20)
        late = await store_time(box) - pause.until
    assert timedelta(0) <= late < timedelta(seconds=1)


@pytest.mark.req("LM-3")
async def test_a_reap_removes_a_pause_that_is_over(box: Box):
    """So that relays of an earlier version, which know only the field `paused`, go on."""
    await put_and_claim(box)
    await box.operate.pause(duration=60, **ADA)
    await box.reap()
    assert "paused" in await box._store.meta()
    await advance(box, seconds=61)
    await box.reap()
    assert set(await box._store.meta()).isdisjoint({"paused", "pause_who", "pause_why"})


@pytest.mark.req("LM-3")
async def test_a_pause_beyond_the_calendar(box: Box):
    """Damaged: no datetime has its end."""
    await box._store.exchange([("HSET", keys.meta(box.name), "paused", "999999999999999-999999999999999")])
    assert await is_paused(box)
