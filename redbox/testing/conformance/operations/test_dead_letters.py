"""RF-3, RO-1, RO-2, RO-6: dead events by error and by age."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from redbox import Box, Event, Outcome, Replayed, State, keys
from redbox.audit import repair
from redbox.box import inspect
from redbox.box.bulk import choice as bulk
from redbox.box.bulk import pace, replay
from redbox.box.desk import error_groups
from redbox.errors import StoreUnavailable, UsageError
from redbox.fingerprints import group_id
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.operations.steps import ADA, listed, named
from redbox.testing.conformance.steps import claim_one, known, make_dead, publish, put_and_claim

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
    monkeypatch.setattr(inspect, "SUMMARY_LOOK", 2)
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


# --- RO-2: replay with a canary, and its log --------------------------------------------------------------------------


@pytest.mark.req("RO-2")
async def test_a_replay_of_many_steps_is_one_entry_of_the_log(box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pace, "BATCH_COUNT", 2)
    await make_dead(box, *named("a", "b", "c", "d", "e"))
    await box.replay(state="DEAD", who="ada", why="a test")
    (entry,) = await box.operate.log()
    assert (entry.action, entry.who, entry.why, entry.count) == ("replay", "ada", "a test", 5)
    assert sorted(entry.ids) == ["a", "b", "c", "d", "e"]


@pytest.mark.req("RO-2")
async def test_the_entry_of_an_interrupted_replay_has_the_true_count(box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pace, "BATCH_COUNT", 2)
    await make_dead(box, *named("a", "b", "c", "d", "e"))
    step, calls = box._store.replay, iter(range(100))

    async def fail_later(*arguments: Any, **options: Any) -> Any:
        if next(calls) == 2:
            raise StoreUnavailable("gone")
        made = await step(*arguments, **options)
        await box.operate.reschedule(["a"], who="bob", why="in between")
        return made

    monkeypatch.setattr(box._store, "replay", fail_later)
    with pytest.raises(StoreUnavailable):
        await box.replay(state="DEAD", **ADA)
    assert [entry.count for entry in await box.operate.log() if entry.action == "replay"] == [4]
    monkeypatch.undo()
    assert (await box.replay(state="DEAD", **ADA)).replayed == 1
    assert [entry.count for entry in await box.operate.log() if entry.action == "replay"] == [1, 4]
    assert await check_invariants(box) == []


class Relay:
    """Settles the replayed events of a box, as a test decides."""

    def __init__(self, box: Box, bad: tuple[str, ...] = (), **options: Any) -> None:
        self.box, self.bad, self.options = box, bad, options
        self.seen: list[str] = []

    async def run(self) -> None:
        while True:
            for claim in await self.box.claim("relay"):
                self.seen.append(claim.event_id)
                if claim.event_id in self.bad:
                    await self.box.kill(claim, reason="HTTP 422", drop=self.options.get("drop", False))
                else:
                    await self.box.ack(claim, delete=self.options.get("delete", False))
            await asyncio.sleep(0.01)

    async def beside(self, work: Awaitable[Replayed]) -> Replayed:
        running = asyncio.create_task(self.run())
        try:
            return await work
        finally:
            running.cancel()


@pytest.mark.req("RO-2")
@pytest.mark.parametrize("delete", [False, True])
async def test_a_replay_goes_on_after_its_canaries_are_published(box: Box, delete: bool):
    await make_dead(box, *named("a", "b", "c", "d", "e"))
    relay = Relay(box, delete=delete)
    report = await relay.beside(box.replay(state="DEAD", canary=2))
    assert (report.matched, report.replayed) == (5, 5)
    assert report.canary is not None
    assert (report.canary.published, report.canary.passed) == (2, True)
    assert len([entry for entry in await box.operate.log() if entry.action == "replay"]) == 1
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
@pytest.mark.parametrize("drop", [False, True])
async def test_a_replay_stops_if_a_canary_dies_again(box: Box, drop: bool):
    await make_dead(box, *named("a", "b", "c", "d", "e"))
    report = await Relay(box, bad=("b",), drop=drop).beside(box.replay(state="DEAD", canary=2))
    assert (report.matched, report.replayed) == (2, 2)
    assert report.canary is not None
    assert not report.canary.passed
    assert report.canary.died == ({} if drop else {"b": "HTTP 422"})
    assert report.canary.gone == (["b"] if drop else [])
    assert await listed(box, state="DEAD") == (["c", "d", "e"] if drop else ["c", "d", "e", "b"])
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_a_replay_stops_if_no_relay_settles_its_canaries(box: Box):
    await make_dead(box, *named("a", "b", "c"))
    report = await box.replay(state="DEAD", canary=2, canary_wait=0.1)
    assert (report.matched, report.replayed) == (2, 2)
    assert report.canary is not None
    assert (report.canary.published, report.canary.unsettled) == (0, ["a", "b"])
    assert await listed(box, state="DEAD") == ["c"]


@pytest.mark.req("RO-2")
async def test_refused_events_are_no_canaries(box: Box):
    await make_dead(box, *named("a", unique_key="u"), *named("b", "c", "d"))
    await box.put(Event("n", event_id="holder", unique_key="u", delay=3600))
    relay = Relay(box)
    report = await relay.beside(box.replay(state="DEAD", canary=2))
    assert (report.matched, report.replayed, report.refused_count, report.conflicts) == (4, 3, 1, 1)
    assert report.refused == [("a", Outcome.CONFLICT, "holder")]
    assert report.canary is not None
    assert report.canary.published == 2
    assert relay.seen[:2] == ["b", "c"]


@pytest.mark.req("RO-2")
async def test_a_canary_of_more_events_than_there_are_waits_for_all(box: Box):
    await make_dead(box, *named("a", "b"))
    report = await Relay(box).beside(box.replay(["a", "b"], canary=10))
    assert report.canary is not None
    assert report.canary.published == 2
    report = await box.replay(state="DEAD", canary=10)
    assert (report.matched, report.canary) == (0, None)


@pytest.mark.req("RO-2")
async def test_a_dry_run_has_no_canary(box: Box):
    await make_dead(box, *named("a", "b"))
    report = await box.replay(state="DEAD", canary=1, dry_run=True)
    assert (report.matched, report.replayed, report.canary) == (2, 0, None)


@pytest.mark.req("RO-2")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"canary": 0}, "canary"),
        ({"canary": 1001}, "canary"),
        ({"ramp": 60}, "ramp: needs a rate"),
        ({"ramp": -1, "rate": 5}, "ramp"),
        ({"canary": 1, "canary_wait": -1}, "canary_wait"),
    ],
)
async def test_wrong_canaries_and_ramps_are_refused(box: Box, options: dict[str, Any], message: str):
    await make_dead(box, *named("a"))
    with pytest.raises(UsageError, match=message):
        await box.replay(state="DEAD", **options)
    assert await listed(box, state="DEAD") == ["a"]


@pytest.mark.req("RO-2")
async def test_a_report_names_a_bounded_number_of_refused_events(box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replay, "MOST_REFUSED", 2)
    report = await box.replay(["x", "y", "z"])
    assert (report.refused_count, report.conflicts) == (3, 0)
    assert report.refused == [("x", Outcome.UNKNOWN, ""), ("y", Outcome.UNKNOWN, "")]


# --- RF-3: export and drop --------------------------------------------------------------------------------------------


async def exported(box: Box, *arguments: Any, **filters: Any) -> list[bytes]:
    return [line async for line in box.export(*arguments, **filters)]


def ids_of(lines: list[bytes]) -> list[str]:
    return [msgspec.json.decode(line)["event_id"] for line in lines]


@pytest.mark.req("RF-3")
async def test_an_export_has_a_line_for_each_selected_event(box: Box):
    await two_groups(box)
    await box.put(Event("n", event_id="pending"))
    assert sorted(ids_of(await exported(box))) == ["a", "b", "c", "d", "e"]
    assert ids_of(await exported(box, group=DOWN)) == ["a", "c", "e"]
    assert ids_of(await exported(box, event_type="order.sent")) == ["c"]
    assert ids_of(await exported(box, ["e", "nothing", "e", "pending"])) == ["e", "pending"]
    assert ids_of(await exported(box, state="PENDING")) == ["pending"]
    (line,) = await exported(box, ["a"])
    fields = msgspec.json.decode(line)
    assert line.endswith(b"}\n")
    assert (fields["event_type"], fields["state"], fields["last_error"]) == ("order.paid", "DEAD", "HTTP 503 after 7 s")
    with pytest.raises(UsageError, match="in one way"):
        await exported(box, ["a"], group=DOWN)


@pytest.mark.req("RF-3")
async def test_an_export_ends_beside_events_that_die_meanwhile(box: Box):
    await make_dead(box, *named("a", "b"))
    await advance(box, seconds=1)
    lines = []
    async for line in box.export():
        lines.append(line)
        await died(box, f"later-{len(lines)}", "HTTP 500")
    assert ids_of(lines) == ["a", "b"]


@pytest.mark.req("RF-3")
async def test_drop_by_ids_filter_and_group(box: Box):
    await two_groups(box)
    await box.put(Event("n", event_id="pending"))
    report = await box.drop(group=DENIED, dry_run=True)
    assert (report.matched, report.dropped, report.dry_run) == (2, 0, True)
    report = await box.drop(group=DENIED, **ADA)
    assert (report.matched, report.dropped, report.refused_count) == (2, 2, 0)
    assert (await box.drop(event_type="order.sent", **ADA)).dropped == 1
    report = await box.drop(["a", "pending", "nothing"], **ADA)
    assert (report.matched, report.dropped, report.refused_count) == (3, 1, 2)
    assert [event_id for event_id, _ in report.refused] == ["pending", "nothing"]
    assert await listed(box) == ["pending", "e"]
    assert [(entry.action, entry.who, entry.count) for entry in await box.operate.log()] == [("drop", "ada", 1)] * 2 + [
        ("drop", "ada", 2)
    ]
    assert await check_invariants(box) == []


async def dead_by_repair(box: Box, *names: str) -> None:
    """Makes events DEAD that no relay claimed: they lost their bodies, and were repaired."""
    await box.put_many(named(*names))
    await box._store.exchange([("DEL", keys.body(box.name, name)) for name in names])
    assert set((await repair(box, **ADA)).ids) == set(names)


@pytest.mark.req("RF-3")
@pytest.mark.parametrize("filters", [{"state": "DEAD"}, {"group": "body missing"}])
async def test_an_event_that_was_never_claimed_is_dropped(box: Box, filters: dict[str, Any]):
    await dead_by_repair(box, "marked")
    await box.put_many(named("killed", "damaged"))
    await box.operate.kill(["killed", "damaged"], **ADA)
    await box._store.exchange(
        [
            ("HSET", keys.event(box.name, "damaged"), "claim", "abc", "last_error", "body missing"),
            ("HSET", keys.event(box.name, "killed"), "last_error", "body missing"),
        ]
    )
    assert [(await known(box, name)).number > 0 for name in ("marked", "killed", "damaged")] == [False, True, False]
    report = await box.drop(**filters, **ADA)
    assert (report.matched, report.dropped, report.refused) == (3, 3, [])
    assert await listed(box) == []
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2", "SC-4")
@pytest.mark.parametrize("force", [False, True])
async def test_an_event_without_a_body_is_not_replayed(box: Box, force: bool):
    """It could never be delivered: a relay would find it lost."""
    await dead_by_repair(box, "marked")
    await make_dead(box, *named("gone", "whole"))
    await publish(box, *named("published"))
    await box._store.exchange([("DEL", keys.body(box.name, name)) for name in ("gone", "published")])
    missing = [("gone", Outcome.BODYMISSING, ""), ("marked", Outcome.BODYMISSING, "")]
    report = await box.replay(state="DEAD", dry_run=True, force=force)
    assert (report.matched, report.refused_count, sorted(report.refused)) == (3, 2, missing)
    report = await box.replay(state="DEAD", force=force)
    assert (report.matched, report.replayed, sorted(report.refused)) == (3, 1, missing)
    assert (await box.replay(["published"], force=force)).refused == [("published", Outcome.BODYMISSING, "")]
    assert sorted(await listed(box, state="DEAD")) == ["gone", "marked"]
    assert [claim.event_id for claim in await box.claim("relay")] == ["whole"]
    assert (await box.stats()).lost == 0


@pytest.mark.req("RF-3")
async def test_drops_without_a_selection_or_with_several_are_refused(box: Box):
    await two_groups(box)
    wrong: list[dict[str, Any]] = [
        {},
        {"ids": ["a"], "state": "DEAD"}, {"exported": [b"{}"], "ids": ["a"]}, {"exported": [b"{}"], "state": "DEAD"},
        {"state": "PENDING"}, {"exported": "a"}, {"exported": [b"nothing\n"]}, {"state": "DEAD", "who": ""},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(UsageError):
            await box.drop(**options)
    assert len(await listed(box)) == 5


@pytest.mark.req("RF-3")
async def test_only_what_was_exported_is_dropped(box: Box):
    """One event was replayed after the export, one died again, one was dropped, and one died later."""
    await make_dead(box, *named("same", "pending", "again", "gone"))
    lines = await exported(box)
    await box.replay(["again"])
    await box.kill(await claim_one(box))
    await box.replay(["pending"])
    await box.operate.drop(["gone"], **ADA)
    await box.operate.kill([(await box.put(Event("n", event_id="later"))).event_id], **ADA)
    report = await box.drop(exported=lines, **ADA)
    assert (report.matched, report.dropped, report.refused_count) == (4, 1, 3)
    assert dict(report.refused) == {
        "again": Outcome.CHANGED.reason, "gone": Outcome.UNKNOWN.reason, "pending": Outcome.NOTTERMINAL.reason,
    }  # fmt: skip
    assert sorted(await listed(box)) == ["again", "later", "pending"]
    assert (await box.drop(exported=lines, **ADA)).dropped == 0
    assert await check_invariants(box) == []


@pytest.mark.req("RF-3")
@pytest.mark.parametrize("bad", [b"nothing\n", b'{"event_id": "x"}\n', b"\xff\n", None])
async def test_a_bad_line_of_an_export_drops_nothing(box: Box, bad: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk, "BATCH_COUNT", 2)
    await make_dead(box, *named("a", "b", "c"))
    lines = await exported(box)
    with pytest.raises(UsageError, match=r"line 4 is not that of an exported event \(.*\); nothing was dropped"):
        await box.drop(exported=iter([*lines, bad]), **ADA)
    assert await listed(box) == ["a", "b", "c"]
    assert await box.operate.log() == []
    assert (await box.drop(exported=iter(lines), **ADA)).dropped == 3


@pytest.mark.req("RF-3")
async def test_an_event_that_changes_between_being_found_and_dropped_is_left(box: Box, monkeypatch: pytest.MonkeyPatch):
    await make_dead(box, *named("a", "b"))
    drop = box._store.drop

    async def change_and_drop(*arguments: Any, **options: Any) -> Any:
        await box.replay(["a"])
        await box.kill(await claim_one(box))
        return await drop(*arguments, **options)

    monkeypatch.setattr(box._store, "drop", change_and_drop)
    report = await box.drop(state="DEAD", **ADA)
    assert (report.dropped, report.refused) == (1, [("a", Outcome.CHANGED.reason)])
    assert await listed(box) == ["a"]


@pytest.mark.req("RF-3")
async def test_an_unreadable_event_is_not_dropped_after_an_export(box: Box):
    await make_dead(box, *named("a", "b"))
    await box._store.exchange([("SET", keys.body(box.name, "a"), "x")])
    report = await box.drop(exported=await exported(box), **ADA)
    assert (report.matched, report.dropped, report.refused_count) == (2, 1, 1)
    assert "event a cannot be read" in report.refused[0][1]
    assert (await box.drop(state="DEAD", **ADA)).dropped == 1


@pytest.mark.req("RF-3")
async def test_a_drop_of_many_steps_is_one_entry_of_the_log(box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inspect, "BATCH_COUNT", 2)
    await make_dead(box, *named("a", "b", "c", "d", "e"))
    done: list[int] = []
    assert (await box.drop(state="DEAD", progress=done.append, **ADA)).dropped == 5
    assert done[-1] == 5
    assert len(done) == 3
    (entry,) = await box.operate.log()
    assert (entry.action, entry.count, sorted(entry.ids)) == ("drop", 5, ["a", "b", "c", "d", "e"])
