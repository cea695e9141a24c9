"""CloudEvents 1.0 over HTTP: binary, structured and batched, each stored as an event of redbox."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from redbox import Box, Claim, Event
from redbox.publishers.http.cloudevents import binary_headers, fixed_headers, structured
from redbox.service.ingest.cloudevents import BATCHED, STRUCTURED
from tests.service.serving import Service

pytestmark = pytest.mark.req("SF-4")

EVENT = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.placed"}


async def _stored(service: Service, event_id: str) -> Any:
    record = await service.box.get(event_id)
    assert record is not None
    return record


async def test_binary_mode_keeps_body_and_attributes(service: Service):
    headers = {
        "ce-specversion": "1.0", "ce-id": "e-1", "ce-source": "/shop", "ce-type": "order.placed",
        "ce-time": "2026-01-02T03:04:05Z", "ce-subject": "caf%C3%A9 %22x%22", "ce-comexampleother": "7",
        "ce-partitionkey": "p", "ce-redboxorderingkey": "k", "ce-redboxuniquekey": "u", "ce-redboxdelay": "1h",
        "ce-traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "content-type": "image/png",
    }  # fmt: skip
    receipt = await service.request("POST", "events", 202, content=b"\x89PNG\xff", headers=headers)
    assert receipt == {"event_id": "e-1", "created": True, "durability": "server"}
    record = await _stored(service, "e-1")
    event = record.event
    assert (event.event_type, event.encode()) == ("order.placed", (b"\x89PNG\xff", "image/png"))
    assert event.headers == {
        "cloudevents-source": "/shop",
        "cloudevents-time": "2026-01-02T03:04:05Z",
        "cloudevents-subject": 'café "x"',
        "cloudevents-comexampleother": "7",
    }
    assert event.metadata == {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    assert (event.partition_key, event.ordering_key, event.unique_key) == ("p", "k", "u")
    assert (record.available_at - record.created_at).total_seconds() == pytest.approx(3600, abs=1)
    again = await service.request("POST", "events", 202, content=b"\x89PNG\xff", headers=headers)
    assert again["created"] is False


@pytest.mark.parametrize(
    ("fields", "payload", "content_type"),
    [
        ({"data": {"id": 1}}, b'{"id":1}', "application/json"),
        ({"data": [1], "datacontenttype": "application/x+json"}, b"[1]", "application/x+json"),
        ({"data": "text"}, b'"text"', "application/json"),
        ({"data": "<a/>", "datacontenttype": "text/xml"}, b"<a/>", "text/xml"),
        ({"data_base64": base64.b64encode(b"\xff").decode()}, b"\xff", "application/octet-stream"),
        ({}, b"", "application/octet-stream"),
        ({"data": None}, b"null", "application/json"),
    ],
)
async def test_structured_mode_keeps_data(service: Service, fields: Any, payload: bytes, content_type: str):
    document = (
        EVENT | fields | {"flag": True, "number": 3, "nothing": None, "redboxavailableat": "2027-01-01T00:00:00Z"}
    )
    kind = {"content-type": f"{STRUCTURED}; charset=utf-8"}
    await service.request("POST", "events", 202, json=document, headers=kind)
    record = await _stored(service, "e-1")
    assert record.event.encode() == (payload, content_type)
    assert record.event.headers == {
        "cloudevents-source": "/shop", "cloudevents-flag": "true", "cloudevents-number": "3",
    }  # fmt: skip
    assert record.available_at == datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("path", ["events", "events:batch"])
async def test_a_batch_of_cloudevents_is_taken_on_both_paths(service: Service, path: str):
    batch = [EVENT | {"id": "a"}, EVENT | {"id": "b", "specversion": "0.3"}, EVENT | {"id": "c d"}]
    found = await service.request("POST", path, 207, json=batch, headers={"content-type": BATCHED})
    assert [each["status"] for each in found["results"]] == ["accepted", "refused", "accepted"]
    assert found["results"][1]["problem"]["field"] == "specversion"
    assert found["results"][2]["event_id"].startswith("sha256-")
    await service.request("POST", path, 422, json=EVENT, headers={"content-type": BATCHED})


async def test_what_redbox_delivers_as_cloudevents_can_be_posted_again(service: Service, redis_url: str):
    await service.post("events", {"event_type": "a.b", "payload": {"id": 7}, "event_id": "x%y"}, 202)
    (claim,) = await service.box.claim("r", limit=1)
    assert isinstance(claim, Claim)
    headers = fixed_headers("redbox/orders") | binary_headers(claim) | {"content-type": "application/json"}
    other = service.box.name + "-2"
    async with Box.open(redis_url, name=other) as box:
        await box.put(Event("first"))
        answer = await service.client.post(
            f"/v1/boxes/{other}/events", content=claim.event.encode()[0], headers=headers
        )
        assert answer.status_code == 202, answer.text
        record = await box.get(claim.event_id)
        assert record is not None
        assert record.event.encode() == claim.event.encode()
    document = structured(claim, "redbox/orders")
    await service.request("POST", "events", 409, content=document, headers={"content-type": STRUCTURED})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"specversion": None}, "specversion"),
        ({"id": ""}, "id"),
        ({"source": None}, "source"),
        ({"type": None}, "type"),
        ({"type": "has space"}, "event_type"),
        ({"Upper": "x"}, "Upper"),
        ({"extension": {}}, "extension"),
        ({"extension": 1.5}, "extension"),
        ({"redboxorderkey": "k"}, "redboxorderkey"),
        ({"redboxdelay": "soon"}, "redboxdelay"),
        ({"redboxavailableat": "tomorrow"}, "redboxavailableat"),
        ({"data": 1, "data_base64": "AA=="}, "data_base64"),
        ({"data_base64": "?"}, "data_base64"),
        ({"data_base64": 7}, "data_base64"),
        ({"data": {}, "datacontenttype": "text/plain"}, "data"),
        ({"datacontenttype": "json"}, "content_type"),
        ({"subject": "line\nbreak"}, "headers"),
    ],
)
async def test_an_invalid_attribute_is_named(service: Service, change: dict[str, Any], field: str):
    document = {name: value for name, value in (EVENT | change).items() if value is not None}
    problem = await service.request("POST", "events", 422, json=document, headers={"content-type": STRUCTURED})
    assert problem["field"] == field


async def test_invalid_binary_requests_are_refused(service: Service):
    good = {f"ce-{name}": value for name, value in EVENT.items()}
    for change, field in (
        ({"ce-specversion": "2.0"}, "specversion"),
        ({"ce-datacontenttype": "text/plain"}, "ce-datacontenttype"),
        ({"ce-with-dash": "x"}, "with-dash"),
        ({"ce-subject": "%ff"}, "ce-subject"),
        ({"content-type": "application/json"}, "payload"),
    ):
        problem = await service.request("POST", "events", 422, content=b"{not json", headers=good | change)
        assert problem["field"] == field


@pytest.mark.parametrize(
    "rest",
    [
        b'"id": "e-2"',
        b'"i\\u0064": "e-2"',
        b'"data": 1, "data": 2',
        b",".join(b'"a%d": 1' % number for number in range(20)) + b', "a7": 2',
    ],
)
async def test_a_repeated_attribute_is_refused(service: Service, rest: bytes):
    """Programs differ in which one they take."""
    body = json.dumps(EVENT).encode()[:-1] + b", " + rest + b"}"
    answer = await service.request("POST", "events", 422, content=body, headers={"content-type": STRUCTURED})
    assert "is given more than once" in answer["detail"]
    batch = {"content-type": BATCHED}
    found = await service.request("POST", "events:batch", 422, content=b"[%s]" % body, headers=batch)
    assert found["results"][0]["status"] == "refused"
    assert await service.box.get("e-1") is None
    assert await service.box.get("e-2") is None


async def test_data_may_repeat_names(service: Service):
    body = json.dumps(EVENT).encode()[:-1] + b', "data": {"id": 1, "id": 2, "type": 3}}'
    await service.request("POST", "events", 202, content=body, headers={"content-type": STRUCTURED})
    assert (await _stored(service, "e-1")).event.encode()[0] == b'{"id": 1, "id": 2, "type": 3}'
