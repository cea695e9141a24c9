"""Why an event, a line, a unique key or a box waits: each situation is made for real."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest

from redbox import Box, Breaker, Event, Reject, Relay, Situation, Unavailable, UsageError, keys
from redbox.store.items import MarkItem
from redbox.store.scripts import load
from redbox.testing import advance
from redbox.testing.conformance.operations.steps import ADA
from redbox.testing.conformance.steps import claim_one, contents, expire, make_dead, publish, put_and_claim

LIMIT: Final = 15.0
pytestmark = pytest.mark.req("RO-4")


class Expected(msgspec.Struct):
    """An explanation: its situation, words of its sentences, and the beginnings of its commands."""

    situation: Situation
    words: tuple[str, ...]
    commands: tuple[str, ...] = ()
    event_id: str | None = "e"
    key: str | None = None
    unique_key: str | None = None


Scene = Callable[[Box, AsyncExitStack], Awaitable[Expected]]
SCENES: Final[dict[str, Scene]] = {}


def scene(make: Scene) -> Scene:
    SCENES[getattr(make, "__name__", "")] = make
    return make


def event(event_id: str = "e", **fields: Any) -> Event:
    return Event("order.paid", event_id=event_id, **fields)


async def alive(box: Box, name: str = "relay-1", **about: str) -> None:
    """A heartbeat, as a relay of this name would send it."""
    await box.beat(name, "1", {"host": "web-1", "target": "https://pay.example/", **about}, fresh=10)


async def seen(box: Box, condition: Callable[[Any], bool]) -> None:
    """Waits until the heartbeat of the only relay meets the condition."""
    async with asyncio.timeout(LIMIT):
        while not any(condition(relay) for relay in (await box.stats()).relays):  # noqa: ASYNC110  # in the store
            await asyncio.sleep(0.01)


async def block_lines(box: Box) -> None:
    await box.operate.configure(dead_head="block", **ADA)


# --- PENDING -----------------------------------------------------------------------------------------------------


@scene
async def scheduled(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    await box.put(event(delay=570))
    await advance(box, seconds=60)
    await alive(box)
    words = ("It is scheduled: it is due in 8 min ", "and was put 1 min ", "Then a relay claims it.")
    return Expected(Situation.SCHEDULED, words, ("redbox reschedule e",))


@scene
async def scheduled_in_a_paused_box(box: Box, _: AsyncExitStack) -> Expected:
    await box.put(event(delay=590))
    await box.operate.pause(who="ada", why="the provider is down")
    words = ("it is due in 9 min", "But the box was paused", "by ada (the provider is down)", "until it is resumed")
    return Expected(Situation.SCHEDULED, words, ("redbox resume", "redbox reschedule e"))


@scene
async def waiting_behind_a_retry(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    await box.put_many([event("head", ordering_key="order-7"), event(ordering_key="order-7")])
    await box.retry(await claim_one(box), error="HTTP 503", delay=90)
    return Expected(
        Situation.WAITING,
        (
            "It waits behind event head, the head of the line of ordering key 'order-7', as number 2 of 2.",
            "Event head waits for attempt 2, due in 1 min",
            "attempt 1 failed",
            "with: HTTP 503.",
        ),
        ("redbox reschedule head",),
    )


@scene
async def waiting_behind_a_claimed_head(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    await box.put_many([event(each, ordering_key="k") for each in ("head", "second", "e")])
    await claim_one(box)
    words = ("as number 3 of 3", "Event head was claimed by relay relay-1", "That relay is alive")
    return Expected(Situation.WAITING, words, ("redbox release head",))


@scene
async def waiting_behind_a_dead_head_and_due_later(box: Box, _: AsyncExitStack) -> Expected:
    await block_lines(box)
    await box.put_many([event("head", ordering_key="k"), event(ordering_key="k", delay=55)])
    await box.kill(await claim_one(box), reason="HTTP 422")
    words = (
        "Event head has been DEAD",
        "HTTP 422",
        "It blocks the line",
        "1 event waits behind it",
        "It itself is due in 5",
    )
    return Expected(Situation.WAITING, words, ("redbox dead replay head", "redbox dead drop head"))


@scene
async def retry_scheduled(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    claim = await put_and_claim(box, event())
    await box.retry(claim, error="HTTP 503", delay=0)
    await advance(box, milliseconds=1)
    await box.retry(await claim_one(box), error="timeout after 30 s", delay=55)
    words = ("It waits for attempt 3, due in 5", "attempt 2 failed", "with: timeout after 30 s.")
    return Expected(Situation.RETRY_SCHEDULED, words, ("redbox reschedule e",))


@scene
async def queued(box: Box, _: AsyncExitStack) -> Expected:
    await box.put_many([event(f"before-{n}") for n in range(3)])
    await advance(box, milliseconds=5)
    await box.put_many([event(), event("f")])
    await advance(box, seconds=3)
    await alive(box, rate="1.5")
    words = ("It has been due for 3", "3 events are before it.", "1 relay is alive", "1.5 events/s", "in about 2 s")
    return Expected(Situation.QUEUED, words, ("redbox stats",))


@scene
async def queued_after_a_failure(box: Box, _: AsyncExitStack) -> Expected:
    await box.retry(await put_and_claim(box, event()), error="HTTP 500", delay=0)
    await advance(box, seconds=1)
    await alive(box)
    words = ("no event is before it", "as soon as it has a free worker", "Before, attempt 1 failed", "HTTP 500")
    return Expected(Situation.QUEUED, words)


async def make_suspect(box: Box, event_id: str = "e") -> None:
    await box.put(event(event_id))
    for _ in range(2):
        (claim,) = await box.claim("relay-1", limit=1, lease=10)
        assert claim.event_id == event_id
        await expire(box)


@scene
async def suspect(box: Box, _: AsyncExitStack) -> Expected:
    await make_suspect(box)
    await alive(box)
    words = ("It is a suspect: 2 leases in a row expired", "a relay claims it alone", "when it is the oldest due event")
    return Expected(Situation.SUSPECT, words, ("redbox show e", "redbox kill e"))


@scene
async def suspect_behind_a_suspect(box: Box, _: AsyncExitStack) -> Expected:
    await make_suspect(box, "first")
    await claim_one(box, "relay-9", lease=3600)
    await box.put(event())
    for _expiry in range(2):
        assert [claim.event_id for claim in await box.claim("relay-1", limit=1, lease=10)] == ["e"]
        await advance(box, minutes=10)
        await box.reap()
    await alive(box)
    words = (
        "It is a suspect",
        "waits until another suspect, event first, which is claimed by relay relay-9, is settled",
    )
    return Expected(Situation.SUSPECT, words)


# --- obstacles ---------------------------------------------------------------------------------------------------


@scene
async def paused(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    await box.put(event())
    await box.operate.pause(who="ada", why="the provider is down")
    words = ("no relay claims it", "The box was paused", "ago by ada (the provider is down): no event is claimed")
    return Expected(Situation.PAUSED, words, ("redbox resume",))


@scene
async def no_relay(box: Box, _: AsyncExitStack) -> Expected:
    await box.put(event())
    await alive(box)
    await advance(box, minutes=3)
    words = ("It has been due for 3 min", "No relay is alive: the last heartbeat came 3 min ", "relay-1 on web-1")
    return Expected(Situation.NO_RELAY, words, ("redbox relay --to URL",))


@scene
async def no_relay_ever(box: Box, _: AsyncExitStack) -> Expected:
    await box.put(event())
    return Expected(Situation.NO_RELAY, ("No relay is running: none is registered",), ("redbox relay --to URL",))


@scene
async def no_relay_after_one_has_stopped(box: Box, _: AsyncExitStack) -> Expected:
    async def take(_: Event) -> None: ...

    async with Relay(box, take, beat_every=0.05):
        await seen(box, lambda relay: relay.alive)
    await box.put(event())
    words = ("No relay is running: none is registered; a relay that stops in order leaves no heartbeat.",)
    return Expected(Situation.NO_RELAY, words, ("redbox relay --to URL",))


async def open_breaker(box: Box, stack: AsyncExitStack) -> None:
    """Runs a relay whose target is down, until its breaker is open."""

    async def down(_: Event) -> None:
        raise Unavailable("connection refused")

    breaker = Breaker(unavailable=2, pause=60, longest=60)
    await stack.enter_async_context(Relay(box, down, name="relay-1", breaker=breaker, beat_every=0.05))
    await box.put_many([event(f"tried-{n}") for n in range(9)])
    await seen(box, lambda relay: relay.breaker == "open")


@scene
async def breaker_open(box: Box, stack: AsyncExitStack) -> Expected:
    await open_breaker(box, stack)
    await box.put(event())
    words = (
        "It has been due for",
        "The breaker of relay relay-1, the only one alive, has been open for",
        "the target was unavailable 2 times in a row: connection refused.",
    )
    return Expected(Situation.BREAKER_OPEN, words, ("redbox stats",))


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
    return Expected(Situation.CLAIMED, words, ("redbox kill e", "redbox release e"))


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
    words = ("Event e is lost: its id is stored without an event, found", "It is never delivered")
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


# --- the box -----------------------------------------------------------------------------------------------------


def of_box(situation: Situation, *words: str, commands: tuple[str, ...] = ()) -> Expected:
    return Expected(situation, words, commands, event_id=None)


@scene
async def box_that_is_idle(box: Box, _: AsyncExitStack) -> Expected:
    await publish(box, event())
    await alive(box, rate="0")
    return of_box(
        Situation.FLOWING,
        "Nothing is stuck: no event is pending or claimed.",
        "1 relay is alive; 1 event was published so far.",
    )


@scene
async def box_with_a_running_relay(box: Box, stack: AsyncExitStack) -> Expected:
    done = asyncio.Event()

    async def take(_: Event) -> None:
        done.set()

    await stack.enter_async_context(Relay(box, take, beat_every=0.05))
    await box.put(event())
    async with asyncio.timeout(LIMIT):
        await done.wait()
    await seen(box, lambda relay: relay.published == 1)
    return of_box(Situation.FLOWING, "Nothing is stuck", "1 relay is alive")


@scene
async def box_with_dead_events(box: Box, _: AsyncExitStack) -> Expected:
    await make_dead(box, event(), event("f"))
    await advance(box, hours=2)
    await alive(box)
    words = ("Nothing is stuck", "Besides, 2 events are DEAD, the oldest for 2 h")
    return of_box(Situation.FLOWING, *words, commands=("redbox dead list --by-error",))


@scene
async def box_that_is_paused(box: Box, _: AsyncExitStack) -> Expected:
    await box.put_many([event(), event("f")])
    await box.operate.pause(who="ada", why="the provider is down")
    words = ("The box was paused", "by ada (the provider is down)", "2 events wait until then.")
    return of_box(Situation.PAUSED, *words, commands=("redbox resume",))


@scene
async def box_without_a_relay(box: Box, _: AsyncExitStack) -> Expected:
    await put_and_claim(box, event(), lease=10)
    await box.put_many([event("f"), event("g")])
    await advance(box, minutes=3)
    words = (
        "No relay is running",
        "Meanwhile 2 events are due, the oldest for 3 min",
        "and 1 claim has expired, held by relay ",
    )
    return of_box(Situation.NO_RELAY, *words, commands=("redbox relay --to URL", "redbox reap"))


@scene
async def box_with_an_open_breaker(box: Box, stack: AsyncExitStack) -> Expected:
    await open_breaker(box, stack)
    words = ("The breaker of relay relay-1", "connection refused.")
    return of_box(Situation.BREAKER_OPEN, *words, commands=("redbox stats",))


@scene
async def box_whose_leases_expired(box: Box, _: AsyncExitStack) -> Expected:
    await box.put_many([event(), event("f")])
    await box.claim("relay-1", lease=10)
    await advance(box, minutes=2)
    await alive(box)
    words = ("2 claims have expired, the first one held by relay relay-1, 1 min 5", "run without a reaper")
    return of_box(Situation.LEASE_EXPIRED, *words, commands=("redbox reap",))


@scene
async def box_whose_relay_fails(box: Box, stack: AsyncExitStack) -> Expected:
    async def fail(_: Event) -> None:
        raise ValueError("no such host")

    await stack.enter_async_context(Relay(box, fail, name="relay-1", beat_every=0.05))
    await box.put_many([event(f"e{n}") for n in range(4)])
    await seen(box, lambda relay: relay.failures_in_row >= 4)
    words = ("attempts of relay relay-1 failed, the latest with: ValueError: no such host.", "the only relay alive")
    return of_box(Situation.FAILING, *words, commands=("redbox list --state pending",))


@scene
async def box_with_blocked_lines(box: Box, _: AsyncExitStack) -> Expected:
    await block_lines(box)
    for line in ("k", "l"):
        await box.put_many([event(f"{line}{n}", ordering_key=line) for n in range(3)])
    await box.kill(await box.claim("relay-1"), reason="HTTP 422")
    await alive(box)
    words = (
        "4 due events wait behind the heads of their lines, and 2 ordering keys are blocked by a DEAD event.",
        "Event k0 has been DEAD",
        "HTTP 422",
        "Besides, 2 events are DEAD",
    )
    return of_box(Situation.BLOCKED, *words, commands=("redbox dead replay k0", "redbox dead drop k0"))


@scene
async def box_with_a_blocked_line_after_failures(box: Box, _: AsyncExitStack) -> Expected:
    await block_lines(box)
    await box.put_many([event(f"k{n}", ordering_key="k") for n in range(3)])
    await box.kill(await box.claim("relay-1"), reason="HTTP 422")
    await alive(box, rate="0", failures_in_row="5", last_error="HTTP 422")
    return of_box(Situation.BLOCKED, "1 ordering key is blocked by a DEAD event", "Event k0 has been DEAD")


@scene
async def box_with_a_blocked_line_that_nothing_waits_for(box: Box, _: AsyncExitStack) -> Expected:
    await block_lines(box)
    await make_dead(box, event(ordering_key="k"))
    await alive(box)
    words = ("Nothing is stuck", "Besides, 1 event is DEAD", "1 ordering key is blocked by a DEAD event.")
    return of_box(Situation.FLOWING, *words, commands=("redbox dead list --by-error", "redbox why e"))


@scene
async def box_that_waits_for_a_retry_of_a_head(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    await box.put_many([event("head", ordering_key="k"), event(ordering_key="k")])
    await box.retry(await claim_one(box), error="HTTP 503", delay=55)
    words = ("1 due event waits behind the head of its line", "event head", "attempt 1 failed", "HTTP 503")
    return of_box(Situation.WAITING, *words, commands=("redbox reschedule head",))


@scene
async def box_with_scheduled_events_only(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    await box.put_many([event(delay=55), event("f", delay=3600)])
    words = ("No event is due: 2 events wait for their time; the next one is due in 5",)
    return of_box(Situation.SCHEDULED, *words, commands=("redbox why e",))


@scene
async def box_with_retries_only(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    await box.retry(await put_and_claim(box, event()), error="HTTP 503", delay=55)
    return of_box(Situation.RETRY_SCHEDULED, "1 event waits for its time (1 for a retry)", commands=("redbox why e",))


@scene
async def box_with_scheduled_events_and_no_relay(box: Box, _: AsyncExitStack) -> Expected:
    await box.put(event(delay=55))
    words = ("No event is due: 1 event waits for its time", "No relay is running")
    return of_box(Situation.SCHEDULED, *words, commands=("redbox relay --to URL",))


@scene
async def box_with_a_backlog(box: Box, _: AsyncExitStack) -> Expected:
    await box.put_many([event(f"e{n}") for n in range(20)])
    await advance(box, minutes=1)
    await alive(box, rate="2", in_flight="3")
    words = ("20 events are due, the oldest for 1 min", "published 2 events/s", "the backlog takes 10 s")
    return of_box(Situation.BACKLOG, *words, commands=("redbox relay --to URL", "redbox stats"))


@scene
async def box_with_a_backlog_in_lines(box: Box, _: AsyncExitStack) -> Expected:
    await box.put_many([event(f"e{n}", ordering_key="k") for n in range(20)])
    await advance(box, minutes=1)
    await alive(box, rate="2", in_flight="3")
    words = ("1 event is due, the oldest for 1 min", "and 19 more due events wait in lines", "the backlog takes 10 s")
    return of_box(Situation.BACKLOG, *words)


@scene
async def box_with_paused_ordering_keys(box: Box, _: AsyncExitStack) -> Expected:
    await alive(box)
    for number in range(2):
        await box.operate.pause(key=f"order-{number}", duration=600 + number, who="ada", why="wrong amounts")
    words = ("Nothing is stuck", "Besides, 2 ordering keys are paused, such as 'order-0' by ada (wrong amounts).")
    return of_box(Situation.FLOWING, *words, commands=("redbox resume --key=order-0",))


@scene
async def box_whose_relay_hangs(box: Box, _: AsyncExitStack) -> Expected:
    await box.put_many([event(f"e{n}") for n in range(20)])
    await advance(box, minutes=1)
    await alive(box, rate="0", in_flight="3")
    words = ("20 events are due", "3 events in flight, but published none", "the target is slow, or hangs")
    return of_box(Situation.STALLED, *words)


@scene
async def box_that_is_full(box: Box, _: AsyncExitStack) -> Expected:
    await box.operate.configure(max_pending=2, **ADA)
    await box.put_many([event(), event("f")])
    await alive(box, rate="5")
    return of_box(Situation.BOX_FULL, "it holds 2 pending events, and max_pending is 2, so puts are refused")


@scene
async def box_with_lost_events(box: Box, stack: AsyncExitStack) -> Expected:
    await lost(box, stack)
    await alive(box)
    words = ("1 event is lost, and never delivered: e.", "All other events flow.")
    return of_box(Situation.LOST, *words, commands=("redbox doctor",))


@scene
async def box_of_suspects(box: Box, stack: AsyncExitStack) -> Expected:
    await suspect_behind_a_suspect(box, stack)
    return of_box(Situation.SUSPECT, "Event e is a suspect", "another suspect, event first")


@scene
async def box_whose_relay_is_crashed_again_and_again(box: Box, _: AsyncExitStack) -> Expected:
    """A supervisor restarts the relay at once, so the event is always claimed."""
    await make_suspect(box, "poison")
    await claim_one(box, "relay-3", lease=60)
    await box.put(event("innocent"))
    await alive(box, "relay-3", rate="5")
    words = (
        "Event poison was held by 2 relays that died (2 expired leases in a row), and is claimed by relay relay-3",
        "the next crash is likely",
    )
    return of_box(Situation.SUSPECT, *words, commands=("redbox kill poison", "redbox why poison"))


@scene
async def box_whose_suspects_are_mostly_innocent(box: Box, _: AsyncExitStack) -> Expected:
    await box.put_many([event(f"e{n}") for n in range(5)])
    for _claim in range(2):
        assert len(await box.claim("relay-1", lease=10)) == 5
        await expire(box)
    await advance(box, milliseconds=1)
    while (claim := await claim_one(box, lease=10)).event_id != "e3":
        await box.ack(claim)
    await expire(box)
    await alive(box)
    words = (
        "Event e3 was held by 3 relays that died (3 expired leases in a row): when a relay claims it",
        "1 other event is a suspect too, and probably innocent",
    )
    return of_box(Situation.SUSPECT, *words, commands=("redbox kill e3",))


@scene
async def box_with_a_suspect_and_no_relay(box: Box, _: AsyncExitStack) -> Expected:
    await make_suspect(box)
    await advance(box, minutes=1)
    return of_box(Situation.NO_RELAY, "Event e was held by 2 relays that died", commands=("redbox kill e",))


@pytest.mark.parametrize("name", SCENES)
async def test_why(box: Box, name: str):
    async with AsyncExitStack() as stack:
        expected = await SCENES[name](box, stack)
        found = await box.why(expected.event_id, key=expected.key, unique_key=expected.unique_key)
    text = "\n".join(found.sentences)
    assert found.situation is expected.situation, text
    for words in expected.words:
        assert words in text
    commands = [step.command() for step in found.next_steps]
    for start in expected.commands:
        assert any(command.startswith(start) for command in commands), commands
    assert found.found is (expected.event_id is None or await box.get(expected.event_id) is not None)
    assert found.evidence
    msgspec.json.encode(found)  # for --json and for other services


async def test_why_changes_nothing(box: Box):
    await dead_and_blocking(box, AsyncExitStack())
    before = await contents(box)
    for about in ({"event_id": "e"}, {"event_id": "gone"}, {"key": "k"}, {"unique_key": "u"}, {}):
        await box.why(**about)
    assert await contents(box) == before


async def test_why_takes_one_subject(box: Box):
    for about in ({"event_id": "e", "key": "k"}, {"key": "k", "unique_key": "u"}):
        with pytest.raises(UsageError, match="one at a time"):
            await box.why(**about)
    for name in ("event_id", "key", "unique_key"):
        with pytest.raises(UsageError, match=f"{name} must not be empty"):
            await box.why(**{name: ""})
        with pytest.raises(UsageError, match=name):
            await box.why(**{name: 7})  # type: ignore[arg-type]  # the wrong type


async def test_why_of_an_empty_box(box: Box):
    assert (await box.why()).situation is Situation.FLOWING
    assert (await box.why("e")).situation is Situation.UNKNOWN


async def test_stored_text_is_escaped_and_bounded(box: Box):
    """It reaches a terminal: ESC, a bidirectional override, and a long error."""
    await make_dead(box, event(ordering_key="k"), reason="\x1b[31m\u202e" + "x" * 2000)
    text = "\n".join((await box.why("e")).sentences)
    assert "\\x1b[31m\\u202exxx" in text
    assert "\x1b" not in text
    assert len(text) < 600


async def test_an_id_that_looks_like_an_option(box: Box):
    await make_dead(box, event("--all"))
    (step,) = (await box.why("--all")).next_steps
    assert step.command(("--box", "my orders")) == "redbox --box 'my orders' dead replay -- --all"


async def test_why_of_many_damages(box: Box):
    """Damage never makes the explanation fail."""
    await box.put_many([event(each, ordering_key="k", unique_key=f"u-{each}") for each in ("a", "b", "c")])
    for command in (
        ("HSET", keys.event(box.name, "a"), "available_at", "x", "attempts", "y"),
        ("UNLINK", keys.line(box.name, "k")),
        ("HDEL", keys.event(box.name, "b"), "ordering_key"),
        ("ZADD", keys.waiting(box.name), "+inf", "b"),
        ("HSET", keys.event(box.name, "c"), "state", "GONE"),
        ("UNLINK", keys.event(box.name, "a")),
        ("ZADD", keys.line(box.name, "k"), 1, "no-such-event"),
        ("ZADD", keys.claimed(box.name), 1, "no-such-event"),
    ):
        await box._store.exchange([command])
        for each in ("a", "b", "c", "no-such-event"):
            assert (await box.why(each)).sentences
            assert (await box.why(unique_key=f"u-{each}")).sentences
        assert (await box.why(key="k")).sentences
        assert (await box.why()).sentences


async def test_a_published_event_has_no_next_step(box: Box):
    """`redbox dead replay` refuses it."""
    await publish(box, event())
    assert (await box.why("e")).next_steps == ()


async def test_a_dead_head_is_not_counted_twice(box: Box):
    await box_with_a_blocked_line_after_failures(box, AsyncExitStack())
    found = await box.why()
    assert "Besides" not in "\n".join(found.sentences)
    assert [step.command() for step in found.next_steps] == ["redbox dead replay k0", "redbox dead drop k0"]


async def test_the_pause_of_one_of_many_paused_keys(box: Box):
    """Its end comes after that of 1,000 others."""
    await box.put(event(ordering_key="k"))
    await box.operate.pause(key="k", who="ada", why="wrong amounts")
    far = await box._store.time() + 3_600_000
    others = [part for number in range(1000) for part in (far, f"other-{number}")]
    await box._store.exchange([("ZADD", keys.paused(box.name), *others)])
    assert "by ada (wrong amounts)" in "\n".join((await box.why("e")).sentences)


async def test_crossed_lines(box: Box):
    """Each of two events is the head of the other one's line: a head is explained once."""
    await box.put_many([event(each, ordering_key=f"key-{each}") for each in ("a", "b")])
    for mine, other in (("a", "b"), ("b", "a")):
        await box._store.exchange([("ZADD", keys.line(box.name, f"key-{mine}"), 0, other)])
        await box._store.exchange([("ZREM", keys.pending(box.name), mine)])
        await box._store.exchange([("ZADD", keys.waiting(box.name), 1, mine)])
    found = await box.why("a")
    assert found.situation is Situation.WAITING
    assert [sentence.partition(",")[0] for sentence in found.sentences] == [
        "It waits behind event b",
        "Event b waits behind event a",
    ]
    assert [step.command() for step in found.next_steps] == ["redbox doctor"]
    await box.why(key="key-a")
    await box.why()


async def test_the_position_among_events_of_the_same_time(box: Box):
    """The order of claims: by time, then by id."""
    ids = [f"e{n:02}" for n in range(20)]
    await box.put_many([event(each) for each in ids])
    assert [(await box._store.locate("event", each)).sightings[0].before for each in ids] == [*range(20)]
    assert [claim.event_id for claim in await box.claim("relay-1")] == ids


async def test_a_relay_reports_what_an_explanation_needs(box: Box):
    """How long the breaker is open, failures and the last error; an older relay reports none of it."""
    await alive(box, "older")
    async with AsyncExitStack() as stack:
        await open_breaker(box, stack)
        await advance(box, seconds=5)
        relays = {relay.name: relay for relay in (await box.stats()).relays}
    older, newer = relays["older"], relays["relay-1"]
    assert (older.breaker_since, older.failed, older.last_error, older.rate) == (None, 0, "", None)
    assert newer.breaker_open
    assert newer.breaker_since is not None
    assert newer.breaker_since >= newer.seen
    assert newer.breaker_since < timedelta(minutes=5)
    assert older.next_probe is None
    assert newer.next_probe is not None
    assert newer.failed >= 2
    assert newer.failures_in_row == newer.failed
    assert newer.last_error == "connection refused"


async def test_a_success_ends_a_row_of_failures(box: Box):
    async def take(published: Event) -> None:
        if published.event_id != "good":
            raise Reject("no")

    async with Relay(box, take, beat_every=0.05):
        await box.put(event("bad"))
        await seen(box, lambda relay: relay.failures_in_row == 1)
        await box.put(event("good"))
        await seen(box, lambda relay: relay.published == 1)
        (relay,) = (await box.stats()).relays
    assert (relay.failed, relay.failures_in_row, relay.last_error) == (1, 0, "no")


async def test_a_suspect_is_claimed_before_ordinary_events(box: Box):
    await make_suspect(box, "suspect")
    await advance(box, milliseconds=5)
    await box.put_many([event("first"), event("second")])
    before = {
        each: (await box._store.locate("event", each)).sightings[0].before for each in ("suspect", "first", "second")
    }
    assert before == {"suspect": 0, "first": 1, "second": 2}


async def test_a_dead_event_that_left_its_line_blocks_nothing(box: Box):
    await box.put_many([event(each, ordering_key="k") for each in ("e", "f")])
    await box.kill(await claim_one(box), reason="no")
    assert "It blocks" not in "".join((await box.why("e")).sentences)


async def test_a_part_of_an_event_that_is_in_no_index_is_lost(box: Box):
    await box.put(event())
    await box._store.exchange([("ZREM", keys.pending(box.name), "e")])
    found = await box.why("e")
    assert found.situation is Situation.LOST
    assert found.sentences[0] == "Event e is lost: only a part of it is stored, in no index."
    assert found.found


def test_the_script_only_reads():
    assert load("locate").text.startswith("#!lua flags=no-writes")
