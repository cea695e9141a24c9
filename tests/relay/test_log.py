"""The log of a relay about events that fail or are marked DEAD."""

from __future__ import annotations

import logging
import re
from collections import Counter

import pytest

from redbox import Backoff, Box, Event, Reject, Relay, StoreUnavailable
from tests.relay.steps import Target, drained, put, running, until

pytestmark = pytest.mark.timeout(60)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.req("RO-5")
async def test_the_first_failure_is_written_at_once_with_its_reason(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    await put(redbox_box, 1)
    relay = Relay(redbox_box, Target(raises=ValueError("HTTP 500: no such table")), backoff=Backoff.fixed(60))
    async with running(relay):
        await until(lambda: relay.summary().retried == 1, "it did not fail")
        assert lines(caplog) == ["event e0 failed (attempt 1 of 10): ValueError: HTTP 500: no such table"]
    assert len(lines(caplog)) == 1


@pytest.mark.req("RO-5")
async def test_many_failures_of_one_kind_are_two_lines(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    await put(redbox_box, 200)
    target = Target(raises=lambda event: ValueError(f"no row for {event.event_id}"))
    await drained(Relay(redbox_box, target, backoff=Backoff.fixed(60), attempts=None, breaker=None))
    first, summary = lines(caplog)
    assert first == "event e0 failed (attempt 1): ValueError: no row for e0"
    assert summary.startswith("199 more like this in the last ")
    latest = re.search(r" s, the latest: event (e\d+) failed \(attempt 1\): ValueError: no row for (e\d+)$", summary)
    assert latest is not None
    assert latest[1] == latest[2] != "e0"


@pytest.mark.req("RO-5")
async def test_three_thousand_deaths_are_a_few_lines(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    for part in range(3):
        await redbox_box.put_many([Event("n", event_id=f"{part}-{number}") for number in range(1000)])
    target = Target(raises=lambda event: Reject(f"event {event.event_id} is not valid"))
    assert (await drained(Relay(redbox_box, target))).dead == 3000
    written = lines(caplog)
    assert len(written) == 4
    assert [line.partition(" in the last ")[0] for line in written if " more like this" in line] == [
        "2,999 more like this"
    ] * 2
    assert any(line.startswith("event 0-0 is dead: event 0-0 is not valid") for line in written)


async def test_a_dead_letter_target_that_fails_is_two_lines(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    await put(redbox_box, 50)
    relay = Relay(
        redbox_box, Target(raises=Reject("bad")), dead_to=Target(raises=ValueError("down")), breaker=None,
        backoff=Backoff.fixed(60),
    )  # fmt: skip
    await drained(relay)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    assert errors[0] == "the dead-letter target did not take event e0: ValueError: down"
    assert errors[1].startswith("49 more like this in the last ")


async def test_the_outstanding_summary_is_written_when_a_relay_is_stopped(
    redbox_box: Box, caplog: pytest.LogCaptureFixture
):
    await put(redbox_box, 10)
    relay = Relay(redbox_box, Target(raises=ValueError("no")), backoff=Backoff.fixed(60))
    async with running(relay):
        await until(lambda: relay.summary().retried == 10, "they did not fail")
        assert len(lines(caplog)) == 1
    assert lines(caplog)[1].startswith("9 more like this in the last ")


@pytest.mark.req("RO-5")
async def test_an_outage_of_the_store_is_a_few_lines_and_its_end_is_one(
    redbox_box: Box, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.INFO, "redbox.relay")
    refused: Counter[str] = Counter()

    async def away(name: str) -> None:
        refused[name] += 1
        raise StoreUnavailable("redis://localhost cannot be reached: connection refused")

    target = Target()
    relay = Relay(redbox_box, target, poll=0.05, reap_every=0.02, sweep_every=0.02, beat_every=0.02)
    async with running(relay):
        for outage in range(1, 3):
            await redbox_box.put(Event("n"))
            await target.has_taken(outage)
            refused.clear()
            with monkeypatch.context() as patch:
                for name in ("claim_packed", "beat", "reap", "sweep"):
                    patch.setattr(redbox_box, name, lambda *_, name=name, **__: away(name))
                await until(lambda: len(refused) == 4 and min(refused.values()) >= 3, "they were not refused")
                written = [line for line in lines(caplog) if " more like this " not in line]
                assert len(written) == outage
            await until(lambda outage=outage: caplog.messages.count("the store answers again") == outage, "not logged")
    assert caplog.messages.count("the store answers again") == 2
