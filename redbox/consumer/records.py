"""What a guard stores in Redis for each event and each ordering key, and what its scripts reply."""

from __future__ import annotations

import math
import re
import secrets
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote

import msgspec

from redbox.arguments import invalid, shown, text, whole_number
from redbox.consumer.deliveries import Delivery
from redbox.durations import positive_duration
from redbox.errors import DeliveryInProgress, StaleDelivery
from redbox.events import is_event_id
from redbox.store.scripts.registry import load

LEASE: Final = 60.0
REMEMBER: Final = 7 * 86400.0
LARGEST_CLAIM: Final = 10**18 - 1  # as in the header of a delivery
PREFIX: Final = "redbox:consumer"

# Without the `#!lua` line, which servers before Redis 7 do not parse.
BEGIN: Final = load("consumer/begin", shebang=False)
FINISH: Final = load("consumer/finish", shebang=False)
ABANDON: Final = load("consumer/abandon", shebang=False)

#: What a key contains unescaped; braces would change the slot, and colons separate the parts.
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "{}%:")
_is_name = re.compile(r"[A-Za-z0-9_.-]{1,100}").fullmatch


class Reply(StrEnum):
    """The first word of a reply."""

    BEGUN = "BEGUN"
    DUPLICATE = "DUPLICATE"
    STALE = "STALE"
    BUSY = "BUSY"
    FINISHED = "FINISHED"
    ABANDONED = "ABANDONED"
    LOST = "LOST"


class Handling(msgspec.Struct, frozen=True):
    """One handling of an event: its keys, its claim number ("" if unknown), and a token that no other one has."""

    event_id: str
    keys: tuple[str, ...]
    claim: int | str
    token: str

    @property
    def record(self) -> str:
        return self.keys[0]

    @property
    def fence(self) -> str | None:
        return self.keys[1] if len(self.keys) > 1 else None


class Memory:
    """How long a guard remembers, and under which keys. Those of one call are in one slot of a cluster."""

    def __init__(self, name: str, lease: float | timedelta, remember: float | timedelta) -> None:
        if not isinstance(name, str) or not _is_name(name):
            raise invalid("name", f"must have 1 to 100 letters, digits, '_', '.' or '-', not {shown(name)}")
        self._prefix = f"{PREFIX}:{name}"
        self.lease = math.ceil(positive_duration("lease", lease) * 1000)
        self.remember = math.ceil(positive_duration("remember", remember) * 1000)
        if self.remember < self.lease:
            raise invalid("remember", "must not be shorter than the lease")

    def handling(
        self, event: Delivery | str, claim: int | None, source: str | None, ordering_key: str | None
    ) -> Handling:
        """A new handling of an event, with a token of its own."""
        if isinstance(event, Delivery):
            if (claim, source, ordering_key) != (None, None, None):
                raise invalid(
                    "claim", "and source and ordering_key are those of the delivery; give only an event id with them"
                )
            event_id, claim, source, ordering_key = event.event_id, event.claim, event.source, event.ordering_key
        else:
            event_id = event
        if not isinstance(event_id, str) or not is_event_id(event_id):
            raise invalid("event_id", f"must be the id of an event, not {shown(event_id)}")
        number: int | str = "" if claim is None else whole_number("claim", claim, 0, LARGEST_CLAIM)
        box, name = _part(text("source", source or "")), _part(event_id)
        if ordering_key is None:
            keys: tuple[str, ...] = (f"{self._prefix}:seen:{{{box}:{name}}}",)
        else:
            slot = f"{{{box}:{_part(text('ordering_key', ordering_key))}}}"
            keys = (f"{self._prefix}:seen:{slot}:{name}", f"{self._prefix}:fence:{slot}")
        return Handling(event_id, keys, number, secrets.token_hex(8))

    def begin(self, handling: Handling) -> tuple[Any, ...]:
        return (handling.token, handling.claim, self.lease, self.remember)

    def finish(self, handling: Handling) -> tuple[Any, ...]:
        return (handling.token, handling.claim, self.remember)


def word(reply: Any) -> Reply:
    """The word of a reply, whether the client decodes replies or not."""
    return Reply(_text(reply))


def has_begun(handling: Handling, reply: Any) -> bool:
    """Whether the handling has begun; False for a duplicate. Raises StaleDelivery or DeliveryInProgress."""
    found, detail = word(reply[0]), int(reply[1])
    if found is Reply.STALE:
        raise StaleDelivery(
            f"event {handling.event_id} was delivered under claim {handling.claim}, after claim {detail} was seen"
        )
    if found is Reply.BUSY:
        raise DeliveryInProgress(
            f"another delivery of event {handling.event_id} is being handled", retry_after=math.ceil(detail / 1000)
        )
    return found is Reply.BEGUN


def _part(name: str) -> str:
    return quote(name, safe=_PLAIN)


def is_held(handling: Handling, stored: Any, fence: Any) -> bool:
    """Whether a handling is still the last that began for its event, and for its ordering key."""
    token, until = stored
    if token is None or until is None or _text(token) != handling.token:
        return False
    return fence is None or handling.claim == "" or int(fence) <= int(handling.claim)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else value
