"""A wire that belongs to another box."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from redbox.store.wire.base import BlockingWait, Command, Talk, Wire


class BorrowedWire:
    """Uses the connections of another wire to the same server, and leaves them open."""

    def __init__(self, lender: Wire) -> None:
        self._lender = lender
        self.shebang = lender.shebang

    async def exchange(self, key: str, commands: Sequence[Command], wait: BlockingWait | None = None) -> list[Any]:
        return await self._lender.exchange(key, commands, wait)

    async def can_end_wait(self, key: str) -> bool:
        return await self._lender.can_end_wait(key)

    def session(self, key: str) -> AbstractAsyncContextManager[Talk]:
        return self._lender.session(key)

    async def follow(self, redirect: Exception) -> None:
        await self._lender.follow(redirect)

    async def scan(self, pattern: str) -> list[bytes]:
        return await self._lender.scan(pattern)

    async def close(self) -> None:
        """The lender closes its connections itself."""

    def abandon(self) -> None:
        """The same."""

    @property
    def losses(self) -> int:
        return self._lender.losses

    @property
    def read_timeout(self) -> float | None:
        return self._lender.read_timeout
