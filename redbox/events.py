"""The types of the box: Event, Receipt, Claim and Record. `redbox.states` has the states of an event."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack, overload

import msgspec

from redbox import payloads
from redbox.arguments import shown
from redbox.durations import Duration, to_timedelta
from redbox.errors import InvalidEvent, UsageError
from redbox.event_types import Declared, event_type_of
from redbox.ids import new_id
from redbox.states import TRANSITIONS, Outcome, Phase, State, UniqueScope

__all__ = [
    "ERROR_LENGTH", "EVENT_ID_LENGTH", "EVENT_TYPE_LENGTH", "HEADERS_BYTES", "HTTP_HEADERS", "KEY_LENGTH",
    "LAST_YEAR", "LONGEST_DELAY", "NO_TYPE", "RESERVED_HEADERS", "TRANSITIONS", "Attempt", "Claim", "Event",
    "EventFields", "Outcome", "Phase", "Receipt", "Record", "State", "UniqueScope", "as_event", "check_key",
    "check_moment", "check_name", "check_new_headers", "duration_ms", "from_ms", "is_event_id", "is_reserved_header",
    "reason_text", "stored_error_text", "stored_event", "to_ms",
]  # fmt: skip

T = TypeVar("T")

EVENT_TYPE_LENGTH: Final = 255
NO_TYPE: Final = "__HIVE_DEFAULT_PARTITION__"  # Spark reads a directory of this name as "no value"
KEY_LENGTH: Final = 255
EVENT_ID_LENGTH: Final = 128
HEADERS_BYTES: Final = 32 * 1024
ERROR_LENGTH: Final = 2000
LONGEST_DELAY: Final = timedelta(days=3660)
LAST_YEAR: Final = 9000
RESERVED_HEADERS: Final = ("redbox-", "ce-", "webhook-")
#: Header names that apply to one hop only, or that the HTTP client sets. An event's own value would never arrive.
HTTP_HEADERS: Final = frozenset(
    {
        "connection", "content-length", "content-type", "expect", "host", "http2-settings", "keep-alive",
        "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding",
        "upgrade",
    }
)  # fmt: skip

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
is_event_id = re.compile(rf"[\x21-\x7e]{{1,{EVENT_ID_LENGTH}}}").fullmatch
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,255}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@lru_cache(maxsize=4096)  # events of one batch have the same time
def from_ms(ms: int) -> datetime:
    """Converts milliseconds of the store's clock to an aware datetime."""
    return _EPOCH + timedelta(milliseconds=ms)


def to_ms(moment: datetime) -> int:
    """Converts a datetime to milliseconds, rounded up so that no event is due early."""
    return -((_EPOCH - moment) // _MILLISECOND)


def duration_ms(value: Duration, field: str) -> int:
    """Converts seconds or a timedelta to milliseconds, rounded up; from 0 to LONGEST_DELAY."""
    try:
        length = to_timedelta(value)
    except ValueError as error:
        raise InvalidEvent(field, str(error)) from None
    if length < timedelta(0):
        raise InvalidEvent(field, "must not be negative")
    if length > LONGEST_DELAY:
        raise InvalidEvent(field, f"must not be longer than {LONGEST_DELAY.days} days")
    return -(-length // _MILLISECOND)


def stored_error_text(error: Any) -> str:
    """Returns the text of an error to store: bounded, and valid UTF-8 (a file name in it may not be)."""
    text = str(error) or (type(error).__name__ if isinstance(error, BaseException) else "")
    return text[:ERROR_LENGTH].encode(errors="backslashreplace").decode()


def reason_text(name: str, reason: Any) -> str:
    """Returns the text of an operator's reason to store."""
    if not isinstance(reason, str):
        raise UsageError(f"{name} must be a string, not {shown(reason)}")
    return stored_error_text(reason)


class _EventMeta(msgspec.StructMeta):
    """Validates events that a caller constructs. `stored_event` skips it."""

    if not TYPE_CHECKING:

        def __call__(cls, *args: Any, **fields: Any) -> Any:  # noqa: N805  # a metaclass: its self is a class
            try:
                event = super().__call__(*args, **fields)
            except TypeError as error:
                raise _constructor_error(error, fields) from None
            _validate(event)
            return event


class EventFields(TypedDict, total=False):
    """The fields of an event beside its type and its payload; see `Event`."""

    event_id: str
    headers: Mapping[str, str]
    metadata: Mapping[str, str]
    partition_key: str | None
    ordering_key: str | None
    available_at: datetime | None
    delay: float | timedelta | None
    unique_key: str | None
    unique_scope: UniqueScope | str
    content_type: str | None


class _PositionalFields(msgspec.Struct, frozen=True, metaclass=_EventMeta):
    """The two fields that may be given by position."""

    event_type: str
    payload: Any = None


class Event(_PositionalFields, frozen=True, kw_only=True):
    """Something that happened, to be delivered at least once.

    `payload` may be bytes (stored unchanged), a str, any value that msgspec encodes, or an object with
    `model_dump_json`. It is encoded once, when the event is put. Durations are seconds or timedeltas; times are aware
    datetimes.
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

    @classmethod
    def of(cls, value: msgspec.Struct | Declared, /, **fields: Unpack[EventFields]) -> Event:
        """An event whose payload is `value` and whose type its class declares: a msgspec Struct by its tag, a
        dataclass or a pydantic model by `event_type: ClassVar[str]`."""
        if isinstance(value, cls):
            raise InvalidEvent("event", "is an Event already; Event.of takes its payload")
        event_type = event_type_of(value)
        for name in ("event_type", "payload"):
            if name in fields:
                raise InvalidEvent(name, f"Event.of takes it from {type(value).__name__}; to choose it, use Event(...)")
        return cls(event_type, value, **fields)

    def encode(self) -> tuple[bytes, str]:
        """Returns the payload as stored, and its content type."""
        return payloads.encode(self.payload, self.content_type)

    @overload
    def decode(self) -> Any: ...
    @overload
    def decode(self, into: type[T]) -> T: ...
    def decode(self, into: Any = Any) -> Any:
        """Decodes the payload by its content type into a value of type `into`."""
        payload, content_type = self.encode()
        return payloads.decode(payload, content_type, into)


class Receipt(msgspec.Struct, frozen=True):
    """The result of `put`: the id, whether this call created the event, and how durably it is stored.

    `created` is False if the event was already stored with the same content: the caller repeated the put, or redbox
    repeated it after its reply was lost. The event keeps its state; if it had lost its body, the put stores the body
    again. `created` is also False if the put was refused and the caller asked not to raise.
    Then `refused` is "conflict" (`holder` is the id of the event that holds the unique_key), "id_reused" or "box_full",
    and `reason` explains it in a sentence.

    `replaced` is the id of the event that a put with `on_conflict="replace"` removed.
    """

    event_id: str
    created: bool
    durability: str = "server"
    refused: str | None = None
    reason: str | None = None
    holder: str | None = None
    replaced: str | None = None


class Attempt(msgspec.Struct, frozen=True):
    """One entry in the history of an event, which keeps the latest attempts that did not succeed at once.

    `seconds`: from the claim to `at`, by the store's clock; None if no attempt was made, or if a version of redbox
    wrote the entry that did not measure it.
    """

    at: datetime
    outcome: str
    by: str
    number: int
    error: str = ""
    seconds: float | None = None


class Claim(msgspec.Struct, frozen=True):
    """An event that one relay holds until its lease ends. (claimed_by, number) is the fence.

    `exhausted`: no attempts are left. Send the event to the dead-letter target and kill it; do not publish it.
    `suspect`: several relays crashed while they held the event. It was claimed alone; publish it alone.
    `received`: when this process received the claim, in seconds of its monotonic clock.
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

    def with_headers(self, headers: Mapping[str, str]) -> Claim:
        """The same claim with more headers, or other values of them: for middleware. The stored event keeps its own."""
        merged = {**self.event.headers, **headers}
        check_new_headers(self.event.headers, merged)
        return msgspec.structs.replace(self, event=msgspec.structs.replace(self.event, headers=merged))

    @property
    def created_at(self) -> datetime:
        return from_ms(self.created_ms)

    @property
    def due_at(self) -> datetime:
        """When the event was first due: its put, its scheduled time or its replay. Its age counts from here."""
        return from_ms(self.due_ms)

    @property
    def claimed_at(self) -> datetime:
        return from_ms(self.claimed_ms)

    @property
    def lease_until(self) -> datetime:
        return from_ms(self.lease_until_ms)

    @property
    def store_ms(self) -> int:
        """The store's time now, in milliseconds: the time of the claim plus the time since then. This machine's wall
        clock has no influence."""
        return self.claimed_ms + int((time.monotonic() - self.received) * 1000)

    @property
    def failures(self) -> int:
        """Attempts before this one that count against the event."""
        return self.attempts - self.excused - (0 if self.exhausted else 1)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An event as the box stores it. `event` is the event as it was put, but with the current available_at."""

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
    published_seconds: float | None = None  # from the claim to published_at
    died_at: datetime | None = None
    superseded_by: str | None = None  # the id of the event that replaced it by a patch
    waiting: bool = False
    suspect: bool = False
    history: tuple[Attempt, ...] = ()
    damaged: bool = False  # its body or fields are missing or unreadable
    problem: str | None = None  # the unreadable part; if it is the body, `event` has no payload, headers or metadata

    @property
    def entered_at(self) -> datetime:
        """The time that listings are ordered by: available_at, the end of the lease, published_at or died_at."""
        found = {State.CLAIMED: self.lease_until, State.PUBLISHED: self.published_at, State.DEAD: self.died_at}
        return found.get(self.state) or self.available_at


def as_event(value: Any) -> Event:
    """Returns an Event as it is, and wraps a msgspec Struct whose class declares the event type."""
    if isinstance(value, Event):
        return value
    if isinstance(value, msgspec.Struct):
        return Event.of(value)
    raise InvalidEvent("event", f"must be an Event or a tagged msgspec Struct, not {type(value).__name__}")


#: Builds an Event without validation, from fields that were validated when it was put.
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
    if not isinstance(event.event_id, str) or not is_event_id(event.event_id):
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
    """Refuses a name that is empty, too long, not printable, or has spaces."""
    if not isinstance(value, str) or not value:
        raise InvalidEvent(field, "must be a non-empty string such as 'user.created'")
    if len(value) > length:
        raise InvalidEvent(field, f"must be at most {length} characters, not {len(value)}")
    if not value.isprintable() or " " in value:
        raise InvalidEvent(field, f"must be printable and without spaces, not {shown(value)}")


def check_key(field: str, value: Any) -> None:
    """Refuses a key that is empty, too long or not printable."""
    if not isinstance(value, str) or not value:
        raise InvalidEvent(field, "must be a non-empty string, or left out")
    if len(value) > KEY_LENGTH:
        raise InvalidEvent(field, f"must be at most {KEY_LENGTH} characters, not {len(value)}")
    if not value.isprintable():
        raise InvalidEvent(field, f"must be printable, not {shown(value)}")


def check_moment(field: str, value: Any) -> None:
    """Refuses a time without a time zone, and one beyond LAST_YEAR."""
    if not isinstance(value, datetime):
        raise InvalidEvent(field, f"must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None:
        raise InvalidEvent(field, "must have a time zone, e.g. datetime.now(UTC)")
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
            raise InvalidEvent(field, f"{shown(name)} has text that cannot be encoded as UTF-8") from None
    if size > HEADERS_BYTES:
        raise InvalidEvent(field, f"must be at most {HEADERS_BYTES} bytes in all, not {size}")


def _folded(name: str) -> str:
    """Returns a header name as many servers read it: WSGI and CGI treat `_` and `-` as equal."""
    return name.lower().replace("_", "-")


def is_reserved_header(name: str) -> bool:
    """Whether `put` refuses this header name. Events of earlier versions may have it; the HTTP publisher leaves it
    out."""
    return _why_reserved(name) is not None


def _why_reserved(name: str) -> str | None:
    folded = _folded(name)
    if folded.startswith(RESERVED_HEADERS):
        return f"is reserved; names must not begin with {', '.join(RESERVED_HEADERS)}"
    if folded in HTTP_HEADERS:
        instead = "use the field content_type" if folded == "content-type" else "leave it out"
        return f"is set by HTTP itself and cannot be delivered; {instead}"
    return None


def check_new_headers(before: Mapping[str, str], headers: Any) -> None:
    """Checks headers that replace others at a publish. Those of events of earlier versions may stay as they are."""
    _check_strings("headers", headers)
    _check_headers({name: text for name, text in headers.items() if before.get(name) != text})


def _check_headers(headers: Any) -> None:
    _check_strings("headers", headers)
    for name, text in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidEvent("headers", f"{name!r} is not a header name: letters, digits and - _ . only")
        if (why := _why_reserved(name)) is not None:
            raise InvalidEvent("headers", f"{name!r} {why}")
        if _CONTROL.search(text):
            raise InvalidEvent("headers", f"the value of {name!r} must not contain line breaks or control characters")
