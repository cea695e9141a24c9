"""Durability: where a write is when redbox confirms it: as the server is configured, on disk, or on replicas."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError

from redbox.arguments import shown
from redbox.errors import DurabilityUnsupported, InvalidSetting
from redbox.store.server.append_only_file import STATE, is_readable
from redbox.store.wire.base import Command

TIMEOUT: Final = 3.0
#: Under `everysec` the disk is synced once a second: of several waits in a row, only the first can really be shorter
#: than this. Several are made, because on a busy machine one may be answered late, but hardly every one.
PROBE_SHORTEST: Final = 0.5
PROBES: Final = 4
_REPLICAS = re.compile(r"replicas=(\d{1,3})")

Exchange = Callable[[Sequence[Command]], Awaitable[list[Any]]]


class Durability(msgspec.Struct, frozen=True):
    """`server`, `fsync` or `replicas=N`."""

    name: str
    replicas: int = 0

    @classmethod
    def parse(cls, name: str) -> Durability:
        if name in ("server", "fsync"):
            return cls(name)
        match = _REPLICAS.fullmatch(name) if isinstance(name, str) else None
        if match is None or int(match[1]) == 0:
            raise InvalidSetting(f"durability {shown(name)}: use 'server', 'fsync' or 'replicas=N'")
        return cls(name, int(match[1]))


SERVER: Final = Durability("server")


class Confirmation(msgspec.Struct, frozen=True):
    """The command to send after a write, on the same connection, and the reply that confirms it."""

    command: Command | None
    wanted: int = 0
    #: Whether the write must be in a file that a restart reads, and how long to wait for that, in seconds.
    on_disk: bool = False
    patience: float = 0.0

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands to send after a write."""
        if self.command is None:
            return ()
        return (self.command, STATE) if self.on_disk else (self.command,)

    @property
    def waits(self) -> bool:
        """Whether the command blocks its connection."""
        return self.wanted > 0

    def reached(self, reply: Any) -> bool:
        if isinstance(reply, Exception):
            return False
        if self.command == _CONFIG:
            return _syncs_always(_config(reply))
        return (reply[0] if isinstance(reply, list) else int(reply)) >= self.wanted


#: With these settings a reply means that the write is on disk. Asked after every write, since settings can change, and
#: a failover can lead to another server.
_CONFIG: Final[Command] = ("CONFIG", "GET", "appendonly", "appendfsync", "no-appendfsync-on-rewrite")

NOTHING: Final = Confirmation(None)


async def confirm_by(
    durability: Durability, exchange: Exchange, probe_key: str, read_timeout: float | None
) -> Confirmation:
    """How this server confirms this durability; raises DurabilityUnsupported if it cannot."""
    patience = int(1000 * min(TIMEOUT, TIMEOUT if read_timeout is None else read_timeout * 0.8))
    if durability.replicas:
        return Confirmation(("WAIT", durability.replicas, patience), durability.replicas)
    if durability.name == "fsync":
        return await _confirm_fsync(exchange, probe_key, patience)
    return NOTHING


async def _confirm_fsync(exchange: Exchange, probe_key: str, patience: int) -> Confirmation:
    reply, state = await exchange([_CONFIG, STATE])
    config = _config(reply)
    if config.get("appendonly") == "no":
        raise DurabilityUnsupported("fsync needs a server with appendonly yes; this one keeps no append-only file")
    if not is_readable(state):
        raise DurabilityUnsupported(
            "fsync needs permission for INFO, and its fields run_id and aof_rewrite_in_progress, to know whether the "
            "append-only file is complete; use replicas=N without them"
        )
    if _syncs_always(config):
        return Confirmation(_CONFIG, on_disk=True, patience=patience / 1000)
    if await _waitaof_waits(exchange, probe_key, patience):
        return Confirmation(("WAITAOF", 1, 0, patience), 1, on_disk=True, patience=patience / 1000)
    raise DurabilityUnsupported(
        f"fsync cannot be promised by this server (appendfsync {config.get('appendfsync', 'unknown')}, and WAITAOF is "
        "missing or does not wait); set appendfsync always, or use replicas=N"
    )


def _syncs_always(config: dict[str, str]) -> bool:
    """Whether the server syncs before it replies, also while it rewrites its file."""
    wanted = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
    return all(config.get(name) == value for name, value in wanted.items())


def _config(reply: Any) -> dict[str, str]:
    """A CONFIG GET reply; empty where the server refuses it."""
    if isinstance(reply, Exception):
        return {}
    if isinstance(reply, dict):
        return {name.decode(): value.decode() for name, value in reply.items()}
    return {reply[at].decode(): reply[at + 1].decode() for at in range(0, len(reply), 2)}


async def _waitaof_waits(exchange: Exchange, probe_key: str, patience: int) -> bool:
    """Whether WAITAOF really waits for the disk: some servers confirm at once, without a sync."""
    write_and_wait = (("HINCRBY", probe_key, "probes", 1), ("WAITAOF", 1, 0, patience))
    for probe in range(PROBES):
        started = time.monotonic()
        _, reply = await exchange(write_and_wait)
        took = time.monotonic() - started
        if isinstance(reply, ResponseError) or reply[0] < 1 or (probe > 0 and took < PROBE_SHORTEST):
            return False
    return True
