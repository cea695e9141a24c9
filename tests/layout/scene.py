"""A box with every kind of data of layout 1, and the same box as plain data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from redbox import Box, Event, keys
from redbox.testing import advance

STORED = Path(__file__).with_name("layout-1.json")
NAME = "layout"


async def build(box: Box) -> None:
    """Fills every state, index and optional field. Ids are in the order of the puts, so that claims are too."""
    await box.operate.configure(dead_head="block", who="ada", why="layout")
    await box.put(Event("taken", {}, event_id="a-blocking", ordering_key="blocked"))
    for event_id in ("b-dead", "c-published", "d-released", "e-retried"):
        await box.put(Event("taken", {}, event_id=event_id))
    blocking, dead, published, released, retried = await box.claim("relay-1", limit=100)
    await box.kill([blocking, dead], reason="bad data")
    await box.ack(published)
    await box.release(released, delay=3600)
    await box.retry(retried, error="again", delay=3600)
    await box.put(Event("held", {}, event_id="f-claimed"))
    await box.claim("relay-2", lease=36_000)
    await box.put(Event("suspected", {}, event_id="g-suspect"))
    for _ in range(2):
        await box.claim("relay-3", lease=1, holding=1)
        await advance(box, seconds=2)
        await box.reap()
    await box.put(Event("plain.json", {"id": 1}, event_id="json"))
    await box.put(Event("plain.bytes", b"\x00\xff", event_id="bytes", headers={"a": "1"}, metadata={"m": "ä"}))
    await box.put(Event("plain.text", "text", event_id="text", partition_key="p"))
    await box.put(Event("own.type", b"<a/>", event_id="xml", content_type="application/xml"))
    await box.put(Event("later", {}, event_id="scheduled", delay=3600))
    await box.put(Event("unique", {}, event_id="unique", unique_key="u", unique_scope="UNTOUCHED", delay=60))
    for event_id in ("line-1", "line-2", "line-3"):
        await box.put(Event("ordered", {}, event_id=event_id, ordering_key="line"))
    await box.put(Event("blocked", {}, event_id="blocked", ordering_key="blocked"))


async def dump(box: Box) -> dict[str, list[Any]]:
    """Returns every key of the box except heartbeats and hints: its type and content, in a form for JSON."""
    found: dict[str, list[Any]] = {}
    store, prefix = box._store, keys.prefix(box.name)
    for raw in sorted(await (await store.exchanges.wire()).scan(prefix + "*")):
        key = raw.decode()
        (kind,) = await store.exchange([("TYPE", key)])
        kind = kind.decode() if isinstance(kind, bytes) else kind
        if kind == "hash":
            (reply,) = await store.exchange([("HGETALL", key)])
            pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
            value: Any = {_text(field): _text(each) for field, each in sorted(pairs)}
        elif kind == "zset":
            (reply,) = await store.exchange([("ZRANGE", key, 0, -1)])
            value = {_text(member): await _score(box, key, member) for member in sorted(reply)}
        elif kind == "list":
            (reply,) = await store.exchange([("LRANGE", key, 0, -1)])
            value = [_text(each) for each in reply]
        elif kind == "string":
            (reply,) = await store.exchange([("GET", key)])
            value = _text(reply)
        else:
            continue  # the log is a stream that only people read
        found[key.removeprefix(prefix)] = [kind, value]
    found.pop(":wake", None)
    return found


async def restore(box: Box, stored: dict[str, list[Any]]) -> None:
    prefix = keys.prefix(box.name)
    for name, (kind, value) in stored.items():
        key = prefix + name
        if kind == "hash":
            commands = [("HSET", key, field, _bytes(each)) for field, each in value.items()]
        elif kind == "zset":
            commands = [("ZADD", key, score, _bytes(member)) for member, score in value.items()]
        elif kind == "list":
            commands = [("RPUSH", key, *map(_bytes, value))]
        else:
            commands = [("SET", key, _bytes(value))]
        await box._store.exchange(commands)


def stored() -> dict[str, list[Any]]:
    return dict(json.loads(STORED.read_text()))


async def _score(box: Box, key: str, member: bytes) -> str:
    (reply,) = await box._store.exchange([("ZSCORE", key, member)])
    number = float(reply)
    return _text(reply) if number in (float("inf"), float("-inf")) else str(int(number))


def _text(raw: Any) -> str:
    """Bytes as text, one character for each byte."""
    return raw.decode("latin-1") if isinstance(raw, bytes) else str(raw)


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
