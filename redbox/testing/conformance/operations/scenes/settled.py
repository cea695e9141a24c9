"""Events that are claimed, settled or gone; lines and unique keys."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from redbox import Box, Event, Relay, Situation, keys
from redbox.store.scripts.items import MarkItem
from redbox.testing import advance
from redbox.testing.conformance.operations.scenes.steps import (
    LIMIT,
    Expected,
    alive,
    block_lines,
    event,
    make_suspect,
    scene,
    seen,
)
from redbox.testing.conformance.operations.steps import ADA
from redbox.testing.conformance.steps import claim_one, expire, make_dead, publish, put_and_claim

# --- CLAIMED -----------------------------------------------------------------------------------------------------


@scene
async def claimed_by_a_living_relay(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    await put_and_claim(box, event(), lease=55)
    words = ("It was claimed by relay relay-1", "for attempt 1; the lease ends in 5", "That relay is alive")
    return Expected(Situation.CLAIMED, words, ("redbox release e",))


@scene
async def claimed_by_a_running_relay(box: Box, stack: AsyncExitStack) -> Expected:
    began = asyncio.Event()

    async def hang(_: Event) -> None:
        began.set()
        await asyncio.Event().wait()

    await stack.enter_async_context(Relay(box, hang, name="relay-7", beat_every=0.05, grace=0.01))
    await box.put(event())
    async with asyncio.timeout(LIMIT):
        await began.wait()
    await seen(box, lambda relay: relay.in_flight == 1)
    return Expected(Situation.CLAIMED, ("It was claimed by relay relay-7", "That relay is alive"))


@scene
async def claimed_by_a_silent_relay(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    await put_and_claim(box, event(), lease=600)
    await advance(box, seconds=60)
    words = ("That relay has been silent for 1 min", "returns to PENDING when the lease ends")
    return Expected(Situation.CLAIMED, words)


@scene
async def claimed_without_heartbeat(box: Box, _: AsyncExitStack) -> Expected:
    await put_and_claim(box, event(), lease=600)
    return Expected(Situation.CLAIMED, ("That relay sends no heartbeat",))


@scene
async def claimed_after_an_expired_lease(box: Box, _: AsyncExitStack) -> Expected:
    await put_and_claim(box, event(), lease=10)
    await expire(box)
    await claim_one(box, "relay-2", lease=60)
    await advance(box, seconds=10)
    await alive(box, "relay-2", pid="7", in_flight="0")
    words = ("1 lease in a row expired before", "A relay of that name is alive, but holds no event", "replaced")
    return Expected(Situation.CLAIMED, words, ("redbox release e",))


@scene
async def suspect_that_is_claimed(box: Box, _: AsyncExitStack) -> Expected:
    await make_suspect(box)
    await alive(box, "relay-2")
    await claim_one(box, "relay-2", lease=60)
    await advance(box, seconds=10)
    await alive(box, "relay-3")
    words = (
        "That relay has been silent for 10",
        "and relay relay-3 runs on the same host",
        "It is a suspect: 2 leases in a row expired before",
    )
    return Expected(Situation.CLAIMED, words, ("redbox release e",))


@scene
async def suspect_whose_lease_has_ended(box: Box, _: AsyncExitStack) -> Expected:
    await make_suspect(box)
    await claim_one(box, "relay-3", lease=1)
    await advance(box, seconds=3)
    await alive(box, "relay-4")
    words = ("and the lease ended", "It is a suspect: 2 leases in a row expired before", "so it may crash relays.")
    return Expected(Situation.LEASE_EXPIRED, words, ("redbox kill e", "redbox reap"))


@scene
async def suspect_without_a_relay(box: Box, _: AsyncExitStack) -> Expected:
    await make_suspect(box)
    return Expected(Situation.NO_RELAY, ("It is a suspect: 2 leases in a row expired",))


@scene
async def claimed_to_be_marked_dead(box: Box, _: AsyncExitStack) -> Expected:
    await box.retry(await put_and_claim(box, event()), error="no", delay=0)
    await advance(box, milliseconds=1)
    assert (await claim_one(box, attempts=1)).exhausted
    return Expected(Situation.CLAIMED, ("to be marked DEAD: its attempts are used up",))


@scene
async def lease_expired_and_nobody_reaps(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    await put_and_claim(box, event(), lease=10)
    await advance(box, minutes=2)
    words = ("and the lease ended 1 min 5", "No relay is alive, so nobody reaps it")
    return Expected(Situation.LEASE_EXPIRED, words, ("redbox reap",))


@scene
async def lease_expired_and_relays_do_not_reap(box: Box, _: AsyncExitStack) -> Expected:
    await put_and_claim(box, event(), lease=10)
    await advance(box, minutes=2)
    await alive(box)
    return Expected(Situation.LEASE_EXPIRED, ("Relays are alive, but none of them has reaped it",), ("redbox reap",))


@scene
async def lease_just_expired(box: Box, _: AsyncExitStack) -> Expected:
    await put_and_claim(box, event(), lease=10)
    await advance(box, seconds=11)
    await alive(box)
    return Expected(Situation.LEASE_EXPIRED, ("A relay returns it to PENDING within a few seconds",))


# --- PUBLISHED, DEAD and gone ------------------------------------------------------------------------------------


@scene
async def published(box: Box, _: AsyncExitStack) -> Expected:
    await publish(box, event())
    await advance(box, hours=1, minutes=15)
    words = ("It was published 1 h 15 min ago by relay publisher, at attempt 1.", "before it is removed in 22 h 4")
    return Expected(Situation.PUBLISHED, words)


@scene
async def dead(box: Box, _: AsyncExitStack) -> Expected:
    await make_dead(box, event(), reason="HTTP 422: amount is missing")
    await advance(box, minutes=5)
    words = ("It has been DEAD for 5 min", "after 1 attempt, for this reason: HTTP 422: amount is missing.")
    return Expected(Situation.DEAD, words, ("redbox dead replay e",))


@scene
async def dead_and_blocking(box: Box, _: AsyncExitStack) -> Expected:
    await block_lines(box)
    await box.put_many([event(ordering_key="k"), event("second", ordering_key="k"), event("third", ordering_key="k")])
    await box.kill(await claim_one(box), reason="no")
    words = ("It has been DEAD", "It blocks the line of ordering key 'k': 2 events wait behind it")
    return Expected(Situation.DEAD, words, ("redbox dead replay e", "redbox dead drop e"))


@scene
async def dead_while_another_event_holds_its_unique_key(box: Box, _: AsyncExitStack) -> Expected:
    await make_dead(box, event(unique_key="u"))
    await box.put(event("other", unique_key="u"))
    words = ("It has been DEAD", "A replay is refused while event other holds its unique key 'u'")
    return Expected(Situation.DEAD, words, ("redbox why other", "redbox dead replay --force e"))


@scene
async def dead_while_a_tried_event_has_its_unique_key(box: Box, _: AsyncExitStack) -> Expected:
    """With the scope UNTOUCHED, an event that was tried does not hold the key until it is due again."""
    await make_dead(box, event(unique_key="u", unique_scope="UNTOUCHED"))
    claim = await put_and_claim(box, event("other", unique_key="u", unique_scope="UNTOUCHED"))
    await box.retry(claim, error="no", delay=99)
    return Expected(Situation.DEAD, ("Nothing more happens to it unless it is replayed.",), ("redbox dead replay e",))


@scene
async def superseded(box: Box, _: AsyncExitStack) -> Expected:
    await make_dead(box, event())
    number = (await box.get("e")).number  # type: ignore[union-attr]  # it exists
    await box._store.mark_event("superseded_by", [MarkItem("e", number, "corrected")])
    words = ("It is DEAD, and a patch has put event corrected instead of it.",)
    return Expected(Situation.SUPERSEDED, words, ("redbox why corrected",))


@scene
async def damaged(box: Box, _: AsyncExitStack) -> Expected:
    await make_dead(box, event())
    await box._store.exchange([("SET", keys.body(box.name, "e"), "nonsense")])
    words = ("It is damaged: event e cannot be read: its stored body is damaged.", "put it again from its source")
    return Expected(Situation.DAMAGED, words, ("redbox show e", "redbox doctor"))


@scene
async def lost(box: Box, _: AsyncExitStack) -> Expected:
    await box.put(event())
    await box._store.exchange([("UNLINK", keys.event(box.name, "e"), keys.body(box.name, "e"))])
    assert await box.claim("relay-1") == []
    await advance(box, milliseconds=1)
    words = ("Event e is lost: its id is stored without an event, found", "a repair restores what can be restored")
    return Expected(Situation.LOST, words, ("redbox doctor",))


@scene
async def lost_and_not_found_yet(box: Box, _: AsyncExitStack) -> Expected:
    await box.put(event())
    await box._store.exchange([("UNLINK", keys.event(box.name, "e"), keys.body(box.name, "e"))])
    return Expected(Situation.LOST, ("Event e is lost: its id is stored without an event, in the index 'pending'",))


@scene
async def removed(box: Box, _: AsyncExitStack) -> Expected:
    await make_dead(box, event(), event("f"))
    await box.operate.drop(["e", "f"], who="ada", why="a duplicate")
    await box.operate.configure(max_pending=9, **ADA)
    words = ("Event e was dropped", "ago by ada (a duplicate)")
    return Expected(Situation.REMOVED, words, ("redbox log",))


@scene
async def never_put(box: Box, _: AsyncExitStack) -> Expected:
    await box.put(event("another"))
    words = (
        "There is no event e in box",
        "it was never put here, or it was removed",
        "The operations log does not name it.",
    )
    return Expected(Situation.UNKNOWN, words, ("redbox list",))


@scene
async def replayed_and_gone(box: Box, _: AsyncExitStack) -> Expected:
    await make_dead(box, event())
    await box.replay(["e"], who="ada", why="again")
    await box.ack(await claim_one(box), delete=True)
    return Expected(Situation.UNKNOWN, ("The operations log names it last in the action replay",))


# --- lines and unique keys ---------------------------------------------------------------------------------------


@scene
async def line_with_a_dead_head(box: Box, stack: AsyncExitStack) -> Expected:
    await dead_and_blocking(box, stack)
    words = ("The head of its line is event e, and 2 events wait behind it.", "Event e has been DEAD", "It blocks")
    return Expected(Situation.DEAD, words, ("redbox dead replay e",), event_id=None, key="k")


@scene
async def line_without_events(box: Box, _: AsyncExitStack) -> Expected:
    await publish(box, event(ordering_key="k"))
    return Expected(Situation.EMPTY, ("its line is empty",), ("redbox list --key=k",), event_id=None, key="k")


@scene
async def unique_key_held(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    await box.retry(await put_and_claim(box, event(unique_key="invoice-3")), error="HTTP 503", delay=55)
    words = ("Event e holds it with the scope ALL_LIVE", "Event e waits for attempt 2, due in 5", "HTTP 503")
    return Expected(Situation.RETRY_SCHEDULED, words, event_id=None, unique_key="invoice-3")


@scene
async def unique_key_free(box: Box, _: AsyncExitStack) -> Expected:
    await publish(box, event(unique_key="invoice-3"))
    return Expected(Situation.EMPTY, ("No live event holds it",), event_id=None, unique_key="invoice-3")
