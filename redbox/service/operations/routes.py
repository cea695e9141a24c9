"""What the routes of the operations have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any, Final

import litestar
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.params import PathParameter

from redbox.events import EVENT_ID_LENGTH, KEY_LENGTH
from redbox.keys import BOX_NAME, BOX_NAME_LENGTH
from redbox.service.http.access import Scope, require
from redbox.service.http.problems import MEDIA_TYPE, Problem
from redbox.service.http.strict import check_request

_DESCRIPTIONS: Final = {
    HTTPStatus.BAD_REQUEST: "A parameter or the body is not valid.",
    HTTPStatus.UNAUTHORIZED: "A valid token is missing.",
    HTTPStatus.FORBIDDEN: "The token lacks the scope, or a web page of another origin sent the request.",
    HTTPStatus.NOT_FOUND: "There is no such box, event or job.",
    HTTPStatus.REQUEST_TIMEOUT: "The body was not sent in time.",
    HTTPStatus.CONFLICT: "Refused in the present state; nothing was changed.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "A parameter or a field has an invalid value; the problem names it.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too much at once; repeat the request after the seconds of Retry-After.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store cannot be reached; repeat the request later.",
}


def problems(*statuses: HTTPStatus) -> dict[int, ResponseSpec]:
    """The problem responses of a route, for the OpenAPI document."""
    return {
        int(status): ResponseSpec(
            Problem, description=_DESCRIPTIONS[status], media_type=MEDIA_TYPE, generate_examples=False
        )
        for status in statuses
    }


_READ: Final = problems(
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_CHANGE: Final = _READ | problems(
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.TOO_MANY_REQUESTS,
)
Decorator = Callable[[Callable[..., Awaitable[Any]]], HTTPRouteHandler]
_read: Final[dict[str, Any]] = {"tags": ["read"], "guards": [require(Scope.READ)], "responses": _READ}
_change: Final[dict[str, Any]] = {"tags": ["operate"], "guards": [require(Scope.OPERATE)], "responses": _CHANGE}


def get(path: str, *, responses: dict[int, ResponseSpec] | None = None, **options: Any) -> Decorator:
    """A route that reads; `responses` are those that its return type does not describe."""
    described = {"responses": _READ | (responses or {})}
    return litestar.get(path, before_request=check_request, **_read | described | options)


def post(path: str, **options: Any) -> Decorator:
    """A route that changes something."""
    return litestar.post(path, before_request=check_request, **_change | options)


def patch(path: str, **options: Any) -> Decorator:
    """A route that changes a part of something."""
    return litestar.patch(path, before_request=check_request, **_change | options)


def delete(path: str, **options: Any) -> Decorator:
    """A route that ends something."""
    return litestar.delete(path, before_request=check_request, **_change | options)


def _path(description: str, example: str, longest: int, pattern: str | None = None) -> Any:
    return PathParameter(
        description=description,
        max_length=longest,
        min_length=1,
        pattern=pattern,
        examples=[Example(value=example)],
    )


BoxName = Annotated[str, _path("Name of the box.", "default", BOX_NAME_LENGTH, f"^{BOX_NAME.pattern}$")]
EventId = Annotated[str, _path("Id of the event.", "01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49", EVENT_ID_LENGTH)]
KeyName = Annotated[str, _path("Ordering key; a slash in it is written %2F.", "order-7", KEY_LENGTH)]
JobId = Annotated[str, _path("Id of the job.", "3f2a9c01", 8, "^[0-9a-f]{8}$")]
