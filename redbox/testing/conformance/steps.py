"""Steps of several test modules, and access to stored data that the public API does not show."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from redbox import Box, Claim, Event, Record, keys
from redbox.testing import advance

#: The W3C trace context of a span.
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_READ = {
    b"string": lambda key: ("GET", key),
    b"hash": lambda key: ("HGETALL", key),
    b"list": lambda key: ("LRANGE", key, 0, -1),
    b"zset": lambda key: ("ZRANGE", key, 0, -1, "WITHSCORES"),
    b"stream": lambda key: ("XRANGE", key, "-", "+"),
}


async def known(box: Box, event_id: str) -> Record:
    """Returns the record of an event, which must exist."""
    record = await box.get(event_id)
    assert record is not None, f"there is no event {event_id}"
    return record


async def claim_one(box: Box, relay: str = "relay-1", **options: Any) -> Claim:
    """Claims exactly one event."""
    (claim,) = await box.claim(relay, **options)
    return claim


async def claim_soon(box: Box, relay: str = "relay-1") -> Claim:
    """Claims an event that becomes available within a millisecond, if time must not be moved in the data."""
    for _ in range(1000):
        if claims := await box.claim(relay):
            (claim,) = claims
            return claim
    raise AssertionError("no event became available")


async def put_and_claim(box: Box, event: Event | None = None, relay: str = "relay-1", **options: Any) -> Claim:
    """Puts and claims an event, in a box where no other is available."""
    await box.put(event or Event("user.created"))
    return await claim_one(box, relay, **options)


async def publish(box: Box, *events: Event) -> list[str]:
    """Puts events and makes them PUBLISHED, in a box where no others are available."""
    ids = [receipt.event_id for receipt in await box.put_many(events)]
    assert await box.ack(await box.claim("publisher", limit=len(ids))) == [True] * len(ids)
    return ids


async def make_dead(box: Box, *events: Event, reason: str = "rejected") -> list[str]:
    """Puts events and makes them DEAD, in a box where no others are available."""
    ids = [receipt.event_id for receipt in await box.put_many(events)]
    assert await box.kill(await box.claim("publisher", limit=len(ids)), reason=reason) == [True] * len(ids)
    return ids


async def fail(box: Box, claims: Claim | list[Claim], **options: Any) -> list[bool]:
    """Settles claims as failed, without a delay, and moves time to when the events are available again."""
    settled = await box.retry(claims, **options)
    await advance(box, milliseconds=1)
    return settled


async def expire(box: Box, **options: Any) -> list[str]:
    """Ends every lease and reaps."""
    await advance(box, minutes=10)
    return await box.reap(**options)


async def store_time(box: Box) -> datetime:
    """Returns the time of the store, in whole milliseconds."""
    (clock,) = await box._store.exchange([("TIME",)])
    return datetime.fromisoformat("1970-01-01T00:00:00+00:00") + timedelta(
        seconds=int(clock[0]), milliseconds=int(clock[1]) // 1000
    )


async def fields_of(box: Box, event_id: str) -> dict[str, str]:
    """Returns the stored hash of an event."""
    (reply,) = await box._store.exchange([("HGETALL", keys.event(box.name, event_id))])
    flat = [part for pair in reply.items() for part in pair] if isinstance(reply, dict) else reply
    return {flat[at].decode(): flat[at + 1].decode() for at in range(0, len(flat), 2)}


async def body_of(box: Box, event_id: str) -> bytes:
    """Returns the stored body of an event."""
    (body,) = await box._store.exchange([("GET", keys.body(box.name, event_id))])
    assert isinstance(body, bytes)
    return body


async def contents(box: Box) -> dict[str, Any]:
    """Returns every key of the box with its value."""
    store = box._store
    found = sorted(raw.decode() for raw in await (await store.exchanges.wire()).scan(f"{keys.prefix(box.name)}*"))
    if not found:
        return {}
    types = await store.exchange([("TYPE", key) for key in found])
    values = await store.exchange([_READ[kind](key) for key, kind in zip(found, types, strict=True)])
    return dict(zip(found, values, strict=True))
