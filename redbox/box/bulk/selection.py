"""Selects events by state, phase, type, key, error, time and text, for listings and bulk operations."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from redbox import arguments
from redbox.errors import UsageError
from redbox.events import Phase, Record, State, check_moment, to_ms
from redbox.keys import INDEXES, INDEXES_OF
from redbox.store.scripts.replies import Filters, Position

if TYPE_CHECKING:
    from redbox.box.box import Box

LONGEST_FILTER: Final = 255
LONGEST_GROUP: Final = 1000  # characters of a fingerprint
_TEXTS: Final = {
    "event_type": LONGEST_FILTER, "key": LONGEST_FILTER, "error": LONGEST_FILTER, "group": LONGEST_GROUP,
    "text": LONGEST_FILTER,
}  # fmt: skip
#: Not a phase, but counted beside them: events behind the head of their line, in any of the phases of PENDING.
WAITING: Final = "WAITING"
PHASES: Final = (*Phase, WAITING)
_STATE_OF: Final = {Phase.IN_FLIGHT: State.CLAIMED, Phase.COMPLETED: State.PUBLISHED, Phase.DEAD: State.DEAD}
#: `*` and `?` in one glob. Each adds to the work of a match, and no event type has more parts.
MOST_WILDCARDS: Final = 32
_SCORE = re.compile(r"(-?[0-9]+(\.[0-9]+)?(e\+[0-9]+)?)?", re.ASCII)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A filter. `event_type` is a glob such as `user.*`; `key` is an ordering_key or a unique_key; `error` is text
    that last_error holds, ASCII letters in any case; `since` and `until` bound the time the event entered its state:
    available_at for PENDING, the lease's end for CLAIMED, published_at, died_at; `created_since` and `created_until`
    bound created_at. `group` is the id or the fingerprint of an error group, which last_error must belong to. `phase`
    is a phase of PENDING events, or WAITING. `text` is text that the payload holds, ASCII letters in any case: it is
    found by reading the payloads of all events that match the other filters."""

    state: State | None = None
    event_type: str | None = None
    key: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    created_since: datetime | None = None
    created_until: datetime | None = None
    group: str | None = None
    phase: str | None = None
    text: str | None = None
    claims: int | None = None  # highest claim number: events that were claimed later are left out
    index: str | None = None  # the only index to read, instead of those of the state

    @property
    def indexes(self) -> tuple[str, ...]:
        if self.index is not None:
            return (self.index,)
        if self.phase == WAITING:
            return ("waiting",)
        return INDEXES if self.state is None else INDEXES_OF[self.state]

    @property
    def needs_records(self) -> bool:
        """Whether only the whole record of an event shows if it is selected."""
        return self.phase is not None or self.text is not None

    def matches(self, record: Record) -> bool:
        """Whether an event that the store's filters found has the phase and the text, and no later claim."""
        if self.phase is not None and not (record.waiting if self.phase == WAITING else record.phase == self.phase):
            return False
        if self.claims is not None and record.number > self.claims:
            return False
        return self.text is None or _holds(record, self.text)

    def filters(self) -> Filters:
        """The filters for the store. It knows no fingerprints, phases and payloads, so `group`, `phase` and `text` are
        left to the caller, as is `claims`."""
        return {
            "since": _ms(self.since),
            "until": _ms(self.until),
            "created_since": _ms(self.created_since),
            "created_until": _ms(self.created_until),
            "event_type": self.event_type or "",
            "key": self.key or "",
            "error": (self.error or "").translate(_ASCII_LOWER),  # as Lua lowers it
        }


FILTERS: Final = tuple(name for name in Selection.__struct_fields__ if name not in ("claims", "index"))


def select(**filters: Any) -> Selection:
    """A checked Selection."""
    for name in filters:
        if name not in FILTERS:
            raise UsageError(f"{name}: there is no such filter; there are {', '.join(FILTERS)}")
    state = filters.get("state")
    if state is not None:
        try:
            filters["state"] = State(state.upper())
        except (ValueError, AttributeError, TypeError):
            raise UsageError(f"state {arguments.shown(state)}: use one of {', '.join(State)}") from None
    filters |= _state_and_phase(filters.get("state"), filters.get("phase"))
    for name, longest in _TEXTS.items():
        text = filters.get(name)
        if text is not None and not (isinstance(text, str) and 0 < len(text) <= longest):
            raise UsageError(f"{name}: must be 1 to {longest} characters, or left out")
        if text is not None:
            arguments.text(name, text)
    if filters.get("event_type") is not None:
        check_glob("event_type", filters["event_type"])
    for name in ("since", "until", "created_since", "created_until"):
        if filters.get(name) is not None:
            check_moment(name, filters[name])
    return Selection(**filters)


def _state_and_phase(state: State | None, phase: Any) -> dict[str, Any]:
    """The state that a phase implies; the phase only where the state does not say it all."""
    if phase is None:
        return {}
    if not isinstance(phase, str) or phase.upper() not in PHASES:
        raise UsageError(f"phase {arguments.shown(phase)}: use one of {', '.join(PHASES)}")
    known = phase.upper()
    implied = State.PENDING if known == WAITING else _STATE_OF.get(Phase(known), State.PENDING)
    if state is not None and state is not implied:
        raise UsageError(f"no event is {state} and in phase {known}; leave out one of the filters")
    return {"state": implied, "phase": known if implied is State.PENDING else None}


def _holds(record: Record, text: str) -> bool:
    return record.problem is None and text.encode().lower() in record.event.encode()[0].lower()


async def resolve_times(box: Box, filters: dict[str, Any]) -> dict[str, Any]:
    """The filters that were given; relative times are added to the store's time."""
    given = {name: value for name, value in filters.items() if value is not None}
    if any(isinstance(value, timedelta) for value in given.values()):
        now = (await box.stats()).at
        given = {
            name: _later(name, now, value) if isinstance(value, timedelta) else value for name, value in given.items()
        }
    return given


def _later(name: str, now: datetime, length: timedelta) -> datetime:
    try:
        return now + length
    except OverflowError:
        raise arguments.invalid(name, "is too far from now") from None


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else to_ms(moment)


def check_glob(name: str, glob: str) -> str:
    """A glob whose match takes the server little time."""
    if len(glob) > LONGEST_FILTER:
        raise UsageError(f"{name}: must be at most {LONGEST_FILTER} characters, not {len(glob):,}")
    wildcards = glob.count("*") + glob.count("?")
    if wildcards > MOST_WILDCARDS:
        raise UsageError(f"{name}: takes at most {MOST_WILDCARDS} wildcards (* and ?), not {wildcards}")
    return glob


_ASCII_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def encode_cursor(index: str, position: Position) -> str:
    score, event_id = position
    try:
        text = event_id.decode()
    except UnicodeDecodeError:  # not one that redbox would write; no id begins with a space
        text = f" {event_id.hex()}"
    return f"{index}:{score.decode()}:{text}"


def decode_cursor(cursor: str, indexes: tuple[str, ...]) -> tuple[str, Position]:
    """The index, and the position in it to continue after."""
    index, _, rest = arguments.text("cursor", cursor).partition(":")
    score, _, event_id = rest.partition(":")
    if index not in indexes or not _SCORE.fullmatch(score):
        raise UsageError(f"cursor {arguments.shown(cursor)} does not belong to this listing; start again without one")
    if event_id.startswith(" "):
        try:
            return index, Position(score.encode(), bytes.fromhex(event_id))
        except ValueError:
            pass  # an id that another program wrote
    return index, Position(score.encode(), event_id.encode())
