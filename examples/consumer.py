"""A consumer that handles each event once and in order, whatever is delivered twice or late.

uvicorn --app-dir examples consumer:app --port 8001

It keeps the state of orders in SQLite. Each delivery is judged and handled in ONE transaction, so that what it
remembers and what it did are never at odds: a crash undoes both, the relay gets no 2xx, and the event comes again.

Two checks, because there are two ways to be delivered wrongly:

1.  Twice. A relay delivers an event and dies before it can tell the box, so another relay delivers it again. A fence
    does not stop that, since the second delivery has a HIGHER claim number. The event's id does: `seen`.

2.  Late. A relay hangs (a long pause, a slow network) until its lease has ended, and the others go on without it. When
    it wakes up, it delivers what it had claimed. If that event was handled meanwhile, its id tells. But perhaps it was
    given up instead (out of attempts, or killed by an operator), or its id was forgotten after some weeks, and later
    events of the same order were handled. Then it looks new, and only its claim number tells: `fences`.

Why a lower number is a late one: each claim takes the next number of its box, and of the events with one ordering_key
only the first is given out, until it is published or dead. So along one ordering_key later events have higher numbers,
and so has each further delivery of the same event. An operator's replay is a new claim with a new number: it passes the
fence, and is handled if the event never was.

What this rests on:

-   Every event about an order is put with `ordering_key` = that order. Without one, events of an order are under way
    at the same time, and the lower number may well arrive second: then use the first check alone.
-   Numbers are compared within one box only; each box counts for itself. `ce-source` names the box and is part of the
    keys below. If two boxes have events of one order, nothing puts these in order.
-   The Redis does not lose writes that it has acknowledged (docs/guarantees.md, Durability). One that does, or a box
    that was deleted, counts on from a lower number, and new events look late. They are not lost: the answer 409 makes
    them DEAD, where they can be seen and replayed. An answer 2xx would drop them silently.
"""

import os
import sqlite3
from contextlib import closing
from enum import StrEnum
from typing import Annotated

from fastapi import FastAPI, Header, HTTPException
from fastapi.responses import JSONResponse
from pydantic import BaseModel

DATABASE = os.environ.get("CONSUMER_DB", "consumer.db")

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, status TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS seen (
    source TEXT, event_id TEXT, at TEXT DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (source, event_id)
);
CREATE TABLE IF NOT EXISTS fences (source TEXT, order_id TEXT, claim INTEGER NOT NULL, PRIMARY KEY (source, order_id));
"""

# Changes a row only if the claim is higher than every one before it.
RAISE_FENCE = """
INSERT INTO fences (source, order_id, claim) VALUES (?, ?, ?)
ON CONFLICT (source, order_id) DO UPDATE SET claim = excluded.claim WHERE excluded.claim > claim
"""

SET_STATUS = """
INSERT INTO orders (id, status) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET status = excluded.status
"""


class Result(StrEnum):
    HANDLED = "handled"
    DUPLICATE = "duplicate"
    STALE = "stale"


class OrderChanged(BaseModel):
    order: str
    status: str


def open_database(path: str = DATABASE) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)  # None: transactions begin where this code says so
    db.executescript(SCHEMA)
    return db


def handle(db: sqlite3.Connection, source: str, event_id: str, claim: int, change: OrderChanged) -> Result:
    with db:  # commits at the end, rolls back on an error
        db.execute("BEGIN IMMEDIATE")  # one delivery at a time from here on: nobody can come between look and write
        newest = db.execute(RAISE_FENCE, (source, change.order, claim)).rowcount == 1
        if db.execute("SELECT 1 FROM seen WHERE source = ? AND event_id = ?", (source, event_id)).fetchone():
            return Result.DUPLICATE
        if not newest:
            return Result.STALE  # and not put into `seen`: should it be replayed, it is handled
        db.execute("INSERT INTO seen (source, event_id) VALUES (?, ?)", (source, event_id))
        db.execute(SET_STATUS, (change.order, change.status))  # the work itself
        return Result.HANDLED


app = FastAPI()


@app.post("/orders")
def receive(
    change: OrderChanged,
    ce_id: Annotated[str, Header()],
    ce_source: Annotated[str, Header()],
    redbox_claim: Annotated[int, Header()],
) -> JSONResponse:
    # Not `async def`: SQLite blocks, so FastAPI runs this in a thread. Reachable from outside, it should also check the
    # signature that the relay's option `secret` adds.
    with closing(open_database()) as db:
        result = handle(db, ce_source, ce_id, redbox_claim, change)
    # A duplicate has arrived before, so 2xx: the relay may tick it off.
    return JSONResponse({"result": result}, status_code=409 if result is Result.STALE else 200)


@app.get("/orders/{order_id}")
def show_order(order_id: str) -> dict[str, str]:
    with closing(open_database()) as db:
        found = db.execute("SELECT status FROM orders WHERE id = ?", (order_id,)).fetchone()
    if found is None:
        raise HTTPException(404, "there is no such order")
    return {"status": found[0]}
