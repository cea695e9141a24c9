"""Actions on one event and on a box over HTTP, on a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redbox import Event, State
from tests.service.serving import Service, make_dead

pytestmark = [
    pytest.mark.req("RO-3", "SF-6"),
    pytest.mark.filterwarnings("ignore:.*put_event:litestar.exceptions.LitestarDeprecationWarning"),
]


async def state_of(service: Service, event_id: str) -> State | None:
    record = await service.box.get(event_id)
    return None if record is None else record.state


async def test_kill_reschedule_release_replay_and_drop(service: Service):
    box = service.box
    await box.put(Event("a", event_id="e1"))
    body = {"why": "by hand"}
    assert await service.post("events/e1/kill", body) == {"outcome": "OK", "reason": "done"}
    assert await state_of(service, "e1") is State.DEAD
    await service.post("events/e1/replay", {**body, "delay": "1h"})
    assert await state_of(service, "e1") is State.PENDING
    await service.post("events/e1/reschedule", body)
    (claim,) = await box.claim("r")
    assert claim.event_id == "e1"
    await service.post("events/e1/release", body)
    assert await state_of(service, "e1") is State.PENDING
    await service.post("events/e1/kill", body)
    await service.post("events/e1/drop", body)
    assert await state_of(service, "e1") is None
    entries = (await service.get("log"))["entries"]
    made = [(entry["action"], entry["why"], entry["who"].partition("@")[0]) for entry in entries]
    actions = ["drop", "kill", "release", "reschedule", "replay", "kill"]
    assert made[: len(actions)] == [(action, "by hand", "http") for action in actions]


async def test_a_dry_run_changes_nothing_and_answers_the_outcome(service: Service):
    await service.box.put(Event("a", event_id="e1"))
    assert (await service.post("events/e1/kill", {"dry_run": True}))["outcome"] == "OK"
    assert (await service.post("events/e1/drop", {"dry_run": True}))["outcome"] == "NOTTERMINAL"
    assert (await service.post("events/e1/replay", {"dry_run": True}))["outcome"] == "NOTTERMINAL"
    assert (await service.post("events/none/kill", {"dry_run": True}))["outcome"] == "UNKNOWN"
    assert await state_of(service, "e1") is State.PENDING


async def test_what_is_not_possible_is_refused_with_the_reason(service: Service):
    await service.box.put(Event("a", event_id="e1"))
    refused = await service.post("events/e1/drop", {}, 409)
    assert refused["outcome"] == "NOTTERMINAL"
    assert "neither PUBLISHED nor DEAD" in refused["detail"]
    assert refused["event_id"] == "e1"
    assert "there is no such event" in (await service.post("events/none/kill", {}, 404))["detail"]


async def test_the_dashboard_is_named_in_the_log(service: Service):
    await service.request("POST", "pause", json={"why": "x"}, headers={"redbox-client": "dashboard"})
    assert (await service.get("log"))["entries"][0]["who"].startswith("dashboard@")


async def test_pause_and_resume_a_box_and_a_key(service: Service):
    paused = await service.post("pause", {"why": "deploy", "duration": "10m"})
    assert (paused["key"], paused["why"]) == (None, "deploy")
    assert paused["until"] is not None
    assert (await service.box.stats()).paused
    assert await service.post("resume", {"ramp": 60}) == {"key": None, "resumed": True}
    assert await service.post("resume") == {"key": None, "resumed": False}
    assert (await service.post("pause", {"key": "order/7", "until": "+1h"}))["key"] == "order/7"
    assert [each["key"] for each in (await service.get("keys"))["paused"]] == ["order/7"]
    assert (await service.post("resume", {"key": "order/7"}))["resumed"] is True


async def test_settings_are_changed_by_text_number_and_reset(service: Service):
    changes = {"keep_dead": "7d", "max_pending": 10, "keep_published": None, "dead_head": "block"}
    found = await service.request("PATCH", "settings", json={"changes": changes, "why": "tidy"})
    assert found == await service.get("settings")
    assert (found["keep_dead"]["text"], found["keep_published"]["text"]) == ("7d", "forever")
    assert (await service.box.settings()).max_pending == 10
    found = await service.request("PATCH", "settings", json={"reset": ["max_pending", "dead_head"]})
    assert found["max_pending"]["is_default"]
    assert (await service.get("log", action="configure"))["entries"][1]["why"] == "tidy"


@pytest.mark.req("LM-1", "LM-2")
async def test_limits_are_changed(service: Service):
    changes = {"max_rate": "1000/m", "max_in_flight": 5}
    found = await service.request("PATCH", "settings", json={"changes": changes, "why": "spare it"})
    assert (found["max_rate"]["text"], found["max_in_flight"]["value"]) == ("1000/min", 5)
    stats = await service.get("stats")
    assert (stats["settings"]["max_rate"], stats["tokens"], stats["limits_reached"]) == ("1000/min", 1, [])
    found = await service.request("PATCH", "settings", json={"changes": {"max_rate": None}, "reset": ["max_in_flight"]})
    assert (found["max_rate"]["text"], found["max_in_flight"]["is_default"]) == ("unlimited", True)


BODIES: list[tuple[str, str, Any, str]] = [
    ("POST", "events/e1/kill", b"", "body"),
    ("POST", "events/e1/kill", b"{", "body"),
    ("POST", "events/e1/kill", b"null", "Expected `object`"),
    ("POST", "events/e1/kill", b'{"why": "\xff"}', "body"),
    ("POST", "events/e1/kill", b"[" * 100_000, "body"),
    ("PATCH", "settings", b'{"changes":' * 50_000, "body"),
    ("POST", "events/e1/kill", b'{"dry_run": true, "dry_run": false}', "dry_run: is given more than once"),
    ("POST", "events/e1/kill", b'{"dry_run": true, "dry\\u005frun": false}', "dry_run: is given more than once"),
    ("PATCH", "settings", b'{"changes": {"max_pending": 1, "max_pending": 2}}', "max_pending: is given more than once"),
    ("POST", "jobs", b'{"action": "drop", "filter": {"state": "DEAD"}, "action": "replay"}', "action: is given more"),
    ("POST", "jobs", b'{"action": "drop", "filter": {"state": "DEAD", "state": "PENDING"}}', "state: is given more"),
    ("POST", "events/e1/kill", {"why": 1}, "$.why"),
    ("POST", "events/e1/kill", {"dry_run": "true"}, "$.dry_run"),
    ("POST", "events/e1/kill", {"who": "me"}, "unknown field `who`"),
    ("POST", "events/e1/kill", {"why": "x" * 2001}, "$.why"),
    ("POST", "events/e1/kill", {"delay": 1}, "unknown field `delay`"),
    ("POST", "events/e1/replay", {"available_at": "+1h"}, "unknown field `available_at`"),
    ("POST", "events/e1/reschedule", {"delay": 1, "available_at": "+1h"}, "either delay or available_at"),
    ("POST", "events/e1/reschedule", {"delay": -1}, "delay"),
    ("POST", "events/e1/reschedule", {"delay": 1e300}, "delay"),
    ("POST", "events/e1/reschedule", b'{"delay": 1e999}', "body"),
    ("POST", "events/e1/reschedule", b'{"delay": ' + b"9" * 500 + b"}", "body"),
    ("POST", "events/e1/reschedule", {"delay": "soon"}, "delay - 'soon' is not a duration"),
    ("POST", "events/e1/reschedule", {"available_at": "9" * 20 + "d"}, "available_at"),
    ("POST", "events/e1/reschedule", {"available_at": "99999-01-01T00:00:00Z"}, "available_at"),
    ("POST", "pause", {"duration": "1h", "until": "+1h"}, "either duration or until"),
    ("POST", "pause", {"duration": 0}, "duration must be positive"),
    ("POST", "pause", {"until": "1h"}, "has passed"),
    ("POST", "pause", {"key": ""}, "$.key"),
    ("POST", "pause", {"key": "a\x00b"}, "key"),
    ("POST", "resume", {"ramp": "5m", "key": "k"}, "either key or ramp"),
    ("PATCH", "settings", {"changes": {"colour": "red"}}, "colour: there is no such setting"),
    ("PATCH", "settings", {"changes": {"colour": 1}}, "colour: there is no such setting"),
    ("PATCH", "settings", {"changes": {"who": 1}}, "who: there is no such setting"),
    ("PATCH", "settings", {"changes": {"max_pending": "many"}}, "max_pending"),
    ("PATCH", "settings", {"changes": {"max_rate": "50"}}, "max_rate"),
    ("PATCH", "settings", {"changes": {"max_rate": 50}}, "max_rate"),
    ("PATCH", "settings", {"changes": {"max_in_flight": 0}}, "max_in_flight"),
    ("PATCH", "settings", {"changes": {"max_pending": 10**30}}, "max_pending"),
    ("PATCH", "settings", {"changes": {"max_pending": 1}, "reset": ["max_pending"]}, "either a value or the default"),
    ("PATCH", "settings", {}, "changes: name at least one setting"),
]


@pytest.mark.parametrize(("method", "path", "body", "words"), BODIES)
async def test_an_invalid_body_is_refused_and_changes_nothing(
    service: Service, method: str, path: str, body: Any, words: str
):
    await service.box.put(Event("a", event_id="e1"))
    before = await service.box.settings()
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    where = f"/v1/boxes/{service.box.name}/{path}"
    answer = await service.client.request(method, where, content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422), answer.text
    assert words in answer.json()["detail"], answer.json()
    assert await state_of(service, "e1") is State.PENDING
    assert not (await service.box.stats()).paused
    assert await service.box.settings() == before


async def test_a_wrong_method_and_an_unknown_path_are_problems(service: Service):
    assert (await service.request("PUT", "settings", 405))["title"] == "Method Not Allowed"
    assert (await service.get("colours", 404))["title"] == "Not Found"
    await make_dead(service.box, Event("a", event_id="e1"))
    assert (await service.post("events/e1/paint", {}, 404))["title"] == "Not Found"


async def test_a_body_that_is_too_large_is_413(service: Service):
    answer = await service.client.post(f"/v1/boxes/{service.box.name}/pause", content=b" " * (9 * 1024 * 1024))
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
