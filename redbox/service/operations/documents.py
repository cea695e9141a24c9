"""The JSON documents that the operations take and give, for requests to be checked and for the OpenAPI document.

The JSON is that of the command line with --json, made in redbox/box; a test compares both with these types.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta, Struct

from redbox.box.desk.blocked_keys import BlockedKey
from redbox.box.reports import ErrorGroup, LogEntry, Pause, PausedKey
from redbox.events import EVENT_ID_LENGTH, KEY_LENGTH, Attempt, Phase, State

Seconds = float
Why = Annotated[str, Meta(max_length=2000, description="The reason, for the operations log.", examples=["fixed"])]
DurationText = Annotated[
    str | float, Meta(description="A duration: seconds, or a text such as 10m.", examples=["10m", 90.5])
]
Moment = Annotated[
    str,
    Meta(
        max_length=100,
        description="A time in ISO 8601 with a zone, or relative: 1h is an hour ago, +1h an hour from now.",
        examples=["2026-01-31T12:00:00Z", "+1h"],
    ),
]
Ids = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=EVENT_ID_LENGTH)]], Meta(min_length=1, max_length=100_000)
]


class Service(Struct, kw_only=True):
    """The service: its version, its boxes, and what the caller may do. `delivers`: a relay runs in this process."""

    version: str
    default_box: str
    boxes: list[str]
    scopes: list[str]
    read_only: bool
    delivers: bool


class RelayDocument(Struct, kw_only=True):
    """A relay as its last heartbeat describes it; `seen`, `breaker_since`, and when its breaker was last open and
    closed again, `last_opened` and `last_closed`, are seconds ago, `next_probe` is in seconds."""

    name: str
    seen: Seconds
    host: str
    pid: int
    version: str
    target: str
    in_flight: int
    published: int
    retried: int
    dead: int
    breaker: str
    reason: str
    breaker_since: Seconds | None
    next_probe: Seconds | None
    hanging: int
    calls: int
    failed: int
    failures_in_row: int
    last_error: str
    rate: float | None
    running_for: Seconds | None
    last_opened: Seconds | None
    last_closed: Seconds | None
    silent: bool


class RatesDocument(Struct, kw_only=True):
    """Events per second; `seconds` is null if the rates are those that the relays report."""

    put: float | None
    published: float | None
    failed: float | None
    seconds: Seconds | None


class StatsDocument(Struct, kw_only=True):
    """A box at one moment: counts by phase, ages in seconds, and lifetime totals."""

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
    pause: Pause | None
    paused_keys: int
    ramp_ends: Seconds | None
    tokens: int | None
    limits_reached: list[str]
    oldest_available: Seconds | None
    next_due: Seconds | None
    oldest_waiting: Seconds | None
    first_lease_ends: Seconds | None
    oldest_dead: Seconds | None
    oldest_completed: Seconds | None
    totals: dict[str, int]
    settings: dict[str, str | float | None]
    layout: int
    newest_dead: Seconds | None
    died_lately: int
    published_lately: int
    relays: list[RelayDocument]
    lost_ids: list[str]
    unreadable: list[str]
    rates: RatesDocument | None = None
    first_paused_keys: list[PausedKey] = []


class BoxDocument(Struct, kw_only=True):
    """A box: beside its name all fields of its stats, or the error why they cannot be read."""

    name: str
    error: str | None
    phases: dict[Phase, int] | None = None
    waiting: int | None = None
    blocked: int | None = None
    paused: bool | None = None


class NextStep(Struct):
    """A command that changes the situation."""

    purpose: str
    command: str


class ExplanationDocument(Struct, kw_only=True):
    """Why an event, a line or a box is as it is: `situation` is one word for programs, `headline` and `sentences` are
    for people."""

    headline: str
    subject: str
    situation: str
    at: datetime
    sentences: list[str]
    next_steps: list[NextStep]
    evidence: dict[str, Any]
    found: bool


class EventDocument(Struct, kw_only=True):
    """An event. `payload` is JSON or text; `payload_base64` has the bytes where that does not hold them exactly."""

    event_id: str
    event_type: str
    state: State
    phase: Phase
    created_at: datetime
    available_at: datetime
    attempts: int
    excused: int
    expiries: int
    number: int
    last_error: str | None
    claimed_at: datetime | None
    claimed_by: str | None
    lease_until: datetime | None
    published_at: datetime | None
    published_by: str | None
    published_seconds: float | None
    died_at: datetime | None
    superseded_by: str | None
    waiting: bool
    suspect: bool
    damaged: bool
    problem: str | None
    headers: dict[str, str]
    metadata: dict[str, str]
    partition_key: str | None
    ordering_key: str | None
    unique_key: str | None
    unique_scope: str
    history: list[Attempt]
    content_type: str
    payload: Any = None
    payload_base64: str | None = None


class EventPage(Struct, kw_only=True):
    """A page of events. `cursor` continues the listing, null at its end; `looked` is how many events were read: a page
    may be short, or empty, and still have a cursor."""

    events: list[EventDocument]
    cursor: str | None
    looked: int


class KeyList(Struct, kw_only=True):
    """Blocked and paused ordering keys, at most 100 of each."""

    blocked: list[BlockedKey]
    paused: list[PausedKey]


class RelayList(Struct, kw_only=True):
    relays: list[RelayDocument]


class GroupDocument(ErrorGroup, kw_only=True, frozen=True):
    """Events of one state whose last errors are alike. `error` is the text of the last one. `estimated`: the count is
    estimated from a sample; `at_least`: the sample has too few of them for that, and there may be more than the count.
    `histogram`: how many events of the sample failed in each of 24 equal parts of the time between the first and the
    last of them; empty if the events were selected by more than their state."""

    error: str
    state: State
    estimated: bool = False
    at_least: bool = False
    histogram: tuple[int, ...] = ()


class GroupList(Struct, kw_only=True):
    """Error groups, the largest first. `looked`: how many events were read, the newest of each state. `sampled`: there
    are more, and a rare error may be missing.
    `counted_at`: when the counts of DEAD events were last made in full; null if they are from this request."""

    groups: list[GroupDocument]
    sampled: bool = False
    looked: int = 0
    counted_at: datetime | None = None


class IncidentDocument(Struct, kw_only=True):
    """One error group: what happened when, the ordering keys that it blocks, its last event, and one of the same type
    that was delivered."""

    group: GroupDocument
    timeline: list[dict[str, Any]]
    blocked_keys: list[dict[str, Any]]
    failed: dict[str, Any] | None
    delivered: dict[str, Any] | None


class Log(Struct, kw_only=True):
    """Actions of operators, the newest first."""

    entries: list[LogEntry]


class SettingDocument(Struct, kw_only=True):
    """A setting. `choices`: all values that it can have; empty if there are many."""

    value: str | float | None
    text: str
    default: str
    is_default: bool
    meaning: str
    choices: list[str]


class FindingDocument(Struct, kw_only=True):
    severity: str
    check: str
    sentence: str
    meaning: str
    remedy: str


class Findings(Struct, kw_only=True):
    """What is wrong with the box and its server, the gravest first."""

    findings: list[FindingDocument]


class Suggestions(Struct, kw_only=True):
    values: list[str]


# --- requests --------------------------------------------------------------------------------------------------


class EventAction(Struct, kw_only=True, forbid_unknown_fields=True):
    """How to act on one event. A dry run only answers what the outcome would be."""

    why: Why = ""
    dry_run: bool = False


class DelayedAction(EventAction, kw_only=True, forbid_unknown_fields=True):
    """An action after which the event is due after a `delay`, by default now."""

    delay: DurationText | None = None


class Rescheduling(DelayedAction, kw_only=True, forbid_unknown_fields=True):
    """When the event is due: after a `delay`, or at `available_at`; by default now."""

    available_at: Moment | None = None


class EventOutcome(Struct, kw_only=True):
    """The outcome of an action: OK, or why it is refused, which only a dry run answers in this way."""

    outcome: str
    reason: str


class PauseRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Pauses the box, or one ordering key, for a `duration` or `until` a time; without them until it is resumed."""

    why: Why = ""
    duration: DurationText | None = None
    until: Moment | None = None
    key: Annotated[str, Meta(min_length=1, max_length=KEY_LENGTH)] | None = None


class PauseAnswer(Pause, kw_only=True, frozen=True):
    """The pause of the box, or of one ordering key."""

    key: str | None


class ResumeRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Ends the pause of the box, or of one ordering key; with a `ramp` the rate of claims grows slowly."""

    why: Why = ""
    ramp: DurationText | None = None
    key: Annotated[str, Meta(min_length=1, max_length=KEY_LENGTH)] | None = None


class ResumeAnswer(Struct, kw_only=True):
    """`resumed` is false if it was not paused."""

    key: str | None
    resumed: bool


class SettingsChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """Values by name, as `redbox configure` takes them (texts such as 7d) or as numbers; `reset` are the names of
    settings that get their defaults again."""

    changes: dict[str, str | float | None] = {}
    reset: list[str] = []
    why: Why = ""


# --- jobs ------------------------------------------------------------------------------------------------------

Action = Literal["replay", "drop", "kill", "reschedule", "export"]


class BulkAction(NamedTuple):
    """What a job does to its events: `done` in words; `takes`: the fields of a request that it takes beside those of
    every job; `live`: it takes PENDING events, and else DEAD ones, unless a state is given."""

    done: str
    takes: tuple[str, ...] = ()
    live: bool = False


ACTIONS: Final[dict[Action, BulkAction]] = {
    "replay": BulkAction("replayed", ("rate", "ramp", "canary", "canary_wait", "delay", "reset", "force")),
    "drop": BulkAction("dropped"),
    "kill": BulkAction("killed", live=True),
    "reschedule": BulkAction("rescheduled", ("delay", "available_at"), live=True),
    "export": BulkAction("exported"),
}
JobState = Literal["running", "waiting_for_canary", "done", "failed", "cancelled"]


class RefusedEvent(Struct, kw_only=True):
    """An event that was left as it is."""

    event_id: str
    reason: str


class CanaryDocument(Struct, kw_only=True):
    """How the first events of a replay were settled; `died` are the errors of those that died again, by id."""

    passed: bool
    published: int
    died: dict[str, str]
    gone: list[str]
    unsettled: list[str]


class JobResult(Struct, kw_only=True):
    """What a job did: `refused` names the first 100 of the `refused_count` events that were left. `conflicts` of those
    have a unique key that another live event holds."""

    matched: int
    done: int
    refused_count: int = 0
    conflicts: int = 0
    refused: list[RefusedEvent] = []
    canary: CanaryDocument | None = None


class Preview(Struct, kw_only=True):
    """What a job would do. `count` events would be changed, of those that `matched`. `looked` is how many events were
    read to find them. If it is not `complete`, the counts are of these alone, and there are more. `obstacle` is why no
    relay would deliver the replayed events at the moment; empty if one would."""

    dry_run: Literal[True] = True
    count: int
    matched: int
    looked: int
    complete: bool
    refused_count: int = 0
    conflicts: int = 0
    refused: list[RefusedEvent] = []
    obstacle: str = ""


class JobDocument(Struct, kw_only=True):
    """A job. `done`: how many of its events it has dealt with, also those that were refused; `result` has both numbers
    in the end. `total` is null while the events are not counted, or if there are too many to count first. `text` says
    in words what it does or where it stopped."""

    id: str
    box: str
    action: Action
    state: JobState
    done: int
    total: int | None
    text: str
    who: str
    why: str
    started_at: datetime
    ended_at: datetime | None = None
    problem: str | None = None
    result: JobResult | None = None


class JobList(Struct, kw_only=True):
    """Jobs, the newest first."""

    jobs: list[JobDocument]
