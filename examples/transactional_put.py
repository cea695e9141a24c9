"""The event and the application's own Redis writes in one MULTI/EXEC: both, or neither.

python examples/transactional_put.py
"""

import asyncio
import os
from uuid import uuid4

from redbox import Box, Conflict, Event

REDBOX_URL = os.environ.get("REDBOX_URL", "embedded:./.redbox")  # or redis://localhost:6379/0


async def check_out(box: Box, cart: str) -> int:
    """Takes one item from the stock and puts the event; returns the remaining stock."""
    async with box.transaction() as tx:
        # Nothing is sent yet: these calls only queue. On a cluster all keys of a transaction must be in the box's slot,
        # and `tx.key` returns such a key; on a single server any key works.
        tx.redis.decr(tx.key("stock"))
        tx.redis.hset(tx.key(f"cart-{cart}"), mapping={"status": "ordered"})
        # Until this event is delivered, another event with the same unique_key is refused.
        tx.put(Event("cart.ordered", {"cart": cart}, unique_key=f"cart-{cart}"))
    # Committed. There is one reply per command and one receipt per event, in the order in which they were queued.
    left, _ = tx.results
    (receipt,) = tx.receipts
    print(f"ordered: {left} left, event {receipt.event_id}, created: {receipt.created}")
    return int(left)


async def read_stock(box: Box) -> int:
    async with box.transaction() as tx:  # any client of the same server works too
        tx.redis.get(tx.key("stock"))
    return int(tx.results[0])


async def main() -> None:
    async with Box.open(REDBOX_URL, name="carts") as box:
        async with box.transaction() as tx:
            tx.redis.set(tx.key("stock"), 10)

        cart = uuid4().hex[:8]
        await check_out(box, cart)

        # A second click on "order": the event is refused, so the stock does not change either.
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


# Redis does not roll back. If one of your own commands fails inside EXEC, such as DECR of a text, the other commands
# are done and the event is stored. redbox then raises PartlyCommitted.

if __name__ == "__main__":
    asyncio.run(main())
