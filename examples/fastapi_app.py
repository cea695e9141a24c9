"""A shop that puts an event in a request handler, and runs the relay beside the application.

uvicorn --app-dir examples fastapi_app:app --port 8000
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel

from redbox import Box, Event, Relay

# A route of this very application, so that there is something to see; usually it is somebody else's.
HOOK_URL = os.environ.get("HOOK_URL", "http://127.0.0.1:8000/hooks/orders")
REDBOX_URL = os.environ.get("REDBOX_URL", "embedded:./.redbox")  # or redis://localhost:6379/0


class State(TypedDict):
    box: Box


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[State]:
    # On shutdown the relay ends first: it claims nothing more, and lets what is under way end. Then the box closes.
    # With several workers each runs a relay of its own, which is fine: they share the work.
    async with Box.open(REDBOX_URL, name="shop") as box, Relay(box, HOOK_URL):
        yield {"box": box}


def get_box(request: Request) -> Box:
    box: Box = request.state.box
    return box


class Order(BaseModel):
    id: str
    item: str


app = FastAPI(lifespan=lifespan)
orders: dict[str, Order] = {}  # your database
confirmed: set[str] = set()


@app.post("/orders", status_code=202)
async def place_order(order: Order, box: Annotated[Box, Depends(get_box)]) -> dict[str, str | bool]:
    if orders.setdefault(order.id, order) != order:
        raise HTTPException(409, "there is another order with this id")
    # Your database and the box are two systems. If the process dies right here, the client gets no answer and asks
    # again: then the event is put, and if it was there already, under this same id, nothing changes. State that is in
    # Redis can be written together with the event: see transactional_put.py.
    receipt = await box.put(Event("order.placed", order, event_id=f"order-placed-{order.id}"))
    return {"event_id": receipt.event_id, "created": receipt.created}  # it is stored: it will be delivered


@app.get("/orders/{order_id}")
async def show_order(order_id: str) -> dict[str, str | bool]:
    if order_id not in orders:
        raise HTTPException(404, "there is no such order")
    return {"item": orders[order_id].item, "confirmed": order_id in confirmed}


@app.post("/hooks/orders", status_code=204)
async def confirm_order(order: Order) -> None:
    """What the relay calls. Any 2xx status says that the event has arrived; without one it comes again."""
    confirmed.add(order.id)  # doing this twice does no harm; for work where it would, see consumer.py
