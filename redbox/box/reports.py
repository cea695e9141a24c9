"""The reports of bulk operations and of inspection."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from redbox.arguments import counted
from redbox.events import Outcome, Phase, Record, from_ms
from redbox.settings import Settings
from redbox.store.damage import is_count, is_moment, score_ms
from redbox.store.scripts.replies import RelayBeat, StatsReply

#: The field `paused` of meta: since and until, in ms. Earlier versions wrote 1.
_PAUSED: Final = re.compile("([0-9]{1,15})-([0-9]{0,15})")


MOST_REFUSED: Final = 1000  # refused events that a report names


class Page(msgspec.Struct, frozen=True):
    """A slice of a listing; `cursor` continues it, None at its end. `looked`: how many events were read for it."""

    records: list[Record]
    cursor: str | None
    looked: int = 0


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Events whose last errors have the same fingerprint.

    `group` is the short id of the fingerprint, and the filter `group` takes either. `event_types` are the first few
    types in order of appearance. `first_seen` and `last_seen` are when the first and the last of the events entered
    their state: died_at for DEAD ones. `sample_id` is the id of the last one, and `example` its error.
    """

    group: str
    fingerprint: str
    count: int
    event_types: tuple[str, ...]
    first_seen: datetime
    last_seen: datetime
    sample_id: str
    example: str


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """How the first events of a replay were settled: how many were published, the errors of those that died again by
    id, those that are gone and may have died, and those that were not settled in time."""

    published: int
    died: dict[str, str]
    gone: list[str]
    unsettled: list[str]

    @property
    def passed(self) -> bool:
        """Whether all of them were published."""
        return not (self.died or self.gone or self.unsettled)

    @property
    def in_words(self) -> str:
        """`1 of 5 canary events is DEAD again, 3 are not settled yet, 1 is published`."""
        fates = {
            "DEAD again": len(self.died),
            "not to be found, perhaps dropped after they were DEAD": len(self.gone),
            "not settled yet": len(self.unsettled),
            "published": self.published,
        }
        parts = [f"{number} {'is' if number == 1 else 'are'} {fate}" for fate, number in fates.items() if number]
        return ", ".join(parts).replace(" ", f" of {counted(sum(fates.values()), 'canary event')} ", 1)


class Replayed(msgspec.Struct):
    """The result of a replay: how many events matched, how many were returned to PENDING, and why the others were not.
    In a dry run nothing is replayed; `refused` lists the events that would be refused.

    `refused` names the first 1,000 of the `refused_count` refused events; `conflicts` of these have a unique key that
    another live event holds. `canary` is None unless a canary was asked for; if it did not pass, the replay stopped.
    """

    matched: int = 0
    replayed: int = 0
    refused: list[tuple[str, Outcome, str]] = []
    dry_run: bool = False
    refused_count: int = 0
    conflicts: int = 0
    canary: Canary | None = None


class Dropped(msgspec.Struct):
    """The result of a drop: how many events matched, how many were removed, and why the others were not; `refused`
    names the first 1,000 of the `refused_count` events, with the reasons. In a dry run nothing is removed."""

    matched: int = 0
    dropped: int = 0
    refused: list[tuple[str, str]] = []
    dry_run: bool = False
    refused_count: int = 0


class Applied(msgspec.Struct, kw_only=True):
    """The result of a bulk kill or reschedule: how many events matched, how many were changed, and why the others were
    not; `refused` names the first 1,000 of the `refused_count` events. In a dry run nothing is changed."""

    action: str
    matched: int = 0
    done: int = 0
    refused: list[tuple[str, Outcome]] = []
    refused_count: int = 0
    dry_run: bool = False

    def add(self, ids: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        """Counts a step."""
        self.matched += len(ids)
        for event_id, outcome in zip(ids, outcomes, strict=True):
            if outcome is Outcome.OK:
                self.done += not self.dry_run
                continue
            self.refused_count += 1
            if len(self.refused) < MOST_REFUSED:
                self.refused.append((event_id, outcome))


class Swept(msgspec.Struct):
    """How many events a sweep removed, or would remove in a dry run."""

    published: int = 0
    dead: int = 0
    dry_run: bool = False


class Pause(msgspec.Struct, frozen=True):
    """The pause of a box. `until` is when it ends by itself, None if it lasts until the box is resumed. `since` is
    None, and `who` and `why` are empty, if an earlier version of redbox paused the box."""

    who: str
    why: str
    since: datetime | None
    until: datetime | None


class PausedKey(msgspec.Struct, frozen=True):
    """A paused ordering key; the fields are those of Pause."""

    key: str
    who: str
    why: str
    since: datetime | None
    until: datetime | None


class LogEntry(msgspec.Struct, frozen=True):
    """One action of an operator."""

    at: datetime
    action: str
    who: str
    why: str
    count: int
    ids: tuple[str, ...]
    detail: str


#: Three heartbeats: a relay that was not seen for longer counts as dead.
SILENT: Final = timedelta(seconds=15)
#: A heartbeat that is further in the future is none; one that is nearer may be from before the clock was set back.
AHEAD: Final = timedelta(days=1)
#: Durations of a report, and the fields of a heartbeat that hold them in ms.
AGES: Final = {
    "breaker_since": "breaker_age", "running_for": "age", "last_opened": "opened_age", "last_closed": "closed_age",
}  # fmt: skip
#: As in lua/stats.lua.
LATELY: Final = timedelta(seconds=10)
HIGHEST_RATE: Final = 1e9  # events per second: a relay that reports more is damaged


class RelayReport(msgspec.Struct, frozen=True, kw_only=True):
    """A relay as it described itself in its last heartbeat; `seen` is how long ago that was.

    `hanging` of the `calls` that its publisher takes at once were cut off and still run; no event takes their place.
    `failed` are failed attempts since its start, `failures_in_row` those since its last success, and `rate` is how many
    events per second it published before the heartbeat; None for a relay that does not report it.
    """

    name: str
    seen: timedelta
    host: str = ""
    pid: int = 0
    version: str = ""
    target: str = ""
    in_flight: int = 0
    published: int = 0
    retried: int = 0
    dead: int = 0
    breaker: str = "closed"
    reason: str = ""  # why the breaker is open
    breaker_since: timedelta | None = None  # how long ago it opened
    next_probe: timedelta | None = None  # until an open breaker lets samples through
    hanging: int = 0
    calls: int = 0
    failed: int = 0
    failures_in_row: int = 0
    last_error: str = ""
    rate: float | None = None
    running_for: timedelta | None = None  # how long ago it started; None for a relay that does not report it
    last_opened: timedelta | None = None  # how long ago its breaker opened, when it was last open and has closed again
    last_closed: timedelta | None = None  # how long ago it closed then

    @property
    def alive(self) -> bool:
        return self.seen <= SILENT

    @property
    def breaker_open(self) -> bool:
        """Whether its breaker lets no event through but samples."""
        return self.breaker == "open" or (self.breaker != "closed" and self.breaker_since is not None)

    @property
    def all_hang(self) -> bool:
        """Whether it can publish nothing before a call that hangs has ended."""
        return 0 < self.calls <= self.hanging


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """A box at one moment: counts by phase, ages, and lifetime totals. The six phases add up to all events.

    `waiting` of them are behind the head of their ordering line, where no relay can take them yet; they are counted
    in their phase too, and `waiting_due` of them are AVAILABLE. `overdue` are claims whose lease has expired and that
    were not reaped. `oldest_available` is how long the longest due event that can be claimed has been waiting.
    `totals` count since the box exists; of removed events, `swept` are those past their retention, or deleted on
    success, `dropped` those that an operator, a drop policy or the archive removed, and `replaced` those that a later
    put replaced; `claimed` is the last claim
    number, and a kill by an operator takes one too. `relays` are those with a heartbeat within a day, the latest first,
    at most 100. `lost` are ids that a claim or a reap found without a
    complete event, and that are never delivered; `lost_ids` are the first 10 of them. `pause` describes the pause of a
    box that is `paused`; `paused_keys` is the number of paused ordering keys, and `ramp_ends` how long it takes until
    a gradual resume is over. `tokens` is how many events the setting max_rate lets relays claim at once now, None
    without it. `limits_reached` are the settings, of max_rate and max_in_flight, that hold back due events.
    `newest_dead` is how long the latest dead event is dead, and
    `died_lately` and `published_lately` count the events that died and were published since LATELY before that, if they
    are still stored. `unreadable` names heartbeats,
    totals and settings that are malformed; they are left out, or replaced by the default.
    """

    box: str
    at: datetime
    phases: dict[Phase, int]
    waiting: int
    waiting_due: int
    suspects: int
    overdue: int
    blocked: int
    lost: int
    paused: bool
    pause: Pause | None = None
    paused_keys: int = 0
    ramp_ends: timedelta | None = None
    tokens: int | None = None
    limits_reached: list[str] = []
    oldest_available: timedelta | None
    next_due: timedelta | None
    oldest_waiting: timedelta | None
    first_lease_ends: timedelta | None
    oldest_dead: timedelta | None
    oldest_completed: timedelta | None
    totals: dict[str, int]
    settings: Settings
    layout: int
    newest_dead: timedelta | None = None
    died_lately: int = 0
    published_lately: int = 0
    relays: list[RelayReport] = []
    lost_ids: list[str] = []
    unreadable: list[str] = []


def decode_stats(box: str, reply: StatsReply) -> Stats:
    now, meta, counts, oldest, totals, relays, lost_ids = reply
    settings, wrong = Settings.readable(meta)
    pause = _pause(meta, now)
    unreadable = [f"the setting {name}" for name in wrong]
    unreadable += [f"the total {name}" for name, value in totals.items() if not is_count(value)]
    reports = []
    for beat in relays:
        report = _relay(now, beat)
        if report is None:
            unreadable.append(f"the heartbeat of relay {beat.name}")
        else:
            reports.append(report)

    def since(*names: str) -> timedelta | None:
        moments = [oldest[name] for name in names if name in oldest]
        return timedelta(milliseconds=now - min(moments)) if moments else None

    def until(*names: str) -> timedelta | None:
        age = since(*names)
        return None if age is None else -age

    return Stats(
        box=box,
        at=from_ms(now),
        phases={phase: counts[phase.value] for phase in Phase},
        waiting=counts["waiting"],
        waiting_due=counts["waiting_due"],
        suspects=counts["suspects"],
        overdue=counts["overdue"],
        blocked=counts["blocked"],
        lost=counts["lost"],
        lost_ids=lost_ids,
        paused=pause is not None,
        pause=pause,
        paused_keys=counts["paused_keys"],
        ramp_ends=until("ramp"),
        tokens=counts.get("tokens"),
        limits_reached=_limits_reached(settings, counts, due="available" in oldest or "suspect" in oldest),
        oldest_available=since("available", "suspect"),
        next_due=until("scheduled", "scheduled_suspect"),
        oldest_waiting=since("waiting"),
        first_lease_ends=until("in_flight"),
        oldest_dead=since("dead"),
        oldest_completed=since("completed"),
        totals={
            name: int(value) for name, value in totals.items() if name not in ("seq", "probes") and is_count(value)
        },
        settings=settings,
        layout=int(meta.get("layout", 0)),
        newest_dead=since("newest_dead"),
        died_lately=counts.get("died_lately", 0),
        published_lately=counts.get("published_lately", 0),
        relays=reports,
        unreadable=unreadable,
    )


def _pause(meta: dict[str, str], now: int) -> Pause | None:
    """The pause in a meta hash; None if the box is not paused, or not any more."""
    if "paused" not in meta:
        return None
    found = _PAUSED.fullmatch(meta["paused"])
    if found is None:
        return Pause("", "", None, None)
    since, until = found.groups()
    if until and int(until) <= now:
        return None
    who, why = meta.get("pause_who", ""), meta.get("pause_why", "")
    return Pause(who, why, from_ms(score_ms(since)), from_ms(score_ms(until)) if until else None)


def _limits_reached(settings: Settings, counts: dict[str, int], *, due: bool) -> list[str]:
    """The limits that hold back due events."""
    found = []
    if due and counts.get("at_rate"):
        found.append("max_rate")
    held = counts[Phase.IN_FLIGHT.value] - counts["overdue"]
    if due and settings.max_in_flight is not None and held >= settings.max_in_flight:
        found.append("max_in_flight")
    return found


def _relay(now: int, beat: RelayBeat) -> RelayReport | None:
    """The report of a relay; None for a heartbeat that cannot be read."""
    if beat.fields is None or timedelta(milliseconds=beat.seen - now) > AHEAD:
        return None
    about: dict[str, Any] = {name: text for name, text in beat.fields.items() if name in RelayReport.__struct_fields__}
    ago = timedelta(milliseconds=max(0, now - beat.seen))
    about |= {"name": beat.name, "seen": ago, "next_probe": None}
    for name, field in AGES.items():
        age = beat.fields.get(field, "")
        about[name] = ago + timedelta(milliseconds=int(age)) if is_moment(age) else None
    wait = beat.fields.get("probe_in", "")
    if is_moment(wait):
        about["next_probe"] = max(timedelta(0), timedelta(milliseconds=int(wait)) - ago)
    try:
        report = msgspec.convert(about, RelayReport, strict=False)
    except msgspec.ValidationError:
        return None
    return report if report.rate is None else msgspec.structs.replace(report, rate=_rate(report.rate))


def _rate(reported: float) -> float | None:
    """The rate of a relay, without digits that overflow a duration; None for one that cannot be, such as NaN."""
    return round(reported, 3) if 0 <= reported <= HIGHEST_RATE else None
