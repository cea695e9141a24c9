"""PL: the lifecycle."""

from __future__ import annotations

import asyncio

import pytest

from redbox import Box, Event, Outcome, State
from redbox.testing import advance, check_invariants


@pytest.mark.req("PL-2", "PL-3", "EM-13", "EM-14")
async def test_claim_and_ack(box: Box):
    receipt = await box.put(Event("user.created", {"id": 42}))
    (claim,) = await box.claim("relay-1", limit=10, lease=30.0)
    record = await box.get(receipt.event_id)
    assert record is not None
    assert (record.state, record.claimed_by, record.number) == (State.CLAIMED, "relay-1", claim.number)
    assert record.claimed_at == claim.claimed_at
    assert record.lease_until is not None
    assert (record.lease_until - record.claimed_at).total_seconds() == 30
    assert await box.ack([claim]) == [True]
    record = await box.get(receipt.event_id)
    assert record is not None
    assert (record.state, record.claimed_by, record.claimed_at) == (State.PUBLISHED, None, None)
    assert record.published_at is not None
    assert record.published_at >= claim.claimed_at
    assert await check_invariants(box) == []
