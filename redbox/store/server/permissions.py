"""The permissions of a connection's user, checked before the first script that writes is sent.

Redis does not roll back: a script that lacks a permission would stop in the middle and leave half of its writes. All
scripts are checked in one exchange, when a client first writes; and again for a script that lacked a permission, or
when the server reports that a permission was revoked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Final

from redbox import keys
from redbox.errors import Effect, NotPermitted
from redbox.store.attempt import SharedAttempt
from redbox.store.scripts.registry import NO_WRITES, REGISTRY, commands

Ask = Callable[[Iterable[tuple[str, int]]], Awaitable[set[str]]]

#: The commands that scripts call, by the least number of arguments that each takes. Servers read beyond the end of a
#: command's arguments, and may crash, when `redis.acl_check_cmd` is given fewer; newer ones refuse it.
ARGUMENTS: Final = {
    "TIME": 0,
    "DEL": 1, "EXISTS": 1, "GET": 1, "HGETALL": 1, "HLEN": 1, "LLEN": 1, "MGET": 1, "STRLEN": 1, "UNLINK": 1, "XLEN": 1,
    "ZCARD": 1,
    "HDEL": 2, "HGET": 2, "HMGET": 2, "MSET": 2, "PEXPIRE": 2, "RPUSH": 2, "SET": 2, "XDEL": 2, "ZMSCORE": 2, "ZREM": 2,
    "ZSCORE": 2,
    "GETRANGE": 3, "HINCRBY": 3, "HSET": 3, "HSETNX": 3, "LRANGE": 3, "LTRIM": 3, "PSETEX": 3, "XREVRANGE": 3,
    "ZADD": 3, "ZCOUNT": 3,
    "ZRANGE": 3, "ZRANGEBYSCORE": 3, "ZREMRANGEBYRANK": 3, "ZREVRANGE": 3,
    "XADD": 4,
}  # fmt: skip

#: A put that may replace an event, as if it were a script of its own; and the commands that only such a put calls.
REPLACE: Final = "replace"
REPLACING: Final = frozenset({"HDEL", "UNLINK", "ZREM"})
WRITING: Final = frozenset({REPLACE, *(name for name, signature in REGISTRY.items() if signature.flag != NO_WRITES)})
SETTLING: Final = ("renew", "ack", "retry", "kill", "release")


def together(name: str) -> tuple[str, ...]:
    """This script, and those that its user must be able to run as well: a relay that claims must be able to settle."""
    if name in ("cut_batch", "reclaim"):
        return (name, *SETTLING, "settle_batch")
    return (name, *SETTLING) if name == "claim" else (name,)


@cache
def needed(name: str) -> frozenset[str]:
    """The commands that a user must be permitted to run before this script is sent."""
    if name in ("put", REPLACE):
        return commands("put") - (REPLACING if name == "put" else frozenset())
    return frozenset(command for each in together(name) for command in commands(each))


@cache
def all_needed() -> tuple[tuple[str, int], ...]:
    return tuple(
        (command, ARGUMENTS[command]) for command in sorted({each for name in WRITING for each in needed(name)})
    )


class Permissions:
    """The permissions of one client for one box, as far as they were checked."""

    def __init__(self) -> None:
        self._unsure = WRITING
        self._asking = SharedAttempt()

    def unsure_of(self, name: str) -> bool:
        """Whether this script has to be checked before it is sent."""
        return name in self._unsure

    async def check(self, name: str, ask: Ask, *, where: str, box: str) -> None:
        """Raises NotPermitted unless the script can run to its end."""
        async with self._asking.turn():
            if not self.unsure_of(name):  # another caller has asked meanwhile
                return
            missing = await ask(all_needed())
            lacks_keys = any(each.startswith(":") for each in missing)
            self._unsure = frozenset(
                script for script in WRITING if lacks_keys or not needed(script).isdisjoint(missing)
            )
            if name in self._unsure:
                raise _not_permitted(name, needed(name) & missing, lacks_keys, where, box)


def _not_permitted(name: str, missing: AbstractSet[str], lacks_keys: bool, where: str, box: str) -> NotPermitted:
    grant = [f"+{command.lower()}" for command in sorted(missing)]
    if lacks_keys:
        grant.append(f"~{keys.prefix(box)}:*")
    lacking = NotPermitted(f"{where} does not grant its user all that {name} on box {box!r} needs", tuple(grant))
    return lacking.with_effect(Effect.NOTHING_CHANGED, f": grant it {' '.join(grant)}")
