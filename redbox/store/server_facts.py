"""What a server says about itself: INFO and some of its settings, as far as the user of the connection may ask."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from redbox.store.wire.base import Command

SETTINGS: Final = ("maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save")
#: One name for each CONFIG GET: servers before Redis 7 take no more.
QUESTIONS: Final[tuple[Command, ...]] = (("INFO",), *(("CONFIG", "GET", name) for name in SETTINGS))

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

    def setting(self, name: str) -> str | None:
        """A setting, from CONFIG GET or, for some, from INFO."""
        return self.settings.get(name) or self.info.get(name.replace("-", "_"))

    def number(self, name: str) -> int | None:
        """A whole number in INFO."""
        text = self.info.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else None

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
