"""Selects events by state, type, key, error and time, for listings and bulk operations."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

import msgspec

from redbox import arguments
from redbox.errors import UsageError
from redbox.events import State, check_moment, to_ms
from redbox.keys import INDEXES, INDEXES_OF
from redbox.store.replies import Filters, Position

LONGEST_FILTER: Final = 255
LONGEST_GROUP: Final = 1000  # characters of a fingerprint
_TEXTS: Final = {"event_type": LONGEST_FILTER, "key": LONGEST_FILTER, "error": LONGEST_FILTER, "group": LONGEST_GROUP}
#: `*` and `?` in one glob. Each adds to the work of a match, and no event type has more parts.
MOST_WILDCARDS: Final = 32
_SCORE = re.compile(r"(-?[0-9]+(\.[0-9]+)?(e\+[0-9]+)?)?", re.ASCII)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A filter. `event_type` is a glob such as `user.*`; `key` is an ordering_key or a unique_key; `error` is text
    that last_error holds, ASCII letters in any case; `since` and `until` bound the time the event entered its state:
    available_at for PENDING, the lease's end for CLAIMED, published_at, died_at; `created_since` and `created_until`
    bound created_at. `group` is the id or the fingerprint of an error group, which last_error must belong to."""

    state: State | None = None
    event_type: str | None = None
    key: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    created_since: datetime | None = None
    created_until: datetime | None = None
    group: str | None = None
    claims: int | None = None  # highest claim number: events that were claimed later are left out

    @property
    def indexes(self) -> tuple[str, ...]:
        return INDEXES if self.state is None else INDEXES_OF[self.state]

    def filters(self) -> Filters:
        """The filters for the store. It knows no fingerprints, so `group` is left to the caller, as is `claims`."""
        return {
            "since": _ms(self.since),
            "until": _ms(self.until),
            "created_since": _ms(self.created_since),
            "created_until": _ms(self.created_until),
            "event_type": self.event_type or "",
            "key": self.key or "",
            "error": (self.error or "").translate(_ASCII_LOWER),  # as Lua lowers it
        }


FILTERS: Final = tuple(name for name in Selection.__struct_fields__ if name != "claims")


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
