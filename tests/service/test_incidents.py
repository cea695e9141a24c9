"""RO-1, SF-6: error groups and single incidents over HTTP, fast in a box of any size."""

from __future__ import annotations

import pytest

from redbox import Box, Event
from redbox.box import incidents
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


async def test_counts_are_estimated_from_a_sample_until_a_census_has_counted(redis_url: str):
    async with observed(redis_url) as service:
        box = service.box
        await make_dead(box, 40, "old error")
        await make_dead(box, 60, "new error")
        exact = await box.failing(states=[State.DEAD])
        assert [(each.count, each.estimated) for each in exact.groups] == [(60, False), (40, False)]
        sampled = await box.failing(states=[State.DEAD], sample=20)
        assert sampled.sampled
        assert [(each.example, each.count, each.estimated) for each in sampled.groups] == [("new error", 100, True)]
        counted = await box.census().run_once()
        whole = await box.failing(states=[State.DEAD], sample=20, counted=counted)
        assert [(each.example, each.count, each.estimated) for each in whole.groups] == [
            ("new error", 60, False), ("old error", 40, False),
        ]  # fmt: skip
        assert whole.counted_at == counted.at
        assert [sum(each.histogram) for each in whole.groups] == [20, 0], "of the sample alone"
        old = await box.incident(group=whole.groups[1].group, sample=20, counted=counted)
        assert old is not None
        assert old.failed is not None
        assert old.failed.last_error == "old error"


async def test_a_census_rests_between_two_counts(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    async with observed(redis_url) as service:
        await make_dead(service.box, 1, "an error")
        census = service.box.census()
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
        group = (await service.box.failing(states=[State.DEAD])).groups[0]
        found = await service.box.incident(group=group.group)
        assert found is not None
        assert sum(moment.count for moment in found.timeline) == 70
        assert len(found.timeline) <= incidents.MOMENTS
