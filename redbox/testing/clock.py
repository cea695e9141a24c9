"""Time for tests: moved in the data, not slept."""

from __future__ import annotations

from datetime import timedelta

from redbox import keys
from redbox.box import Box
from redbox.store.scripts import load


async def advance(box: Box, **duration: float) -> int:
    """Moves a box on by a duration such as `minutes=10`: leases end, delays pass, retention runs out.

    Takes what timedelta takes. Returns how many events were moved. For boxes of a test: it touches every event.
    """
    store = box._store
    wire = await store.exchanges.wire()
    script = load("testing/advance", shebang=wire.shebang)
    by = timedelta(**duration) // timedelta(milliseconds=1)
    (moved,) = await store.exchange([("EVAL", script.text, 1, keys.meta(box.name), by)])
    return int(moved)
