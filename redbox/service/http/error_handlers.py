"""The responses to exceptions of the application's handlers."""

from __future__ import annotations

import errno
import logging
from http import HTTPStatus
from typing import Any, Final

from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from redbox import errors
from redbox.service.http.problems import DEFECT, MEDIA_TYPE, Problem, problem_of, problem_with
from redbox.service.http.strict import query_names

logger = logging.getLogger("redbox.service")


def _respond(problem: Problem, headers: dict[str, str] | None = None) -> Response[bytes]:
    found = dict(headers or {})
    if problem.retry_after is not None:
        found.setdefault("retry-after", str(problem.retry_after))
    return Response(problem.encode(), status_code=problem.status, media_type=MEDIA_TYPE, headers=found)


def on_redbox_error(_: Request[Any, Any, Any], error: errors.RedboxError) -> Response[bytes]:
    return _respond(problem_of(error))


def on_http_exception(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """An error of the HTTP layer: an unknown path, a wrong method, a body that is too large."""
    status = HTTPStatus(error.status_code)
    detail, field = error.detail or status.description, None
    if isinstance(error, ValidationException) and isinstance(error.extra, list) and error.extra:
        wrong = error.extra[0]
        key = str(wrong.get("key", ""))
        field = query_names(request.route_handler).get(key, key) or None  # as the caller wrote it
        detail = f"{field or 'the request'}: {wrong.get('message', detail)}"
    return _respond(problem_with(status, detail, field), dict(error.headers or {}))


def on_defect(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Anything else is a defect of redbox: it is logged, and the client learns nothing about it. That too many files
    are open passes."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        logger.warning("%s %s was refused: too many files are open", request.method, request.url.path)
        return _respond(problem_with(HTTPStatus.SERVICE_UNAVAILABLE, "too many files are open; repeat the request"))
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _respond(DEFECT)


HANDLERS: Final[dict[type[Exception] | int, Any]] = {
    errors.RedboxError: on_redbox_error,
    HTTPException: on_http_exception,
    Exception: on_defect,
}
