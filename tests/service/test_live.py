"""SF-6: the live feed: one sampler for all pages of a box, only while somebody listens."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from litestar.exceptions import ServiceUnavailableException

from redbox import Event
from redbox.errors import StoreUnavailable
from redbox.service import live as live_module
from redbox.service.http.tokens import Tokens
from redbox.service.live import Feed
from tests.service.observing import LONGEST, Sent, observed, until

pytestmark = [pytest.mark.req("SF-6"), pytest.mark.usefixtures("redbox_runner")]

ERRORS = ("dead_groups", "retrying_groups", "sampled", "counted_at")


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
        assert set(first.data) == {"stats", "why", "rates_last", "relays", "groups", "jobs", *ERRORS}
        assert first.data["stats"]["phases"]["AVAILABLE"] == 0
        await service.box.put(Event("order.placed"))
        second = await until(events, is_delta_with("stats"))
        assert second.data["stats"]["phases"]["AVAILABLE"] == 1
        assert second.data["stats"]["rates"]["put"] > 0
        assert "relays" not in second.data, "what did not change is not sent again"


async def test_all_groups_are_counted_though_the_largest_are_sent(redis_url: str):
    async with observed(redis_url) as service:
        await service.box.put_many([Event("order.placed") for _ in range(7)])
        for claim, reason in zip(await service.box.claim("relay-1", limit=7), "abcdefg", strict=True):
            await service.box.kill([claim], reason=f"error {reason}")
        async with service.follow() as events:
            first = await until(events, lambda _: True)
        assert len(first.data["groups"]) == 5
        assert [first.data[name] for name in ERRORS] == [7, 0, False, None]


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


@pytest.mark.req("SF-5")
@pytest.mark.parametrize("left", ["", "page ingest {token}\n"], ids=["revoked", "without the scope"])
async def test_the_feed_ends_when_its_token_no_longer_permits_it(redis_url: str, tmp_path: Path, left: str):
    token, file = "t" * 32, tmp_path / "tokens"
    file.touch(mode=0o600)
    other = f"other read {'o' * 32}\n"
    file.write_text(f"{other}page read {token}\n")
    async with observed(redis_url) as service:
        tokens = service.app.state.tokens = Tokens(file)
        service.client.headers["authorization"] = f"Bearer {token}"
        async with service.follow() as events:
            await until(events, lambda _: True)
            file.write_text(other + left.format(token=token))
            tokens.reload()
            await service.box.put(Event("order.placed"))
            async with asyncio.timeout(LONGEST):
                assert [sent async for sent in events if sent.event != "comment"] == []
        await all_left(service.feed)
        assert (await service.client.get("/v1/live")).status_code == (403 if left else 401)


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
        messages = (await service.live.open(None)).messages()
        feed = service.feed
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


async def test_a_page_that_comes_while_the_store_is_away_gets_a_snapshot_when_it_is_back(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
):
    async with observed(redis_url) as service:
        stats = service.box.stats

        async def fail() -> Any:
            raise StoreUnavailable("the store does not answer")

        monkeypatch.setattr(service.box, "stats", fail)
        async with service.follow() as events:
            problem = await until(events, lambda _: True)
            assert (problem.event, problem.id) == ("problem", ""), "an id would let it continue without a snapshot"
            monkeypatch.setattr(service.box, "stats", stats)
            back = await until(events, lambda sent: sent.event != "comment")
            assert back.event == "snapshot"
            assert back.data.keys() >= {"stats", "why", "relays", "groups", "jobs"}


async def test_a_defect_is_a_problem_document(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    async with observed(redis_url) as service:
        monkeypatch.setattr(service.box, "stats", lambda: 1 / 0)
        async with service.follow() as events:
            problem = await until(events, lambda sent: sent.event == "problem")
        assert problem.data == {
            "title": "Internal Server Error", "status": 500, "detail": "see the log of the service", "error": "Defect",
        }  # fmt: skip


async def test_the_first_page_after_a_pause_gets_present_values(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    async with observed(redis_url) as service:
        await service.box.put(Event("n"))
        async with service.follow() as events:
            await until(events, lambda _: True)
        await all_left(service.feed)
        before = service.feed._before
        await service.box.put(Event("n"))
        async with service.follow() as events:
            first = await until(events, lambda _: True)
        assert (first.event, first.data["stats"]["phases"]["AVAILABLE"]) == ("snapshot", 2)
        assert first.data["stats"]["rates"]["seconds"] is None, "and no mean rate of the pause"
        assert before is not None


async def test_a_page_after_a_pause_in_which_nothing_changed_gets_a_snapshot(redis_url: str):
    async with observed(redis_url) as service:
        for _ in range(2):
            async with service.follow() as events:
                assert (await until(events, lambda _: True)).event == "snapshot"
            await all_left(service.feed)


async def test_a_burst_of_pages_cannot_pass_the_limit(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live_module, "MOST_CLIENTS", 1)
    async with observed(redis_url) as service:
        page = await service.live.open(None)
        with pytest.raises(ServiceUnavailableException, match="1 pages may be open"):
            await service.live.open(None)
        await page.aclose()
        await page.aclose()
        assert service.feed.clients == 0
        assert not service.feed.sampling
        service.live.close()
        with pytest.raises(ServiceUnavailableException, match="shutting down"):
            await service.live.open(None)


async def test_a_page_that_leaves_before_its_first_message_is_not_counted(redis_url: str):
    """A server may cancel a response before it asks for the first part of its body."""
    async with observed(redis_url) as service:
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": "/v1/live",
            "raw_path": b"/v1/live", "query_string": b"", "headers": [(b"host", b"localhost")], "root_path": "",
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "extensions": {},
        }  # fmt: skip

        async def gone() -> Any:
            return {"type": "http.disconnect"}

        async def send(_: Any) -> None:
            pass

        async with asyncio.timeout(LONGEST):
            await service.app(scope, gone, send)
        assert service.feed.clients == 0
