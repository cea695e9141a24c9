"""Whether a server's append-only file is complete, so that a restart reads what was synced to it.

A file begins with a first rewrite after `CONFIG SET appendonly yes`, and after a full resync from another server. Until
that rewrite has ended, the server writes to a temporary file that a restart does not read. A later rewrite is harmless.
INFO reports both as "a rewrite in progress". So redbox remembers how often CONFIG SET was called
and whose data the server had when the file was complete: while both are unchanged, it still is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from redbox.errors import RedboxError
from redbox.store.wire.base import Command

#: Asked after every write that has to be on disk, on the same connection.
STATE: Final[Command] = ("INFO", "server", "replication", "persistence")
_CALLS: Final[Command] = ("INFO", "server", "replication", "stats", "commandstats")
LEARN_AGAIN: Final = 10.0  # seconds
FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.2

Exchange = Callable[[Sequence[Command]], Awaitable[list[Any]]]


class _Data(NamedTuple):
    """Whose data a server has.

    `run_id` changes when the server restarts, which loses unsaved data. `replid` changes when it loads the data of
    another server, and when it becomes a master again.
    """

    run_id: str
    replid: str | None

    @classmethod
    def read(cls, info: dict[str, str]) -> _Data | None:
        return cls(info["run_id"], info.get("master_replid")) if "run_id" in info else None


class _State(NamedTuple):
    """The state of a server's append-only file."""

    data: _Data
    enabled: bool
    rewriting: bool

    @classmethod
    def read(cls, reply: Any) -> _State | None:
        info = _info(reply)
        data = _Data.read(info)
        if data is None or "aof_rewrite_in_progress" not in info:
            return None
        rewriting = "1" in (info["aof_rewrite_in_progress"], info.get("aof_rewrite_scheduled"))
        return cls(data, info.get("aof_enabled") == "1", rewriting)


class _Calls(NamedTuple):
    """How often a server's settings were changed; `commands` falls when the counters are reset."""

    data: _Data
    changes: tuple[str | None, ...]
    commands: int

    @classmethod
    def read(cls, reply: Any) -> _Calls | None:
        info = _info(reply)
        data = _Data.read(info)
        if data is None or "total_commands_processed" not in info:
            return None
        called = [info.get(f"cmdstat_config|{name}") for name in ("set", "resetstat")]
        changes = tuple(each and each.partition(",")[0] for each in called)
        return cls(data, changes, int(info["total_commands_processed"]))

    def are_still(self, now: _Calls) -> bool:
        return self[:2] == now[:2] and self.commands <= now.commands


def is_readable(reply: Any) -> bool:
    """Whether the reply to STATE has the fields that `shortfall` needs."""
    return _State.read(reply) is not None


class AppendOnlyFile:
    """The append-only file of the server that holds a box, as far as redbox knows it."""

    def __init__(self) -> None:
        self._known: _Calls | None = None  # while the file was complete
        self._known_at = 0.0

    async def shortfall(self, reply: Any, exchange: Exchange, patience: float) -> str:
        """Why a restart may not read the write before STATE, whose reply this is; "" if it reads it.

        A first rewrite is waited for, `patience` seconds at most.
        """
        state = _State.read(reply)
        if state is None:
            return f"INFO does not say whether the append-only file is complete ({_excerpt(reply)})"
        if not state.enabled:
            return "the server keeps no append-only file"
        try:
            if state.rewriting:
                return "" if await self._is_complete(exchange) else await _wait_for_rewrite(state, exchange, patience)
            if time.monotonic() - self._known_at > LEARN_AGAIN:
                await self._learn(exchange)
        except RedboxError as error:
            if state.rewriting:
                return f"the server did not say whether its append-only file is complete: {error}"
        return ""

    async def _is_complete(self, exchange: Exchange) -> bool:
        """Whether the file is complete: it was before, and neither settings nor data have changed since."""
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


async def _wait_for_rewrite(before: _State, exchange: Exchange, patience: float) -> str:
    """Waits for the end of a rewrite; returns why it does not confirm the write, or ""."""
    deadline, pause = time.monotonic() + patience, FIRST_PAUSE
    while time.monotonic() < deadline:
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
        (reply,) = await exchange([STATE])
        now = _State.read(reply)
        if now is None or now.data != before.data or not now.enabled:
            return "the server restarted, or lost its data, before its append-only file was complete"
        if not now.rewriting:
            return ""
    return "the server is still rewriting its append-only file for the first time"


def _excerpt(reply: Any) -> str:
    return str(reply)[:100] if isinstance(reply, Exception) else "fields are missing"


def _info(reply: Any) -> dict[str, str]:
    """An INFO reply; empty where the server refuses it."""
    text = reply.decode() if isinstance(reply, bytes) else reply if isinstance(reply, str) else ""
    return {name: value for name, _, value in (line.partition(":") for line in text.split("\r\n"))}
