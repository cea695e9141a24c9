"""Errors as problem documents (RFC 9457). Every error of redbox has a status here; only a defect answers 500."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from redbox import errors
from redbox.box.desk.error_groups import UnknownGroup
from redbox.events import Outcome

MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 1
#: Statuses of requests that may succeed if they are repeated soon.
RETRYABLE: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class NotFound(errors.Refused):
    """There is no such event or job."""


class TooManyJobs(errors.Refused):
    """As many jobs are running as the service permits."""


class ActionRefused(errors.Refused):
    """The event is in a state in which the action is not possible."""

    def __init__(self, event_id: str, outcome: Outcome, reason: str) -> None:
        super().__init__(f"event {event_id}: {reason}")
        self.event_id = event_id
        self.outcome = outcome


#: The first class that an error is an instance of decides. A request that fails for the store gets 503: it is valid,
#: and may be repeated once the store is in order.
STATUSES: Final[tuple[tuple[type[errors.RedboxError], HTTPStatus], ...]] = (
    (errors.PayloadTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (errors.InvalidEvent, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.UsageError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.Conflict, HTTPStatus.CONFLICT),
    (errors.IdReused, HTTPStatus.CONFLICT),
    (errors.BoxFull, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.UnknownBox, HTTPStatus.NOT_FOUND),
    (UnknownGroup, HTTPStatus.NOT_FOUND),
    (NotFound, HTTPStatus.NOT_FOUND),
    (TooManyJobs, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.Refused, HTTPStatus.CONFLICT),
    (errors.DurabilityUnsupported, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.StoreError, HTTPStatus.SERVICE_UNAVAILABLE),
)


#: Errors that may pass by themselves. After any other the client is not asked to repeat the request soon: somebody must
#: act first, and the message says how.
_PASSING: Final = (errors.BoxFull, TooManyJobs, errors.DurabilityNotReached, *errors.PASSING)


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A problem document. `error`: the class of the error in redbox, for programs; `field`: the invalid field;
    `retry_after`: seconds after which the request is worth repeating, as in the header Retry-After."""

    title: str
    status: int
    detail: str
    error: str
    type: str = "about:blank"
    field: str | None = None
    event_id: str | None = None
    outcome: str | None = None
    retry_after: int | None = None

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    def headers(self, body: bytes) -> list[tuple[bytes, bytes]]:
        """The headers of a response with this problem, encoded as `body`."""
        found = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
        if self.retry_after is not None:
            found.append((b"retry-after", b"%d" % self.retry_after))
        return found


def problem_of(error: errors.RedboxError) -> Problem:
    """The problem document of an error of redbox."""
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
    return Problem(
        title=status.phrase,
        status=status,
        detail=str(error),
        error=type(error).__name__,
        field=getattr(error, "field", None) or getattr(error, "argument", None),
        event_id=getattr(error, "event_id", None),
        outcome=getattr(error, "outcome", None),
        retry_after=RETRY_SECONDS if _passes(error) else None,
    )


def _passes(error: errors.RedboxError) -> bool:
    return isinstance(error, _PASSING) and not isinstance(error, errors.NotPermitted)


def problem_with(status: HTTPStatus, detail: str, field: str | None = None) -> Problem:
    """The problem document of an error of HTTP itself."""
    return Problem(
        title=status.phrase,
        status=status,
        detail=detail,
        error=status.name,
        field=field,
        retry_after=RETRY_SECONDS if status in RETRYABLE else None,
    )


#: The answer to a request that failed for a defect of redbox.
DEFECT: Final = Problem(
    title=HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
    status=HTTPStatus.INTERNAL_SERVER_ERROR,
    detail="see the log of the service",
    error="Defect",
)
