"""Bad requests, slow and broken clients, and a failing store: each gets its status, and nothing answers 500."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import time
from dataclasses import dataclass
from typing import Any

import pytest

from redbox import Box
from redbox.service.http.pool import Limits
from tests.servers import redis_server
from tests.service.serving import Service, serving

pytestmark = [pytest.mark.req("SF-1", "SF-4"), pytest.mark.usefixtures("redbox_runner")]

JSON = {"content-type": "application/json"}
DEEP = b"[" * 100_000
TABLE: list[tuple[str, bytes, dict[str, str], int]] = [
    ("empty body", b"", JSON, 422),
    ("malformed JSON", b'{"event_type": "a"', JSON, 422),
    ("two objects", b'{"event_type": "a"}{"event_type": "b"}', JSON, 422),
    ("an array", b'[{"event_type": "a"}]', JSON, 422),
    ("a number", b"7", JSON, 422),
    ("no event_type", b'{"payload": 1}', JSON, 422),
    ("wrong type of event_type", b'{"event_type": 7}', JSON, 422),
    ("event_type with a space", b'{"event_type": "a b"}', JSON, 422),
    ("wrong type of headers", b'{"event_type": "a", "headers": [1]}', JSON, 422),
    ("wrong type of a header", b'{"event_type": "a", "headers": {"x": 1}}', JSON, 422),
    ("reserved header", b'{"event_type": "a", "headers": {"redbox-id": "1"}}', JSON, 422),
    ("unknown field", b'{"event_type": "a", "surprise": 1}', JSON, 422),
    ("repeated field", b'{"event_type": "a", "payload": 1, "payload": 2}', JSON, 422),
    ("repeated field, escaped", b'{"event_type": "a", "event\\u005ftype": "b"}', JSON, 422),
    ("headers that differ in case", b'{"event_type": "a", "headers": {"X": "1", "x": "2"}}', JSON, 422),
    ("repeated header of the event", b'{"event_type": "a", "headers": {"x": "1", "x": "2"}}', JSON, 422),
    ("repeated header, escaped", b'{"event_type": "a", "headers": {"x": "1", "\\u0078": "2"}}', JSON, 422),
    ("repeated metadata", b'{"event_type": "a", "metadata": {"x": "1", "x": "2"}, "delay": 1}', JSON, 422),
    ("empty id", b'{"event_type": "a", "event_id": ""}', JSON, 422),
    ("long id", b'{"event_type": "a", "event_id": "%s"}' % (b"x" * 129), JSON, 422),
    ("deep payload", b'{"event_type": "a", "payload": %s' % DEEP, JSON, 422),
    ("deep and complete", b'{"event_type": "a", "payload": %s%s}' % (DEEP, b"]" * 100_000), JSON, 422),
    ("deep batch", DEEP, JSON, 422),
    ("huge number", b'{"event_type": "a", "payload": 1e999}', JSON, 422),
    ("huge delay", b'{"event_type": "a", "delay": 1e308}', JSON, 422),
    ("huge integer as delay", b'{"event_type": "a", "delay": %s}' % (b"9" * 5000), JSON, 422),
    ("negative delay", b'{"event_type": "a", "delay": -1}', JSON, 422),
    ("NaN", b'{"event_type": "a", "payload": NaN}', JSON, 422),
    ("invalid UTF-8 in the payload", b'{"event_type": "a", "payload": "\xff"}', JSON, 422),
    ("invalid UTF-8 in a field", b'{"event_type": "\xff"}', JSON, 422),
    ("a lone surrogate", b'{"event_type": "a", "ordering_key": "\\ud800"}', JSON, 422),
    ("a zero byte", b'{"event_type": "a\\u0000"}', JSON, 422),
    ("not base64", b'{"event_type": "a", "payload_base64": "?"}', JSON, 422),
    ("payload over the limit", b'{"event_type": "a", "payload": "%s"}' % (b"x" * 1024 * 1024), JSON, 413),
    ("unknown content type", b'{"event_type": "a"}', {"content-type": "text/csv"}, 415),
    ("unknown charset", b'{"event_type": "a"}', {"content-type": "application/json; charset=utf-16"}, 415),
    ("unknown encoding", b'{"event_type": "a"}', JSON | {"content-encoding": "br"}, 415),
    ("not gzip", b'{"event_type": "a"}', JSON | {"content-encoding": "gzip"}, 422),
    ("cut gzip", gzip.compress(b'{"event_type": "a"}')[:-4], JSON | {"content-encoding": "gzip"}, 422),
    ("gzip with many members", gzip.compress(b"") * 50_000, JSON | {"content-encoding": "gzip"}, 422),
    ("gzip bomb", gzip.compress(b" " * 50_000_000), JSON | {"content-encoding": "gzip"}, 413),
    ("empty idempotency key", b'{"event_type": "a"}', JSON | {"idempotency-key": '""'}, 422),
]  # fmt: skip


@pytest.mark.parametrize("path", ["events", "events:batch"])
async def test_every_bad_body_has_its_status_and_stores_nothing(redis_url: str, path: str):
    async with serving(redis_url, max_body=2 * 1024 * 1024) as service:
        for name, event, headers, status in TABLE:
            body = event
            if path == "events:batch" and "content-encoding" not in headers:
                if name in ("empty body", "an array"):
                    continue
                body = b"[" + event + b"]"
            answer = await service.client.post(f"/v1/boxes/{service.box.name}/{path}", content=body, headers=headers)
            assert answer.status_code == status, (name, answer.status_code, answer.text[:300])
            assert answer.headers["content-type"] == "application/problem+json", name
            assert answer.json()["detail"], name
        assert (await service.box.stats()).phases["AVAILABLE"] == 0
        await service.post("events", {"event_type": "a"}, 202)


@pytest.mark.parametrize(
    "name", ["idempotency-key", "content-type", "content-encoding", "ce-subject", "CE-Subject"], ids=str.lower
)
async def test_a_repeated_header_is_refused(service: Service, name: str):
    required = [("ce-specversion", "1.0"), ("ce-id", "one"), ("ce-source", "/shop"), ("ce-type", "a")]
    more = required if name.lower().startswith("ce-") else []
    headers = [*more, (name.lower(), "identity"), (name, "gzip")]
    answer = await service.client.post("/v1/events", content=b'{"event_type": "a"}', headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (422, name.lower())
    await service.request("POST", "events", 202, json={"event_type": "a"}, headers=[("x", "1"), ("x", "2")])


async def test_headers_with_quotes_are_kept(service: Service):
    headers = {"a": 'c"d', "e": "\\"}
    receipt = await service.post("events", {"event_type": "a", "headers": headers, "metadata": {"m": '"'}}, 202)
    record = await service.box.get(receipt["event_id"])
    assert record is not None
    assert (record.event.headers, record.event.metadata["m"]) == (headers, '"')


async def test_a_body_with_many_fields_is_refused_soon(service: Service):
    fields = ", ".join(f'"x{number}": 1' for number in range(100_000))
    body = f'{{"event_type": "a", "payload": {{"payload": 1}}, {fields}}}'.encode()
    before = time.thread_time()
    answer = await service.client.post("/v1/events", content=body, headers=JSON)
    assert answer.status_code == 422
    assert time.thread_time() - before < 5


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("PUT", "/v1/events", 405), ("GET", "/v1/events:batch", 405), ("POST", "/v1/event", 404),
     ("POST", "/v1/events?durabilty=fsync", 422), ("POST", "/v1/events?durability=fsync&durability=server", 422),
     ("POST", "/v1/events?durability=replicas=0", 422), ("POST", "/v1/boxes/n%6Fne/events", 404),
     ("POST", "/v1/boxes/a%20b/events", 400)],
)  # fmt: skip
async def test_wrong_paths_methods_and_parameters(service: Service, method: str, path: str, status: int):
    await service.request(method, path, status, json={"event_type": "a"})


async def test_an_event_that_is_nested_deeply_but_accepted_can_be_read(service: Service):
    for depth in (100, 900, 1000):
        body = b'{"event_type": "a", "event_id": "d%d", "payload": %s1%s}' % (depth, b"[" * depth, b"]" * depth)
        answer = await service.client.post("/v1/events", content=body, headers=JSON)
        assert answer.status_code in (202, 422)
        if answer.status_code == 202:
            await service.get(f"events/d{depth}")


GZIP = JSON | {"content-encoding": "gzip"}


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"") * 100_000, gzip.compress(b" " * 8_000_000 + b"{}", 9), gzip.compress(os.urandom(7_000_000))],
    ids=["empty members", "well compressed", "badly compressed"],
)
async def test_decompression_lets_others_have_their_turn(service: Service, content: bytes):
    """The loop is never held for long, by the time of the processor, so that a busy machine makes no difference."""
    posted = asyncio.create_task(service.client.post("/v1/events", content=content, headers=GZIP))
    longest, turns = 0.0, 0
    while not posted.done():
        before = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - before)
        turns += 1
    assert posted.result().status_code == 422
    assert longest < 0.5
    assert turns > 40  # without slices it takes less than half of that


MIB = 1024 * 1024


@dataclass(frozen=True)
class Long:
    """A body of this size that repeats a unit, in which `%` is a number. It is made when a test runs, not when every
    process collects it."""

    start: str
    unit: str
    end: str
    size: int = 8 * MIB - 1024

    def made(self) -> bytes:
        length = len(self.unit.replace("%", "0000000")) + 1
        count = self.size // length
        if "%" in self.unit:
            units = ",".join(self.unit.replace("%", f"{number:07}") for number in range(count))
        else:
            units = ",".join([self.unit] * count)
        return f"{self.start}{units}{self.end}".encode()


CLOUD = '{"specversion":"1.0","id":"1","source":"s","type":"t",'
STRUCTURED = {"content-type": "application/cloudevents+json"}
LARGE_EVENT = Long('{"event_type":"a","payload":[', "{}", "]}", MIB - 100).made().decode()


@pytest.mark.req("SF-6")
@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("events:batch", JSON, Long("[", "1", "]"), 413),
        ("events:batch", JSON, Long("[", "{}", "]"), 413),
        ("events:batch", {"content-type": "application/cloudevents-batch+json"}, Long("[", "{}", "]"), 413),
        ("events:batch", JSON, f"[{','.join([LARGE_EVENT] * 7)}]".encode(), 202),
        ("events", JSON, LARGE_EVENT.encode(), 202),
        ("events", JSON, Long('{"event_type":"a","payload":[', "{}", "]}"), 413),
        ("events", JSON, Long('{"event_type":"a","metadata":{', '"%":""', "}}"), 422),
        ("events", JSON, Long('{"event_type":"a","delay":[', "{}", "]}"), 422),
        ("events", JSON, Long('{"event_type":"a",', '"%":1', "}"), 422),
        ("events", JSON, Long('{"event_type":"a",', '"%":1', ""), 422),
        ("events", STRUCTURED, Long(CLOUD + '"data":[', "{}", "]}"), 413),
        ("events", STRUCTURED, Long(CLOUD, '"%":""', "}"), 422),
    ],
    ids=["array of numbers", "array of objects", "batch of CloudEvents", "batch of large events", "large event",
         "large payload", "metadata", "delay", "fields", "no end", "data", "attributes"],
)  # fmt: skip
async def test_reading_a_body_lets_others_have_their_turn(
    service: Service, path: str, headers: dict[str, str], body: bytes | Long, status: int
):
    """By the time of the processor, so that a busy machine makes no difference; the client uses some of it."""
    content = body.made() if isinstance(body, Long) else body
    for _ in range(2):  # the first may load modules
        posted = asyncio.create_task(service.client.post(f"/v1/{path}", content=content, headers=headers))
        longest = 0.0
        while not posted.done():
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)
        assert posted.result().status_code == status, posted.result().text[:1000]
    assert longest < 0.2


@pytest.mark.req("SF-6")
async def test_a_large_event_with_escapes_is_stored(service: Service):
    """Nothing that could be stored is refused for its size as it is written."""
    text, names = "\\u0061" * 900_000, ",".join(f'"{number}":"{chr(92)}u0061"' for number in range(4000))
    body = f'{{"event_type":"a","content_type":"text/plain","metadata":{{{names}}},"payload":"{text}"}}'
    answer = await service.client.post("/v1/events", content=body.encode(), headers=JSON)
    assert answer.status_code == 202, answer.text
    record = await service.box.get(answer.json()["event_id"])
    assert record is not None
    assert (len(record.event.payload), len(record.event.metadata)) == (900_000, 4000)


async def _raw(service: Service, *parts: bytes, wait: float = 5) -> bytes:
    """The response to what is written to a connection, part by part."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.client.base_url.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        return await asyncio.wait_for(reader.read(100_000), wait)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def _head(*lines: str, path: str = "/v1/events") -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


async def test_a_body_that_is_announced_too_large_is_refused_before_it_is_sent(redis_url: str):
    async with serving(redis_url, max_body=100_000) as service:
        for path in ("/v1/events", "/v1/events:batch"):
            answer = await _raw(service, _head("Content-Length: 100001", path=path))
            assert answer.startswith(b"HTTP/1.1 413")
            assert b"connection: close" in answer.lower()


async def test_a_chunked_body_is_refused_while_it_is_read(redis_url: str):
    async with serving(redis_url, max_body=100_000) as service:
        chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        answer = await _raw(service, _head("Transfer-Encoding: chunked"), *[chunk] * 4)  # it never ends
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in answer.lower()


async def test_a_slow_body_is_given_up(redis_url: str):
    async with serving(redis_url, limits=Limits(body_seconds=0.2)) as service:
        for sent in ([], [b'{"event_']):
            answer = await _raw(service, _head("Content-Length: 1000"), *sent)
            assert answer.startswith(b"HTTP/1.1 408")
            assert b"retry-after: 1\r\n" in answer
        assert (await service.box.stats()).phases["AVAILABLE"] == 0


async def test_a_client_that_disconnects_in_mid_body_stores_nothing(service: Service, caplog: pytest.LogCaptureFixture):
    for _ in range(3):
        _, writer = await asyncio.open_connection("127.0.0.1", service.client.base_url.port)
        writer.write(_head("Content-Length: 19") + b'{"event_type": "a"')
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    await service.post("events", {"event_type": "b"}, 202)
    assert (await service.box.stats()).phases["AVAILABLE"] == 1
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_bodies_beyond_the_memory_of_the_process_are_pushed_back(redis_url: str):
    async with serving(redis_url, max_body=100_000, max_bodies=150_000) as service:
        _, writer = await asyncio.open_connection("127.0.0.1", service.client.base_url.port)
        writer.write(_head("Content-Length: 90000") + b" " * 80_000)
        await writer.drain()
        big = json.dumps({"event_type": "a", "payload": "x" * 90_000}).encode()

        async def refused() -> Any:
            while True:
                answer = await service.client.post("/v1/events", content=big, headers=JSON)
                if answer.status_code != 202:  # until the service has read the other body
                    return answer

        answer = await asyncio.wait_for(refused(), 10)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        await service.post("events", {"event_type": "small"}, 202)
        writer.close()

        async def accepted() -> None:
            while (await service.client.post("/v1/events", content=big, headers=JSON)).status_code != 202:
                pass

        await asyncio.wait_for(accepted(), 10)


async def test_a_batch_over_the_limit_of_events_is_refused(redis_url: str):
    async with serving(redis_url, batch_events=10) as service:
        await service.post("events:batch", [{"event_type": "a"}] * 11, 413)
        await service.post("events:batch", [{"event_type": "a"}] * 10, 202)


async def test_a_payload_over_the_limit_of_its_box_is_refused_alone(redis_url: str):
    async with serving(redis_url) as service:
        events = [{"event_type": "a", "payload": "x" * size} for size in (10, 1024 * 1024, 10)]
        found = await service.post("events:batch", events, 207)
        assert [each["status"] for each in found["results"]] == ["accepted", "refused", "accepted"]
        assert found["results"][1]["problem"]["status"] == 413


async def test_a_full_store_answers_503_and_keeps_what_it_acknowledged():
    with redis_server() as server:
        async with serving(server.url) as service:
            first = await service.post("events", {"event_type": "a"}, 202)
            client = server.client()
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", 1)
            for path, body in (("events", {"event_type": "a"}), ("events:batch", [{"event_type": "a"}] * 3)):
                problem = await service.post(path, body, 503)
                assert problem["error"] == "StoreFull"
            client.config_set("maxmemory", 0)
            assert await service.box.get(first["event_id"]) is not None
            await service.post("events", {"event_type": "a"}, 202)


async def test_a_store_that_is_down_answers_503_and_has_every_acknowledged_event_afterwards():
    with redis_server(appendonly="yes", appendfsync="always") as server:
        async with serving(server.url) as service:
            ids = [(await service.post("events", {"event_type": "a"}, 202))["event_id"] for _ in range(5)]
            server.kill()
            for path, body in (("events", {"event_type": "a"}), ("events:batch", [{"event_type": "a"}] * 3)):
                answer = await service.client.post(f"/v1/boxes/{service.box.name}/{path}", json=body)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
            server.start()
            async with Box.open(server.url, name=service.box.name) as box:
                for event_id in ids:
                    assert await box.get(event_id) is not None


@pytest.mark.parametrize("body", [b"", b'{"x":', b'{"x":1}  '])
async def test_a_body_of_another_length_than_announced_is_not_stored(service: Service, body: bytes):
    """Whatever reads the request: a CloudEvent in binary mode is valid with any payload."""
    headers = {
        "host": "localhost", "content-length": "7", "content-type": "application/octet-stream", "ce-specversion": "1.0",
        "ce-id": "short", "ce-source": "/s", "ce-type": "t",
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/v1/events", "raw_path": b"/v1/events", "query_string": b"", "root_path": "", "client": ("::1", 1),
        "server": ("::1", 2), "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    await service.app(scope, receive, send)
    assert sent[0]["status"] == 400
    assert b"Content-Length says 7" in sent[1]["body"]
    assert await service.box.get("short") is None
