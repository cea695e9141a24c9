"""Whether a server's append-only file is complete, so that a restart reads what was synced to it.

After `CONFIG SET appendonly yes`, until the first rewrite has ended, the server writes to a temporary file that a
restart does not read. A later rewrite is harmless. INFO does not tell the two apart: both are "a rewrite in progress".
So redbox remembers how often CONFIG SET was called when the file was complete: while that is unchanged, it still is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from redbox.errors import RedboxError
from redbox.store.line import Command

#: Asked after every write that has to be on disk, on the same connection.
STATE: Final[Command] = ("INFO", "server", "persistence")
_CALLS: Final[Command] = ("INFO", "server", "stats", "commandstats")
LEARN_AGAIN: Final = 10.0  # seconds
FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.2

Exchange = Callable[[Sequence[Command]], Awaitable[list[Any]]]


class _State(NamedTuple):
    """`run_id` changes when the server restarts, and then what it had not kept is lost."""

    run_id: str
    enabled: bool
    rewriting: bool

    @classmethod
    def read(cls, reply: Any) -> _State | None:
        info = _info(reply)
        if "run_id" not in info or "aof_rewrite_in_progress" not in info:
            return None
        rewriting = "1" in (info["aof_rewrite_in_progress"], info.get("aof_rewrite_scheduled"))
        return cls(info["run_id"], info.get("aof_enabled") == "1", rewriting)


class _Calls(NamedTuple):
    """How often a server's settings were changed; `commands` falls when the counters are reset."""

    run_id: str
    changes: tuple[str | None, ...]
    commands: int

    @classmethod
    def read(cls, reply: Any) -> _Calls | None:
        info = _info(reply)
        if "run_id" not in info or "total_commands_processed" not in info:
            return None
        called = [info.get(f"cmdstat_config|{name}") for name in ("set", "resetstat")]
        changes = tuple(each and each.partition(",")[0] for each in called)
        return cls(info["run_id"], changes, int(info["total_commands_processed"]))

    def are_still(self, now: _Calls) -> bool:
        return self[:2] == now[:2] and self.commands <= now.commands


class AppendOnlyFile:
    """What is known of the append-only file of the server that holds a box."""

    def __init__(self) -> None:
        self._known: _Calls | None = None  # while the file was complete
        self._known_at = 0.0

    async def holds(self, reply: Any, exchange: Exchange, patience: float) -> bool:
        """Whether a restart reads the write that came before STATE, whose reply this is.

        A first rewrite is waited for, `patience` seconds at most.
        """
        state = _State.read(reply)
        if state is None or not state.enabled:
            return False
        try:
            if state.rewriting:
                return await self._is_complete(exchange) or await _is_rewritten(state, exchange, patience)
            if time.monotonic() - self._known_at > LEARN_AGAIN:
                await self._learn(exchange)
        except RedboxError:  # nobody knows then
            return not state.rewriting
        return True

    async def _is_complete(self, exchange: Exchange) -> bool:
        """Whether it is complete all the same: it was, and no setting was changed since."""
        if self._known is None:
            return False
        (reply,) = await exchange([_CALLS])
        now = _Calls.read(reply)
        return now is not None and self._known.are_still(now)

    async def _learn(self, exchange: Exchange) -> None:
        calls, state = await exchange([_CALLS, STATE])  # in this order: a change in between makes `calls` outdated
        known, then = _Calls.read(calls), _State.read(state)
        if known is not None and then is not None and then.enabled and not then.rewriting:
            self._known, self._known_at = known, time.monotonic()


async def _is_rewritten(before: _State, exchange: Exchange, patience: float) -> bool:
    """Waits for the end of a rewrite; False if it takes too long, or the server has restarted."""
    deadline, pause = time.monotonic() + patience, FIRST_PAUSE
    while time.monotonic() < deadline:
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
        (reply,) = await exchange([STATE])
        now = _State.read(reply)
        if now is None or now.run_id != before.run_id or not now.enabled:
            return False
        if not now.rewriting:
            return True
    return False


def _info(reply: Any) -> dict[str, str]:
    """An INFO reply; empty where the server does not tell."""
    text = reply.decode() if isinstance(reply, bytes) else reply if isinstance(reply, str) else ""
    return {name: value for name, _, value in (line.partition(":") for line in text.split("\r\n"))}
