"""The rules that every box keeps, and what breaks them: one checker for whoever looks at a whole box.

Pure functions from what the scripts `examine` and `examine_keys` tell to problems. A live event is asked whether it has
all that it should have; the members of a line or of a unique key are asked whether they should be there: so nothing is
told twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from redbox import keys
from redbox.arguments import shown
from redbox.errors import NewerEvent, StoreError
from redbox.events import State, UniqueScope
from redbox.store.codec import decode_body
from redbox.store.damage import is_count

HISTORY: Final = 8
SUSPECT_FROM: Final = 2  # expired leases in a row
#: The sorted sets that `examine` tells an id's scores in, in its order.
PLACES: Final = (*keys.INDEXES, "retries", "lost")

#: Every rule, and what it asks for.
RULES: Final = {
    "fields": "an event has a state, a type and a time, and its numbers are numbers",
    "index": "an event is in exactly one index",
    "state": "an event is in an index of its state",
    "score": "its score there is the time that its fields tell",
    "suspect": "a free event is a suspect after two expired leases in a row, and only then",
    "times": "published_at is set while it is PUBLISHED, and died_at while it is DEAD",
    "claim": "a CLAIMED event tells its claim, and no claim number is beyond those given out",
    "attempts": "no more attempts are excused than were made",
    "history": f"at most {HISTORY} attempts are kept",
    "retries": "retries holds pending events that were tried since their put or replay, by their time",
    "line": "a line holds the live events of its ordering_key, and a dead one that blocks it",
    "head": "whoever is behind the head of a line waits, and nobody else does",
    "blocked": "a line is blocked while its head is dead, and only then",
    "unique": "a unique_key is held by its live events, each with the score that its state asks for",
    "body": "an event has a body, which tells the same as its fields",
    "damaged": "a body can be read",
    "newer": "a body can be read by this version of redbox",
    "orphan": "whatever names an event names one that is there",
    "lost": "no claim has come upon an id without a fitting event",
    "foreign": "every key of the box is of redbox's own kind",
}

_TIME_OF: Final = {"published": "published_at", "dead": "died_at"}
_STATES: Final = frozenset(state.value for state in State)
_LIVE: Final = frozenset({State.PENDING.value, State.CLAIMED.value})
_NUMBERS: Final = frozenset(
    {"created_at", "available_at", "due_at", "claimed_at", "published_at", "died_at", "claim", "attempts", "excused",
     "expiries", "seq", "earlier_attempts", "restored_at"}
)  # fmt: skip
_FIELDS: Final = {
    name.encode(): name
    for name in (
        *_NUMBERS,
        "state",
        "event_type",
        "claimed_by",
        "ordering_key",
        "unique_key",
        "unique_scope",
        "last_error",
    )
}
_FREE: Final = ("pending", "suspect")
_CLAIM: Final = ("claim", "claimed_at", "claimed_by")


class Problem(msgspec.Struct, frozen=True):
    """A broken rule: where, and in words. `key` is the ordering_key or unique_key that it is about, if it is."""

    rule: str
    event_id: str | None
    key: str | None
    sentence: str

    def __str__(self) -> str:
        return f"{self.key if self.event_id is None else self.event_id}: {self.sentence}"


class Seen(msgspec.Struct):
    """One id as `examine` saw it. Without an event it has no fields."""

    event_id: str
    fields: dict[str, str]
    scores: dict[str, float]
    size: int
    history: int
    place: float | None
    head: str | None
    unique_score: float | None
    claims: int
    places: int

    @property
    def indexes(self) -> list[str]:
        return [index for index in keys.INDEXES if index in self.scores]

    @property
    def available_at(self) -> float:
        return float(self.fields.get("available_at", self.fields["created_at"]))

    @property
    def tried(self) -> int:
        """Attempts since it was put or replayed."""
        return self.number("attempts") - self.number("earlier_attempts")

    def number(self, field: str) -> int:
        return int(self.fields.get(field, 0))


class Member(msgspec.Struct):
    """A member of a line or of a unique key; without an event it has no state."""

    event_id: str
    state: str | None
    key: str | None


def text(raw: bytes) -> str:
    """What others may have written, as text."""
    return raw.decode("utf-8", "backslashreplace")


def seen(reply: Sequence[Any]) -> list[Seen]:
    """The reply of `examine`."""
    claims, places, *events = reply
    return [
        Seen(
            text(raw_id),
            {_FIELDS.get(name) or text(name): text(value) for name, value in zip(flat[::2], flat[1::2], strict=True)},
            {name: float(score) for name, score in zip(PLACES, scores, strict=True) if score is not None},
            size,
            history,
            None if place is None else float(place),
            None if head is None else text(head),
            None if unique is None else float(unique),
            claims,
            places,
        )
        for raw_id, flat, scores, size, history, place, head, unique in events
    ]


def members(replies: Sequence[Any]) -> list[Member]:
    """The members in a reply of `examine_keys`."""
    return [
        Member(text(raw_id), None if state is None else text(state), None if key is None else text(key))
        for raw_id, state, key in replies
    ]


# --- an event ------------------------------------------------------------------------------------------------------


def judge(event: Seen) -> list[Problem]:
    """What is wrong with an id; nothing when it is gone altogether."""
    found = _orphan(event) if not event.fields else list(_damaged_fields(event)) or [*_kept(event), *_placed(event)]
    if "lost" in event.scores:
        found.append(("lost", "a claim came upon it without a fitting event"))
    key = {
        "line": event.fields.get("ordering_key"),
        "head": event.fields.get("ordering_key"),
        "unique": event.fields.get("unique_key"),
    }
    return [Problem(rule, event.event_id, key.get(rule), sentence) for rule, sentence in found]


Found = tuple[str, str]  # rule and sentence


def _orphan(event: Seen) -> list[Found]:
    named = [f"is in {place}" for place in event.scores if place != "lost"]
    named += ["has a body"] if event.size else []
    named += ["has a history"] if event.history else []
    return [("orphan", f"{what}, but there is no event") for what in named]


def _damaged_fields(event: Seen) -> Iterator[Found]:
    """With these, nothing else can be judged."""
    fields = event.fields
    for name in ("state", "event_type", "created_at"):
        if name not in fields:
            yield "fields", f"has no {name}"
    if fields.get("state", "DEAD") not in _STATES:
        yield "fields", f"state is {fields['state']!r}"
    for name in _NUMBERS & fields.keys():
        if not is_count(fields[name].removeprefix("-")):
            yield "fields", f"{name} is {shown(fields[name])}, not a whole number"


def _kept(event: Seen) -> Iterator[Found]:
    """What an event has wherever it is."""
    fields, state = event.fields, event.fields["state"]
    for field, wanted in (("published_at", State.PUBLISHED), ("died_at", State.DEAD)):
        if (field in fields) != (state == wanted):
            yield "times", f"{field} is {'set' if field in fields else 'missing'} in state {state}"
    if state == State.CLAIMED and (missing := [name for name in _CLAIM if name not in fields]):
        yield "claim", f"is CLAIMED without {', '.join(missing)}"
    if event.number("claim") > event.claims:
        yield "claim", f"has claim number {event.number('claim')}, but only {event.claims} were given out"
    if event.number("excused") > event.number("attempts"):
        yield "attempts", f"{event.number('excused')} attempts are excused, but {event.number('attempts')} were made"
    if event.history > HISTORY:
        yield "history", f"has a history of {event.history}, more than {HISTORY}"
    if not event.size:
        yield "body", "has no body"
    if fields.get("unique_key") and state in _LIVE:
        yield from _holds(event)


def _placed(event: Seen) -> Iterator[Found]:
    """Where an event is, and with which score."""
    state, indexes = event.fields["state"], event.indexes
    if len(indexes) != 1:
        yield "index", f"is in {' and '.join(indexes) or 'no index'}, not in exactly one"
        return
    (index,) = indexes
    if index not in keys.INDEXES_OF[state]:
        yield "state", f"is {state}, but in {index}"
        return
    yield from _timed(event, index)
    if index in _FREE and (event.number("expiries") >= SUSPECT_FROM) != (index == "suspect"):
        yield "suspect", f"is in {index} after {event.number('expiries')} expired leases in a row"
    retried = event.available_at if state == State.PENDING and event.tried else None
    # Earlier versions left those that wait out.
    if event.scores.get("retries") != retried and (index != "waiting" or "retries" in event.scores):
        yield "retries", f"{_scored(event.scores.get('retries'))} in retries, expected {_scored(retried)}"
    yield from _lined(event, index)


def _timed(event: Seen, index: str) -> Iterator[Found]:
    if index == "claimed":  # the end of the lease, which stands nowhere else
        return
    field = _TIME_OF.get(index, "available_at")
    if index in _TIME_OF and field not in event.fields:
        return
    wanted = event.available_at if field == "available_at" else float(event.fields[field])
    if event.scores[index] != wanted:
        yield "score", f"has score {event.scores[index]:.0f} in {index}, but {field} {wanted:.0f}"


def _lined(event: Seen, index: str) -> Iterator[Found]:
    ordering, live = event.fields.get("ordering_key"), event.fields["state"] in _LIVE
    if not ordering:
        if index == "waiting":
            yield "head", "is in waiting, but has no ordering_key"
    elif live and event.place is None:
        yield "line", "is live, but not in its line"
    elif live and (event.head == event.event_id) == (index == "waiting"):
        yield "head", "is the head of its line, but waits" if index == "waiting" else f"is in {index} behind the head"
    if event.place is not None and "seq" in event.fields and event.place != event.number("seq"):
        yield "line", f"has place {event.place:.0f} in its line, but seq {event.number('seq')}"
    if event.place is not None and event.place > event.places:
        yield "line", f"has place {event.place:.0f} in its line, but only {event.places} were given out"


def _holds(event: Seen) -> Iterator[Found]:
    pending = event.available_at if event.tried else 0.0
    wanted = float("inf") if event.fields["state"] == State.CLAIMED else pending
    if event.unique_score != wanted:
        yield "unique", f"{_scored(event.unique_score)} at its unique_key, expected {_scored(wanted)}"


def _scored(score: float | None) -> str:
    return "nothing" if score is None else f"score {score:.0f}"


def judge_body(event: Seen, body: bytes) -> list[Problem]:
    """What is wrong with the body of an event that has one."""
    fields = event.fields
    try:
        read = decode_body(event.event_id, body)
    except NewerEvent as error:
        return [Problem("newer", event.event_id, None, error.message)]
    except StoreError:
        return [Problem("damaged", event.event_id, None, "its stored body cannot be read")]
    scope = str(read.unique_scope or UniqueScope.ALL_LIVE) if read.unique_key else None
    told = {
        "event_type": read.event_type,
        "ordering_key": read.ordering_key,
        "unique_key": read.unique_key,
        "unique_scope": scope,
    }
    return [
        Problem("body", event.event_id, None, f"{name} is {fields.get(name)!r}, but {value!r} in its body")
        for name, value in told.items()
        if fields.get(name) != value
    ]


# --- a line, a unique key ------------------------------------------------------------------------------------------


def judge_member(kind: str, name: str, head: str | None, member: Member) -> list[Problem]:
    """Whether a member belongs into a line or under a unique key."""
    where, field = (f"line {name!r}", "ordering_key") if kind == "line" else (f"unique_key {name!r}", "unique_key")
    if member.state is None:
        return [Problem("orphan", member.event_id, name, f"is in {where}, but there is no event")]
    if member.key != name:
        return [Problem(kind, member.event_id, name, f"is in {where}, but its {field} is {member.key!r}")]
    blocking = kind == "line" and member.state == State.DEAD and member.event_id == head
    if member.state not in _LIVE and not blocking:
        return [Problem(kind, member.event_id, name, f"is {member.state}, but still in {where}")]
    return []


def judge_head(name: str, head: str | None, state: str | None, blocked: bool) -> list[Problem]:
    """Whether a line is blocked by a dead head, and only then."""
    if state == State.DEAD and not blocked:
        return [Problem("blocked", head, name, f"is dead and the head of line {name!r}, which is not blocked")]
    if blocked and state != State.DEAD:
        by = "has no events" if head is None else f"has a head that is {state or 'gone'}"
        return [Problem("blocked", head, name, f"line {name!r} is blocked, but {by}")]
    return []
