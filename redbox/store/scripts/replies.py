"""The replies of scripts, as the callers of the store read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self, TypedDict

import msgspec

from redbox.events import Outcome, Record
from redbox.store.damage import is_count, score_ms
from redbox.store.scripts.items import SeenClaim

CREATED: Final = b"CREATED"
EXISTS: Final = b"EXISTS"
SKIPPED: Final = b"SKIPPED"

Fields = dict[bytes, bytes]
Fence = tuple[str, int]  # event id, claim number

#: The parts of a claim's reply before its events.
CLAIM_HEAD: Final = 5
#: How many parts a claim's reply has for each event, and which of them is its body.
CLAIM_PARTS: Final = 8
_CLAIM_BODY: Final = 1


class Position(NamedTuple):
    """A position in a sorted set, such as an index: the score and the id of a member."""

    score: bytes
    member: bytes


START: Final = Position(b"", b"")  # before the first member


class Refusal(NamedTuple):
    """Why `put` refused an event, or did not confirm it: DIFFERS, CONFLICT, FULL or UNCONFIRMED, and a detail."""

    word: str
    detail: bytes


class Replacement(NamedTuple):
    """The event was put, and replaced this one."""

    event_id: str


#: CREATED, EXISTS, SKIPPED, a replacement, or a refusal.
PutReply = bytes | Replacement | Refusal


def is_stored(reply: PutReply) -> bool:
    """Whether `put` stored the event, or found it stored."""
    return reply in (CREATED, EXISTS) or isinstance(reply, Replacement)


def read_put_replies(replies: list[Any]) -> list[PutReply]:
    """The replies of the put script."""
    if {*map(type, replies)} == {bytes}:  # most often
        return replies
    return [reply if isinstance(reply, bytes) else _put_reply(*reply) for reply in replies]


def _put_reply(word: bytes, detail: bytes) -> PutReply:
    return Replacement(detail.decode()) if word == b"REPLACED" else Refusal(word.decode(), detail)


class ClaimedParts(NamedTuple):
    """One event of a claim's reply."""

    event_id: bytes
    body: bytes
    attempts: int
    exhausted: int
    created_at: bytes
    available_at: bytes
    excused: bytes | None
    due_at: bytes | None


class Packed(msgspec.Struct, frozen=True):
    """The reply of a claim, not yet decoded. `more_in` is in how many seconds the next event can be claimed: 0 for now,
    None if none is pending. `limited`: until then, the rate of the box holds back events that are due. `full`: its
    max_in_flight does, until a claim ends."""

    relay: str
    claimed_ms: int
    lease_ms: int
    suspect: bool
    more_in: float | None
    first: int  # the number of the first claim; the others follow
    limited: bool
    full: bool
    parts: list[Any]  # CLAIM_PARTS of them for each event

    @classmethod
    def read(cls, relay: str, lease: int, reply: Sequence[Any]) -> Packed:
        now, suspect, next_due, first, limit, *parts = reply
        more_in = None if next_due < 0 else max(0, next_due - now) / 1000
        return cls(relay, now, lease, suspect == 1, more_in, first, limit == 1, limit == 2, parts)

    def __len__(self) -> int:
        return len(self.parts) // CLAIM_PARTS

    @property
    def first_id(self) -> str:
        """The id of its first event."""
        return str(self.parts[0].decode())

    @property
    def size(self) -> int:
        """Bytes of its events."""
        return sum(map(len, self.parts[_CLAIM_BODY::CLAIM_PARTS]))


class ReplayReply(NamedTuple):
    """What `replay` did with one event; `detail` says more about a refusal."""

    outcome: Outcome
    detail: str


class StreamPosition(NamedTuple):
    """The numbers of the last batch of a stream that was cut, and of the last that was settled."""

    cut: int
    settled: int


class Reaped(NamedTuple):
    """The ids of the events whose claims were reaped; `more`: call again."""

    more: bool
    ids: list[str]


class SweepStep(NamedTuple):
    """How many events a step of `sweep` removed; `more`: continue after the position."""

    removed: int
    more: bool
    after: Position


class Filters(TypedDict, total=False):
    """Which events of an index `page` returns. Times are in ms; texts are "" for any."""

    since: int | None
    until: int | None
    event_type: str
    key: str
    error: str
    created_since: int | None
    created_until: int | None


class RecordPage(NamedTuple):
    """Records of an index, in order; `more`: continue after the position. `looked`: how
    many events were read."""

    records: list[Record]
    more: bool
    after: Position
    looked: int


class IdPage(NamedTuple):
    """Ids of an index, in order; `more`: continue after the position."""

    ids: list[bytes]
    more: bool
    after: Position


class ClaimPage(NamedTuple):
    """Ids of an index with their last claim numbers, in order; `more`: continue after the position. `looked`: how
    many events were read."""

    seen: list[SeenClaim]
    more: bool
    after: Position
    looked: int


class EventSummary(NamedTuple):
    """An event without its body: its position in its index, and its last claim number."""

    position: Position
    event_id: str
    event_type: str
    last_error: str
    number: int

    @classmethod
    def read(cls, event_id: bytes, event_type: bytes, last_error: bytes, score: bytes, number: bytes) -> Self:
        claims = number.decode(errors="replace")
        return cls(
            Position(score, event_id),
            event_id.decode(errors="replace"),
            event_type.decode(errors="replace"),
            last_error.decode(errors="replace"),
            int(claims) if is_count(claims) else 0,
        )

    @property
    def entered(self) -> int:
        """When the event entered its state, in ms."""
        return score_ms(self.position.score)


class SummaryPage(NamedTuple):
    """Events of an index without their bodies, in order; `more`: continue after the position. `looked`: how
    many events were read."""

    summaries: list[EventSummary]
    more: bool
    after: Position
    looked: int


class IndexRanges(msgspec.Struct, frozen=True):
    """Ranges of an index: the last position of each, in order. `claims` is the highest claim number so far, `count` the
    number of events in the index."""

    claims: int
    count: int
    last: list[Position]


class StoredEvent(NamedTuple):
    """The hash of an event, empty if there is none, and its body, None if there is none or it was not read."""

    fields: Fields
    body: bytes | None


class EventState(msgspec.Struct, frozen=True):
    """An event without its body: its hash, its index and score there, and its history."""

    event_id: str
    fields: Fields
    index: str
    score: float
    history: Sequence[bytes]


class RelayBeat(NamedTuple):
    """The last heartbeat of a relay, and when it was received, in ms; None if the fields cannot be read."""

    name: str
    seen: int
    fields: dict[str, str] | None


class StatsReply(NamedTuple):
    """A box at one moment, as `stats` counts it; times in ms."""

    now: int
    meta: dict[str, str]
    counts: dict[str, int]
    oldest: dict[str, int]
    totals: dict[str, str]
    relays: list[RelayBeat]
    lost_ids: list[str]


class EventLine(NamedTuple):
    """The line of an event: its length, the rank of the event in it (None if it left the line), when a dead head
    blocked it, its head, and when the pause of the ordering key ends (LAST_MS if it does not end by itself). Times are
    in ms."""

    key: str
    length: int
    rank: int | None
    blocked_at: int | None
    head: str | None
    paused_until: int | None


class Sighting(NamedTuple):
    """An id as `locate` found it: its record (None without an event), its scores by index, in ms, and the number of due
    events before it. `exhausted`: it was claimed only to be marked DEAD."""

    event_id: str
    record: Record | None
    scores: dict[str, int]
    before: int
    line: EventLine | None
    exhausted: bool


class Located(NamedTuple):
    """Where events are, at one moment. `suspect` is the id of the suspect that is claimed; `members` is the length of
    the line, or the number of holders of the unique key, that was asked for."""

    now: int
    suspect: str | None
    members: int
    sightings: list[Sighting]


class PauseReply(NamedTuple):
    """When a pause begins and ends, in ms; `until` is None if it lasts until it is resumed. A pause that would be over
    already was not made."""

    now: int
    until: int | None


class PausedEntry(NamedTuple):
    """A paused ordering key; times in ms, None if unknown or without an end."""

    key: str
    until: int | None
    since: int | None
    who: str
    why: str


class BlockedLine(NamedTuple):
    """A line that a dead event blocks: its ordering key, since when in ms, its head ("" without one) and its length."""

    key: str
    since: int
    head: str
    length: int


class LoggedEntry(NamedTuple):
    """An entry of the operations log: its time in ms, and its fields."""

    at: int
    fields: dict[str, str]


class ExaminedEvent(NamedTuple):
    """An id as `examine` sees it: fields and values in turn, and its score in each index or None. `body` is None if it
    was not read. `paused_until` is the end of the pause of its ordering key, None if that is not paused."""

    event_id: bytes
    fields: list[bytes]
    scores: Sequence[bytes | None]
    size: int
    history: int
    body: bytes | None
    place: bytes | None
    head: bytes | None
    unique_score: bytes | None
    paused_until: bytes | None


class Examined(NamedTuple):
    """Events, and how many claim numbers and places in lines were given out so far."""

    claims: int
    places: int
    events: list[ExaminedEvent]


class ExaminedMember(NamedTuple):
    """A member of a line or of a unique key; `key` is the one that its event names."""

    event_id: bytes
    state: bytes | None
    key: bytes | None


class ExaminedKey(NamedTuple):
    """A step over a line or a unique key; `more`: continue after the position."""

    more: bool
    after: Position
    head: bytes | None
    state: bytes | None
    blocked_at: bytes | None
    unnoted_pause: bytes | None
    members: list[ExaminedMember]
