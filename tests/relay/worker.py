"""A relay in a process of its own: `python -m tests.relay.worker STORE BOX LIST LEASE ATTEMPTS [hold]`.

Publishes by appending the event's id to a list on the same server: its order is the order of deliveries. An event of
the type `poison` kills the process. Says `ready` when it is about to claim, and adds its process id to the set
`LIST:from` when it publishes. With `hold` it says `published` after each event, and never acknowledges it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys

import redis.asyncio

from redbox import Backoff, Box, Event, Relay


async def main(store: str, box_name: str, deliveries: str, lease: str, attempts: str, hold: str = "") -> None:
    client = redis.asyncio.Redis.from_url(store)
    published: list[str] = []

    async def publish(event: Event) -> None:
        if event.event_type == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        await client.rpush(deliveries, event.event_id)
        if not published:
            published.append(event.event_id)
            await client.sadd(f"{deliveries}:from", os.getpid())
        if hold:
            print("published", flush=True)
            await asyncio.Event().wait()
        await asyncio.sleep(random.uniform(0, 0.02))  # so that some are killed after publishing, and before their ack

    async with Box.open(store, name=box_name) as box:
        relay = Relay(
            box,
            publish,
            lease=float(lease),
            attempts=int(attempts),
            poll=0.2,
            reap_every=float(lease) / 4,
            backoff=Backoff.fixed(0.05),
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, relay.stop)
        print("ready", flush=True)
        await relay.run()
    await client.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
