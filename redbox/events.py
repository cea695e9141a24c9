"""What goes into a box and what comes out: Event, Receipt, Claim, Record, and the states between.

The lifecycle has four states and seven ways between them::

    PENDING ──claim──▶ CLAIMED ──ack──▶ PUBLISHED
       ▲                 │ │                │
       ├──retry/release/reap┘ └──kill──▶ DEAD  │
       └──────────────replay─────────────┴─────┘
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import msgspec

from redbox import payloads
from redbox.arguments import shown
from redbox.durations import Duration, to_timedelta
from redbox.errors import InvalidEvent, UsageError
from redbox.ids import new_id

T = TypeVar("T")

EVENT_TYPE_LENGTH: Final = 255
NO_TYPE: Final = "__HIVE_DEFAULT_PARTITION__"  # Spark reads the directory of this name as "no value"
KEY_LENGTH: Final = 255
EVENT_ID_LENGTH: Final = 128
HEADERS_BYTES: Final = 32 * 1024
ERROR_LENGTH: Final = 2000
LONGEST_DELAY: Final = timedelta(days=3660)
LAST_YEAR: Final = 9000
RESERVED_HEADERS: Final = ("redbox-", "ce-", "webhook-")
#: Header names that HTTP uses between two hops, or that its client sets: an HTTP target could never get an event's own.
HTTP_HEADERS: Final = frozenset(
    {
        "connection", "content-length", "content-type", "expect", "host", "http2-settings", "keep-alive",
        "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding",
        "upgrade",
    }
)  # fmt: skip

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_is_event_id = re.compile(rf"[\x21-\x7e]{{1,{EVENT_ID_LENGTH}}}").fullmatch
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,255}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class State(StrEnum):
    """The state an event is in, as stored."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    PUBLISHED = "PUBLISHED"
    DEAD = "DEAD"


class Phase(StrEnum):
    """The state as an operator sees it, derived from state, attempts and available_at."""

    SCHEDULED = "SCHEDULED"
    AVAILABLE = "AVAILABLE"
    IN_FLIGHT = "IN_FLIGHT"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"
    DEAD = "DEAD"
    COMPLETED = "COMPLETED"


class UniqueScope(StrEnum):
    """How far a unique_key reaches: every live event with the key, or only those nobody has picked up yet."""

    ALL_LIVE = "ALL_LIVE"
    UNTOUCHED = "UNTOUCHED"


class Outcome(StrEnum):
    """What a script answers for one event; everything but OK changed nothing."""

    OK = "OK"
    LEASELOST = "LEASELOST"
    UNKNOWN = "UNKNOWN"
    NOTPENDING = "NOTPENDING"
    NOTDUE = "NOTDUE"
    NOTCLAIMED = "NOTCLAIMED"
    NOTLIVE = "NOTLIVE"
    NOTTERMINAL = "NOTTERMINAL"
    CHANGED = "CHANGED"
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
    Outcome.LEASELOST: "the claim was gone: reaped, settled, or claimed again",
    Outcome.UNKNOWN: "there is no such event",
    Outcome.NOTPENDING: "the event is not PENDING",
    Outcome.NOTDUE: "the event is available only later",
    Outcome.NOTCLAIMED: "the event is not CLAIMED",
    Outcome.NOTLIVE: "the event is PUBLISHED or DEAD already",
    Outcome.NOTTERMINAL: "the event is neither PUBLISHED nor DEAD",
    Outcome.CHANGED: "the event was claimed again since it was looked at",
    Outcome.BLOCKING: "the event is dead and blocks its line",
    Outcome.SUPERSEDED: "another event was put in its place",
    Outcome.CONFLICT: "another live event holds its unique_key",
    Outcome.LEFT: "the event was taken out of a stream's batch that nobody has read",
}

#: Script → the transitions it may make. Everything else is refused.
TRANSITIONS: Final[dict[str, frozenset[tuple[State, State]]]] = {
    "claim": frozenset({(State.PENDING, State.CLAIMED)}),
    "cut_batch": frozenset({(State.PENDING, State.CLAIMED)}),
    "reclaim": frozenset({(State.PENDING, State.CLAIMED)}),
    "ack": frozenset({(State.CLAIMED, State.PUBLISHED)}),
    "settle_batch": frozenset({(State.CLAIMED, State.PUBLISHED)}),
    "retry": frozenset({(State.CLAIMED, State.PENDING)}),
    "release": frozenset({(State.CLAIMED, State.PENDING)}),
    "reap": frozenset({(State.CLAIMED, State.PENDING)}),
    "kill": frozenset({(State.PENDING, State.CLAIMED), (State.CLAIMED, State.DEAD)}),  # the first for an operator only
    "replay": frozenset({(State.PUBLISHED, State.PENDING), (State.DEAD, State.PENDING)}),
}


@lru_cache(maxsize=4096)  # events that were put together share their times
def from_ms(ms: int) -> datetime:
    """Milliseconds of the store's clock as an aware datetime."""
    return _EPOCH + timedelta(milliseconds=ms)


def to_ms(moment: datetime) -> int:
    """A moment in milliseconds, rounded up: nothing is due before its time."""
    return -((_EPOCH - moment) // _MILLISECOND)


def duration_ms(value: Duration, field: str) -> int:
    """Seconds or a timedelta as milliseconds; negative, endless or absurdly long ones are refused."""
    try:
        length = to_timedelta(value)
    except ValueError as error:
        raise InvalidEvent(field, str(error)) from None
    if length < timedelta(0):
        raise InvalidEvent(field, "must not be negative")
    if length > LONGEST_DELAY:
        raise InvalidEvent(field, f"must not be longer than {LONGEST_DELAY.days} days")
    return -(-length // _MILLISECOND)  # rounded up: nothing is due before its time


def error_text(error: Any) -> str:
    """An error as it is stored: bounded, and readable whatever it holds (file names may hold what is not Unicode)."""
    text = str(error) or (type(error).__name__ if isinstance(error, BaseException) else "")
    return text[:ERROR_LENGTH].encode(errors="backslashreplace").decode()


def reason_text(name: str, reason: Any) -> str:
    """The reason that an operator gives, as it is stored."""
    if not isinstance(reason, str):
        raise UsageError(f"{name} must be a string, not {shown(reason)}")
    return error_text(reason)


class _EventMeta(msgspec.StructMeta):
    """Validates what a caller constructs; what comes back from the store is built without it."""

    if not TYPE_CHECKING:

        def __call__(cls, *args: Any, **fields: Any) -> Any:  # noqa: N805  # a metaclass: its self is a class
            try:
                event = super().__call__(*args, **fields)
            except TypeError as error:
                raise _constructor_error(error, fields) from None
            _validate(event)
            return event


class _Named(msgspec.Struct, frozen=True, metaclass=_EventMeta):
    """The two fields that read best without their names."""

    event_type: str
    payload: Any = None


class Event(_Named, frozen=True, kw_only=True):
    """Something that happened, to be delivered at least once.

    `payload` may be bytes (kept as they are), a str, anything msgspec encodes, or an object with `model_dump_json`;
    it is encoded once, when the event is put. Durations are seconds or timedelta; times are aware datetimes.
    """

    event_id: str = msgspec.field(default_factory=new_id)
    headers: Mapping[str, str] = {}
    metadata: Mapping[str, str] = {}
    partition_key: str | None = None
    ordering_key: str | None = None
    available_at: datetime | None = None
    delay: float | timedelta | None = None
    unique_key: str | None = None
    unique_scope: UniqueScope | str = UniqueScope.ALL_LIVE
    content_type: str | None = None

    def encode(self) -> tuple[bytes, str]:
        """The payload as it will be stored, and its content type."""
        return payloads.encode(self.payload, self.content_type)

    @overload
    def decode(self) -> Any: ...
    @overload
    def decode(self, into: type[T]) -> T: ...
    def decode(self, into: Any = Any) -> Any:
        """The payload as a value of type `into`, read by its content type."""
        payload, content_type = self.encode()
        return payloads.decode(payload, content_type, into)


class Receipt(msgspec.Struct, frozen=True):
    """What `put` tells: the id, whether this call created the event, and how safely it is stored.

    `created` is False when the id was there already with the same content: a put of the caller's repeated, or one
    whose reply was lost and that redbox repeated. It is also False when the put was refused and the caller asked not
    to raise: then `refused` is "conflict" (and `holder` names the event that holds the unique_key), "id_reused" or
    "box_full", and `reason` says it in a sentence.
    """

    event_id: str
    created: bool
    durability: str = "server"
    refused: str | None = None
    reason: str | None = None
    holder: str | None = None


class Attempt(msgspec.Struct, frozen=True):
    """One line of an event's history: the last few attempts that did not simply succeed."""

    at: datetime
    outcome: str
    by: str
    number: int
    error: str = ""


class Claim(msgspec.Struct, frozen=True):
    """An event in the hands of one relay until its lease ends. (claimed_by, number) is the fence.

    `exhausted`: its attempts are used up; hand it to the dead-letter target and kill it, do not publish it.
    `suspect`: relays died holding it; it came alone, publish it alone.
    `received`: when this process got it, in seconds of its monotonic clock.
    """

    event: Event
    event_id: str
    number: int
    claimed_by: str
    attempts: int
    excused: int
    exhausted: bool
    suspect: bool
    created_ms: int
    due_ms: int
    claimed_ms: int
    lease_until_ms: int
    received: float = msgspec.field(default_factory=time.monotonic)

    @property
    def created_at(self) -> datetime:
        return from_ms(self.created_ms)

    @property
    def due_at(self) -> datetime:
        """When it was first due: put, scheduled for, or replayed. Its age counts from here."""
        return from_ms(self.due_ms)

    @property
    def claimed_at(self) -> datetime:
        return from_ms(self.claimed_ms)

    @property
    def lease_until(self) -> datetime:
        return from_ms(self.lease_until_ms)

    @property
    def store_ms(self) -> int:
        """The store's time now, in milliseconds: that of the claim and what has passed since, whatever this machine's
        own clock says."""
        return self.claimed_ms + int((time.monotonic() - self.received) * 1000)

    @property
    def failures(self) -> int:
        """Attempts before this one that count against the event."""
        return self.attempts - self.excused - (0 if self.exhausted else 1)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the box knows of an event: `event` as it was put (its available_at is the current one), and where it
    stands."""

    event: Event
    event_id: str
    state: State
    phase: Phase
    created_at: datetime
    available_at: datetime
    attempts: int = 0
    excused: int = 0
    expiries: int = 0
    number: int = 0
    last_error: str | None = None
    claimed_at: datetime | None = None
    claimed_by: str | None = None
    lease_until: datetime | None = None
    published_at: datetime | None = None
    published_by: str | None = None
    died_at: datetime | None = None
    superseded_by: str | None = None  # the id of the event that a patch put in its place
    waiting: bool = False
    suspect: bool = False
    history: tuple[Attempt, ...] = ()
    damaged: bool = False  # its body or its fields are missing or broken
    problem: str | None = None  # what cannot be read; if it is the body, event has no payload, headers or metadata


def as_event(value: Any) -> Event:
    """An Event, or a msgspec Struct whose tag is the event type."""
    if isinstance(value, Event):
        return value
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        if isinstance(tag, str):
            return Event(tag, value)
        raise InvalidEvent(
            "event_type", f'{type(value).__name__} has no tag; declare it with tag="user.created" or wrap it in Event'
        )
    raise InvalidEvent("event", f"must be an Event or a tagged msgspec Struct, not {type(value).__name__}")


#: An Event from parts that were validated when they were put.
stored_event = partial(msgspec.StructMeta.__call__, Event)


def _constructor_error(error: TypeError, fields: Mapping[str, Any]) -> InvalidEvent:
    unknown = [name for name in fields if name not in Event.__struct_fields__]
    if unknown:
        return InvalidEvent(unknown[0], f"an event has no such field; it has {', '.join(Event.__struct_fields__)}")
    return InvalidEvent("event_type" if "event_type" in str(error) else "event", str(error))


def _validate(event: Event) -> None:
    check_name("event_type", event.event_type, EVENT_TYPE_LENGTH)
    if event.event_type == NO_TYPE:
        raise InvalidEvent("event_type", f"must be a name of your own; {NO_TYPE} means 'no value' in an archive")
    if not isinstance(event.event_id, str) or not _is_event_id(event.event_id):
        raise InvalidEvent("event_id", f"must be 1 to {EVENT_ID_LENGTH} printable ASCII characters without spaces")
    if event.partition_key is not None:
        check_key("partition_key", event.partition_key)
    if event.ordering_key is not None:
        check_key("ordering_key", event.ordering_key)
    if event.unique_key is not None:
        check_key("unique_key", event.unique_key)
    if event.unique_scope is not UniqueScope.ALL_LIVE and event.unique_scope not in tuple(UniqueScope):
        raise InvalidEvent("unique_scope", f"must be one of {', '.join(UniqueScope)}, not {shown(event.unique_scope)}")
    if event.headers or type(event.headers) is not dict:
        _check_headers(event.headers)
    if event.metadata or type(event.metadata) is not dict:
        _check_strings("metadata", event.metadata)
    if event.available_at is not None:
        if event.delay is not None:
            raise InvalidEvent("delay", "give either delay or available_at, not both")
        check_moment("available_at", event.available_at)
    elif event.delay is not None:
        duration_ms(event.delay, "delay")
    if event.content_type is not None:
        if not isinstance(event.content_type, str) or "/" not in event.content_type:
            raise InvalidEvent("content_type", f"must look like type/subtype, not {shown(event.content_type)}")
        if len(event.content_type) > KEY_LENGTH or not event.content_type.isprintable():
            raise InvalidEvent("content_type", f"must be at most {KEY_LENGTH} printable characters")


def check_name(field: str, value: Any, length: int) -> None:
    """A name: non-empty, bounded, printable, without spaces."""
    if not isinstance(value, str) or not value:
        raise InvalidEvent(field, "must be a non-empty string such as 'user.created'")
    if len(value) > length:
        raise InvalidEvent(field, f"must be at most {length} characters, not {len(value)}")
    if not value.isprintable() or " " in value:
        raise InvalidEvent(field, f"must be printable and without spaces, not {shown(value)}")


def check_key(field: str, value: Any) -> None:
    """A key: non-empty, bounded, printable."""
    if not isinstance(value, str) or not value:
        raise InvalidEvent(field, "must be a non-empty string, or left out")
    if len(value) > KEY_LENGTH:
        raise InvalidEvent(field, f"must be at most {KEY_LENGTH} characters, not {len(value)}")
    if not value.isprintable():
        raise InvalidEvent(field, f"must be printable, not {shown(value)}")


def check_moment(field: str, value: Any) -> None:
    if not isinstance(value, datetime):
        raise InvalidEvent(field, f"must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None:
        raise InvalidEvent(field, "must carry a time zone, e.g. datetime.now(UTC)")
    if value.year > LAST_YEAR:
        raise InvalidEvent(field, f"must not be later than the year {LAST_YEAR}")


def _check_strings(field: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise InvalidEvent(field, f"must be a mapping of strings, not {type(value).__name__}")
    size = 0
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise InvalidEvent(field, f"{shown(name)} must be a string with a string value")
        try:
            size += len(name.encode()) + len(text.encode())
        except UnicodeEncodeError:
            raise InvalidEvent(field, f"{shown(name)} holds text that cannot be encoded as UTF-8") from None
    if size > HEADERS_BYTES:
        raise InvalidEvent(field, f"must be at most {HEADERS_BYTES} bytes in all, not {size}")


def _folded(name: str) -> str:
    """A header name as many servers see it: WSGI and CGI make no difference between `_` and `-`."""
    return name.lower().replace("_", "-")


def is_reserved_header(name: str) -> bool:
    """Whether `put` refuses this header name. An event that an earlier version stored may have it: a publisher for
    HTTP leaves it out."""
    return _why_reserved(name) is not None


def _why_reserved(name: str) -> str | None:
    folded = _folded(name)
    if folded.startswith(RESERVED_HEADERS):
        return f"is reserved; names must not begin with {', '.join(RESERVED_HEADERS)}"
    if folded in HTTP_HEADERS:
        instead = "use the field content_type" if folded == "content-type" else "leave it out"
        return f"is set by HTTP itself and cannot be passed on; {instead}"
    return None


def _check_headers(headers: Any) -> None:
    _check_strings("headers", headers)
    for name, text in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidEvent("headers", f"{name!r} is not a header name: letters, digits and - _ . only")
        if (why := _why_reserved(name)) is not None:
            raise InvalidEvent("headers", f"{name!r} {why}")
        if _CONTROL.search(text):
            raise InvalidEvent("headers", f"the value of {name!r} must not hold line breaks or control characters")
