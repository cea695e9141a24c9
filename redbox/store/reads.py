"""The reads of a box that need no script: single commands, or several whose replies need not be of one moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from redbox import keys
from redbox.arguments import shown
from redbox.errors import ForeignKey, StoreError
from redbox.store.codec import pairs
from redbox.store.damage import is_count, is_moment, read_history, score_ms
from redbox.store.exchanges import Exchanges
from redbox.store.scripts.replies import BlockedLine, EventSummary, Fence, Fields, LoggedEntry, PausedEntry, StoredEvent
from redbox.store.scripts.steps import batches
from redbox.store.server.foreign import Foreign, find_foreign, keys_of_box
from redbox.store.server.server_facts import QUESTIONS, ServerFacts
from redbox.store.wire.base import BlockingWait, Command

NEWEST_COUNT: Final = 250  # events that are read at once
LOG_COUNT: Final = 200  # entries that are read at once


class Reads:
    """Reads a box without scripts."""

    def __init__(self, exchanges: Exchanges) -> None:
        self.box = exchanges.box
        self.exchanges = exchanges
        self.exchange = exchanges.ask
        self._meta = keys.meta(self.box)

    def ensure_open(self) -> None:
        """Raises UsageError for a new call on a box that is closed or closing."""
        self.exchanges.ensure_open()

    @property
    def where(self) -> str:
        """The server in words, without secrets."""
        return self.exchanges.endpoint.description

    async def time(self) -> int:
        """The store's clock, in ms."""
        ((seconds, microseconds),) = await self.exchange([("TIME",)], repeat=True)
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def server_facts(self) -> ServerFacts:
        """What the server that holds the box says about itself. Commands that it refuses are named in the result."""
        return ServerFacts.read(await self.exchanges.send(QUESTIONS, repeat=True))

    async def memory_usage(self, ids: Sequence[bytes]) -> list[int]:
        """The bytes of memory that the keys of each event take; empty where the server does not say."""
        prefix = keys.prefix(self.box).encode()
        commands: list[Command] = [
            ("MEMORY", "USAGE", prefix + kind + raw) for raw in ids for kind in (b":e:", b":b:", b":h:")
        ]
        replies = await self.exchanges.send(commands, repeat=True) if commands else []
        if any(isinstance(reply, Exception) for reply in replies):
            return []
        sizes = [reply or 0 for reply in replies]
        return [sum(sizes[at : at + 3]) for at in range(0, len(sizes), 3)]

    async def time_and_claims(self) -> tuple[int, int]:
        """The store's clock, in ms, and then the highest claim number so far."""
        commands = [("TIME",), ("HGET", keys.counters(self.box), "claimed")]
        (seconds, microseconds), reply = await self.exchange(commands, repeat=True)
        claims = "0" if reply is None else reply.decode(errors="replace")
        if not is_count(claims):
            raise StoreError(
                f"the number of claims of this box cannot be read: it is {shown(claims)}; set the field claimed of "
                f"{keys.counters(self.box)} to a number above the claim number of every event"
            )
        return int(seconds) * 1000 + int(microseconds) // 1000, int(claims)

    async def meta(self) -> dict[str, str]:
        """The meta hash; empty when the box does not exist."""
        (reply,) = await self.exchange([("HGETALL", self._meta)], repeat=True)
        return pairs(part for pair in as_fields(reply).items() for part in pair)

    async def exists(self) -> bool:
        """Whether the box exists. Raises StoreUnavailable if it is not found on a server that may lack data."""
        if await self.meta():
            return True
        if (lack := await self.exchanges.lack()) is not None:
            raise lack
        return False

    async def hashes(self, ids: Sequence[str], *, bodies: bool) -> list[StoredEvent]:
        """The hash of each event and, if asked for, its body.

        Each hash is consistent in itself and a body never changes, so this needs no script, and costs the server a
        quarter of one. An event that is removed in between may come with its hash and without its body.
        """
        commands: list[Command] = [("HGETALL", keys.event(self.box, event_id)) for event_id in ids]
        if bodies:
            commands.append(("MGET", *[keys.body(self.box, event_id) for event_id in ids]))
        replies = await self.exchange(commands, repeat=True)
        read = replies.pop() if bodies else [None] * len(ids)
        return [StoredEvent(as_fields(reply), body) for reply, body in zip(replies, read, strict=True)]

    async def scores_from_end(self, index: str, count: int, until: int | None) -> list[int]:
        """The scores, in ms, of the member that is `count`th from the end of an index and of the one before it; none
        for those that do not exist. Members later than `until` are left out."""
        where, latest = f"{keys.prefix(self.box)}:{index}", "+inf" if until is None else until
        command = ("ZRANGE", where, latest, "-inf", "BYSCORE", "REV", "LIMIT", count - 1, 2, "WITHSCORES")
        (reply,) = await self.exchange([command], repeat=True)
        scored = reply if reply and isinstance(reply[0], list) else list(zip(reply[::2], reply[1::2], strict=True))
        return [score_ms(score) for _, score in scored]

    async def newest(self, index: str, count: int, *, by_attempt: bool = False) -> list[EventSummary]:
        """The last members of an index, the newest first, without their bodies. Those without an event are left out.

        `by_attempt`: the score of each is replaced by the time of its last attempt, where that is known.
        """
        where, prefix = f"{keys.prefix(self.box)}:{index}", keys.prefix(self.box).encode()
        (reply,) = await self.exchange([("ZRANGE", where, 0, count - 1, "REV", "WITHSCORES")], repeat=True)
        scored = reply if reply and isinstance(reply[0], list) else list(zip(reply[::2], reply[1::2], strict=True))
        found: list[EventSummary] = []
        for part in batches(scored, NEWEST_COUNT):
            commands: list[Command] = [
                ("HMGET", prefix + b":e:" + raw, "event_type", "last_error", "claim") for raw, _ in part
            ]
            if by_attempt:
                commands += [("LRANGE", prefix + b":h:" + raw, -1, -1) for raw, _ in part]
            replies = await self.exchange(commands, repeat=True)
            attempts: Iterable[Any] = replies[len(part) :] or repeat([])
            for (raw, score), fields, attempt in zip(part, replies, attempts, strict=False):
                event_type, last_error, claim = fields
                last = read_history(attempt[0]) if attempt else None
                at = str(score_ms(score) if last is None else last.at).encode()
                if event_type is not None:
                    found.append(EventSummary.read(raw, event_type, last_error or b"", at, claim or b""))
        return found

    async def rates(self, step: int) -> tuple[int, list[bytes]]:
        """The store's clock, in ms, and the samples of one ring of the history of rates, in no order."""
        commands: list[Command] = [("TIME",), ("HGETALL", keys.rates(self.box, step))]
        (seconds, microseconds), reply = await self.exchange(commands, repeat=True)
        return int(seconds) * 1000 + int(microseconds) // 1000, list(as_fields(reply).values())

    async def members(self, stream: str, batch: int, first: int, last: int) -> list[Fence]:
        """Members of a stream's batch by rank, with their claim numbers."""
        where = keys.batch(self.box, stream, batch)
        (reply,) = await self.exchange([("ZRANGE", where, first, last, "WITHSCORES")], repeat=True)
        scored = reply if reply and isinstance(reply[0], list) else zip(reply[::2], reply[1::2], strict=True)
        return [(event_id.decode(), int(float(number))) for event_id, number in scored]

    async def member_count(self, stream: str, batch: int) -> int:
        (reply,) = await self.exchange([("ZCARD", keys.batch(self.box, stream, batch))], repeat=True)
        return int(reply)

    async def bodies(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """The body of each event, which never changes; None when it is gone."""
        prefix = f"{keys.prefix(self.box)}:b:".encode()
        (reply,) = await self.exchange([("MGET", *[prefix + raw for raw in ids])], repeat=True)
        return list(reply)

    async def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """One step through all keys of the box, in no order: the next cursor, 0 at the end, and the keys.

        A key that exists from the first step to the last is found; one that comes or goes meanwhile may be.
        """
        command = ("SCAN", cursor, "MATCH", f"{keys.prefix(self.box)}:*", "COUNT", count)
        ((following, found),) = await self.exchange([command], repeat=True)
        return int(following), list(found)

    async def without_event(self, ids: Sequence[bytes]) -> list[bytes]:
        """Those of the ids that have no event."""
        if not ids:
            return []
        events = [f"{keys.prefix(self.box)}:e:".encode() + raw for raw in ids]
        (existing,) = await self.exchange([("EXISTS", *events)], repeat=True)
        if existing == len(ids):  # most often
            return []
        replies = await self.exchange([("EXISTS", event) for event in events], repeat=True)
        return [raw for raw, exists in zip(ids, replies, strict=True) if not exists]

    async def event_keys(self, ids: Sequence[bytes]) -> list[tuple[bytes | None, bytes | None]]:
        """The ordering_key and the unique_key of each event; None for both if the key of the event is foreign."""
        prefix = f"{keys.prefix(self.box)}:e:".encode()
        commands: list[Command] = [("HMGET", prefix + raw, "ordering_key", "unique_key") for raw in ids]
        replies = await self.exchanges.send(commands, repeat=True)
        found: list[tuple[bytes | None, bytes | None]] = []
        for reply in replies:
            error = self.exchanges.translate(reply, maybe=False) if isinstance(reply, Exception) else None
            if error is not None and not isinstance(error, ForeignKey):
                raise error from reply
            found.append((None, None) if error is not None else (reply[0], reply[1]))
        return found

    async def created_and_body(self, event_id: bytes) -> tuple[bytes | None, bytes | None]:
        """The created_at of an event and its body; None for what is missing."""
        prefix = keys.prefix(self.box).encode()
        commands: list[Command] = [
            ("HMGET", prefix + b":e:" + event_id, "created_at"), ("MGET", prefix + b":b:" + event_id),
        ]  # fmt: skip
        (created_at,), (body,) = await self.exchange(commands, repeat=True)
        return created_at, body

    async def foreign_keys(self) -> list[Foreign]:
        """Those keys that a box has once that have a foreign type."""
        return await find_foreign(self.exchanges.send, keys_of_box(self.box))

    async def foreign_keys_of(self, event_id: bytes) -> list[Foreign]:
        """Those keys of an event that have a foreign type, its line and its unique key included."""
        prefix = keys.prefix(self.box).encode()
        own = {prefix + b":e:" + event_id: "hash", prefix + b":b:" + event_id: "string"}
        own[prefix + b":h:" + event_id] = "list"
        ((ordering, unique),) = await self.event_keys([event_id])
        own |= {prefix + b":line:" + ordering: "zset"} if ordering is not None else {}
        own |= {prefix + b":unique:" + unique: "zset"} if unique is not None else {}
        return await find_foreign(self.exchanges.send, own)

    async def foreign_sets(self, kind: str, name: bytes) -> list[Foreign]:
        """The key of a line (`kind` "line") or of a unique key ("unique"), if it has a foreign type."""
        key = f"{keys.prefix(self.box)}:{kind}:".encode() + name
        return await find_foreign(self.exchanges.send, {key: "zset"})

    async def index_sizes(self, indexes: Iterable[str]) -> list[int]:
        """How many members each of these sorted sets has."""
        commands = [("ZCARD", f"{keys.prefix(self.box)}:{index}") for index in indexes]
        return await self.exchange(commands, repeat=True) if commands else []

    async def index_ends(self, index: str, count: int) -> list[bytes]:
        """The first and the last `count` members of a sorted set, each once: the ends of a small set overlap."""
        where = f"{keys.prefix(self.box)}:{index}"
        first, last = await self.exchange([("ZRANGE", where, 0, count - 1), ("ZRANGE", where, -count, -1)], repeat=True)
        return list(dict.fromkeys([*first, *last]))

    async def blocked_lines(self, count: int) -> list[BlockedLine]:
        """Lines that a dead event blocks, the longest blocked first."""
        (reply,) = await self.exchange([("ZRANGE", keys.blocked(self.box), 0, count - 1, "WITHSCORES")], repeat=True)
        scored = reply if reply and isinstance(reply[0], list) else list(zip(reply[::2], reply[1::2], strict=True))
        if not scored:
            return []
        prefix = f"{keys.prefix(self.box)}:line:".encode()
        commands: list[Command] = []
        for key, _ in scored:
            commands += [("ZRANGE", prefix + key, 0, 0), ("ZCARD", prefix + key)]
        replies = await self.exchange(commands, repeat=True)
        return [
            BlockedLine(
                key.decode(errors="replace"), score_ms(since), head[0].decode(errors="replace") if head else "", length
            )
            for (key, since), head, length in zip(scored, replies[::2], replies[1::2], strict=True)
        ]

    async def hint(self, longest: float) -> bool:
        """Waits for a hint that an event is due, at most `longest` seconds; False without one. Takes a connection."""
        command = ("BLPOP", keys.wake(self.box), await self.exchanges.longest_wait(longest))
        (reply,) = await self.exchange([command], wait=BlockingWait())
        return reply is not None

    async def log(self, first: int = LOG_COUNT) -> AsyncIterator[LoggedEntry]:
        """The entries of the box's log, newest first, read some at a time: they may be long. `first`: how many to read
        at the beginning."""
        newest, wanted = "+", min(first, LOG_COUNT)
        while True:
            command = ("XREVRANGE", keys.log(self.box), newest, "-", "COUNT", wanted)
            (found,) = await self.exchange([command], repeat=True)
            for raw_id, fields in found:
                yield LoggedEntry(int(raw_id.partition(b"-")[0]), pairs(fields))
            if len(found) < wanted:
                return
            newest, wanted = f"({found[-1][0].decode()}", LOG_COUNT

    async def log_about(self, name: str, limit: int, field: str = "ids") -> list[LoggedEntry]:
        """The newest entries of the box's log with this id, or another word in a field; at most `limit`. Only these are
        decoded: a log may have 10,000 entries."""
        wanted, newest = name.encode(), "+"
        entries: list[LoggedEntry] = []
        while len(entries) < limit:
            command = ("XREVRANGE", keys.log(self.box), newest, "-", "COUNT", LOG_COUNT)
            (found,) = await self.exchange([command], repeat=True)
            for raw_id, fields in found:
                named = as_fields(fields).get(field.encode(), b"")
                if wanted in named and wanted in named.split():
                    entries.append(LoggedEntry(int(raw_id.partition(b"-")[0]), pairs(fields)))
            if len(found) < LOG_COUNT:
                break
            newest = f"({found[-1][0].decode()}"
        return entries[:limit]

    async def paused_key(self, key: str) -> PausedEntry | None:
        """The pause of an ordering key, unless it has ended."""
        now = await self.time()
        (ends,) = await self.exchange([("ZSCORE", keys.paused(self.box), key)], repeat=True)
        if ends is None or float(ends) <= now:
            return None
        (about,) = await self.exchange([("HGET", keys.pauses(self.box), key)], repeat=True)
        return _paused_entry(key.encode(), ends, about)

    async def paused_keys(self, count: int) -> list[PausedEntry]:
        """Paused ordering keys, those whose pause ends first at the beginning."""
        now, where = await self.time(), keys.paused(self.box)
        command = ("ZRANGEBYSCORE", where, f"({now}", "+inf", "WITHSCORES", "LIMIT", 0, count)
        (reply,) = await self.exchange([command], repeat=True)
        scored = reply if reply and isinstance(reply[0], list) else list(zip(reply[::2], reply[1::2], strict=True))
        if not scored:
            return []
        (details,) = await self.exchange([("HMGET", keys.pauses(self.box), *[key for key, _ in scored])], repeat=True)
        return [_paused_entry(key, ends, about) for (key, ends), about in zip(scored, details, strict=True)]

    async def pauses_of(self, ends: Mapping[str, int]) -> list[PausedEntry]:
        """What is known about the pauses of these ordering keys, each with its end."""
        (details,) = await self.exchange([("HMGET", keys.pauses(self.box), *ends)], repeat=True)
        return [
            _paused_entry(key.encode(), end, about) for (key, end), about in zip(ends.items(), details, strict=True)
        ]

    async def boxes(self) -> list[str]:
        """The names of all boxes of this server, or of this cluster.

        Raises StoreUnavailable if none is found on a server that may lack data.
        """
        found = await self.exchanges.scan(keys.EVERY_META)
        if not found and (lack := await self.exchanges.lack()) is not None:
            raise lack
        return sorted({box for key in found if (box := keys.box_of_meta(key))})


def _paused_entry(key: bytes, until: Any, about: bytes | None) -> PausedEntry:
    since, _, rest = (about or b"").decode(errors="replace").partition("\t")
    who, _, why = rest.partition("\t")
    ends = None if float(until) == float("inf") else score_ms(until)
    return PausedEntry(key.decode(errors="replace"), ends, int(since) if is_moment(since) else None, who, why)


def as_fields(reply: Any) -> Fields:
    """A hash: a map in the newer protocol, a flat list in the older one."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
