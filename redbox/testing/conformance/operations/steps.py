"""Steps of several tests in this folder."""

from __future__ import annotations

from typing import Any

from redbox import Box, Event
from redbox.testing.conformance.steps import (
    make_dead,
    publish,
    put_and_claim,
)

ADA: dict[str, Any] = {"who": "ada", "why": "a test"}


async def listed(box: Box, **filters: Any) -> list[str]:
    """Returns the ids of a listing, in its order."""
    return [record.event_id async for record in box.list(**filters)]


def named(*names: str, **fields: Any) -> list[Event]:
    return [Event("n", event_id=name, **fields) for name in names]


async def one_in_each_state(box: Box) -> None:
    await publish(box, *named("published"))
    await make_dead(box, *named("dead"))
    await put_and_claim(box, Event("n", event_id="claimed"), lease=60)
    await box.put_many([*named("first", "second", ordering_key="o"), *named("pending"), *named("later", delay=60)])
