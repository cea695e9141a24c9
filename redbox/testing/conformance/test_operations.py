"""RO: looking, replaying, and what operators do by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redbox import Box, BoxPaused, Event, Outcome, Phase, State, keys
from redbox.box import bulk
from redbox.errors import UsageError
from redbox.store import store as store_module
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import (
    bury,
    claim_one,
    contents,
    expire,
    fail,
    fields_of,
    known,
    publish,
    put_and_claim,
    store_time,
)

ADA: dict[str, Any] = {"who": "ada", "why": "a test"}


async def listed(box: Box, **filters: Any) -> list[str]:
    """The ids that a listing tells, in its order."""
    return [record.event_id async for record in box.list(**filters)]


async def paged(box: Box, limit: int, **filters: Any) -> list[list[str]]:
    """The ids of a listing, page by page."""
    pages, cursor = [], None
    while True:
        page = await box.page(limit=limit, cursor=cursor, **filters)
        pages.append([record.event_id for record in page.records])
        cursor = page.cursor
        if cursor is None:
            return pages


def named(*names: str, **fields: Any) -> list[Event]:
    return [Event("n", event_id=name, **fields) for name in names]


# --- RO-1: get and list ------------------------------------------------------------------------------------------


@pytest.mark.req("RO-1")
async def test_an_unknown_id_is_none(box: Box):
    await box.put(Event("n", event_id="one"))
    assert await box.get("two") is None
    assert await box.get("") is None
    assert await box.get("one:b") is None


async def one_in_each_state(box: Box) -> None:
    await publish(box, *named("published"))
    await bury(box, *named("dead"))
    await put_and_claim(box, Event("n", event_id="claimed"), lease=60)
    await box.put_many([*named("first", "second", ordering_key="o"), *named("pending"), *named("later", delay=60)])


@pytest.mark.req("RO-1", "SC-6")
async def test_list_by_state(box: Box):
    await one_in_each_state(box)
    assert await listed(box, state="PENDING") == ["first", "pending", "later", "second"]
    assert await listed(box, state=State.CLAIMED) == ["claimed"]
    assert await listed(box, state="published") == ["published"]
    assert await listed(box, state=State.DEAD) == ["dead"]
    assert await listed(box) == ["first", "pending", "later", "second", "claimed", "published", "dead"]
    assert [(record.event_id, record.state, record.phase) async for record in box.list()] == [
        ("first", "PENDING", "AVAILABLE"),
        ("pending", "PENDING", "AVAILABLE"),
        ("later", "PENDING", "SCHEDULED"),
        ("second", "PENDING", "AVAILABLE"),
        ("claimed", "CLAIMED", "IN_FLIGHT"),
        ("published", "PUBLISHED", "COMPLETED"),
        ("dead", "DEAD", "DEAD"),
    ]
    with pytest.raises(UsageError, match="state"):
        await listed(box, state="GONE")


@pytest.mark.req("RO-1")
async def test_a_listing_tells_the_same_as_get(box: Box):
    await one_in_each_state(box)
    async for record in box.list():
        assert await box.get(record.event_id) == record


@pytest.mark.req("RO-1")
async def test_a_listing_is_in_order_of_time(box: Box):
    await box.put_many([*named("c", delay=30), *named("a", delay=10), *named("d", delay=40), *named("b", delay=20)])
    assert await listed(box, state="PENDING") == ["a", "b", "c", "d"]


TYPES = ["user.created", "user.created.v2", "userXcreated", "xuser.created", "user.", "user.%d", "a[b]c", "abc", "a-b",
         "aab", "(x)", "x", "^x$", "a+", "größe"]  # fmt: skip
GLOBS = {
    "user.created": {"user.created"},
    "user.*": {"user.created", "user.created.v2", "user.", "user.%d"},
    "*.created": {"user.created", "xuser.created"},
    "*user*": {"user.created", "user.created.v2", "userXcreated", "xuser.created", "user.", "user.%d"},
    "*": {*TYPES},
    "user?created": {"user.created", "userXcreated"},
    "user.%d": {"user.%d"},
    "a[b]c": {"a[b]c"},
    "a-b": {"a-b"},
    "a?b": {"a-b", "aab"},
    "(x)": {"(x)"},
    "^x$": {"^x$"},
    "a+": {"a+"},
    "gr*e": {"größe"},
    "größe": {"größe"},
    "user": set(),
    "USER.*": set(),
    "?": {"x"},
}


@pytest.mark.req("RO-1")
async def test_list_by_type(box: Box):
    await box.put_many([Event(event_type) for event_type in TYPES])
    for glob, wanted in GLOBS.items():
        assert {record.event.event_type async for record in box.list(event_type=glob)} == wanted, glob
    for nothing in ({"event_type": ""}, {"key": ""}, {"error": ""}, {"error": "x" * 256}):
        with pytest.raises(UsageError, match=next(iter(nothing))):
            await listed(box, **nothing)


@pytest.mark.req("RO-1")
async def test_a_question_mark_is_one_character_not_one_byte(box: Box):
    await box.put(Event("größe", event_id="a"))
    assert await listed(box, event_type="gr??e") == ["a"]
    assert await listed(box, event_type="gr????e") == []


@pytest.mark.req("RO-1")
async def test_list_by_ordering_or_unique_key(box: Box):
    await box.put_many([
        Event("n", event_id="a", ordering_key="k"), Event("n", event_id="b", unique_key="k"),
        Event("n", event_id="c", ordering_key="k"), Event("n", event_id="d", ordering_key="kk"),
        Event("n", event_id="e", partition_key="k"), Event("n", event_id="f"),
    ])  # fmt: skip
    assert await listed(box, key="k") == ["a", "b", "c"]
    assert await listed(box, key="kk") == ["d"]
    assert await listed(box, key="%") == []


@pytest.mark.req("RO-1")
async def test_list_by_error_text(box: Box):
    await bury(box, *named("a"), reason="Connect TimeOut")
    await bury(box, *named("b"), reason="got [503]. 50% lost: e")
    await box.put(Event("n", event_id="c"))
    for error, wanted in (("timeout", ["a"]), ("TIMEOUT", ["a"]), ("50%", ["b"]), ("[503]", ["b"]), (".", ["b"]),
                          ("nothing", []), ("e", ["a", "b"]), ("(", [])):  # fmt: skip
        assert await listed(box, error=error) == wanted, error
        assert await listed(box, error=error, state="DEAD") == wanted, error


@pytest.mark.req("RO-1")
async def test_list_by_error_text_beyond_ascii(box: Box):
    await bury(box, *named("a"), reason="Übertragung gescheitert")
    assert await listed(box, error="gescheitert") == ["a"]
    assert await listed(box, error="Übertragung") == ["a"]


@pytest.mark.req("RO-1")
async def test_list_by_time(box: Box):
    """The bounds belong to the range; each state is asked by its own time."""
    await publish(box, *named("p1"))
    await bury(box, *named("d1"))
    await advance(box, hours=1)
    await publish(box, *named("p2"))
    await bury(box, *named("d2"))
    await advance(box, hours=1)
    await publish(box, *named("p3"))
    middle = await known(box, "p2")
    assert middle.published_at is not None
    step = timedelta(milliseconds=1)

    async def published(**filters: Any) -> list[str]:
        return await listed(box, state="PUBLISHED", **filters)

    moment = middle.published_at
    assert await published(since=moment) == ["p2", "p3"]
    assert await published(since=moment + step) == ["p3"]
    assert await published(until=moment) == ["p1", "p2"]
    assert await published(until=moment - step) == ["p1"]
    assert await published(since=moment, until=moment) == ["p2"]
    assert await published(since=moment + step, until=moment) == []
    assert await published(since=moment - timedelta(days=1), until=moment + timedelta(days=1)) == ["p1", "p2", "p3"]
    assert await listed(box, since=moment - timedelta(minutes=5), until=moment + timedelta(minutes=5)) == ["p2", "d2"]
    now = await store_time(box)
    await box.put_many([*named("s1", delay=60), *named("s2", delay=600)])
    assert await listed(box, state="PENDING", since=now + timedelta(seconds=300)) == ["s2"]
    assert await listed(box, state="PENDING", until=now + timedelta(seconds=300)) == ["s1"]
    with pytest.raises(UsageError, match="since"):
        await listed(box, since=datetime(2030, 1, 1))  # noqa: DTZ001, RUF100  # naive on purpose
    with pytest.raises(UsageError, match="until"):
        await listed(box, until="yesterday")


@pytest.mark.req("RO-1")
async def test_filters_narrow_each_other(box: Box):
    await bury(box, Event("a", event_id="1", ordering_key="k"), Event("b", event_id="2", unique_key="k"), reason="503")
    await bury(box, Event("a", event_id="3", ordering_key="l"), reason="503")
    await bury(box, Event("a", event_id="4", unique_key="k"), reason="422")
    await box.put(Event("a", event_id="5", unique_key="k"))
    assert await listed(box, state="DEAD", event_type="a", key="k", error="503") == ["1"]
    assert await listed(box, event_type="a", key="k") == ["5", "1", "4"]
    assert await listed(box, state="DEAD", key="k") == ["1", "2", "4"]


# --- RO-1: pages -------------------------------------------------------------------------------------------------


@pytest.mark.req("RO-1")
@pytest.mark.parametrize("limit", [1, 3, 4, 12, 13])
async def test_pages_of_events_that_share_a_score(box: Box, limit: int):
    ids = [f"e{n:02}" for n in range(12)]
    await box.put_many(named(*ids))
    pages = await paged(box, limit, state="PENDING")
    assert [event_id for page in pages for event_id in page] == ids
    assert all(len(page) == limit for page in pages[:-1])
    assert await paged(box, limit, state="DEAD") == [[]]


@pytest.mark.req("RO-1")
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_pages_go_over_all_states(box: Box, limit: int):
    await one_in_each_state(box)
    pages = await paged(box, limit)
    assert [event_id for page in pages for event_id in page] == [
        "first", "pending", "later", "second", "claimed", "published", "dead",
    ]  # fmt: skip
    assert all(len(page) == limit for page in pages[:-1])


@pytest.mark.req("RO-1")
@pytest.mark.parametrize("look", [1, 3, 1000])
async def test_pages_are_filled_although_a_filter_leaves_much_out(box: Box, monkeypatch: pytest.MonkeyPatch, look: int):
    monkeypatch.setattr(bulk, "PAGE_LOOK", look)  # so many are looked at in one step
    await box.put_many([Event("a" if n % 5 == 0 else "b", event_id=f"e{n:02}") for n in range(22)])
    await box.operate.kill([f"e{n:02}" for n in range(22)], **ADA)
    assert await paged(box, 2, event_type="a", state="DEAD") == [["e00", "e05"], ["e10", "e15"], ["e20"]]
    assert await listed(box, event_type="a", limit=3) == ["e00", "e05", "e10"]
    assert (await box.replay(event_type="a")).replayed == 5


@pytest.mark.req("RO-1")
async def test_the_last_page_says_so(box: Box):
    await bury(box, *named("a", "b", "c"))
    assert await paged(box, 3, state="DEAD") == [["a", "b", "c"]]
    assert await paged(box, 2, state="DEAD") == [["a", "b"], ["c"]]
    assert await paged(box, 3) == [["a", "b", "c"]]


@pytest.mark.req("RO-1")
async def test_a_listing_may_be_limited(box: Box):
    await box.put_many(named("a", "b", "c"))
    assert await listed(box, limit=2) == ["a", "b"]
    assert await listed(box, limit=3) == ["a", "b", "c"]
    assert await listed(box, limit=4) == ["a", "b", "c"]
    assert await listed(box, limit=0) == []
    with pytest.raises(UsageError, match="limit"):
        await box.page(limit=0)


@pytest.mark.req("RO-1")
async def test_cursors_hold_while_events_come_and_go(box: Box):
    await box.put_many(named(*(f"e{n:02}" for n in range(10))))
    await box.operate.kill([f"e{n:02}" for n in range(10)], **ADA)
    page = await box.page(state="DEAD", limit=4)
    assert [record.event_id for record in page.records] == ["e00", "e01", "e02", "e03"]
    await box.operate.drop(["e00", "e03", "e05"], **ADA)  # before, at and after the cursor
    await box.replay(["e01", "e08"])
    await advance(box, seconds=-10)  # time is moved back and forth, so that a new one stands before all others
    await bury(box, *named("a-new-one"))
    await advance(box, seconds=10)
    following = await box.page(state="DEAD", limit=100, cursor=page.cursor)
    assert [record.event_id for record in following.records] == ["e04", "e06", "e07", "e09"]
    assert following.cursor is None


@pytest.mark.req("RO-1")
async def test_a_cursor_goes_on_into_the_next_index(box: Box):
    await one_in_each_state(box)
    page = await box.page(state="PENDING", limit=3)
    assert [record.event_id for record in page.records] == ["first", "pending", "later"]
    page = await box.page(state="PENDING", limit=3, cursor=page.cursor)
    assert ([record.event_id for record in page.records], page.cursor) == (["second"], None)


@pytest.mark.req("RO-1")
async def test_ids_with_colons_page_too(box: Box):
    ids = ["a:1:x", "a:2:x", "a:3:x"]
    await box.put_many(named(*ids))
    assert await paged(box, 1, state="PENDING") == [["a:1:x"], ["a:2:x"], ["a:3:x"], []]


@pytest.mark.req("RO-1")
async def test_a_cursor_of_another_listing_is_refused(box: Box):
    await one_in_each_state(box)
    cursor = (await box.page(limit=1, state="PENDING")).cursor
    for wrong, state in ((cursor, "DEAD"), ("nonsense", None), ("dead:abc:e", "DEAD"), ("pending", "DEAD")):
        with pytest.raises(UsageError, match="cursor"):
            await box.page(cursor=wrong, state=state)


@pytest.mark.req("RO-1")
async def test_listing_is_bounded_in_bytes_and_still_complete(box: Box, monkeypatch: pytest.MonkeyPatch):
    ids = [f"e{n}" for n in range(7)]
    await box.put_many(named(*ids, payload=b"x" * 1000))
    asked = []
    send = box._store.page

    async def counting(*arguments: Any) -> Any:
        reply = await send(*arguments)
        asked.append(len(reply) - 4)
        return reply

    monkeypatch.setattr(box._store, "page", counting)
    for size, counts in ((2500, [2, 2, 2, 1]), (1, [1] * 7), (10_000, [7])):
        monkeypatch.setattr(bulk, "STEP_BYTES", size)
        asked.clear()
        assert [record.event_id for record in (await box.page(limit=7, state="PENDING")).records] == ids
        assert asked == counts


@pytest.mark.req("RO-1")
@pytest.mark.parametrize(
    "filters", [{"event_type": "*?" + "a" * 127 + "b"}, {"error": "a" * 127 + "b"}], ids=["event_type", "error"]
)
async def test_a_listing_by_a_hostile_filter_is_made_in_short_steps_and_still_complete(
    box: Box, monkeypatch: pytest.MonkeyPatch, filters: dict[str, Any]
):
    """A step ends when its work is done, not only when it has looked at so many events."""
    wanted = "a" * 128 + "b"
    await bury(box, *(Event("a" * 255, event_id=f"e{n:02}") for n in range(20)), reason="a" * 2000)
    await advance(box, seconds=1)
    await bury(box, Event(wanted, event_id="wanted"), reason=wanted)
    asked = []
    send = box._store.page

    async def counting(*arguments: Any) -> Any:
        asked.append(arguments)
        return await send(*arguments)

    monkeypatch.setattr(box._store, "page", counting)
    monkeypatch.setattr(bulk, "PAGE_LOOK", 40)
    assert [record.event_id for record in (await box.page(state="DEAD", **filters)).records] == ["wanted"]
    assert len(asked) > 2
    assert (await box.replay(**filters)).replayed == 1


# --- RO-2: replay ------------------------------------------------------------------------------------------------


@pytest.mark.req("RO-2")
@pytest.mark.parametrize("make", [publish, bury])
async def test_replay_one(box: Box, make: Callable[..., Any]):
    (event_id,) = await make(box, Event("n", {"a": 1}))
    before = await store_time(box)
    report = await box.replay([event_id])
    assert (report.matched, report.replayed, report.refused, report.dry_run) == (1, 1, [], False)
    record = await known(box, event_id)
    assert (record.state, record.phase, record.attempts, record.excused) == (State.PENDING, Phase.AVAILABLE, 1, 1)
    assert (record.last_error, record.published_at, record.died_at, record.published_by) == (None, None, None, None)
    assert before <= record.available_at <= await store_time(box)
    assert record.available_at == record.history[-1].at
    claim = await claim_one(box, attempts=1)
    assert (claim.event_id, claim.attempts, claim.exhausted, claim.event.payload) == (event_id, 2, False, b'{"a":1}')
    assert (claim.excused, claim.failures) == (1, 0)  # the limit starts anew
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_a_replay_may_keep_attempts_and_last_error(box: Box):
    claim = await put_and_claim(box)
    await box.release(claim)
    await fail(box, await claim_one(box), error="503")
    await box.kill(await claim_one(box), reason="422")
    await box.replay([claim.event_id], reset=False)
    record = await known(box, claim.event_id)
    assert (record.state, record.attempts, record.excused, record.last_error) == (State.PENDING, 3, 1, "422")
    assert (await claim_one(box, attempts=2)).exhausted
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2", "EM-10", "MQ-1")
async def test_attempts_go_on_growing_over_replays_and_none_before_the_replay_counts(box: Box):
    claim = await put_and_claim(box, Event("n", event_id="one"))
    await fail(box, claim, error="503")
    await box.kill(await claim_one(box), reason="422")
    await box.replay(["one"], delay=60)
    record = await known(box, "one")
    assert (record.phase, record.attempts, record.excused, record.last_error) == (Phase.SCHEDULED, 2, 2, None)
    assert (await box.stats()).phases[Phase.SCHEDULED] == 1
    await advance(box, minutes=2)
    for failures, attempts in enumerate((3, 4)):
        claim = await claim_one(box, attempts=2)
        assert (claim.attempts, claim.excused, claim.failures, claim.exhausted) == (attempts, 2, failures, False)
        await fail(box, claim, error="503")
        await box.operate.reschedule(["one"], delay=60, **ADA)
        assert (await known(box, "one")).phase is Phase.RETRY_SCHEDULED
        assert (await box.stats()).phases[Phase.RETRY_SCHEDULED] == 1
        await advance(box, minutes=2)
    assert (await claim_one(box, attempts=2)).exhausted
    await box.operate.kill(["one"], **ADA)
    await box.replay(["one"], reset=False, delay=60)
    record = await known(box, "one")
    assert (record.phase, record.attempts, record.excused) == (Phase.RETRY_SCHEDULED, 4, 2)
    assert await check_invariants(box) == []
    await advance(box, minutes=2)
    assert (await claim_one(box, attempts=2)).exhausted


@pytest.mark.req("RO-2", "OP-1", "MQ-1")
async def test_a_replayed_event_is_as_new_when_it_becomes_the_head_of_its_line(box: Box):
    ids = await bury(box, Event("n", event_id="one", ordering_key="o"))
    await box.put(Event("n", event_id="head", ordering_key="o"))
    await box.replay(ids, delay=3600)
    await box.operate.kill(["head"], **ADA)
    assert (await known(box, "one")).phase is Phase.SCHEDULED
    assert (await box.stats()).phases[Phase.SCHEDULED] == 1
    await box.operate.reschedule(["one"], delay=60, **ADA)
    assert (await known(box, "one")).phase is Phase.SCHEDULED
    assert (await box.stats()).phases[Phase.SCHEDULED] == 1
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_a_replay_starts_anew_with_its_expiries(box: Box):
    """A suspect that died is no suspect when it comes back."""
    await put_and_claim(box, Event("n", event_id="one"))
    await expire(box)
    await claim_one(box)
    await expire(box)
    assert (await claim_one(box)).suspect
    await box.operate.kill(["one"], **ADA)
    assert (await known(box, "one")).expiries == 0
    await box.replay(["one"], reset=False)
    record = await known(box, "one")
    assert (record.suspect, record.expiries) == (False, 0)
    assert not (await claim_one(box)).suspect
    assert await check_invariants(box) == []


@pytest.mark.req("RF-3", "PL-8")
async def test_a_replay_clears_the_marks_of_the_last_claim(box: Box):
    """It died exhausted, and was claimed by itself: neither may be held against its next attempt."""
    await box.put(Event("n", event_id="a"))
    for _ in range(2):
        (claim,) = await box.claim("relay", attempts=1)
        if not claim.exhausted:
            await fail(box, claim)
    assert claim.exhausted
    await box.kill(claim)
    await box.replay(["a"])
    assert not {"alone", "exhausted"} & (await fields_of(box, "a")).keys()
    (claim,) = await box.claim("relay", attempts=1, holding=1)
    await fail(box, claim, excuse=True)
    (claim,) = await box.claim("relay", attempts=1, holding=1, lease=1)
    assert not claim.exhausted
    await advance(box, seconds=2)
    assert await box.reap() == ["a"]  # in company, so that it is excused
    (claim,) = await box.claim("relay", attempts=1, holding=1)
    assert not claim.exhausted


@pytest.mark.req("RO-2")
async def test_a_replay_may_be_delayed(box: Box):
    ids = await bury(box, *named("a", "b"))
    await box.replay(ids, delay=timedelta(minutes=1))
    for event_id in ids:
        record = await known(box, event_id)
        assert (record.available_at - record.history[-1].at, record.phase) == (timedelta(minutes=1), Phase.SCHEDULED)
    assert await box.claim("relay-1") == []
    await advance(box, minutes=1)
    assert len(await box.claim("relay-1")) == 2
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_replay_many_by_filter(box: Box):
    await bury(box, Event("user.a", event_id="1", ordering_key="k"), Event("user.b", event_id="2"), reason="503")
    await bury(box, Event("order.a", event_id="3"), reason="503")
    await bury(box, Event("user.c", event_id="4"), reason="422")
    await publish(box, Event("user.p", event_id="5"))
    report = await box.replay(event_type="user.*", error="503")
    assert (report.matched, report.replayed, report.refused) == (2, 2, [])
    assert await listed(box, state="PENDING") == ["1", "2"]
    assert await listed(box, state="DEAD") == ["3", "4"]
    report = await box.replay(state="PUBLISHED", event_type="user.*")
    assert report.replayed == 1
    assert await listed(box, state="PENDING") == ["1", "2", "5"]
    assert (await box.replay(key="k")).matched == 0
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_replay_by_time(box: Box):
    for name in "abc":
        await bury(box, *named(name))
        await advance(box, hours=1)
    died_at = (await known(box, "b")).died_at
    assert (await box.replay(since=died_at, until=died_at)).replayed == 1
    assert await listed(box, state="DEAD") == ["a", "c"]
    assert (await box.replay(until=died_at)).replayed == 1
    assert await listed(box, state="DEAD") == ["c"]


@pytest.mark.req("RO-2")
@pytest.mark.parametrize(("make", "state"), [(publish, "PUBLISHED"), (bury, "DEAD")])
async def test_replay_all_in_bounded_steps(
    box: Box, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any], state: str
):
    monkeypatch.setattr(bulk, "BATCH_COUNT", 3)
    ids = await make(box, *named(*(f"e{n}" for n in range(8))))
    told: list[int] = []
    report = await box.replay(state=state, progress=told.append)
    assert (report.matched, report.replayed) == (8, 8)
    assert told[-1] == 8
    assert told == sorted(told)
    assert await listed(box, state="PENDING") == ids
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_a_dry_run_replays_nothing(box: Box):
    await bury(box, *named("a", "b"))
    before = await contents(box)
    report = await box.replay(state="DEAD", dry_run=True, **ADA)
    assert (report.matched, report.replayed, report.refused, report.dry_run) == (2, 0, [], True)
    assert await contents(box) == before
    await box.put(Event("n", event_id="p"))
    before = await contents(box)
    report = await box.replay(["a", "p", "unknown", "a"], dry_run=True)
    assert (report.matched, report.replayed) == (4, 0)
    assert [refusal[:2] for refusal in report.refused] == [
        ("p", Outcome.NOTTERMINAL), ("unknown", Outcome.UNKNOWN), ("a", Outcome.NOTTERMINAL),
    ]  # fmt: skip
    assert await contents(box) == before


@pytest.mark.req("RO-2")
async def test_replays_that_cannot_be_are_told(box: Box):
    await one_in_each_state(box)
    before = await contents(box)
    report = await box.replay(["claimed", "unknown", "pending", "second"])
    assert (report.matched, report.replayed) == (4, 0)
    assert report.refused == [
        ("claimed", Outcome.NOTTERMINAL, "CLAIMED"),
        ("unknown", Outcome.UNKNOWN, ""),
        ("pending", Outcome.NOTTERMINAL, "PENDING"),
        ("second", Outcome.NOTTERMINAL, "PENDING"),
    ]
    after, log = await contents(box), keys.log(box.name)
    assert {**after, log: None} == {**before, log: None}
    report = await box.replay(["dead", "claimed", "published", "dead"])
    assert (report.replayed, [refusal[:2] for refusal in report.refused]) == (
        2, [("claimed", Outcome.NOTTERMINAL), ("dead", Outcome.NOTTERMINAL)],
    )  # fmt: skip
    assert (await box.stats()).totals["replayed"] == 2
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_replays_that_say_nothing_or_too_much_are_refused(box: Box):
    wrong: list[dict[str, Any]] = [
        {}, {"ids": ["a"], "state": "DEAD"}, {"state": "PENDING"}, {"state": "CLAIMED"}, {"ids": "one-id"},
        {"ids": ["a"], "rate": 0}, {"ids": ["a"], "rate": -1}, {"state": "nonsense"}, {"ids": ["a"], "delay": -1},
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(UsageError):
            await box.replay(**arguments)
    assert (await box.replay([])).matched == 0


@pytest.mark.req("RO-2")
async def test_a_rate_spreads_a_replay_over_time(box: Box):
    ids = await bury(box, *named("a", "b", "c", "d"))
    started = time.monotonic()
    report = await box.replay(ids, rate=10)  # two at a time, 0.2 s apart
    took = time.monotonic() - started
    assert report.replayed == 4
    assert 0.15 < took < 2
    moments = [(await known(box, event_id)).available_at for event_id in ids]
    assert moments[0] == moments[1] < moments[2] == moments[3]


@pytest.mark.req("RO-2")
async def test_a_dry_run_does_not_wait_for_its_rate(box: Box):
    ids = await bury(box, *named("a", "b", "c"))
    started = time.monotonic()
    assert (await box.replay(ids, rate=2, dry_run=True)).matched == 3
    assert time.monotonic() - started < 0.4


@pytest.mark.req("RO-2")
async def test_a_replay_ends_with_what_was_there_when_it_started(box: Box):
    """What dies after the start, here ten seconds in the future of the store, is left for the next replay."""
    await bury(box, *named("after"))
    await advance(box, seconds=-10)
    await bury(box, *named("before"))
    report = await box.replay(state="DEAD")
    assert (report.matched, report.replayed) == (1, 1)
    report = await box.replay(state="DEAD", until=await store_time(box) + timedelta(hours=1))
    assert report.matched == 0
    assert await listed(box, state="DEAD") == ["after"]
    assert (await box.replay(["after"])).replayed == 1


@pytest.mark.req("RO-2")
async def test_a_replay_beside_relays_that_kill_at_once_ends(box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk, "BATCH_COUNT", 2)
    await bury(box, *named(*(f"e{n}" for n in range(6))))
    await advance(box, seconds=1)
    send, killed = box._store.replay, 0

    async def replay_and_die(*arguments: Any, **options: Any) -> Any:
        nonlocal killed
        replies = await send(*arguments, **options)
        killed += len(await box.kill(await box.claim("relay-1")))
        assert killed < 100, "the replay never ends"
        return replies

    monkeypatch.setattr(box._store, "replay", replay_and_die)
    assert (await box.replay(state="DEAD")).replayed == 6
    assert killed == 6


@pytest.mark.req("RO-2")
async def test_what_dies_again_in_the_millisecond_of_the_start_is_not_replayed_again(
    box: Box, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bulk, "BATCH_COUNT", 2)
    await bury(box, *named(*(f"e{n}" for n in range(6))))
    await advance(box, seconds=1)
    send, start, killed = box._store.replay, await box._store.time(), 0

    async def replay_and_die(*arguments: Any, **options: Any) -> Any:
        nonlocal killed
        replies = await send(*arguments, **options)
        claims = await box.claim("relay-1")
        killed += len(await box.kill(claims))
        assert killed < 100, "the replay never ends"
        await box._store.exchange([("ZADD", keys.dead(box.name), start, claim.event_id) for claim in claims])
        return replies

    monkeypatch.setattr(box._store, "replay", replay_and_die)
    assert (await box.replay(state="DEAD")).replayed == 6
    assert killed == 6


@pytest.mark.req("RO-2")
async def test_what_died_just_before_a_replay_is_replayed(box: Box):
    for turn in range(5):
        await bury(box, *named(f"e{turn}"))
        assert (await box.replay(state="DEAD", delay=3600)).replayed == 1


@pytest.mark.req("RO-2")
async def test_a_replay_respects_the_line(box: Box):
    await bury(box, *named("old", ordering_key="o"))
    await box.put_many(named("head", "next", ordering_key="o"))
    await box.replay(["old"])
    seen = []
    while claims := await box.claim("relay-1"):
        seen += [claim.event_id for claim in claims]
        await box.ack(claims)
    assert seen == ["head", "next", "old"]


# --- RO-3: by hand -----------------------------------------------------------------------------------------------


@pytest.mark.req("RO-3")
async def test_reschedule(box: Box):
    await box.put_many([*named("a"), *named("b", delay=3600)])
    assert await box.operate.reschedule(["a"], delay=60, **ADA) == [Outcome.OK]
    (entry,) = await box.operate.log()
    record = await known(box, "a")
    assert timedelta(0) <= entry.at - (record.available_at - timedelta(seconds=60)) < timedelta(milliseconds=50)
    assert await box.claim("relay-1") == []
    assert await box.operate.reschedule(["b"], **ADA) == [Outcome.OK]
    assert (await claim_one(box)).event_id == "b"
    moment = await store_time(box) + timedelta(minutes=5)
    assert await box.operate.reschedule(["a"], available_at=moment, **ADA) == [Outcome.OK]
    assert (await known(box, "a")).available_at == moment
    before = await store_time(box)
    assert await box.operate.reschedule(["a"], available_at=datetime(2001, 1, 1, tzinfo=UTC), **ADA) == [Outcome.OK]
    assert before <= (await known(box, "a")).available_at <= await store_time(box)
    assert (await claim_one(box)).event_id == "a"
    with pytest.raises(UsageError, match="not both"):
        await box.operate.reschedule(["a"], delay=1, available_at=moment, **ADA)
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_an_action_on_many_events_is_made_in_steps_and_all_of_it_is_recorded(box: Box):
    ids = [f"e{n:03}" for n in range(250)]
    await box.put_many(named(*ids))
    assert await box.operate.kill([*ids, "unknown"], **ADA) == [Outcome.OK] * 250 + [Outcome.UNKNOWN]
    entries = await box.operate.log()
    assert [entry.count for entry in entries] == [50, 100, 100]
    assert {entry.action for entry in entries} == {"kill"}
    assert (await box.replay(ids)).replayed == 250
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_a_long_log_is_read_in_steps_newest_first(box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_module, "LOG_COUNT", 3)
    for n in range(10):
        await box._store.write_log("patch", who="ada", why=str(n), count=1)
    for limit in (1, 3, 5, 9, 10, 100):
        assert [entry.why for entry in await box.operate.log(limit)] == [str(n) for n in range(9, -1, -1)][:limit]


@pytest.mark.req("RO-3")
async def test_reschedule_wherever_it_is_pending(box: Box):
    """After a failure, as a suspect, and behind the head of a line."""
    await box.retry(await put_and_claim(box, Event("n", event_id="retried")), error="503", delay=60)
    await put_and_claim(box, Event("n", event_id="suspect"))
    await box._store.exchange([("HSET", keys.event(box.name, "suspect"), "expiries", "1"),
                               ("ZADD", keys.claimed(box.name), 1, "suspect")])  # fmt: skip
    await box.reap()
    await box.put_many(named("head", "waiting", ordering_key="o"))
    ids = ["retried", "suspect", "waiting", "head"]
    assert await box.operate.reschedule(ids, delay=600, **ADA) == [Outcome.OK] * 4
    assert await check_invariants(box) == []
    for event_id in ids:
        record = await known(box, event_id)
        assert record.available_at > await store_time(box) + timedelta(seconds=500)
    stats = await box.stats()
    assert (stats.phases[Phase.RETRY_SCHEDULED], stats.phases[Phase.SCHEDULED], stats.waiting) == (2, 2, 1)
    assert await box.operate.reschedule(ids, **ADA) == [Outcome.OK] * 4
    assert (await box.stats()).phases[Phase.AVAILABLE] == 4
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_only_pending_events_are_rescheduled(box: Box):
    await one_in_each_state(box)
    before = await contents(box)
    outcomes = await box.operate.reschedule(["claimed", "published", "dead", "unknown"], delay=60, **ADA)
    assert outcomes == [Outcome.NOTPENDING, Outcome.NOTPENDING, Outcome.NOTPENDING, Outcome.UNKNOWN]
    after, log = await contents(box), keys.log(box.name)
    assert {**after, log: None} == {**before, log: None}


@pytest.mark.req("RO-3", "PL-6")
async def test_kill(box: Box):
    await one_in_each_state(box)
    outcomes = await box.operate.kill(
        ["pending", "claimed", "second", "later", "published", "dead", "unknown", "pending"], who="ada", why="poison"
    )
    assert outcomes == [Outcome.OK] * 4 + [Outcome.NOTLIVE, Outcome.NOTLIVE, Outcome.UNKNOWN, Outcome.NOTLIVE]
    before = await store_time(box)
    for event_id, attempts in (("pending", 0), ("claimed", 1), ("second", 0), ("later", 0)):
        record = await known(box, event_id)
        assert (record.state, record.attempts, record.last_error) == (State.DEAD, attempts, "killed by ada: poison")
        assert record.died_at is not None
        assert record.died_at <= before
        assert [(attempt.outcome, attempt.by, attempt.number) for attempt in record.history] == [
            ("died", "ada", record.number)
        ]
    assert (await box.stats()).totals["dead"] == 5
    assert [claim.event_id for claim in await box.claim("relay-1")] == ["first"]
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3", "PL-6")
@pytest.mark.parametrize("action", ["kill", "release"])
async def test_a_relay_is_fenced_from_what_an_operator_took_away(box: Box, action: str):
    claim = await put_and_claim(box, Event("n", event_id="one"))
    assert await getattr(box.operate, action)(["one"], **ADA) == [Outcome.OK]
    before = await contents(box)
    for settle in (box.ack, box.retry, box.kill, box.release, box.renew):
        assert await settle(claim) == [False]
    after, totals = await contents(box), keys.counters(box.name)
    assert {**after, totals: None} == {**before, totals: None}
    if action == "kill":
        assert (await known(box, "one")).number > claim.number
        await box.replay(["one"])
    again = await claim_one(box)
    assert again.number > claim.number
    assert await box.ack(claim) == [False]
    assert await box.ack(again) == [True]
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_every_kill_has_a_number_of_its_own(box: Box):
    await box.put_many(named("a", "b"))
    await box.operate.kill(["a", "b"], **ADA)
    assert [(await known(box, event_id)).number for event_id in "ab"] == [1, 2]
    await box.put(Event("n"))
    assert (await claim_one(box)).number == 3


@pytest.mark.req("RO-3")
async def test_release(box: Box):
    await one_in_each_state(box)
    outcomes = await box.operate.release(
        ["claimed", "pending", "published", "dead", "unknown", "claimed"], who="ada", why="stuck"
    )
    assert outcomes == [Outcome.OK, Outcome.NOTCLAIMED, Outcome.NOTCLAIMED, Outcome.NOTCLAIMED, Outcome.UNKNOWN,
                        Outcome.NOTCLAIMED]  # fmt: skip
    record = await known(box, "claimed")
    assert (record.state, record.attempts, record.excused, record.claimed_by) == (State.PENDING, 1, 1, None)
    assert record.available_at == record.created_at
    attempt = record.history[-1]
    assert (attempt.outcome, attempt.by, attempt.error) == ("released", "ada", "stuck")
    assert (await box.stats()).totals["released"] == 1
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_release_for_later(box: Box):
    claim = await put_and_claim(box)
    assert await box.operate.release([claim.event_id], delay=60, **ADA) == [Outcome.OK]
    record = await known(box, claim.event_id)
    assert record.available_at - record.history[-1].at == timedelta(seconds=60)
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_drop(box: Box):
    await one_in_each_state(box)
    outcomes = await box.operate.drop(["dead", "published", "claimed", "pending", "unknown", "dead"], **ADA)
    assert outcomes == [Outcome.OK, Outcome.OK, Outcome.NOTTERMINAL, Outcome.NOTTERMINAL, Outcome.UNKNOWN,
                        Outcome.UNKNOWN]  # fmt: skip
    assert await box.get("dead") is None
    assert await box.get("published") is None
    assert not [key for key in await contents(box) if key.endswith((":dead", ":published"))]
    totals = (await box.stats()).totals
    assert (totals["dropped"], totals.get("swept", 0)) == (2, 0)
    assert (await box.put(Event("new", event_id="dead"))).created
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_a_drop_may_be_fenced_by_the_claim_number_that_was_seen(box: Box):
    """Whoever copies events away and then removes them must not remove what was replayed meanwhile."""
    await bury(box, *named("same", "changed"))
    seen = {event_id: (await known(box, event_id)).number for event_id in ("same", "changed")}
    await box.replay(["changed"])
    await box.kill(await claim_one(box))
    before = await contents(box)
    items = [("changed", seen["changed"]), ("same", seen["same"] + 100), ("unknown", 1)]
    assert await box._store.drop(items, who="", why="") == [b"CHANGED", b"CHANGED", b"UNKNOWN"]
    assert await contents(box) == before
    assert await box._store.drop([("same", seen["same"])], who="", why="") == [b"OK"]
    assert await listed(box) == ["changed"]
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_a_drop_may_leave_what_blocks_its_line(box: Box):
    await box.operate.configure(dead_head="block", **ADA)
    await bury(box, Event("n", event_id="head", ordering_key="k"))
    await bury(box, Event("n", event_id="free"))
    await box.put(Event("n", event_id="behind", ordering_key="k"))
    items = [("head", ""), ("free", "")]
    assert await box._store.drop(items, who="", why="", heads=False) == [b"BLOCKING", b"OK"]
    assert sorted(await listed(box)) == ["behind", "head"]
    assert await box._store.drop([("head", "")], who="", why="") == [b"OK"]
    assert (await claim_one(box)).event_id == "behind"
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2")
async def test_a_replay_may_be_fenced_by_the_claim_number_that_was_seen(box: Box):
    await publish(box, *named("same", "changed"))
    seen = {event_id: (await known(box, event_id)).number for event_id in ("same", "changed")}
    await box.replay(["changed"])
    await box.ack(await claim_one(box))
    options: Any = {"reset": True, "available": "", "force": False, "dry": False, "who": "", "why": ""}
    items = [("changed", seen["changed"]), ("same", seen["same"]), ("unknown", 1)]
    now = str((await known(box, "changed")).number).encode()
    assert await box._store.replay(items, **options) == [[b"CHANGED", now], [b"OK"], [b"UNKNOWN"]]
    assert (await known(box, "changed")).state == "PUBLISHED"
    assert (await known(box, "same")).state == "PENDING"
    assert await check_invariants(box) == []


@pytest.mark.req("MQ-5")
async def test_a_box_may_be_set_to_sweep_only_what_is_archived(box: Box):
    await publish(box, *named("archived", "not"))
    number = (await known(box, "archived")).number
    assert await box._store.mark_event("archived", [("archived", number, "run-1")]) == [b"OK"]
    await box.operate.configure(sweep="archived", **ADA)
    assert (await box.sweep(keep_published=0)).published == 1
    assert await listed(box) == ["not"]
    await box.operate.configure(sweep="all", **ADA)
    assert (await box.sweep(keep_published=0)).published == 1
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3", "RF-3")
async def test_a_mark_is_for_terminal_events_and_fenced_by_the_claim_number_that_was_seen(box: Box):
    await one_in_each_state(box)
    await box.put(Event("n", event_id="again"))
    await box.operate.kill(["again"], **ADA)
    seen = {name: (await known(box, name)).number for name in ("published", "dead", "claimed", "pending", "again")}
    await box.replay(["again"])
    before = await contents(box)
    items = [(name, seen[name], "x") for name in ("again", "claimed", "pending")]
    assert await box._store.mark_event("superseded_by", [*items, ("unknown", 1, "x")]) == [b"NOTTERMINAL"] * 3 + [
        b"UNKNOWN"
    ]
    await box.operate.kill(["again"], **ADA)
    between = await contents(box)
    wrong = [("again", seen["again"], "x"), ("dead", seen["dead"] + 1, "x")]
    assert await box._store.mark_event("archived", wrong) == [b"CHANGED"] * 2
    assert await contents(box) == between != before
    marks = [
        ("dead", seen["dead"], "new-1"),
        ("dead", seen["dead"], "new-2"),
        ("published", seen["published"], "new-3"),
    ]
    assert await box._store.mark_event("archived", [("dead", seen["dead"], "here")]) == [b"OK"]
    assert await box._store.mark_event("superseded_by", marks) == [b"OK"] * 3
    assert "archived" not in await fields_of(box, "dead")
    assert await box._store.mark_event("archived", [("dead", seen["dead"], "there")]) == [b"CHANGED"]
    assert await box._store.mark_event("archived", [("dead", (await known(box, "dead")).number, "there")]) == [b"OK"]
    fields = await fields_of(box, "dead")
    assert (fields["superseded_by"], fields["archived"], fields["state"]) == ("new-2", "there", "DEAD")
    assert [(await known(box, name)).superseded_by for name in ("dead", "published", "again")] == [
        "new-2", "new-3", None,
    ]  # fmt: skip
    unmarked = {**await contents(box)}
    for name in ("dead", "published"):
        unmarked[keys.event(box.name, name)] = between[keys.event(box.name, name)]
    unmarked[keys.counters(box.name)] = between[keys.counters(box.name)]
    assert unmarked == between
    assert await check_invariants(box) == []


@pytest.mark.req("RO-2", "RF-3")
@pytest.mark.parametrize("field", ["superseded_by", "archived"])
async def test_a_replay_takes_the_marks_away(box: Box, field: Any):
    await bury(box, *named("dead"))
    assert await box._store.mark_event(field, [("dead", (await known(box, "dead")).number, "x")]) == [b"OK"]
    assert field in await fields_of(box, "dead")
    await box.replay(["dead"], force=True)
    assert field not in await fields_of(box, "dead")
    await box.kill(await claim_one(box))
    assert field not in await fields_of(box, "dead")


@pytest.mark.req("RO-2", "RF-3")
async def test_what_was_superseded_is_replayed_only_by_force(box: Box):
    await bury(box, *named("old", "other"))
    await box._store.mark_event("superseded_by", [("old", (await known(box, "old")).number, "new")])
    before = await contents(box)
    for choice in ({"ids": ["old"]}, {"state": "DEAD", "dry_run": True}):
        report = await box.replay(**choice)
        assert (report.replayed, report.refused) == (0, [("old", Outcome.SUPERSEDED, "new")])
    assert await contents(box) == before
    assert (await box.replay(state="DEAD")).replayed == 1
    assert (await box.replay(["old"], force=True)).replayed == 1
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3", "SP-5", "SP-7")
async def test_being_superseded_takes_a_number_so_that_a_copy_made_before_does_not_count(box: Box):
    await bury(box, *named("old"))
    seen = (await known(box, "old")).number
    for _ in range(2):  # the reply to the first may be lost
        assert await box._store.mark_event("superseded_by", [("old", seen, "new")]) == [b"OK"]
        assert (await known(box, "old")).number == seen + 1
    assert await box._store.drop([("old", seen)], who="", why="", heads=False) == [b"CHANGED"]
    assert await box._store.mark_event("superseded_by", [("old", seen, "newer")]) == [b"CHANGED"]
    assert (await put_and_claim(box, Event("n"))).number == seen + 2
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_a_job_leaves_one_line_in_the_log(box: Box):
    await box.put(Event("n"))
    before = await store_time(box)
    await box._store.write_log(
        "patch", who="ada", why="typo", count=12_345, ids=[f"e{n:02}" for n in range(25)], detail="d"
    )
    await box._store.write_log("archive", who="bob", why="", count=0)
    await box._store.write_log("archive", who="", why="nobody did it", count=1, ids=["x"])
    archived, patched = await box.operate.log()
    assert (patched.action, patched.who, patched.why, patched.count, patched.detail) == (
        "patch", "ada", "typo", 12_345, "d",
    )  # fmt: skip
    assert patched.ids == tuple(f"e{n:02}" for n in range(20))
    assert before <= patched.at <= archived.at <= await store_time(box)
    assert (archived.action, archived.count, archived.ids, archived.detail) == ("archive", 0, (), "")
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_a_line_in_the_log_that_is_sent_again_is_not_written_again(box: Box):
    """As after a reply that was lost. Another job that did the same has a token of its own."""
    await box.put(Event("n"))
    for token in ("a", "a", "b", "a", "", ""):
        await box._store.write_log("patch", who="ada", why="typo", count=2, ids=["e1", "e2"], token=token)
    assert len(await box.operate.log()) == 4
    assert {(entry.count, entry.ids, entry.detail) for entry in await box.operate.log()} == {(2, ("e1", "e2"), "")}


@pytest.mark.req("RO-3")
async def test_pause_stops_claims_and_nothing_else(box: Box):
    claims = [await put_and_claim(box) for _ in range(5)]
    await box.operate.pause(who="ada", why="target is down")
    before = await contents(box)
    with pytest.raises(BoxPaused, match="resume"):
        await box.claim("relay-1")
    assert await contents(box) == before
    assert (await box.put(Event("n"))).created
    assert await box.renew(claims[0]) == [True]
    assert await box.ack(claims[0]) == await fail(box, claims[1]) == await box.kill(claims[2]) == [True]
    assert await box.release(claims[3]) == [True]
    assert await expire(box) == [claims[4].event_id]
    assert (await box.replay([claims[0].event_id])).replayed == 1
    assert (await box.stats()).paused
    await box.operate.pause(who="ada", why="twice is once")
    await box.operate.resume(who="ada", why="up again")
    assert not (await box.stats()).paused
    assert len(await box.claim("relay-1")) == 5
    await box.operate.resume(who="ada", why="twice is once")
    assert await check_invariants(box) == []


@pytest.mark.req("RO-3")
async def test_a_box_may_be_paused_before_its_first_event(box: Box):
    await box.operate.pause(who="ada", why="not yet")
    assert await box.exists()
    assert (await box.put(Event("n"))).created
    with pytest.raises(BoxPaused):
        await box.claim("relay-1")


@pytest.mark.req("RO-3")
async def test_every_action_is_recorded_with_who_when_and_why(box: Box):
    await box.put_many(named("a", "b", "c"))
    await box.claim("relay-1", limit=1)
    before = await store_time(box)
    await box.operate.pause(who="ada", why="one")
    await box.operate.resume(who="bob", why="two")
    await box.operate.reschedule(["b", "unknown"], delay=60, who="ada", why="three")
    await box.operate.release(["a", "b"], who="bob", why="four")
    await box.operate.kill(["a", "b"], who="ada", why="fünf ×")
    await box.replay(["a", "c"], who="bob", why="six")
    await box.operate.drop(["b"], who="ada", why="")
    await box.operate.configure(max_pending=5, keep_dead=60, who="bob", why="eight")
    after = await store_time(box)
    entries = (await box.operate.log())[::-1]
    assert [(entry.action, entry.who, entry.why, entry.count, entry.ids) for entry in entries] == [
        ("pause", "ada", "one", 0, ()),
        ("resume", "bob", "two", 0, ()),
        ("reschedule", "ada", "three", 1, ("b",)),
        ("release", "bob", "four", 1, ("a",)),
        ("kill", "ada", "fünf ×", 2, ("a", "b")),
        ("replay", "bob", "six", 1, ("a",)),
        ("drop", "ada", "", 1, ("b",)),
        ("configure", "bob", "eight", 0, ()),
    ]
    assert entries[0].detail == "paused=1"
    assert entries[1].detail == "paused="
    assert entries[7].detail == "max_pending=5 keep_dead=60"
    moments = [entry.at for entry in entries]
    assert moments == sorted(moments)
    assert before <= moments[0]
    assert moments[-1] <= after
    assert [entry.action for entry in await box.operate.log(limit=2)] == ["configure", "drop"]


@pytest.mark.req("RO-3")
async def test_the_time_of_a_reschedule_is_recorded(box: Box):
    await box.put_many(named("a"))
    moment = await store_time(box) + timedelta(hours=1)
    await box.operate.reschedule(["a"], available_at=moment, **ADA)
    (entry,) = await box.operate.log()
    assert entry.detail == str(round(moment.timestamp() * 1000))


@pytest.mark.req("RO-3")
async def test_what_relays_do_is_not_the_log_of_operators(box: Box):
    claim = await put_and_claim(box)
    await box.release(claim)
    await fail(box, await claim_one(box))
    await box.ack(await claim_one(box))
    await bury(box, Event("n"))
    await put_and_claim(box)
    await expire(box)
    await box.sweep(keep_published=0)
    assert await box.operate.log() == []
    await box.replay(state="DEAD")
    (entry,) = await box.operate.log()
    assert (entry.action, entry.count) == ("replay", 1)
    assert entry.who, "a replay without a name is recorded under the user's"


@pytest.mark.req("RO-3")
async def test_the_log_names_the_first_twenty_and_counts_all(box: Box):
    ids = [f"e{n:02}" for n in range(25)]
    await box.put_many(named(*ids))
    await box.operate.kill(ids, **ADA)
    (entry,) = await box.operate.log()
    assert (entry.count, entry.ids) == (25, tuple(ids[:20]))


@pytest.mark.req("RO-3")
@pytest.mark.needs("server")
async def test_the_log_is_capped(box: Box):
    fill = "for n = 1, 10500 do redis.call('XADD', KEYS[1], '*', 'n', n) end return redis.call('XLEN', KEYS[1])"
    assert await box._store.exchange([("EVAL", fill, 1, keys.log(box.name))]) == [10_500]
    await box.operate.pause(**ADA)
    (length,) = await box._store.exchange([("XLEN", keys.log(box.name))])
    assert 10_000 <= length <= 10_200


@pytest.mark.req("RO-3")
async def test_nobody_acts_without_a_name(box: Box):
    await one_in_each_state(box)
    before = await contents(box)
    operate = box.operate
    nameless: list[Callable[[], Any]] = [
        lambda: operate.kill(["pending"], who="", why="x"),
        lambda: operate.release(["claimed"], who="", why="x"),
        lambda: operate.reschedule(["pending"], who="", why="x"),
        lambda: operate.drop(["dead"], who="", why="x"),
        lambda: operate.pause(who="", why="x"),
        lambda: operate.resume(who="", why="x"),
        lambda: operate.configure(who="", why="x", max_pending=1),
    ]
    for act in nameless:
        with pytest.raises(UsageError, match="who"):
            await act()
    for one_string in (operate.kill, operate.release, operate.reschedule, operate.drop):
        with pytest.raises(UsageError, match="list of event ids"):
            await one_string("dead", **ADA)
    assert await contents(box) == before
    assert await operate.kill([], **ADA) == []


@pytest.mark.req("RO-3")
def test_outcomes_have_reasons_in_words():
    assert {outcome.reason for outcome in Outcome} == {
        "done",
        "the claim is no longer held: it was reaped or settled, or the event was claimed again",
        "there is no such event",
        "the event is not PENDING",
        "the event is not available yet",
        "the event is not CLAIMED",
        "the event is already PUBLISHED or DEAD",
        "the event is neither PUBLISHED nor DEAD",
        "the event was claimed again after it was read",
        "the event is DEAD and blocks its line",
        "the event was superseded by another event",
        "another live event holds its unique_key",
        "the event was removed from a stream's batch before the batch was read",
    }
