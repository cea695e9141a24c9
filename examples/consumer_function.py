"""A plain function that handles each event once, wherever its deliveries come from: here a Redis stream.

python examples/consumer_function.py

The guard needs only the id of an event; its claim number and its ordering key let it refuse late deliveries too.
"""

import os
from typing import Any

import redis

from redbox.consumer import StaleDelivery, SyncGuard

STREAM = "orders"


def handle(guard: SyncGuard, entry: dict[str, str]) -> str:
    key = entry.get("ordering_key")
    try:
        with guard.once(entry["event_id"], claim=int(entry["header:redbox-claim"]), ordering_key=key) as first:
            if not first:
                return "duplicate"
            print(f"{entry['event_type']}: {entry['payload']}")  # the work itself
            return "handled"
    except StaleDelivery:
        return "stale"


def main() -> None:
    url = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
    client: Any = redis.Redis.from_url(url, decode_responses=True)
    guard = SyncGuard(client, name="printer")
    for _, entry in client.xrange(STREAM):
        print(entry["event_id"], handle(guard, entry))
    client.close()


if __name__ == "__main__":
    main()
