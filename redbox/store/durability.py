"""How safe a write is when redbox says it is done: as the server is configured, on disk, or on replicas."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError

from redbox.errors import DurabilityUnsupported, InvalidSetting
from redbox.store.wire import Command

TIMEOUT: Final = 3.0
#: Under `everysec` a disk sync happens once a second: a second wait right after the first cannot truly be this short.
PROBE_SHORTEST: Final = 0.2
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
            raise InvalidSetting(f"durability {name!r}: use 'server', 'fsync' or 'replicas=N'")
        return cls(name, int(match[1]))


SERVER: Final = Durability("server")


class Confirmation(msgspec.Struct, frozen=True):
    """The command to send after a write, and what its reply must reach."""

    command: Command | None
    wanted: int = 0

    def reached(self, reply: Any) -> bool:
        return (reply[0] if isinstance(reply, list) else int(reply)) >= self.wanted


NOTHING: Final = Confirmation(None)


async def confirm_by(durability: Durability, exchange: Exchange, probe_key: str) -> Confirmation:
    """How this server confirms this durability; an error when it cannot."""
    if durability.replicas:
        return Confirmation(("WAIT", durability.replicas, int(TIMEOUT * 1000)), durability.replicas)
    if durability.name == "fsync":
        return await _confirm_fsync(exchange, probe_key)
    return NOTHING


async def _confirm_fsync(exchange: Exchange, probe_key: str) -> Confirmation:
    appendonly, appendfsync = [_config(reply) for reply in await exchange(_CONFIG)]
    if appendonly == "yes" and appendfsync == "always":
        return NOTHING  # the server syncs before it replies
    if appendonly == "no":
        raise DurabilityUnsupported("fsync needs a server with appendonly yes; this one keeps no append-only file")
    if await _waitaof_waits(exchange, probe_key):
        return Confirmation(("WAITAOF", 1, 0, int(TIMEOUT * 1000)), 1)
    raise DurabilityUnsupported(
        f"fsync cannot be promised by this server (appendfsync {appendfsync or 'unknown'}, and WAITAOF is missing or "
        "does not wait); set appendfsync always, or use replicas=N"
    )


_CONFIG: Final = (("CONFIG", "GET", "appendonly"), ("CONFIG", "GET", "appendfsync"))


def _config(reply: Any) -> str | None:
    """The value in a CONFIG GET reply, or None where the server does not tell."""
    if isinstance(reply, dict):
        reply = [item for pair in reply.items() for item in pair]
    return reply[1].decode() if isinstance(reply, list) and len(reply) == 2 else None


async def _waitaof_waits(exchange: Exchange, probe_key: str) -> bool:
    """Whether WAITAOF really waits for the disk: some servers confirm at once, without a sync."""
    write_and_wait = (("HINCRBY", probe_key, "probes", 1), ("WAITAOF", 1, 0, int(TIMEOUT * 1000)))
    for _ in range(2):
        started = time.monotonic()
        _, reply = await exchange(write_and_wait)
        took = time.monotonic() - started
        if isinstance(reply, ResponseError) or reply[0] < 1:
            return False
    return took >= PROBE_SHORTEST
