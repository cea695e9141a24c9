"""The replies of the scripts `examine` and `examine_keys` as types: what was stored at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from redbox import keys
from redbox.events import State
from redbox.store.scripts.replies import Examined, ExaminedKey, Position

#: The sorted sets in which `examine` reports the scores of an id, in the order of its reply.
SORTED_SETS: Final = (*keys.INDEXES, "retries", "lost")
LIVE: Final = frozenset({State.PENDING.value, State.CLAIMED.value})
TIMES: Final = frozenset(
    {"created_at", "available_at", "due_at", "claimed_at", "published_at", "died_at", "restored_at"}
)  # fmt: skip
NUMBERS: Final = TIMES | {"claim", "attempts", "excused", "expiries", "seq", "earlier_attempts"}
_INDEXES: Final = frozenset(keys.INDEXES)


class EventSnapshot(msgspec.Struct):
    """All that the box stores about one id. Without an event, `fields` is empty.

    `scores` has the sorted sets that contain the id. `line_place` is its score in the line of its ordering_key, and
    `unique_score` the one at its unique_key; None if it is not a member. `key_paused`: its ordering_key is paused, or
    nobody has noticed the end of the pause yet. `claims_made` and `line_places_given` are the counters of the box.
    `raw_id` is the stored id if that is not UTF-8.
    """

    event_id: str
    fields: dict[str, str]
    scores: dict[str, float]
    body_bytes: int
    history_length: int
    line_place: float | None
    line_head: str | None
    unique_score: float | None
    key_paused: bool
    claims_made: int
    line_places_given: int
    raw_id: bytes | None = None

    @property
    def indexes(self) -> list[str]:
        return [index for index in self.scores if index in _INDEXES]

    @property
    def state(self) -> str:
        return self.fields["state"]

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def is_dead_without_body(self) -> bool:
        """A repair found that its body is missing, and marked it."""
        return "body_missing" in self.fields and self.fields.get("state") == State.DEAD and not self.body_bytes

    @property
    def available_at(self) -> float:
        return float(self.fields.get("available_at", self.fields["created_at"]))

    @property
    def recent_attempts(self) -> int:
        """Attempts since the event was put or replayed."""
        return self.number("attempts") - self.number("earlier_attempts")

    def number(self, field: str) -> int:
        return int(self.fields.get(field, 0))


class KeyMember(msgspec.Struct):
    """A member of a line or of a unique key; `key` is the one that its event has. Without an event, `state` is None."""

    event_id: str
    state: str | None
    key: str | None
    raw_id: bytes | None = None


class KeyPage(msgspec.Struct):
    """Some members of a line or of a unique key, in one consistent view.

    `more`: there may be further members, after the position `after`. `head_state` and `blocked` are about the head
    of a line. `unnoted_pause`: its ordering_key is paused, but meta does not say so.
    """

    more: bool
    after: Position
    head: str | None
    head_state: str | None
    blocked: bool
    unnoted_pause: bool
    members: list[KeyMember]

    @property
    def was_read(self) -> bool:
        """False if the step had reached its limit before it came to this key."""
        return not self.more or bool(self.members)


def as_text(raw: bytes) -> str:
    """Decodes bytes that another program may have written."""
    return raw.decode("utf-8", "backslashreplace")


def raw_if_escaped(raw: bytes) -> bytes | None:
    """The bytes of a name that `as_text` has to escape, else None."""
    return None if raw.isascii() or as_text(raw).encode() == raw else raw


def read_events(reply: Examined) -> list[EventSnapshot]:
    """Decodes a reply of `examine`."""
    return [
        EventSnapshot(
            as_text(raw_id),
            _pairs(flat),
            {name: float(score) for name, score in zip(SORTED_SETS, scores, strict=True) if score is not None},
            body_bytes,
            history_length,
            None if line_place is None else float(line_place),
            None if line_head is None else as_text(line_head),
            None if unique_score is None else float(unique_score),
            paused_until is not None,
            reply.claims,
            reply.places,
            raw_if_escaped(raw_id),
        )
        for (
            raw_id,
            flat,
            scores,
            body_bytes,
            history_length,
            _body,
            line_place,
            line_head,
            unique_score,
            paused_until,
        ) in reply.events
    ]


def read_keys(replies: Sequence[ExaminedKey]) -> list[KeyPage]:
    """Decodes a reply of `examine_keys`."""
    return [
        KeyPage(
            reply.more,
            reply.after,
            _text(reply.head),
            _text(reply.state),
            reply.blocked_at is not None,
            reply.unnoted_pause is not None,
            [
                KeyMember(as_text(raw_id), _text(state), _text(key), raw_if_escaped(raw_id))
                for raw_id, state, key in reply.members
            ],
        )
        for reply in replies
    ]


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else as_text(raw)


def _pairs(flat: Sequence[bytes]) -> dict[str, str]:
    try:
        texts = [*map(bytes.decode, flat)]
    except UnicodeDecodeError:
        texts = [*map(as_text, flat)]
    return dict(zip(texts[::2], texts[1::2], strict=True))
