"""Loads the Lua scripts with their includes, and lists the arguments of each.

`REGISTRY` holds what Python assumes about every script; a test compares it with the headers of the scripts.
"""

from __future__ import annotations

import errno
import hashlib
import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import msgspec

from redbox.errors import Effect, StoreError, StoreUnavailable

_INCLUDE = re.compile(r'^--- @include "([^"]+)"[ \t]*$', re.MULTILINE)
_CALL = re.compile(r'\b(?:redis\.call|call_in_chunks|call_with_events)\("([A-Z]+)"')
_SHEBANG = re.compile(r"\A#!lua[^\n]*\n")

ALLOW_OOM: Final = "allow-oom"
NO_WRITES: Final = "no-writes"


class Signature(msgspec.Struct, frozen=True):
    """The arguments of a script: `argv` once, then `each` once per item; its flag, and the codes of its errors."""

    argv: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    flag: str | None = ALLOW_OOM
    errors: tuple[str, ...] = ("NEWERLAYOUT",)


REGISTRY: Final[dict[str, Signature]] = {
    "put": Signature(
        ("mode",),
        ("id", "event_type", "body", "content", "options"),
        flag=None,
    ),
    "claim": Signature(
        ("relay", "limit", "lease", "attempts", "bytes", "holding", "beside", "spread"),
        errors=("NEWERLAYOUT", "PAUSED"),
    ),
    "cut_batch": Signature(
        ("relay", "limit", "lease", "bytes", "until", "stream", "owner", "batch"),
        errors=("NEWERLAYOUT", "PAUSED", "STREAMTAKEN"),
    ),
    "renew": Signature(("relay", "lease", "alone"), ("id", "number")),
    "ack": Signature(("relay", "delete"), ("id", "number")),
    "settle_batch": Signature(
        ("relay", "stream", "owner", "batch"), ("id", "number"), errors=("NEWERLAYOUT", "STREAMTAKEN")
    ),
    "track_stream": Signature(("action", "name", "owner", "batch", "before"), errors=("NEWERLAYOUT", "STREAMTAKEN")),
    "reclaim": Signature(
        ("relay", "lease", "stream", "owner", "batch"), ("id",), errors=("NEWERLAYOUT", "PAUSED", "STREAMTAKEN")
    ),
    "retry": Signature(("relay",), ("id", "number", "delay", "excuse", "error")),
    "kill": Signature(("relay", "who", "why", "drop", "token"), ("id", "number", "error")),
    "release": Signature(("relay", "who", "why", "delay", "token"), ("id", "number")),
    "reap": Signature(("limit", "delay")),
    "replay": Signature(
        ("reset", "available", "force", "dry", "who", "why", "token"), ("id", "number"), flag=None
    ),
    "reschedule": Signature(("available", "who", "why", "token"), ("id",)),
    "drop": Signature(("who", "why", "heads", "token"), ("id", "number")),
    "mark_event": Signature(("field",), ("id", "number", "value")),
    "write_log": Signature(("action", "who", "why", "count", "detail", "token"), ("id",)),
    "lock": Signature(("job", "action", "token", "holds")),
    "end_wait": Signature(("wait", "keep")),
    "sweep": Signature(("index", "age", "keep", "limit", "dry", "score", "id")),
    "beat": Signature(("relay", "instance", "fresh", "forget", "leaving"), ("field", "value")),
    "record_rates": Signature(("new",), ("bound", "count")),
    "configure": Signature(("action", "who", "why", "limit"), ("field", "value")),
    "pause": Signature(("key", "until", "who", "why")),
    "resume": Signature(("key", "ramp", "who", "why")),
    "check_permissions": Signature(("kinds",), ("command", "arguments"), flag=NO_WRITES),
    "get": Signature((), ("id",), flag=NO_WRITES),
    "page": Signature(
        (
            "index", "limit", "look", "bytes", "score", "id", "since", "until", "event_type", "key", "error",
            "created_since", "created_until", "what", "claims",
        ),
        flag=NO_WRITES,
    ),
    "stats": Signature(flag=NO_WRITES),
    "locate": Signature(("kind", "name"), flag=NO_WRITES),
    "split_index": Signature(("index", "since", "until", "score", "id", "size", "ranges"), flag=NO_WRITES),
    "list_ids": Signature(
        ("index", "score", "id", "last", "last_id", "since", "limit", "event_type"), flag=NO_WRITES
    ),
    "read_states": Signature((), ("id",), flag=NO_WRITES),
    "repair": Signature(
        ("dry", "id", "created_at", "size", "event_type", "ordering_key", "unique_key", "unique_scope")
    ),
    "repair_key": Signature(("dry", "kind", "name", "id")),
    "examine": Signature(("bytes",), ("id",), flag=NO_WRITES),
    "examine_keys": Signature(("limit",), ("kind", "name", "score", "id"), flag=NO_WRITES),
}  # fmt: skip


class Script(msgspec.Struct, frozen=True):
    """A script as it is sent to the server."""

    name: str
    text: str
    sha: str


def lua_root() -> Traversable:
    """The folder of the scripts: inside the installed package, or beside it in a checkout."""
    packaged = files("redbox") / "_lua"
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").is_file() and (checkout / "lua").is_dir():
        return checkout / "lua"
    raise StoreError("this redbox was built without its Lua scripts; install it again from a wheel or a checkout")


def assemble(root: Traversable, name: str) -> str:
    """The text of a script, with each include inserted once, before its first use."""
    placed: set[str] = set()

    def expand(path: str, chain: tuple[str, ...]) -> str:
        if path in chain:
            raise StoreError(f"lua include cycle: {' → '.join((*chain, path))}")
        try:
            text = (root / f"{path}.lua").read_text()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreError(
                f"lua script {path}.lua is missing (included by {chain[-1] if chain else 'redbox'})"
            ) from error
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise StoreUnavailable(
                f"lua script {path}.lua cannot be read, because too many files are open; raise the limit (ulimit -n)"
            ).with_effect(Effect.NOTHING_CHANGED) from error
        wanted = _INCLUDE.findall(text)
        twice = {include for include in wanted if wanted.count(include) > 1}
        if twice:
            raise StoreError(f"{path}.lua includes {', '.join(sorted(twice))} twice")

        def replace(match: re.Match[str]) -> str:
            include = f"include/{match[1]}"
            if include in placed:
                return ""
            expanded = expand(include, (*chain, path))
            placed.add(include)
            return expanded.rstrip("\n")

        return _INCLUDE.sub(replace, text)

    return expand(name, ())


@cache
def load(name: str, *, shebang: bool = True, root: Traversable | None = None) -> Script:
    """Loads a script by name; without its `#!lua` line for servers that do not parse it. Its files are read once.

    Raises StoreUnavailable if too many files are open.
    """
    text = _read(name) if root is None else _compact(assemble(root, name))
    if not shebang:
        text = _SHEBANG.sub("", text)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def load_all() -> None:
    """Reads all scripts, so that a process that runs for long needs no files later."""
    for name in REGISTRY:
        load(name)


@cache
def commands(name: str) -> frozenset[str]:
    """The Redis commands that a script may call."""
    return frozenset(_CALL.findall(load(name).text))


@cache
def _read(name: str) -> str:
    return _compact(assemble(lua_root(), name))


def _compact(text: str) -> str:
    """Removes comment lines and blank lines: a transaction sends the whole text each time."""
    return "\n".join(line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("--")) + "\n"
