"""Steps of several tests in this folder."""

from __future__ import annotations

from typing import Any

from redbox import Box, Event, Phase, Settings
from redbox.testing.conformance.steps import (
    claim_one,
    expire,
    known,
    put_and_claim,
)

ALL_LIVE, UNTOUCHED = "ALL_LIVE", "UNTOUCHED"


def one(event_id: str, scope: str = ALL_LIVE, **fields: Any) -> Event:
    """An event with the unique key k."""
    return Event("n", event_id=event_id, unique_key="k", unique_scope=scope, **fields)


async def configure(box: Box, **settings: Any) -> Settings:
    return await box.operate.configure(who="ada", why="a test", **settings)


def phases(**counts: int) -> dict[Phase, int]:
    return {phase: counts.get(phase.value.lower(), 0) for phase in Phase}


async def make_suspect(box: Box, event_id: str = "suspect", delay: float = 0) -> None:
    """An event whose lease ended twice in a row, in a box where nothing else is available."""
    await put_and_claim(box, Event("n", event_id=event_id))
    await expire(box)
    await claim_one(box)
    await expire(box, delay=delay)
    assert (await known(box, event_id)).suspect
