"""Everything redbox raises, in one tree::

    RedboxError
    ├── UsageError                  the call itself is wrong; nothing was sent
    │   ├── InvalidEvent            a field of an event; names the field
    │   │   └── PayloadTooLarge
    │   ├── InvalidSetting
    │   ├── InvalidURL
    │   └── MissingExtra            an optional dependency; prints the pip command
    ├── Refused                     the box said no; nothing was changed
    │   ├── Conflict                unique_key is held by another event
    │   ├── IdReused                this event_id exists with different content
    │   ├── BatchRefused            put_many stopped or was refused as a whole
    │   ├── BoxFull
    │   ├── BoxPaused
    │   ├── UnknownBox
    │   ├── StreamTaken             another process drains the box under this stream's name
    │   ├── StreamLost              events of a stream's batch were taken by others
    │   └── TransactionFailed
    ├── NotPublished                what a publisher raises to choose what becomes of its event
    │   ├── Reject                  never: dead at once
    │   ├── RetryLater              again, but not before
    │   └── Unavailable             the target is down, which says nothing of the event
    └── StoreError                  the server, or what is between us and it
        ├── StoreUnavailable        not reachable, loading, read-only replica, not logged in
        │   └── NotPermitted        the user of the connection lacks a permission; names it
        ├── StoreFull               out of memory or disk
        ├── ForeignKey              something else uses one of our key names
        ├── NewerLayout             the box was written by a newer redbox
        ├── NewerEvent              one event was written by a newer redbox
        ├── UnexpectedReply         an error reply that redbox does not know
        ├── DurabilityNotReached    it may be there, but not as safely as asked for
        ├── PartlyCommitted         a transaction of which some is committed and some is not
        ├── DurabilityUnsupported   this server cannot give the asked-for durability
        ├── EmbeddedServerFailed    the embedded server did not start
        └── UntrustedStore          another user can write to the embedded server's directory, or runs a server there

Each class's docstring is its default message. A script's error begins with a word; `WORDS` maps it to its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redbox.events import Receipt


class RedboxError(Exception):
    """Something went wrong in redbox."""

    def __init__(self, message: str | None = None, *args: Any) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n")[0], *args)

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses build their message from other arguments; copies and other processes get the finished one.
        return _rebuild, (type(self), self.args, self.__dict__)

    @property
    def message(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        return self.message


def _rebuild(kind: type[RedboxError], args: tuple[Any, ...], attributes: dict[str, Any]) -> RedboxError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


# --- the call is wrong -----------------------------------------------------------------------------------------


class UsageError(RedboxError, ValueError):
    """This call cannot be right."""


class InvalidEvent(UsageError):
    """This is not a valid event."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class PayloadTooLarge(InvalidEvent):
    """The payload is larger than the box takes."""


class InvalidSetting(UsageError):
    """This setting is not valid."""


class InvalidURL(UsageError):
    """This is not a URL that redbox can open."""


class MissingExtra(UsageError, ImportError):
    """An optional part of redbox is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'redbox-outbox[{extra}]'")
        self.extra = extra


# --- the box said no -------------------------------------------------------------------------------------------


class Refused(RedboxError):
    """The box refused this; nothing was changed."""


class Conflict(Refused):
    """Another live event holds this unique_key."""

    def __init__(self, event_id: str, holder: str, unique_key: str | None = None) -> None:
        named = f"unique_key {unique_key!r}" if unique_key else "its unique_key"
        super().__init__(f"event {event_id} was not put: {named} is held by event {holder}")
        self.event_id = event_id
        self.holder = holder


class IdReused(Refused):
    """This event_id already belongs to an event with different content."""

    def __init__(self, event_id: str, difference: str) -> None:
        super().__init__(
            f"event_id {event_id} already belongs to an event with a different {difference}; "
            "the stored event was not changed. Use a new event_id for new content"
        )
        self.event_id = event_id
        self.difference = difference


class BatchRefused(Refused):
    """The batch was not put as a whole; `receipts` tells what was."""

    def __init__(self, message: str, receipts: list[Receipt], index: int) -> None:
        super().__init__(message)
        self.receipts = receipts
        self.index = index


class BoxFull(Refused):
    """The box holds max_pending events already; let a relay drain it, or raise the limit."""


class BoxPaused(Refused):
    """The box is paused; resume it to claim again."""


class UnknownBox(Refused):
    """There is no such box."""


class StreamTaken(Refused):
    """Another process has taken over this stream."""


class StreamLost(Refused):
    """Events of this stream's batch were taken by others."""


class TransactionFailed(Refused):
    """The transaction did not commit; nothing was written."""


# --- a publisher did not publish -------------------------------------------------------------------------------


class NotPublished(RedboxError):
    """The event was not published."""


class Reject(NotPublished):
    """The target will never take this event.

    `kind`: what makes two rejections the same, such as "HTTP 401". `blames_target`: the rejection may have nothing to
    do with the event, as with a wrong token or path. It is then retried like a failure, and the attempt counts only if
    the target accepts other events.
    """

    def __init__(self, reason: str | None = None, *, kind: str | None = None, blames_target: bool = False) -> None:
        super().__init__(reason)
        self.kind = str(kind) if kind else self.message
        self.blames_target = bool(blames_target)


class RetryLater(NotPublished):
    """The target asked to wait before this event is tried again."""

    def __init__(self, delay: float | timedelta, reason: str | None = None) -> None:
        super().__init__(reason)
        self.delay = _delay(delay)


def _delay(delay: Any) -> float:
    """Seconds; a relay takes a negative delay as 0, and bounds a long one."""
    try:
        return delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    except (TypeError, ValueError, OverflowError):
        raise UsageError("delay must be seconds or a timedelta") from None


class Unavailable(NotPublished):
    """The target cannot be reached, or takes nothing at the moment."""

    def __init__(self, reason: str | None = None, *, delay: float | timedelta = 0.0) -> None:
        super().__init__(reason)
        self.delay = _delay(delay)


# --- the server ------------------------------------------------------------------------------------------------


class StoreError(RedboxError):
    """The store answered with an error."""

    #: The event that a put was about: put it again with this id.
    event_id: str | None = None
    #: How many events of a call with many were carried out before the error, counted from the first; that stays so.
    carried_out: int = 0
    #: Of `put_many`: the receipts of those events.
    receipts: Sequence[Receipt] = ()

    def after(self, count: int, receipts: Sequence[Receipt] = ()) -> None:
        """Notes that the first `count` events of the call were carried out before this error."""
        if not count:
            return
        message = self.message
        for claim in ("nothing was changed", "nothing was written"):
            message = message.replace(claim, f"of the others {claim}")
        were = "event of this call was" if count == 1 else f"{count:,} events of this call were"
        self.args = (f"{message}; the first {were} carried out before", *self.args[1:])
        self.carried_out, self.receipts = count, receipts


class StoreUnavailable(StoreError):
    """The store cannot be reached."""


class NotPermitted(StoreUnavailable):
    """The user of this connection may not do what redbox needs."""

    def __init__(self, message: str | None = None, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing  # what to grant, as ACL SETUSER takes it: "+zadd", "~{redbox:orders:0}:*"


class StoreFull(StoreError):
    """The server is out of memory or disk; nothing was written. Free some, raise maxmemory, or sweep the box."""


class ForeignKey(StoreError):
    """Something else uses one of this box's key names with another type; choose another box name."""


class NewerLayout(StoreError):
    """This box was written by a newer redbox; upgrade this one."""


class NewerEvent(StoreError):
    """This event was written by a newer redbox; upgrade this one."""


class UnexpectedReply(StoreError):
    """The server answered with an error that redbox does not know."""


class DurabilityNotReached(StoreError):
    """The write was made, but was not confirmed as safely as asked for; repeating it with the same id is safe."""

    def __init__(self, message: str | None = None, replies: Any = ()) -> None:
        super().__init__(message)
        self.replies = replies  # what the server answered, event by event


class PartlyCommitted(StoreError):
    """Part of the transaction is committed; do not simply repeat it."""


class DurabilityUnsupported(StoreError):
    """This server cannot give the durability that was asked for."""


class EmbeddedServerFailed(StoreError):
    """The embedded server did not start."""


class UntrustedStore(StoreError):
    """Another user could read or change what is stored there; nothing was sent."""


#: First word of a script's error → the exception it becomes.
WORDS: dict[str, type[RedboxError]] = {
    "NEWERLAYOUT": NewerLayout,
    "PAUSED": BoxPaused,
    "STREAMTAKEN": StreamTaken,
}

#: Errors of the store that pass by themselves: a relay waits and asks again. All others end it.
PASSING: tuple[type[StoreError], ...] = (StoreUnavailable, StoreFull, UnexpectedReply, EmbeddedServerFailed)
