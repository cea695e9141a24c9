"""The store: one method per script.

Each call of a script is a single atomic step on the server. A call with many independent events is made in several
steps. Times and leases are in milliseconds, unless a method says seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final, Literal, TypedDict, Unpack

from redis.exceptions import NoScriptError

from redbox import keys
from redbox.errors import DurabilityNotReached
from redbox.events import Outcome, Record
from redbox.store.codec import EncodedEvent, decode_record, decode_sighting, pairs, put_arguments
from redbox.store.connect import Endpoint
from redbox.store.damage import score_ms
from redbox.store.exchanges import Exchanges
from redbox.store.reads import Reads, as_fields
from redbox.store.scripts.items import KillItem, KnownBody, MarkItem, RetryItem, SeenClaim, StreamBatch
from redbox.store.scripts.replies import (
    CLAIM_HEAD,
    START,
    ClaimPage,
    EventState,
    EventSummary,
    Examined,
    ExaminedEvent,
    ExaminedKey,
    ExaminedMember,
    Fence,
    Filters,
    IdPage,
    IndexRanges,
    Located,
    Packed,
    PauseReply,
    Position,
    PutReply,
    Reaped,
    RecordPage,
    Refusal,
    RelayBeat,
    ReplayReply,
    StatsReply,
    StreamPosition,
    SummaryPage,
    SweepStep,
    is_stored,
    read_put_replies,
)
from redbox.store.scripts.runner import ScriptRunner, flat
from redbox.store.scripts.steps import UNKNOWN, batches, by_work
from redbox.store.server.durability import SERVER, Durability
from redbox.store.server.permissions import REPLACE
from redbox.store.wire.base import BlockingWait

PutMode = Literal["each", "until", "all", "check"]
Mark = Literal["superseded_by", "archived"]
LockAction = Literal["take", "keep", "free"]
Sought = Literal["event", "line", "unique", "box"]
#: How long a token that ends a wait is kept, in ms: it may arrive before the wait does.
TOKEN_KEPT_MS: Final = 10_000
MARK_COUNT: Final = 250
RENEW_COUNT: Final = 500

_NO_KEYS: Final = (None, None, None, None)  # place, head, unique score and pause of an event without keys


class ClaimRequest(TypedDict):
    """What a relay asks for. `size` bounds the bytes of bodies; `attempts` is 0 for no limit; `holding` is how many
    claims the relay has, and `beside` the event id of the only one, or ""."""

    relay: str
    limit: int
    lease: int
    attempts: int
    size: int
    holding: int
    beside: str


class Store(Reads):
    """A box on a server: one method per script, beside the reads. Connects when first used."""

    def __init__(self, endpoint: Endpoint, box: str) -> None:
        super().__init__(Exchanges(endpoint, keys.check_box_name(box)))
        self.scripts = ScriptRunner(self.exchanges)

    def begin_closing(self) -> None:
        """Refuses new calls from now on; calls that were accepted before can still finish."""
        self.exchanges.begin_closing()

    async def close(self) -> None:
        """Waits for exchanges in flight, then closes the connections."""
        await self.exchanges.close()

    async def put(
        self, mode: PutMode, events: Iterable[EncodedEvent], durability: Durability = SERVER
    ) -> list[PutReply]:
        arguments = put_arguments(mode, events)
        try:
            return read_put_replies(await self.scripts.run("put", arguments, durability=durability, repeat=True))
        except DurabilityNotReached as error:  # a refused event is refused all the same
            unconfirmed = Refusal("UNCONFIRMED", str(error).encode())
            replies = read_put_replies(error.replies)
            return [unconfirmed if is_stored(reply) else reply for reply in replies]

    async def permit_replacing(self) -> None:
        """Raises NotPermitted if a put of this user may not replace events."""
        await self.scripts.permit(REPLACE)

    async def claim(self, *, spread: bool = False, **request: Unpack[ClaimRequest]) -> Packed:
        """`spread`: a sample from the oldest to the newest available event, instead of the oldest."""
        reply = await self.scripts.run("claim", _claim_arguments(request, spread=spread))
        return Packed.read(request["relay"], request["lease"], reply)

    async def claim_when_hinted(
        self,
        *,
        longest: float,
        wait: BlockingWait,
        **request: Unpack[ClaimRequest],
    ) -> Packed:
        """Claims as soon as there is a hint, `longest` seconds have passed, or the wait is ended.

        Waits and claims on the server, in one exchange.
        """
        script = await self.scripts.script("claim")
        seconds = await self.exchanges.longest_wait(longest)
        waiting = ("BLPOP", keys.wake(self.box), keys.wait(self.box, wait.name), seconds)
        arguments = _claim_arguments(request, spread=False)
        claiming = ("EVALSHA", script.sha, 1, self._meta, *arguments)
        waited, reply = await self.exchanges.send([waiting, claiming], repeat=False, writes=True, wait=wait)
        if isinstance(reply, NoScriptError):
            reply = await self.scripts.run("claim", arguments)
        # A wait that fails takes no time: unless the claim brought events, the caller must not repeat it at once.
        failed = next((each for each in (reply, waited) if isinstance(each, Exception)), None)
        if failed is not None and (isinstance(reply, Exception) or len(reply) == CLAIM_HEAD):
            of_script = failed is reply
            error = await self.scripts.error(failed) if of_script else self.exchanges.translate(failed, maybe=False)
            raise error from failed
        return Packed.read(request["relay"], request["lease"], reply)

    async def cut_batch(
        self, batch: StreamBatch, relay: str, limit: int, lease: int, size: int, until: int | None
    ) -> int:
        """Claims events into a batch of a stream, up to `size` bytes of bodies; returns how many."""
        return int(await self.scripts.run("cut_batch", (relay, limit, lease, size, _or_any(until), *batch)))

    async def end_wait(self, wait: str) -> None:
        """Ends a wait early, by its name. A token that no wait takes is removed after 10 s."""
        await self.scripts.run("end_wait", (wait, TOKEN_KEPT_MS))

    async def renew(self, relay: str, lease: int, claims: Iterable[Fence], *, alone: bool = False) -> list[bytes]:
        replies: list[bytes] = []
        for step in batches(claims, RENEW_COUNT):
            _, *words = await self.scripts.run("renew", (relay, lease, int(alone), *flat(step)))
            replies += words
        return replies

    async def ack(
        self,
        relay: str,
        delete: bool,
        claims: Iterable[Fence],
        durability: Durability = SERVER,
        work: Iterable[int] | None = None,
    ) -> list[bytes]:
        """`work` of each claim, where it is known: see `steps`."""
        head = (relay, int(delete))
        weighed = zip(claims, repeat(UNKNOWN) if work is None else work, strict=work is not None)
        return await self.scripts.run_in_steps("ack", head, by_work(weighed), durability)

    async def settle_batch(self, batch: StreamBatch, relay: str, claims: Iterable[Fence]) -> list[bytes]:
        """Acknowledges members of a stream's batch, which leave it."""
        weighed = zip(claims, repeat(UNKNOWN), strict=False)
        return await self.scripts.run_in_steps("settle_batch", (relay, *batch), by_work(weighed))

    async def track_stream(
        self, action: str, name: str, owner: str, batch: int = 0, before: str = ""
    ) -> StreamPosition:
        """The position of a stream. With `before`, `own` raises StreamTaken unless that owner holds the stream."""
        arguments = (action, keys.check_stream_name(name), owner, batch, before)
        cut, settled = await self.scripts.run("track_stream", arguments, repeat=True)
        return StreamPosition(int(cut), int(settled))

    async def reclaim(self, batch: StreamBatch, relay: str, lease: int, ids: Iterable[str]) -> list[bytes]:
        return await self.scripts.run_in_steps("reclaim", (relay, lease, *batch), batches((each,) for each in ids))

    async def retry(self, relay: str, items: Iterable[RetryItem], durability: Durability = SERVER) -> list[bytes]:
        return await self.scripts.run_in_steps("retry", (relay,), batches(items), durability)

    async def kill(
        self,
        relay: str,
        items: Iterable[KillItem],
        *,
        who: str = "",
        why: str = "",
        drop: bool = False,
        token: str = "",
        durability: Durability = SERVER,
    ) -> list[bytes]:
        head = (relay, who, why, int(drop), token)
        return await self.scripts.run_in_steps("kill", head, batches(items), durability)

    async def release(
        self,
        relay: str,
        claims: Iterable[SeenClaim],
        *,
        who: str = "",
        why: str = "",
        delay: int | None = None,
        token: str = "",
        durability: Durability = SERVER,
    ) -> list[bytes]:
        head = (relay, who, why, "" if delay is None else delay, token)
        return await self.scripts.run_in_steps("release", head, batches(claims), durability)

    async def reap(self, *, limit: int, delay: int) -> Reaped:
        more, *ids = await self.scripts.run("reap", (limit, delay))
        return Reaped(bool(more), [raw.decode(errors="replace") for raw in ids])

    async def replay(
        self,
        items: Iterable[SeenClaim],
        *,
        reset: bool,
        available: str,
        force: bool,
        dry: bool,
        who: str,
        why: str,
        token: str = "",
        durability: Durability = SERVER,
    ) -> list[ReplayReply]:
        head = (int(reset), available, int(force), int(dry), who, why, token)
        replies = await self.scripts.run_in_steps("replay", head, batches(items), durability)
        return [ReplayReply(Outcome(word.decode()), b"".join(detail).decode()) for word, *detail in replies]

    async def reschedule(
        self, ids: Iterable[str], *, available: str, who: str, why: str, token: str = ""
    ) -> list[bytes]:
        head = (available, who, why, token)
        return await self.scripts.run_in_steps("reschedule", head, batches((each,) for each in ids))

    async def drop(
        self, items: Iterable[SeenClaim], *, who: str, why: str, heads: bool = True, token: str = ""
    ) -> list[bytes]:
        """`heads=False` leaves dead events that block their lines."""
        return await self.scripts.run_in_steps("drop", (who, why, int(heads), token), batches(items))

    async def mark_event(self, field: Mark, items: Iterable[MarkItem]) -> list[bytes]:
        return await self.scripts.run_in_steps("mark_event", (field,), batches(items, MARK_COUNT), repeat=True)

    async def write_log(
        self, action: str, *, who: str, why: str, count: int, ids: Iterable[str] = (), detail: str = "", token: str = ""
    ) -> None:
        """Adds an entry to the box's log. With a `token` it is written once, however often it is sent."""
        await self.scripts.run("write_log", (action, who, why, count, detail, token, *ids), repeat=bool(token))

    async def lock(self, action: LockAction, job: str, token: str, holds: float = 0) -> str:
        """Takes, keeps or frees the lock of a job; returns the token of its holder, or "". `holds` is in seconds."""
        arguments = (job, action, token, max(1, int(holds * 1000)))
        return str((await self.scripts.run("lock", arguments, repeat=True)).decode())

    async def sweep(
        self, index: str, *, age: int | None, keep: int | None, limit: int, dry: bool, after: Position = START
    ) -> SweepStep:
        """One step: removes events older than `age`, and all but the newest `keep`, of at most `limit`."""
        arguments = (index, _or_any(age), _or_any(keep), limit, int(dry), *after)
        removed, more, score, member = await self.scripts.run("sweep", arguments)
        return SweepStep(removed, bool(more), Position(score, member))

    async def beat(
        self, relay: str, instance: str, *, fresh: int, forget: int, leaving: bool, fields: Iterable[tuple[str, str]]
    ) -> dict[str, str]:
        """Records a heartbeat; returns the fields of another living relay of the same name, if there is one."""
        return pairs(await self.scripts.run("beat", (relay, instance, fresh, forget, int(leaving), *flat(fields))))

    async def record_rates(self, latencies: Iterable[tuple[str, int]], *, new: bool = False) -> bool:
        """Samples the totals of the box; `latencies`: the bound of a bucket in ms, and how many events to add to it.
        `new`: the box did not exist when the caller last sampled it. False for a box that does not exist."""
        return bool(await self.scripts.run("record_rates", (int(new), *flat(latencies))))

    async def configure(
        self, action: str, changes: Iterable[tuple[str, str]], *, who: str, why: str, limit: int
    ) -> int:
        """Changes settings; returns how many blocked lines are still to be freed, at most `limit` in one call."""
        # Repeated only where nothing is logged: the log must not report one action twice.
        return int(await self.scripts.run("configure", (action, who, why, limit, *flat(changes)), repeat=not who))

    async def pause(self, *, key: str, until: str, who: str, why: str) -> PauseReply:
        """Pauses one ordering key, or the box for "". `until`: "" until resumed, "+ms" from now, or "ms"."""
        now, ends = await self.scripts.run("pause", (key, until, who, why))
        return PauseReply(now, None if ends < 0 else ends)

    async def resume(self, *, key: str, ramp: int | None, who: str, why: str) -> bool:
        """Resumes one ordering key, or the box for ""; returns whether it was paused. `ramp` is in ms."""
        return bool(await self.scripts.run("resume", (key, _or_any(ramp), who, why)))

    async def check_permissions(self, commands: Iterable[tuple[str, int]]) -> set[str]:
        """The commands, each given with its least number of arguments, that the user may not run on the box's keys."""
        return await self.scripts.check_permissions(commands)

    async def get(self, ids: Iterable[str]) -> list[Record | None]:
        now, *found = await self.scripts.run("get", tuple(ids), repeat=True)
        return [None if described is None else decode_record(described, now) for described in found]

    async def page(
        self, index: str, *, limit: int, look: int, size: int, after: Position = START, **filters: Unpack[Filters]
    ) -> RecordPage:
        """Records of an index, at most `limit` and about `size` bytes, after looking at `look` events."""
        arguments = (index, limit, look, size, *after, *_filters(filters), "events", "")
        now, more, score, member, looked, *found = await self.scripts.run("page", arguments, repeat=True)
        records = [decode_record(described, now) for described in found]
        return RecordPage(records, more == 1, Position(score, member), looked)

    async def page_claims(
        self,
        index: str,
        *,
        limit: int,
        look: int,
        size: int,
        after: Position = START,
        claims: int | None = None,
        **filters: Unpack[Filters],
    ) -> ClaimPage:
        """As `page`, but ids and claim numbers only, and only of events whose claim number is at most `claims`."""
        arguments = (index, limit, look, size, *after, *_filters(filters), "claims", _or_any(claims))
        _, more, score, member, looked, *found = await self.scripts.run("page", arguments, repeat=True)
        seen = [SeenClaim(raw.decode(errors="replace"), number) for raw, number in found]
        return ClaimPage(seen, more == 1, Position(score, member), looked)

    async def page_summaries(
        self,
        index: str,
        *,
        limit: int,
        look: int,
        size: int,
        after: Position = START,
        claims: int | None = None,
        **filters: Unpack[Filters],
    ) -> SummaryPage:
        """As `page_claims`, but with the type, the last error, the time and the claim number of each event."""
        arguments = (index, limit, look, size, *after, *_filters(filters), "summaries", _or_any(claims))
        _, more, score, member, looked, *found = await self.scripts.run("page", arguments, repeat=True)
        return SummaryPage([EventSummary.read(*each) for each in found], more == 1, Position(score, member), looked)

    async def stats(self) -> StatsReply:
        now, meta, counts, oldest, totals, relays, lost_ids = await self.scripts.run("stats", (), repeat=True)
        return StatsReply(
            now=now,
            meta=pairs(meta),
            counts={counts[at].decode(): counts[at + 1] for at in range(0, len(counts), 2)},
            oldest={name: score_ms(score) for name, score in pairs(oldest).items()},
            totals=pairs(totals),
            relays=[
                RelayBeat(name.decode(errors="replace"), score_ms(seen), None if about is None else pairs(about))
                for name, seen, about in relays
            ],
            lost_ids=[raw.decode(errors="replace") for raw in lost_ids],
        )

    async def locate(self, kind: Sought, name: str = "") -> Located:
        """Where an event is, or the head of a line, the first holders of a unique key, or the first events of the box;
        and the heads of their lines."""
        now, suspect, members, *found = await self.scripts.run("locate", (kind, name), repeat=True)
        known = None if suspect is None else suspect.decode(errors="replace")
        return Located(now, known, members, [decode_sighting(each, now) for each in found])

    async def split_index(
        self,
        index: str,
        *,
        size: int,
        ranges: int,
        since: int | None = None,
        until: int | None = None,
        after: Position = START,
    ) -> IndexRanges:
        """Cuts an index into at most `ranges` ranges of `size` events each."""
        arguments = (index, _or_any(since), _or_any(until), *after, size, ranges)
        _, claims, count, *last = await self.scripts.run("split_index", arguments, repeat=True)
        return IndexRanges(claims, count, [Position(*each) for each in zip(last[::2], last[1::2], strict=True)])

    async def list_ids(
        self,
        index: str,
        *,
        last: Position,
        limit: int,
        after: Position = START,
        since: int | None = None,
        event_type: str = "",
    ) -> IdPage:
        """The ids of a range, up to and with `last`, after looking at `limit` events. `event_type` is a glob."""
        arguments = (index, *after, *last, _or_any(since), limit, event_type)
        more, score, member, *ids = await self.scripts.run("list_ids", arguments, repeat=True)
        return IdPage(ids, more == 1, Position(score, member))

    async def read_states(self, ids: Iterable[str]) -> list[EventState]:
        """Events without their bodies; ids without an event are left out."""
        replies = await self.scripts.run_in_steps("read_states", (), batches((each,) for each in ids), repeat=True)
        return [
            EventState(event_id.decode(), as_fields(fields), index.decode(), float(score), history)
            for event_id, fields, index, score, history in replies
        ]

    async def repair(self, event_id: bytes, body: KnownBody, *, dry: bool) -> list[str]:
        """Mends what is stored about an id; returns what was done, in words. `body` is what its body says."""
        arguments = (
            int(dry), event_id, body.created_at, body.size,
            body.event_type, body.ordering_key, body.unique_key, body.unique_scope,
        )  # fmt: skip
        return [word.decode(errors="replace") for word in await self.scripts.run("repair", arguments, repeat=True)]

    async def repair_key(self, kind: str, name: bytes, event_id: bytes | None, *, dry: bool) -> list[str]:
        """Mends one member of a line or of a unique key, and whether the line is blocked; returns what was done."""
        member = () if event_id is None else (event_id,)
        done = await self.scripts.run("repair_key", (int(dry), kind, name, *member), repeat=True)
        return [word.decode(errors="replace") for word in done]

    async def examine(self, ids: Iterable[bytes], *, bodies: int = 0) -> Examined:
        """What is stored about these ids, at one moment, with at most `bodies` bytes of their bodies."""
        given = tuple(ids)
        reply = await self.scripts.run("examine", (bodies, *given), repeat=True)
        claims, places, *scores, fields, sizes, histories, read, keyed = reply
        of_keys: list[Sequence[Any]] = [_NO_KEYS] * len(given)
        for number, *values in keyed:
            of_keys[number - 1] = values
        columns = [repeat(None) if column is None else column for column in scores]
        rows = zip(given, fields, zip(*columns, strict=False), sizes, histories, read, of_keys, strict=False)
        return Examined(claims, places, [ExaminedEvent(*row, *values) for *row, values in rows])

    async def examine_keys(self, *, limit: int, names: Iterable[tuple[str, bytes, bytes, bytes]]) -> list[ExaminedKey]:
        """Each name: "line" or "unique", the key, and the position to continue after: score and member."""
        replies = await self.scripts.run("examine_keys", (limit, *flat(names)), repeat=True)
        return [
            ExaminedKey(
                more == 1,
                Position(score, member),
                head,
                state,
                blocked,
                unnoted,
                [ExaminedMember(*each) for each in members],
            )
            for more, score, member, head, state, blocked, unnoted, *members in replies
        ]


def _claim_arguments(request: ClaimRequest, *, spread: bool) -> tuple[Any, ...]:
    return (
        request["relay"],
        request["limit"],
        request["lease"],
        request["attempts"],
        request["size"],
        request["holding"],
        request["beside"],
        int(spread),
    )


def _filters(filters: Filters) -> tuple[Any, ...]:
    """Filters in the order of the page script."""
    since, until = filters.get("since"), filters.get("until")
    texts = (filters.get("event_type", ""), filters.get("key", ""), filters.get("error", ""))
    created = (_or_any(filters.get("created_since")), _or_any(filters.get("created_until")))
    return (_or_any(since), _or_any(until), *texts, *created)


def _or_any(number: int | None) -> int | str:
    return "" if number is None else number
