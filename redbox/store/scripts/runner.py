"""Runs scripts: each run is a single atomic step on the server, confirmed to the durability that the caller asks for.

A call with many independent events is made in several steps, so that none holds up the server for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from redis.exceptions import NoScriptError

from redbox import keys
from redbox.errors import DurabilityNotReached, NotPermitted, RedboxError, StoreError
from redbox.store.exchanges import Exchanges
from redbox.store.scripts.registry import NO_WRITES, REGISTRY, Script, load
from redbox.store.server.confirmations import Confirmations
from redbox.store.server.durability import NOTHING, SERVER, Durability
from redbox.store.server.permissions import Permissions
from redbox.store.wire.base import BlockingWait, Wire


class ScriptRunner:
    """Runs the scripts of one box."""

    def __init__(self, exchanges: Exchanges) -> None:
        self.confirmations = Confirmations(exchanges)
        self._exchanges = exchanges
        self._meta = keys.meta(exchanges.box)
        self._permissions = Permissions()
        self._checked_wire: Wire | None = None

    async def script(self, name: str) -> Script:
        """A script, ready to be sent. Raises NotPermitted if the user may not run all of its commands."""
        return load(name, shebang=(await self.permit(name)).shebang)

    async def permit(self, name: str) -> Wire:
        """Raises NotPermitted if the user may not run all commands of this script, or of `permissions.REPLACE`."""
        wire = await self._exchanges.wire()
        if wire is not self._checked_wire:  # another event loop: the locks of Permissions belong to the old one
            self._checked_wire, self._permissions = wire, Permissions()
        if self._permissions.unsure_of(name) and wire.shebang:  # an in-memory server has no users
            where = self._exchanges.endpoint.description
            await self._permissions.check(name, self.check_permissions, where=where, box=self._exchanges.box)
        return wire

    async def check_permissions(self, commands: Iterable[tuple[str, int]]) -> set[str]:
        """The commands, each given with its least number of arguments, that the user may not run on the box's keys.

        The script is sent as text: it is needed once, and so in one exchange.
        """
        script = load("check_permissions", shebang=(await self._exchanges.wire()).shebang)
        command = ("EVAL", script.text, 1, self._meta, " ".join(keys.KINDS), *flat(commands))
        (missing,) = await self._exchanges.ask([command], repeat=True)
        return {part.decode() for part in missing}

    async def run(
        self, name: str, arguments: Sequence[Any], *, durability: Durability = SERVER, repeat: bool = False
    ) -> Any:
        """The reply of a script, once the write is confirmed. `repeat`: it may be sent again after a broken connection.

        Raises DurabilityNotReached, with the reply, if the script ran and the write was not confirmed.
        """
        script = await self.script(name)
        confirmation = NOTHING if durability is SERVER else await self.confirmations.of(durability)
        trailer = confirmation.commands
        writes = REGISTRY[name].flag != NO_WRITES
        by_sha, by_text = ("EVALSHA", script.sha), ("EVAL", script.text)
        for evaluate in (by_sha, by_text):  # by text if it was flushed, or the server restarted or failed over
            command, wait = (*evaluate, 1, self._meta, *arguments), BlockingWait() if confirmation.waits else None
            replies = await self._exchanges.send([command, *trailer], repeat=repeat, writes=writes, wait=wait)
            if not isinstance(replies[0], NoScriptError):
                break
        if isinstance(replies[0], Exception):
            raise await self.error(replies[0]) from replies[0]
        shortfall = await self.confirmations.shortfall(confirmation, replies[1:])
        if shortfall:
            raise DurabilityNotReached(
                f"{name} reached the server, but {durability.name} {shortfall}; what it changed is there, and may not "
                "survive a failure" + ("; putting it again with the same event_id is safe" if name == "put" else ""),
                replies[0],
            )
        return replies[0]

    async def run_in_steps(
        self,
        name: str,
        head: tuple[Any, ...],
        steps: Iterable[list[tuple[Any, ...]]],
        durability: Durability = SERVER,
        *,
        repeat: bool = False,
    ) -> list[Any]:
        """The replies of all steps. A step that ran and was not confirmed does not stop the others."""
        replies: list[Any] = []
        missed: DurabilityNotReached | None = None
        for step in steps:
            try:
                replies += await self.run(name, (*head, *flat(step)), durability=durability, repeat=repeat)
            except DurabilityNotReached as error:
                missed = missed or error
                replies += error.replies
            except StoreError as error:
                error.after(len(replies))
                raise
        if missed is not None:
            missed.replies = replies
            raise missed
        return replies

    async def error(self, reply: Exception) -> RedboxError:
        """The error reply of a script as a RedboxError.

        A script that was refused shows that permissions have changed, so they are checked again before the next one.
        The refusal of another command, such as BLPOP, says nothing about scripts.
        """
        error = await self._exchanges.explain(reply)
        if isinstance(error, NotPermitted):
            self._permissions = Permissions()
        return error


def flat(items: Iterable[tuple[Any, ...]]) -> list[Any]:
    return list(chain.from_iterable(items))
