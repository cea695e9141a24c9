"""Time for tests: moved in the data, so that no test sleeps."""

from __future__ import annotations

from datetime import timedelta

from redbox import keys
from redbox.box import Box
from redbox.store.scripts.registry import load


async def advance(box: Box, **duration: float) -> int:
    """Moves the time of a box forward by a duration such as `minutes=10`: leases end, delays pass, retention runs out.

    Takes the arguments of timedelta. Returns how many events were moved. Only for test boxes: it changes every event.
    """
    store = box._store
    wire = await store.exchanges.wire()
    script = load("testing/advance", shebang=wire.shebang)
    by = timedelta(**duration) // timedelta(milliseconds=1)
    (moved,) = await store.exchange([("EVAL", script.text, 1, keys.meta(box.name), by)])
    return int(moved)
