"""Ingest over HTTP, on a real server: one event, batches, idempotency and durability."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from redbox import Box, Event
from redbox.errors import DurabilityNotReached, Effect, PayloadTooLarge, StoreError, StoreFull, StoreUnavailable
from redbox.store.store import Store
from tests.service.serving import Service

pytestmark = pytest.mark.req("SF-1", "SF-4")


async def _records(box: Box) -> dict[str, Any]:
    return {record.event_id: record async for record in box.list(state="PENDING")}


async def test_an_answer_means_that_the_event_is_stored_as_it_was_sent(service: Service):
    body = (
        b'{"event_type": "user.created", "payload": {"id": 42,  "f": 1.50}, "headers": {"h": "1"}, "ordering_key": "k"}'
    )
    receipt = await service.request(
        "POST", "/v1/events", 202, content=body, headers={"content-type": "application/json"}
    )
    assert receipt == {"event_id": receipt["event_id"], "created": True, "durability": "server"}
    record = await service.box.get(receipt["event_id"])
    assert record is not None
    assert record.event.encode() == (b'{"id": 42,  "f": 1.50}', "application/json")
    assert (record.event.headers, record.event.ordering_key) == ({"h": "1"}, "k")


async def test_a_form_of_curl_and_a_body_without_a_type_are_json(service: Service):
    for kind in ({"content-type": "application/x-www-form-urlencoded"}, {}):
        await service.request("POST", "events", 202, content=b'{"event_type": "a"}', headers=kind)


async def test_a_repeat_gets_the_same_receipt_and_stores_nothing(service: Service):
    event = {"event_type": "a", "payload": 1, "event_id": "one"}
    first = await service.post("events", event, 202)
    again = await service.post("events", event, 202)
    assert (first["created"], again["created"]) == (True, False)
    assert first["event_id"] == again["event_id"] == "one"
    problem = await service.post("events", event | {"payload": 2}, 409)
    assert (problem["error"], problem["event_id"]) == ("IdReused", "one")
    assert len(await _records(service.box)) == 1


@pytest.mark.parametrize(
    ("key", "event_id"),
    [
        ("order-7", "order-7"),
        ('"order-8"', "order-8"),
        ("with a space", "sha256-5b8d5d5c"),
        ("x" * 200, "sha256-"),
    ],
)
async def test_an_idempotency_key_is_the_id_of_an_event_without_one(service: Service, key: str, event_id: str):
    headers = {"Idempotency-Key": key}
    first = await service.request("POST", "events", 202, json={"event_type": "a"}, headers=headers)
    again = await service.request("POST", "events", 202, json={"event_type": "a"}, headers=headers)
    assert (first["created"], again["created"]) == (True, False)
    assert first["event_id"] == again["event_id"]
    assert first["event_id"].startswith(event_id[:7])
    await service.request("POST", "events", 409, json={"event_type": "b"}, headers=headers)
    own = await service.request("POST", "events", 202, json={"event_type": "a", "event_id": "own"}, headers=headers)
    assert own == {"event_id": "own", "created": True, "durability": "server"}


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
async def test_a_batch_has_a_result_for_each_event_in_order(service: Service, kind: str):
    await service.box.put(Event("a", event_id="stored"))
    await service.box.put(Event("a", unique_key="u", event_id="holder"))
    events: list[Any] = [
        {"event_type": "a", "event_id": "one"},
        {"event_type": "a", "event_id": "stored", "payload": None},
        {"event_type": "a", "surprise": 1},
        {"event_type": "b", "event_id": "stored"},
        {"event_type": "a", "unique_key": "u", "event_id": "two"},
        7,
        {"event_type": "a", "event_id": "three"},
    ]
    texts = [json.dumps(each) for each in events]
    content = "[" + ",".join(texts) + "]" if kind == "application/json" else "\n".join(texts) + "\n\n"
    found = await service.request("POST", "events:batch", 207, content=content, headers={"content-type": kind})
    assert (found["accepted"], found["repeated"], found["refused"]) == (2, 1, 4)
    assert [each["status"] for each in found["results"]] == [
        "accepted", "repeated", "refused", "refused", "refused", "refused", "accepted",
    ]  # fmt: skip
    assert [each.get("problem", {}).get("error") for each in found["results"]] == [
        None, None, "InvalidEvent", "IdReused", "Conflict", "InvalidEvent", None,
    ]  # fmt: skip
    assert set(await _records(service.box)) == {"stored", "holder", "one", "three"}
    everything = [{"event_type": "a", "event_id": f"all-{n}"} for n in range(700)]
    found = await service.post("events:batch", everything, 202)
    assert [each["event_id"] for each in found["results"]] == [each["event_id"] for each in everything]
    assert found["durability"] == "server"


async def test_a_batch_can_be_repeated_under_an_idempotency_key(service: Service):
    events = [{"event_type": "a", "payload": n} for n in range(3)]
    headers = {"Idempotency-Key": "batch-1"}
    first = await service.request("POST", "events:batch", 202, json=events, headers=headers)
    again = await service.request("POST", "events:batch", 202, json=events, headers=headers)
    assert (first["accepted"], again["repeated"]) == (3, 3)
    assert [each["event_id"] for each in first["results"]] == [each["event_id"] for each in again["results"]]
    assert (await service.post("events:batch", [], 202))["results"] == []


async def test_a_batch_of_which_nothing_is_stored_has_the_status_of_its_problem(service: Service):
    found = await service.post("events:batch", [{"event_type": ""}, {"payload": 1}], 422)
    assert len(found["results"]) == 2
    await service.box.operate.configure(who="test", why="", max_pending=1)
    await service.box.put(Event("a"))
    answer = await service.client.post(f"/v1/boxes/{service.box.name}/events:batch", json=[{"event_type": "a"}] * 2)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


async def _lose_the_second_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call of a put is carried out, but its reply is lost."""
    calls = []
    put = Store.put

    async def losing(store: Store, mode: Any, events: Any, *rest: Any) -> Any:
        calls.append(len(events))
        replies = await put(store, mode, events, *rest)
        if len(calls) == 2:
            raise StoreUnavailable("the connection was lost").with_effect(Effect.UNKNOWN)
        return replies

    monkeypatch.setattr(Store, "put", losing)


async def test_an_event_that_may_be_stored_is_not_refused(service: Service, monkeypatch: pytest.MonkeyPatch):
    await _lose_the_second_reply(monkeypatch)
    events = [{"event_type": "a", "event_id": f"e{number}"} for number in range(600)]
    found = await service.post("events:batch", events, 207)
    assert [each["status"] for each in found["results"]] == ["accepted"] * 250 + ["unknown"] * 250 + ["refused"] * 100
    assert (found["accepted"], found["repeated"], found["refused"], found["unknown"]) == (250, 0, 100, 250)
    for event, result in zip(events, found["results"], strict=True):
        assert result["event_id"] == event["event_id"]
        assert result.get("problem", result)["event_id"] == event["event_id"]
    assert "not sent" in found["results"][-1]["problem"]["detail"]
    again = await service.post("events:batch", events, 202)
    assert (again["accepted"], again["repeated"]) == (100, 500)


async def test_a_batch_that_may_be_stored_says_so(service: Service, monkeypatch: pytest.MonkeyPatch):
    for error, status in (
        (DurabilityNotReached(), "unknown"),
        (StoreUnavailable().with_effect(Effect.UNKNOWN), "unknown"),
        (StoreUnavailable().with_effect(Effect.NOTHING_CHANGED), "refused"),
        (StoreFull().with_effect(Effect.NOTHING_WRITTEN), "refused"),
    ):

        async def fail(*_: Any, error: StoreError = error, **__: Any) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(Store, "put", fail)
            answer = await service.client.post("/v1/events:batch", json=[{"event_type": "a"}] * 2)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        problem = answer.json()
        assert [each["status"] for each in problem["results"]] == [status] * 2
        assert ("no event was stored" in problem["detail"]) == (status == "refused")
        assert ("may be stored" in problem["detail"]) == (status == "unknown")


async def test_each_result_names_its_own_event_if_events_are_put_one_by_one(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    async def too_large(*_: Any, **__: Any) -> None:
        raise PayloadTooLarge("payload", "is too large for this box")

    await _lose_the_second_reply(monkeypatch)
    monkeypatch.setattr(service.box, "put_many", too_large)
    events = [{"event_type": "a", "event_id": f"e{number}"} for number in range(4)]
    found = await service.post("events:batch", events, 207)
    assert [each["status"] for each in found["results"]] == ["accepted", "unknown", "refused", "refused"]
    for number, result in enumerate(found["results"][1:], 1):
        assert result["event_id"] == result["problem"]["event_id"] == f"e{number}"
        others = {f"e{other}" for other in range(4) if other != number}
        assert not [other for other in others if other in result["problem"]["detail"]]


async def test_a_full_box_pushes_back(service: Service):
    await service.box.operate.configure(who="test", why="", max_pending=2)
    await service.post("events", {"event_type": "a"}, 202)
    answer = await service.client.post(
        f"/v1/boxes/{service.box.name}/events:batch", json=[{"event_type": "a"}, {"event_type": "b"}]
    )
    assert (answer.status_code, answer.headers["retry-after"]) == (207, "1")
    assert [each["status"] for each in answer.json()["results"]] == ["accepted", "refused"]
    answer = await service.client.post("/v1/events", json={"event_type": "a"})
    assert (answer.status_code, answer.headers["retry-after"], answer.json()["error"]) == (429, "1", "BoxFull")


async def test_a_body_may_be_compressed(service: Service):
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    content = gzip.compress(b'{"event_type": ') + gzip.compress(b'"a", "event_id": "packed"}')
    await service.request("POST", "events", 202, content=content, headers=headers)
    assert await service.box.get("packed") is not None


async def test_the_durability_that_was_asked_for_is_reached_or_refused(service: Service):
    for level in ("fsync", "replicas=1"):
        answer = await service.client.post(f"/v1/events?durability={level}", json={"event_type": "a"})
        if answer.status_code == 202:
            assert answer.json()["durability"] == level
        else:
            assert answer.status_code in (422, 503), answer.text
            assert answer.json()["error"] in ("DurabilityUnsupported", "DurabilityNotReached")
    await service.request("POST", "/v1/events", 422, params={"durability": "none"}, json={"event_type": "a"})
    await service.request("POST", "/v1/events:batch", 422, params={"durability": "none"}, json=[{"event_type": "a"}])


async def test_concurrent_requests_share_script_calls(service: Service, monkeypatch: pytest.MonkeyPatch):
    calls = []
    put = Store.put

    async def counted(store: Store, mode: Any, events: Any, *rest: Any) -> Any:
        calls.append(len(events))
        return await put(store, mode, events, *rest)

    monkeypatch.setattr(Store, "put", counted)
    await asyncio.gather(*(service.post("events", {"event_type": "a"}, 202) for _ in range(100)))
    assert sum(calls) == 100
    assert len(calls) <= 50


async def test_an_unknown_box_is_not_made(service: Service):
    for path in ("events", "events:batch"):
        problem = await service.request("POST", f"/v1/boxes/unknown/{path}", 404, json=[])
        assert problem["error"] == "UnknownBox"
    assert "unknown" not in await service.box.names()
