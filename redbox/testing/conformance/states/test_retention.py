"""MQ-5: retention."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redbox import Box, Event, Outcome, Settings, State, keys
from redbox.box.bulk import sweep as sweeping
from redbox.errors import InvalidSetting
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.states.steps import configure, phases
from redbox.testing.conformance.steps import (
    claim_one,
    contents,
    expire,
    fail,
    known,
    make_dead,
    publish,
    put_and_claim,
)


async def aged(box: Box, make: Any, *hours: float) -> list[str]:
    """Makes terminal events with these ages in hours, oldest first; their ids are their ages."""
    ages = sorted(hours, reverse=True)
    ids = []
    for age, younger in zip(ages, [*ages[1:], 0.0], strict=True):
        ids += await make(box, Event("n", event_id=f"{make.__name__}-{age:g}", unique_key=f"u{age}", ordering_key="o"))
        await advance(box, hours=age - younger)
    return ids


async def left(box: Box) -> list[str]:
    return [record.event_id async for record in box.list()]


@pytest.mark.req("MQ-5")
@pytest.mark.parametrize(("make", "kind"), [(publish, "published"), (make_dead, "dead")])
async def test_sweep_by_age(box: Box, make: Any, kind: str):
    ids = await aged(box, make, 4, 3, 2, 1)
    keep: dict[str, Any] = {f"keep_{kind}": timedelta(hours=2, minutes=30)}
    swept = await box.sweep(**keep)
    assert (getattr(swept, kind), swept.published + swept.dead, swept.dry_run) == (2, 2, False)
    assert await left(box) == ids[2:]
    assert not [key for key in await contents(box) if ids[0] in key or ids[1] in key]
    assert (await box.stats()).totals["swept"] == 2
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
@pytest.mark.parametrize(("make", "kind"), [(publish, "published"), (make_dead, "dead")])
async def test_sweep_by_count_removes_the_oldest(box: Box, make: Any, kind: str):
    async def swept(keep: int) -> int:
        counts: dict[str, Any] = {f"keep_{kind}_count": keep}
        report = await box.sweep(**counts)
        assert report.published + report.dead == getattr(report, kind)
        return int(getattr(report, kind))

    ids = await aged(box, make, 4, 3, 2, 1)
    assert [await swept(5), await swept(4)] == [0, 0]
    assert await swept(1) == 3
    assert await left(box) == ids[3:]
    assert await swept(0) == 1
    assert await left(box) == []
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
async def test_sweep_by_age_and_count_removes_events_beyond_either_limit(box: Box):
    ids = await aged(box, publish, 4, 3, 2, 1)
    assert (await box.sweep(keep_published=timedelta(hours=3.5), keep_published_count=3)).published == 1
    assert (await box.sweep(keep_published=timedelta(hours=2.5), keep_published_count=3)).published == 1
    assert (await box.sweep(keep_published=timedelta(hours=2.5), keep_published_count=1)).published == 1
    assert await left(box) == ids[3:]


@pytest.mark.req("MQ-5")
async def test_a_dry_run_counts_and_removes_nothing(box: Box):
    await aged(box, publish, 4, 3, 2)
    await aged(box, make_dead, 2, 1)  # the published events are now two hours older
    before = await contents(box)
    swept = await box.sweep(keep_published=timedelta(hours=4.5), keep_dead_count=1, dry_run=True)
    assert (swept.published, swept.dead, swept.dry_run) == (2, 1, True)
    assert await contents(box) == before


@pytest.mark.req("MQ-5")
@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_sweep_is_made_in_bounded_steps(box: Box, monkeypatch: pytest.MonkeyPatch, dry_run: bool):
    """Seven events, two per step; they have the same score, so steps must also be split by id."""
    monkeypatch.setattr(sweeping, "SWEEP_COUNT", 2)
    ids = await publish(box, *(Event("n") for _ in range(7)))
    await make_dead(box, *(Event("n") for _ in range(3)))
    await advance(box, hours=1)
    kept = await publish(box, Event("n"))
    steps, send = [], box._store.sweep

    async def counting(index: str, **arguments: Any) -> Any:
        steps.append(index)
        return await send(index, **arguments)

    monkeypatch.setattr(box._store, "sweep", counting)
    swept = await box.sweep(keep_published=60, keep_dead=60, dry_run=dry_run)
    assert (swept.published, swept.dead) == (7, 3)
    assert steps == ["published"] * 4 + ["dead"] * 2
    assert [record.event_id async for record in box.list(state="PUBLISHED")] == ([*ids, *kept] if dry_run else kept)
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
async def test_a_sweep_continues_past_events_that_must_stay(box: Box, monkeypatch: pytest.MonkeyPatch):
    """DEAD heads that block their lines stay, wherever they are; the others are removed."""
    monkeypatch.setattr(sweeping, "SWEEP_COUNT", 2)
    await configure(box, dead_head="block")
    for n in range(9):
        await make_dead(box, Event("n", event_id=f"e{n}", ordering_key=f"o{n}" if n in (0, 1, 2, 5, 8) else None))
    for dry_run in (True, False):
        assert (await box.sweep(keep_dead=0, dry_run=dry_run)).dead == 4
    assert await left(box) == ["e0", "e1", "e2", "e5", "e8"]
    assert (await box.sweep(keep_dead=0)).dead == 0
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_limit_bounds_the_whole_sweep(box: Box, dry_run: bool):
    await publish(box, *(Event("n") for _ in range(3)))
    await make_dead(box, *(Event("n") for _ in range(4)))
    await advance(box, minutes=1)
    swept = await box.sweep(keep_published=1, keep_dead=1, limit=2, dry_run=dry_run)
    assert (swept.published, swept.dead) == (2, 0)
    swept = await box.sweep(keep_published=1, keep_dead=1, limit=5, dry_run=dry_run)
    assert (swept.published, swept.dead) == ((3, 2) if dry_run else (1, 4))
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
async def test_a_limit_does_not_keep_dead_events_for_ever(box: Box):
    """Without published events to sweep, the whole limit applies to dead ones."""
    await make_dead(box, *(Event("n") for _ in range(3)))
    await advance(box, minutes=1)
    assert (await box.sweep(keep_dead=1, limit=100)).dead == 3


@pytest.mark.req("MQ-5")
async def test_by_default_published_events_are_kept_for_a_day_and_dead_ones_for_ever(box: Box):
    assert (Settings().keep_published, Settings().keep_published_count) == (24 * 3600, 100_000)
    assert (Settings().keep_dead, Settings().keep_dead_count) == (None, None)
    assert await box.settings() == Settings()
    await aged(box, make_dead, 24 * 400)
    await aged(box, publish, 25, 23)
    swept = await box.sweep()
    assert (swept.published, swept.dead) == (1, 0)
    assert await left(box) == ["publish-23", "make_dead-9600"]


@pytest.mark.req("MQ-5")
async def test_retention_comes_from_the_settings_of_the_box(box: Box):
    settings = await configure(box, keep_published=timedelta(hours=3), keep_dead=7200, keep_dead_count=2)
    assert (settings.keep_published, settings.keep_dead, settings.keep_dead_count) == (10_800, 7200, 2)
    assert await box.settings() == settings == (await box.stats()).settings
    await aged(box, publish, 4, 1)
    await aged(box, make_dead, 1.5, 1, 0.5)  # the published events are now an hour and a half older
    swept = await box.sweep()
    assert (swept.published, swept.dead) == (1, 1)
    await configure(box, keep_published=None, keep_published_count=None, keep_dead=60)
    await advance(box, hours=24 * 400)
    assert (await box.sweep(dry_run=True)).published == 0
    assert (await box.sweep()).dead == 2
    assert await left(box) == ["publish-1"]


@pytest.mark.req("MQ-5")
async def test_settings_are_returned_as_given(box: Box):
    settings = await configure(box, keep_published=timedelta(days=365, seconds=1), keep_dead=1_234_567.5)
    assert (settings.keep_published, settings.keep_dead) == (31_536_001, 1_234_567.5)


@pytest.mark.req("MQ-5")
async def test_invalid_settings_are_refused(box: Box):
    wrong: list[dict[str, Any]] = [
        {"keep_published": -1}, {"keep_dead_count": -1}, {"max_pending": "many"}, {"dead_head": "jump"},
        {"keep_publishd": 60}, {"keep_dead": "1h"}, {"max_pending": None},
    ]  # fmt: skip
    for changes in wrong:
        with pytest.raises(InvalidSetting, match=next(iter(changes)) if "dead_head" not in changes else "jump"):
            await configure(box, **changes)
    assert await contents(box) == {}


@pytest.mark.req("MQ-5")
@pytest.mark.parametrize("how", ["setting", "argument"])
async def test_delete_on_success(box: Box, how: str):
    if how == "setting":
        await configure(box, keep_published=0)
    await box.put_many([Event("n", event_id="a", ordering_key="o", unique_key="k"),
                        Event("n", event_id="b", ordering_key="o")])  # fmt: skip
    claim = await claim_one(box)
    await fail(box, claim, error="503")  # so that there is a history to remove
    assert await box.ack(await claim_one(box), delete=how == "argument") == [True]
    assert await box.get("a") is None
    assert not [key for key in await contents(box) if key.endswith((":a", ":k"))]
    stats = await box.stats()
    assert (stats.phases, stats.waiting) == (phases(available=1), 0)
    assert (stats.totals["published"], stats.totals["swept"]) == (1, 1)
    assert (await box.put(Event("n", event_id="c", unique_key="k"))).created
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
async def test_delete_on_success_is_fenced(box: Box):
    claim = await put_and_claim(box)
    await expire(box)
    assert await box.ack(claim, delete=True) == [False]
    assert (await known(box, claim.event_id)).state == State.PENDING
    (kept,) = [claim.event_id for claim in await box.claim("relay-1")]
    assert await check_invariants(box) == []
    assert kept == claim.event_id


@pytest.mark.req("MQ-5")
async def test_only_zero_deletes_on_success(box: Box):
    await configure(box, keep_published=1, keep_published_count=0)
    (event_id,) = await publish(box, Event("n"))
    assert (await known(box, event_id)).state == State.PUBLISHED


@pytest.mark.req("MQ-5")
async def test_a_kill_can_delete_the_event(box: Box):
    await box.put_many([Event("n", event_id="a", ordering_key="o", unique_key="k"),
                        Event("n", event_id="b", ordering_key="o")])  # fmt: skip
    assert await box.kill(await claim_one(box), reason="422", drop=True) == [True]
    assert await box.operate.kill(["b"], who="ada", why="x", drop=True) == [Outcome.OK]
    assert await left(box) == []
    there = {key.removeprefix(keys.prefix(box.name)) for key in await contents(box)}
    assert there == {":meta", ":counters", ":log", ":wake"}
    totals = (await box.stats()).totals
    assert (totals["dead"], totals["dropped"], totals.get("swept", 0)) == (2, 2, 0)
