"""The contract of every publisher, tested with its real target. A new kind is added to KINDS."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from redbox.publishers.base import Publisher
from tests.publishers.claims import new_claim
from tests.publishers.kinds import Case, function_case, http_case, null_case, redis_case, stdout_case

KINDS = ("http", "http-structured", "redis-stream", "stdout", "python", "plain", "null")
#: Which targets can show events and headers: functions get the event itself, and null: keeps nothing.
WITH_TARGET = ("http", "http-structured", "redis-stream", "stdout", "python", "plain")
WITH_HEADERS = ("http", "http-structured", "redis-stream", "stdout")

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

Opener = Callable[[], AbstractAsyncContextManager[Case]]

PAYLOADS = {
    "json": (b'{"id": 42,  "text":"\xc3\xa9"}', "application/json"),
    "json-lines": (b'{\r\n  "id": 42\n}\n', "application/json"),
    "json-twice-the-name": (b'{"a":1,"a":2.50e1}', "application/vnd.shop+json"),
    "not-json": (b'{"id": ', "application/json"),
    "empty": (b"", "application/octet-stream"),
    "empty-json": (b"", "application/json"),
    "random": (random.Random(7).randbytes(4096), "application/octet-stream"),
    "invalid-utf8": (b"caf\xe9 \xff\x00", "text/plain; charset=utf-8"),
    "text": ("zwei\nZeilen: ü €\r\n".encode(), "text/plain; charset=utf-8"),
    "mebibyte": (random.Random(8).randbytes(2**20), "application/octet-stream"),
}


@pytest.fixture
def open_case(request: pytest.FixtureRequest, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opener:
    if kind.startswith("http"):
        return lambda: http_case(structured=kind == "http-structured")
    if kind == "redis-stream":
        url = request.getfixturevalue("redis_url")
        return lambda: redis_case(url)
    if kind == "stdout":
        return lambda: stdout_case(tmp_path / "lines", monkeypatch)
    if kind == "null":
        return null_case
    return lambda: function_case(kind, tmp_path, monkeypatch)


@pytest.mark.req("PC-1")
@pytest.mark.parametrize("kind", KINDS)
async def test_returning_means_acknowledged(redbox_runner, open_case: Opener):
    async with open_case() as case:
        claim = new_claim()
        await case.publisher.publish(claim)
        arrived = await case.arrived()
        assert arrived is None or [each.event_id for each in arrived] == [claim.event_id]


@pytest.mark.req("PC-2", "EM-3")
@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("kind", WITH_TARGET)
async def test_the_payload_arrives_byte_for_byte(redbox_runner, open_case: Opener, payload: str):
    data, content_type = PAYLOADS[payload]
    async with open_case() as case:
        await case.publisher.publish(new_claim(data, content_type=content_type))
        (arrived,) = await case.arrived()
        assert arrived.payload == data


@pytest.mark.req("PC-2")
@pytest.mark.parametrize("kind", WITH_TARGET)
async def test_id_type_and_partition_key_arrive(redbox_runner, open_case: Opener):
    async with open_case() as case:
        claim = new_claim(event_id='a"b%20~', event_type="größe.geändert", partition_key='key "7" 100% ü')
        await case.publisher.publish(claim)
        await case.publisher.publish(new_claim())
        first, second = await case.arrived()
        assert (first.event_id, first.event_type) == ('a"b%20~', "größe.geändert")
        assert (first.partition_key, second.partition_key) == ('key "7" 100% ü', None)


@pytest.mark.req("PC-2", "EM-9")
@pytest.mark.parametrize("kind", WITH_HEADERS)
async def test_headers_arrive_unchanged(redbox_runner, open_case: Opener):
    headers = {
        "X-Tenant": "a, b;  c",
        "x-text": "日本 é\t\x80",
        "X_dots.and~more": "1",
        "Accept": "text/x",
        "empty": "",
    }
    async with open_case() as case:
        await case.publisher.publish(new_claim(headers=headers, number=31, attempts=4))
        (arrived,) = await case.arrived()
        assert {name: arrived.headers.get(name) for name in headers} == headers
        assert (arrived.headers["redbox-claim"], arrived.headers["redbox-attempt"]) == ("31", "4")
        assert "traceparent" not in arrived.headers


@pytest.mark.req("EM-8", "EM-9")
@pytest.mark.parametrize("kind", WITH_HEADERS)
async def test_metadata_is_not_delivered_except_the_trace(redbox_runner, open_case: Opener):
    metadata = {"traceparent": TRACE, "tracestate": "hidden-state", "hidden-name": "hidden-value"}
    async with open_case() as case:
        await case.publisher.publish(new_claim(metadata=metadata, unique_key="hidden-key"))
        await case.publisher.publish(new_claim(metadata=metadata, headers={"Traceparent": "own"}))
        first, second = await case.arrived()
        assert b"hidden" not in first.everything + second.everything
        assert first.headers["traceparent"] == TRACE
        assert second.headers["Traceparent"] == "own"
        assert TRACE.encode() not in second.everything


@pytest.mark.req("EM-8")
@pytest.mark.parametrize("kind", WITH_HEADERS)
async def test_a_malformed_trace_is_not_delivered(redbox_runner, open_case: Opener):
    """`put` accepts any metadata; invalid metadata must not prevent the delivery."""
    async with open_case() as case:
        await case.publisher.publish(new_claim(metadata={"traceparent": f"{TRACE}\r\nx-forged: 1"}))
        (arrived,) = await case.arrived()
        assert "traceparent" not in arrived.headers
        assert b"forged" not in arrived.everything


@pytest.mark.req("PC-3")
@pytest.mark.parametrize("kind", KINDS)
async def test_two_hundred_concurrent_calls(redbox_runner, open_case: Opener):
    claims = [new_claim(b'{"n":%d}' % number, number=number) for number in range(1, 201)]
    async with open_case() as case:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for claim in claims:
                group.create_task(case.publisher.publish(claim))
        arrived = await case.arrived()
    if arrived is not None:
        assert {each.event_id: each.payload for each in arrived} == {c.event_id: c.event.payload for c in claims}
        assert len(arrived) == len(claims)


@pytest.mark.req("PC-3")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_batch_has_an_outcome_for_each_event(redbox_runner, open_case: Opener):
    async with open_case() as case:
        claims = [new_claim(number=number) for number in range(1, 1 + min(50, max(3, case.publisher.many)))]
        outcomes = await case.publisher.publish_many(claims)
        assert list(outcomes) == [None] * len(claims)
        arrived = await case.arrived()
        assert arrived is None or [each.event_id for each in arrived] == [claim.event_id for claim in claims]
        assert list(await case.publisher.publish_many([])) == []


@pytest.mark.req("PC-3")
@pytest.mark.parametrize("kind", WITH_TARGET)
async def test_a_cancelled_publish_does_not_affect_others(redbox_runner, open_case: Opener):
    """Cancels after 0, 1, 2, ... turns of the event loop, until a publish completes before it is cancelled."""
    async with asyncio.timeout(100), open_case() as case:
        for turns in range(1000):
            task = asyncio.ensure_future(case.publisher.publish(new_claim()))
            for _ in range(turns):
                await asyncio.sleep(0)
            ended = task.done()
            task.cancel()
            await asyncio.wait([task])
            after = new_claim()
            await _publish_soon(case.publisher, after)
            assert (await case.arrived())[-1].event_id == after.event_id
            if ended:
                break
        assert ended


async def _publish_soon(publisher: Publisher, claim) -> None:
    """Publishes, and waits for a cancelled write that may still be running."""
    while True:
        try:
            return await publisher.publish(claim)
        except Exception as error:
            if "an earlier write" not in str(error):
                raise
            await asyncio.sleep(0)


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_is_safe_at_any_time(redbox_runner, open_case: Opener):
    async with open_case() as case:
        await case.publisher.aclose()
        await case.publisher.aclose()
        assert case.publisher.target
