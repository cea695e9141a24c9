"""Jobs over HTTP, on a real server."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from redbox import Box, Event, Relay, State, keys
from redbox.service.http.tokens import Tokens, parse
from tests.service.serving import Service, make_dead, serving

pytestmark = [
    pytest.mark.req("RO-2", "SF-6"),
    pytest.mark.filterwarnings("ignore:.*put_event:litestar.exceptions.LitestarDeprecationWarning"),
]


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Waits until a condition holds, at most 20 seconds."""
    async with asyncio.timeout(20):
        while not (found := await condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # nothing signals it: another process, or the store, changes
    return found


async def dead(service: Service, count: int) -> list[str]:
    return await make_dead(service.box, *(Event("bill.sent", {"n": n}, event_id=f"e{n:04}") for n in range(count)))


async def count(service: Service, state: str) -> int:
    return await service.box.count(state=state)


async def test_a_dry_run_counts_and_changes_nothing(service: Service):
    await dead(service, 5)
    await service.box.put(Event("a", unique_key="u", event_id="holder"))
    for action, query, wanted in (
        ("replay", {"state": "DEAD"}, 5),
        ("drop", {"type": "bill.*"}, 5),
        ("export", {"phase": "DEAD"}, 5),
        ("kill", {"type": "*"}, 1),
        ("reschedule", {"phase": "AVAILABLE"}, 1),
        ("replay", {"text": '"n":3'}, 1),
        ("replay", {"state": "DEAD", "type": "none"}, 0),
    ):
        found = await service.job(200, action=action, filter=query, dry_run=True)
        assert (found["count"], found["matched"], found["complete"]) == (wanted, wanted, True), action
        assert found["dry_run"] is True
    assert await count(service, "DEAD") == 5
    assert (await service.get("jobs"))["jobs"] == []


async def test_a_dry_run_names_conflicts(service: Service):
    await make_dead(service.box, Event("a", unique_key="u", event_id="old"))
    await service.box.put(Event("a", unique_key="u", event_id="holder"))
    found = await service.job(200, action="replay", ids=["old", "none"], dry_run=True)
    assert (found["count"], found["conflicts"], found["refused_count"]) == (0, 1, 2)
    assert "holder" in {each["event_id"]: each["reason"] for each in found["refused"]}["old"]


async def test_a_dry_run_is_bounded(redis_url: str, redbox_runner):
    async with serving(redis_url, preview=3) as service:
        await dead(service, 5)
        found = await service.job(200, action="replay", filter={"state": "DEAD"}, dry_run=True)
        assert (found["count"], found["complete"]) == (3, False)
        ended = await service.ended(await service.job(action="replay", filter={"state": "DEAD"}))
        assert (ended["state"], ended["done"], ended["total"]) == ("done", 5, None)


@pytest.mark.parametrize(
    ("action", "setup", "after"),
    [("replay", "DEAD", "PENDING"), ("drop", "DEAD", None), ("kill", "PENDING", "DEAD")],
)
async def test_a_job_changes_the_events_of_a_filter(service: Service, action: str, setup: str, after: str | None):
    events = [Event("bill.sent", event_id=f"e{n:04}") for n in range(250)]
    if setup == "DEAD":
        await make_dead(service.box, *events)
    else:
        await service.box.put_many(events)
    await service.box.put(Event("other", event_id="other"))
    job = await service.job(action=action, filter={"type": "bill.*"}, why="provider is back")
    assert (job["action"], job["box"], job["why"]) == (action, service.box.name, "provider is back")
    ended = await service.ended(job)
    assert (ended["state"], ended["done"], ended["total"], ended["problem"]) == ("done", 250, 250, None)
    assert ended["result"]["done"] == 250
    assert ended["text"].startswith("250 events ")
    assert ended["ended_at"] >= ended["started_at"]
    records = [record async for record in service.box.list(event_type="bill.*")]
    assert {record.state.value for record in records} == ({after} if after else set())
    (entry,) = (await service.get("log", action=action))["entries"]
    assert (entry["count"], entry["why"]) == (250, f"job {job['id']}: provider is back")
    notes = [each["detail"] for each in (await service.get("log", action="job"))["entries"]]
    assert [note.partition(":")[0] for note in notes] == [
        f"job {job['id']} ({action}) done", f"job {job['id']} ({action}) began"
    ]  # fmt: skip


async def test_reschedule_by_phase(service: Service):
    await service.box.put_many([Event("a", delay=3600, event_id="later"), Event("a", event_id="now")])
    ended = await service.ended(await service.job(action="reschedule", filter={"phase": "SCHEDULED"}))
    assert ended["result"]["done"] == 1
    assert (await service.box.stats()).phases["AVAILABLE"] == 2


async def test_a_job_by_ids_says_what_was_refused(service: Service):
    await dead(service, 2)
    ended = await service.ended(await service.job(action="replay", ids=["e0000", "none", "e0000"]))
    assert (ended["state"], ended["done"], ended["total"]) == ("done", 2, 2)
    assert ended["result"]["done"] == 1
    assert ended["result"]["refused"] == [{"event_id": "none", "reason": "there is no such event"}]


async def test_an_export_is_a_file_that_put_reads(service: Service):
    ids = await dead(service, 3)
    job = await service.ended(await service.job(action="export", filter={"state": "DEAD"}))
    answer = await service.client.get(f"/v1/boxes/{service.box.name}/jobs/{job['id']}/export")
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line)["event_id"] for line in answer.text.splitlines()] == ids
    other = await service.ended(await service.job(action="replay", filter={"state": "DEAD"}))
    await service.get(f"jobs/{other['id']}/export", 404)


async def test_an_export_is_bounded(redis_url: str, redbox_runner):
    async with serving(redis_url, export_bytes=1000) as service:
        await dead(service, 10)
        job = await service.ended(await service.job(action="export", filter={"state": "DEAD"}))
        assert job["state"] == "failed"
        assert "larger than 1,000 bytes" in job["problem"]
        await service.get(f"jobs/{job['id']}/export", 404)
        assert service.app.state.jobs.own(service.box, job["id"]).file is None


async def test_an_export_leaves_no_file_behind(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The file has no name, so a process that is killed leaves none."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    await dead(service, 3)
    job = await service.ended(await service.job(action="export", filter={"state": "DEAD"}))
    assert job["state"] == "done"
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240


async def test_exports_are_bounded_together(redis_url: str, redbox_runner):
    async with serving(redis_url, export_bytes=1000) as service:
        await dead(service, 1)
        jobs = [await service.ended(await service.job(action="export", ids=["e0000"])) for _ in range(12)]
        kept = [service.app.state.jobs.own(service.box, job["id"]).file for job in jobs]
        assert kept[0] is None
        assert kept[-1] is not None
        assert 3000 < sum(file.size for file in kept if file is not None) <= 4000
        assert "export again" in (await service.get(f"jobs/{jobs[0]['id']}/export", 404))["detail"]
        path = f"/v1/boxes/{service.box.name}/jobs/{jobs[-1]['id']}/export"
        assert len((await service.client.get(path)).content) == kept[-1].size


async def test_an_export_leaves_out_what_put_would_refuse(service: Service):
    await dead(service, 3)
    await service.box._store.exchange([("DEL", keys.body(service.box.name, "e0001"))])
    job = await service.ended(await service.job(action="export", filter={"state": "DEAD"}))
    assert (job["state"], job["done"], job["result"]["done"]) == ("done", 3, 2)
    assert [each["event_id"] for each in job["result"]["refused"]] == ["e0001"]
    answer = await service.client.get(f"/v1/boxes/{service.box.name}/jobs/{job['id']}/export")
    assert [json.loads(line)["event_id"] for line in answer.text.splitlines()] == ["e0000", "e0002"]


async def test_an_export_onto_a_full_disk_fails_with_a_sentence(service: Service):
    await make_dead(service.box, *(Event("big", "x" * 20_000, event_id=f"e{n}") for n in range(5)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        job = await service.ended(await service.job(action="export", filter={"state": "DEAD"}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert job["state"] == "failed"
    assert "cannot be written" in job["problem"]
    assert "free space there" in job["problem"]
    assert service.app.state.jobs.own(service.box, job["id"]).file is None


async def test_a_job_is_watched_and_cancelled_between_two_steps(service: Service):
    await dead(service, 200)
    job = await service.job(action="replay", filter={"state": "DEAD"}, rate=50, why="slowly")

    async def some() -> Any:
        found = await service.get(f"jobs/{job['id']}")
        return found if found["done"] else None

    seen = await until(some)
    assert (seen["state"], seen["total"]) == ("running", 200)
    assert seen["text"] == f"{seen['done']} of 200 events done"
    cancelled = await service.request("DELETE", f"jobs/{job['id']}")
    assert cancelled["text"].startswith("stopping")
    ended = await service.ended(job)
    assert ended["state"] == "cancelled"
    replayed = await count(service, "PENDING")
    assert 0 < replayed < 200
    assert await count(service, "DEAD") == 200 - replayed
    assert ended["done"] == replayed
    assert f"stopped by http@{socket.gethostname()} after" in ended["text"]
    (entry,) = (await service.get("log", action="replay"))["entries"]
    assert entry["count"] == replayed
    assert "cancelled: stopped by" in (await service.get("log", action="job"))["entries"][0]["detail"]
    again = await service.request("DELETE", f"jobs/{job['id']}")
    assert again["state"] == "cancelled"


async def test_the_log_names_who_cancelled_a_job(redis_url: str, redbox_runner):
    tokens = Tokens(None, parse(f"alice operate {'a' * 32}\nbob operate {'b' * 32}\n", "test"))
    async with serving(redis_url, tokens=tokens) as service:
        await dead(service, 10)
        service.client.headers["authorization"] = f"Bearer {'a' * 32}"
        job = await service.job(action="replay", filter={"state": "DEAD"}, rate=0.01, why="slowly")
        service.client.headers["authorization"] = f"Bearer {'b' * 32}"
        await service.request("DELETE", f"jobs/{job['id']}")
        ended = await service.ended(job)
        assert ended["who"] == "alice"
        assert "stopped by bob" in ended["text"]
        end, start = (await service.get("log", action="job"))["entries"]
        assert (start["who"], end["who"]) == ("alice", "bob")
        name = service.box.name
    async with serving(redis_url, name) as service:
        (found,) = (await service.get("jobs"))["jobs"]
        assert (found["who"], found["state"]) == ("alice", "cancelled")


async def test_a_long_reason_does_not_hide_the_count_of_a_job(redis_url: str, redbox_runner):
    async with serving(redis_url) as service:
        name = service.box.name
        await dead(service, 3)
        await service.ended(await service.job(action="replay", filter={"state": "DEAD"}, why="y" * 2000))
    async with serving(redis_url, name) as service:
        (found,) = (await service.get("jobs"))["jobs"]
        assert (found["state"], found["done"], found["why"]) == ("done", 3, "y" * 2000)


async def test_a_job_of_another_process_runs(redis_url: str, redbox_runner, monkeypatch: pytest.MonkeyPatch):
    async with serving(redis_url) as one, serving(redis_url, one.box.name) as other:
        await dead(one, 10)
        job = await one.job(action="replay", filter={"state": "DEAD"}, rate=0.01)

        async def some() -> bool:
            return await count(one, "PENDING") > 0

        await until(some)
        (found,) = (await other.get("jobs"))["jobs"]
        assert (found["id"], found["state"], found["done"], found["problem"]) == (job["id"], "running", 1, None)
        assert "another process runs it" in found["text"]
        refused = await other.request("DELETE", f"jobs/{job['id']}", 409)
        assert "only that one can cancel it" in refused["detail"]
        await one.request("DELETE", f"jobs/{job['id']}")
        await one.ended(job)
        assert (await other.request("DELETE", f"jobs/{job['id']}"))["state"] == "cancelled"
        export = await one.ended(await one.job(action="export", filter={"state": "DEAD"}))
        assert "in the process that ran it" in (await other.get(f"jobs/{export['id']}/export", 409))["detail"]


async def test_a_search_for_something_rare_reads_a_bounded_number_of_events(redis_url: str, redbox_runner):
    async with serving(redis_url, look=100, preview=200) as service:
        await service.box.put_many([Event("a", {"n": n}) for n in range(1500)])
        for query in ({"text": "none"}, {"phase": "SCHEDULED"}, {"error": "none"}, {"type": "none"}):
            for action in ("kill", "reschedule"):
                found = await service.job(200, action=action, filter=query, dry_run=True)
                assert (found["count"], found["complete"]) == (0, False), query
                assert found["looked"] <= 600, query
        found = await service.get("error-groups", state="PENDING", error="none")
        assert (found["groups"], found["looked"]) == ([], 0)


@pytest.mark.parametrize("query", [{"state": "DEAD"}, {"text": "none"}])
async def test_a_job_is_accepted_or_refused_without_a_search(
    redis_url: str, redbox_runner, monkeypatch: pytest.MonkeyPatch, query: dict[str, str]
):
    async with serving(redis_url, running_jobs=0) as service:
        await dead(service, 3)
        searched: list[str] = []
        for name in ("page", "page_claims"):
            monkeypatch.setattr(service.box._store, name, lambda *_, **__: searched.append("page"))
        await service.job(429, action="replay", filter=query)
        await service.job(429, action="kill", filter={**query, "state": "PENDING"})
        jobs = service.app.state.jobs
        monkeypatch.setattr(jobs, "_most_running", 1)
        monkeypatch.setattr(jobs, "start", lambda *_: {})
        await service.job(action="replay", filter=query)
        assert searched == []


@pytest.mark.parametrize("action", ["replay", "drop", "export", "kill", "reschedule"])
async def test_a_job_for_an_unknown_error_group_is_refused(service: Service, action: str):
    await dead(service, 3)
    await service.box.put(Event("a"))
    state = "pending" if action in ("kill", "reschedule") else "dead"
    for dry_run in (False, True):
        problem = await service.job(404, action=action, filter={"group": "deadbeef"}, dry_run=dry_run)
        assert problem["error"] == "UnknownGroup"
        assert f"there is no error group deadbeef among the {state} events" in problem["detail"]
    assert (await service.get("jobs"))["jobs"] == []


async def test_an_error_group_of_which_no_event_passes_the_other_filters_is_known(service: Service):
    await dead(service, 3)
    (group,) = (await service.get("error-groups"))["groups"]
    query = {"group": group["group"], "type": "none"}
    assert (await service.job(200, action="drop", filter=query, dry_run=True))["count"] == 0
    assert (await service.ended(await service.job(action="drop", filter=query)))["state"] == "done"


async def test_a_job_fails_if_only_its_search_shows_that_the_error_group_is_unknown(redis_url: str, redbox_runner):
    async with serving(redis_url, look=1) as service:
        await dead(service, 1200)
        for action in ("drop", "export"):
            ended = await service.ended(await service.job(action=action, filter={"group": "deadbeef"}))
            assert (ended["state"], ended["done"]) == ("failed", 0)
            assert "there is no error group deadbeef" in ended["problem"]


async def test_a_job_that_waits_is_cancelled_at_once(service: Service):
    await dead(service, 3)
    job = await service.job(action="replay", filter={"state": "DEAD"}, rate=0.001)

    async def waits() -> bool:
        return bool((await service.get(f"jobs/{job['id']}"))["done"])

    await until(waits)
    await service.request("DELETE", f"jobs/{job['id']}")
    ended = await service.ended(job)
    assert (ended["state"], ended["done"]) == ("cancelled", 1)
    assert await count(service, "DEAD") == 2


async def test_a_canary_that_dies_stops_the_replay(service: Service):
    await dead(service, 20)
    job = await service.job(action="replay", filter={"state": "DEAD"}, canary=2)

    async def waits() -> bool:
        return bool((await service.get(f"jobs/{job['id']}"))["state"] == "waiting_for_canary")

    await until(waits)
    await service.box.kill(await service.box.claim("r"), reason="HTTP 422 again")
    ended = await service.ended(job)
    assert (ended["state"], ended["done"]) == ("failed", 2)
    assert ended["problem"] == "2 of 2 canary events are DEAD again. The error: HTTP 422 again"
    assert ended["result"]["canary"]["passed"] is False
    assert await count(service, "DEAD") == 20


async def test_a_failed_canary_says_what_became_of_each_of_its_events(service: Service):
    await dead(service, 20)
    job = await service.job(action="replay", filter={"state": "DEAD"}, canary=5)

    async def waits() -> bool:
        return bool((await service.get(f"jobs/{job['id']}"))["state"] == "waiting_for_canary")

    await until(waits)
    first, second, *others = await service.box.claim("r")
    await service.box.ack([second])
    await service.box.kill([first], reason="HTTP 422 again")
    ended = await service.ended(job)
    words = "1 of 5 canary events is DEAD again, 3 are not settled yet, 1 is published. The error: HTTP 422 again"
    assert ended["problem"] == words
    assert len(others) == 3


async def test_a_canary_that_no_relay_can_deliver(service: Service):
    """The preview says so, and later the job and its entry in the log."""
    await dead(service, 9)
    await service.box.beat("relay-1", "1", {"breaker": "open", "reason": "HTTP 503"}, fresh=60)
    replay = {"action": "replay", "filter": {"state": "DEAD"}, "canary": 1}
    obstacle = "the breaker of the only relay is open: HTTP 503"
    assert (await service.post("jobs", {**replay, "dry_run": True}))["obstacle"] == obstacle
    await service.box.operate.pause(who="ada", why="")
    job = await service.job(**replay, canary_wait="100ms")
    ended = await service.ended(job)
    assert ended["problem"] == "1 of 1 canary event is not settled yet. The box is paused."
    (entry,) = [each for each in await service.box.operate.log(5) if f"job {job['id']} (replay) failed" in each.detail]
    assert entry.detail.endswith(
        "failed: stopped after 1 of 9 events; 1 of 1 canary event is not settled yet. The box is paused."
    )


async def test_the_words_for_one_canary(service: Service):
    await dead(service, 3)
    job = await service.job(action="replay", filter={"state": "DEAD"}, canary=1)

    async def waits() -> bool:
        text = (await service.get(f"jobs/{job['id']}"))["text"]
        return bool(text == "waiting until 1 canary event is published")

    await until(waits)
    await service.request("DELETE", f"jobs/{job['id']}")
    await service.ended(job)


async def test_a_canary_that_is_published_lets_the_others_follow(service: Service):
    await dead(service, 20)
    published: list[str] = []

    async def publish(event: Any) -> None:
        published.append(event.event_id)

    async with Relay(service.box, publish):
        job = await service.job(action="replay", filter={"state": "DEAD"}, canary=2)
        ended = await service.ended(job)
        assert (ended["state"], ended["result"]["canary"]["published"]) == ("done", 2)

        async def all_published() -> bool:
            return await count(service, "PUBLISHED") == 20

        await until(all_published)


async def test_jobs_are_bounded_in_number(redis_url: str, redbox_runner):
    async with serving(redis_url, running_jobs=1, kept_jobs=2) as service:
        await dead(service, 10)
        slow = await service.job(action="replay", filter={"state": "DEAD"}, rate=0.01)
        answer = await service.client.post(
            f"/v1/boxes/{service.box.name}/jobs", json={"action": "drop", "filter": {"state": "DEAD"}}
        )
        assert answer.status_code == 429
        assert answer.headers["retry-after"]
        with service.app.state.jobs.dry_run():
            await service.job(429, action="drop", filter={"state": "DEAD"}, dry_run=True)
        assert (await service.job(200, action="drop", filter={"state": "DEAD"}, dry_run=True))["count"] >= 9
        await service.request("DELETE", f"jobs/{slow['id']}")
        await service.ended(slow)
        for _ in range(4):
            await service.ended(await service.job(action="reschedule", filter={"state": "PENDING"}))
        assert len(service.app.state.jobs._jobs) == 2
        listed = (await service.get("jobs"))["jobs"]
        assert len(listed) == 5  # the log knows the others
        assert listed[-1]["state"] == "cancelled"


async def test_the_end_of_the_service_cancels_jobs(redis_url: str, redbox_runner):
    async with serving(redis_url) as service:
        name = service.box.name
        await dead(service, 10)
        job = await service.job(action="replay", filter={"state": "DEAD"}, rate=0.01)
    async with serving(redis_url, name) as service:
        (found,) = (await service.get("jobs"))["jobs"]
        assert (found["id"], found["state"]) == (job["id"], "cancelled")


CHILD = """
import asyncio, sys
from redbox import Box
from redbox.service.app import create_app
from redbox.service.boxes import Boxes
from redbox.service.http.listening import Address
from redbox.service.http.server import HttpServer

async def main(url, name):
    async with Box.open(url, name=name) as box:
        async with HttpServer(create_app(Boxes(box)), Address()) as server:
            print(server.url, flush=True)
            await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_job_whose_process_is_killed_says_where_it_stopped(service: Service, redis_url: str):
    await dead(service, 300)
    command = [sys.executable, "-W", "ignore", "-c", CHILD, redis_url, service.box.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: ASYNC220
        assert child.stdout is not None
        url = await asyncio.to_thread(child.stdout.readline)
        where = f"{url.strip()}/v1/boxes/{service.box.name}/jobs"
        body = {"action": "replay", "filter": {"state": "DEAD"}, "rate": 100, "why": "killed"}
        job = (await service.client.post(where, json=body)).json()

        async def some() -> bool:
            return await count(service, "PENDING") > 0

        await until(some)
        child.send_signal(signal.SIGKILL)
        child.wait()
    replayed = await count(service, "PENDING")
    assert replayed + await count(service, "DEAD") == 300
    assert (await service.get(f"jobs/{job['id']}"))["state"] == "running", "its mark has not ended"
    await service.box._store.exchange([("DEL", keys.lock(service.box.name, f"job-{job['id']}"))])
    found = await service.get(f"jobs/{job['id']}")
    assert (found["state"], found["done"], found["why"]) == ("failed", replayed, "killed")
    assert f"stopped after {replayed}" in found["text"]
    assert "its process ended before it did" in found["problem"]
    assert (await service.request("DELETE", f"jobs/{job['id']}"))["state"] == "failed"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "action"),
        ({"action": "paint", "ids": ["a"]}, "paint"),
        ({"action": "replay"}, "select events in one way"),
        ({"action": "replay", "ids": ["a"], "filter": {"state": "DEAD"}}, "select events in one way"),
        ({"action": "replay", "filter": {}}, "give at least one filter"),
        ({"action": "drop", "ids": []}, "$.ids"),
        ({"action": "drop", "ids": ["x" * 129]}, "$.ids"),
        ({"action": "replay", "filter": {"colour": "red"}}, "unknown field `colour`"),
        ({"action": "replay", "filter": {"state": "PENDING"}}, "only PUBLISHED and DEAD events can be replayed"),
        ({"action": "drop", "filter": {"state": "CLAIMED"}}, "only PUBLISHED and DEAD events can be dropped"),
        ({"action": "kill", "filter": {"state": "DEAD"}}, "only PENDING and CLAIMED events can be killed"),
        ({"action": "reschedule", "filter": {"phase": "DEAD"}}, "only PENDING events can be rescheduled"),
        ({"action": "replay", "filter": {"phase": "AVAILABLE"}}, "phase: replay takes events"),
        ({"action": "replay", "filter": {"since": "never"}}, "since"),
        ({"action": "replay", "filter": {"state": "DEAD"}, "rate": 0}, "$.rate"),
        ({"action": "replay", "filter": {"state": "DEAD"}, "ramp": "5m"}, "ramp: needs a rate"),
        ({"action": "replay", "filter": {"state": "DEAD"}, "canary": 1001}, "$.canary"),
        ({"action": "replay", "filter": {"state": "DEAD"}, "canary": 10**30}, "canary"),
        ({"action": "drop", "filter": {"state": "DEAD"}, "rate": 5}, "rate: drop does not take it"),
        ({"action": "kill", "ids": ["a"], "delay": 5}, "delay: kill does not take it"),
    ],
)
async def test_an_invalid_job_is_refused_before_it_starts(service: Service, body: dict[str, Any], words: str):
    await dead(service, 1)
    answer = await service.client.post(f"/v1/boxes/{service.box.name}/jobs", json=body)
    assert answer.status_code in (400, 422), answer.text
    assert words in answer.json()["detail"]
    assert (await service.get("jobs"))["jobs"] == []
    assert (await service.box.get("e0000")).state is State.DEAD


async def test_an_unknown_job_is_404(service: Service):
    await service.get("jobs/12345678", 404)
    await service.request("DELETE", "jobs/12345678", 404)
    assert isinstance(service.box, Box)
