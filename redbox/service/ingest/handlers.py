"""The routes of ingest."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, post
from litestar.datastructures import State
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from redbox.box import Box
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
from redbox.service.ingest.intake import Intake
from redbox.service.ingest.requests import JSON, idempotency_key, is_batch, media_type, read_batch, read_event
from redbox.service.operations.routes import BoxName
from redbox.service.problems import RETRY_SECONDS, respond
from redbox.service.strict import check_request

Durability = Annotated[
    str | None,
    QueryParameter(
        description="What the answer waits for: `server` (as the server is configured), `fsync` or `replicas=N`.",
    ),
]
_encode = msgspec.json.Encoder().encode


_route: Final[dict[str, Any]] = {
    "tags": ["ingest"],
    "guards": [require(Scope.INGEST)],
    "before_request": check_request,
    "status_code": HTTPStatus.ACCEPTED,
}


@post("/v1/events", summary="Put an event", operation_class=EventOperation, responses=EVENT_RESPONSES, **_route)
async def put_event(
    request: Request[Any, Any, State],
    boxes: NamedDependency[Boxes],
    intake: NamedDependency[Intake],
    durability: Durability = None,
) -> Response[bytes]:
    """Stores one event in the default box, and answers when it is persisted.

    The event has the id of its `event_id`, else that of the header `Idempotency-Key`, else a new one. A repeat under
    the same id with the same content stores nothing, and gets the same receipt with `created` false. A batch of
    CloudEvents is answered as one of `events:batch`.
    """
    return await _event(request, boxes.default, intake, durability)


@post(
    "/v1/boxes/{box:str}/events", summary="Put an event into a box", operation_class=EventOperation,
    responses=EVENT_RESPONSES, **_route,
)  # fmt: skip
async def put_event_into(
    request: Request[Any, Any, State],
    boxes: NamedDependency[Boxes],
    intake: NamedDependency[Intake],
    box: BoxName,
    durability: Durability = None,
) -> Response[bytes]:
    """Stores one event in a box that exists, as `/v1/events` does in the default box."""
    return await _event(request, await boxes.get(box), intake, durability)


@post(
    "/v1/events:batch", summary="Put a batch of events", operation_class=BatchOperation, responses=BATCH_RESPONSES,
    **_route,
)  # fmt: skip
async def put_events(
    request: Request[Any, Any, State],
    boxes: NamedDependency[Boxes],
    intake: NamedDependency[Intake],
    durability: Durability = None,
) -> Response[bytes]:
    """Stores the events of a batch in the default box, and answers with a result for each, in the order of the batch.

    An event that is refused does not keep the others from being stored.
    """
    return await _batch(request, boxes.default, intake, durability)


@post(
    "/v1/boxes/{box:str}/events:batch", summary="Put a batch of events into a box", operation_class=BatchOperation,
    responses=BATCH_RESPONSES, **_route,
)  # fmt: skip
async def put_events_into(
    request: Request[Any, Any, State],
    boxes: NamedDependency[Boxes],
    intake: NamedDependency[Intake],
    box: BoxName,
    durability: Durability = None,
) -> Response[bytes]:
    """Stores the events of a batch in a box that exists, as `/v1/events:batch` does in the default box."""
    return await _batch(request, await boxes.get(box), intake, durability)


async def _event(
    request: Request[Any, Any, State], box: Box, intake: Intake, durability: str | None
) -> Response[bytes]:
    kind = media_type(request)
    if is_batch(kind):
        return await _batch(request, box, intake, durability)
    with intake.body(request) as body:
        receipt = await box.put(read_event(request, kind, await body.read()), durability=durability)
    answer = EventReceipt(receipt.event_id, receipt.created, receipt.durability)
    return Response(_encode(answer), status_code=HTTPStatus.ACCEPTED, media_type=JSON)


async def _batch(
    request: Request[Any, Any, State], box: Box, intake: Intake, durability: str | None
) -> Response[bytes]:
    kind = media_type(request)
    with intake.body(request) as body:
        lines, read = read_batch(kind, await body.read(), intake.batch_events)
        answer = await put_batch(box, lines, read, idempotency_key(request), durability)
    if isinstance(answer, BatchProblem):
        return respond(answer)
    headers = {"retry-after": str(RETRY_SECONDS)} if answer.worth_repeating else {}
    status = HTTPStatus.MULTI_STATUS if answer.refused else HTTPStatus.ACCEPTED
    return Response(_encode(answer), status_code=status, media_type=JSON, headers=headers)


def ingest() -> list[HTTPRouteHandler]:
    """The handlers of ingest."""
    return [put_event, put_event_into, put_events, put_events_into]
