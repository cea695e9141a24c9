"""A relay under max_rate and max_in_flight of its box: it goes on, sends few commands, and decides its verdicts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from redbox import Backoff, Box, Claim, Event, Phase, Reject, Relay, State, Unavailable, keys
from redbox.errors import InvalidSetting, StoreUnavailable
from redbox.publishers.base import Publisher
from redbox.relay.outcomes.breaker import Breaker, Circuit
from redbox.testing import advance
from tests import servers
from tests.relay.steps import Target, drained, put, running, states, until
from tests.relay.test_breaker_in_relay import INVALID, brisk
from tests.relay.test_idle import calls

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("redbox_runner")]
ADA = {"who": "ada", "why": "test"}


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.redis_server() as running_server:
        yield running_server


async def limit(box: Box, **limits: Any) -> None:
    await box.operate.configure(**limits, **ADA)


async def in_flight(box: Box) -> int:
    return (await box.stats()).phases[Phase.IN_FLIGHT]


# --- it goes on ------------------------------------------------------------------------------------------------------


@pytest.mark.req("LM-2")
@pytest.mark.parametrize("most", [1, 3])
async def test_relays_publish_everything_and_never_more_at_once(redbox_box: Box, most: int):
    await put(redbox_box, 60)
    await limit(redbox_box, max_in_flight=most)
    target = Target()
    began = time.monotonic()
    async with running(*(Relay(redbox_box, target, poll=60) for _ in range(3))):  # woken by hints only
        await target.has_taken(60)
    assert target.most <= most
    assert time.monotonic() - began < 10
    assert await states(redbox_box) == {State.PUBLISHED: 60}


@pytest.mark.req("LM-2")
async def test_a_relay_that_misses_every_hint_goes_on(redbox_box: Box):
    await put(redbox_box, 5)
    await limit(redbox_box, max_in_flight=1)
    (held,) = await redbox_box.claim("relay-1")
    target = Target()
    async with running(Relay(redbox_box, target, poll=0.1)):
        await redbox_box._store.exchange([("HSET", keys.meta(redbox_box.name), "max_in_flight", "2")])  # without a hint
        await target.has_taken(4)
    assert held.event_id not in target.tried


@pytest.mark.req("LM-1")
async def test_a_drain_waits_for_the_rate(redbox_box: Box):
    await put(redbox_box, 5)
    await limit(redbox_box, max_rate="4/s", max_burst=1)
    target, began = Target(), time.monotonic()
    await drained(Relay(redbox_box, target))
    assert len(target.taken) == 5
    assert 0.95 < time.monotonic() - began < 5


@pytest.mark.req("LM-1")
async def test_a_drain_says_that_it_waits_for_the_rate(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "redbox.relay")
    await put(redbox_box, 2)
    await limit(redbox_box, max_rate="1/h")
    relay = Relay(redbox_box, Target())
    drain = asyncio.create_task(drained(relay))
    await until(lambda: "holds back due events" in caplog.text, "it does not say that it waits")
    relay.stop()
    await drain
    (record,) = [record for record in caplog.records if "holds back" in record.getMessage()]
    assert "the next claim is in 59 min" in record.getMessage() or "in 1 h" in record.getMessage()


@pytest.mark.req("LM-1", "LM-4")
async def test_a_drain_does_not_wait_for_a_retry_that_is_due_later(redbox_box: Box):
    """Without a limit it does not either."""
    await put(redbox_box, 1)
    await limit(redbox_box, max_rate="1/h")
    target = Target(raises=ValueError("x"))
    summary = await drained(Relay(redbox_box, target, backoff=Backoff.fixed(30)))
    assert (summary.retried, len(target.tried)) == (1, 1)


@pytest.mark.req("LM-1", "LM-4")
async def test_a_drain_waits_for_the_rate_of_a_retry_without_a_delay(redbox_box: Box):
    await put(redbox_box, 1)
    await limit(redbox_box, max_rate="10/s", max_burst=1)
    target = Target(raises=ValueError("x"))
    summary = await drained(Relay(redbox_box, target, backoff=Backoff.fixed(0), attempts=3, breaker=None))
    assert (summary.dead, len(target.tried)) == (1, 3)


@pytest.mark.req("LM-2", "LM-4")
async def test_a_drain_waits_for_the_places_of_a_relay_that_ended(redbox_box: Box):
    """Nobody else reaps its claims."""
    await put(redbox_box, 5)
    await limit(redbox_box, max_in_flight=2)
    await redbox_box.claim("ended", lease=1.0)
    target, began = Target(), time.monotonic()
    await drained(Relay(redbox_box, target, poll=0.2))
    assert sorted(target.taken) == ["e0", "e1", "e2", "e3", "e4"]
    assert 0.9 < time.monotonic() - began < 5


@pytest.mark.req("LM-4")
async def test_relays_go_on_when_the_leases_of_an_ended_relay_end(redbox_box: Box):
    await put(redbox_box, 10)
    await limit(redbox_box, max_in_flight=3)
    assert len(await redbox_box.claim("ended", lease=60.0)) == 3
    target = Target()
    async with running(Relay(redbox_box, target, poll=60, reap_every=0.05)):
        await asyncio.sleep(0.2)
        assert target.tried == []
        await advance(redbox_box, seconds=61)
        await target.has_taken(10)


# --- how few commands ------------------------------------------------------------------------------------------------


@pytest.mark.req("LM-1")
async def test_a_relay_at_the_rate_sends_few_commands(server: servers.Server):
    async with Box.open(server.url, name="rate") as box:
        await drained(Relay(box, Target()))
        await put(box, 30)
        await limit(box, max_rate="10/s")
        target = Target()
        async with running(Relay(box, target)):
            before, began = sum(calls(server).values()), time.monotonic()
            await target.has_taken(30)
            sent, waited = sum(calls(server).values()) - before, time.monotonic() - began
    print(f"30 events in {waited:.2f} s; {sent} commands")
    assert 2.5 < waited < 4.5
    assert sent < 150


@pytest.mark.req("LM-2")
async def test_relays_that_wait_for_a_place_do_not_poll(server: servers.Server):
    async with Box.open(server.url, name="full") as box:
        await drained(Relay(box, Target()))
        await put(box, 5)
        await limit(box, max_in_flight=1)
        await box.claim("other", lease=600)
        target = Target()
        async with running(*(Relay(box, target) for _ in range(3))):
            await asyncio.sleep(0.5)
            before = sum(calls(server).values())
            await asyncio.sleep(3)  # the time is what is measured
            sent = sum(calls(server).values()) - before
    print(f"{sent / 9:.2f} commands per second and relay")
    assert sent / 9 <= 3
    assert target.tried == []


# --- verdicts and the breaker ----------------------------------------------------------------------------------------


@pytest.mark.req("LM-4", "RF-4")
@pytest.mark.parametrize("most", [1, 2])
async def test_a_rejected_event_does_not_keep_its_place(redbox_box: Box, most: int):
    """Its verdict waits for another event to be published, and max_in_flight lets no other be claimed beside it."""
    await put(redbox_box, 20)
    await limit(redbox_box, max_in_flight=most)
    target = Target(raises=lambda event: INVALID if event.event_id in ("e0", "e1") else None)
    relay = Relay(redbox_box, target, backoff=Backoff.fixed(0.01))
    async with running(relay):
        await until(lambda: relay.summary().published == 18, "not all were published")
        await until(lambda: relay.summary().dead == 2, "they did not die")
    assert await states(redbox_box) == {State.PUBLISHED: 18, State.DEAD: 2}


@pytest.mark.req("LM-4", "RF-4")
@pytest.mark.parametrize("most", [1, 3])
async def test_a_target_that_rejects_everything(redbox_box: Box, most: int):
    await put(redbox_box, 60)
    await limit(redbox_box, max_in_flight=most)
    breaker = Breaker(pause=60, longest=60)
    relay = Relay(redbox_box, Target(raises=INVALID), breaker=breaker, backoff=Backoff.fixed(60))
    async with running(relay):
        await until(lambda: breaker.circuit is Circuit.OPEN, "the breaker does not open")
        assert relay.summary().dead == 0


@pytest.mark.req("LM-4", "RF-4")
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("error", [Unavailable("down"), INVALID, ValueError("x")], ids=["down", "rejects", "fails"])
async def test_a_target_that_comes_back(redbox_box: Box, most: int, error: Exception):
    await put(redbox_box, 60)
    await limit(redbox_box, max_in_flight=most)
    breaker = brisk(failures=5, rejections=5)
    target = Target(raises=error)
    relay = Relay(redbox_box, target, breaker=breaker, backoff=Backoff.fixed(0.01), attempts=None)
    async with running(relay):
        await until(lambda: breaker.opened > 3, "the breaker does not open")
        target.raises = None
        await until(lambda: relay.summary().published + relay.summary().dead == 60, "not all were settled")
    assert target.most <= most


@pytest.mark.req("LM-4", "RF-4")
async def test_two_relays_whose_verdicts_take_up_all_places(redbox_box: Box):
    await put(redbox_box, 20)
    await limit(redbox_box, max_in_flight=2)
    target = Target(raises=lambda event: Reject("bad") if int(event.event_id[1:]) % 2 else None)
    relays = [Relay(redbox_box, target, backoff=Backoff.fixed(0.01), batch=1) for _ in range(2)]
    async with running(*relays):
        await until(lambda: sum(each.summary().published for each in relays) == 10, "not all were published")
        await until(lambda: sum(each.summary().dead for each in relays) == 10, "not all died")


@pytest.mark.req("LM-4")
async def test_a_dead_letter_target_under_max_in_flight(redbox_box: Box):
    await put(redbox_box, 10)
    await limit(redbox_box, max_in_flight=1)
    dead = Target()
    relay = Relay(redbox_box, Target(raises=ValueError("x")), dead_to=dead, attempts=1, breaker=None)
    async with running(relay):
        await until(lambda: relay.summary().dead == 10, "they did not die")
    assert len(dead.taken) == 10


# --- the options of a relay ------------------------------------------------------------------------------------------


@pytest.mark.req("LM-1", "LM-2")
async def test_a_relay_writes_its_limits_into_the_box(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "redbox.relay")
    await drained(Relay(redbox_box, Target(), name="first", max_rate="600/m", max_in_flight=5))
    settings = await redbox_box.settings()
    assert (settings.max_rate, settings.max_burst, settings.max_in_flight) == ("600/min", None, 5)
    (entry,) = await redbox_box.operate.log()
    assert (entry.action, entry.who, entry.why) == ("configure", "first", "option of the relay")
    await drained(Relay(redbox_box, Target(), name="first", max_rate="600/min"))
    assert len(await redbox_box.operate.log()) == 1  # nothing has changed
    assert "it was" not in caplog.text
    await drained(Relay(redbox_box, Target(), name="other", max_rate="5/s"))
    settings = await redbox_box.settings()
    assert (settings.max_rate, settings.max_in_flight) == ("5/s", 5)
    assert "max_rate of box" in caplog.text
    assert "is now 5/s; it was 600/min, set by an operator or another relay" in caplog.text
    await drained(Relay(redbox_box, Target()))
    assert (await redbox_box.settings()).max_rate == "5/s"  # a relay without the option leaves it


@pytest.mark.req("LM-1")
async def test_a_relay_repairs_a_damaged_limit_that_it_was_given(redbox_box: Box):
    await put(redbox_box, 1)
    await redbox_box._store.exchange([("HSET", keys.meta(redbox_box.name), "max_rate", "x")])
    await drained(Relay(redbox_box, Target(), max_rate="5/s"))
    assert (await redbox_box.settings()).max_rate == "5/s"


@pytest.mark.req("LM-1", "LM-4")
async def test_nothing_is_claimed_before_the_limits_are_written(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    await put(redbox_box, 5)
    configure, failures = redbox_box.operate.configure, 2

    async def fails_at_first(**changes: Any) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            assert target.tried == []
            raise StoreUnavailable("the store does not answer")
        return await configure(**changes)

    monkeypatch.setattr(redbox_box.operate, "configure", fails_at_first)
    target = Target()
    async with running(Relay(redbox_box, target, max_in_flight=1)):
        await target.has_taken(5)
    assert failures == 0
    assert target.most == 1


@pytest.mark.req("LM-4")
@pytest.mark.parametrize("limits", [{}, {"max_rate": "5/s"}], ids=["plain", "limited"])
async def test_a_block_is_entered_while_the_store_is_down(limits: dict[str, Any], caplog: pytest.LogCaptureFixture):
    """As `run` does, the relay waits for the store. The application need not."""
    async with Box.open(f"redis://127.0.0.1:{servers.free_port()}/0", name="down") as box:
        relay = Relay(box, Target(), **limits)
        async with asyncio.timeout(5):
            async with relay:
                await until(lambda: "cannot be reached" in caplog.text, "it does not say that it waits")
                assert relay.running
        assert not relay.running


async def test_an_entry_that_is_cancelled_ends_at_once(redbox_box: Box):
    opening, opened = asyncio.Event(), asyncio.Event()

    class Slow(Publisher):
        target = "slow"  # type: ignore[assignment]  # a property of the base

        async def open(self, box: str) -> None:
            opening.set()
            await opened.wait()

        async def publish(self, claim: Claim) -> None: ...

    relay = Relay(redbox_box, Slow())
    entry = asyncio.create_task(relay.__aenter__())
    await asyncio.wait_for(opening.wait(), 5)
    entry.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(entry, 5)
    await until(lambda: not relay.running, "it did not end")
    opened.set()
    async with relay:  # and may be used again
        assert relay.running


@pytest.mark.parametrize("limits", [{"max_rate": "50"}, {"max_rate": 50}, {"max_in_flight": 0}, {"max_burst": -1}])
def test_invalid_limits_of_a_relay_are_refused(redbox_box: Box, limits: dict[str, Any]):
    with pytest.raises(InvalidSetting, match=next(iter(limits))):
        Relay(redbox_box, Target(), **limits)


async def test_a_limited_event_is_published_once(redbox_box: Box):
    await redbox_box.put(Event("n"))
    target = Target()
    summary = await drained(Relay(redbox_box, target, max_rate="1/d", max_in_flight=1))
    assert (summary.published, len(target.tried)) == (1, 1)
