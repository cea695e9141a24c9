"""Ingest: events over HTTP. A 202 means that the store has the event at the durability that was asked for."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from litestar import Request, Response, Router, post
from litestar.datastructures import State

from redbox.box.event_json import event_from_line
from redbox.errors import InvalidEvent
from redbox.events import Receipt
from redbox.service.access import Scope, require
from redbox.service.boxes import Boxes

JSON: Final = "application/json"
_encode = msgspec.json.Encoder().encode


@post(["/v1/events", "/v1/boxes/{box:str}/events"], status_code=202, summary="Put an event")
async def put_event(
    request: Request[Any, Any, State], boxes: Boxes, box: str | None = None, durability: str | None = None
) -> Response[bytes]:
    """Stores one event; answers when it is persisted."""
    into = await boxes.get(box)
    try:
        event = event_from_line(await request.body())
    except InvalidEvent:
        raise
    except ValueError as error:
        raise InvalidEvent("body", str(error)) from None
    receipt = await into.put(event, durability=durability)
    return Response(_encode(_answer(receipt)), status_code=202 if receipt.created else 200, media_type=JSON)


def _answer(receipt: Receipt) -> dict[str, Any]:
    return {"event_id": receipt.event_id, "created": receipt.created, "durability": receipt.durability}


def ingest() -> Router:
    return Router("/", route_handlers=[put_event], guards=[require(Scope.INGEST)], tags=["ingest"])
