"""The rules of a consistent box, and the functions that check them.

Pure functions from snapshots to problems. The rules of an event ask whether the event has all that it should have. The
rules of a line or a unique key ask whether its members belong there. So no problem is reported twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec

from redbox import keys
from redbox.arguments import shown
from redbox.audit.snapshots import LIVE, NUMBERS, TIMES, EventSnapshot, KeyMember, KeyPage
from redbox.errors import NewerEvent, StoreError
from redbox.events import State, UniqueScope
from redbox.store.codec import decode_body
from redbox.store.damage import LAST_MS, is_count

HISTORY: Final = 8
SUSPECT_FROM: Final = 2  # expired leases in a row
DIGITS: Final = 15  # of a stored number: for the scripts, a longer one is none

#: Every rule, by its name.
RULES: Final = {
    "fields": "an event has a state, a type and a time, and its numbers and times are in range",
    "index": "an event is in exactly one index",
    "state": "an event is in an index of its state",
    "score": "the score of an event in its index is the time in its fields",
    "suspect": "a PENDING event is a suspect after two expired leases in a row, and only then",
    "times": "published_at is set while an event is PUBLISHED, and died_at while it is DEAD",
    "claim": "a CLAIMED event has its claim and its lease, and no claim number is higher than the last one made",
    "attempts": "no more attempts are excused, or from before a replay, than were made",
    "history": f"at most {HISTORY} attempts are kept",
    "retries": "retries contains the PENDING events with attempts since their put or replay, by available_at",
    "line": "a line contains the live events of its ordering_key, and a DEAD one that blocks it",
    "head": "events behind the head of a line are in waiting, and so is the head of a paused key; no others are",
    "blocked": "a line is blocked while its head is DEAD, and only then",
    "paused": "meta notes when the first pause of an ordering_key ends",
    "unique": "a unique_key is held by its live events, each with the score that fits its state",
    "body": "an event has a body, which agrees with its fields, or a repair has marked that it lost it",
    "damaged": "a body can be read",
    "newer": "a body can be read by this version of redbox",
    "orphan": "every id in the box has an event",
    "lost": "no claim has found an id without a matching event",
    "foreign": "every key of the box has the type that redbox gives it",
}
#: The rules whose problems only a person can mend.
BY_HAND: Final = ("damaged", "newer", "foreign")

_CLAIM_FIELDS: Final = ("claim", "claimed_at", "claimed_by")
_KEY_FIELDS: Final = {"line": "ordering_key", "head": "ordering_key", "unique": "unique_key"}

#: Returns a sentence for each violation of a rule.
Check = Callable[[EventSnapshot], Iterator[str]]


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A broken rule. `key` is the ordering_key or unique_key that the problem is about, if there is one.

    A problem of the whole box has neither an id nor a key. `raw_id` is the stored id if that is not UTF-8, else None.
    """

    rule: str
    event_id: str | None
    key: str | None
    sentence: str
    raw_id: bytes | None = None

    def __str__(self) -> str:
        about = self.key if self.event_id is None else self.event_id
        return self.sentence if about is None else f"{about}: {self.sentence}"


# --- an event ------------------------------------------------------------------------------------------------------


def check_event(event: EventSnapshot) -> list[Problem]:
    """Checks one id. An id that is nowhere in the box has no problem."""
    return [
        Problem(
            rule,
            event.event_id,
            event.fields.get(_KEY_FIELDS[rule]) if rule in _KEY_FIELDS else None,
            sentence,
            event.raw_id,
        )
        for rule, check in _checks_for(event)
        for sentence in check(event)
    ]


def _checks_for(event: EventSnapshot) -> Iterator[tuple[str, Check]]:
    """The rules that can be checked: damaged fields, or an index that does not fit, hide the rules that depend on
    them."""
    if not event.fields:
        yield "orphan", _orphan
    elif any(_fields(event)):
        yield "fields", _fields
    else:
        yield from _FIELD_RULES
        indexes = event.indexes
        if len(indexes) != 1:
            yield "index", _index
        elif indexes[0] not in keys.INDEXES_OF[event.fields["state"]]:
            yield "state", _state
        else:
            yield from _INDEX_RULES[indexes[0]]
    yield "lost", _lost


def _orphan(event: EventSnapshot) -> Iterator[str]:
    for index in event.scores:
        if index != "lost":
            yield f"is in {index}, but there is no event"
    if event.body_bytes:
        yield "has a body, but there is no event"
    if event.history_length:
        yield "has a history, but there is no event"


def _lost(event: EventSnapshot) -> Iterator[str]:
    if "lost" in event.scores:
        yield "a claim found its id without a matching event"


def _fields(event: EventSnapshot) -> Iterator[str]:
    fields = event.fields
    for name in ("state", "event_type", "created_at"):
        if name not in fields:
            yield f"has no {name}"
    if fields.get("state", "DEAD") not in keys.INDEXES_OF:
        yield f"state is {fields['state']!r}"
    for name in NUMBERS & fields.keys():
        if not is_count(fields[name]) or len(fields[name]) > DIGITS:
            yield f"{name} is {shown(fields[name])}, not a whole number of at most {DIGITS} digits"
        elif name in TIMES and int(fields[name]) > LAST_MS:
            yield f"{name} is {fields[name]}, later than the year 9999"


def _times(event: EventSnapshot) -> Iterator[str]:
    for field, state in (("published_at", State.PUBLISHED), ("died_at", State.DEAD)):
        if (field in event.fields) != (event.state == state):
            yield f"{field} is {'set' if field in event.fields else 'missing'} in state {event.state}"


def _claim(event: EventSnapshot) -> Iterator[str]:
    if event.state == State.CLAIMED and (missing := [name for name in _CLAIM_FIELDS if name not in event.fields]):
        yield f"is CLAIMED without {', '.join(missing)}"
    if event.number("claim") > event.claims_made:
        yield f"has claim number {event.number('claim')}, but only {event.claims_made} were given out"
    if event.state == State.CLAIMED and event.scores.get("claimed", 0) > LAST_MS:
        yield f"its lease ends at {event.scores['claimed']:.0f}, later than the year 9999"


def _attempts(event: EventSnapshot) -> Iterator[str]:
    if event.number("excused") > event.number("attempts"):
        yield f"{event.number('excused')} attempts are excused, but {event.number('attempts')} were made"
    if event.recent_attempts < 0:
        made = event.number("attempts")
        yield f"{event.number('earlier_attempts')} attempts were made before its replay, but {made} in all"


def _history(event: EventSnapshot) -> Iterator[str]:
    if event.history_length > HISTORY:
        yield f"has a history of {event.history_length}, more than {HISTORY}"


def _body(event: EventSnapshot) -> Iterator[str]:
    marked = "body_missing" in event.fields and not event.is_live  # by the repair of an event that lost its body
    if not event.body_bytes and not marked:
        yield "has no body"


def _unique(event: EventSnapshot) -> Iterator[str]:
    if not event.fields.get("unique_key") or not event.is_live:
        return
    pending = event.available_at if event.recent_attempts else 0.0
    expected = float("inf") if event.state == State.CLAIMED else pending
    if event.unique_score != expected:
        yield f"{_in_words(event.unique_score)} at its unique_key, expected {_in_words(expected)}"


def _index(event: EventSnapshot) -> Iterator[str]:
    yield f"is in {' and '.join(event.indexes) or 'no index'}, not in exactly one"


def _state(event: EventSnapshot) -> Iterator[str]:
    yield f"is {event.state}, but in {event.indexes[0]}"


def _score(event: EventSnapshot, index: str, field: str) -> Iterator[str]:
    expected = event.available_at if field == "available_at" else float(event.fields.get(field, event.scores[index]))
    if event.scores[index] != expected:
        yield f"has score {event.scores[index]:.0f} in {index}, but {field} {expected:.0f}"


def _suspect(event: EventSnapshot, index: str) -> Iterator[str]:
    if (event.number("expiries") >= SUSPECT_FROM) != (index == "suspect"):
        yield f"is in {index} after {event.number('expiries')} expired leases in a row"


def _retries(event: EventSnapshot) -> Iterator[str]:
    expected = event.available_at if event.state == State.PENDING and event.recent_attempts else None
    found = event.scores.get("retries")
    if found is None and "waiting" in event.scores:  # earlier versions left out events in waiting
        return
    if found != expected:
        yield f"{_in_words(found)} in retries, expected {_in_words(expected)}"


def _line(event: EventSnapshot) -> Iterator[str]:
    place = event.line_place
    if place is None:
        if event.fields.get("ordering_key") and event.is_live:
            yield "is live, but not in its line"
        return
    if "seq" in event.fields and place != event.number("seq"):
        yield f"has place {place:.0f} in its line, but seq {event.number('seq')}"
    if place > event.line_places_given:
        yield f"has place {place:.0f} in its line, but only {event.line_places_given} were given out"


def _waits(event: EventSnapshot) -> Iterator[str]:
    if not event.fields.get("ordering_key"):
        yield "is in waiting, but has no ordering_key"
    elif event.line_place is not None and event.line_head == event.event_id and not event.key_paused:
        yield "is the head of its line, but waits"


def _is_head(event: EventSnapshot, index: str) -> Iterator[str]:
    in_line = event.fields.get("ordering_key") and event.line_place is not None
    if in_line and event.line_head != event.event_id:
        yield f"is in {index} behind the head"
    elif in_line and event.key_paused and index != "claimed":
        yield f"is in {index}, but its ordering_key is paused"


#: Rules of every event whose fields are sound.
_FIELD_RULES: Final[tuple[tuple[str, Check], ...]] = (
    ("times", _times),
    ("claim", _claim),
    ("attempts", _attempts),
    ("history", _history),
    ("body", _body),
    ("unique", _unique),
)
#: Rules of an event in an index that fits its state. The score in `claimed` is the end of the lease, which no field
#: has.
_INDEX_RULES: Final[dict[str, tuple[tuple[str, Check], ...]]] = {
    "pending": (
        ("score", partial(_score, index="pending", field="available_at")),
        ("suspect", partial(_suspect, index="pending")),
        ("retries", _retries),
        ("line", _line),
        ("head", partial(_is_head, index="pending")),
    ),
    "waiting": (
        ("score", partial(_score, index="waiting", field="available_at")),
        ("retries", _retries),
        ("line", _line),
        ("head", _waits),
    ),
    "suspect": (
        ("score", partial(_score, index="suspect", field="available_at")),
        ("suspect", partial(_suspect, index="suspect")),
        ("retries", _retries),
        ("line", _line),
        ("head", partial(_is_head, index="suspect")),
    ),
    "claimed": (("retries", _retries), ("line", _line), ("head", partial(_is_head, index="claimed"))),
    "published": (
        ("score", partial(_score, index="published", field="published_at")),
        ("retries", _retries),
        ("line", _line),
    ),
    "dead": (("score", partial(_score, index="dead", field="died_at")), ("retries", _retries), ("line", _line)),
}


def _in_words(score: float | None) -> str:
    return "nothing" if score is None else f"score {score:.0f}"


def check_body(event: EventSnapshot, body: bytes) -> list[Problem]:
    """Checks the body of an event against its fields."""
    fields = event.fields
    try:
        decoded = decode_body(event.event_id, body)
    except NewerEvent as error:
        return [Problem("newer", event.event_id, None, error.message, event.raw_id)]
    except StoreError:
        return [Problem("damaged", event.event_id, None, "its stored body cannot be read", event.raw_id)]
    expected = {
        "event_type": decoded.event_type,
        "ordering_key": decoded.ordering_key or None,  # no put accepts an empty key: it is none
        "unique_key": decoded.unique_key or None,
        "unique_scope": str(decoded.unique_scope or UniqueScope.ALL_LIVE) if decoded.unique_key else None,
    }
    return [
        Problem(
            "body", event.event_id, None, f"{name} is {fields.get(name)!r}, but {value!r} in its body", event.raw_id
        )
        for name, value in expected.items()
        if fields.get(name) != value
    ]


# --- a line, a unique key ------------------------------------------------------------------------------------------


def check_member(kind: str, name: str, head: str | None, member: KeyMember) -> list[Problem]:
    """Checks whether a member belongs to a line (`kind` "line") or to a unique key ("unique")."""
    event_id, raw_id = member.event_id, member.raw_id
    where, field = (f"line {name!r}", "ordering_key") if kind == "line" else (f"unique_key {name!r}", "unique_key")
    if member.state is None:
        return [Problem("orphan", event_id, name, f"is in {where}, but there is no event", raw_id)]
    if member.key != name:
        return [Problem(kind, event_id, name, f"is in {where}, but its {field} is {member.key!r}", raw_id)]
    blocks = kind == "line" and member.state == State.DEAD and member.event_id == head
    if member.state not in LIVE and not blocks:
        return [Problem(kind, event_id, name, f"is {member.state}, but still in {where}", raw_id)]
    return []


def check_line(name: str, line: KeyPage) -> list[Problem]:
    """Checks that a line is blocked if its head is DEAD, and only then, and that the box knows of its pause."""
    problems = check_head(name, line)
    if line.unnoted_pause:
        problems.append(Problem("paused", None, name, f"ordering_key {name!r} is paused, but meta does not say so"))
    return problems


def check_head(name: str, line: KeyPage) -> list[Problem]:
    """Checks that a line is blocked if its head is DEAD, and only then."""
    head, state = line.head, line.head_state
    if state == State.DEAD and not line.blocked:
        return [Problem("blocked", head, name, f"is DEAD and the head of line {name!r}, which is not blocked")]
    if line.blocked and state != State.DEAD:
        actual = "has no events" if head is None else f"has a head that is {state or 'missing'}"
        return [Problem("blocked", head, name, f"line {name!r} is blocked, but {actual}")]
    return []
