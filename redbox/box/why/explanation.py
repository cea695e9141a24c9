"""The answer of `box.why`: a situation, sentences, the next steps, and the evidence."""

from __future__ import annotations

import shlex
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec


class Situation(StrEnum):
    """The cause that decides where an event, a line, a unique key or a box is."""

    # of one event, or of the event at the head of a line
    SCHEDULED = "scheduled"
    RETRY_SCHEDULED = "retry_scheduled"
    WAITING = "waiting"
    QUEUED = "queued"
    SUSPECT = "suspect"
    CLAIMED = "claimed"
    LEASE_EXPIRED = "lease_expired"
    PUBLISHED = "published"
    DEAD = "dead"
    SUPERSEDED = "superseded"
    DAMAGED = "damaged"
    LOST = "lost"
    REMOVED = "removed"
    UNKNOWN = "unknown"
    # of every due event of the box, or of an ordering key
    PAUSED = "paused"
    KEY_PAUSED = "key_paused"
    NO_RELAY = "no_relay"
    BREAKER_OPEN = "breaker_open"
    STALLED = "stalled"
    RAMPING = "ramping"
    LIMIT_REACHED = "limit_reached"
    # of an ordering key or a unique key without live events
    EMPTY = "empty"
    # of a box
    STORE_REFUSES_WRITES = "store_refuses_writes"
    BLOCKED = "blocked"
    FAILING = "failing"
    BACKLOG = "backlog"
    BOX_FULL = "box_full"
    FLOWING = "flowing"

    @property
    def in_words(self) -> str:
        return self.value.replace("_", " ")


class Step(msgspec.Struct, frozen=True):
    """A command that changes the situation: `purpose` completes the sentence "To ...:"."""

    purpose: str
    arguments: tuple[str, ...]

    def command(self, options: tuple[str, ...] = ()) -> str:
        """The command for a shell, with global options such as `("--box", "orders")`."""
        return shlex.join(("redbox", *options, *self.arguments))


class Cause(NamedTuple):
    """A situation in words, as a part of an explanation."""

    situation: Situation
    sentences: tuple[str, ...]
    steps: tuple[Step, ...] = ()


class Remark(NamedTuple):
    """Words beside a cause, with their steps."""

    sentences: tuple[str, ...]
    steps: tuple[Step, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why an event, a line, a unique key or a box is as it is, at one moment of the store's clock.

    `sentences` say where it is, since when, why, and what happens next. `next_steps` are the commands that change it.
    `found` is False for an event that the box does not know; it knows the id of a lost one. `in_words` is the situation
    for people, with what they must not miss beside it; by default the situation alone.
    """

    subject: str
    situation: Situation
    at: datetime
    sentences: tuple[str, ...]
    next_steps: tuple[Step, ...] = ()
    evidence: dict[str, Any] = {}
    found: bool = True
    in_words: str = ""

    @property
    def headline(self) -> str:
        """`box orders: flowing, but 40 events became DEAD in the last 13 s`."""
        return f"{self.subject}: {self.in_words or self.situation.in_words}"

    def as_json(self, options: tuple[str, ...] = ()) -> dict[str, Any]:
        """The explanation as one object. The commands of the next steps get the global options."""
        names = (name for name in self.__struct_fields__ if name != "in_words")
        values: dict[str, Any] = {"headline": self.headline, **{name: getattr(self, name) for name in names}}
        values["next_steps"] = [{"purpose": step.purpose, "command": step.command(options)} for step in self.next_steps]
        return values


def by_id(purpose: str, *command: str, event_id: str) -> Step:
    """A step for one event, whose id may look like an option."""
    return Step(purpose, (*command, *(("--",) if event_id.startswith("-") else ()), event_id))
