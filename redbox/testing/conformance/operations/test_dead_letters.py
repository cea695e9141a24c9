"""RF-3, RO-1, RO-2, RO-6: dead events by error and by age."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from redbox import Box, Event, State
from redbox.box import error_groups, inspect
from redbox.errors import UsageError
from redbox.fingerprints import group_id
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.operations.steps import ADA, listed, named
from redbox.testing.conformance.steps import known, make_dead, publish, put_and_claim

DOWN, DENIED = "http 503 after <n> s", "http 401 for user <n>"


async def died(box: Box, name: str, error: str, event_type: str = "n", **fields: Any) -> None:
    await make_dead(box, Event(event_type, event_id=name, **fields), reason=error)


async def two_groups(box: Box) -> None:
    """Three events that the target was down for, and two whose user was denied, an hour after the first."""
    await died(box, "a", "HTTP 503 after 7 s", "order.paid")
    await advance(box, hours=1)
    await died(box, "b", "HTTP 401 for user 12", "user.created")
    await died(box, "c", "HTTP 503 after 12 s", "order.sent")
    await died(box, "d", "HTTP 401 for user 13", "user.created")
    await advance(box, hours=1)
    await died(box, "e", "HTTP 503 after 8 s", "order.paid")


# --- RO-6: the time of creation ---------------------------------------------------------------------------------------


@pytest.mark.req("RO-6")
async def test_list_by_time_of_creation(box: Box):
    """The bounds are inclusive, and the same for all states."""
    await publish(box, *named("p1"))
    await advance(box, hours=1)
    await box.put_many(named("d2"))
    await advance(box, hours=1)
    await box.operate.kill(["d2"], **ADA)
    await box.put_many(named("w3", delay=600))
    moment, step = (await known(box, "d2")).created_at, timedelta(milliseconds=1)
    assert await listed(box, created_since=moment) == ["w3", "d2"]
    assert await listed(box, created_since=moment + step) == ["w3"]
    assert await listed(box, created_until=moment) == ["p1", "d2"]
    assert await listed(box, created_until=moment - step) == ["p1"]
    assert await listed(box, created_since=moment, created_until=moment) == ["d2"]
    assert await listed(box, created_since=moment + step, created_until=moment) == []
    assert await listed(box, since=moment + step, created_until=moment) == ["d2"]  # it died later
    assert await listed(box, state="DEAD", created_until=moment - step) == []
    with pytest.raises(UsageError, match="created_since"):
        await listed(box, created_since=datetime(2030, 1, 1))  # noqa: DTZ001, RUF100  # naive on purpose
    with pytest.raises(UsageError, match="created_until"):
        await listed(box, created_until="yesterday")


@pytest.mark.req("RO-6")
async def test_replay_by_time_of_creation(box: Box):
    await box.put_many(named("old"))
    await advance(box, hours=1)
    await box.put_many(named("new"))
    await box.operate.kill(["old", "new"], **ADA)
    moment, step = (await known(box, "new")).created_at, timedelta(milliseconds=1)
    assert (await box.replay(created_until=moment - step)).replayed == 1
    assert await listed(box, state="DEAD") == ["new"]
    assert (await box.replay(created_since=moment + step)).replayed == 0
    assert (await box.replay(created_since=moment)).replayed == 1
    assert await check_invariants(box) == []


# --- RO-1: error groups -----------------------------------------------------------------------------------------------


@pytest.mark.req("RO-1", "RF-3")
async def test_dead_events_are_grouped_by_the_fingerprints_of_their_errors(box: Box):
    await two_groups(box)
    await box.put(Event("n"))
    groups = await box.error_groups()
    assert [(each.fingerprint, each.count, each.event_types, each.sample_id, each.example) for each in groups] == [
        (DOWN, 3, ("order.paid", "order.sent"), "e", "HTTP 503 after 8 s"),
        (DENIED, 2, ("user.created",), "d", "HTTP 401 for user 13"),
    ]
    assert [each.group for each in groups] == [group_id(DOWN), group_id(DENIED)]
    first, last = (await known(box, "a")).died_at, (await known(box, "e")).died_at
    assert (groups[0].first_seen, groups[0].last_seen) == (first, last)
    assert await check_invariants(box) == []


@pytest.mark.req("RO-1")
async def test_groups_are_made_of_the_events_that_the_filters_select(box: Box):
    await two_groups(box)

    async def counts(**filters: Any) -> list[tuple[str, int]]:
        return [(each.fingerprint, each.count) for each in await box.error_groups(**filters)]

    assert await counts(event_type="order.*") == [(DOWN, 3)]
    assert await counts(since=(await known(box, "e")).died_at) == [(DOWN, 1)]
    assert await counts(created_until=(await known(box, "a")).created_at) == [(DOWN, 1)]
    assert await counts(group=group_id(DENIED)) == [(DENIED, 2)]
    assert await counts(error="nothing") == []
    await box.retry(await put_and_claim(box), error="HTTP 429", delay=60)
    assert await counts(state="PENDING") == [("http 429", 1)]
    with pytest.raises(UsageError, match="no such filter"):
        await box.error_groups(cause="x")


@pytest.mark.req("RO-1")
async def test_the_number_of_groups_and_types_is_bounded(box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(error_groups, "MOST_GROUPS", 2)
    monkeypatch.setattr(error_groups, "MOST_TYPES", 2)
    for n, error in enumerate(("one", "two", "three", "four", "two", "three")):
        await died(box, str(n), error, f"t{n}")
    groups = await box.error_groups()
    assert [(each.fingerprint, each.count, each.event_types) for each in groups] == [
        ("two", 2, ("t1", "t4")),
        ("one", 1, ("t0",)),
        ("(errors beyond 2 groups)", 3, ("t2", "t3")),
    ]
    assert (groups[-1].group, groups[-1].sample_id) == ("other", "5")


@pytest.mark.req("RO-1")
async def test_grouping_ends_beside_events_that_die_meanwhile(box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inspect, "BATCH_COUNT", 2)
    await make_dead(box, *named("a", "b", "c"), reason="HTTP 500")
    page, extra = box._store.page_summaries, iter(range(100))

    async def page_and_die(*arguments: Any, **options: Any) -> Any:
        await died(box, f"later-{next(extra)}", "HTTP 500")
        return await page(*arguments, **options)

    monkeypatch.setattr(box._store, "page_summaries", page_and_die)
    assert [each.count for each in await box.error_groups()] == [3]


@pytest.mark.req("RO-1")
@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_list_by_error_group(box: Box, limit: int):
    await two_groups(box)
    for group in (DOWN, group_id(DOWN)):
        assert await listed(box, group=group) == ["a", "c", "e"]
        ids, cursor = [], None
        while True:
            page = await box.page(limit=limit, cursor=cursor, group=group)
            assert len(page.records) <= limit
            ids += [record.event_id for record in page.records]
            cursor = page.cursor
            if cursor is None:
                break
        assert ids == ["a", "c", "e"]
    assert await listed(box, group=DOWN, event_type="order.sent") == ["c"]
    assert await listed(box, group=DOWN, state="PENDING") == []
    assert await listed(box, group="00000000") == []
    with pytest.raises(UsageError, match="group: must be 1 to 1000 characters"):
        await listed(box, group="")


@pytest.mark.req("RO-1")
async def test_an_event_that_changes_while_its_group_is_listed_is_left_out(box: Box, monkeypatch: pytest.MonkeyPatch):
    await two_groups(box)
    page = box._store.page_summaries

    async def page_and_change(*arguments: Any, **options: Any) -> Any:
        found = await page(*arguments, **options)
        await box.replay(["a"])
        await box.operate.drop(["c"], **ADA)
        return found

    monkeypatch.setattr(box._store, "page_summaries", page_and_change)
    assert await listed(box, state="DEAD", group=DOWN) == ["e"]


@pytest.mark.req("RO-2", "RF-3")
async def test_replay_by_error_group(box: Box):
    await two_groups(box)
    assert (await box.replay(group=group_id(DENIED), dry_run=True)).matched == 2
    report = await box.replay(group=group_id(DENIED))
    assert (report.matched, report.replayed) == (2, 2)
    assert await listed(box, state=State.DEAD) == ["a", "c", "e"]
    assert await check_invariants(box) == []
