"""How long one script blocks the server, with the largest and the most hostile arguments that a caller may give.

The server measures it (SLOWLOG). The fastest of several repetitions counts: other processes share the machine. `-rP`
prints the figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from redbox import Box, Claim, Event, keys
from redbox.audit import all_problems, repair
from redbox.box.receipts import chunks
from redbox.pipeline.source.options import LOOK
from redbox.settings import BATCH_BYTES, BATCH_COUNT, MAX_PAYLOAD
from redbox.store.codec import encode_restored
from redbox.store.scripts.items import MarkItem, SeenClaim, StreamBatch
from redbox.store.scripts.registry import REGISTRY, load
from redbox.testing import advance
from tests import servers

pytestmark = [pytest.mark.campaign, pytest.mark.usefixtures("redbox_runner"), pytest.mark.timeout(300)]

LONGEST_MS = 20.0
REPETITIONS = 15  # at most: the first that is fast enough will do
WIDE = 255  # characters of an event type, a key or a filter
SMILE = "\N{GRINNING FACE}"  # four bytes
ERROR = 2000  # characters of an error
ADA = {"who": "a" * WIDE, "why": "y" * ERROR}

Act = Callable[[], Awaitable[Any]]
Scene = Callable[[Box], Awaitable[Act]]
SCENES: dict[str, Scene] = {}


def scene(prepare: Scene) -> Scene:
    """Registers a scene: a function that prepares a box, and returns the action to measure."""
    SCENES[prepare.__name__] = prepare
    return prepare


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.redis_server(slowlog_log_slower_than=0, slowlog_max_len=100_000) as started:
        with started.client() as client:
            for name in REGISTRY:  # else the first call of each is one that fails
                client.script_load(load(name).text)
        yield started


async def scripts(server: servers.Server, act: Act) -> list[float]:
    """How long the scripts of an action took, in ms of the server's time, in their order."""
    with server.client(decode_responses=False) as client:
        client.slowlog_reset()
        await act()
        calls = client.slowlog_get(100_000)
    return [call["duration"] / 1000 for call in reversed(calls) if call["command"].startswith(b"EVAL")]


async def longest(server: servers.Server, prepare: Scene) -> float:
    """The longest script of an action: each script counts as long as in its fastest repetition. If repetitions make
    different numbers of calls, as a scan of all keys may, the best whole repetition counts."""
    fastest: list[float] = []
    for _ in range(REPETITIONS):
        async with Box.open(server.url, name=uuid4().hex) as box:
            taken = await scripts(server, await prepare(box))
        with server.client() as client:
            client.flushall()
        if len(fastest) == len(taken):
            fastest = [min(pair) for pair in zip(fastest, taken, strict=True)]
        elif not fastest or max(taken) < max(fastest):
            fastest = taken
        if max(fastest) < LONGEST_MS:
            break
    return max(fastest)


# --- filters -----------------------------------------------------------------------------------------------------


async def dead(box: Box, *, event_type: str = "t" * WIDE, reason: str = "a" * ERROR) -> list[str]:
    """A full batch of DEAD events."""
    await box.put_many([Event(event_type) for _ in range(BATCH_COUNT)])
    ids = []
    while claims := await box.claim("relay-1", limit=BATCH_COUNT):
        await box.kill(claims, reason=reason)
        ids += [claim.event_id for claim in claims]
    return ids


HOSTILE_TYPES = {
    "a long part": ("*" + "a" * 127 + "b", "a" * WIDE),
    "a long part with one wildcard": ("*?" + "a" * 127 + "b", "a" * WIDE),
    "many stars": ("*a" * 32 + "b", "a" * WIDE),
    "many question marks": ("*" + "?" * 31 + "b", SMILE * WIDE),
    "question marks and a long part": ("*" + "?" * 31 + SMILE * 127 + "b", SMILE * WIDE),
}


@pytest.mark.parametrize(("glob", "event_type"), HOSTILE_TYPES.values(), ids=HOSTILE_TYPES)
async def test_no_glob_holds_up_the_server(server: servers.Server, glob: str, event_type: str):
    async def prepare(box: Box) -> Act:
        await box.put_many([Event(event_type) for _ in range(1000)])

        async def act() -> None:
            assert (await box.page(event_type=glob)).records == []

        return act

    taken = await longest(server, prepare)
    print(f"{glob[:20]}...: {taken:.1f} ms")
    assert taken < LONGEST_MS


@scene
async def a_replay_by_a_hostile_glob(box: Box) -> Act:
    await dead(box, event_type=SMILE * WIDE)
    return lambda: box.replay(event_type="*" + "?" * 31 + SMILE * 127 + "b")


@scene
async def a_hostile_error_text(box: Box) -> Act:
    await dead(box)
    return lambda: box.page(error="a" * (WIDE - 1) + "b")


@scene
async def a_hostile_error_text_of_wide_characters(box: Box) -> Act:
    await dead(box, reason=SMILE * ERROR)
    return lambda: box.page(error=SMILE * (WIDE - 1) + "b")


@scene
async def a_key_that_no_event_has(box: Box) -> Act:
    await box.put_many([Event("t" * WIDE, ordering_key=f"{n:0{WIDE}}", unique_key=f"{n:0{WIDE}}") for n in range(2000)])
    return lambda: box.page(key="k" * WIDE)


@scene
async def a_page_of_long_errors(box: Box) -> Act:
    await dead(box, reason=SMILE * ERROR)
    return lambda: box.page(limit=500)


@scene
async def groups_of_long_errors(box: Box) -> Act:
    await dead(box, reason=SMILE * ERROR)
    return box.error_groups


@scene
async def a_listing_by_creation_of_events_that_are_too_old(box: Box) -> Act:
    await dead(box)
    return lambda: box.page(created_since=datetime(2100, 1, 1, tzinfo=UTC))


@scene
async def a_replay_of_many_steps_in_a_long_log(box: Box) -> Act:
    await dead(box)
    about: dict[str, Any] = {"who": "w" * WIDE, "why": SMILE * ERROR, "count": 1, "ids": ["i" * 128] * 20}
    for n in range(30):
        await box._store.write_log("patch", **about, token=str(n))
    return lambda: box.replay(state="DEAD", **ADA)


@scene
async def a_page_of_large_events(box: Box) -> Act:
    for _ in range(8):
        await box.put(Event("large", b"x" * MAX_PAYLOAD))
    return lambda: box.page(limit=500)


@scene
async def a_selective_filter_over_many_events(box: Box) -> Act:
    for _ in range(20):
        await box.put_many([Event("user.created", n) for n in range(BATCH_COUNT)])
    return lambda: box.page(event_type="invoice.*", key="nobody", error="nothing")


# --- putting -----------------------------------------------------------------------------------------------------


def wide(count: int = BATCH_COUNT) -> list[Event]:
    """Events that have all that an event may have, as long as it may be; each in a line of its own."""
    return [
        Event(
            "t" * WIDE,
            event_id=f"{n}-{uuid4().hex}".ljust(128, "i"),
            ordering_key=f"{n:0{WIDE}}",
            unique_key=f"{uuid4().hex:{WIDE}}".replace(" ", "u"),
        )
        for n in range(count)
    ]


def large() -> list[Event]:
    return [Event("large", b"x" * (MAX_PAYLOAD - 100)) for _ in range(8)]


@scene
async def a_put_of_wide_events(box: Box) -> Act:
    events = wide()
    return lambda: box.put_many(events)


@scene
async def concurrent_puts_of_wide_events(box: Box) -> Act:
    events = wide()
    return lambda: asyncio.gather(*(box.put(event) for event in events))


@scene
async def a_put_of_restored_events(box: Box) -> Act:
    encoded = [(event, encode_restored(event, datetime.now(UTC))) for event in wide()]

    async def act() -> None:
        for step in chunks(encoded):
            await box._store.put("each", [arguments for _, arguments in step])

    return act


@scene
async def a_put_of_plain_events(box: Box) -> Act:
    events = [Event("t" * WIDE, event_id=f"{n}-{uuid4().hex}".ljust(128, "i")) for n in range(BATCH_COUNT)]
    return lambda: box.put_many(events)


@scene
async def a_put_of_large_events(box: Box) -> Act:
    events = large()
    return lambda: box.put_many(events)


@scene
async def a_put_of_large_events_that_exist(box: Box) -> Act:
    events = large()
    await box.put_many(events)
    return lambda: box.put_many(events)


@scene
async def a_put_of_wide_events_that_exist(box: Box) -> Act:
    events = wide()
    await box.put_many(events)
    return lambda: box.put_many(events)


@scene
async def a_small_put_into_the_ids_of_large_events(box: Box) -> Act:
    """The time to find a difference does not depend on the size of the stored events."""
    ids = [receipt.event_id for _ in range(20) for receipt in await box.put_many(large())]
    return lambda: box.put_many([Event("small", event_id=each) for each in ids], on_conflict="skip")


@scene
async def a_small_put_into_the_ids_of_events_whose_bodies_are_returned(box: Box) -> Act:
    stored = [Event("stored", b"x" * 65_000) for _ in range(BATCH_COUNT)]
    await box.put_many(stored)
    return lambda: box.put_many([Event("small", event_id=each.event_id) for each in stored], on_conflict="skip")


# --- claiming ----------------------------------------------------------------------------------------------------


@scene
async def a_claim_of_wide_events(box: Box) -> Act:
    await box.put_many(wide())
    return lambda: box.claim("r" * WIDE, limit=BATCH_COUNT)


@scene
async def a_claim_of_plain_events(box: Box) -> Act:
    await box.put_many([Event("t" * WIDE, n) for n in range(BATCH_COUNT)])
    return lambda: box.claim("r" * WIDE, limit=BATCH_COUNT)


@scene
async def a_claim_of_retried_events(box: Box) -> Act:
    await box.put_many(wide())
    while claims := await box.claim("relay-1", limit=BATCH_COUNT):
        await box.retry(claims, error=SMILE * ERROR, delay=1.0)
    await advance(box, seconds=2)
    return lambda: box.claim("r" * WIDE, limit=BATCH_COUNT)


@scene
async def a_claim_of_large_events(box: Box) -> Act:
    await box.put_many(large())
    return lambda: box.claim("relay-1", max_bytes=2**53)


@scene
async def a_claim_of_events_of_some_kilobytes(box: Box) -> Act:
    await box.put_many([Event("some", b"x" * 8000) for _ in range(BATCH_COUNT)])
    return lambda: box.claim("relay-1", limit=BATCH_COUNT)


@scene
async def a_claim_of_events_without_bodies(box: Box) -> Act:
    events = wide()
    await box.put_many(events)
    await box.put_many([Event("t" * WIDE, ordering_key=event.ordering_key) for event in events])
    await box._store.exchange([("UNLINK", keys.body(box.name, event.event_id)) for event in events])
    return lambda: box.claim("relay-1", limit=BATCH_COUNT)


@scene
async def a_batch_of_a_stream(box: Box) -> Act:
    await box._store.track_stream("own", "lake", "me")
    await box.put_many(wide())
    return lambda: box._store.cut_batch(StreamBatch("lake", "me", 1), "stream", BATCH_COUNT, 30_000, BATCH_BYTES, None)


# --- settling ----------------------------------------------------------------------------------------------------


async def claimed(box: Box) -> list[Claim]:
    """A full batch of claims, each the head of a line that has a next event."""
    events = wide()
    await box.put_many(events)
    await box.put_many([Event("t" * WIDE, ordering_key=event.ordering_key) for event in events])
    claims: list[Claim] = []
    while found := await box.claim("r" * WIDE, limit=BATCH_COUNT):
        claims += found
    return claims


@scene
async def an_ack_of_wide_events(box: Box) -> Act:
    claims = await claimed(box)
    return lambda: box.ack(claims)


@scene
async def an_ack_of_plain_events(box: Box) -> Act:
    await box.put_many([Event("t" * WIDE, n) for n in range(BATCH_COUNT)])
    claims = await box.claim("r" * WIDE, limit=BATCH_COUNT)
    return lambda: box.ack(claims)


@scene
async def an_ack_that_deletes(box: Box) -> Act:
    claims = await claimed(box)
    return lambda: box.ack(claims, delete=True)


@scene
async def an_ack_of_a_stream(box: Box) -> Act:
    cut = await a_batch_of_a_stream(box)
    size = -1
    while size < (size := await box._store.member_count("lake", 1)):
        await cut()
    members = await box._store.members("lake", 1, 0, -1)
    return lambda: box._store.settle_batch(StreamBatch("lake", "me", 1), "stream", members)


@scene
async def a_renewal(box: Box) -> Act:
    claims = await claimed(box)
    return lambda: box.renew(claims, alone=True)


@scene
async def a_retry(box: Box) -> Act:
    claims = await claimed(box)
    return lambda: box.retry(claims, error=SMILE * ERROR, excuse=True)


@scene
async def a_kill(box: Box) -> Act:
    claims = await claimed(box)
    return lambda: box.kill(claims, reason=SMILE * ERROR)


@scene
async def a_kill_that_drops(box: Box) -> Act:
    claims = await claimed(box)
    return lambda: box.kill(claims, reason=SMILE * ERROR, drop=True)


@scene
async def a_release(box: Box) -> Act:
    claims = await claimed(box)
    return lambda: box.release(claims)


@scene
async def a_reap(box: Box) -> Act:
    await claimed(box)
    await advance(box, minutes=5)
    return lambda: box.reap(limit=BATCH_COUNT)


@scene
async def a_reclaim(box: Box) -> Act:
    await (await a_batch_of_a_stream(box))()
    members = await box._store.members("lake", 1, 0, -1)
    await box._store.release("stream", [SeenClaim(*each) for each in members])
    ids = [event_id for event_id, _ in members]
    return lambda: box._store.reclaim(StreamBatch("lake", "me", 1), "stream", 30_000, ids)


# --- operating ---------------------------------------------------------------------------------------------------


async def blocked(box: Box) -> list[str]:
    """Dead heads that block their lines."""
    await box.operate.configure(dead_head="block", **ADA)
    claims = await claimed(box)
    await box.kill(claims, reason=SMILE * ERROR)
    return [claim.event_id for claim in claims]


@scene
async def a_kill_by_an_operator(box: Box) -> Act:
    events = wide()
    await box.put_many(events)
    await box.put_many([Event("t" * WIDE, ordering_key=event.ordering_key) for event in events])
    return lambda: box.operate.kill([event.event_id for event in events], **ADA)


@scene
async def a_release_by_an_operator(box: Box) -> Act:
    ids = [claim.event_id for claim in await claimed(box)]
    return lambda: box.operate.release(ids, **ADA)


@scene
async def a_reschedule(box: Box) -> Act:
    events = wide()
    await box.put_many(events)
    return lambda: box.operate.reschedule([event.event_id for event in events], delay=3, **ADA)


@scene
async def a_replay(box: Box) -> Act:
    claims = await claimed(box)
    await box.ack(claims)
    return lambda: box.replay([claim.event_id for claim in claims], **ADA)


@scene
async def a_replay_of_dead_heads(box: Box) -> Act:
    ids = await blocked(box)
    return lambda: box.replay(ids, **ADA)


@scene
async def a_drop(box: Box) -> Act:
    ids = await blocked(box)
    return lambda: box.operate.drop(ids, **ADA)


@scene
async def a_change_from_block_to_skip(box: Box) -> Act:
    await blocked(box)
    return lambda: box.operate.configure(dead_head="skip", **ADA)


@scene
async def a_reap_that_frees_lines(box: Box) -> Act:
    await blocked(box)
    await box._store.exchange([("HSET", keys.meta(box.name), "dead_head", "skip")])
    return lambda: box.reap(limit=BATCH_COUNT)


@scene
async def the_end_of_many_pauses(box: Box) -> Act:
    events = wide()[:100]
    await box.put_many(events)
    for event in events:
        await box.operate.pause(key=event.ordering_key, duration=60, **ADA)
    await advance(box, seconds=61)
    return lambda: box.claim("relay-1", limit=1)


@scene
async def a_sweep(box: Box) -> Act:
    await box.ack(await claimed(box))
    return lambda: box.sweep(keep_published=0.0)


@scene
async def a_mark(box: Box) -> Act:
    claims = await claimed(box)
    await box.ack(claims)
    items = [MarkItem(claim.event_id, claim.number, "n" * 128) for claim in claims]
    return lambda: box._store.mark_event("superseded_by", items)


@scene
async def a_note_in_a_long_log(box: Box) -> Act:
    about: dict[str, Any] = {"who": "w" * WIDE, "why": SMILE * ERROR, "count": 1, "ids": ["i" * 128] * 20}
    for n in range(300):
        await box._store.write_log("patch", **about, token=str(n))
    return lambda: box._store.write_log("patch", **about, token="new")


@scene
async def stats_with_many_relays(box: Box) -> Act:
    about = {f"field-{n}": "x" * 300 for n in range(12)}
    for n in range(110):
        await box.beat(f"{n:0{WIDE}}", "instance", about, fresh=1.0)
    return box.stats


@scene
async def an_explanation_of_a_long_line(box: Box) -> Act:
    key, body = "k" * WIDE, b"x" * 1_000_000
    await box.put(Event("t" * WIDE, body, event_id="head", ordering_key=key))
    await box.put_many([Event("t" * WIDE, ordering_key=key) for _ in range(BATCH_COUNT)])
    await box.put(Event("t" * WIDE, body, event_id="last", ordering_key=key))
    return lambda: box.why("last")


# --- looking -----------------------------------------------------------------------------------------------------


@scene
async def an_audit(box: Box) -> Act:
    await blocked(box)
    line = [Event("t" * WIDE, ordering_key="one line") for _ in range(BATCH_COUNT)]
    await box.put_many(line)

    async def act() -> None:
        assert [problem async for problem in all_problems(box._store)] == []

    return act


@scene
async def a_repair(box: Box) -> Act:
    await blocked(box)
    await box.put_many([Event("t" * WIDE, ordering_key="o" * WIDE, unique_key=f"{n:0{WIDE}}") for n in range(100)])
    await box._store.exchange([("DEL", keys.line(box.name, "o" * WIDE)), ("DEL", keys.blocked(box.name))])

    async def act() -> None:
        assert (await repair(box)).left == []

    return act


@scene
async def a_pick(box: Box) -> Act:
    ids = await blocked(box)
    return lambda: box._store.read_states(ids)


@scene
async def bounds_of_many_ranges(box: Box) -> Act:
    await box.put_many([Event("t") for _ in range(BATCH_COUNT)])
    return lambda: box._store.split_index("pending", size=1, ranges=1000)


@scene
async def a_slice_of_many(box: Box) -> Act:
    for _ in range(10):
        await box.put_many([Event("t" * WIDE) for _ in range(BATCH_COUNT)])
    (last,) = (await box._store.split_index("pending", size=10_000, ranges=1)).last
    return lambda: box._store.list_ids("pending", last=last, limit=LOOK, event_type="*" + "t" * 127 + "b")


@pytest.mark.parametrize("name", SCENES)
async def test_no_script_holds_up_the_server(server: servers.Server, name: str):
    taken = await longest(server, SCENES[name])
    print(f"{name}: {taken:.1f} ms")
    assert taken < LONGEST_MS
