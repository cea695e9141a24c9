"""What methods of the store take for each event. The fields have the order of the script's arguments."""

from __future__ import annotations

from typing import NamedTuple


class SeenClaim(NamedTuple):
    """An event, and the claim number that it must still have; "" for any."""

    event_id: str
    number: int | str = ""


class RetryItem(NamedTuple):
    """A claim to retry after `delay` ms. `excuse`: 1 to excuse the attempt, else 0."""

    event_id: str
    number: int
    delay: int
    excuse: int
    error: str


class KillItem(NamedTuple):
    """An event to mark DEAD, and the claim number that it must still have; "" for any."""

    event_id: str
    number: int | str
    error: str


class MarkItem(NamedTuple):
    """An event to mark, the claim number that it must still have, and the value of the mark."""

    event_id: str
    number: int
    value: str


class StreamBatch(NamedTuple):
    """A batch of a stream, for a caller that owns the stream."""

    stream: str
    owner: str
    number: int


class KnownBody(NamedTuple):
    """What the body of an event says, for `repair`: its bytes, and its fields; `event_type` is "" if the body cannot be
    read. `created_at` is that of the event when its body was read, "" without an event."""

    created_at: str = ""
    size: int = 0
    event_type: str = ""
    ordering_key: str = ""
    unique_key: str = ""
    unique_scope: str = ""
