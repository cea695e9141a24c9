"""The routes of ingest."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Request, post
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Send
from litestar.types import Scope as AsgiScope

from redbox.service.boxes import Boxes
from redbox.service.http.access import Scope, check
from redbox.service.http.strict import check_query
from redbox.service.ingest.batches import BatchProblem, BatchReceipt, put_batch
from redbox.service.ingest.document import (
    BATCH_RESPONSES,
    EVENT_RESPONSES,
    BatchOperation,
    EventOperation,
    EventReceipt,
)
from redbox.service.ingest.intake import Intake
from redbox.service.ingest.reading import JSON, read_batch, read_event
from redbox.service.ingest.request_headers import RequestHeaders
from redbox.service.operations.routes import BoxName

_QUERY: Final = frozenset({"durability"})
_JSON_TYPE: Final = (b"content-type", JSON.encode())
_encode = msgspec.json.Encoder().encode


def _durability(request: Request[Any, Any, State]) -> str | None:
    """Checks the scope and the parameters, and returns the one there is.

    Neither is left to Litestar: its guards are slower, and it would convert the parameters of every request.
    """
    check(request, Scope.INGEST)
    if not request.scope["query_string"]:
        return None
    check_query(request, _QUERY)
    return request.query_params.get("durability")


_route: Final[dict[str, Any]] = {
    "tags": ["ingest"],
    "status_code": HTTPStatus.ACCEPTED,
}


class _Answer:
    """A response. Litestar's own takes as long as reading and encoding the event."""

    def __init__(self, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status
        self._body = body
        self._headers = headers

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI
        await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})


def _json(status: HTTPStatus, document: EventReceipt | BatchReceipt, *headers: tuple[bytes, bytes]) -> _Answer:
    body = _encode(document)
    return _Answer(status, body, [_JSON_TYPE, (b"content-length", b"%d" % len(body)), *headers])


async def _event(request: Request[Any, Any, State], boxes: Boxes, name: str | None, intake: Intake) -> ASGIApp:
    durability, headers = _durability(request), RequestHeaders(request)
    if headers.is_batch:
        return await _put_batch(request, boxes, name, intake, headers, durability)
    box = await boxes.get(name)
    with intake.body(headers, request.receive) as body:
        receipt = await box.put(read_event(headers, await body.read()), durability=durability)
    return _json(HTTPStatus.ACCEPTED, EventReceipt(receipt.event_id, receipt.created, receipt.durability))


async def _batch(request: Request[Any, Any, State], boxes: Boxes, name: str | None, intake: Intake) -> ASGIApp:
    durability, headers = _durability(request), RequestHeaders(request)
    return await _put_batch(request, boxes, name, intake, headers, durability)


async def _put_batch(
    request: Request[Any, Any, State],
    boxes: Boxes,
    name: str | None,
    intake: Intake,
    headers: RequestHeaders,
    durability: str | None,
) -> ASGIApp:
    box = await boxes.get(name)
    with intake.body(headers, request.receive) as body:
        texts, read = read_batch(headers, await body.read(), intake.batch_events)
        answer = await put_batch(box, texts, read, headers.idempotency_key, durability)
    if isinstance(answer, BatchProblem):
        encoded = answer.encode()
        return _Answer(answer.status, encoded, answer.headers(encoded))
    retry = [] if answer.retry_after is None else [(b"retry-after", b"%d" % answer.retry_after)]
    return _json(HTTPStatus.ACCEPTED if answer.is_complete else HTTPStatus.MULTI_STATUS, answer, *retry)


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
