"""The facts that explanations are made from: positions, heartbeats, failures."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from redbox import Box, Event, Reject, Relay
from redbox.store.scripts.registry import load
from redbox.testing import advance
from redbox.testing.conformance.operations.scenes.steps import alive, event, make_suspect, open_breaker, seen

pytestmark = pytest.mark.req("RO-4")


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


def test_the_script_only_reads():
    assert load("locate").text.startswith("#!lua flags=no-writes")
