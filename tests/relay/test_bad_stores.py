"""A store that goes away, or whose replies get lost: nothing is lost, and everything is delivered."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from urllib.parse import urlsplit

import pytest

from redbox import Backoff, Box, EmbeddedServerFailed, Event, Phase, Reject, Relay, State
from redbox.store.scripts.registry import load
from redbox.testing.plugin import new_box_name
from tests import servers
from tests.proxy import proxy
from tests.relay.steps import Target, put, running, states, until

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("redbox_runner")]
DURABLE = {"appendonly": "yes", "appendfsync": "always"}


@pytest.mark.req("PL-7", "DS-1")
@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_the_server_goes_away_under_a_relay(how: str):
    with servers.redis_server(**DURABLE) as server:
        async with Box.open(server.url, name="away") as box:
            await put(box, 300)
            delivered: list[str] = []

            async def publish(event: Event) -> None:
                await asyncio.sleep(random.uniform(0, 0.01))
                delivered.append(event.event_id)

            relay = Relay(box, publish, concurrency=10, lease=2.0, poll=0.2, reap_every=0.2)
            async with running(relay) as (task,):
                await until(lambda: len(delivered) > 50, "it does not publish")
                server.kill() if how == "kill" else await asyncio.to_thread(server.stop)
                count = len(delivered)
                await asyncio.to_thread(server.start)
                assert not task.done()

                async def all_published() -> bool:
                    return (await box.stats()).totals.get("published", 0) == 300

                await until(all_published, "not all were published")
                assert len(delivered) > count
                await box.put(Event("n", event_id="e999"))
                await until(lambda: "e999" in delivered, "it does not go on")
            assert len(set(delivered)) == 301
            assert await states(box) == {State.PUBLISHED: 301}


@pytest.mark.req("PL-7", "DS-1")
@pytest.mark.parametrize("script", ["claim", "ack", "renew", "retry", "kill"])
async def test_replies_get_lost(redis_url: str, script: str):
    """Each call is carried out, and its reply is lost."""
    port = urlsplit(redis_url).port
    assert port is not None
    failed: set[str] = set()
    target = Target()

    def misbehave(event: Event) -> Exception | None:
        if script == "kill":
            return Reject("bad")
        if script == "retry" and event.event_id not in failed:
            failed.add(event.event_id)
            return ValueError("the first time")
        return None

    target.raises = misbehave
    async with proxy(port) as between, Box.open(between.url, name=new_box_name()) as box:
        await put(box, 10)
        if script == "renew":
            target.gate.clear()
        relay = Relay(box, target, lease=0.6, poll=0.1, reap_every=0.1, backoff=Backoff.fixed(0.01), breaker=None)
        between.lose_reply_to(load(script, shebang=True).sha.encode(), times=2)
        async with running(relay):
            await until(lambda: between.lost >= (1 if script == "claim" else 2), "no reply was lost")
            target.gate.set()
            end = Phase.DEAD if script == "kill" else Phase.COMPLETED

            async def settled() -> bool:
                return (await box.stats()).phases[end] == 10

            await until(settled, "they were not settled")
        assert await states(box) == {State.DEAD if script == "kill" else State.PUBLISHED: 10}
        assert {*target.tried} == {f"e{number}" for number in range(10)}
        if script != "kill":
            assert {*target.taken} == {f"e{number}" for number in range(10)}


async def test_two_relays_of_one_name(box: Box, caplog: pytest.LogCaptureFixture):
    """A mistake that is logged; the fence holds all the same, since claim numbers never repeat."""
    await put(box, 100)
    first, second = Target(), Target()
    relays = [Relay(box, target, name="twin", concurrency=5, beat_every=0.05) for target in (first, second)]
    async with running(*relays):
        await until(lambda: len(first.taken) + len(second.taken) == 100, "not all were published")
        await until(lambda: "another relay named 'twin' is alive" in caplog.text, "nobody noticed")
    assert sum(relay.summary().published for relay in relays) == 100
    assert not set(first.taken) & set(second.taken)
    assert await states(box) == {State.PUBLISHED: 100}


async def test_an_embedded_server_that_fails_later_is_waited_for(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    """Only a failure at the start ends the relay, when somebody is there to read why."""
    claim, failures = redbox_box.claim_packed, 1

    async def failing(*args: Any, **options: Any) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise EmbeddedServerFailed("the embedded server did not start")
        return await claim(*args, **options)

    monkeypatch.setattr(redbox_box, "claim_packed", failing)
    with pytest.raises(EmbeddedServerFailed):
        await Relay(redbox_box, "null:").run()
    target = Target()
    async with running(Relay(redbox_box, target, poll=0.05)):
        await put(redbox_box, 1)
        await target.has_taken(1)
        failures = 3
        await redbox_box.put(Event("n"))
        await target.has_taken(2)
    assert failures == 0
