"""Each kind of publisher with its real target, and how to read the events that arrived there."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
import redis.asyncio

from redbox import Box, State, open_publisher
from redbox.consumer import read_batch
from redbox.ids import new_id
from redbox.testing.publisher_contract import Arrived, Case
from tests.kafka_cluster import KafkaCluster
from tests.nats_server import jetstream, stored
from tests.proxy import proxy
from tests.publishers.conftest import opened
from tests.publishers.queues import shop_queue
from tests.publishers.target import Reply, http_target


@asynccontextmanager
async def http_case(kind: str) -> AsyncIterator[Case]:
    """`http`, `http-structured`, or `http-batch`, which also compresses."""
    options = {"http-structured": {"cloudevents": "structured"}, "http-batch": {"batch": 20, "gzip": 100}}.get(kind, {})
    read = {"http-structured": _structured, "http-batch": _batched}.get(kind, _binary)
    async with http_target() as target, opened(target.url, **options) as publisher:

        async def arrived() -> list[Arrived]:
            return [event for request in target.requests for event in read(request)]

        @asynccontextmanager
        async def outage() -> AsyncIterator[None]:
            target.reply = Reply(close=True)
            yield
            target.reply = Reply()

        yield Case(publisher, arrived, outage, lambda: len(target.open))


def _binary(request: Any) -> list[Arrived]:
    key = request.header("ce-partitionkey")
    event = Arrived(
        unquote(request.header("ce-id")),
        unquote(request.header("ce-type")),
        request.body,
        {name.decode(): value.decode() for name, value in request.headers},
        None if key is None else unquote(key),
        request.raw_head + request.body,
    )
    return [event]


def _batched(request: Any) -> list[Arrived]:
    """As a consumer reads a batch."""
    body = gzip.decompress(request.body) if request.header("content-encoding") == "gzip" else request.body
    documents = json.loads(body)
    events = read_batch(request.headers, request.body)
    found = []
    for event, document in zip(events, documents, strict=True):
        added = {
            f"redbox-{name.removeprefix('redbox')}": text for name, text in document.items() if isinstance(text, str)
        }
        headers = json.loads(document.get("redboxheaders", "{}")) | added
        headers |= {"redbox-ordering-key": event.ordering_key} if event.ordering_key else {}
        headers |= {"traceparent": document["traceparent"]} if "traceparent" in document else {}
        found.append(Arrived(event.event_id, event.event_type or "", event.payload, headers, event.partition_key, body))
    return found


def _structured(request: Any) -> list[Arrived]:
    document = json.loads(request.body)
    if "data" in document:  # the bytes themselves, not a parsed value
        payload = request.body.partition(b'"data":')[2][:-1]
    else:
        payload = base64.b64decode(document["data_base64"])
    headers = {name.decode(): value.decode() for name, value in request.headers}
    everything = request.raw_head + request.body
    return [Arrived(document["id"], document["type"], payload, headers, document.get("partitionkey"), everything)]


@asynccontextmanager
async def redis_case(url: str) -> AsyncIterator[Case]:
    stream = "contract/stream"
    async with (
        redis.asyncio.Redis.from_url(url) as client,
        proxy(urlsplit(url).port or 0) as between,
        opened(f"{between.url.replace('redis://', 'redis+stream://')}/{stream}") as publisher,
    ):
        await client.delete(stream)

        async def arrived() -> list[Arrived]:
            return [_entry(fields) for _, fields in await client.xrange(stream)]

        yield Case(publisher, arrived, between.outage, between.connections)
        await client.delete(stream)


def _entry(fields: dict[bytes, bytes]) -> Arrived:
    prefix = b"header:"
    headers = {n.removeprefix(prefix).decode(): v.decode() for n, v in fields.items() if n.startswith(prefix)}
    key = fields.get(b"partition_key")
    everything = b"\n".join(name + b"=" + value for name, value in fields.items())
    found = fields[b"event_id"].decode(), fields[b"event_type"].decode(), fields[b"payload"], headers
    return Arrived(*found, None if key is None else key.decode(), everything)


@asynccontextmanager
async def amqp_case(port: int) -> AsyncIterator[Case]:
    async with (
        shop_queue(port) as queue,
        proxy(port) as between,
        opened(f"amqp://127.0.0.1:{between.port}/%2F/{quote(queue.exchange, safe='')}") as publisher,
    ):
        yield Case(publisher, queue.arrived, between.outage, between.connections)


@asynccontextmanager
async def nats_case(url: str) -> AsyncIterator[Case]:
    async with (
        jetstream(url) as js,
        proxy(urlsplit(url).port or 0) as between,
        opened(f"nats://127.0.0.1:{between.port}/contract") as publisher,
    ):
        await js.add_stream(name="contract", subjects=["contract"])

        async def arrived() -> list[Arrived]:
            return [_nats_message(each) for each in await stored(js, "contract")]

        yield Case(publisher, arrived, between.outage, between.connections)
        await js.delete_stream("contract")


def _nats_message(message: Any) -> Arrived:
    headers = message.headers
    key = headers.get("ce-partitionkey")
    everything = repr(headers).encode() + message.data
    found = unquote(headers["ce-id"]), unquote(headers["ce-type"]), message.data, headers
    return Arrived(*found, None if key is None else unquote(key), everything)


@asynccontextmanager
async def kafka_case(cluster: KafkaCluster) -> AsyncIterator[Case]:
    topic = f"contract-{new_id()}"
    cluster.create(topic)
    properties = {"message.max.bytes": 4 * 2**20}

    @asynccontextmanager
    async def outage() -> AsyncIterator[None]:
        cluster.down()
        yield
        cluster.up()

    async def arrived() -> list[Arrived]:
        return [_record(each) for each in await asyncio.to_thread(cluster.read, topic)]

    async with opened(f"{cluster.url}/{topic}", **properties) as publisher:
        yield Case(publisher, arrived, outage)


def _record(record: Any) -> Arrived:
    headers = {name: value.decode() for name, value in record.headers()}
    everything = repr(record.headers()).encode() + (record.key() or b"") + (record.value() or b"")
    found = headers["ce_id"], headers["ce_type"], record.value(), headers
    return Arrived(*found, headers.get("ce_partitionkey"), everything)


@asynccontextmanager
async def stdout_case(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    with path.open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)

        async def arrived() -> list[Arrived]:
            return lines(path)

        async with opened("stdout:") as publisher:
            yield Case(publisher, arrived, closes=False)


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

        yield Case(publisher, arrived, closes=False)
    monkeypatch.delitem(sys.modules, "shop_events", raising=False)


@asynccontextmanager
async def box_case(kind: str, url: str) -> AsyncIterator[Case]:
    """A box keeps events as they are: it adds no headers, and its metadata is not shown to consumers."""
    name = f"billing-{new_id()}"
    async with Box.open(url, name="orders") as orders, Box.open(url, name=name) as billing:
        target = f"box:{name}" if kind == "box" else f"box+{url}/{name}"
        publisher = open_publisher(target)
        publisher.attach(orders)

        async def arrived() -> list[Arrived]:
            found = [record.event async for record in billing.list(state=State.PENDING)]
            return [Arrived(e.event_id, e.event_type, e.payload, dict(e.headers), e.partition_key, b"") for e in found]

        async with opened(publisher):
            yield Case(publisher, arrived, closes=kind != "box")


@asynccontextmanager
async def null_case() -> AsyncIterator[Case]:
    async with opened("null:") as publisher:

        async def arrived() -> None:
            return None

        yield Case(publisher, arrived, closes=False)
