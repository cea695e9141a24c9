"""One attempt at a time: callers that wait for an attempt share its failure instead of trying one after the other."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedAttempt:
    """An action that takes long to fail, such as connecting to a frozen server."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._failure: Exception | None = None
        self._failed_at = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits for its turn. If another attempt failed meanwhile, raises the error of that one."""
        now = asyncio.get_running_loop().time
        asked_at = now()
        async with self._lock:
            if self._failure is not None and self._failed_at > asked_at:
                raise copy.copy(self._failure) from self._failure
            try:
                yield
            except Exception as error:
                self._failure, self._failed_at = error, now()
                raise
            self._failure = None
