"""Each kind of publisher with its real target, and how to read the events that arrived there."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import redis.asyncio

from redbox.publishers import Publisher
from tests.publishers.conftest import opened
from tests.publishers.target import http_target


@dataclass
class Arrived:
    """One event as a consumer reads it; `everything` is all data that the target received for it."""

    event_id: str
    event_type: str
    payload: bytes
    headers: dict[str, str]
    partition_key: str | None
    everything: bytes


@dataclass
class Case:
    """An open publisher, and its target."""

    publisher: Publisher
    arrived: Callable[[], Any]


@asynccontextmanager
async def http_case(structured: bool) -> AsyncIterator[Case]:
    async with (
        http_target() as target,
        opened(target.url, cloudevents="structured" if structured else "binary") as publisher,
    ):

        async def arrived() -> list[Arrived]:
            return [(_structured if structured else _binary)(request) for request in target.requests]

        yield Case(publisher, arrived)


def _binary(request: Any) -> Arrived:
    key = request.header("ce-partitionkey")
    return Arrived(
        unquote(request.header("ce-id")),
        unquote(request.header("ce-type")),
        request.body,
        {name.decode(): value.decode() for name, value in request.headers},
        None if key is None else unquote(key),
        request.raw_head + request.body,
    )


def _structured(request: Any) -> Arrived:
    document = json.loads(request.body)
    if "data" in document:  # the bytes themselves, not a parsed value
        payload = request.body.partition(b'"data":')[2][:-1]
    else:
        payload = base64.b64decode(document["data_base64"])
    headers = {name.decode(): value.decode() for name, value in request.headers}
    everything = request.raw_head + request.body
    return Arrived(document["id"], document["type"], payload, headers, document.get("partitionkey"), everything)


@asynccontextmanager
async def redis_case(url: str) -> AsyncIterator[Case]:
    stream = "contract/stream"
    where = url.replace("redis://", "redis+stream://")
    async with redis.asyncio.Redis.from_url(url) as client, opened(f"{where}/{stream}") as publisher:
        await client.delete(stream)

        async def arrived() -> list[Arrived]:
            return [_entry(fields) for _, fields in await client.xrange(stream)]

        yield Case(publisher, arrived)
        await client.delete(stream)


def _entry(fields: dict[bytes, bytes]) -> Arrived:
    prefix = b"header:"
    headers = {n.removeprefix(prefix).decode(): v.decode() for n, v in fields.items() if n.startswith(prefix)}
    key = fields.get(b"partition_key")
    everything = b"\n".join(name + b"=" + value for name, value in fields.items())
    found = fields[b"event_id"].decode(), fields[b"event_type"].decode(), fields[b"payload"], headers
    return Arrived(*found, None if key is None else key.decode(), everything)


@asynccontextmanager
async def stdout_case(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    with path.open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)

        async def arrived() -> list[Arrived]:
            return lines(path)

        async with opened("stdout:") as publisher:
            yield Case(publisher, arrived)


def lines(path: Path) -> list[Arrived]:
    return [read_line(line) for line in path.read_bytes().splitlines(keepends=True)]


def read_line(line: bytes) -> Arrived:
    """Parses one line of JSON, as a consumer would."""
    assert line.endswith(b"\n")
    document = json.loads(line)
    if "payload_base64" in document:
        payload = base64.b64decode(document["payload_base64"])
    elif document["content_type"].startswith("text/"):
        payload = document["payload"].encode()
    else:
        payload = line.rpartition(b'"payload":')[2][:-2]
    found = document["event_id"], document["event_type"], payload, document["headers"], document["partition_key"]
    return Arrived(*found, line)


@asynccontextmanager
async def function_case(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    """Functions get the event itself, with all its fields."""
    (path / "shop_events.py").write_text(
        "got = []\n"
        "async def publish(event, claim):\n    got.append((event, claim))\n"
        "def plain(event, claim):\n    got.append((event, claim))\n"
    )
    monkeypatch.chdir(path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shop_events", raising=False)
    async with opened(f"python:shop_events:{'plain' if kind == 'plain' else 'publish'}") as publisher:
        got = sys.modules["shop_events"].got

        async def arrived() -> list[Arrived]:
            return [Arrived(e.event_id, e.event_type, e.payload, dict(e.headers), e.partition_key, b"") for e, _ in got]

        yield Case(publisher, arrived)
    monkeypatch.delitem(sys.modules, "shop_events", raising=False)


@asynccontextmanager
async def null_case() -> AsyncIterator[Case]:
    async with opened("null:") as publisher:

        async def arrived() -> None:
            return None

        yield Case(publisher, arrived)
