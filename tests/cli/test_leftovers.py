"""Each event that is left in a box is counted once."""

from __future__ import annotations

import pytest

from redbox import Box, Event, Phase
from redbox.cli.relay.leftovers import Leftovers, leftovers

UNSETTLED = (Phase.AVAILABLE, Phase.SCHEDULED, Phase.RETRY_SCHEDULED, Phase.IN_FLIGHT)


async def left_in(box: Box) -> Leftovers:
    stats = await box.stats()
    left = leftovers(stats)
    assert left.count == sum(stats.phases[phase] for phase in UNSETTLED)
    return left


@pytest.mark.req("RO-1")
async def test_an_event_in_back_off_behind_another_is_counted_once(redbox_box: Box):
    """A dead event was replayed with its attempts, while the next of its key is claimed."""
    await redbox_box.put(Event("a", ordering_key="k", event_id="e1"))
    await redbox_box.kill(await redbox_box.claim("r"), reason="bad")
    await redbox_box.put(Event("a", ordering_key="k", event_id="e2"))
    await redbox_box.claim("r")
    await redbox_box.replay(["e1"], reset=False, delay=600)
    left = await left_in(redbox_box)
    assert (left.in_back_off, left.in_flight, left.behind, left.available, left.scheduled) == (1, 1, 0, 0, 0)


@pytest.mark.req("RO-1", "LM-1")
async def test_a_limit_that_holds_events_back_is_named(redbox_box: Box):
    await redbox_box.operate.configure(max_rate="1/h", who="ada", why="test")
    await redbox_box.put_many([Event("a"), Event("a")])
    await redbox_box.claim("r", limit=1)
    left = await left_in(redbox_box)
    assert "1 available (held back by max_rate)" in left.in_words("")


@pytest.mark.req("RO-1")
async def test_scheduled_events_behind_another_are_scheduled(redbox_box: Box):
    await redbox_box.put_many([Event("a", ordering_key="k", delay=delay) for delay in (0, 600, 0, 0)])
    await redbox_box.put_many([Event("b"), Event("b", delay=60)])
    left = await left_in(redbox_box)
    assert (left.available, left.scheduled, left.behind) == (2, 2, 2)
    assert left.in_words("").startswith(
        "6 events are left: 2 scheduled, 2 behind the head of their ordering key, "
        "2 available (added or returned meanwhile); the next is due in "
    )
