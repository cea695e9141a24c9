"""Confirms that a write is as durable as its caller asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redbox import keys
from redbox.errors import StoreFull, StoreUnavailable
from redbox.store.errors import code
from redbox.store.exchanges import Exchanges
from redbox.store.server.append_only_file import AppendOnlyFile
from redbox.store.server.durability import NOTHING, SERVER, Confirmation, Durability, confirm_by
from redbox.store.wire.base import BlockingWait, Command


class Confirmations:
    """How the server of one box confirms each durability, and whether a write was confirmed."""

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges
        self._file = AppendOnlyFile()
        self._known: dict[Durability, Confirmation] = {SERVER: NOTHING}

    async def of(self, durability: Durability) -> Confirmation:
        """How this server confirms a durability; the server is asked once. Raises DurabilityUnsupported."""
        known = self._known.get(durability)
        if known is None:
            timeout = (await self._exchanges.wire()).read_timeout
            known = await confirm_by(durability, self._probe, keys.counters(self._exchanges.box), timeout)
            self._known[durability] = known
        return known

    async def shortfall(self, confirmation: Confirmation, replies: Sequence[Any]) -> str:
        """Why a write is not confirmed; "" if it is. `replies` are those to the confirmation's commands."""
        if confirmation.command is None:
            return ""
        if not confirmation.reached(replies[0]):
            return "was not confirmed"
        if confirmation.on_disk:
            missing = await self._file.shortfall(replies[1], self._look, confirmation.patience)
            return f"was not confirmed: {missing}" if missing else ""
        return ""

    async def _probe(self, commands: Sequence[Command]) -> list[Any]:
        replies = await self._exchanges.send(commands, repeat=True, wait=BlockingWait())
        for reply in replies:
            # A server that is busy, or has too few replicas, has not said that it cannot confirm.
            if isinstance(reply, Exception) and code(reply) != "NOPERM":
                error = self._exchanges.translate(reply, maybe=False)
                if isinstance(error, StoreUnavailable | StoreFull):
                    raise error from reply
        return replies

    async def _look(self, commands: Sequence[Command]) -> list[Any]:
        return await self._exchanges.send(commands, repeat=False)
