"""Errors as problem documents (RFC 9457). Every error of redbox has a status here; only a defect answers 500."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from redbox import errors
from redbox.events import Outcome

logger = logging.getLogger("redbox.service")

MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 1
AGAIN: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


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


#: The first class that an error is an instance of decides. A status with a delay asks the client to repeat the request.
STATUSES: Final[tuple[tuple[type[errors.RedboxError], HTTPStatus], ...]] = (
    (errors.PayloadTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (errors.InvalidEvent, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.UsageError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.Conflict, HTTPStatus.CONFLICT),
    (errors.IdReused, HTTPStatus.CONFLICT),
    (errors.BoxFull, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.UnknownBox, HTTPStatus.NOT_FOUND),
    (NotFound, HTTPStatus.NOT_FOUND),
    (TooManyJobs, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.Refused, HTTPStatus.CONFLICT),
    (errors.DurabilityUnsupported, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.StoreError, HTTPStatus.SERVICE_UNAVAILABLE),
)


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A problem document. `error`: the class of the error in redbox, for programs; `field`: the invalid field."""

    title: str
    status: int
    detail: str
    error: str
    type: str = "about:blank"
    field: str | None = None
    event_id: str | None = None
    outcome: str | None = None


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
    )


def respond(problem: Problem, headers: dict[str, str] | None = None) -> Response[bytes]:
    """The response with this problem."""
    found = dict(headers or {})
    if problem.status in AGAIN:
        found.setdefault("retry-after", str(RETRY_SECONDS))
    return Response(msgspec.json.encode(problem), status_code=problem.status, media_type=MEDIA_TYPE, headers=found)


def on_redbox_error(_: Request[Any, Any, Any], error: errors.RedboxError) -> Response[bytes]:
    return respond(problem_of(error))


def on_http_exception(_: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """An error of the HTTP layer: an unknown path, a wrong method, a body that is too large."""
    status = HTTPStatus(error.status_code)
    detail, field = error.detail or status.description, None
    if isinstance(error, ValidationException) and isinstance(error.extra, list) and error.extra:
        wrong = error.extra[0]
        field = str(wrong.get("key", "")) or None
        detail = f"{field or 'the request'}: {wrong.get('message', detail)}"
    problem = Problem(title=status.phrase, status=status, detail=detail, error=status.name, field=field)
    return respond(problem, dict(error.headers or {}))


def on_defect(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Anything else is a defect of redbox: it is logged, and the client learns nothing about it."""
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return respond(Problem(title=status.phrase, status=status, detail="see the log of the service", error="Defect"))


HANDLERS: Final[dict[type[Exception] | int, Any]] = {
    errors.RedboxError: on_redbox_error,
    HTTPException: on_http_exception,
    Exception: on_defect,
}
