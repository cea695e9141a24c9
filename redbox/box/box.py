"""Box: what an application holds. Puts events, reads them, and makes every transition of their lifecycle."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, Unpack

from msgspec import Struct

from redbox.arguments import event_ids, text, whole_number
from redbox.box import inspect
from redbox.box.bulk.choice import Progress, chosen
from redbox.box.bulk.drop import Drop, export
from redbox.box.bulk.replay import CANARY_WAIT, Replay
from redbox.box.bulk.selection import select
from redbox.box.bulk.sweep import sweep
from redbox.box.claims import ClaimOptions, Claims, Reason
from redbox.box.desk.desk import Desk
from redbox.box.desk.error_groups import error_groups
from redbox.box.inspect import Budget
from redbox.box.operate import Operate, available_argument, operator_name
from redbox.box.put import OnBatchConflict, OnConflict, Puts
from redbox.box.reports import Dropped, ErrorGroup, Page, Replayed, Stats, Swept, decode_stats
from redbox.box.transaction import Transaction
from redbox.box.why import Explanation, explain
from redbox.durations import Duration
from redbox.errors import UsageError
from redbox.events import Claim, Event, Receipt, Record, State, duration_ms, reason_text
from redbox.settings import BATCH_BYTES, LEASE, MAX_PAYLOAD, Settings
from redbox.store import connect
from redbox.store.scripts.replies import Packed
from redbox.store.server.durability import Durability
from redbox.store.store import Store
from redbox.store.wire.base import BlockingWait
from redbox.urls import default_url

Groups = list[ErrorGroup]  # named here: in the class, `list` is a method
Records = list[Record]
_UNSET: Any = object()


class Box:
    """A named outbox on a Redis. Make one with `Box.open`; it connects when first used."""

    def __init__(self, store: Store, durability: str, max_payload: int) -> None:
        self._store = store
        self._options = (durability, max_payload)
        self._durability = Durability.parse(durability)
        self._puts = Puts(store, self._durability, max_payload)
        self._claims = Claims(store, self._durability)
        self.operate = Operate(store)
        self.desk = Desk(store)

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        name: str = "default",
        client: Any = None,
        durability: str = "server",
        max_payload: int = MAX_PAYLOAD,
    ) -> Box:
        """A box by URL, or on a `redis.asyncio` client of the application. No I/O happens yet.

        Without either, the URL is that of the environment variable REDBOX_URL.

        The box keeps one of the client's connections, a waiting relay one more; a transaction takes one while it runs.

        `durability` is what a put waits for: "server" (as the server is configured), "fsync" or "replicas=N".
        """
        if client is None:
            url = default_url(url)
        elif url is not None:
            raise UsageError("give either a URL such as 'redis://localhost:6379/0' or client=your_redis, not both")
        whole_number("max_payload", max_payload, 1, BATCH_BYTES)
        endpoint = connect.from_url(url) if url is not None else connect.from_client(client)
        return cls(Store(endpoint, name), durability, max_payload)

    def _with(self, store: Store) -> Box:
        """A box on another store, with the options of this one."""
        return Box(store, *self._options)

    @property
    def name(self) -> str:
        return self._store.box

    @property
    def where(self) -> str:
        """The store in words, without secrets."""
        return self._store.where

    def __repr__(self) -> str:
        return f"Box({self.name!r} on {self.where})"

    async def __aenter__(self) -> Self:
        self._store.ensure_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Waits for calls in flight, then closes redbox's own connections. A client that was given stays open.

        A call that is made in several steps, such as a long put_many or replay, ends with the step in flight.
        """
        self._store.begin_closing()
        await self._puts.drain()
        await self._store.close()

    # --- putting -------------------------------------------------------------------------------------------------

    async def put(
        self, event: Event | Struct, *, on_conflict: OnConflict = "raise", durability: str | None = None
    ) -> Receipt:
        """Stores an event; returns when it is persisted. Concurrent puts share one round trip.

        Putting an id again with the same content changes nothing; its receipt has `created=False`.

        If another event holds its unique_key, "raise" raises Conflict and "skip" returns a receipt with the `holder`.
        "replace" removes the holder and puts the event instead, if no relay has claimed the holder yet, and raises
        Conflict otherwise; its receipt has the id that it `replaced`.
        """
        self._store.ensure_open()
        return await self._puts.one(event, on_conflict, durability)

    async def put_many(
        self, events: Iterable[Event | Struct], *, on_conflict: OnBatchConflict = "raise", durability: str | None = None
    ) -> list[Receipt]:
        """Stores events in the order given; returns a receipt for each.

        "raise" stops at the first refusal with BatchRefused, which carries the receipts so far; "skip" puts as many as
        possible; "replace" replaces holders as `put` does, and stops as "raise" does; "all_or_nothing" puts all or
        none, in one step, up to 1,000 events or 8 MiB.
        """
        self._store.ensure_open()
        return await self._puts.many(events, on_conflict, durability)

    def transaction(self, *, durability: str | None = None) -> Transaction:
        """Events and the caller's own Redis writes in one MULTI/EXEC."""
        self._store.ensure_open()
        return Transaction(self._store, self._puts, durability)

    # --- claiming and settling -----------------------------------------------------------------------------------

    async def claim(
        self,
        relay: str,
        *,
        limit: int = 100,
        lease: Duration = LEASE,
        attempts: int | None = None,
        holding: int = 0,
        beside: str = "",
        max_bytes: int = BATCH_BYTES,
    ) -> list[Claim]:
        """Takes available events under a lease: at most `limit`, oldest first.

        There may be fewer although more are available, so that no claim holds up the server: 1 MiB of events at most
        (but at least one event), and 1,000 plain ones, or some hundreds that were tried before or have a unique_key.

        With `attempts`, an event that has used them up comes marked `exhausted`. `holding` is how many claims the
        relay has: an expiry beside others proves nothing against an event. If it holds one, `beside` is its event id.
        """
        packed = await self._claims.claim(
            relay, limit=limit, lease=lease, attempts=attempts, holding=holding, beside=beside, max_bytes=max_bytes
        )
        return await self._claims.unpack(packed)

    async def claim_packed(self, relay: str, **options: Unpack[ClaimOptions]) -> Packed:
        """As `claim`, but not decoded, so that a relay can ask for more before it spends that time.

        With a `wait`, it first waits until an event may be available, at most `longest` seconds. `spread`: not the
        oldest events, but a sample from the oldest to the newest that are available.
        """
        return await self._claims.claim(relay, **options)

    async def unpack(self, packed: Packed) -> list[Claim]:
        """The claims; an event that cannot be read is settled, and left out."""
        return await self._claims.unpack(packed)

    async def can_end_wait(self) -> bool:
        """Whether a wait can be ended early: then one exchange can wait and claim."""
        self._store.ensure_open()
        return await self._store.exchanges.can_end_wait()

    async def end_wait(self, wait: BlockingWait) -> None:
        """Ends the wait of a `claim_packed` early; its claim is then made and answered."""
        wait.ended = True
        await self._store.end_wait(wait.name)

    async def wait_for_hint(self, longest: float) -> bool:
        """Waits until an event may be available, at most `longest` seconds; False without a hint.

        Hints may get lost, and one hint wakes one waiter.
        """
        self._store.ensure_open()
        return await self._store.hint(longest)

    async def beat(
        self, relay: str, instance: str, about: Mapping[str, str], *, fresh: Duration, leaving: bool = False
    ) -> dict[str, str]:
        """Records that a relay is alive; returns `about` of another living relay of the same name, or nothing.

        A relay without a heartbeat for `fresh` counts as dead.
        """
        return await self._claims.beat(relay, instance, about, fresh=fresh, leaving=leaving)

    async def renew(
        self, claims: Claim | Iterable[Claim], *, lease: Duration = LEASE, alone: bool = False
    ) -> list[bool]:
        """Makes leases end `lease` from now. False where the claim was gone.

        `alone`: the relay holds no other claim any more, so an expiry will count against the event.
        """
        return await self._claims.renew(claims, lease=lease, alone=alone)

    async def ack(self, claims: Claim | Iterable[Claim], *, delete: bool = False) -> list[bool]:
        """Marks events as PUBLISHED, or removes them (`delete`). False where the claim was gone: nothing changed."""
        return await self._claims.ack(claims, delete=delete)

    async def retry(
        self,
        claims: Claim | Iterable[Claim],
        *,
        error: Reason | Sequence[Reason] = "",
        delay: Duration | Sequence[Duration] = 0.0,
        excuse: bool | Sequence[bool] = False,
    ) -> list[bool]:
        """Returns failed events to PENDING, available after the delay. One error and delay for all, or one for each.

        `excuse`: the attempt proves nothing against the event, and does not count against its limit.
        """
        return await self._claims.retry(claims, error=error, delay=delay, excuse=excuse)

    async def kill(
        self, claims: Claim | Iterable[Claim], *, reason: Reason | Sequence[Reason] = "", drop: bool = False
    ) -> list[bool]:
        """Marks events as DEAD: they are not tried again unless replayed. `drop` removes them at once."""
        return await self._claims.kill(claims, reason=reason, drop=drop)

    async def release(self, claims: Claim | Iterable[Claim], *, delay: Duration | None = None) -> list[bool]:
        """Returns events to PENDING untried: the attempt does not count against the limit."""
        return await self._claims.release(claims, delay=delay)

    async def reap(self, *, limit: int = 100, delay: Duration = 0.0) -> list[str]:
        """Returns events whose lease has expired to PENDING; returns their ids, at most `limit`."""
        return await self._claims.reap(limit=limit, delay=delay)

    # --- reading -------------------------------------------------------------------------------------------------

    async def get(self, event_id: str) -> Record | None:
        """The full record of one event, or None."""
        self._store.ensure_open()
        (record,) = await self._store.get([text("event_id", event_id)])
        return record

    async def page(
        self,
        *,
        limit: int = 100,
        cursor: str | None = None,
        look: int | None = None,
        payloads: bool = True,
        size: int | None = None,
        **filters: Any,
    ) -> Page:
        """A page of `list`, and the cursor of the next one.

        With `look`, the page ends after about that number of events were read, even if fewer than `limit` match. With
        `size`, it ends after events with about that number of bytes of payloads. With `payloads=False` the events have
        empty payloads, and none is kept in memory.
        """
        self._store.ensure_open()
        return await inspect.page(self._store, select(**filters), limit, cursor, look, payloads=payloads, size=size)

    async def newest(
        self, *, state: State | None = None, limit: int = 100, payloads: bool = True, size: int | None = None
    ) -> Records:
        """The events that died or were published last, the newest first; without a state, those that were put last,
        of the newest of each state. `limit` is at most 200; `payloads` and `size` are as for `page`."""
        self._store.ensure_open()
        return await inspect.newest(self._store, select(state=state).state, limit, payloads=payloads, size=size)

    async def error_groups(self, **filters: Any) -> Groups:
        """The errors of DEAD events, or of those that the filters of `list` select, grouped by their fingerprints; the
        largest group first.

        Reads no payload. Beyond 10,000 groups, further errors are counted together in a last group, `other`.
        """
        self._store.ensure_open()
        return await error_groups(self._store, select(**{"state": State.DEAD, **filters}))

    async def count(self, *, limit: int | None = None, budget: Budget | None = None, **filters: Any) -> int:
        """How many events the filters of `list` select, at most `limit`: it reads their fields, not a counter.

        A `budget` bounds how many events are read to find them, and says afterwards whether it was spent.
        """
        self._store.ensure_open()
        most = None if limit is None else whole_number("limit", limit)
        total = 0
        async for found in inspect.at_most(most, inspect.selected_claims(self._store, select(**filters), budget)):
            total += len(found)
        return total

    async def stats(self) -> Stats:
        """Counts by phase, ages and totals, at one moment."""
        self._store.ensure_open()
        return decode_stats(self.name, await self._store.stats())

    async def why(
        self, event_id: str | None = None, *, key: str | None = None, unique_key: str | None = None
    ) -> Explanation:
        """Explains in words why an event is where it is, what happens next, and which command changes that.

        With `key`, explains the line of an ordering key; with `unique_key`, which event holds it. Without any of them,
        explains the box: the most likely cause that events are not delivered. Changes nothing.
        """
        self._store.ensure_open()
        given = {"event_id": event_id, "key": key, "unique_key": unique_key}
        asked = [name for name, value in given.items() if value is not None]
        if len(asked) > 1:
            raise UsageError(f"{' and '.join(asked)}: ask about one at a time")
        for name in asked:
            if not text(name, given[name]):
                raise UsageError(f"{name} must not be empty")
        return await explain(self._store, event_id, key=key, unique_key=unique_key)

    async def settings(self) -> Settings:
        self._store.ensure_open()
        return Settings.from_meta(await self._store.meta())

    async def exists(self) -> bool:
        """Whether the box exists: an event was put into it, or it was configured.

        Raises StoreUnavailable if it is not found on a server that may lack data: one that is loading it, or a replica
        without a link to its master.
        """
        self._store.ensure_open()
        return await self._store.exists()

    async def names(self) -> list[str]:
        """The names of all boxes on the same server."""
        self._store.ensure_open()
        return await self._store.boxes()

    # --- bulk ----------------------------------------------------------------------------------------------------

    async def replay(
        self,
        ids: Sequence[str | Record] | None = None,
        *,
        state: State | str | None = None,
        event_type: str | None = None,
        key: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        created_since: datetime | None = None,
        created_until: datetime | None = None,
        group: str | None = None,
        text: str | None = None,
        reset: bool = True,
        delay: Duration | None = None,
        force: bool = False,
        dry_run: bool = False,
        rate: float | None = None,
        ramp: Duration | None = None,
        canary: int | None = None,
        canary_wait: Duration = CANARY_WAIT,
        who: str | None = None,
        why: str = "",
        progress: Progress | None = None,
        limit: int | None = None,
        budget: Budget | None = None,
        watching: Progress | None = None,
    ) -> Replayed:
        """Returns PUBLISHED or DEAD events to PENDING: by ids, or by filter (DEAD unless `state` says otherwise).

        All DEAD events: `state="DEAD"` alone. Earlier attempts are excused and last_error is cleared unless
        `reset=False`. An event whose unique_key another event holds, or that another event supersedes, is refused
        unless by `force`. `rate` is events per second, which the replay reaches after `ramp`.

        An event that was claimed again after a filter found it is refused. The same holds for one that is given as
        the Record that was read of it; by its id alone it is replayed whatever happened to it.

        `canary` is the number of events that are replayed first, at most 1,000. The others follow only if all of these
        are published within `canary_wait`. `watching` is called with their number when the wait begins.

        `limit` is the most events that are replayed, in the order of `list`. A `budget` bounds how many are read.

        Recorded in the box's log as one entry, by default under the name of the user of this process.
        """
        self._store.ensure_open()
        filters = {
            "state": state, "event_type": event_type, "key": key, "error": error, "since": since, "until": until,
            "created_since": created_since, "created_until": created_until, "group": group,
            "text": text,
        }  # fmt: skip
        replay = Replay(
            reset=reset, available=available_argument(delay, None), force=force, dry_run=dry_run, rate=rate,
            delay=0.0 if delay is None else duration_ms(delay, "delay") / 1000,
            ramp=None if ramp is None else duration_ms(ramp, "ramp") / 1000,
            canary=canary, canary_wait=duration_ms(canary_wait, "canary_wait") / 1000,
            who=operator_name() if who is None else who, why=reason_text("why", why), durability=self._durability,
            progress=progress, limit=limit, budget=budget, watching=watching,
        )  # fmt: skip
        return await replay.run(self._store, chosen(ids, filters))

    async def drop(
        self,
        ids: Sequence[str | Record] | None = None,
        *,
        exported: Iterable[bytes] | None = None,
        dry_run: bool = False,
        who: str | None = None,
        why: str = "",
        progress: Progress | None = None,
        limit: int | None = None,
        budget: Budget | None = None,
        **filters: Any,
    ) -> Dropped:
        """Removes PUBLISHED or DEAD events for good: by ids, by the filters of `list` (DEAD unless `state` says
        otherwise), or those in the lines of an `export`.

        An event that changed after it was exported or read as a Record, or after the filter found it, is left. Recorded
        in the box's log as one entry, by default under the name of the user of this process. `limit` is the most events
        that are dropped, in the order of `list`. A `budget` bounds how many are read.
        """
        self._store.ensure_open()
        drop = Drop(
            dry_run=dry_run,
            who=operator_name() if who is None else who,
            why=reason_text("why", why),
            progress=progress,
            limit=limit,
            budget=budget,
        )
        if exported is None:
            return await drop.run(self._store, chosen(ids, filters, "drop"))
        if ids is not None or filters:
            raise UsageError("say what to drop in one way: ids, a filter, or the lines of an export")
        return await drop.run_exported(self._store, exported)

    async def export(self, ids: Sequence[str] | None = None, **filters: Any) -> AsyncIterator[bytes]:
        """Events as lines of NDJSON, which `redbox put --many` puts back: by ids, or by the filters of `list` (DEAD
        unless `state` says otherwise).

        Ids without an event are left out. An event that cannot be read has a line with a `problem`.
        """
        self._store.ensure_open()
        if ids is not None and filters:
            raise UsageError("say what to export in one way: ids, or a filter")
        events = event_ids(ids) if ids is not None else select(**{"state": State.DEAD, **filters})
        async for line in export(self._store, events):
            yield line

    async def sweep(
        self,
        *,
        keep_published: Duration | None = _UNSET,
        keep_published_count: int | None = _UNSET,
        keep_dead: Duration | None = _UNSET,
        keep_dead_count: int | None = _UNSET,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Swept:
        """Removes PUBLISHED and DEAD events past their retention; by default as the box is configured.

        `limit` bounds how many are removed, PUBLISHED ones first.
        """
        self._store.ensure_open()
        given = {
            "keep_published": keep_published, "keep_published_count": keep_published_count,
            "keep_dead": keep_dead, "keep_dead_count": keep_dead_count,
        }  # fmt: skip
        retention = {name: value for name, value in given.items() if value is not _UNSET}
        return await sweep(self._store, retention, limit=limit, dry_run=dry_run)

    # --- last in the class, since its name hides the builtin one -------------------------------------------------

    async def list(
        self,
        *,
        state: State | str | None = None,
        event_type: str | None = None,
        key: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        created_since: datetime | None = None,
        created_until: datetime | None = None,
        group: str | None = None,
        phase: str | None = None,
        text: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Record]:
        """Records by state, and in order of time; `event_type` is a glob. Changes nothing.

        `text` is text in the payload: the payloads of all events that match the other filters are read to find it.

        PENDING events come in three groups: those a relay can take, those behind the head of their line, suspects.

        An event that changes state meanwhile may come once, twice or not at all; every other event exactly once.
        """
        filters: dict[str, Any] = {
            "state": state, "event_type": event_type, "key": key, "error": error, "since": since, "until": until,
            "created_since": created_since, "created_until": created_until, "group": group,
            "phase": phase, "text": text,
        }  # fmt: skip
        async for record in inspect.listing(self._store, select(**filters), limit):
            yield record
