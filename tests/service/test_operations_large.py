"""Listings of large events: a page holds a bounded number of bytes, and lets others have their turn."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from redbox import Event
from redbox.box.texts import record_json
from redbox.service.operations.reading import PAGE_BYTES
from tests.service.serving import Service, make_dead

pytestmark = [
    pytest.mark.req("RO-1", "SF-6"),
    pytest.mark.filterwarnings("ignore:.*put_event:litestar.exceptions.LitestarDeprecationWarning"),
]

COUNT = 60
SIZE = 1024 * 1024 - 1024
LARGE = b"[" + b"{}," * (SIZE // 3) + b"1]"
ERROR = "it is too large"
QUERIES: list[dict[str, Any]] = [{}, {"group": ERROR}, {"order": "newest"}, {"order": "newest", "state": "DEAD"}]


@pytest.fixture
def ids(service: Service, redbox_runner: asyncio.Runner) -> list[str]:
    """Dead events with large payloads, in the order in which they died."""
    found: list[str] = []
    for number in range(COUNT):
        event = Event("a", LARGE, content_type="application/json", event_id=f"e{number:02}")
        found += redbox_runner.run(make_dead(service.box, event, reason=ERROR))
    return found


async def pages(service: Service, **query: Any) -> list[list[str]]:
    """The ids of a listing with its payloads, page by page."""
    found, cursor = [], None
    while True:
        page = await service.get("events", limit=1000, payload=1, **({"cursor": cursor} if cursor else {}), **query)
        assert all(len(each["payload"]) == SIZE // 3 + 1 for each in page["events"])
        found.append([each["event_id"] for each in page["events"]])
        cursor = page["cursor"]
        if cursor is None:
            return found


async def test_a_page_with_payloads_is_bounded_in_bytes(service: Service, ids: list[str]):
    most = PAGE_BYTES // SIZE + 2
    for query in QUERIES[:2]:
        found = await pages(service, **query)
        assert [event_id for page in found for event_id in page] == ids
        assert max(map(len, found)) <= most
    for query in QUERIES[2:]:
        (newest,) = await pages(service, **query)
        assert len(newest) == PAGE_BYTES // SIZE + 1
        assert set(newest) <= set(ids)
        assert query.get("state") is None or newest == ids[: -len(newest) - 1 : -1]


async def test_a_page_without_payloads_has_all_events(
    service: Service, ids: list[str], monkeypatch: pytest.MonkeyPatch
):
    """The payloads are neither kept nor decoded."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a payload was decoded")

    monkeypatch.setattr(record_json, "_payload_json", refuse)
    for query in QUERIES:
        page = await service.get("events", limit=1000, **query)
        assert {each["event_id"] for each in page["events"]} == set(ids)
        assert page["cursor"] is None
        assert {each["content_type"] for each in page["events"]} == {"application/json"}
        assert not [each for each in page["events"] if each.keys() & {"payload", "payload_base64"}]
    for found in (
        (await service.box.page(limit=1000, payloads=False)).records,
        await service.box.newest(payloads=False),
    ):
        assert len(found) == COUNT
        assert not any(record.event.payload for record in found)


@pytest.mark.parametrize("payload", [0, 1])
async def test_a_page_of_large_events_lets_others_have_their_turn(service: Service, ids: list[str], payload: int):
    """By the time of the processor, so that a busy machine makes no difference."""
    assert ids
    for query in QUERIES:
        longest = 0.0
        path = f"/v1/boxes/{service.box.name}/events"
        reading = asyncio.create_task(service.client.get(path, params={"limit": 1000, "payload": payload, **query}))
        while not reading.done():
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)
        assert reading.result().status_code == 200
        assert longest < 0.2, query


async def test_others_have_their_turn_between_two_payloads(
    service: Service, ids: list[str], monkeypatch: pytest.MonkeyPatch
):
    assert ids
    turn, turns, form = 0, list[int](), record_json._payload_json

    def note(*arguments: Any) -> Any:
        turns.append(turn)
        return form(*arguments)

    monkeypatch.setattr(record_json, "_payload_json", note)
    reading = asyncio.create_task(service.get("events", limit=1000, payload=1))
    while not reading.done():
        await asyncio.sleep(0)
        turn += 1
    assert len(set(turns)) == len(turns) > 1
