"""The users that docs/permissions.md describes, with the least permissions that each needs."""

from __future__ import annotations

from typing import Final, NamedTuple

from redbox import keys
from redbox.store.scripts.registry import REGISTRY, commands
from redbox.store.server.permissions import REPLACING, SETTLING

_SENDING: Final = ("EVAL", "EVALSHA")
_TRANSACTION: Final = ("EXEC", "MULTI", "UNWATCH", "WATCH")


class Role(NamedTuple):
    """What one kind of user does: the scripts that it runs, and the commands that it sends besides."""

    scripts: tuple[str, ...]
    commands: tuple[str, ...]


ROLES: Final = {
    "application": Role(("check_permissions", "put"), (*_SENDING, *_TRANSACTION)),
    "relay": Role(
        ("check_permissions", "claim", *SETTLING, "reap", "beat", "record_rates", "sweep", "end_wait", "stats"),
        (*_SENDING, "BLPOP", "HGETALL"),
    ),
    "operator": Role(
        tuple(REGISTRY),
        (
            *_SENDING,
            *_TRANSACTION,
            "BLPOP",
            "EXISTS",
            "HGET",
            "HGETALL",
            "HMGET",
            "LRANGE",
            "MGET",
            "SCAN",
            "TIME",
            "XREVRANGE",
            "ZCARD",
            "ZRANGE",
            "ZRANGEBYSCORE",
            "ZSCORE",
        ),
    ),
}
#: What a durability needs in addition, by its name.
FOR_DURABILITY: Final = {"fsync": ("CONFIG|GET", "INFO", "HINCRBY", "WAITAOF"), "replicas=N": ("WAIT",)}
#: What `redbox doctor` needs for all of its checks; without it some are left out.
FOR_DOCTOR: Final = ("CONFIG|GET", "INFO", "MEMORY|USAGE")


def granted(role: str) -> list[str]:
    """The commands that a user of this role must be permitted to run."""
    chosen = ROLES[role]
    scripts = {command for name in chosen.scripts for command in commands(name)}
    if "drop" not in chosen.scripts:  # an application puts events, and replaces none
        scripts -= REPLACING - {command for name in chosen.scripts if name != "put" for command in commands(name)}
    return sorted({*chosen.commands, *scripts})


def acl_rules(role: str, box: str) -> str:
    """What ACL SETUSER takes for a user of this role: the box's keys, and as few commands as it can do with."""
    return " ".join([f"~{keys.prefix(box)}:*", *(f"+{command.lower()}" for command in granted(role))])
