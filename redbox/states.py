"""The states of an event, the transitions between them, and the replies of the scripts that make them.

The lifecycle has four states and seven operations between them::

    PENDING ──claim──▶ CLAIMED ──ack──▶ PUBLISHED
       ▲                 │ │                │
       ├──retry/release/reap┘ └──kill──▶ DEAD  │
       └──────────────replay─────────────┴─────┘
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """The stored state of an event."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    PUBLISHED = "PUBLISHED"
    DEAD = "DEAD"


class Phase(StrEnum):
    """The state in finer steps for operators, derived from state, attempts and available_at."""

    SCHEDULED = "SCHEDULED"
    AVAILABLE = "AVAILABLE"
    IN_FLIGHT = "IN_FLIGHT"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"
    DEAD = "DEAD"
    COMPLETED = "COMPLETED"


class UniqueScope(StrEnum):
    """Which events hold a unique_key: every live event, or only those that no relay has claimed yet."""

    ALL_LIVE = "ALL_LIVE"
    UNTOUCHED = "UNTOUCHED"


class Outcome(StrEnum):
    """The reply of a script for one event. Any outcome but OK changed nothing."""

    OK = "OK"
    LEASELOST = "LEASELOST"
    UNKNOWN = "UNKNOWN"
    NOTPENDING = "NOTPENDING"
    NOTDUE = "NOTDUE"
    NOTCLAIMED = "NOTCLAIMED"
    NOTLIVE = "NOTLIVE"
    NOTTERMINAL = "NOTTERMINAL"
    CHANGED = "CHANGED"
    BODYMISSING = "BODYMISSING"
    BLOCKING = "BLOCKING"
    SUPERSEDED = "SUPERSEDED"
    CONFLICT = "CONFLICT"
    LEFT = "LEFT"

    @property
    def reason(self) -> str:
        """The outcome in words."""
        return _REASONS[self]


_REASONS: Final = {
    Outcome.OK: "done",
    Outcome.LEASELOST: "the claim is no longer held: it was reaped or settled, or the event was claimed again",
    Outcome.UNKNOWN: "there is no such event",
    Outcome.NOTPENDING: "the event is not PENDING",
    Outcome.NOTDUE: "the event is not available yet",
    Outcome.NOTCLAIMED: "the event is not CLAIMED",
    Outcome.NOTLIVE: "the event is already PUBLISHED or DEAD",
    Outcome.NOTTERMINAL: "the event is neither PUBLISHED nor DEAD",
    Outcome.CHANGED: "the event was claimed again after it was read",
    Outcome.BODYMISSING: "the body of the event is missing, so it cannot be delivered; drop it, and put it again",
    Outcome.BLOCKING: "the event is DEAD and blocks its line",
    Outcome.SUPERSEDED: "the event was superseded by another event",
    Outcome.CONFLICT: "another live event holds its unique_key",
    Outcome.LEFT: "the event was removed from a stream's batch before the batch was read",
}

#: Script → the transitions it may make. Scripts refuse any other transition.
TRANSITIONS: Final[dict[str, frozenset[tuple[State, State]]]] = {
    "claim": frozenset({(State.PENDING, State.CLAIMED)}),
    "cut_batch": frozenset({(State.PENDING, State.CLAIMED)}),
    "reclaim": frozenset({(State.PENDING, State.CLAIMED)}),
    "ack": frozenset({(State.CLAIMED, State.PUBLISHED)}),
    "settle_batch": frozenset({(State.CLAIMED, State.PUBLISHED)}),
    "retry": frozenset({(State.CLAIMED, State.PENDING)}),
    "release": frozenset({(State.CLAIMED, State.PENDING)}),
    "reap": frozenset({(State.CLAIMED, State.PENDING)}),
    "kill": frozenset({(State.PENDING, State.CLAIMED), (State.CLAIMED, State.DEAD)}),  # the first only for an operator
    "replay": frozenset({(State.PUBLISHED, State.PENDING), (State.DEAD, State.PENDING)}),
}
