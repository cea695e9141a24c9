"""The store: one method per script, each call of a script a single atomic step on the server.

What takes many events that do not depend on each other is made in several calls, so that none holds up the server for
long.

A put and a read may be repeated after a broken connection, a claim or a settlement may not: nobody can tell whether
the script ran before the reply was lost.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import repeat
from typing import Any, Final, Literal

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    TimeoutError,
)

from redbox import keys
from redbox.arguments import shown
from redbox.errors import (
    DurabilityNotReached,
    NotPermitted,
    RedboxError,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UsageError,
)
from redbox.store.append_only_file import AppendOnlyFile
from redbox.store.connect import Endpoint
from redbox.store.damage import is_count
from redbox.store.durability import NOTHING, SERVER, Confirmation, Durability, confirm_by
from redbox.store.errors import code, translate
from redbox.store.permissions import Permissions
from redbox.store.scripts import NO_WRITES, REGISTRY, Script, load
from redbox.store.steps import UNKNOWN, by_count, by_work
from redbox.store.wire.base import Talk, Wire
from redbox.store.wire.multiplexer import WAIT_PATIENCE, Command, NotConnected, Wait

REPEAT_PAUSES: Final = (0.05, 0.25)
OTHER_LOOP: Final = "this box is in use on another event loop; open one box per loop"

CREATED: Final = b"CREATED"
EXISTS: Final = b"EXISTS"
SKIPPED: Final = b"SKIPPED"
UNCONFIRMED: Final = b"UNCONFIRMED"  # instead of CREATED or EXISTS, when the durability was not reached

Fence = tuple[str, int]  # event id, claim number
Batch = tuple[str, str, int]  # of a stream: its name, who holds it, number
#: How long a token that ends a wait is kept, in ms: it may arrive before the wait does.
TOKEN_KEPT_MS: Final = 10_000
MARK_COUNT: Final = 250
RENEW_COUNT: Final = 500
LOG_COUNT: Final = 200  # entries that are read at once
CLAIM_HEAD: Final = 4  # parts of a claim's reply before its events
Fields = dict[bytes, bytes]
Mark = Literal["superseded_by", "archived"]
LockAction = Literal["take", "keep", "free"]
Replies = Any  # a list, as each script's header describes it


class _Exchanges:
    """Counts exchanges in flight, on one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    async def ended(self) -> None:
        """Waits until none is in flight."""
        while self._count:
            self._none.clear()
            await self._none.wait()


class Store:
    """A box on a server. Connects when first used."""

    def __init__(self, endpoint: Endpoint, box: str) -> None:
        self.box = keys.check_box_name(box)
        self.endpoint = endpoint
        self._meta = keys.meta(box)
        self._wire: Wire | None = None
        self._opening = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._exchanges = _Exchanges()
        self._file = AppendOnlyFile()
        self._permissions = Permissions()
        self._confirmations: dict[Durability, Confirmation] = {SERVER: NOTHING}

    # --- one method per script -----------------------------------------------------------------------------------

    async def put(self, mode: str, events: Iterable[tuple[Any, ...]], durability: Durability = SERVER) -> Replies:
        arguments: list[Any] = [mode]
        for event in events:
            arguments.extend(event)
        try:
            return await self._run("put", arguments, durability=durability, repeat=True)
        except DurabilityNotReached as error:  # a refused event is refused all the same
            return [[UNCONFIRMED, str(error)] if reply in (CREATED, EXISTS) else reply for reply in error.replies]

    async def claim(
        self,
        relay: str,
        limit: int,
        lease: int,
        attempts: int,
        size: int,
        holding: int,
        beside: str = "",
        *,
        spread: bool = False,
    ) -> Replies:
        arguments = (relay, limit, lease, attempts, size, holding, beside, int(spread))
        return await self._run("claim", arguments)

    async def cut_batch(self, batch: Batch, relay: str, limit: int, lease: int, size: int, until: int | None) -> int:
        """Claims events into a batch of a stream, up to `size` bytes of bodies; how many."""
        latest = "" if until is None else until
        return int(await self._run("cut_batch", (relay, limit, lease, size, latest, *batch)))

    async def claim_when_hinted(self, longest: float, wait: Wait, *arguments: Any) -> Replies:
        """Claims as soon as there is a hint, the time is over, or the wait is ended: in the server, in one exchange."""
        script = await self.script("claim")
        waiting = ("BLPOP", keys.wake(self.box), keys.wait(self.box, wait.name), await self._bounded(longest))
        arguments = (*arguments, 0)  # no spread
        claiming = ("EVALSHA", script.sha, 1, self._meta, *arguments)
        waited, reply = await self._exchange([waiting, claiming], repeat=False, writes=True, wait=wait)
        if isinstance(reply, NoScriptError):
            reply = await self._run("claim", arguments)
        # A wait that fails takes no time: unless the claim brought events, the caller must not repeat it at once.
        failed = next((each for each in (reply, waited) if isinstance(each, Exception)), None)
        if failed is not None and (isinstance(reply, Exception) or len(reply) == CLAIM_HEAD):
            told = self.script_error(reply) if failed is reply else self.translate(failed, maybe=False)
            raise told from failed
        return reply

    async def end_wait(self, wait: str) -> None:
        """Ends a wait early, by its name. A token that no wait takes is removed after 10 s."""
        await self._run("end_wait", (wait, TOKEN_KEPT_MS))

    async def can_end_wait(self) -> bool:
        """Whether a wait on this server can be ended early."""
        wire = await self.wire()
        try:
            with self._exchanges:
                return await wire.can_end_wait(self._meta)
        except (RedisError, OSError) as error:
            raise self.translate(error, maybe=False) from error

    async def renew(self, relay: str, lease: int, claims: Iterable[Fence], *, alone: bool = False) -> Replies:
        """The words alone, without the time."""
        replies: list[Any] = []
        for step in by_count(claims, RENEW_COUNT):
            _, *words = await self._run("renew", (relay, lease, int(alone), *_flat(step)))
            replies += words
        return replies

    async def ack(
        self,
        relay: str,
        delete: bool,
        claims: Iterable[Fence],
        durability: Durability = SERVER,
        work: Iterable[int] | None = None,
    ) -> Replies:
        """`work` of each claim, where it is known: see `steps`."""
        head = (relay, int(delete))
        weighed = zip(claims, repeat(UNKNOWN) if work is None else work, strict=work is not None)
        return await self._in_steps("ack", head, by_work(weighed), durability)

    async def settle_batch(self, batch: Batch, relay: str, claims: Iterable[Fence]) -> Replies:
        """Acknowledges members of a stream's batch, which leave it."""
        weighed = zip(claims, repeat(UNKNOWN), strict=False)
        return await self._in_steps("settle_batch", (relay, *batch), by_work(weighed))

    async def track_stream(
        self, action: str, name: str, owner: str, batch: int = 0, before: str = ""
    ) -> tuple[int, int]:
        """Where a stream stands: the last batch that was cut, and the last that is settled. With `before`, `own`
        raises StreamTaken unless that owner holds the stream."""
        arguments = (action, keys.check_stream_name(name), owner, batch, before)
        cut, settled = await self._run("track_stream", arguments, repeat=True)
        return int(cut), int(settled)

    async def reclaim(self, batch: Batch, relay: str, lease: int, ids: Iterable[str]) -> Replies:
        return await self._in_steps("reclaim", (relay, lease, *batch), by_count((each,) for each in ids))

    async def retry(
        self, relay: str, items: Iterable[tuple[str, int, int, int, str]], durability: Durability = SERVER
    ) -> Replies:
        return await self._in_steps("retry", (relay,), by_count(items), durability)

    async def kill(
        self,
        relay: str,
        items: Iterable[tuple[str, int | str, str]],
        *,
        who: str = "",
        why: str = "",
        drop: bool = False,
        durability: Durability = SERVER,
    ) -> Replies:
        return await self._in_steps("kill", (relay, who, why, int(drop)), by_count(items), durability)

    async def release(
        self,
        relay: str,
        claims: Iterable[tuple[str, int | str]],
        *,
        who: str = "",
        why: str = "",
        delay: int | None = None,
        durability: Durability = SERVER,
    ) -> Replies:
        wait = "" if delay is None else delay
        return await self._in_steps("release", (relay, who, why, wait), by_count(claims), durability)

    async def reap(self, limit: int, delay: int) -> Replies:
        return await self._run("reap", (limit, delay))

    async def replay(
        self,
        items: Iterable[tuple[str, int | str]],
        *,
        reset: bool,
        available: str,
        force: bool,
        dry: bool,
        who: str,
        why: str,
        durability: Durability = SERVER,
    ) -> Replies:
        head = (int(reset), available, int(force), int(dry), who, why)
        return await self._in_steps("replay", head, by_count(items), durability)

    async def reschedule(self, ids: Iterable[str], *, available: str, who: str, why: str) -> Replies:
        return await self._in_steps("reschedule", (available, who, why), by_count((each,) for each in ids))

    async def drop(self, items: Iterable[tuple[str, int | str]], *, who: str, why: str, heads: bool = True) -> Replies:
        """`heads=False` leaves dead events that block their lines."""
        return await self._in_steps("drop", (who, why, int(heads)), by_count(items))

    async def mark_event(self, field: Mark, items: Iterable[tuple[str, int, str]]) -> Replies:
        return await self._in_steps("mark_event", (field,), by_count(items, MARK_COUNT), repeat=True)

    async def write_log(
        self, action: str, *, who: str, why: str, count: int, ids: Iterable[str] = (), detail: str = "", token: str = ""
    ) -> None:
        """Adds an entry to the box's log. With a `token` it may be sent again: it is written once."""
        await self._run("write_log", (action, who, why, count, detail, token, *ids), repeat=bool(token))

    async def lock(self, action: LockAction, job: str, token: str, holds: float = 0) -> str:
        """Takes, keeps or frees the lock of a job, for so many seconds; the token of who holds it, or nothing."""
        arguments = (job, action, token, max(1, int(holds * 1000)))
        return str((await self._run("lock", arguments, repeat=True)).decode())

    async def sweep(
        self, index: str, age: int | None, keep: int | None, limit: int, dry: bool, cursor: tuple[Any, Any]
    ) -> Replies:
        return await self._run(
            "sweep", (index, "" if age is None else age, "" if keep is None else keep, limit, int(dry), *cursor)
        )

    async def beat(
        self, relay: str, instance: str, fresh: int, forget: int, *, leaving: bool, fields: Iterable[tuple[str, str]]
    ) -> Replies:
        return await self._run("beat", (relay, instance, fresh, forget, int(leaving), *_flat(fields)))

    async def configure(
        self, action: str, changes: Iterable[tuple[str, str]], *, who: str, why: str, limit: int
    ) -> int:
        # Repeated only where nothing is logged: the log must not tell one action twice.
        return int(await self._run("configure", (action, who, why, limit, *_flat(changes)), repeat=not who))

    async def check_permissions(self, commands: Iterable[tuple[str, int]]) -> Replies:
        """Which commands, each with its least number of arguments, the user may not run on the box's keys.

        The script is sent whole: it is asked once, in one exchange."""
        script = load("check_permissions", shebang=(await self.wire()).shebang)
        command = ("EVAL", script.text, 1, self._meta, " ".join(keys.KINDS), *_flat(commands))
        (reply,) = await self._exchange([command], repeat=True)
        if isinstance(reply, Exception):
            raise self.translate(reply, maybe=False) from reply
        return reply

    async def get(self, ids: Iterable[str]) -> Replies:
        return await self._run("get", tuple(ids), repeat=True)

    async def page(self, *arguments: Any) -> Replies:
        return await self._run("page", arguments, repeat=True)

    async def stats(self) -> Replies:
        return await self._run("stats", (), repeat=True)

    async def split_index(self, *arguments: Any) -> Replies:
        return await self._run("split_index", arguments, repeat=True)

    async def list_ids(self, *arguments: Any) -> Replies:
        return await self._run("list_ids", arguments, repeat=True)

    async def read_states(self, ids: Iterable[str]) -> Replies:
        return await self._in_steps("read_states", (), by_count((each,) for each in ids), repeat=True)

    async def examine(self, ids: Iterable[str | bytes]) -> Replies:
        return await self._run("examine", tuple(ids), repeat=True)

    async def examine_keys(self, limit: int, names: Iterable[tuple[str, bytes, bytes, bytes]]) -> Replies:
        return await self._run("examine_keys", (limit, *_flat(names)), repeat=True)

    # --- without a script ----------------------------------------------------------------------------------

    async def time(self) -> int:
        """The store's clock, in ms."""
        ((seconds, microseconds),) = await self.exchange([("TIME",)], repeat=True)
        return int(seconds) * 1000 + int(microseconds) // 1000

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

    async def meta(self) -> Any:
        """The meta hash as a flat list; empty when the box does not exist."""
        (reply,) = await self.exchange([("HGETALL", self._meta)], repeat=True)
        return [part for pair in reply.items() for part in pair] if isinstance(reply, dict) else reply

    async def hashes(self, ids: Sequence[str], *, bodies: bool) -> list[tuple[Fields, bytes | None]]:
        """Of each event its hash, empty when it is gone, and its body. Each hash is consistent in itself, and a body
        never changes: so this needs no script, and costs the server a quarter of one. An event that is removed in
        between may come with its hash and without its body."""
        commands: list[Command] = [("HGETALL", keys.event(self.box, event_id)) for event_id in ids]
        if bodies:
            commands.append(("MGET", *[keys.body(self.box, event_id) for event_id in ids]))
        replies = await self.exchange(commands, repeat=True)
        read = replies.pop() if bodies else [None] * len(ids)
        return [(as_fields(reply), body) for reply, body in zip(replies, read, strict=True)]

    async def members(self, stream: str, batch: int, first: int, last: int) -> list[Fence]:
        """Members of a stream's batch by rank, with their claim numbers."""
        where = keys.batch(self.box, stream, batch)
        (reply,) = await self.exchange([("ZRANGE", where, first, last, "WITHSCORES")], repeat=True)
        pairs = reply if reply and isinstance(reply[0], list) else zip(reply[::2], reply[1::2], strict=True)
        return [(event_id.decode(), int(float(number))) for event_id, number in pairs]

    async def member_count(self, stream: str, batch: int) -> int:
        (reply,) = await self.exchange([("ZCARD", keys.batch(self.box, stream, batch))], repeat=True)
        return int(reply)

    async def bodies(self, ids: Sequence[str]) -> list[bytes | None]:
        """Of each event its body, which never changes; None when it is gone."""
        if not ids:
            return []
        (reply,) = await self.exchange([("MGET", *[keys.body(self.box, event_id) for event_id in ids])], repeat=True)
        return list(reply)

    async def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """One step through all keys of the box, in no order: where to go on, 0 at the end, and what was found. What is
        there from the first step to the last is found; what comes or goes meanwhile may be."""
        command = ("SCAN", cursor, "MATCH", f"{keys.prefix(self.box)}:*", "COUNT", count)
        ((following, found),) = await self.exchange([command], repeat=True)
        return int(following), list(found)

    async def hint(self, longest: float) -> bool:
        """Waits for a hint that something is due, at most so many seconds; False without one. Takes a connection."""
        (reply,) = await self.exchange([("BLPOP", keys.wake(self.box), await self._bounded(longest))], wait=Wait())
        return reply is not None

    async def _bounded(self, longest: float) -> float:
        """A wait that ends before the connection is given up."""
        patience = (await self.wire()).read_timeout
        return min(longest, (WAIT_PATIENCE if patience is None else patience) / 2)

    async def log(self, count: int) -> list[Any]:
        """The newest entries, read some at a time: they may be long."""
        entries: list[Any] = []
        newest = "+"
        while len(entries) < count:
            wanted = min(LOG_COUNT, count - len(entries))
            command = ("XREVRANGE", keys.log(self.box), newest, "-", "COUNT", wanted)
            (found,) = await self.exchange([command], repeat=True)
            entries += found
            if len(found) < wanted:
                break
            newest = f"({found[-1][0].decode()}"
        return entries

    async def boxes(self) -> list[str]:
        """The names of all boxes of this server, or of this cluster."""
        try:
            wire = await self.wire()
            with self._exchanges:
                found = await wire.scan(keys.EVERY_META)
        except (RedisError, OSError) as error:
            raise self.translate(error, maybe=False) from error
        return sorted({box for key in found if (box := keys.box_of_meta(key))})

    # --- connection ----------------------------------------------------------------------------------------------

    async def wire(self) -> Wire:
        """The way to the server, opened when first asked for, on the event loop that asks."""
        self._ensure_open()
        self._change_loop()
        wire = self._wire
        if wire is None:
            async with self._opening:
                self._ensure_open()
                if self._wire is None:
                    self._wire = await self.endpoint.open()
                wire = self._wire
            self._ensure_open()  # it may have been closed meanwhile: `close` waits for the wire, and closes it
        return wire

    def _ensure_open(self) -> None:
        if self._closed:
            raise UsageError("this box was closed; open it again with Box.open")

    @asynccontextmanager
    async def session(self, wire: Wire) -> AsyncIterator[Talk]:
        """One connection for several exchanges; `close` waits for its end."""
        with self._exchanges:
            async with wire.session(self._meta) as talk:
                yield talk

    def _change_loop(self) -> None:
        """On another event loop than before, begins anew: connections, locks and exchanges belong to their loop."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        in_use = self._wire is not None or self._opening.locked()
        if self._loop is not None and in_use and not self._loop.is_closed():
            raise UsageError(OTHER_LOOP)
        if self._wire is not None:
            self._wire.abandon()
        self._wire, self._loop, self._opening, self._exchanges = None, loop, asyncio.Lock(), _Exchanges()
        self._permissions = Permissions()

    async def close(self) -> None:
        """Waits for exchanges in flight and closes the connections; nothing goes out any more."""
        self._closed = True
        self._change_loop()
        await self._exchanges.ended()
        async with self._opening:
            wire, self._wire = self._wire, None
            if wire is not None:
                await wire.close()

    async def script(self, name: str) -> Script:
        """A script, ready to be sent; NotPermitted when it could not run to its end."""
        wire = await self.wire()
        if self._permissions.unsure_of(name) and wire.shebang:  # an in-memory stand-in has no users
            await self._permissions.check(name, self.check_permissions, where=self.endpoint.description, box=self.box)
        return load(name, shebang=wire.shebang)

    async def exchange(
        self, commands: Sequence[Command], *, repeat: bool = False, wait: Wait | None = None
    ) -> list[Any]:
        """Sends commands on one connection; any error, also an error reply, is raised as a RedboxError."""
        replies = await self._exchange(commands, repeat=repeat, wait=wait)
        for reply in replies:
            if isinstance(reply, Exception):
                raise self.translate(reply, maybe=False) from reply
        return replies

    async def confirmation(self, durability: Durability) -> Confirmation:
        """How this server confirms a durability; asked once."""
        known = self._confirmations.get(durability)
        if known is None:

            async def exchange(commands: Sequence[Command]) -> list[Any]:
                replies = await self._exchange(commands, repeat=True, wait=Wait())
                for reply in replies:
                    # A server that is busy, or has too few replicas, has not said that it cannot.
                    if isinstance(reply, Exception) and code(reply) != "NOPERM":
                        told = self.translate(reply, maybe=False)
                        if isinstance(told, StoreUnavailable | StoreFull):
                            raise told from reply
                return replies

            timeout = (await self.wire()).read_timeout
            known = await confirm_by(durability, exchange, keys.counters(self.box), timeout)
            self._confirmations[durability] = known
        return known

    async def shortfall(self, confirmation: Confirmation, replies: Sequence[Any]) -> str:
        """What is missing for a write to be confirmed, "" for nothing; `replies` are to the confirmation's commands."""

        async def exchange(commands: Sequence[Command]) -> list[Any]:
            return await self._exchange(commands, repeat=False)

        if confirmation.command is None:
            return ""
        if not confirmation.reached(replies[0]):
            return "was not confirmed"
        if confirmation.on_disk:
            missing = await self._file.shortfall(replies[1], exchange, confirmation.patience)
            return f"was not confirmed: {missing}" if missing else ""
        return ""

    async def _in_steps(
        self,
        name: str,
        head: tuple[Any, ...],
        steps: Iterable[list[tuple[Any, ...]]],
        durability: Durability = SERVER,
        *,
        repeat: bool = False,
    ) -> list[Any]:
        """The replies of all steps. One that was carried out but not confirmed does not keep the others from it."""
        replies: list[Any] = []
        missed: DurabilityNotReached | None = None
        for step in steps:
            try:
                replies += await self._run(name, (*head, *_flat(step)), durability=durability, repeat=repeat)
            except DurabilityNotReached as error:
                missed = missed or error
                replies += error.replies
            except StoreError as error:
                error.after(len(replies))
                raise
        if missed is not None:
            missed.replies = replies
            raise missed
        return replies

    async def _run(
        self, name: str, arguments: Sequence[Any], *, durability: Durability = SERVER, repeat: bool = False
    ) -> Any:
        script = await self.script(name)
        confirmation = NOTHING if durability is SERVER else await self.confirmation(durability)
        trailer = confirmation.commands
        writes = REGISTRY[name].flag != NO_WRITES
        by_sha, by_text = ("EVALSHA", script.sha), ("EVAL", script.text)
        for way in (by_sha, by_text):  # by text when it was flushed, or the server restarted or failed over
            command, wait = (*way, 1, self._meta, *arguments), Wait() if confirmation.waits else None
            replies = await self._exchange([command, *trailer], repeat=repeat, writes=writes, wait=wait)
            if not isinstance(replies[0], NoScriptError):
                break
        if isinstance(replies[0], Exception):
            raise self.script_error(replies[0]) from replies[0]
        shortfall = await self.shortfall(confirmation, replies[1:])
        if shortfall:
            raise DurabilityNotReached(
                f"{name} reached the server, but {durability.name} {shortfall}; what it changed is there, and may not "
                "survive a failure" + ("; putting it again with the same event_id is safe" if name == "put" else ""),
                replies[0],
            )
        return replies[0]

    async def _exchange(
        self, commands: Sequence[Command], *, repeat: bool, writes: bool = False, wait: Wait | None = None
    ) -> list[Any]:
        wire = await self.wire()
        with self._exchanges:
            return await self._until_answered(wire, commands, repeat=repeat, writes=writes, wait=wait)

    async def _until_answered(
        self, wire: Wire, commands: Sequence[Command], *, repeat: bool, writes: bool, wait: Wait | None
    ) -> list[Any]:
        now = asyncio.get_running_loop().time
        # A server that does not answer is not asked again for longer than an answer may take.
        deadline = math.inf if wire.read_timeout is None else now() + wire.read_timeout
        pauses = iter(REPEAT_PAUSES if repeat else ())
        failovers = iter(REPEAT_PAUSES)
        sent = False
        while True:
            try:
                replies = await wire.exchange(self._meta, commands, wait)
                pause = next(failovers, None) if isinstance(replies[0], ReadOnlyError) else None
                if pause is None:
                    return replies
                # A master that became a replica ran nothing: whatever it was, the new master may be asked.
            except UnicodeEncodeError as error:
                raise UsageError(f"this text cannot be encoded as UTF-8: {error.object!a:.100}") from None
            except (RedisError, OSError) as error:
                sent = sent or not isinstance(error, NotConnected)
                lasting = not isinstance(error, ConnectionError | TimeoutError | OSError)
                pause = next(pauses, None) if now() < deadline else None
                if lasting or pause is None or isinstance(error, AuthenticationError | BusyLoadingError):
                    raise self.translate(error, maybe=writes and sent) from error
            await asyncio.sleep(pause)

    def translate(self, error: Exception, *, maybe: bool) -> RedboxError:
        """A redis-py error as one of ours: a sentence that says what to do, without secrets."""
        return translate(error, where=self.endpoint.description, box=self.box, maybe=maybe)

    def script_error(self, error: Exception) -> RedboxError:
        """The same for the error reply of a script. When a script was refused, permissions have changed, and the next
        one is checked before it is sent; the refusal of another command, such as BLPOP, says nothing about scripts."""
        told = self.translate(error, maybe=False)
        if isinstance(told, NotPermitted):
            self._permissions = Permissions()
        return told


def as_fields(reply: Any) -> Fields:
    """A hash: a map by the newer protocol, by the older a flat list."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def _flat(items: Iterable[tuple[Any, ...]]) -> list[Any]:
    return [part for item in items for part in item]
