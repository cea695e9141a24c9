"""A consumer that verifies who sent a delivery, and handles each event once and in order. Its data is in Redis.

uvicorn --app-dir examples consumer:app --port 8001

`verify` checks the signature. The guard remembers in Redis which events were handled, and up to which claim number for
each order: a second delivery is a duplicate, and a late one is refused. The change of the order and the record that the
event was handled are committed in ONE transaction, so that a crash loses both, and the event is delivered again.
docs/consumers.md says what this guarantees, and what not.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import redis.asyncio
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

from redbox.consumer import DeliveryInProgress, DeliveryRefused, Guard, verify

SECRET = os.environ[
    "CONSUMER_SECRET"
]  # of the relay's option `secret`; while it is rotated, both, separated by a space

client = redis.asyncio.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
guard = Guard(client, name="shop", lease=30)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    await client.aclose()


app = FastAPI(lifespan=lifespan)


@app.exception_handler(DeliveryRefused)
async def refuse(_: Request, error: DeliveryRefused) -> JSONResponse:
    """The status makes the relay retry the event, or mark it DEAD."""
    headers = {"retry-after": str(error.retry_after)} if isinstance(error, DeliveryInProgress) else {}
    return JSONResponse({"error": str(error)}, status_code=error.status, headers=headers)


@app.post("/orders")
async def receive(request: Request) -> dict[str, str]:
    delivery = verify(request.headers, await request.body(), SECRET)
    async with guard.once(delivery) as first:
        if not first:
            return {"result": "duplicate"}  # 2xx: the relay acknowledges the event
        change = delivery.decode()
        async with first.transaction() as pipe:
            pipe.hset(f"order:{change['order']}", mapping={"status": change["status"]})
            pipe.hincrby(f"order:{change['order']}", "changes", 1)
    return {"result": "handled"}


@app.get("/orders/{order_id}")
async def show_order(order_id: str) -> dict[str, str]:
    found = await client.hgetall(f"order:{order_id}")
    if not found:
        raise HTTPException(404, "unknown order")
    return {name.decode(): value.decode() for name, value in found.items()}
