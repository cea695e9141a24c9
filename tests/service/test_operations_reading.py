"""Reading over HTTP, on a real server."""

from __future__ import annotations

import base64

import pytest

from redbox import Box, Event
from redbox.box.reports import RelayReport
from redbox.box.texts.record_json import as_json
from redbox.box.texts.stats_json import as_json as stats_as_json
from redbox.service.operations.documents import EventDocument, RelayDocument, StatsDocument
from tests.service.serving import Service, make_dead, serving

pytestmark = [
    pytest.mark.req("RO-1", "SF-6"),
    pytest.mark.filterwarnings("ignore:.*put_event:litestar.exceptions.LitestarDeprecationWarning"),
]


async def test_the_service_describes_itself(service: Service):
    found = await service.get("/v1")
    assert found["default_box"] == service.box.name
    assert service.box.name in found["boxes"]
    assert found["scopes"] == ["ingest", "operate", "read"]
    assert (found["read_only"], found["delivers"]) == (False, False)


async def test_boxes_are_listed_with_their_counts(service: Service):
    await service.box.put(Event("a"))
    (found,) = [each for each in await service.get("/v1/boxes") if each["name"] == service.box.name]
    assert found["phases"]["AVAILABLE"] == 1
    assert found["error"] is None


async def test_stats_and_events_are_those_of_the_command_line(service: Service):
    event = Event("order.placed", {"id": 7}, ordering_key="k", headers={"h": "1"}, metadata={"m": "2"})
    await service.box.put(event)
    stats = await service.get("stats")
    assert stats["phases"]["AVAILABLE"] == 1
    assert set(stats) == set(StatsDocument.__struct_fields__) >= set(stats_as_json(await service.box.stats()))
    found = await service.get(f"events/{event.event_id}")
    assert found["payload"] == {"id": 7}
    record = await service.box.get(event.event_id)
    assert record is not None
    assert set(found) == set(as_json(record))
    assert set(found) == set(EventDocument.__struct_fields__) - {"payload_base64"}
    assert {*RelayReport.__struct_fields__, "silent"} == set(RelayDocument.__struct_fields__)


async def test_bytes_come_as_base64(service: Service):
    await service.box.put(Event("a", b"\xff\x00", event_id="binary"))
    found = await service.get("events/binary")
    assert found["payload"] is None
    assert base64.b64decode(found["payload_base64"]) == b"\xff\x00"


async def test_an_id_or_a_key_may_have_a_slash(service: Service):
    await service.box.put(Event("a", event_id="a/b?c%2Fd", ordering_key="order/7"))
    assert (await service.get("events/a%2Fb%3Fc%252Fd"))["event_id"] == "a/b?c%2Fd"
    assert (await service.get("events/a%2Fb%3Fc%252Fd/why"))["found"] is True
    assert "order/7" in (await service.get("keys/order%2F7/why"))["subject"]


async def test_an_unknown_event_is_404_and_why_says_more(service: Service):
    assert "there is no event x" in (await service.get("events/x", 404))["detail"]
    assert (await service.get("events/x/why"))["found"] is False


async def test_an_unknown_box_is_404(service: Service):
    assert (await service.get("/v1/boxes/nobody/stats", 404))["error"] == "UnknownBox"


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({"type": "order.*"}, ["o1", "o2"]),
        ({"state": "DEAD"}, ["d1"]),
        ({"phase": "DEAD"}, ["d1"]),
        ({"phase": "SCHEDULED"}, ["later"]),
        ({"phase": "WAITING"}, ["o2"]),
        ({"phase": "AVAILABLE"}, ["o1", "o2"]),
        ({"key": "k"}, ["o1", "o2"]),
        ({"error": "amount"}, ["d1"]),
        ({"group": "http 422 amount <n> is not valid"}, ["d1"]),
        ({"text": "needle"}, ["o2"]),
        ({"text": "NEEDLE", "type": "order.*"}, ["o2"]),
        ({"text": "needle", "state": "DEAD"}, []),
        ({"created_since": "1h"}, ["o1", "later", "o2", "d1"]),
        ({"created_until": "1h"}, []),
        ({"since": "+30m"}, ["later"]),
    ],
)
async def test_events_are_filtered(service: Service, query: dict[str, str], ids: list[str]):
    await make_dead(service.box, Event("bill.sent", event_id="d1"))
    await service.box.put_many(
        [
            Event("order.placed", {"a": 1}, event_id="o1", ordering_key="k"),
            Event("order.placed", {"a": "a Needle"}, event_id="o2", ordering_key="k"),
            Event("user.created", event_id="later", delay=3600),
        ]
    )
    found = await service.get("events", **query)
    assert sorted(event["event_id"] for event in found["events"]) == sorted(ids)
    assert found["cursor"] is None
    assert all("payload" not in event for event in found["events"])


async def test_pages_go_through_all_events_once(service: Service):
    ids = [f"e{n:02}" for n in range(25)]
    await service.box.put_many(
        [Event("a", {"text": "even" if n % 2 else "odd"}, event_id=i) for n, i in enumerate(ids)]
    )
    for query, wanted in (({}, ids), ({"text": "even"}, ids[1::2]), ({"phase": "AVAILABLE"}, ids)):
        seen, cursor = [], None
        while True:
            page = await service.get("events", limit=4, **query, **({"cursor": cursor} if cursor else {}))
            assert len(page["events"]) <= 4
            seen += [event["event_id"] for event in page["events"]]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert sorted(seen) == wanted


async def test_a_search_reads_a_bounded_number_of_events_and_says_how_many(redis_url: str, redbox_runner):
    async with serving(redis_url, look=1000) as service:
        await service.box.put_many([Event("a", {"n": n}) for n in range(1500)])
        await service.box.put(Event("a", "needle", event_id="needle"))
        first = await service.get("events", text="needle")
        assert first["events"] == []
        assert 1000 <= first["looked"] < 1501
        second = await service.get("events", text="needle", cursor=first["cursor"])
        assert [event["event_id"] for event in second["events"]] == ["needle"]
        assert first["looked"] + second["looked"] == 1501


async def test_keys_relays_groups_and_suggestions(service: Service):
    box = service.box
    await box.operate.configure(who="t", why="", dead_head="block")
    await make_dead(box, Event("order.placed", event_id="head", ordering_key="k1"))
    await box.put(Event("order.placed", ordering_key="k1"))
    await box.operate.pause(who="ada", why="address", key="k2")
    await box.beat("web-1", "i1", {"host": "h"}, fresh=15)
    keys = await service.get("keys")
    (blocked,) = keys["blocked"]
    assert (blocked["key"], blocked["head"], blocked["waiting"]) == ("k1", "head", 1)
    assert "amount 12" in blocked["why"]
    assert [(each["key"], each["who"], each["why"]) for each in keys["paused"]] == [("k2", "ada", "address")]
    assert [relay["name"] for relay in (await service.get("relays"))["relays"]] == ["web-1"]
    (group,) = (await service.get("error-groups"))["groups"]
    assert (group["count"], group["state"], group["sample_id"]) == (1, "DEAD", "head")
    assert group["error"] == "HTTP 422 amount 12 is not valid"
    for field, prefix, values in (
        ("type", "ORD", ["order.placed"]), ("key", "k", ["k1"]), ("error", "amount", [group["error"]]),
        ("relay", "web", ["web-1"]), ("type", "x", []),
    ):  # fmt: skip
        assert (await service.get("suggest", field=field, prefix=prefix))["values"] == values


async def test_groups_of_retries_are_those_of_pending_events(service: Service):
    await service.box.put_many([Event("a"), Event("b")])
    claims = await service.box.claim("r", limit=1)
    await service.box.retry(claims, error="connect timeout", delay=60)
    found = (await service.get("error-groups"))["groups"]
    assert [(group["state"], group["count"], group["error"]) for group in found] == [("PENDING", 1, "connect timeout")]
    filtered = (await service.get("error-groups", phase="RETRY_SCHEDULED"))["groups"]
    assert [group["sample_id"] for group in filtered] == [group["sample_id"] for group in found]
    assert (await service.get("error-groups", state="DEAD"))["groups"] == []


async def test_log_and_doctor(service: Service):
    await service.post("pause", {"why": "deploy"})
    entries = (await service.get("log", action="pause"))["entries"]
    assert [(each["action"], each["why"]) for each in entries] == [("pause", "deploy")]
    assert entries[0]["who"].startswith("http@")
    assert (await service.get("log", since="+1h"))["entries"] == []
    findings = (await service.get("doctor"))["findings"]
    assert {"severity", "check", "sentence", "meaning", "remedy"} == set(findings[0])


@pytest.mark.parametrize(
    ("path", "query", "words"),
    [
        ("events", {"limit": "0"}, "limit"),
        ("events", {"limit": "1" + "0" * 400}, "limit"),
        ("events", {"limit": "ten"}, "limit"),
        ("events", {"colour": "red"}, "colour: there is no such query parameter"),
        ("events", {"limit": ["1", "2"]}, "limit: is given more than once"),
        ("events", {"state": "GONE"}, "state"),
        ("events", {"state": "DEAD", "phase": "AVAILABLE"}, "no event is DEAD and in phase AVAILABLE"),
        ("events", {"since": "yesterday"}, "since - 'yesterday' is not a time"),
        ("events", {"since": "9" * 90 + "d"}, "since"),
        ("events", {"since": "2026-01-01T00:00:00"}, "has no time zone"),
        ("events", {"cursor": "nonsense"}, "cursor"),
        ("events", {"text": "x" * 256}, "text"),
        ("events", {"type": "*" * 100}, "type"),
        ("events", {"type": ""}, "type"),
        ("events", {"text": ""}, "text"),
        ("suggest", {}, "field"),
        ("suggest", {"field": "colour"}, "field"),
        ("log", {"since": "1h", "until": "2h"}, "since is after until"),
        ("stats", {"x": "1"}, "it takes none"),
    ],
)  # fmt: skip
async def test_an_invalid_query_is_refused_with_the_name_of_the_parameter(
    service: Service, path: str, query: dict[str, str], words: str
):
    answer = await service.client.get(f"/v1/boxes/{service.box.name}/{path}", params=query)
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["detail"]
    assert "in_state" not in answer.text
    assert "event_type" not in answer.text, "the name of the parameter is type"
    assert answer.json().get("field") in (None, *query, "field")


async def test_invalid_utf8_is_no_defect(service: Service):
    for path in ("/v1/boxes/%FF%FE/stats", "/v1/boxes/{}/events/%FF", "/v1/boxes/{}/events?key=%FF%C0", "/v1/%2F%2F"):
        answer = await service.client.get(path.format(service.box.name))
        assert answer.status_code < 500, (path, answer.text)


async def test_a_store_that_is_down_is_503(redbox_runner):
    from tests import servers

    with servers.redis_server() as server:
        async with serving(server.url) as service:
            server.kill()
            for path in ("stats", "events", "why", "keys"):
                answer = await service.client.get(f"/v1/boxes/{service.box.name}/{path}")
                assert answer.status_code == 503, answer.text
                assert answer.headers["retry-after"]
            server.start()
            assert isinstance(service.box, Box)


async def test_the_newest_events_come_first_if_asked(service: Service):
    box = service.box
    for number in range(4):
        await box.put(Event("order.placed", {"n": number}))
        if number < 2:
            await box.ack(await box.claim("relay-1"))
    found = await service.get("events", order="newest", limit=3, payload=True)
    assert [each["payload"]["n"] for each in found["events"]] == [3, 2, 1]
    assert found["cursor"] is None
    published = await service.get("events", order="newest", state="PUBLISHED", payload=True)
    assert [each["payload"]["n"] for each in published["events"]] == [1, 0]
    for wrong in ({"type": "order.*"}, {"cursor": "x"}, {"phase": "AVAILABLE"}):
        assert "order" in (await service.get("events", 422, order="newest", **wrong))["detail"]
