"""EM-12: no event is claimed before its available_at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redbox import Box, Event, InvalidEvent, Outcome, Phase, State
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.steps import (
    claim_one,
    known,
    store_time,
)


@pytest.mark.req("EM-12")
async def test_without_available_at_an_event_is_available_now(box: Box):
    receipt = await box.put(Event("n"))
    record = await known(box, receipt.event_id)
    assert (record.available_at, record.phase) == (record.created_at, Phase.AVAILABLE)
    claim = await claim_one(box)
    assert claim.event.available_at == record.created_at


@pytest.mark.req("EM-12")
@pytest.mark.parametrize("delay", [60, 60.0, timedelta(minutes=1)])
async def test_a_delay_counts_from_the_put(box: Box, delay: Any):
    receipt = await box.put(Event("n", delay=delay))
    record = await known(box, receipt.event_id)
    assert (record.available_at - record.created_at, record.phase) == (timedelta(seconds=60), Phase.SCHEDULED)
    await advance(box, seconds=50)
    assert await box.claim("relay-1") == []
    await advance(box, seconds=10)
    assert (await claim_one(box)).event_id == receipt.event_id
    assert await check_invariants(box) == []


@pytest.mark.req("EM-12")
async def test_a_delay_of_milliseconds(box: Box):
    receipt = await box.put(Event("n", delay=0.25))
    record = await known(box, receipt.event_id)
    assert record.available_at - record.created_at == timedelta(milliseconds=250)


@pytest.mark.req("EM-12")
async def test_parts_of_a_millisecond_are_rounded_up(box: Box):
    """The store counts in milliseconds; fractions are rounded up."""
    moment = await store_time(box) + timedelta(hours=1, microseconds=1)
    at, after = (await box.put_many([Event("n", available_at=moment), Event("n", delay=60.0001)]))[:2]
    assert (await known(box, at.event_id)).available_at == moment + timedelta(microseconds=999)
    record = await known(box, after.event_id)
    assert record.available_at - record.created_at == timedelta(seconds=60, milliseconds=1)


@pytest.mark.req("EM-12")
async def test_an_absolute_time(box: Box):
    moment = await store_time(box) + timedelta(hours=1)
    receipt = await box.put(Event("n", available_at=moment))
    assert (await known(box, receipt.event_id)).available_at == moment
    await advance(box, minutes=59)
    assert await box.claim("relay-1") == []
    await advance(box, minutes=1)
    assert (await claim_one(box)).event_id == receipt.event_id
    assert await check_invariants(box) == []


@pytest.mark.req("EM-12")
@pytest.mark.parametrize("moment", [datetime(2001, 1, 1, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)])
async def test_a_time_in_the_past_means_now(box: Box, moment: datetime):
    receipt = await box.put(Event("n", available_at=moment))
    record = await known(box, receipt.event_id)
    assert record.available_at == record.created_at
    assert (await claim_one(box)).event_id == receipt.event_id
    assert await check_invariants(box) == []


@pytest.mark.req("EM-12")
async def test_events_that_are_not_due_are_not_claimed(box: Box):
    await box.put_many([Event("later", delay=60), Event("now"), Event("much-later", delay=3600)])
    assert [claim.event.event_type for claim in await box.claim("relay-1")] == ["now"]
    await advance(box, seconds=61)
    assert [claim.event.event_type for claim in await box.claim("relay-1")] == ["later"]


@pytest.mark.req("EM-12")
def test_invalid_times_are_refused():
    for fields in ({"delay": -1}, {"delay": float("nan")}, {"delay": float("inf")}, {"delay": "soon"},
                   {"delay": timedelta(days=3661)}, {"delay": timedelta(seconds=-1)}):  # fmt: skip
        with pytest.raises(InvalidEvent, match="delay"):
            Event("n", **fields)
    for moment in (datetime(2030, 1, 1), "2030-01-01", 1_900_000_000):  # noqa: DTZ001, RUF100  # naive on purpose
        with pytest.raises(InvalidEvent, match="available_at"):
            Event("n", available_at=moment)  # type: ignore[arg-type]
    with pytest.raises(InvalidEvent, match="not both"):
        Event("n", delay=1, available_at=datetime(2030, 1, 1, tzinfo=UTC))


@pytest.mark.req("EM-12")
async def test_an_operator_can_kill_a_scheduled_event(box: Box):
    receipt = await box.put(Event("n", delay=3600))
    assert await box.operate.kill([receipt.event_id], who="ada", why="cancelled") == [Outcome.OK]
    assert (await known(box, receipt.event_id)).state == State.DEAD
    await advance(box, hours=2)
    assert await box.claim("relay-1") == []
    assert await check_invariants(box) == []
