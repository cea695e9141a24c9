"""The rules of a consistent box, and the functions that check them.

Pure functions from snapshots to problems. The rules of an event ask whether the event has all that it should have. The
rules of a line or a unique key ask whether its members belong there. So no problem is reported twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from redbox import keys
from redbox.arguments import shown
from redbox.audit.snapshots import LIVE, NUMBERS, TIMES, EventSnapshot, KeyMember, KeyPage
from redbox.errors import NewerEvent, StoreError
from redbox.events import State, UniqueScope
from redbox.store.codec import decode_body
from redbox.store.damage import LAST_MS

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
_BODY_FIELDS: Final = ("event_type", "ordering_key", "unique_key", "unique_scope")
_TIMES_OF_STATES: Final = (("published_at", State.PUBLISHED), ("died_at", State.DEAD))
_NEEDED_FIELDS: Final = frozenset({"state", "event_type", "created_at"})
_KEY_FIELDS: Final = {"line": "ordering_key", "head": "ordering_key", "unique": "unique_key"}

#: Returns a sentence for each violation of a rule. The rules of every event are no generators: most events have no
#: problem, and a generator costs more than the rule itself.
Check = Callable[[EventSnapshot], Iterable[str]]


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


def _checks_for(event: EventSnapshot) -> Sequence[tuple[str, Check]]:
    """The rules that can be checked: damaged fields, or an index that does not fit, hide the rules that depend on
    them."""
    if not event.fields:
        return _ORPHAN_RULES
    if _fields(event):
        return _DAMAGED_RULES
    indexes = event.indexes
    if len(indexes) != 1:
        return _UNINDEXED_RULES
    if indexes[0] not in keys.INDEXES_OF[event.fields["state"]]:
        return _MISPLACED_RULES
    return _INDEXED_RULES[indexes[0]]


def _orphan(event: EventSnapshot) -> Iterator[str]:
    for index in event.scores:
        if index != "lost":
            yield f"is in {index}, but there is no event"
    if event.body_bytes:
        yield "has a body, but there is no event"
    if event.history_length:
        yield "has a history, but there is no event"


def _lost(event: EventSnapshot) -> Iterable[str]:
    return ("a claim found its id without a matching event",) if "lost" in event.scores else ()


def _fields(event: EventSnapshot) -> Iterable[str]:
    fields, found = event.fields, []
    if not fields.keys() >= _NEEDED_FIELDS:
        found += [f"has no {name}" for name in ("state", "event_type", "created_at") if name not in fields]
    if fields.get("state", "DEAD") not in keys.INDEXES_OF:
        found.append(f"state is {fields['state']!r}")
    for name, value in fields.items():
        if name not in NUMBERS:
            continue
        if not (len(value) <= DIGITS and value.isascii() and value.isdigit()):
            found.append(f"{name} is {shown(value)}, not a whole number of at most {DIGITS} digits")
        elif name in TIMES and int(value) > LAST_MS:
            found.append(f"{name} is {value}, later than the year 9999")
    return found


def _times(event: EventSnapshot) -> Iterable[str]:
    fields, found = event.fields, []
    state = fields["state"]
    for field, of_state in _TIMES_OF_STATES:
        if (field in fields) != (state == of_state):
            found.append(f"{field} is {'set' if field in fields else 'missing'} in state {state}")
    return found


def _claim(event: EventSnapshot) -> Iterable[str]:
    if "claim" not in event.fields and event.state != State.CLAIMED:
        return ()
    found = []
    if event.state == State.CLAIMED and (missing := [name for name in _CLAIM_FIELDS if name not in event.fields]):
        found.append(f"is CLAIMED without {', '.join(missing)}")
    if event.number("claim") > event.claims_made:
        found.append(f"has claim number {event.number('claim')}, but only {event.claims_made} were given out")
    if event.state == State.CLAIMED and event.scores.get("claimed", 0) > LAST_MS:
        found.append(f"its lease ends at {event.scores['claimed']:.0f}, later than the year 9999")
    return found


def _attempts(event: EventSnapshot) -> Iterable[str]:
    if "excused" not in event.fields and "earlier_attempts" not in event.fields:
        return ()
    found = []
    if event.number("excused") > event.number("attempts"):
        found.append(f"{event.number('excused')} attempts are excused, but {event.number('attempts')} were made")
    if event.recent_attempts < 0:
        made = event.number("attempts")
        found.append(f"{event.number('earlier_attempts')} attempts were made before its replay, but {made} in all")
    return found


def _history(event: EventSnapshot) -> Iterable[str]:
    if event.history_length <= HISTORY:
        return ()
    return (f"has a history of {event.history_length}, more than {HISTORY}",)


def _body(event: EventSnapshot) -> Iterable[str]:
    if event.body_bytes:
        return ()
    marked = "body_missing" in event.fields and not event.is_live  # by the repair of an event that lost its body
    return () if marked else ("has no body",)


def _unique(event: EventSnapshot) -> Iterable[str]:
    if not event.fields.get("unique_key") or not event.is_live:
        return ()
    pending = event.available_at if event.recent_attempts else 0.0
    expected = float("inf") if event.state == State.CLAIMED else pending
    if event.unique_score == expected:
        return ()
    return (f"{_in_words(event.unique_score)} at its unique_key, expected {_in_words(expected)}",)


def _index(event: EventSnapshot) -> Iterable[str]:
    return (f"is in {' and '.join(event.indexes) or 'no index'}, not in exactly one",)


def _state(event: EventSnapshot) -> Iterable[str]:
    return (f"is {event.state}, but in {event.indexes[0]}",)


def _score(event: EventSnapshot, index: str, field: str) -> Iterable[str]:
    expected = event.available_at if field == "available_at" else float(event.fields.get(field, event.scores[index]))
    if event.scores[index] == expected:
        return ()
    return (f"has score {event.scores[index]:.0f} in {index}, but {field} {expected:.0f}",)


def _suspect(event: EventSnapshot, index: str) -> Iterable[str]:
    if (event.number("expiries") >= SUSPECT_FROM) == (index == "suspect"):
        return ()
    return (f"is in {index} after {event.number('expiries')} expired leases in a row",)


def _retries(event: EventSnapshot) -> Iterable[str]:
    retried = "attempts" in event.fields and event.state == State.PENDING and event.recent_attempts
    expected = event.available_at if retried else None
    found = event.scores.get("retries")
    earlier = found is None and "waiting" in event.scores  # earlier versions left out events in waiting
    if found == expected or earlier:
        return ()
    return (f"{_in_words(found)} in retries, expected {_in_words(expected)}",)


def _line(event: EventSnapshot) -> Iterable[str]:
    place = event.line_place
    if place is None:
        lacks_place = event.fields.get("ordering_key") and event.is_live
        return ("is live, but not in its line",) if lacks_place else ()
    found = []
    if "seq" in event.fields and place != event.number("seq"):
        found.append(f"has place {place:.0f} in its line, but seq {event.number('seq')}")
    if place > event.line_places_given:
        found.append(f"has place {place:.0f} in its line, but only {event.line_places_given} were given out")
    return found


def _waits(event: EventSnapshot) -> Iterable[str]:
    if not event.fields.get("ordering_key"):
        return ("is in waiting, but has no ordering_key",)
    if event.line_place is not None and event.line_head == event.event_id and not event.key_paused:
        return ("is the head of its line, but waits",)
    return ()


def _is_head(event: EventSnapshot, index: str) -> Iterable[str]:
    if event.line_place is None or not event.fields.get("ordering_key"):
        return ()
    if event.line_head != event.event_id:
        return (f"is in {index} behind the head",)
    if event.key_paused and index != "claimed":
        return (f"is in {index}, but its ordering_key is paused",)
    return ()


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
_LOST: Final[tuple[str, Check]] = ("lost", _lost)
_ORPHAN_RULES: Final = (("orphan", _orphan), _LOST)
_DAMAGED_RULES: Final = (("fields", _fields), _LOST)
_UNINDEXED_RULES: Final = (*_FIELD_RULES, ("index", _index), _LOST)
_MISPLACED_RULES: Final = (*_FIELD_RULES, ("state", _state), _LOST)
_INDEXED_RULES: Final = {index: (*_FIELD_RULES, *rules, _LOST) for index, rules in _INDEX_RULES.items()}


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
    expected = [
        decoded.event_type,
        decoded.ordering_key or None,  # no put accepts an empty key: it is none
        decoded.unique_key or None,
        str(decoded.unique_scope or UniqueScope.ALL_LIVE) if decoded.unique_key else None,
    ]
    stored = [*map(fields.get, _BODY_FIELDS)]
    if stored == expected:
        return []
    return [
        Problem("body", event.event_id, None, f"{name} is {found!r}, but {value!r} in its body", event.raw_id)
        for name, found, value in zip(_BODY_FIELDS, stored, expected, strict=True)
        if found != value
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
