"""All exceptions of redbox, in one tree::

    RedboxError
    ├── UsageError                  the call is invalid; nothing was sent
    │   ├── InvalidEvent            a field of an event is invalid; names the field
    │   │   └── PayloadTooLarge
    │   ├── InvalidSetting
    │   ├── InvalidURL
    │   └── MissingExtra            an optional dependency is missing; prints the pip command
    ├── Refused                     the box refused the call; nothing was changed
    │   ├── Conflict                unique_key is held by another event
    │   ├── IdReused                the event_id exists with different content
    │   ├── BatchRefused            put_many stopped early, or was refused as a whole
    │   ├── BoxFull
    │   ├── BoxPaused               says by whom, why and until when
    │   ├── UnknownBox
    │   ├── StreamTaken             another process drains the box under the same stream name
    │   ├── StreamLost              events of the stream's batch were claimed by others
    │   └── TransactionFailed
    ├── NotPublished                raised by a publisher to choose the next state of its event
    │   ├── Reject                  the target will never accept the event: DEAD at once
    │   ├── RetryLater              retry, but not before a delay
    │   └── Unavailable             the target is down; the event is not at fault
    ├── DeliveryRefused             a consumer refuses a delivery; `status` is the HTTP status to answer
    │   ├── InvalidDelivery         it is not a delivery of redbox
    │   ├── NotVerified             it is not signed
    │   │   ├── WrongSignature
    │   │   └── WrongTimestamp      it was signed too long ago, or in the future
    │   ├── StaleDelivery           a later claim of the event, or of its ordering key, was seen
    │   ├── DeliveryInProgress      another delivery of the event is being handled
    │   └── LeaseLost               handling took longer than its lease, and another delivery began
    └── StoreError                  the server, or the connection to it, failed
        ├── StoreUnavailable        not reachable, loading, a read-only replica, not logged in
        │   └── NotPermitted        the user of the connection lacks a permission; names it
        ├── StoreFull               out of memory or disk
        ├── ForeignKey              another program uses one of redbox's key names
        ├── NewerLayout             the box was written by a newer redbox
        ├── NewerEvent              one event was written by a newer redbox
        ├── UnexpectedReply         an error reply that redbox does not know
        ├── DurabilityNotReached    the write may be stored, but less durably than requested
        ├── PartlyCommitted         a transaction was committed only in part
        ├── DurabilityUnsupported   this server cannot provide the requested durability
        ├── EmbeddedServerFailed    the embedded server did not start
        └── UntrustedStore          another user can write to the embedded server's directory, or runs a server in it

The first line of a class's docstring is its default message. The first word of a script's error is its code;
`CODES` maps it to a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from typing import Self

    from redbox.events import Receipt


class RedboxError(Exception):
    """Something went wrong in redbox."""

    def __init__(self, message: str | None = None, *args: Any) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n")[0], *args)

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses build their message from other arguments, so a copy must not call the constructor again.
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


# --- the call is invalid ---------------------------------------------------------------------------------------


class UsageError(RedboxError, ValueError):
    """The call is invalid."""

    #: The name of the argument or option that is invalid, if it is one.
    argument: str | None = None


class InvalidEvent(UsageError):
    """This is not a valid event."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class PayloadTooLarge(InvalidEvent):
    """The payload is larger than the limit of the box."""


class InvalidSetting(UsageError):
    """This setting is not valid."""


class InvalidURL(UsageError):
    """redbox cannot open this URL."""


class MissingExtra(UsageError, ImportError):
    """An optional part of redbox is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'redbox-outbox[{extra}]'")
        self.extra = extra


# --- the box refused -------------------------------------------------------------------------------------------


class Refused(RedboxError):
    """The box refused the call; nothing was changed."""


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
    """Not all events of the batch were put; `receipts` says which were.

    `index` is the position of the first event that was refused.
    """

    def __init__(self, message: str, receipts: list[Receipt], index: int) -> None:
        super().__init__(message)
        self.receipts = receipts
        self.index = index


class BoxFull(Refused):
    """The box holds max_pending events already; let a relay drain it, or raise the limit."""


class BoxPaused(Refused):
    """The box is paused; resume it to claim again.

    `who` paused it, and `why`. It ends by itself at `until`, which was `ends_in` seconds away by the store's clock;
    None until it is resumed.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        who: str = "",
        why: str = "",
        until: datetime | None = None,
        ends_in: float | None = None,
    ) -> None:
        super().__init__(message)
        self.who = who
        self.why = why
        self.until = until
        self.ends_in = ends_in


class UnknownBox(Refused):
    """There is no such box."""


class StreamTaken(Refused):
    """Another process took over this stream."""


class StreamLost(Refused):
    """Events of this stream's batch were claimed by others."""


class TransactionFailed(Refused):
    """The transaction did not commit; nothing was written."""


# --- a publisher did not publish -------------------------------------------------------------------------------


class NotPublished(RedboxError):
    """The event was not published."""


class Reject(NotPublished):
    """The target will never accept this event.

    `kind` groups rejections with one cause, such as "HTTP 401"; by default the reason. `blames_target` marks a
    rejection that may be the target's fault, such as a wrong token or path. The event is then retried as after a
    failure, and the attempt counts only if the target accepts other events.
    """

    def __init__(self, reason: str | None = None, *, kind: str | None = None, blames_target: bool = False) -> None:
        super().__init__(reason)
        self.kind = str(kind) if kind else self.message
        self.blames_target = bool(blames_target)


class RetryLater(NotPublished):
    """The target asked for a delay before the next attempt.

    `delay` is in seconds, or a timedelta. `excuse`: the attempt never counts against the event.
    """

    def __init__(self, delay: float | timedelta, reason: str | None = None, *, excuse: bool = False) -> None:
        super().__init__(reason)
        self.delay = _delay(delay)
        self.excuse = bool(excuse)


def _delay(delay: Any) -> float:
    """The delay in seconds. A relay treats a negative delay as 0 and limits a long one."""
    try:
        return delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    except (TypeError, ValueError, OverflowError):
        raise UsageError("delay must be seconds or a timedelta") from None


class Unavailable(NotPublished):
    """The target cannot be reached, or accepts no events at the moment.

    `delay` is the shortest time until the next attempt, in seconds or a timedelta. The attempt counts against the event
    only if the target acknowledges others meanwhile; with `excuse`, never.
    """

    def __init__(self, reason: str | None = None, *, delay: float | timedelta = 0.0, excuse: bool = False) -> None:
        super().__init__(reason)
        self.delay = _delay(delay)
        self.excuse = bool(excuse)


# --- a consumer refuses a delivery -----------------------------------------------------------------------------


class DeliveryRefused(RedboxError):
    """The delivery is refused.

    `status` is the HTTP status to answer: the relay then retries the event, or marks it DEAD, as it should.
    """

    status: ClassVar[int] = 500


class InvalidDelivery(DeliveryRefused):
    """The request is not a delivery of redbox."""

    status = 400


class NotVerified(DeliveryRefused):
    """The request is not signed.

    Its status makes the relay keep the event: a wrong secret is no fault of the event.
    """

    status = 401


class WrongSignature(NotVerified):
    """No signature of the request was made with this secret, or the request was changed."""


class WrongTimestamp(NotVerified):
    """The request was signed too long ago, or in the future."""


class StaleDelivery(DeliveryRefused):
    """A later claim of this event, or of its ordering key, was seen before."""

    status = 409


class DeliveryInProgress(DeliveryRefused):
    """Another delivery of this event is being handled.

    `retry_after` is the time until its lease ends, in whole seconds: the value of the header Retry-After.
    """

    status = 425

    def __init__(self, message: str | None = None, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LeaseLost(DeliveryRefused):
    """Handling took longer than its lease, and another delivery of the event began."""

    status = 500


# --- the server ------------------------------------------------------------------------------------------------


class Effect(Enum):
    """What the message of a StoreError says about the effect of the call."""

    UNSAID = ""
    UNKNOWN = "; it may or may not have been carried out"
    NOTHING_CHANGED = "; nothing was changed"
    NOTHING_WRITTEN = "; nothing was written"
    NOTHING_ELSE_CHANGED = "; nothing else was changed"
    NOTHING_ELSE_WRITTEN = "; nothing else was written"


#: The same after events of the call were processed.
_AFTER_OTHERS: Final = {
    Effect.NOTHING_CHANGED: Effect.NOTHING_ELSE_CHANGED,
    Effect.NOTHING_WRITTEN: Effect.NOTHING_ELSE_WRITTEN,
}


class StoreError(RedboxError):
    """The store replied with an error."""

    #: After a failed put: the id of the event. Put it again under this id.
    event_id: str | None = None
    #: How many events of the call were processed before the error, counted from the first. They are not rolled back.
    carried_out: int = 0
    #: After a failed `put_many`: the receipts of those events.
    receipts: Sequence[Receipt] = ()
    #: What the message says about the effect of the call.
    effect: Effect = Effect.UNSAID
    _around: tuple[str, str] | None = None  # the message before and after that

    def with_effect(self, effect: Effect, then: str = "") -> Self:
        """Says this about the effect of the call, in place of what the message said about it; returns the error.

        The first effect is added at the end of the message. `then` is added after it.
        """
        before, behind = self._around or (self.message, "")
        self.effect, self._around = effect, (before, behind + then)
        self.args = (f"{before}{effect.value}{behind}{then}", *self.args[1:])
        return self

    def after(self, count: int, receipts: Sequence[Receipt] = ()) -> None:
        """Records that the first `count` events of the call were processed before this error."""
        if not count:
            return
        were = "event of this call was" if count == 1 else f"{count:,} events of this call were"
        effect = _AFTER_OTHERS.get(self.effect, self.effect)
        self.with_effect(effect, f"; the first {were} processed before the error")
        self.carried_out, self.receipts = count, receipts


class StoreUnavailable(StoreError):
    """The store cannot be reached."""

    answered: bool = False  # the server was reached, and answered with an error
    #: Where a user of the command line gave the URL of the store.
    url_source: str = "--url or $REDBOX_URL"


class NotPermitted(StoreUnavailable):
    """The user of this connection lacks a permission that redbox needs."""

    def __init__(self, message: str | None = None, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing  # the ACL SETUSER rules to grant: "+zadd", "~{redbox:orders:0}:*"


class StoreFull(StoreError):
    """The server is out of memory or disk; nothing was written. Free some, raise maxmemory, or sweep the box."""


class ForeignKey(StoreError):
    """Another program uses one of this box's key names with another type; choose another box name."""


class NewerLayout(StoreError):
    """This box was written by a newer redbox; upgrade this one."""


class NewerEvent(StoreError):
    """This event was written by a newer redbox; upgrade this one."""


class UnexpectedReply(StoreError):
    """The server replied with an error that redbox does not know."""


class DurabilityNotReached(StoreError):
    """The write was made, but the requested durability was not confirmed; repeating it with the same id is safe."""

    def __init__(self, message: str | None = None, replies: Any = ()) -> None:
        super().__init__(message)
        self.replies = replies  # the replies of the server, one per event


class PartlyCommitted(StoreError):
    """Part of the transaction is committed; do not simply repeat it."""


class DurabilityUnsupported(StoreError):
    """This server cannot provide the requested durability."""


class EmbeddedServerFailed(StoreError):
    """The embedded server did not start."""


class UntrustedStore(StoreError):
    """Another user could read or change the stored data; nothing was sent."""


#: The code of a script's error → its exception class.
CODES: dict[str, type[RedboxError]] = {
    "NEWERLAYOUT": NewerLayout,
    "PAUSED": BoxPaused,
    "STREAMTAKEN": StreamTaken,
}

#: Temporary errors of the store: a relay waits and repeats the call. Any other error stops the relay.
PASSING: tuple[type[StoreError], ...] = (StoreUnavailable, StoreFull, UnexpectedReply, EmbeddedServerFailed)
