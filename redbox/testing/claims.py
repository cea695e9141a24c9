"""Claims for tests of publishers, as the store returns them: the payload is bytes, and its content type is set."""

from __future__ import annotations

import time
from typing import Any, Final

from redbox.events import Claim, Event, stored_event
from redbox.ids import new_id

CREATED_MS: Final = 1_700_000_000_123


def new_event(payload: bytes = b'{"id":42}', **fields: Any) -> Event:
    """Returns an event with a new id; `fields` are those of `Event`."""
    defaults = {"event_type": "user.created", "event_id": new_id(), "content_type": "application/json"}
    event: Event = stored_event(payload=payload, **{**defaults, **fields})
    return event


def new_claim(
    payload: bytes = b'{"id":42}',
    *,
    number: int = 7,
    attempts: int = 2,
    claimed_ms: int = CREATED_MS + 5000,
    ago: float = 0.0,
    **fields: Any,
) -> Claim:
    """Returns a claim of a new event that was received `ago` seconds ago; `fields` are those of `Event`."""
    event = new_event(payload, **fields)
    assert event.event_id is not None
    return Claim(
        event=event,
        event_id=event.event_id,
        number=number,
        claimed_by="relay-1",
        attempts=attempts,
        excused=0,
        exhausted=False,
        suspect=False,
        created_ms=CREATED_MS,
        due_ms=CREATED_MS,
        claimed_ms=claimed_ms,
        lease_until_ms=claimed_ms + 30000,
        received=time.monotonic() - ago,
    )
