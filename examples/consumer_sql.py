"""A consumer that handles each event once and in order, with its records in the SQL database that it changes.

uvicorn --app-dir examples consumer_sql:app --port 8001

It keeps the state of orders in SQLite. Each delivery is checked and handled in ONE transaction, so that its records and
its work always agree: a crash undoes both, the relay gets no 2xx, and the event is delivered again.

There are two checks, because a delivery can be wrong in two ways:

1.  Twice. A relay delivers an event and crashes before its ack, so another relay delivers it again. A fence does not
    stop that, because the second delivery has a HIGHER claim number. The event's id does: `seen`.

2.  Late. A relay hangs (a long pause, a slow network) until its lease has expired, and the other relays continue
    without it. When it wakes up, it delivers the event that it had claimed. If that event was handled meanwhile, its id
    is known. But it may have become DEAD instead (out of attempts, or killed by an operator), or its id was forgotten
    after some weeks, and later events of the same order were handled. Then it looks new, and only its claim number
    shows that it is late: `fences`.

Why a lower number means a late delivery: each claim takes the next number of its box, and of the events with one
ordering_key only the first can be claimed, until it is published or dead. So along one ordering_key later events have
higher numbers, and so has each further delivery of the same event. An operator's replay is a new claim with a new
number: it passes the fence, and is handled if the event was not handled before.

Conditions:

-   Every event about an order is put with `ordering_key` = that order. Without one, events of an order are in flight
    at the same time, and the lower number may arrive second: then use only the first check.
-   Numbers are compared within one box only; each box has its own counter. `ce-source` names the box and is part of the
    keys below. If two boxes have events of one order, there is no order between them.
-   The Redis server does not lose writes that it has acknowledged (docs/guarantees.md, Durability). If it does, or if
    the box was deleted, the numbers continue from a lower one, and new events look late. They are not lost: the answer
    409 makes them DEAD, and they can be listed and replayed. An answer 2xx would drop them silently.
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

# Changes a row only if the claim number is higher than all earlier ones.
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
    db = sqlite3.connect(path, isolation_level=None)  # None: this code begins its transactions itself
    db.executescript(SCHEMA)
    return db


def handle(db: sqlite3.Connection, source: str, event_id: str, claim: int, change: OrderChanged) -> Result:
    with db:  # commits at the end, rolls back on an error
        db.execute("BEGIN IMMEDIATE")  # one delivery at a time: no other can write between the checks and the work
        newest = db.execute(RAISE_FENCE, (source, change.order, claim)).rowcount == 1
        if db.execute("SELECT 1 FROM seen WHERE source = ? AND event_id = ?", (source, event_id)).fetchone():
            return Result.DUPLICATE
        if not newest:
            return Result.STALE  # not added to `seen`: if it is replayed, it is handled
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
    # Not `async def`: SQLite blocks, so FastAPI runs this in a thread. A public endpoint should also check the
    # signature, with `redbox.consumer.verify` as in consumer.py.
    with closing(open_database()) as db:
        result = handle(db, ce_source, ce_id, redbox_claim, change)
    # A duplicate was handled before, so 2xx: the relay acknowledges the event.
    return JSONResponse({"result": result}, status_code=409 if result is Result.STALE else 200)


@app.get("/orders/{order_id}")
def show_order(order_id: str) -> dict[str, str]:
    with closing(open_database()) as db:
        found = db.execute("SELECT status FROM orders WHERE id = ?", (order_id,)).fetchone()
    if found is None:
        raise HTTPException(404, "unknown order")
    return {"status": found[0]}
