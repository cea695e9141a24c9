"""RO: malformed data of another program or an older version. It does not affect other events."""

from __future__ import annotations

from typing import Any

import pytest

from redbox import Box, Event, Phase, RedboxError, State, keys
from redbox.audit import quick_errors, repair
from redbox.box.desk.rates import reported_rates
from redbox.errors import StoreError
from redbox.store.scripts.items import MarkItem
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import claim_one, known, make_dead, publish


async def write(box: Box, *commands: tuple[Any, ...]) -> None:
    """Writes data that redbox itself would never write."""
    await box._store.exchange(commands)


async def listed(box: Box, **filters: Any) -> list[str]:
    return [record.event_id async for record in box.list(**filters)]


# --- stats -------------------------------------------------------------------------------------------------------


@pytest.mark.req("RO-1")
@pytest.mark.parametrize(
    "heartbeat",
    [
        ("HSET", "pid", "x"),
        ("HSET", "published", "1.5"),
        ("HSET", "in_flight", ""),
        ("HSET", b"\xff", b"\xff"),
        ("HSET", "pid", b"\xff\xfe"),
        ("SET",),
    ],
    ids=["pid", "published", "in_flight", "field", "bytes", "type"],
)
async def test_an_unreadable_heartbeat_is_reported_and_the_others_are_read(box: Box, heartbeat: tuple[Any, ...]):
    await box.put(Event("n"))
    await box.beat("good", "one", {"pid": "7"}, fresh=15)
    await box.beat("bad", "two", {"pid": "8"}, fresh=15)
    command, *rest = heartbeat
    where = keys.relay(box.name, "bad")
    if command == "SET":
        await write(box, ("DEL", where), ("SET", where, "x"))
    else:
        await write(box, (command, where, *rest))
    stats = await box.stats()
    harmless = rest[:1] == [b"\xff"]  # an unknown field is ignored
    assert [relay.name for relay in stats.relays if relay.name == "good"] == ["good"]
    assert stats.unreadable == ([] if harmless else ["the heartbeat of relay bad"])
    assert stats.phases[Phase.AVAILABLE] == 1


@pytest.mark.req("RO-1")
@pytest.mark.parametrize(
    ("rate", "known"),
    [("nan", None), ("inf", None), ("-inf", None), ("-1", None), ("1e308", None), ("1e-300", 0.0), ("2.5", 2.5)],
)
async def test_a_rate_that_cannot_be_is_unknown(box: Box, rate: str, known: float | None):
    await box.put(Event("n"))
    await box.beat("relay", "one", {"pid": "7", "rate": rate}, fresh=15)
    stats = await box.stats()
    assert [(relay.rate, relay.alive) for relay in stats.relays] == [(known, True)]
    assert reported_rates(stats).published == known
    assert stats.unreadable == []
    await box.why()


@pytest.mark.req("RO-1")
@pytest.mark.parametrize("ahead", ["+inf", 9e15, 2 * 86_400_000])
async def test_a_heartbeat_of_the_far_future_shows_no_living_relay(box: Box, ahead: Any):
    await box.put(Event("n"))
    await box.beat("relay", "one", {"pid": "7"}, fresh=15)
    seen = ahead if isinstance(ahead, str) else await box._store.time() + ahead
    await write(box, ("ZADD", keys.relays(box.name), seen, "relay"))
    stats = await box.stats()
    assert (stats.relays, stats.unreadable) == ([], ["the heartbeat of relay relay"])


@pytest.mark.req("RO-1")
@pytest.mark.parametrize("value", ["many", "9" * 5000])
async def test_a_total_that_is_not_a_number_is_reported_and_the_others_are_read(box: Box, value: str):
    await box.put(Event("n"))
    await write(box, ("HSET", keys.counters(box.name), "published", value, b"\xff", "1"))
    stats = await box.stats()
    assert (stats.totals["put"], "published" in stats.totals) == (1, False)
    assert stats.unreadable == ["the total published"]


@pytest.mark.req("SC-4")
@pytest.mark.parametrize("value", ["many", "1.5", "9" * 30])
async def test_a_total_that_is_not_a_number_stops_no_relay(box: Box, value: str):
    totals = [(total, value) for total in ("put", "published", "expired", "retried", "replayed", "dead")]
    await write(box, ("HSET", keys.counters(box.name), *(part for pair in totals for part in pair)))
    await box.put_many([Event("n", event_id=each) for each in ("a", "b")])
    await box.claim("relay-1", lease=10)
    await advance(box, minutes=1)
    assert await box.reap() == ["a", "b"]
    a, b = await box.claim("relay-1")
    assert await box.retry(a, delay=1) == [True]
    assert await box.ack(b) == [True]
    assert (await known(box, "b")).state is State.PUBLISHED
    assert (await box.replay(["b"])).replayed == 1


@pytest.mark.req("RO-1", "OP-2")
@pytest.mark.parametrize(
    ("name", "value"), [("max_pending", "many"), ("keep_dead", "soon"), ("dead_head", "jump"), ("sweep", b"\xff")]
)
async def test_an_unreadable_setting_is_reported_and_can_be_set_again(box: Box, name: str, value: Any):
    await box.put(Event("n"))
    await write(box, ("HSET", keys.meta(box.name), name, value, "keep_published_count", "7"))
    stats = await box.stats()
    assert stats.unreadable == [f"the setting {name}"]
    assert stats.settings.keep_published_count == 7
    with pytest.raises(StoreError, match=f"the setting {name} of this box is unreadable"):
        await box.settings()
    await box.put(Event("n"))
    again: dict[str, Any] = {"max_pending": 5, "keep_dead": 5.0, "dead_head": "skip", "sweep": "all"}
    settings = await box.operate.configure(who="ada", why="repair", **{name: again[name]})
    assert getattr(settings, name) == again[name]
    assert (await box.stats()).unreadable == []


@pytest.mark.req("OP-2")
@pytest.mark.parametrize(
    "name", ["keep_published", "keep_published_count", "keep_dead", "keep_dead_count", "sweep"]
)  # fmt: skip
async def test_a_sweep_removes_nothing_by_a_guess(box: Box, name: str):
    await publish(box, Event("n"))
    await advance(box, hours=25)
    await write(box, ("HSET", keys.meta(box.name), name, "soon"))
    with pytest.raises(StoreError, match=f"the setting {name} of this box is unreadable"):
        await box.sweep()
    assert (await box.stats()).phases[Phase.COMPLETED] == 1


@pytest.mark.req("OP-2", "LM-4")
@pytest.mark.parametrize("name", ["max_pending", "dead_head", "max_rate", "max_burst", "max_in_flight"])
async def test_a_sweep_does_not_depend_on_other_settings(box: Box, name: str):
    await publish(box, Event("n"))
    await advance(box, hours=25)
    await write(box, ("HSET", keys.meta(box.name), name, "soon"))
    assert (await box.sweep()).published == 1
    (finding,) = [each for each in await quick_errors(box) if each.check == "settings"]
    assert finding.sentence == f"the setting {name} cannot be read"
    assert "swept" not in finding.meaning
    assert ("without that limit" in finding.meaning) == (name in ("max_rate", "max_in_flight"))
    assert finding.remedy == f"`redbox configure {name}=VALUE`"


@pytest.mark.req("RO-1")
@pytest.mark.parametrize("index", ["pending", "claimed", "dead", "published"])
@pytest.mark.parametrize("score", ["+inf", "-inf", "1e300"])
async def test_a_time_out_of_range_does_not_break_stats(box: Box, index: str, score: str):
    await write(
        box, ("HSET", keys.meta(box.name), "layout", "1"), ("ZADD", getattr(keys, index)(box.name), score, "odd")
    )
    assert (await box.stats()).layout == 1


@pytest.mark.req("RO-1")
@pytest.mark.parametrize("layout", ["x", "9" * 5000])
async def test_a_layout_that_is_not_a_number_is_refused_with_an_error_message(box: Box, layout: str):
    await write(box, ("HSET", keys.meta(box.name), "layout", layout))
    for call in (box.stats, box.settings, lambda: box.put(Event("n")), lambda: box.claim("relay-1")):
        with pytest.raises(RedboxError, match=r"layout|newer redbox"):
            await call()


# --- events ------------------------------------------------------------------------------------------------------

DAMAGES: dict[str, tuple[Any, ...]] = {
    "unknown state": ("HSET", "state", "GONE"),
    "no state": ("HDEL", "state"),
    "no created_at": ("HDEL", "created_at"),
    "created_at": ("HSET", "created_at", "yesterday"),
    "created_at beyond all times": ("HSET", "created_at", "9" * 30),
    "created_at with too many digits for int": ("HSET", "created_at", "9" * 5000),
    "attempts": ("HSET", "attempts", "many"),
    "attempts with too many digits for int": ("HSET", "attempts", "9" * 5000),
    "died_at": ("HSET", "died_at", "x"),
    "claim": ("HSET", "claim", "x"),
    "no event_type": ("HDEL", "event_type"),
    "unique_scope": ("HSET", "unique_key", "u", "unique_scope", "x"),
    "bytes": ("HSET", "attempts", b"\xff"),
}


@pytest.mark.req("RO-1")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_event_is_listed_as_damaged_and_hides_no_other(box: Box, damage: tuple[Any, ...]):
    await make_dead(box, *(Event("n", event_id=each) for each in ("a", "b", "c")))
    command, *rest = damage
    await write(box, (command, keys.event(box.name, "b"), *rest))
    assert await listed(box, state="DEAD") == ["a", "b", "c"]
    record = await known(box, "b")
    assert record.damaged
    assert record.problem is not None
    assert "event b cannot be read in full" in record.problem
    problems = await check_invariants(box)
    assert problems
    assert all(each.startswith("b: ") for each in problems)
    whole = await known(box, "c")
    assert (whole.damaged, whole.problem, whole.state) == (False, None, State.DEAD)


@pytest.mark.req("RO-1")
@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "x\t1\tdied\tr\twhy",
        "1\tx\tdied\tr\twhy",
        f"{'9' * 30}\t1\tdied\tr\twhy",
        f"1\t{'9' * 5000}\tdied\tr\twhy",
    ],
)
async def test_a_damaged_history_is_returned_as_far_as_it_is_readable(box: Box, line: str):
    await make_dead(box, Event("n", event_id="a"), reason="no")
    await write(box, ("RPUSH", keys.history(box.name, "a"), line))
    record = await known(box, "a")
    assert [attempt.outcome for attempt in record.history] == ["died"]
    assert record.problem == "event a cannot be read in full: an entry of its history is damaged"
    assert not record.damaged  # it can be delivered


@pytest.mark.req("RO-1")
async def test_an_id_that_is_not_utf_8_hides_no_other(box: Box):
    await make_dead(box, Event("n", event_id="a"), Event("n", event_id="c"))
    odd = keys.event(box.name, "").encode() + b"b\xff"
    await write(
        box,
        ("HSET", odd, "state", "DEAD", "event_type", "n", "created_at", "1"),
        ("ZADD", keys.dead(box.name), 1, b"b\xff"),
    )
    assert await listed(box, state="DEAD") == ["b\N{REPLACEMENT CHARACTER}", "a", "c"]
    cursor, pages = None, []
    for _ in range(3):
        page = await box.page(state="DEAD", limit=1, cursor=cursor)
        pages += [record.event_id for record in page.records]
        cursor = page.cursor
    assert (pages, cursor) == (["b\N{REPLACEMENT CHARACTER}", "a", "c"], None)
    assert (await box.replay(state="DEAD")).replayed == 2


@pytest.mark.req("SC-2", "SC-7")
@pytest.mark.parametrize("field", ["attempts", "excused", "expiries", "earlier_attempts"])
@pytest.mark.parametrize("many", ["many", "nan", "inf", "1e300", "9" * 30])
async def test_a_count_that_is_not_a_number_stops_no_relay(box: Box, field: str, many: str):
    """One event must not prevent others from being claimed, settled or reaped."""
    await box.put_many([Event("n", event_id=each, ordering_key="k") for each in ("a", "b")])
    await box.put(Event("n", event_id="c"))
    where = keys.event(box.name, "a")
    await box.release(await box.claim("relay-1"))
    await write(box, ("HSET", where, field, many))
    assert [claim.event_id for claim in await box.claim("relay-1", lease=10)] == ["a", "c"]
    await write(box, ("HSET", where, field, many))
    await advance(box, minutes=1)
    assert sorted(await box.reap()) == ["a", "c"]
    await write(box, ("HSET", where, field, many))
    claims = await box.claim("relay-1")
    await write(box, ("HSET", where, field, many))
    assert await box.retry(claims, delay=1) == [True] * len(claims)
    await write(box, ("HSET", where, field, many))
    assert await box.operate.reschedule(["a", "c"], who="ada", why="now") == ["OK", "OK"]
    await write(box, ("HSET", where, field, many))
    while claims := await box.claim("relay-1"):
        assert all(await box.ack(claims))
    assert (await box.stats()).totals["published"] == 3


@pytest.mark.req("SC-2")
@pytest.mark.parametrize("value", ["many", "", "inf", "-inf", "nan", "0x10", "1e3", "1.5", "-1", " 1", "9" * 16])
async def test_a_count_that_is_not_a_plain_whole_number_counts_as_zero(box: Box, value: str):
    await box.put(Event("n", event_id="a"))
    await write(box, ("HSET", keys.event(box.name, "a"), "attempts", value, "excused", value))
    (claim,) = await box.claim("relay-1")
    assert (claim.attempts, claim.excused) == (1, 0)
    assert await box.retry(claim, delay=1, excuse=True) == [True]
    record = await known(box, "a")
    assert (record.attempts, record.excused) == (1, 1)


@pytest.mark.req("SC-7")
@pytest.mark.parametrize(
    "damage",
    [
        ("HDEL", "claimed_by"),
        ("HDEL", "claim"),
        ("HDEL", "claimed_at", "claimed_by", "claim", "attempts", "created_at", "event_type"),
        ("HSET", "claim", "x"),
        ("HSET", "claimed_by", b"\xff"),
        ("HDEL", "state"),
        ("HSET", "state", "GONE"),
    ],
    ids=["claimed_by", "no claim", "all", "claim", "bytes", "no state", "state"],
)
async def test_a_damaged_claim_prevents_no_other_release(box: Box, damage: tuple[Any, ...]):
    await box.put_many([Event("n", event_id=each) for each in ("a", "b", "c")])
    await box.claim("relay-1", lease=10)
    command, *rest = damage
    await write(box, (command, keys.event(box.name, "a"), *rest))
    await advance(box, minutes=1)
    given_back = await box.reap()
    assert given_back == (["b", "c"] if "state" in rest else ["a", "b", "c"])
    stats = await box.stats()
    assert (stats.phases[Phase.IN_FLIGHT], stats.lost_ids) == (0, ["a"] if "state" in rest else [])


@pytest.mark.req("RO-2")
@pytest.mark.parametrize("number", ["abc", "nan", "inf", "", "-1", "9" * 30])
async def test_a_damaged_claim_number_prevents_no_other_replay(box: Box, number: str):
    await make_dead(box, *(Event("n", event_id=each) for each in ("a", "b", "c")))
    await write(box, ("HSET", keys.event(box.name, "a"), "claim", number))
    await box.replay(state="DEAD")
    assert [(await known(box, each)).state for each in ("b", "c")] == [State.PENDING] * 2
    report = await box.replay(["a"])  # by its id, whatever its claim number
    assert (await known(box, "a")).state is State.PENDING, report


@pytest.mark.req("RO-1")
async def test_a_damaged_claim_counter_prevents_no_read(box: Box):
    await make_dead(box, Event("n", event_id="a"))
    await write(box, ("HSET", keys.counters(box.name), "claimed", "many", "seq", "many"))
    assert await listed(box, state="DEAD") == ["a"]
    assert len((await box._store.examine([b"a"])).events) == 1
    with pytest.raises(StoreError, match=r"the number of claims of this box cannot be read: it is 'many'; set"):
        await box.replay(state="DEAD")
    assert (await box.replay(["a"])).replayed == 1


@pytest.mark.req("SC-4")
@pytest.mark.parametrize("field", ["attempts", "earlier_attempts", "expiries"])
@pytest.mark.parametrize("value", ["x", "nan", "inf"])
async def test_an_unfinished_put_with_a_damaged_count_is_completed(box: Box, field: str, value: str):
    event = Event("n", {"a": 1}, event_id="a")
    await box.put(event)
    await write(box, ("HSET", keys.event(box.name, "a"), field, value), ("DEL", keys.body(box.name, "a")))
    await box.put(event)
    (claim,) = await box.claim("relay-1")
    assert claim.event.payload == b'{"a":1}'


@pytest.mark.req("OP-1")
@pytest.mark.parametrize("value", ["x", "nan", "inf", "-inf", "1e300", ""])
async def test_a_damaged_time_stops_no_line(box: Box, value: str):
    await box.put_many([Event("n", event_id=each, ordering_key="k") for each in ("a", "b")])
    where = keys.event(box.name, "b")
    await write(box, ("HSET", where, "available_at", value, "created_at", value))
    assert await box.ack(await box.claim("relay-1")) == [True]
    assert await box.claim("relay-1") == []  # it cannot be read, so the attempt failed
    assert (await known(box, "b")).last_error is not None
    await write(box, ("HDEL", where, "available_at"), ("HSET", where, "created_at", "1"))
    await box.operate.reschedule(["b"], who="ada", why="mended")
    (claim,) = await box.claim("relay-1")
    await write(box, ("HSET", where, "available_at", value, "created_at", value))
    assert await box.release(claim) == [True]
    await write(box, ("HSET", where, "available_at", "1", "created_at", "1"))
    assert [claim.event_id for claim in await box.claim("relay-1")] == ["b"]


@pytest.mark.req("OP-4")
@pytest.mark.parametrize("value", ["x", "nan", "inf", "-1", ""])
@pytest.mark.parametrize("damaged", ["seq", "available_at"])
async def test_a_dead_event_with_a_damaged_place_can_be_replayed(box: Box, damaged: str, value: str):
    """With dead_head="block" it returns to its place; if that is unreadable, it joins the tail."""
    await box.operate.configure(dead_head="block", who="ada", why="test")
    await box.put_many([Event("n", event_id=each, ordering_key="k") for each in ("a", "b")])
    await box.operate.kill(["b"], who="ada", why="test")  # in the middle of its line, which it leaves
    await box.put(Event("n", event_id="c", ordering_key="k"))
    await box.ack(await box.claim("relay-1"))
    dead, head = keys.event(box.name, "b"), keys.event(box.name, "c")
    if damaged == "seq":
        await write(box, ("HSET", dead, "seq", value))
    else:
        await write(box, ("HSET", head, "available_at", value))
    assert (await box.replay(["b"])).replayed == 1
    await write(box, ("HDEL", head, "available_at"))
    order = []
    while claims := await box.claim("relay-1"):
        order += [claim.event_id for claim in claims]
        await box.ack(claims)
    assert order == (["c", "b"] if damaged == "seq" else ["b", "c"])


# --- the log of operators ----------------------------------------------------------------------------------------


@pytest.mark.req("RO-3")
@pytest.mark.parametrize(
    "fields", [("note", "by somebody else"), ("action", "kill", "count", "many"), ("action", b"\xff", b"\xff", "x")]
)
async def test_a_malformed_log_entry_hides_no_other(box: Box, fields: tuple[Any, ...]):
    await box.put(Event("n"))
    await box.operate.pause(who="ada", why="first")
    await write(box, ("XADD", keys.log(box.name), "*", *fields))
    await box.operate.resume(who="ada", why="last")
    last, odd, first = await box.operate.log()
    assert (last.why, first.why) == ("last", "first")
    assert odd.detail.startswith("cannot be read in full")


# --- sweep -------------------------------------------------------------------------------------------------------


@pytest.mark.req("MQ-5", "PL-7")
@pytest.mark.parametrize("index", [keys.published, keys.dead])
async def test_a_sweep_keeps_an_event_that_only_an_index_calls_finished(box: Box, index: Any):
    await box.put(Event("n", event_id="e"))
    await write(box, ("ZADD", index(box.name), 1, "e"))
    swept = await box.sweep()
    assert (swept.published, swept.dead) == (0, 0)
    assert (await known(box, "e")).state is State.PENDING
    assert (await claim_one(box)).event.event_id == "e"


@pytest.mark.req("MQ-5", "PL-7")
async def test_a_sweep_keeps_an_event_that_an_index_calls_older_than_it_is(box: Box):
    await make_dead(box, Event("n", event_id="e"))
    await write(box, ("ZADD", keys.dead(box.name), 1, "e"))
    assert (await box.sweep(keep_dead=3600)).dead == 0
    assert (await known(box, "e")).state is State.DEAD


@pytest.mark.req("MQ-5", "PL-7")
@pytest.mark.parametrize("died_at", [None, "x", "0"])
async def test_a_sweep_keeps_an_event_that_does_not_know_when_it_died(box: Box, died_at: str | None):
    await make_dead(box, Event("n", event_id="e"))
    event = keys.event(box.name, "e")
    lost = ("HDEL", event, "died_at") if died_at is None else ("HSET", event, "died_at", died_at)
    await write(box, ("ZADD", keys.dead(box.name), 0, "e"), lost)
    assert (await box.sweep(keep_dead=3600)).dead == 0
    assert await box.get("e") is not None


@pytest.mark.req("MQ-5", "PL-7")
async def test_a_sweep_keeps_what_is_left_of_an_event(box: Box):
    await box.put(Event("n", event_id="e", unique_key="u"))
    await claim_one(box)
    await write(
        box,
        ("ZADD", keys.published(box.name), 1, "e"),
        ("HDEL", keys.event(box.name, "e"), "state"),
        ("DEL", keys.body(box.name, "e")),
    )
    assert (await box.sweep()).published == 0


@pytest.mark.req("MQ-5", "PL-7")
async def test_a_sweep_keeps_a_body_whose_event_is_missing(box: Box):
    await box.put(Event("n", event_id="e"))
    await write(box, ("ZADD", keys.published(box.name), 1, "e"), ("DEL", keys.event(box.name, "e")))
    assert (await box.sweep()).published == 0
    await write(box, ("DEL", keys.body(box.name, "e")))
    assert (await box.sweep()).published == 1, "nothing of it was left"


# --- scripts -----------------------------------------------------------------------------------------------------


@pytest.mark.req("SC-4")
async def test_a_foreign_event_behind_lost_ones_stops_no_settlement(box: Box):
    await box.put_many([Event("n", event_id=each, ordering_key="k") for each in "abcd"])
    (claim,) = await box.claim("relay-1")
    await write(
        box,
        ("DEL", keys.event(box.name, "b"), keys.event(box.name, "c")),
        ("SET", keys.event(box.name, "c"), "somebody else's"),
    )
    assert await box.ack(claim) == [True]
    assert (await known(box, "a")).state is State.PUBLISHED
    assert await box.claim("relay-1") == []
    await write(box, ("DEL", keys.event(box.name, "c")))
    await advance(box, minutes=2)
    await box.reap()
    assert [claim.event_id for claim in await box.claim("relay-1")] == ["d"]


@pytest.mark.req("SC-4")
async def test_an_event_that_was_never_claimed_is_marked(box: Box):
    await box.put(Event("n", event_id="a"))
    await write(box, ("DEL", keys.body(box.name, "a")))
    await repair(box)  # DEAD, because its body is missing
    assert await box._store.mark_event("archived", [MarkItem("a", 1, "here")]) == [b"CHANGED"]
    assert await box._store.mark_event("archived", [MarkItem("a", 0, "here")]) == [b"OK"]
