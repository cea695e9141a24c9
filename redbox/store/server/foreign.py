"""Finds the keys of a box that another program uses: those with a type that redbox does not give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from redbox import keys
from redbox.arguments import counted
from redbox.errors import ForeignKey
from redbox.store.wire.base import Command

#: By type, the command that a key of another type refuses. Scripts call these too: unlike TYPE, they need no further
#: permission.
_LENGTH: Final = {"hash": "HLEN", "list": "LLEN", "stream": "XLEN", "string": "STRLEN", "zset": "ZCARD"}


class Sender(Protocol):
    """Sends commands, and returns error replies as exceptions."""

    async def __call__(self, commands: Sequence[Command], *, repeat: bool) -> list[Any]: ...


class Foreign(NamedTuple):
    """A key with a foreign type; `found` is None if it is a type that no key of redbox has."""

    key: bytes
    found: str | None
    expected: str

    def __str__(self) -> str:
        found = "of a type that redbox does not use" if self.found is None else _in_words(self.found)
        return f"{self.key.decode(errors='backslashreplace')} is {found}, but redbox expects {_in_words(self.expected)}"


def _in_words(kind: str) -> str:
    return "a sorted set" if kind == "zset" else f"a {kind}"


async def find_foreign(send: Sender, expected: Mapping[bytes, str]) -> list[Foreign]:
    """Those of the keys that have another type than the one that redbox expects."""
    replies = await send([(_LENGTH[kind], key) for key, kind in expected.items()], repeat=True)
    refused = [key for key, reply in zip(expected, replies, strict=True) if "WRONGTYPE" in str(reply)]
    return [Foreign(key, await _find_type(send, key), expected[key]) for key in refused]


async def _find_type(send: Sender, key: bytes) -> str | None:
    replies = await send([(command, key) for command in _LENGTH.values()], repeat=True)
    fitting = [kind for kind, reply in zip(_LENGTH, replies, strict=True) if not isinstance(reply, Exception)]
    return fitting[0] if len(fitting) == 1 else None


def keys_of_box(box: str) -> dict[bytes, str]:
    """The type of every key that the box has once."""
    return {f"{keys.prefix(box)}:{name}".encode(): kind for name, kind in keys.TYPES.items()}


def foreign_key_error(found: Sequence[Foreign], *, where: str, box: str) -> ForeignKey:
    """The error that names the first of the keys, and says what to do if the box holds events."""
    first = found[0].key.decode()
    others = f" (and {counted(len(found) - 1, 'other key')})" if len(found) > 1 else ""
    settings = "set its settings again with `redbox configure`, " if first == keys.meta(box) else ""
    return ForeignKey(
        f"something else uses the key names of box {box!r} on {where}: {found[0]}{others}; choose another name. If the "
        f"box holds events, look at the key, rename it with `RENAME {first} {first}.foreign`, {settings}"
        "then run `redbox doctor --repair`, which rebuilds the indexes"
    )
