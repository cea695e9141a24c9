"""A shop that puts an event in a request handler, and runs the relay in the same process.

uvicorn --app-dir examples fastapi_app:app --port 8000
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel

from redbox import Box, Event, Relay

# A route of this application, so that the example needs no other service; usually the URL of another service.
HOOK_URL = os.environ.get("HOOK_URL", "http://127.0.0.1:8000/hooks/orders")
REDBOX_URL = os.environ.get("REDBOX_URL", "embedded:./.redbox")  # or redis://localhost:6379/0


class State(TypedDict):
    box: Box


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[State]:
    # On shutdown the relay stops first: it claims nothing more, and waits for events being published. Then the box
    # closes. With several uvicorn workers each runs its own relay, which is fine: they share the work.
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
        raise HTTPException(409, "another order has this id")
    # Your database and the box are two systems. If the process crashes here, the client gets no answer and repeats its
    # request. The event is then put; if it exists already, it has the same id, and nothing changes. State in Redis can
    # be written together with the event: see transactional_put.py.
    receipt = await box.put(Event("order.placed", order, event_id=f"order-placed-{order.id}"))
    return {"event_id": receipt.event_id, "created": receipt.created}  # stored: it will be delivered


@app.get("/orders/{order_id}")
async def show_order(order_id: str) -> dict[str, str | bool]:
    if order_id not in orders:
        raise HTTPException(404, "unknown order")
    return {"item": orders[order_id].item, "confirmed": order_id in confirmed}


@app.post("/hooks/orders", status_code=204)
async def confirm_order(order: Order) -> None:
    """Called by the relay. Any 2xx status acknowledges the event; otherwise it is delivered again."""
    confirmed.add(order.id)  # harmless if done twice; otherwise see consumer.py
