"""The routes of ingest."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Request, post
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Send
from litestar.types import Scope as ASGIScope

from redbox.service.access import Scope, require
from redbox.service.boxes import Boxes
from redbox.service.ingest.batches import BatchProblem, put_batch
from redbox.service.ingest.document import (
    BATCH_RESPONSES,
    EVENT_RESPONSES,
    BatchOperation,
    EventOperation,
    EventReceipt,
)
from redbox.service.ingest.head import Head
from redbox.service.ingest.intake import Intake
from redbox.service.ingest.reading import JSON, read_batch, read_event
from redbox.service.operations.routes import BoxName
from redbox.service.problems import AGAIN, MEDIA_TYPE, RETRY_SECONDS
from redbox.service.strict import check_query

_QUERY: Final = frozenset({"durability"})
_encode = msgspec.json.Encoder().encode


_may_put: Final = require(Scope.INGEST)


def _durability(request: Request[Any, Any, State]) -> str | None:
    """Checks the scope and the parameters, and returns the one there is.

    Neither is left to Litestar: it would run a guard in a thread, and convert the parameters of every request.
    """
    _may_put(request, request.route_handler)
    if not request.scope["query_string"]:
        return None
    check_query(request, _QUERY)
    return request.query_params.get("durability")


_route: Final[dict[str, Any]] = {
    "tags": ["ingest"],
    "status_code": HTTPStatus.ACCEPTED,
}


class _Answer:
    """A JSON response. Litestar's own takes as long as reading and encoding the event."""

    def __init__(self, body: bytes, status: HTTPStatus, media_type: str = JSON, again: bool = False) -> None:
        self._body = body
        self._status = status
        self._media_type = media_type
        self._again = again

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI
        length = str(len(self._body)).encode()
        headers = [(b"content-type", self._media_type.encode()), (b"content-length", length)]
        if self._again:
            headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})


async def _event(request: Request[Any, Any, State], boxes: Boxes, name: str | None, intake: Intake) -> ASGIApp:
    durability, head = _durability(request), Head(request)
    if head.is_batch:
        return await _batch(request, boxes, name, intake)
    box = await boxes.get(name)
    with intake.body(head, request.receive) as body:
        receipt = await box.put(read_event(head, await body.read()), durability=durability)
    answer = EventReceipt(receipt.event_id, receipt.created, receipt.durability)
    return _Answer(_encode(answer), HTTPStatus.ACCEPTED)


async def _batch(request: Request[Any, Any, State], boxes: Boxes, name: str | None, intake: Intake) -> ASGIApp:
    durability, head = _durability(request), Head(request)
    box = await boxes.get(name)
    with intake.body(head, request.receive) as body:
        lines, read = read_batch(head, await body.read(), intake.batch_events)
        answer = await put_batch(box, lines, read, head.idempotency_key, durability)
    if isinstance(answer, BatchProblem):
        return _Answer(_encode(answer), HTTPStatus(answer.status), MEDIA_TYPE, answer.status in AGAIN)
    status = HTTPStatus.MULTI_STATUS if answer.refused else HTTPStatus.ACCEPTED
    return _Answer(_encode(answer), status, again=answer.worth_repeating)


def ingest(boxes: Boxes, intake: Intake) -> list[HTTPRouteHandler]:
    """The handlers of ingest. They get what they need from here: Litestar's dependencies are resolved in tasks, for
    every request."""

    @post("/v1/events", summary="Put an event", operation_class=EventOperation, responses=EVENT_RESPONSES, **_route)
    async def put_event(request: Request[Any, Any, State]) -> ASGIApp:
        """Stores one event in the default box, and answers when it is persisted.

        The event has the id of its `event_id`, else that of the header `Idempotency-Key`, else a new one. A repeat
        under the same id with the same content stores nothing, and gets the same receipt with `created` false. A batch
        of CloudEvents is answered as one of `events:batch`.
        """
        return await _event(request, boxes, None, intake)

    @post(
        "/v1/boxes/{box:str}/events", summary="Put an event into a box", operation_class=EventOperation,
        responses=EVENT_RESPONSES, **_route,
    )  # fmt: skip
    async def put_event_into(request: Request[Any, Any, State], box: BoxName) -> ASGIApp:
        """Stores one event in a box that exists, as `/v1/events` does in the default box."""
        return await _event(request, boxes, box, intake)

    @post(
        "/v1/events:batch", summary="Put a batch of events", operation_class=BatchOperation, responses=BATCH_RESPONSES,
        **_route,
    )  # fmt: skip
    async def put_events(request: Request[Any, Any, State]) -> ASGIApp:
        """Stores the events of a batch in the default box, and answers with a result for each, in their order.

        An event that is refused does not keep the others from being stored.
        """
        return await _batch(request, boxes, None, intake)

    @post(
        "/v1/boxes/{box:str}/events:batch", summary="Put a batch of events into a box", operation_class=BatchOperation,
        responses=BATCH_RESPONSES, **_route,
    )  # fmt: skip
    async def put_events_into(request: Request[Any, Any, State], box: BoxName) -> ASGIApp:
        """Stores the events of a batch in a box that exists, as `/v1/events:batch` does in the default box."""
        return await _batch(request, boxes, box, intake)

    return [put_event, put_event_into, put_events, put_events_into]
