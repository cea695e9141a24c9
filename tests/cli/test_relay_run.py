"""How a run of relays, or of a service without relays, ends."""

from __future__ import annotations

import gc
import logging
import signal

import pytest

from redbox import Box, Event, Relay
from redbox.cli.relay.run import RelayRun

pytestmark = [pytest.mark.req("PL-7"), pytest.mark.usefixtures("redbox_runner")]


async def publish(event: Event) -> None:
    pass


@pytest.mark.parametrize("relays", [0, 1])
async def test_an_end_that_takes_too_long_says_what_it_waited_for(
    redbox_box: Box, relays: int, caplog: pytest.LogCaptureFixture
):
    run = RelayRun([Relay(redbox_box, publish) for _ in range(relays)], [""] * relays)
    with caplog.at_level(logging.INFO):
        run._stop(signal.SIGTERM)
    words = run._deadline().last_words
    assert ("publish" in words, "events being published" in caplog.text) == (bool(relays), bool(relays))
    assert "within 0 s" not in words


async def test_garbage_collections_leave_out_what_stays(redbox_box: Box):
    """A full one of all modules stops the event loop for about 50 ms."""
    during = []

    async def look(event: Event) -> None:
        during.append(gc.get_freeze_count())

    await redbox_box.put(Event("n"))
    gc.unfreeze()
    await RelayRun([Relay(redbox_box, look)], [""], once=True).run()
    assert during[0] > 10_000
