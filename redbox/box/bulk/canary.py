"""The first events of a replay, which are watched until they are settled before the others follow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from redbox.box.reports import Canary
from redbox.events import State
from redbox.store.damage import is_count
from redbox.store.store import Store

FIRST_LOOK: Final = 0.05  # seconds between two looks; each wait is longer than the one before
LONGEST_WAIT: Final = 1.0
GRACE: Final = 1.0  # seconds after the first death, in which the others may still die
MOST_CANARIES: Final = 1000
_ENDS: Final = ("dead", "dropped")  # totals of events that left without success


class CanaryWatch:
    """Watches replayed events. To be made before they are replayed."""

    def __init__(self, store: Store, ended: int) -> None:
        self._store = store
        self._ended = ended

    @classmethod
    async def begin(cls, store: Store) -> CanaryWatch:
        return cls(store, await _count_ends(store))

    async def settled(self, ids: Sequence[str], limit: float) -> Canary:
        """Waits until each event is PUBLISHED or DEAD, at most `limit` seconds; not much longer than until the first
        death.

        A success may remove an event, and so may a relay that drops dead events. If any event of the box died or was
        dropped meanwhile, an event that is gone does not count as published.
        """
        published: list[str] = []
        died: dict[str, str] = {}
        gone: list[str] = []
        left, deadline, pause = list(ids), time.monotonic() + limit, FIRST_LOOK
        while True:
            found = {each.event_id: each.fields for each in await self._store.read_states(left)}
            any_before = bool(died)
            for event_id in left:
                fields = found.get(event_id)
                if fields is None:
                    gone.append(event_id)
                elif fields[b"state"] == State.DEAD.encode():
                    died[event_id] = fields.get(b"last_error", b"").decode(errors="replace")
                elif fields[b"state"] == State.PUBLISHED.encode():
                    published.append(event_id)
            left = [each for each in left if each not in {*published, *died, *gone}]
            if died and not any_before:
                deadline = min(deadline, time.monotonic() + GRACE)
            remaining = deadline - time.monotonic()
            if not left or remaining <= 0:
                break
            await asyncio.sleep(min(pause, remaining))
            pause = min(LONGEST_WAIT, pause * 1.5)
        if gone and not died and await _count_ends(self._store) == self._ended:
            published, gone = published + gone, []
        return Canary(published=len(published), died=died, gone=gone, unsettled=left)


async def _count_ends(store: Store) -> int:
    totals = (await store.stats()).totals
    return sum(int(value) for name, value in totals.items() if name in _ENDS and is_count(value))
