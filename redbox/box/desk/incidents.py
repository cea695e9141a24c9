"""Errors as a person meets them: the groups of what failed last, and one of them with all that belongs to it.

Everything here reads a bounded number of events, so it takes milliseconds in a box of any size. A `GroupCensus` counts
all events, slowly.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from redbox.arguments import shown, text, whole_number
from redbox.box.bulk.selection import Selection, select
from redbox.box.desk.blocked_keys import BlockedKey, blocked_keys
from redbox.box.desk.error_groups import Grouping
from redbox.box.inspect import Budget, newest_part, summaries, up_to_now
from redbox.box.reports import ErrorGroup, RelayReport, Stats, decode_stats
from redbox.durations import format_duration
from redbox.errors import RedboxError, UsageError
from redbox.events import Record, State, from_ms
from redbox.fingerprints import NO_TEXT, fingerprint, in_group
from redbox.keys import INDEXES_OF
from redbox.store.scripts.replies import EventSummary
from redbox.store.store import Store

logger = logging.getLogger("redbox")

SAMPLE: Final = 2000
MOST_SAMPLED: Final = 10_000
FEW: Final = 10  # events of a sample, from fewer of which no number is estimated: one event of 2,000 says little
RECHECKED: Final = 250  # groups of a full count whose ends are looked at again
BLOCKED: Final = 500  # blocked keys whose heads are looked at
MOMENTS: Final = 60  # failures of a timeline, at most
PARTS: Final = 24  # of a histogram
#: The index that holds the failed events of a state, by the time of its scores.
FAILED_INDEXES: Final = {State.DEAD: "dead", State.PENDING: "retries"}

Kind = Literal["failed", "breaker_opened", "breaker_closed", "relay_started"]


class SampledGroup(ErrorGroup, kw_only=True, frozen=True):
    """An error group of events of one state. `estimated`: the count is estimated from a sample, or is that of an
    earlier full count and no event of the sample has the error. `histogram`: how many events of the sample failed in
    each of 24 equal parts of the time between the first and the last of them; empty if the sample has none.
    `at_least`: the sample has too few events of the error to estimate their number; the count is that of the sample."""

    state: State
    estimated: bool = False
    at_least: bool = False
    histogram: tuple[int, ...] = ()


class SampledGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Error groups, the largest first. `sampled`: of more events than were read, so a rare error may be missing.
    `looked`: how many were read. `counted_at`: when the counts of DEAD events were last made in full; None if never."""

    groups: list[SampledGroup]
    sampled: bool
    looked: int = 0
    counted_at: datetime | None = None


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a timeline: `count` events failed from `at` on, or something else happened."""

    at: datetime
    kind: Kind
    text: str
    count: int = 1


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One error group: what happened when, the ordering keys that it blocks, its last event, and the last event of the
    same type that was delivered. The timeline covers the sampled events, running relays, and the last two times that
    the breaker of each was open, one of which may not have ended."""

    group: SampledGroup
    timeline: list[Moment]
    blocked_keys: list[BlockedKey]
    failed: Record | None
    delivered: Record | None


class Counted(msgspec.Struct, frozen=True):
    """All groups of DEAD events, as of `at`. `oldest`: the id of the oldest event of each, by the id of the group."""

    at: datetime
    groups: list[ErrorGroup]
    oldest: dict[str, str] = {}


# --- groups --------------------------------------------------------------------------------------------------------


async def sampled_groups(
    store: Store, states: Iterable[State], sample: int = SAMPLE, counted: Counted | None = None
) -> SampledGroups:
    """The groups of the newest events of these states that failed. If there are more, counts are those of `counted`
    where it has the group, and else estimated from the share in the sample."""
    whole_number("sample", sample, 1, MOST_SAMPLED)
    if counted is not None and not isinstance(counted, Counted):
        raise UsageError("counted must be the result of a census")
    groups: list[SampledGroup] = []
    sampled, looked = False, 0
    for state in _failed_states(states):
        index = FAILED_INDEXES[state]
        (total,) = await store.index_sizes([index])
        found = await _newest(store, state, sample)
        partly = total > sample
        sampled, looked = sampled or partly, looked + len(found)
        known = counted if partly and state is State.DEAD else None
        if known is not None:
            known = await _without_repaired(store, known, {fingerprint(each.last_error) for each in found})
        merged = _merged(_grouped(found), state, total / max(1, len(found)) if partly else 1.0, known)
        times = _times(found)
        groups += [
            msgspec.structs.replace(group, histogram=_histogram(times.get(group.fingerprint, []))) for group in merged
        ]
    at = None if counted is None else counted.at
    return SampledGroups(groups=_largest_first(groups), sampled=sampled, looked=looked, counted_at=at)


def _largest_first(groups: Iterable[SampledGroup]) -> list[SampledGroup]:
    return sorted(groups, key=lambda each: (-each.count, each.fingerprint))


async def selected_groups(store: Store, states: Iterable[State], sample: int, filters: dict[str, Any]) -> SampledGroups:
    """The groups of the events that filters select among the newest `sample` of each state that failed."""
    whole_number("sample", sample, 1, MOST_SAMPLED)
    groups: list[SampledGroup] = []
    sampled, looked = False, 0
    for state in states:
        selection, grouping, budget = select(**{**filters, "state": state}), Grouping(), Budget(sample)
        assert selection.state is not None
        index = FAILED_INDEXES.get(selection.state, INDEXES_OF[selection.state][0])
        newest, older = await newest_part(store, selection, index, sample)
        async for found in summaries(store, newest, budget):
            grouping.add(found)
        sampled, looked = sampled or older or budget.spent, looked + budget.looked
        groups += [
            SampledGroup(**msgspec.structs.asdict(group), state=selection.state)
            for group in grouping.groups()
            if group.fingerprint != NO_TEXT or selection.state is State.DEAD
        ]
    return SampledGroups(groups=_largest_first(groups), sampled=sampled, looked=looked)


def _failed_states(states: Any) -> list[State]:
    if isinstance(states, str | bytes) or not isinstance(states, Iterable):
        raise UsageError(f"states must be a list of states, not {shown(states)}")
    found = [select(state=each).state for each in states]
    for state in found:
        if state not in FAILED_INDEXES:
            raise UsageError(f"state {shown(state)}: use {' or '.join(FAILED_INDEXES)}")
    return [state for state in found if state is not None]


async def _newest(store: Store, state: State, count: int) -> list[EventSummary]:
    """Failed events of a state, with the time at which each failed."""
    return await store.newest(FAILED_INDEXES[state], count, by_attempt=state is State.PENDING)


def _grouped(found: Iterable[EventSummary]) -> list[ErrorGroup]:
    grouping = Grouping()
    grouping.add(found)
    return grouping.groups()


def _times(found: Iterable[EventSummary]) -> dict[str, list[int]]:
    """When the events failed, in ms, by the fingerprints of their errors."""
    times: dict[str, list[int]] = {}
    for event in found:
        times.setdefault(fingerprint(event.last_error), []).append(event.entered)
    return times


def _histogram(times: Sequence[int]) -> tuple[int, ...]:
    if not times:
        return ()
    first, width = min(times), (max(times) - min(times)) // PARTS + 1
    counts = Counter((at - first) // width for at in times)
    return tuple(counts[part] for part in range(PARTS))


def _merged(sampled: list[ErrorGroup], state: State, scale: float, counted: Counted | None) -> list[SampledGroup]:
    """The groups of the sample, with the full counts where they are known, and the groups that only these have."""
    full = {} if counted is None else {group.group: group for group in counted.groups}
    merged = []
    for group in sampled:
        whole = full.pop(group.group, None)
        about = msgspec.structs.asdict(group)
        if whole is not None:
            about |= {"count": max(group.count, whole.count), "first_seen": min(group.first_seen, whole.first_seen)}
        estimated = whole is None and scale > 1
        at_least = estimated and group.count < FEW
        if estimated and not at_least:
            about["count"] = round(group.count * scale)
        merged.append(SampledGroup(**about, state=state, estimated=estimated, at_least=at_least))
    others = full.values()
    return merged + [SampledGroup(**msgspec.structs.asdict(group), state=state, estimated=True) for group in others]


async def _without_repaired(store: Store, counted: Counted, seen: set[str]) -> Counted:
    """The count without groups that are not in the sample, and of which neither the newest nor the oldest event is
    DEAD any more: they were replayed or dropped since. The newest alone proves nothing: an operator may have replayed
    one event to try a repair. Looks at the largest `RECHECKED` of them."""
    asked = [group for group in counted.groups if group.fingerprint not in seen and group.group in counted.oldest]
    ends = {group.group: (group.sample_id, counted.oldest[group.group]) for group in asked[:RECHECKED]}
    ids = list({event_id: None for pair in ends.values() for event_id in pair})
    found = await store.hashes(ids, bodies=False) if ids else []
    dead = {each for each, stored in zip(ids, found, strict=True) if stored.fields.get(b"state") == b"DEAD"}
    repaired = {group for group, pair in ends.items() if dead.isdisjoint(pair)}
    return msgspec.structs.replace(counted, groups=[each for each in counted.groups if each.group not in repaired])


class GroupCensus:
    """Counts all DEAD events of a box by their errors, slowly: it uses a tenth of the time, and rests in between.

    It counts when `ask` is called, and again at the earliest after `SOONEST`, or twenty times as long as it took.
    """

    SHARE: Final = 0.1
    SOONEST: Final = 60.0

    def __init__(self, store: Store) -> None:
        self._store = store
        self._task: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self.counted: Counted | None = None

    def ask(self) -> Counted | None:
        """The last full count; begins another if that is due."""
        if self._task is None and time.monotonic() >= self._not_before:
            self._task = asyncio.create_task(self._run(), name="redbox census")
        return self.counted

    def recount(self) -> None:
        """Makes another full count due, `SOONEST` from now: many events have changed."""
        self._not_before = min(self._not_before, time.monotonic() + self.SOONEST)

    async def run_once(self) -> Counted:
        grouping = Grouping()
        selection = await up_to_now(self._store, Selection(state=State.DEAD))
        began = time.monotonic()
        async for found in summaries(self._store, selection):
            grouping.add(found)
            await asyncio.sleep((time.monotonic() - began) * (1 / self.SHARE - 1))
            began = time.monotonic()
        assert selection.until is not None
        self.counted = Counted(selection.until, grouping.groups(), grouping.oldest())
        return self.counted

    async def _run(self) -> None:
        began = time.monotonic()
        try:
            await self.run_once()
        except RedboxError as error:  # the last count is kept
            logger.debug("the errors of box %s were not counted: %s", self._store.box, error)
        finally:
            ended = time.monotonic()
            self._not_before = ended + max(self.SOONEST, 20 * (ended - began))
            self._task = None

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


# --- one incident --------------------------------------------------------------------------------------------------


async def incident(
    store: Store,
    group: str,
    *,
    state: State | None = None,
    sample: int = SAMPLE,
    counted: Counted | None = None,
) -> Incident | None:
    """An error group by its id or fingerprint: of DEAD events or else of PENDING ones, or of the given state. None if
    no event of the sample, or of the full count, has such an error."""
    text("group", group)
    for each in FAILED_INDEXES if state is None else [state]:
        found = await sampled_groups(store, [each], sample, counted)
        chosen = next((one for one in found.groups if group in (one.group, one.fingerprint)), None)
        if chosen is not None:
            return await _incident(store, chosen, sample)
    return None


async def _incident(store: Store, group: SampledGroup, sample: int) -> Incident:
    stats = decode_stats(store.box, await store.stats())
    newest = await _newest(store, group.state, sample)
    members = [each for each in newest if in_group(each.last_error, group.fingerprint)]
    (failed,) = await store.get([group.sample_id])
    blocked = [
        key for key in await blocked_keys(store, BLOCKED) if in_group(key.why, group.fingerprint)
    ] if group.state is State.DEAD else []  # fmt: skip
    return Incident(
        group=group,
        timeline=_timeline(group, members, stats),
        blocked_keys=blocked,
        failed=failed,
        delivered=await _delivered(store, failed.event.event_type, sample) if failed is not None else None,
    )


async def _delivered(store: Store, event_type: str, sample: int) -> Record | None:
    """The newest PUBLISHED event of this type, of a sample."""
    for each in await store.newest("published", sample):
        if each.event_type == event_type:
            (record,) = await store.get([each.event_id])
            if record is not None and record.state is State.PUBLISHED:
                return record
    return None


def _timeline(group: SampledGroup, members: Sequence[EventSummary], stats: Stats) -> list[Moment]:
    """Failures in at most `MOMENTS` equal parts of their time; relays that started and breakers that opened or closed
    since an hour before the first."""
    moments: list[Moment] = []
    times = [each.entered for each in members]
    if times:
        first, width = min(times), (max(times) - min(times)) // MOMENTS + 1
        for part, count in Counter((at - first) // width for at in times).items():
            moments.append(Moment(at=from_ms(first + part * width), kind="failed", text=group.example, count=count))
    since = min((moment.at for moment in moments), default=stats.at) - timedelta(hours=1)
    moments += [moment for relay in stats.relays for moment in _relay_moments(relay, stats.at) if moment.at >= since]
    return sorted(moments, key=lambda moment: moment.at)


def _relay_moments(relay: RelayReport, now: datetime) -> Iterator[Moment]:
    name = f"relay {relay.name}"
    if relay.running_for is not None:
        yield Moment(at=now - relay.running_for, kind="relay_started", text=f"{name} {relay.version}")
    if relay.last_opened is not None and relay.last_closed is not None:
        lasted = format_duration(relay.last_opened - relay.last_closed)
        yield Moment(at=now - relay.last_opened, kind="breaker_opened", text=f"{name}: it closed after {lasted}")
        yield Moment(at=now - relay.last_closed, kind="breaker_closed", text=f"{name}: it was open for {lasted}")
    if relay.breaker_since is not None:
        yield Moment(at=now - relay.breaker_since, kind="breaker_opened", text=f"{name}: {relay.reason}")
