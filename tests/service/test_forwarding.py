"""From one redbox to another over HTTP, in batches, through a real `redbox serve`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from redbox import Box, Event, InvalidEvent, Phase, Reject, Relay
from redbox.service.ingest.cloudevents import from_structured
from redbox.testing.plugin import new_box_name
from tests.publishers.conftest import opened

pytestmark = [pytest.mark.req("SF-2", "SF-4", "PC-3"), pytest.mark.usefixtures("redbox_runner")]


@asynccontextmanager
async def redbox_serve(url: str, box: str) -> AsyncIterator[str]:
    """The URL of a running `redbox serve`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "redbox", "--json", "--url", url, "--box", box, "serve", "--port", "0",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        found, said = "", ""
        async with asyncio.timeout(30):
            while not found:
                line = (await process.stdout.readline()).decode()
                assert line, f"redbox serve ended: {said}"
                said += line
                with suppress(ValueError, AttributeError):
                    found = json.loads(line).get("url", "")
        yield found
    finally:
        process.terminate()
        await process.communicate()


def various() -> list[Event]:
    return [
        Event("order.paid", {"id": 7}, ordering_key="order-7", partition_key="p", headers={"X-Tenant": "ü", "a": "b"}),
        Event("order.paid", b'{ "spaces": true }\n', content_type="application/json"),
        Event("mail.sent", "Grüße\n"),
        Event("image", bytes(range(256)), content_type="image/png"),
        Event("empty", b""),
        Event("traced", {}, metadata={"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}),
        *(Event("many", {"n": number}) for number in range(200)),
    ]


async def test_batches_arrive_unchanged_and_once(redbox_box: Box, redis_url: str):
    name, events = new_box_name(), various()
    async with redbox_serve(redis_url, name) as url, Box.open(redis_url, name=name) as there:
        await redbox_box.put_many(events)
        options = {"batch": 50, "gzip": 500}
        summary = await Relay(redbox_box, f"{url}/v1/events", options=options, concurrency=100).drain()
        assert (summary.published, summary.retried, summary.dead) == (len(events), 0, 0)
        assert (await there.stats()).phases[Phase.AVAILABLE] == len(events)
        for event in events:
            record = await there.get(event.event_id)
            assert record is not None
            found = record.event
            assert (found.event_type, found.encode()) == (event.event_type, event.encode())
            assert (found.ordering_key, found.partition_key) == (event.ordering_key, event.partition_key)
            assert {name: text for name, text in found.headers.items() if not name.startswith("cloudevents-")} == dict(
                event.headers
            )
            assert not [name for name in found.headers if "redbox" in name]


async def test_a_batch_that_is_delivered_again_stores_nothing_twice(redbox_box: Box, redis_url: str):
    name = new_box_name()
    async with redbox_serve(redis_url, name) as url, Box.open(redis_url, name=name) as there:
        await redbox_box.put_many(various())
        claims = await redbox_box.claim("relay-1", limit=100)
        async with opened(f"{url}/v1/events", batch=100) as publisher:
            assert set(await publisher.publish_many(claims)) == {None}
            await redbox_box.release(claims)  # the acknowledgement was lost
            again = await redbox_box.claim("relay-2", limit=100)
            assert [claim.number for claim in again] != [claim.number for claim in claims]
            assert set(await publisher.publish_many(again)) == {None}
        assert (await there.stats()).phases[Phase.AVAILABLE] == 100


@pytest.mark.parametrize("headers", ["{", "[]", '{"a":5}', "[" * 5000, '{"a":"1","a":"2"}', '{"A":"1","a":"2"}'])
def test_headers_that_cannot_be_read(headers: str):
    document = {"specversion": "1.0", "id": "a", "type": "t", "source": "/s", "redboxheaders": headers}
    with pytest.raises(InvalidEvent, match="redboxheaders"):
        from_structured(json.dumps(document).encode())


async def test_one_refused_event_of_a_batch(redbox_box: Box, redis_url: str):
    name, events = new_box_name(), [Event("a", {"n": number}, event_id=f"e{number}") for number in range(30)]
    async with redbox_serve(redis_url, name) as url, Box.open(redis_url, name=name) as there:
        await there.put(Event("a", "another content", event_id="e7"))
        await redbox_box.put_many(events)
        claims = await redbox_box.claim("relay-1", limit=100)
        async with opened(f"{url}/v1/events", batch=100) as publisher:
            outcomes = await publisher.publish_many(claims)
            ((refused, outcome),) = [(c, o) for c, o in zip(claims, outcomes, strict=True) if o is not None]
            assert refused.event_id == "e7"
            assert isinstance(outcome, Reject)
            assert "409" in str(outcome)
            (alone,) = await publisher.publish_many([refused])  # all of its events are refused
            assert isinstance(alone, Reject)
        assert (await there.stats()).phases[Phase.AVAILABLE] == 30
