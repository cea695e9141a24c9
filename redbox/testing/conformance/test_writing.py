"""SC-4: every script of the registry checks the keys that it will write before its first write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from redbox import Box, Event, keys
from redbox.errors import IdReused, NewerLayout, RedboxError
from redbox.store.codec import encode_restored
from redbox.store.scripts.items import KnownBody, MarkItem, SeenClaim, StreamBatch
from redbox.store.scripts.registry import NO_WRITES, REGISTRY
from redbox.store.scripts.replies import CREATED, Position
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import contents, make_dead, publish, put_and_claim

ADA: Final[dict[str, Any]] = {"who": "ada", "why": "a test"}
STREAM: Final = "stream:lake"
LEASE: Final = 60_000
LONG_AGO: Final = datetime(2020, 1, 1, tzinfo=UTC)

Held = dict[str, Any]
Call = Callable[[Box, Held], Awaitable[Any]]


async def scene(box: Box) -> Held:
    """One event in each state, each named after it, a paused ordering key, and a stream with a batch; returns the
    claims."""
    store = box._store
    await publish(box, Event("n", event_id="published"))
    await make_dead(box, Event("n", event_id="dead", ordering_key="d", unique_key="d"))
    await box.put_many([Event("n", event_id=each, unique_key=each) for each in ("member", "released")])
    await store.track_stream("own", "lake", "me")
    await store.cut_batch(StreamBatch("lake", "me", 1), STREAM, 2, LEASE, 1_000_000, None)
    await store.track_stream("cut", "lake", "me", 1)
    held = {"members": dict(await store.members("lake", 1, 0, -1))}
    claims = [
        await put_and_claim(box, Event("n", event_id="claimed", ordering_key="o", unique_key="c")),
        await put_and_claim(box, Event("n", event_id="expired", unique_key="e"), lease=0.001),
    ]
    await put_and_claim(box, Event("n", event_id="suspect"))
    await store.exchange([
        ("HSET", keys.event(box.name, "suspect"), "expiries", "1"),
        ("ZADD", keys.claimed(box.name), 1, "suspect"),
    ])  # fmt: skip
    await box.reap(limit=1, delay=3600)
    await store.release(STREAM, [SeenClaim("released", held["members"]["released"])])
    await box.put_many([Event("n", event_id="pending", unique_key="p"), Event("n", event_id="free")])
    await box.put(Event("n", event_id="waiting", ordering_key="o"))
    await box.put(Event("n", event_id="head", ordering_key="l"))
    await box.operate.pause(key="k", **ADA)
    await box.put(Event("n", event_id="paused", ordering_key="k"))
    await box.beat("relay-9", "instance", {"pid": "1"}, fresh=10)
    await store.lock("take", "archive", "token", 60)
    await advance(box, seconds=1)
    await store.exchange([("DEL", keys.wake(box.name))])
    return {**held, "claimed": claims[0], "expired": claims[1]}


async def restore(box: Box, event: Event) -> None:
    """Puts an event as a replay from an archive does."""
    (reply,) = await box._store.put("each", [encode_restored(event, LONG_AGO)])
    if reply != CREATED:
        raise RedboxError(f"not restored: {reply!r}")


#: What calls each script: the first word is its name.
CALLS: Final[dict[str, Call]] = {
    "put": lambda box, _: box.put(Event("n", event_id="new")),
    "put with keys": lambda box, _: box.put(Event("n", event_id="new", ordering_key="o", unique_key="x")),
    "put restored": lambda box, _: restore(box, Event("n", event_id="new", ordering_key="o", unique_key="x")),
    "claim": lambda box, _: box.claim("relay-1", limit=2),
    "cut_batch": lambda box, _: box._store.cut_batch(StreamBatch("lake", "me", 2), STREAM, 2, LEASE, 1_000_000, None),
    "renew": lambda box, held: box._store.renew(
        "relay-1", LEASE, [("claimed", held["claimed"].number), ("expired", 99)], alone=True
    ),
    "ack": lambda box, held: box.ack(held["claimed"]),
    "ack without keys": lambda box, held: box.ack(held["expired"]),
    "ack and delete": lambda box, held: box.ack(held["claimed"], delete=True),
    "settle_batch": lambda box, held: box._store.settle_batch(
        StreamBatch("lake", "me", 1), STREAM, held["members"].items()
    ),
    "track_stream own": lambda box, _: box._store.track_stream("own", "lake", "another", 0),
    "reclaim": lambda box, held: box._store.reclaim(StreamBatch("lake", "me", 1), STREAM, LEASE, held["members"]),
    "end_wait": lambda box, _: box._store.end_wait("wait"),
    "retry": lambda box, held: box.retry(held["claimed"], error="503", excuse=True),
    "kill": lambda box, held: box.kill(held["claimed"], reason="422"),
    "kill and drop": lambda box, held: box.kill(held["claimed"], reason="422", drop=True),
    "kill by hand": lambda box, _: box.operate.kill(["claimed", "pending", "suspect", "waiting"], **ADA),
    "release": lambda box, held: box.release(held["claimed"]),
    "release by hand": lambda box, _: box.operate.release(["claimed"], **ADA),
    "reap": lambda box, _: box.reap(),
    "replay": lambda box, _: box.replay(["dead", "published"], **ADA),
    "reschedule": lambda box, _: box.operate.reschedule(["pending", "released"], delay=60, **ADA),
    "drop": lambda box, _: box.operate.drop(["dead", "published"], **ADA),
    "mark_event archived": lambda box, _: box._store.mark_event("archived", [MarkItem("published", 1, "there")]),
    "mark_event superseded_by": lambda box, _: box._store.mark_event("superseded_by", [MarkItem("dead", 2, "new")]),
    "write_log": lambda box, _: box._store.write_log("patch", count=1, **ADA),
    "lock take": lambda box, _: box._store.lock("take", "replay", "token", 60),
    "lock free": lambda box, _: box._store.lock("free", "archive", "token"),
    "sweep": lambda box, _: box.sweep(keep_published=0, keep_dead=0),
    "beat": lambda box, _: box.beat("relay-1", "instance", {"pid": "1"}, fresh=10),
    "beat and leave": lambda box, _: box.beat("relay-9", "instance", {}, fresh=10, leaving=True),
    "record_rates": lambda box, _: box.desk.record_rates(latencies={5: 1}),
    "configure": lambda box, _: box.operate.configure(max_pending=9, **ADA),
    "pause": lambda box, _: box.operate.pause(**ADA),
    "pause key": lambda box, _: box.operate.pause(key="l", **ADA),
    "resume": lambda box, _: box.operate.resume(ramp=60, **ADA),
    "resume key": lambda box, _: box.operate.resume(key="k", **ADA),
    "check_permissions": lambda box, _: box._store.check_permissions([("ZADD", 3)]),
    "get": lambda box, _: box.get("pending"),
    "page": lambda box, _: box.page(),
    "stats": lambda box, _: box.stats(),
    "locate": lambda box, _: box.why("waiting"),
    "split_index": lambda box, _: box._store.split_index("pending", size=3, ranges=100),
    "list_ids": lambda box, _: box._store.list_ids("pending", last=Position(b"1", b"x"), limit=2),
    "read_states": lambda box, _: box._store.read_states(["pending"]),
    "examine": lambda box, _: box._store.examine([b"pending"]),
    "examine_keys": lambda box, _: box._store.examine_keys(limit=10, names=[("line", b"o", b"", b"")]),
    "repair": lambda box, _: box._store.repair(b"pending", KnownBody(), dry=False),
    "repair_key": lambda box, _: box._store.repair_key("line", b"o", b"claimed", dry=False),
}
SCRIPT_OF: Final = {call: call.partition(" ")[0] for call in CALLS}
#: They write only in a damaged box: operations/test_repair.py tests the same for them.
NEED_DAMAGE: Final = ("repair", "repair_key")
WRITING: Final = [
    call for call, script in SCRIPT_OF.items() if REGISTRY[script].flag != NO_WRITES and script not in NEED_DAMAGE
]
#: Keys that a script may write, or read between two writes, whether or not it does so in the scene. The scripts that
#: look at every key have `lost`.
ALL: Final = ("reclaim", "retry", "kill", "release", "reap", "replay", "reschedule", "drop", "sweep")
MAY_WRITE: Final = {
    "put": {"counters", "pending", "waiting", "wake", "paused"},
    "claim": {"counters", "claimed", "retries", "wake", "alone", "paused"},
    "cut_batch": {"counters", "claimed", "retries", "wake", "alone", "paused"},
    "ack": {"counters", "claimed", "published", "wake", "paused"},
    "settle_batch": {"counters", "claimed", "published", "wake", "paused"},
    **{script: {"lost", "paused"} for script in ALL},
}


def test_every_script_of_the_registry_is_called():
    assert {*SCRIPT_OF.values()} == {*REGISTRY}


async def without_prefix(box: Box) -> dict[str, Any]:
    return {name.removeprefix(keys.prefix(box.name)): value for name, value in (await contents(box)).items()}


async def written_by(box: Box, call: str) -> set[str]:
    """Returns the keys that the call writes and whose type matters to it: strings are replaced, and events removed,
    whatever their type is."""
    held = await scene(box)
    before = await without_prefix(box)
    await CALLS[call](box, held)
    after = await without_prefix(box)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return {
        name for name in changed
        if not name.startswith(":b:") and (name in after or not name.startswith((":e:", ":h:")))
    }  # fmt: skip


@pytest.mark.req("SC-4")
@pytest.mark.parametrize("call", WRITING)
async def test_a_script_that_cannot_finish_writes_nothing(open_box: Callable[..., Box], call: str):
    kinds = await written_by(open_box(), call)
    assert kinds, "the scene has nothing for this call to do"
    kinds |= {f":{name}" for name in MAY_WRITE.get(SCRIPT_OF[call], ())}
    box = open_box()
    held, store = await scene(box), box._store
    spare, before = f"{keys.prefix(box.name)}:spare", await contents(box)
    half_done = []
    for kind in sorted(kinds):
        key = keys.prefix(box.name) + kind
        (type_,) = await store.exchange([("TYPE", key)])
        if key in before:
            await store.exchange([("RENAME", key, spare)])
        is_string = type_ == b"string" or kind.startswith((":alone", ":lock:"))
        await store.exchange([("RPUSH", key, "x") if is_string else ("SET", key, "somebody else's")])
        with pytest.raises(RedboxError):
            await CALLS[call](box, held)
        await store.exchange([("DEL", key)])
        if key in before:
            await store.exchange([("RENAME", spare, key)])
        if await contents(box) != before:
            half_done.append(kind)
            break
    assert half_done == []
    await CALLS[call](box, held)
    assert await check_invariants(box) == []


@pytest.mark.req("SC-4")
async def test_no_script_changes_a_box_of_a_newer_layout(box: Box):
    held = await scene(box)
    await box._store.exchange([("HSET", keys.meta(box.name), "layout", "2")])
    before = await contents(box)
    for call in CALLS.values():
        with pytest.raises(NewerLayout, match="upgrade"):
            await call(box, held)
    with pytest.raises(NewerLayout):
        async with box.transaction() as tx:
            tx.put(Event("n"))
    assert await contents(box) == before


# --- what an interrupted put left ------------------------------------------------------------------------------------

UNFINISHED: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "ordered": {"ordering_key": "line"},
    "unique": {"unique_key": "unique"},
    "later": {"delay": 60.0},
}


@pytest.mark.req("SC-4")
@pytest.mark.parametrize("options", UNFINISHED.values(), ids=UNFINISHED)
async def test_an_event_in_no_index_is_completed_by_the_next_put(box: Box, options: dict[str, Any]):
    await box.put(Event("before", event_id="0"))
    await box.put(Event("a", {"n": 1}, event_id="1", **options))
    await box.put(Event("a", {"n": 2}, event_id="2", ordering_key="line"))
    await box._store.exchange([("ZREM", keys.pending(box.name), "1")])
    assert not (await box.put(Event("before", event_id="0"))).created
    assert not (await box.put(Event("a", {"n": 2}, event_id="2", ordering_key="line"))).created
    with pytest.raises(IdReused):
        await box.put(Event("a", {"n": 3}, event_id="1", **options))
    assert (await box.put(Event("a", {"n": 1}, event_id="1", **options))).created
    assert await check_invariants(box) == []
    assert not (await box.put(Event("a", {"n": 1}, event_id="1", **options))).created
    await advance(box, seconds=120)
    assert {"0", "1"} <= {claim.event_id for claim in await box.claim("relay-1", limit=10)}


@pytest.mark.req("SC-4")
async def test_an_attempted_event_keeps_its_attempts_when_it_is_completed(box: Box):
    await box.put(Event("a", event_id="1", unique_key="u"))
    (claim,) = await box.claim("relay-1")
    await box.retry(claim, error="boom", delay=0)
    await box._store.exchange([("ZREM", keys.pending(box.name), "1")])
    assert (await box.put(Event("a", event_id="1", unique_key="u"))).created
    assert await check_invariants(box) == []
    (claim,) = await box.claim("relay-1")
    assert claim.attempts == 2


@pytest.mark.req("SC-4")
async def test_an_event_without_a_body_is_completed_only_by_its_own_keys(box: Box):
    await box.put(Event("a", event_id="1", ordering_key="line", unique_key="u"))
    await box._store.exchange([("UNLINK", keys.body(box.name, "1"))])
    with pytest.raises(IdReused):
        await box.put(Event("a", event_id="1", ordering_key="other", unique_key="u"))
    with pytest.raises(IdReused):
        await box.put(Event("a", event_id="1", ordering_key="line"))
    assert (await box.put(Event("a", event_id="1", ordering_key="line", unique_key="u"))).created
    assert await check_invariants(box) == []


@pytest.mark.req("SC-4")
@pytest.mark.parametrize("state", ["CLAIMED", "PUBLISHED", "DEAD"])
async def test_a_put_stores_the_lost_body_of_an_event_again(box: Box, state: str):
    event = Event("a", {"n": 1}, event_id="1", ordering_key="line", unique_key="u")
    claim = await put_and_claim(box, event)
    if state != "CLAIMED":
        assert await (box.ack(claim) if state == "PUBLISHED" else box.kill(claim, reason="rejected")) == [True]
    whole = await contents(box)
    await box._store.exchange([("UNLINK", keys.body(box.name, "1"))])
    lost = await contents(box)
    for other, field in (
        (Event("b", {"n": 1}, event_id="1", ordering_key="line", unique_key="u"), "event_type"),
        (Event("a", {"n": 1}, event_id="1", unique_key="u"), "ordering_key"),
        (Event("a", {"n": 1}, event_id="1", ordering_key="line", unique_key="v"), "unique_key"),
    ):
        with pytest.raises(IdReused, match=f"a different {field};"):
            await box.put(other)
        with pytest.raises(RedboxError):
            await box.put_many([event, other], on_conflict="all_or_nothing")
    assert await contents(box) == lost
    receipts = await box.put_many([event, event])
    assert [receipt.created for receipt in receipts] == [False, False]
    counters = keys.counters(box.name)  # counts repeated puts
    after = await contents(box)
    assert {name: value for name, value in after.items() if name != counters} == {
        name: value for name, value in whole.items() if name != counters
    }
    with pytest.raises(IdReused, match="a different payload;"):
        await box.put(Event("a", {"n": 2}, event_id="1", ordering_key="line", unique_key="u"))


@pytest.mark.req("SC-4")
async def test_of_two_events_for_a_lost_body_the_first_counts(box: Box):
    await publish(box, Event("a", {"n": 1}, event_id="1"))
    await box._store.exchange([("UNLINK", keys.body(box.name, "1"))])
    with pytest.raises(RedboxError):
        await box.put_many([Event("a", {"n": 1}, event_id="1"), Event("a", {"n": 2}, event_id="1")])
    assert not (await box.put(Event("a", {"n": 1}, event_id="1"))).created
