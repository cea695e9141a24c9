"""The event and the application's own Redis writes in one MULTI/EXEC: both, or neither.

python examples/transactional_put.py
"""

import asyncio
import os
from uuid import uuid4

from redbox import Box, Conflict, Event

REDBOX_URL = os.environ.get("REDBOX_URL", "embedded:./.redbox")  # or redis://localhost:6379/0


async def check_out(box: Box, cart: str) -> int:
    """Takes one piece from the stock and tells the world; returns what is left of it."""
    async with box.transaction() as tx:
        # Nothing is sent yet: these lines only queue. On a cluster all keys of a transaction must be in the box's slot,
        # and `tx.key` names one that is; on a single server any key will do.
        tx.redis.decr(tx.key("stock"))
        tx.redis.hset(tx.key(f"cart-{cart}"), mapping={"status": "ordered"})
        # While this event is not delivered, no other with the same unique_key can be put.
        tx.put(Event("cart.ordered", {"cart": cart}, unique_key=f"cart-{cart}"))
    # Committed. There is a reply for each command and a receipt for each event, in the order they were queued.
    left, _ = tx.results
    (receipt,) = tx.receipts
    print(f"ordered: {left} left, event {receipt.event_id}, created: {receipt.created}")
    return int(left)


async def read_stock(box: Box) -> int:
    async with box.transaction() as tx:  # any client on the same server does as well
        tx.redis.get(tx.key("stock"))
    return int(tx.results[0])


async def main() -> None:
    async with Box.open(REDBOX_URL, name="carts") as box:
        async with box.transaction() as tx:
            tx.redis.set(tx.key("stock"), 10)

        cart = uuid4().hex[:8]
        await check_out(box, cart)

        # A second click on "order": the event is refused, so the stock is not touched either.
        try:
            await check_out(box, cart)
        except Conflict as conflict:
            print(f"refused: event {conflict.holder} is on its way already")
        print(f"stock: {await read_stock(box)}")

        # An error inside the block: nothing is sent at all.
        try:
            async with box.transaction() as tx:
                tx.redis.decr(tx.key("stock"))
                tx.put(Event("cart.ordered", {"cart": "another"}))
                raise RuntimeError("the payment failed")
        except RuntimeError as error:
            print(f"given up: {error}")
        print(f"stock: {await read_stock(box)}")


# What Redis does not do is roll back: a command of your own that fails inside EXEC, such as DECR of a text, leaves the
# others done and the event stored. You get PartlyCommitted then, which says so.

if __name__ == "__main__":
    asyncio.run(main())
