"""RO-7: alerts about a box are sent on change of state only, by one relay of several."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from redbox import Backoff, Box, BoxPaused, Event, Publisher, Reject, Relay, Unavailable
from redbox.box.desk.marks import Marks
from redbox.events import Claim
from redbox.publishers.function import FunctionPublisher
from redbox.relay.alerts import Alerts, service
from redbox.relay.alerts.sender import Sender
from redbox.relay.digest import Digest
from redbox.testing import advance
from tests import servers
from tests.relay.steps import Target, drained, put, running, until

pytestmark = [pytest.mark.timeout(60), pytest.mark.req("RO-7"), pytest.mark.usefixtures("redbox_runner")]


class Inbox:
    """Receives alerts; the test can make it fail."""

    def __init__(self) -> None:
        self.alerts: list[tuple[str, dict[str, Any]]] = []
        self.fails: BaseException | None = None
        self.tried = 0

    async def __call__(self, event: Event) -> None:
        self.tried += 1
        if self.fails is not None:
            raise self.fails
        self.alerts.append((event.event_type, json.loads(event.payload)))

    @property
    def types(self) -> list[str]:
        return [event_type for event_type, _ in self.alerts]


def alerts(box: Box, inbox: Inbox, name: str = "r1", **options: Any) -> Alerts:
    return Alerts(box, name, FunctionPublisher(inbox), Digest(), pauses=(0, 0), **options)


async def look(*watchers: Alerts, times: int = 2) -> None:
    for _ in range(times):
        await asyncio.gather(*(watcher.run_once() for watcher in watchers))


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def pair(open_box: Callable[..., Box], inbox: Inbox, store: str) -> tuple[Box, Alerts, Alerts]:
    """A box, and the alerts of two of its relays, each with connections of its own."""
    box = open_box()
    other = box if store == "memory" else open_box(box.name)
    return box, alerts(box, inbox), alerts(other, inbox, "r2")


async def test_a_pause_and_its_end_are_each_sent_once_by_two_relays(pair: tuple[Box, Alerts, Alerts], inbox: Inbox):
    box, *both = pair
    await box.put(Event("n"))
    await look(*both)
    assert inbox.types == [], "nothing has changed"
    await box.operate.pause(who="ann", why="deploy")
    await look(*both)
    assert inbox.types == ["redbox.box.paused"]
    _, found = inbox.alerts[0]
    stats = await box.stats()
    assert stats.pause is not None
    assert stats.pause.since is not None
    assert found["box"] == box.name
    assert found["text"] == f"box {box.name} is paused by ann: deploy"
    assert found["since"].startswith(stats.pause.since.isoformat()[:19])
    await box.operate.resume(who="ann", why="done")
    await look(*both)
    assert inbox.types == ["redbox.box.paused", "redbox.box.resumed"]


async def test_the_next_leader_knows_what_was_sent(pair: tuple[Box, Alerts, Alerts], inbox: Inbox):
    box, first, second = pair
    await box.put(Event("n"))
    await box.operate.pause(who="ann", why="deploy")
    await look(first)
    await first.leave()
    await look(second)
    assert inbox.types == ["redbox.box.paused"]
    await box.operate.resume(who="ann", why="done")
    await look(second)
    assert inbox.types == ["redbox.box.paused", "redbox.box.resumed"]


async def test_a_relay_that_does_not_lead_sends_nothing(pair: tuple[Box, Alerts, Alerts], inbox: Inbox):
    box, first, second = pair
    await look(first)
    await box.put(Event("n"))
    await box.operate.pause(who="ann", why="deploy")
    await look(second)
    assert inbox.types == []
    await look(first)
    assert inbox.types == ["redbox.box.paused"]


async def test_a_full_box(pair: tuple[Box, Alerts, Alerts], inbox: Inbox):
    box, *both = pair
    await box.operate.configure(max_pending=10, who="ann", why="test")
    ids = await put(box, 10)
    await look(*both)
    assert inbox.types == ["redbox.box.full"]
    claims = await box.claim("r", limit=1)
    await box.ack(claims)
    await look(*both)
    assert inbox.types == ["redbox.box.full"], "9 of 10 is not much room"
    await box.ack(await box.claim("r", limit=5))
    await look(*both)
    assert inbox.types == ["redbox.box.full", "redbox.box.has_room"]
    assert len(ids) == 10


async def test_an_old_event(pair: tuple[Box, Alerts, Alerts], inbox: Inbox):
    box, *both = pair
    await box.put(Event("n"))
    await look(*both)
    assert inbox.types == []
    await advance(box, seconds=301)
    await look(*both)
    assert inbox.types == ["redbox.events.late"]
    assert "has waited for 5 min 1 s; the limit is 5 min" in inbox.alerts[0][1]["text"]
    await box.ack(await box.claim("r"))
    await look(*both)
    assert inbox.types == ["redbox.events.late", "redbox.events.on_time"]


async def test_ten_relays_whose_breakers_open_send_one_alert(box: Box, inbox: Inbox):
    fleet = [alerts(box, inbox, f"r{number}") for number in range(10)]
    for number in range(10):
        about = {"target": "https://shop", "breaker": "open", "reason": "down", "breaker_age": "2000"}
        await box.beat(f"r{number}", f"i{number}", about, fresh=10)
    await look(*fleet)
    assert inbox.types == ["redbox.breaker.opened"]
    assert inbox.alerts[0][1]["text"] == "the breaker of 10 relays to https://shop is open: down"
    for number in range(10):
        await box.beat(f"r{number}", f"i{number}", {"target": "https://shop", "breaker": "closed"}, fresh=10)
    await look(*fleet)
    assert inbox.types == ["redbox.breaker.opened", "redbox.breaker.closed"]


async def test_one_relay_of_two_that_cannot_reach_the_target(box: Box, inbox: Inbox):
    watcher = alerts(box, inbox)

    async def beat(name: str, breaker: str, failed: int) -> None:
        about = {"target": "https://shop", "breaker": breaker, "reason": "down", "failed": str(failed)}
        await box.beat(name, name, about, fresh=10)

    await beat("r1", "closed", 0)
    await beat("r2", "open", 5)
    await beat("r3", "closed", 0)
    await look(watcher)
    assert inbox.types == [], "it may have had no event to probe with since the target came back"
    await beat("r2", "open", 13)
    await look(watcher)
    assert inbox.types == ["redbox.breaker.opened"]
    await beat("r1", "open", 5)
    await look(watcher)
    await beat("r1", "closed", 5)
    await look(watcher)
    assert inbox.types == ["redbox.breaker.opened", "redbox.breaker.closed"], "r1 has published again"


async def test_a_target_without_a_living_relay_is_not_reported_as_up(box: Box, inbox: Inbox):
    watcher = alerts(box, inbox)
    await box.beat("r1", "i1", {"target": "https://shop", "breaker": "open", "breaker_age": "0"}, fresh=10)
    await look(watcher)
    await box.beat("r1", "i1", {}, fresh=0, leaving=True)
    await look(watcher)
    assert inbox.types == ["redbox.breaker.opened"]


async def test_two_relays_report_a_new_error_group_once(pair: tuple[Box, Alerts, Alerts], inbox: Inbox):
    box, *both = pair
    await put(box, 4)
    claims = await box.claim("r", limit=4)
    for claim, watcher in zip(claims, both * 2, strict=True):
        watcher.marked_dead(claim, f"HTTP 422: no row {claim.event_id} 1234")
    await look(*both)
    assert inbox.types == ["redbox.error_group.new"]
    for claim, watcher in zip(claims, both * 2, strict=True):
        watcher.marked_dead(claim, "HTTP 410: gone")
        watcher.marked_dead(claim, f"HTTP 422: no row {claim.event_id} 99")
    await look(*both)
    assert inbox.types == ["redbox.error_group.new"] * 2
    assert "HTTP 410: gone" in inbox.alerts[1][1]["text"]


async def test_a_dead_alert_is_not_reported(box: Box, inbox: Inbox):
    watcher = alerts(box, inbox)
    await box.put(Event("redbox.error_group.new"))
    [claim] = await box.claim("r")
    watcher.marked_dead(claim, "HTTP 422")
    await look(watcher)
    assert inbox.types == []


async def test_error_groups_without_end_are_a_bounded_number_of_alerts(box: Box, inbox: Inbox):
    watcher = alerts(box, inbox)
    await box.put(Event("n"))
    [claim] = await box.claim("r")
    for number in range(60):
        watcher.marked_dead(claim, f"the reason is {chr(97 + number % 26) * (1 + number // 26)}")
    await look(watcher)
    assert len(inbox.alerts) == service.GROUPS_PER_HOUR


async def test_a_group_beyond_the_limit_of_the_hour_is_reported_later(box: Box, inbox: Inbox):
    watcher = alerts(box, inbox)
    await box.put(Event("n"))
    [claim] = await box.claim("r")
    for number in range(service.GROUPS_PER_HOUR):
        watcher.marked_dead(claim, f"the reason is {chr(97 + number)}")
    watcher.marked_dead(claim, "HTTP 422: the lasting incident")
    await look(watcher)
    assert len(inbox.alerts) == service.GROUPS_PER_HOUR
    watcher._group_alerts = [at - 3600 for at in watcher._group_alerts]
    watcher.marked_dead(claim, "HTTP 422: the lasting incident")
    await look(watcher)
    assert len(inbox.alerts) == service.GROUPS_PER_HOUR + 1
    assert "the lasting incident" in inbox.alerts[-1][1]["text"]


async def test_an_alert_that_is_not_taken_does_not_count_for_the_hour(box: Box, inbox: Inbox):
    watcher = alerts(box, inbox)
    await box.put(Event("n"))
    [claim] = await box.claim("r")
    watcher.marked_dead(claim, "HTTP 422: bad")
    inbox.fails = ValueError("inbox is away")
    for _ in range(service.GROUPS_PER_HOUR + 1):
        watcher._quiet_until = 0
        await look(watcher, times=1)
    inbox.fails = None
    watcher._quiet_until = 0
    await look(watcher)
    assert inbox.types == ["redbox.error_group.new"]


async def test_an_alert_that_is_not_taken_is_sent_later(
    box: Box, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    watcher = alerts(box, inbox)
    await box.put(Event("n"))
    await box.operate.pause(who="ann", why="deploy")
    inbox.fails = ValueError("inbox is away")
    await look(watcher)
    assert inbox.tried == 3, "a few attempts, and then none for a while"
    assert "the alert redbox.box.paused was not sent: ValueError: inbox is away" in caplog.text
    inbox.fails = None
    monkeypatch.setattr(watcher, "_quiet_until", 0)
    await look(watcher)
    assert inbox.types == ["redbox.box.paused"]


async def test_a_note_is_prolonged_until_the_end_of_its_condition_was_taken(
    box: Box, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
):
    """Also while the condition is neither confirmed nor ruled out: without its note, the end would not be sent."""
    prolonged: list[str] = []

    class Spied(Marks):
        async def set(self, name: str, text: str, holds: float) -> str:
            prolonged.append(name)
            return await super().set(name, text, holds)

    monkeypatch.setattr(service, "PROLONG_SECONDS", 0.0)
    monkeypatch.setattr(service, "Marks", Spied)
    watcher = alerts(box, inbox)
    await box.operate.configure(max_pending=10, who="ann", why="test")
    await put(box, 10)
    await look(watcher, times=2)
    assert prolonged[-1] == "alert:full"
    await box.ack(await box.claim("r", limit=1))  # 9 of 10: neither full nor with room
    prolonged.clear()
    await look(watcher, times=1)
    assert "alert:full" in prolonged
    await box.ack(await box.claim("r", limit=5))
    inbox.fails = ValueError("inbox is away")
    prolonged.clear()
    await look(watcher, times=1)
    assert "alert:full" in prolonged
    await watcher.leave()
    inbox.fails = None
    await look(alerts(box, inbox, "r2"))
    assert inbox.types == ["redbox.box.full", "redbox.box.has_room"]


async def test_a_target_that_hangs_is_called_once(box: Box, monkeypatch: pytest.MonkeyPatch):
    calls = 0

    class Hanging(Publisher):
        target = "a target that hangs"

        async def publish(self, claim: Claim) -> None:
            nonlocal calls
            calls += 1
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    if ended.is_set():
                        raise

    ended = asyncio.Event()
    monkeypatch.setattr("redbox.relay.alerts.sender.TIME_LIMIT", 0.02)
    sender = Sender(Hanging(), box.name, "r1", Digest(), pauses=(0, 0))
    alert = service.Alert("redbox.box.paused", "text", (await box.stats()).at)
    try:
        assert not await sender.send(alert)
    finally:
        ended.set()
    assert sender._call is not None
    sender._call.cancel()
    assert calls == 1


# --- in a relay ----------------------------------------------------------------------------------------------------


async def test_two_relays_of_a_target_that_is_down(
    open_box: Callable[..., Box], store: str, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Alerts, "every", 0.05)
    box = open_box()
    other = box if store == "memory" else open_box(box.name)
    target = Target(raises=Unavailable("connection refused"))
    await put(box, 30)
    options: dict[str, Any] = {"alerts_to": inbox, "backoff": Backoff.fixed(0.05), "beat_every": 0.1, "poll": 0.1}
    async with running(Relay(box, target, name="r1", **options), Relay(other, target, name="r2", **options)):
        await until(lambda: "redbox.breaker.opened" in inbox.types, "no alert")
        target.raises = None
        await until(lambda: "redbox.breaker.closed" in inbox.types, "no second alert")
        await target.has_taken(30)
    assert inbox.types == ["redbox.breaker.opened", "redbox.breaker.closed"]
    assert inbox.alerts[0][1]["relay"] in ("r1", "r2")


async def test_a_drain_reports_dead_events_at_its_end(box: Box, inbox: Inbox):
    await put(box, 5)
    relay = Relay(box, Target(raises=Reject("HTTP 422: bad")), breaker=None, alerts_to=inbox)
    assert (await drained(relay)).dead == 5
    assert inbox.types == ["redbox.error_group.new"]


async def test_a_drain_of_a_paused_box_reports_the_pause_once(box: Box, inbox: Inbox):
    await put(box, 5)
    await box.operate.pause(who="ann", why="the target is moved")
    for _ in range(2):
        with pytest.raises(BoxPaused):
            await drained(Relay(box, Target(), alerts_to=inbox))
    assert inbox.types == ["redbox.box.paused"]
    assert inbox.alerts[0][1]["text"].endswith("is paused by ann: the target is moved")
    await box.operate.resume(who="ann", why="")
    assert (await drained(Relay(box, Target(), alerts_to=inbox))).published == 5
    assert inbox.types == ["redbox.box.paused", "redbox.box.resumed"]


async def test_alerts_that_fail_do_not_hold_up_delivery(box: Box, inbox: Inbox):
    inbox.fails = RuntimeError("no")
    await put(box, 20)
    target = Target(raises=lambda event: Reject("bad") if event.event_id == "e0" else None)
    relay = Relay(box, target, alerts_to=inbox)
    async with running(relay):
        await until(lambda: relay.summary().published == 19 and relay.summary().dead == 1, "not delivered")


async def test_an_outage_of_the_store_is_reported_by_the_relay_that_led():
    inbox = Inbox()
    with servers.redis_server(appendonly="yes") as server:
        async with Box.open(server.url, name="away") as box, Box.open(server.url, name="away") as other:
            first, second = alerts(box, inbox), alerts(other, inbox, "r2")
            await look(first)
            await look(second)
            await asyncio.to_thread(server.stop)
            for watcher in (first, second, first, second, first):
                with pytest.raises(service._AWAY):
                    await watcher.run_once()
            assert inbox.types == ["redbox.store.unreachable"]
            await asyncio.to_thread(server.start)

            async def answered() -> bool:
                await look(first, second)
                return True

            await answered()
            assert inbox.types == ["redbox.store.unreachable", "redbox.store.reachable"]


async def test_the_end_of_an_outage_is_sent_when_the_target_takes_it():
    inbox = Inbox()
    with servers.redis_server(appendonly="yes") as server:
        async with Box.open(server.url, name="away") as box:
            watcher = alerts(box, inbox)
            await look(watcher)
            await asyncio.to_thread(server.stop)
            for _ in range(2):
                with pytest.raises(service._AWAY):
                    await watcher.run_once()
            await asyncio.to_thread(server.start)
            inbox.fails = ValueError("inbox is away")
            await look(watcher)
            assert inbox.tried == 1 + 3, "and none for a while"
            inbox.fails = None
            watcher._quiet_until = 0
            await look(watcher)
    assert inbox.types == ["redbox.store.unreachable", "redbox.store.reachable"]
