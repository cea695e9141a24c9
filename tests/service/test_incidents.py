"""RO-1, SF-6: error groups and single incidents over HTTP, fast in a box of any size."""

from __future__ import annotations

import pytest

from redbox import Box, Event
from redbox.box.desk import incidents
from redbox.events import State
from tests.service.observing import observed

pytestmark = [pytest.mark.req("RO-1"), pytest.mark.usefixtures("redbox_runner")]


async def make_dead(box: Box, count: int, reason: str, **event: str) -> None:
    await box.put_many([Event("order.placed", {"n": number}, **event) for number in range(count)])
    left = count
    while left:
        claims = await box.claim("relay-1", limit=1000)
        assert all(await box.kill(claims, reason=reason))
        left -= len(claims)


async def test_groups_of_dead_and_of_retried_events(redis_url: str):
    async with observed(redis_url) as service:
        await make_dead(service.box, 3, "HTTP 422 amount 12")
        await service.box.put(Event("user.created"))
        await service.box.retry(await service.box.claim("relay-1"), error="connect timeout", delay=60)
        found = await service.get("error-groups")
        assert [(each["state"], each["count"], each["error"]) for each in found["groups"]] == [
            ("DEAD", 3, "HTTP 422 amount 12"), ("PENDING", 1, "connect timeout"),
        ]  # fmt: skip
        assert not found["sampled"]
        assert [(len(each["histogram"]), sum(each["histogram"])) for each in found["groups"]] == [(24, 3), (24, 1)]
        only = await service.get("error-groups?state=PENDING")
        assert [each["error"] for each in only["groups"]] == ["connect timeout"]
        assert only["groups"][0]["last_seen"] <= (await service.box.stats()).at.isoformat()
        assert (await service.get("error-groups?type=user.*"))["groups"][0]["state"] == "PENDING"


async def test_one_incident(redis_url: str):
    async with observed(redis_url) as service:
        await service.box.put(Event("order.placed", {"amount": 1}))
        await service.box.ack(await service.box.claim("relay-1"))
        await service.box.operate.configure(dead_head="block", who="ada", why="")
        await make_dead(service.box, 1, "HTTP 422 amount 12", ordering_key="order-7")
        await make_dead(service.box, 1, "another error", ordering_key="order-8")
        await service.box.beat("relay-1", "i", {"age": "1000", "version": "1"}, fresh=10)
        (group,) = [each for each in (await service.get("error-groups"))["groups"] if "422" in each["error"]]
        for name in (group["group"], group["fingerprint"].replace(" ", "%20")):
            found = await service.get(f"error-groups/{name}")
            assert found["group"]["sample_id"] == group["sample_id"] == found["failed"]["event_id"]
            assert [key["key"] for key in found["blocked_keys"]] == ["order-7"]
            assert found["failed"]["payload"] == {"n": 0}
            assert found["delivered"]["payload"] == {"amount": 1}
            kinds = [(moment["kind"], moment["count"]) for moment in found["timeline"]]
            assert sorted(kinds) == [("failed", 1), ("relay_started", 1)]
        assert (await service.get("error-groups/00000000", 404))["error"] == "NotFound"
        await service.get(f"error-groups/{group['group']}?state=PENDING", 404)


async def test_a_timeline_has_the_end_of_an_outage_too(redis_url: str):
    async with observed(redis_url) as service:
        await make_dead(service.box, 1, "HTTP 503")
        closed = {"breaker": "closed", "opened_age": "90000", "closed_age": "30000"}
        await service.box.beat("relay-1", "i", closed, fresh=10)
        again = {**closed, "breaker": "open", "reason": "HTTP 401", "breaker_age": "5000"}
        await service.box.beat("relay-2", "i", again, fresh=10)
        (group,) = (await service.get("error-groups"))["groups"]
        timeline = (await service.get(f"error-groups/{group['group']}"))["timeline"]
        for relay, later in (("relay-1", []), ("relay-2", [("breaker_opened", "relay relay-2: HTTP 401")])):
            assert [
                (moment["kind"], moment["text"]) for moment in timeline if moment["text"].startswith(f"relay {relay}")
            ] == [
                ("breaker_opened", f"relay {relay}: it closed after 1 min"),
                ("breaker_closed", f"relay {relay}: it was open for 1 min"),
                *later,
            ]


@pytest.mark.req("SF-6")
async def test_a_rare_error_of_a_sample_is_counted_and_not_estimated(redis_url: str):
    """One event among the newest 100 of 1,000 does not mean that there are ten."""
    async with observed(redis_url) as service:
        await make_dead(service.box, 990, "a common error")
        await make_dead(service.box, 1, "another one")
        await make_dead(service.box, 9, "a common error")
        found = await service.box.desk.failing(sample=100)
        assert [(each.example, each.count, each.at_least) for each in found.groups] == [
            ("a common error", 990, False), ("another one", 1, True),
        ]  # fmt: skip


async def test_counts_are_estimated_from_a_sample_until_a_census_has_counted(redis_url: str):
    async with observed(redis_url) as service:
        box = service.box
        await make_dead(box, 40, "old error")
        await make_dead(box, 60, "new error")
        exact = await box.desk.failing(states=[State.DEAD])
        assert [(each.count, each.estimated) for each in exact.groups] == [(60, False), (40, False)]
        sampled = await box.desk.failing(states=[State.DEAD], sample=20)
        assert sampled.sampled
        assert [(each.example, each.count, each.estimated) for each in sampled.groups] == [("new error", 100, True)]
        counted = await box.desk.census().run_once()
        whole = await box.desk.failing(states=[State.DEAD], sample=20, counted=counted)
        assert [(each.example, each.count, each.estimated) for each in whole.groups] == [
            ("new error", 60, False), ("old error", 40, True),
        ]  # fmt: skip
        assert whole.counted_at == counted.at
        assert [sum(each.histogram) for each in whole.groups] == [20, 0], "of the sample alone"
        old = await box.desk.incident(group=whole.groups[1].group, sample=20, counted=counted)
        assert old is not None
        assert old.failed is not None
        assert old.failed.last_error == "old error"


async def test_a_group_that_was_repaired_after_the_census_is_not_listed(redis_url: str):
    async with observed(redis_url) as service:
        box = service.box
        await make_dead(box, 40, "old error")
        await make_dead(box, 60, "new error")
        counted = await box.desk.census().run_once()
        (old,) = [each for each in counted.groups if each.example == "old error"]

        async def listed() -> list[str]:
            found = await box.desk.failing(states=[State.DEAD], sample=20, counted=counted)
            return [each.example for each in found.groups]

        assert (await box.replay([old.sample_id], who="ann", why="to try the repair")).replayed == 1
        assert await listed() == ["new error", "old error"], "39 of its events are DEAD"
        assert (await box.replay(group=old.group, state="DEAD", who="ann", why="repaired")).replayed == 39
        assert await listed() == ["new error"]
        assert await box.desk.incident(group=old.group, state=State.DEAD, sample=20, counted=counted) is None


async def test_the_delivered_event_is_of_the_type_of_the_failed_one(redis_url: str):
    async with observed(redis_url) as service:
        box = service.box
        for event_type in ("order.placed", "user.created"):
            await box.put(Event(event_type))
            await box.ack(await box.claim("relay-1"))
        for event_type in ("user.created", "order.placed"):
            await box.put(Event(event_type))
            await box.kill(await box.claim("relay-1"), reason="an error")
        group = (await box.desk.failing(states=[State.DEAD])).groups[0]
        assert len(group.event_types) == 2
        found = await box.desk.incident(group=group.group)
        assert found is not None
        assert found.failed is not None
        assert found.delivered is not None
        assert found.delivered.event.event_type == found.failed.event.event_type


async def test_a_job_makes_another_count_due(redis_url: str):
    async with observed(redis_url) as service:
        await make_dead(service.box, 1, "an error")
        await service.get("error-groups")
        census = service.app.state.censuses._known[service.box.name]
        await census._task
        census._not_before += 3600
        before = census._not_before
        request = {"action": "drop", "filter": {"state": "DEAD"}, "why": "test"}
        answer = await service.client.post(f"/v1/boxes/{service.box.name}/jobs", json=request)
        assert answer.status_code == 202
        (job,) = service.app.state.jobs._jobs.values()
        await job.ended()
        assert census._not_before < before


async def test_a_census_rests_between_two_counts(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    async with observed(redis_url) as service:
        await make_dead(service.box, 1, "an error")
        census = service.box.desk.census()
        assert census.ask() is None
        assert census._task is not None
        await census._task
        assert census.ask() is not None
        assert census._task is None, "not before it has rested"
        monkeypatch.setattr(census, "_not_before", 0.0)
        census.ask()
        assert census._task is not None
        await census.aclose()


async def test_a_timeline_has_a_bounded_number_of_entries(redis_url: str):
    async with observed(redis_url) as service:
        for _ in range(70):
            await make_dead(service.box, 1, "an error")
        group = (await service.box.desk.failing(states=[State.DEAD])).groups[0]
        found = await service.box.desk.incident(group=group.group)
        assert found is not None
        assert sum(moment.count for moment in found.timeline) == 70
        assert len(found.timeline) <= incidents.MOMENTS
