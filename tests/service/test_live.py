"""SF-6: the live feed: one sampler for all pages of a box, only while somebody listens."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from redbox import Event
from redbox.errors import StoreUnavailable
from redbox.service import live as live_module
from redbox.service.live import Feed
from tests.service.observing import LONGEST, Sent, observed, until

pytestmark = [pytest.mark.req("SF-6"), pytest.mark.usefixtures("redbox_runner")]


def is_delta_with(part: str) -> Any:
    return lambda sent: sent.event == "delta" and part in sent.data


async def all_left(feed: Feed) -> None:
    """Waits until the service has noticed that its pages are gone."""
    deadline = time.monotonic() + LONGEST
    while feed.clients:
        assert time.monotonic() < deadline
        await asyncio.wait([asyncio.create_task(feed.wait())], timeout=0.05)


async def test_a_snapshot_then_what_changed(redis_url: str):
    async with observed(redis_url) as service, service.follow() as events:
        first = await until(events, lambda _: True)
        assert first.event == "snapshot"
        assert set(first.data) == {"stats", "why", "rates_last", "relays", "groups", "jobs"}
        assert first.data["stats"]["phases"]["AVAILABLE"] == 0
        await service.box.put(Event("order.placed"))
        second = await until(events, is_delta_with("stats"))
        assert second.data["stats"]["phases"]["AVAILABLE"] == 1
        assert second.data["stats"]["rates"]["put"] > 0
        assert "relays" not in second.data, "what did not change is not sent again"


async def test_pages_of_a_box_share_one_sampler_which_ends_with_the_last_of_them(redis_url: str):
    async with observed(redis_url) as service:
        async with service.follow() as one, service.follow() as two:
            first, second = await until(one, lambda _: True), await until(two, lambda _: True)
            assert first.data["stats"]["box"] == second.data["stats"]["box"]
            assert service.feed.clients == 2
            assert service.feed.sampling
        await all_left(service.feed)
        assert not service.feed.sampling


async def test_a_page_that_comes_back_gets_only_what_changed(redis_url: str):
    async with observed(redis_url) as service:
        async with service.follow() as events:
            last = await until(events, lambda _: True)
        await service.box.put(Event("order.placed"))
        async with service.follow(last.id) as events:
            again = await until(events, lambda _: True)
            assert again.event == "delta"
            assert again.data["stats"]["phases"]["AVAILABLE"] == 1
        for unknown in ("other-1", f"{last.id.partition('-')[0]}-99999999", "x", f"{last.id}-\xb2"):
            async with service.follow(unknown.encode("ascii", "replace").decode()) as events:
                assert (await until(events, lambda _: True)).event == "snapshot"


async def test_a_quiet_feed_sends_comments(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live_module, "COMMENT_AFTER", 0.05)
    async with observed(redis_url) as service, service.follow() as events:
        await until(events, lambda sent: sent.event == "comment")


async def test_the_feed_ends_when_the_service_does(redis_url: str):
    async with observed(redis_url) as service, service.follow() as events:
        await until(events, lambda _: True)
        began = time.monotonic()
        service.live.close()
        left = [sent async for sent in events]
        assert time.monotonic() - began < 1
        assert all(isinstance(sent, Sent) for sent in left)
        refused = await service.client.get("/v1/live")
        assert refused.status_code == 503
        assert refused.headers["retry-after"]


async def test_a_store_that_does_not_answer_is_a_problem_until_it_answers(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
):
    async with observed(redis_url) as service, service.follow() as events:
        await until(events, lambda _: True)
        stats = service.box.stats

        async def fail() -> Any:
            raise StoreUnavailable("the store does not answer")

        monkeypatch.setattr(service.box, "stats", fail)
        problem = await until(events, lambda sent: sent.event == "problem")
        assert problem.data["status"] == 503
        monkeypatch.setattr(service.box, "stats", stats)
        assert (await until(events, lambda sent: sent.event != "comment")).event == "delta"


async def test_too_many_pages_are_refused(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live_module, "MOST_CLIENTS", 1)
    async with observed(redis_url) as service, service.follow() as events:
        await until(events, lambda _: True)
        assert (await service.client.get("/v1/live")).status_code == 503


async def test_an_unknown_box_has_no_feed(redis_url: str):
    async with observed(redis_url) as service:
        assert (await service.client.get("/v1/live", params={"box": "nobody"})).status_code == 404


async def test_a_slow_page_gets_the_latest_values_at_once(redis_url: str):
    """There is no queue: what a page did not take in time is merged."""
    async with observed(redis_url) as service:
        feed = await service.live.open(None)
        messages = service.live.messages(feed)
        async with asyncio.timeout(LONGEST):
            assert (await anext(messages)).event == "snapshot"
            for _ in range(3):
                await service.box.put(Event("n"))
                await feed.run_once()
            later = await anext(messages)
        assert later.id == f"{feed.token}-{feed.version}"
        assert '"AVAILABLE":3' in str(later.data)
        await messages.aclose()
        assert not feed.sampling
