"""Whole boxes."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack

from redbox import Box, Event, Relay, Situation
from redbox.testing import advance
from redbox.testing.conformance.operations.scenes.pending import suspect_behind_a_suspect
from redbox.testing.conformance.operations.scenes.settled import lost
from redbox.testing.conformance.operations.scenes.steps import (
    LIMIT,
    Expected,
    alive,
    block_lines,
    event,
    make_suspect,
    of_box,
    open_breaker,
    scene,
    seen,
)
from redbox.testing.conformance.operations.steps import ADA
from redbox.testing.conformance.steps import claim_one, expire, make_dead, publish, put_and_claim


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
async def box_whose_events_die(box: Box, _: AsyncExitStack) -> Expected:
    await publish(box, event("before"), event("too"))
    await make_dead(box, event("earlier"))
    await advance(box, seconds=30)
    await make_dead(box, event(), event("f"))
    await publish(box, event("g"))
    await advance(box, minutes=3)
    await alive(box, rate="0")
    words = ("In the last 3 min 10 s", "2 events became DEAD, and 1 was published.", "3 events are DEAD")
    return of_box(Situation.FAILING, *words, commands=("redbox dead list --by-error",))


@scene
async def box_whose_events_an_operator_killed(box: Box, _: AsyncExitStack) -> Expected:
    await box.put_many([event(), event("f"), event("g")])
    await alive(box, rate="0")
    await box.operate.kill(["e", "f"], **ADA)
    return of_box(Situation.FLOWING, "Nothing is stuck: 1 event is due", "Besides, 2 events are DEAD")


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
    await advance(box, hours=1)
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
    return of_box(Situation.BACKLOG, *words, commands=("redbox relay --to https://pay.example/", "redbox stats"))


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
    words = ("Nothing is stuck", "Besides, 2 ordering keys are paused: 'order-0' by ada (wrong amounts), 'order-1' by")
    return of_box(Situation.FLOWING, *words, commands=("redbox resume --key=order-0", "redbox resume --key=order-1"))


@scene
async def box_with_a_paused_ordering_key_beside_others_that_flow(box: Box, _: AsyncExitStack) -> Expected:
    await box.put_many([event(f"e{n}", ordering_key="k") for n in range(3)])
    await box.operate.pause(key="k", who="ada", why="wrong amounts")
    await publish(box, event("other"))
    await alive(box, rate="12")
    words = ("The other events flow: 0 events are due", "1 ordering key is paused; 3 events wait for it. It is 'k'")
    return of_box(Situation.FLOWING, *words, commands=("redbox resume --key=k",))


@scene
async def box_whose_relay_hangs(box: Box, _: AsyncExitStack) -> Expected:
    await box.put_many([event(f"e{n}") for n in range(20)])
    await advance(box, minutes=1)
    await alive(box, rate="0", in_flight="3")
    words = ("20 events are due", "3 events in flight, but published none", "the target is slow, or hangs")
    return of_box(Situation.STALLED, *words)


@scene
async def box_whose_relay_has_no_free_place(box: Box, stack: AsyncExitStack) -> Expected:
    """Its breaker may be open as well, but cannot close: no call is left to try the target."""
    release = threading.Event()
    relay = Relay(
        box, lambda _: release.wait(LIMIT), name="relay-1", concurrency=2, time_limit=0.05, grace=0.01, beat_every=0.05
    )
    await stack.enter_async_context(relay)
    stack.callback(release.set)
    await box.put_many([event(f"e{n}") for n in range(4)])
    await seen(box, lambda relay: relay.hanging == 2)
    words = ("Both places of relay relay-1, the only one alive, are taken by calls that hang", "Restart it")
    return of_box(Situation.STALLED, *words, commands=("redbox stats",))


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
    words = ("1 event is lost, and never delivered: e.",)
    return of_box(Situation.LOST, *words, commands=("redbox doctor", "redbox doctor --repair"))


@scene
async def box_of_suspects(box: Box, stack: AsyncExitStack) -> Expected:
    await suspect_behind_a_suspect(box, stack)
    return of_box(Situation.SUSPECT, "Event e is a suspect", "another suspect, event first")


@scene
async def box_whose_relay_is_crashed_again_and_again(box: Box, _: AsyncExitStack) -> Expected:
    """A supervisor restarts the relay at once, so the event is always claimed."""
    await make_suspect(box, "poison")
    await claim_one(box, "relay-3", lease=10)
    await expire(box)
    await claim_one(box, "relay-4", lease=60)
    await box.put(event("innocent"))
    await alive(box, "relay-4", rate="5")
    words = (
        "Event poison was held by 3 relays that died (3 expired leases in a row), by the last one alone",
        "and is claimed by relay relay-4",
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
        "Event e3 was held by 3 relays that died (3 expired leases in a row), by the last one alone: when a relay",
        "1 other event is a suspect too, and probably innocent",
    )
    return of_box(Situation.SUSPECT, *words, commands=("redbox kill e3",))


@scene
async def box_with_a_suspect_and_no_relay(box: Box, _: AsyncExitStack) -> Expected:
    await make_suspect(box)
    await advance(box, minutes=1)
    words = ("Event e was held by 2 relays that died", "or was only held together with the event that does")
    return of_box(Situation.SUSPECT, *words, commands=("redbox relay --to URL", "redbox why e"))


@scene
async def box_whose_culprit_was_killed(box: Box, _: AsyncExitStack) -> Expected:
    """The events that the culprit took with it have its history, and are not accused."""
    await box.put_many([event(f"e{n}") for n in range(3)])
    for _claim in range(2):
        assert len(await box.claim("relay-1", lease=10)) == 3
        await expire(box)
    await box.operate.kill(["e1"], **ADA)
    words = ("2 events, such as e0, were held by 2 relays that died", "relays claim a suspect alone")
    return of_box(Situation.SUSPECT, *words, commands=("redbox relay --to URL", "redbox why e0"))
