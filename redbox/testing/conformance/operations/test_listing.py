"""RO-1: get and list, with filters and pages."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from redbox import Box, Event, State
from redbox.box import inspect
from redbox.errors import UsageError
from redbox.testing import advance
from redbox.testing.conformance.operations.steps import ADA, listed, named, one_in_each_state
from redbox.testing.conformance.steps import (
    known,
    make_dead,
    publish,
    store_time,
)


async def paged(box: Box, limit: int, **filters: Any) -> list[list[str]]:
    """Returns the ids of a listing, page by page."""
    pages, cursor = [], None
    while True:
        page = await box.page(limit=limit, cursor=cursor, **filters)
        pages.append([record.event_id for record in page.records])
        cursor = page.cursor
        if cursor is None:
            return pages


# --- RO-1: get and list ----------------------------------------------------------------------------------------------


@pytest.mark.req("RO-1")
async def test_an_unknown_id_is_none(box: Box):
    await box.put(Event("n", event_id="one"))
    assert await box.get("two") is None
    assert await box.get("") is None
    assert await box.get("one:b") is None


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
async def test_a_listing_returns_the_same_records_as_get(box: Box):
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
    await make_dead(box, *named("a"), reason="Connect TimeOut")
    await make_dead(box, *named("b"), reason="got [503]. 50% lost: e")
    await box.put(Event("n", event_id="c"))
    for error, wanted in (("timeout", ["a"]), ("TIMEOUT", ["a"]), ("50%", ["b"]), ("[503]", ["b"]), (".", ["b"]),
                          ("nothing", []), ("e", ["a", "b"]), ("(", [])):  # fmt: skip
        assert await listed(box, error=error) == wanted, error
        assert await listed(box, error=error, state="DEAD") == wanted, error


@pytest.mark.req("RO-1")
async def test_list_by_error_text_that_is_not_ascii(box: Box):
    await make_dead(box, *named("a"), reason="Übertragung gescheitert")
    assert await listed(box, error="gescheitert") == ["a"]
    assert await listed(box, error="Übertragung") == ["a"]


@pytest.mark.req("RO-1")
async def test_list_by_time(box: Box):
    """The bounds are inclusive; each state is filtered by its own time."""
    await publish(box, *named("p1"))
    await make_dead(box, *named("d1"))
    await advance(box, hours=1)
    await publish(box, *named("p2"))
    await make_dead(box, *named("d2"))
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
async def test_filters_are_combined(box: Box):
    await make_dead(
        box, Event("a", event_id="1", ordering_key="k"), Event("b", event_id="2", unique_key="k"), reason="503"
    )
    await make_dead(box, Event("a", event_id="3", ordering_key="l"), reason="503")
    await make_dead(box, Event("a", event_id="4", unique_key="k"), reason="422")
    await box.put(Event("a", event_id="5", unique_key="k"))
    assert await listed(box, state="DEAD", event_type="a", key="k", error="503") == ["1"]
    assert await listed(box, event_type="a", key="k") == ["5", "1", "4"]
    assert await listed(box, state="DEAD", key="k") == ["1", "2", "4"]


# --- RO-1: pages -----------------------------------------------------------------------------------------------------


@pytest.mark.req("RO-1")
@pytest.mark.parametrize("limit", [1, 3, 4, 12, 13])
async def test_pages_of_events_with_equal_scores(box: Box, limit: int):
    ids = [f"e{n:02}" for n in range(12)]
    await box.put_many(named(*ids))
    pages = await paged(box, limit, state="PENDING")
    assert [event_id for page in pages for event_id in page] == ids
    assert all(len(page) == limit for page in pages[:-1])
    assert await paged(box, limit, state="DEAD") == [[]]


@pytest.mark.req("RO-1")
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_pages_cover_all_states(box: Box, limit: int):
    await one_in_each_state(box)
    pages = await paged(box, limit)
    assert [event_id for page in pages for event_id in page] == [
        "first", "pending", "later", "second", "claimed", "published", "dead",
    ]  # fmt: skip
    assert all(len(page) == limit for page in pages[:-1])


@pytest.mark.req("RO-1")
@pytest.mark.parametrize("look", [1, 3, 1000])
async def test_pages_are_full_although_a_filter_excludes_many_events(
    box: Box, monkeypatch: pytest.MonkeyPatch, look: int
):
    monkeypatch.setattr(inspect, "PAGE_LOOK", look)  # the events read in one step
    await box.put_many([Event("a" if n % 5 == 0 else "b", event_id=f"e{n:02}") for n in range(22)])
    await box.operate.kill([f"e{n:02}" for n in range(22)], **ADA)
    assert await paged(box, 2, event_type="a", state="DEAD") == [["e00", "e05"], ["e10", "e15"], ["e20"]]
    assert await listed(box, event_type="a", limit=3) == ["e00", "e05", "e10"]
    assert (await box.replay(event_type="a")).replayed == 5


@pytest.mark.req("RO-1")
async def test_the_last_page_has_no_cursor(box: Box):
    await make_dead(box, *named("a", "b", "c"))
    assert await paged(box, 3, state="DEAD") == [["a", "b", "c"]]
    assert await paged(box, 2, state="DEAD") == [["a", "b"], ["c"]]
    assert await paged(box, 3) == [["a", "b", "c"]]


@pytest.mark.req("RO-1")
async def test_a_listing_can_be_limited(box: Box):
    await box.put_many(named("a", "b", "c"))
    assert await listed(box, limit=2) == ["a", "b"]
    assert await listed(box, limit=3) == ["a", "b", "c"]
    assert await listed(box, limit=4) == ["a", "b", "c"]
    assert await listed(box, limit=0) == []
    with pytest.raises(UsageError, match="limit"):
        await box.page(limit=0)


@pytest.mark.req("RO-1")
async def test_cursors_stay_valid_while_events_are_added_and_removed(box: Box):
    await box.put_many(named(*(f"e{n:02}" for n in range(10))))
    await box.operate.kill([f"e{n:02}" for n in range(10)], **ADA)
    page = await box.page(state="DEAD", limit=4)
    assert [record.event_id for record in page.records] == ["e00", "e01", "e02", "e03"]
    await box.operate.drop(["e00", "e03", "e05"], **ADA)  # before, at and after the cursor
    await box.replay(["e01", "e08"])
    await advance(box, seconds=-10)  # time is moved back and forth, so that a new event comes before all others
    await make_dead(box, *named("a-new-one"))
    await advance(box, seconds=10)
    following = await box.page(state="DEAD", limit=100, cursor=page.cursor)
    assert [record.event_id for record in following.records] == ["e04", "e06", "e07", "e09"]
    assert following.cursor is None


@pytest.mark.req("RO-1")
async def test_a_cursor_continues_in_the_next_index(box: Box):
    await one_in_each_state(box)
    page = await box.page(state="PENDING", limit=3)
    assert [record.event_id for record in page.records] == ["first", "pending", "later"]
    page = await box.page(state="PENDING", limit=3, cursor=page.cursor)
    assert ([record.event_id for record in page.records], page.cursor) == (["second"], None)


@pytest.mark.req("RO-1")
async def test_pages_of_ids_with_colons(box: Box):
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
async def test_a_listing_is_bounded_in_bytes_and_complete(box: Box, monkeypatch: pytest.MonkeyPatch):
    ids = [f"e{n}" for n in range(7)]
    await box.put_many(named(*ids, payload=b"x" * 1000))
    asked = []
    send = box._store.page

    async def counting(index: str, **arguments: Any) -> Any:
        reply = await send(index, **arguments)
        asked.append(len(reply.records))
        return reply

    monkeypatch.setattr(box._store, "page", counting)
    for size, counts in ((2500, [2, 2, 2, 1]), (1, [1] * 7), (10_000, [7])):
        monkeypatch.setattr(inspect, "STEP_BYTES", size)
        asked.clear()
        assert [record.event_id for record in (await box.page(limit=7, state="PENDING")).records] == ids
        assert asked == counts


@pytest.mark.req("RO-1")
@pytest.mark.parametrize(
    "filters", [{"event_type": "*?" + "a" * 127 + "b"}, {"error": "a" * 127 + "b"}], ids=["event_type", "error"]
)
async def test_a_listing_with_an_expensive_filter_is_made_in_short_steps_and_complete(
    box: Box, monkeypatch: pytest.MonkeyPatch, filters: dict[str, Any]
):
    """A step is also limited by the work of its filter, not only by the number of events."""
    wanted = "a" * 128 + "b"
    await make_dead(box, *(Event("a" * 255, event_id=f"e{n:02}") for n in range(20)), reason="a" * 2000)
    await advance(box, seconds=1)
    await make_dead(box, Event(wanted, event_id="wanted"), reason=wanted)
    asked = []
    send = box._store.page

    async def counting(index: str, **arguments: Any) -> Any:
        asked.append(arguments)
        return await send(index, **arguments)

    monkeypatch.setattr(box._store, "page", counting)
    monkeypatch.setattr(inspect, "PAGE_LOOK", 40)
    assert [record.event_id for record in (await box.page(state="DEAD", **filters)).records] == ["wanted"]
    assert len(asked) > 2
    assert (await box.replay(**filters)).replayed == 1
