"""Waits for a store that is away: every step of the pipeline may be repeated."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, ParamSpec, TypeVar

from redbox.errors import StoreUnavailable
from redbox.store.errors import NOTHING_SENT

logger = logging.getLogger("redbox")

P = ParamSpec("P")
T = TypeVar("T")
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0


async def patiently(seconds: float, ask: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
    """What `ask` answers. A store that is away is asked again for this many seconds. The error that ends the wait does
    not say that nothing was changed: that is true of the last command, and not of the job."""
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
    while True:
        try:
            return await ask(*args, **options)
        except StoreUnavailable as error:
            error.args = (error.message.replace(NOTHING_SENT, ""),)
            if time.monotonic() + pause > deadline:
                raise
            logger.warning("waiting for the store: %s", error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
