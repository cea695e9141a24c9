"""What a server says about itself: INFO and some of its settings, as far as the user of the connection may ask."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from redbox.settings import MAX_PAYLOAD
from redbox.store.errors import LOADING, LOST_MASTER
from redbox.store.wire.base import Command

SETTINGS: Final = (
    "maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save", "stop-writes-on-bgsave-error",
)  # fmt: skip
#: One name for each CONFIG GET: servers before Redis 7 take no more.
QUESTIONS: Final[tuple[Command, ...]] = (("INFO",), *(("CONFIG", "GET", name) for name in SETTINGS))
#: The questions that `lack` needs. One section for each INFO: servers before Redis 7 take no more.
LACK_QUESTIONS: Final[tuple[Command, ...]] = (("INFO", "persistence"), ("INFO", "replication"))

_DATABASE: Final = re.compile(r"db[0-9]+")
_KEYS: Final = re.compile(r"keys=([0-9]{1,18})")


class ServerFacts(msgspec.Struct, frozen=True):
    """The replies of a server. `refused` names the commands that it did not answer: a managed server may have renamed
    or forbidden them, and the user may lack the permission."""

    info: dict[str, str]
    settings: dict[str, str]
    refused: tuple[str, ...]

    @classmethod
    def read(cls, replies: Sequence[Any]) -> ServerFacts:
        """The replies to QUESTIONS."""
        info, *settings = replies
        found: dict[str, str] = {}
        for reply in settings:
            found.update(_pairs(reply))
        read = _read_info(info)
        refused = ([] if read else ["INFO"]) + ([] if found else ["CONFIG GET"])
        return cls(read, found, tuple(refused))

    @classmethod
    def read_lack(cls, replies: Sequence[Any]) -> ServerFacts:
        """The replies to LACK_QUESTIONS."""
        return cls({name: value for reply in replies for name, value in _read_info(reply).items()}, {}, ())

    def setting(self, name: str) -> str | None:
        """A setting, from CONFIG GET or, for some, from INFO."""
        return self.settings.get(name) or self.info.get(name.replace("-", "_"))

    def number(self, name: str) -> int | None:
        """A whole number in INFO."""
        text = self.info.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def used(self) -> int | None:
        """Bytes that count against maxmemory."""
        used = self.number("used_memory")
        return None if used is None else max(0, used - (self.number("mem_not_counted_for_evict") or 0))

    @property
    def limit(self) -> int | None:
        """maxmemory in bytes; 0 if it is not set, None if the server does not say."""
        text = self.setting("maxmemory") or ""
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def memory(self) -> str:
        """`90.5 MiB of maxmemory 100.0 MiB`."""
        used = mebibytes(self.used or 0)
        return f"{used} of maxmemory {mebibytes(self.limit)}" if self.limit else used

    @property
    def full(self) -> bool:
        """Whether the server refuses puts, because its memory is used up and it evicts no key for them.

        A write counts while it is made, so a server that refuses one may be below its limit again afterwards: a
        hundredth of the limit, or one event of the default max_payload if that is less.
        """
        return self._left is not None and self._left < min(MAX_PAYLOAD, (self.limit or 0) // 100)

    @property
    def nearly_full(self) -> bool:
        """Whether the server has room, but not for an event of the default max_payload."""
        return self._left is not None and self._left < MAX_PAYLOAD and not self.full

    @property
    def _left(self) -> int | None:
        """Bytes left below maxmemory; None without such a limit, or if the server evicts keys at it."""
        if not self.limit or self.used is None or (self.setting("maxmemory-policy") or "").startswith("allkeys"):
            return None
        return self.limit - self.used

    @property
    def failed_save(self) -> str:
        """`snapshot` or `write to the append-only file`, if the last one failed; else empty."""
        if self.info.get("aof_last_write_status") == "err":
            return "write to the append-only file"
        return "snapshot" if self.info.get("rdb_last_bgsave_status") == "err" else ""

    @property
    def is_replica(self) -> bool:
        return self.info.get("role") == "slave"

    @property
    def lack(self) -> str:
        """Why the server may lack data, and what to do; empty if it has all, or does not say."""
        if self.info.get("loading") == "1":
            left = self.number("loading_eta_seconds")
            loaded = self.info.get("loading_loaded_perc", "").partition(".")[0]
            return f"{LOADING} ({loaded} % loaded, about {left} s left)" if loaded and left is not None else LOADING
        if not self.is_replica or self.info.get("master_link_status", "up") == "up":
            return ""
        if self.info.get("master_sync_in_progress") == "1":
            return "is a replica that still copies the data of its master; wait, or connect to the master"
        return LOST_MASTER

    @property
    def refusal(self) -> str:
        """Why the server refuses all writes; empty if it does not, or does not say."""
        if self.is_replica and self.info.get("slave_read_only", "1") == "1":
            return "it is a read-only replica"
        stops = self.settings.get("stop-writes-on-bgsave-error") == "yes" and self.settings.get("save", "unknown")
        if self.failed_save and (self.failed_save != "snapshot" or stops):
            return f"its last {self.failed_save} failed, since its disk is full, or cannot be written"
        return ""

    @property
    def keys(self) -> int | None:
        """The keys of all databases of the server; None if it does not say."""
        counts = [_KEYS.match(value) for name, value in self.info.items() if _DATABASE.fullmatch(name)]
        return sum(int(count[1]) for count in counts if count) if counts else None

    @property
    def kind(self) -> str:
        """`Redis`, `Valkey`, or the name that the server gives itself; "" if it gives none."""
        names = {"redis": "Redis", "valkey": "Valkey", "keydb": "KeyDB", "dragonfly": "Dragonfly"}
        if "valkey_version" in self.info:
            return "Valkey"
        if "dragonfly_version" in self.info:
            return "Dragonfly"
        name = self.info.get("server_name", "redis" if "redis_version" in self.info else "")
        return names.get(name.lower(), name)

    @property
    def version(self) -> str:
        """The version of the server, such as 7.0.15; "" if it is unknown."""
        own = {"Valkey": "valkey_version", "Dragonfly": "dragonfly_version"}.get(self.kind, "redis_version")
        return self.info.get(own, "").removeprefix("df-v")

    @property
    def version_parts(self) -> tuple[int, ...]:
        """The version as numbers; empty if it is unknown."""
        parts = self.version.split(".")
        return tuple(map(int, parts)) if all(part.isascii() and part.isdigit() for part in parts) else ()


def mebibytes(size: int) -> str:
    """`4.0 MiB`."""
    return f"{size / 1024 / 1024:,.1f} MiB"


def _read_info(reply: Any) -> dict[str, str]:
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply if isinstance(reply, str) else ""
    lines = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, found, value in lines if found}


def _pairs(reply: Any) -> dict[str, str]:
    if isinstance(reply, dict):
        return {name.decode(): value.decode(errors="replace") for name, value in reply.items()}
    if isinstance(reply, list):
        return {reply[at].decode(): reply[at + 1].decode(errors="replace") for at in range(0, len(reply) - 1, 2)}
    return {}
