"""Events that are PENDING, and what keeps relays from claiming them."""

from __future__ import annotations

from contextlib import AsyncExitStack

from redbox import Box, Event, Relay, Situation
from redbox.testing import advance
from redbox.testing.conformance.operations.scenes.steps import (
    Expected,
    alive,
    block_lines,
    event,
    make_suspect,
    open_breaker,
    scene,
    seen,
)
from redbox.testing.conformance.steps import claim_one, put_and_claim

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


@scene
async def suspect(box: Box, _: AsyncExitStack) -> Expected:
    await make_suspect(box)
    await alive(box)
    words = ("It is a suspect: 2 leases in a row expired", "a relay claims it alone", "when it is the oldest due event")
    return Expected(Situation.SUSPECT, words, ("redbox show e",))


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
    words = ("It has been due for 3 min", "No relay is alive: relay relay-1 on web-1 has been silent for 3 min")
    return Expected(Situation.NO_RELAY, words, ("redbox relay --to https://pay.example/",))


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
    words = ("No relay is running: none is registered. A relay that was stopped gracefully is not listed.",)
    return Expected(Situation.NO_RELAY, words, ("redbox relay --to URL",))


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
