"""`redbox stats` and `redbox boxes`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from redbox import Box, Event, Stats, keys
from redbox.box.reports import Pause
from redbox.cli.printing.box_view import pauses
from redbox.errors import StoreUnavailable
from redbox.testing import advance
from tests.cli.conftest import Redbox
from tests.unit.test_conditions import stats


async def fill(box: Box) -> None:
    await box.put_many([Event("a", event_id=f"e{n}") for n in range(4)])
    claims = await box.claim("relay-1", limit=4)
    await box.ack(claims[0])
    await box.kill(claims[1], reason="no")
    await box.retry(claims[2], delay=3600)
    await advance(box, seconds=40)  # so that the lease of the fourth is over
    await box.put(Event("a", ordering_key="k"))
    await box.put(Event("a", ordering_key="k"))
    await advance(box, seconds=3)


def test_stats_as_text(redbox: Redbox):
    redbox.within(fill)
    lines = redbox("stats").stdout.splitlines()
    assert lines[0].startswith(f"box default on {redbox.url} at 20")
    counts = {line.split()[0]: line.split()[1:] for line in lines[1:7]}
    assert {phase: words[0] for phase, words in counts.items()} == {
        "AVAILABLE": "2",
        "SCHEDULED": "0",
        "IN_FLIGHT": "1",
        "RETRY_SCHEDULED": "1",
        "DEAD": "1",
        "COMPLETED": "1",
    }
    text = "\n".join(lines)
    assert "oldest available 3" in text
    assert "of which 1 waits behind another event of the same ordering key; oldest 3" in text
    assert "first lease ended 13" in text
    assert "next due in 59 min" in text
    assert "1 overdue claim: the lease has expired" in text
    assert "totals  claimed 4, dead 1, published 1, put 6, retried 1" in text
    assert "█" not in text


def test_an_event_of_a_paused_key_is_not_said_to_wait_behind_another(redbox: Redbox):
    redbox.put(Event("a", ordering_key="k"))
    redbox.within(lambda box: box.operate.pause(key="k", who="me", why="test"))
    text = redbox("stats").stdout
    assert "of which 1 waits behind another event of the same ordering key, or because the key is paused" in text


def test_stats_as_json(redbox: Redbox):
    redbox.within(fill)
    stats = redbox.json("stats")
    assert stats["phases"] == {
        "SCHEDULED": 0, "AVAILABLE": 2, "IN_FLIGHT": 1, "RETRY_SCHEDULED": 1, "DEAD": 1, "COMPLETED": 1,
    }  # fmt: skip
    assert (stats["waiting"], stats["overdue"], stats["paused"]) == (1, 1, False)
    assert 3 <= stats["oldest_available"] < 10
    assert stats["totals"]["put"] == 6


def test_pending_events_without_a_live_relay_are_a_warning(redbox: Redbox):
    redbox.put(Event("a", delay=3600))
    words = "no relay is running: pending events wait until one is started (`redbox relay --to URL`)"
    assert words in redbox("stats").stdout
    redbox.within(lambda box: box.beat("r1", "1", {"target": "null:"}, fresh=10))
    assert "no relay" not in redbox("stats").stdout
    redbox.within(lambda box: advance(box, seconds=20))
    assert "no relay has sent a heartbeat for 2" in redbox("stats").stdout


def test_an_empty_box_needs_no_relay(redbox: Redbox):
    async def publish_one(box: Box) -> None:
        await box.put(Event("a"))
        await box.ack(await box.claim("r1"))

    redbox.within(publish_one)
    assert "no relay" not in redbox("stats").stdout


def test_a_paused_box_is_marked(redbox: Redbox):
    redbox.put(Event("a"))
    redbox.within(lambda box: box.operate.pause(who="me", why="test"))
    assert "PAUSED: no event is claimed until the box is resumed" in redbox("stats").stdout
    assert redbox("boxes").stdout.splitlines()[1].endswith("paused")


def test_a_blocked_line_is_a_warning(redbox: Redbox):
    async def block(box: Box) -> None:
        await box.operate.configure(who="me", why="test", dead_head="block")
        await box.put(Event("a", ordering_key="k"))
        await box.kill(await box.claim("relay-1"), reason="no")

    redbox.within(block)
    assert "1 blocked ordering key: stopped by a dead event at the head of the line" in redbox("stats").stdout


def test_boxes(redbox: Redbox):
    redbox.put(Event("a"), Event("a", delay=60), box="orders")
    redbox.put(Event("a"), box="users")
    header, *rows = redbox("boxes").stdout.splitlines()
    assert header.split()[:4] == ["BOX", "AVAILABLE", "SCHEDULED", "RETRY"]
    assert [row.split()[:4] for row in rows] == [["orders", "1", "1", "0"], ["users", "1", "0", "0"]]
    assert [(box["box"], box["phases"]["AVAILABLE"]) for box in redbox.lines("boxes")] == [("orders", 1), ("users", 1)]


def test_no_boxes(redbox: Redbox):
    result = redbox("boxes")
    assert result.stdout == ""
    assert f"there are no boxes on {redbox.url} yet; `redbox put` creates one" in result.stderr


def test_a_box_that_cannot_be_read_does_not_hide_the_others(redbox: Redbox):
    redbox.put(Event("a"), box="new")
    redbox.put(Event("a"), box="old")

    async def make_newer(box: Box) -> None:
        await box._store.exchange([("HSET", "{redbox:new:0}:meta", "layout", "99")])

    redbox.within(make_newer, "new")
    new, old = redbox("boxes", code=1).stdout.splitlines()[1:]
    assert new.startswith("new")
    assert "upgrade redbox" in new
    assert old.split()[:2] == ["old", "1"]
    assert "upgrade redbox" in redbox.lines("boxes", code=1)[0]["error"]
    assert "upgrade redbox" in redbox.error("--box", "new", "stats", code=1)


async def beat(box: Box) -> None:
    await box.put(Event("a"))
    about = {"host": "h1", "pid": "7", "target": "https://h/", "in_flight": "3", "published": "1200"}
    await box.beat("gone", "x", about, fresh=10)
    await advance(box, seconds=40)
    await box.beat("r1", "y", {**about, "breaker": "open", "reason": "HTTP 503 \x1b[31m"}, fresh=10)


def test_relays_and_their_breakers(redbox: Redbox):
    redbox.within(beat)
    header, first, second, why = redbox("stats").stdout.splitlines()[-4:]
    assert header.split() == [
        "RELAY", "SEEN", "IN", "FLIGHT", "PUBLISHED", "FAILED", "BREAKER", "HOST", "TARGET",
    ]  # fmt: skip
    assert first.split()[0] == "r1"
    assert first.endswith("3      1,200       0  open     h1 (7)  https://h/")
    assert why == "breaker of relay r1: HTTP 503 \\x1b[31m"
    assert "silent 4" in second
    relays = {relay["name"]: relay for relay in redbox.json("stats")["relays"]}
    assert (relays["r1"]["silent"], relays["gone"]["silent"]) == (False, True)
    assert 40 <= relays["gone"]["seen"] < 50
    assert (relays["r1"]["breaker"], relays["r1"]["published"]) == ("open", 1200)


def test_lost_events_are_listed_with_a_remedy(redbox: Redbox):
    redbox.put(*(Event("a", event_id=f"e{number}") for number in range(4)))
    bodies = [keys.body("default", event_id) for event_id in ("e0", "e1")]
    redbox.within(lambda box: box._store.exchange([("DEL", *bodies)]))
    redbox.within(lambda box: box.claim("relay-1"))
    (alarm,) = [line for line in redbox("stats").stdout.splitlines() if " lost events: " in line]
    assert alarm.startswith(
        "2 lost events: incomplete, and never delivered: e0, e1; `redbox doctor --repair` restores what can be restored"
    )
    assert redbox.json("stats")["lost_ids"] == ["e0", "e1"]
    more = [("ZADD", keys.lost("default"), number, f"x{number}") for number in range(20)]
    redbox.within(lambda box: box._store.exchange(more))
    assert ", ...; `redbox doctor --repair`" in redbox("stats").stdout


def test_an_unreadable_heartbeat_is_a_warning(redbox: Redbox):
    async def spoil(box: Box) -> None:
        await fill(box)
        await box.beat("good", "1", {"target": "null:"}, fresh=10)
        await box.beat("bad", "2", {"pid": "x"}, fresh=10)

    redbox.within(spoil)
    text = redbox("stats").stdout
    assert "1 unreadable value: the heartbeat of relay bad; not written by redbox" in text
    assert "good" in text
    stats = redbox.json("stats")
    assert stats["unreadable"] == ["the heartbeat of relay bad"]
    assert [relay["name"] for relay in stats["relays"]] == ["good"]
    assert "e1" in redbox("show", "e1").stdout


@pytest.mark.req("RO-5")
def test_conditions_that_hold_fail(redbox: Redbox):
    redbox.within(fill)
    passed = redbox("stats", "--fail-if", "dead>1", "--fail-if", "oldest > 1h")
    assert "failed" not in passed.stdout
    failed = redbox("stats", "--fail-if", "dead>0", "--fail-if", "dead>5", "--fail-if", "relays<1", code=1)
    assert failed.stdout.splitlines()[-2:] == [
        "failed: dead>0: 1 event is DEAD", "failed: relays<1: 0 relays are alive",
    ]  # fmt: skip
    assert redbox.json("stats", "--fail-if", "dead>0", code=1)["failed"] == ["dead>0: 1 event is DEAD"]
    assert redbox.json("stats", "--fail-if", "dead>9")["failed"] == []


def test_an_invalid_condition_lists_the_values(redbox: Redbox):
    redbox.within(fill)
    assert "there is no such value; there are oldest, dead," in redbox.error("stats", "--fail-if", "daed>0", code=2)
    assert "is not a condition" in redbox.error("stats", "--fail-if", "dead", code=2)


@pytest.mark.req("RO-5")
def test_rates_that_the_relays_report(redbox: Redbox):
    redbox.put(Event("a"))
    redbox.within(lambda box: box.beat("r1", "1", {"rate": "12.5", "failed": "3", "last_error": "HTTP 500"}, fresh=10))
    text = redbox("stats").stdout
    assert "rates   published 12/s (reported by the relays)" in text
    assert text.splitlines()[-1] == "last error of relay r1: HTTP 500"
    rates = redbox.json("stats")["rates"]
    assert rates == {"put": None, "published": 12.5, "failed": None, "seconds": None}


@pytest.mark.req("RO-5")
def test_watch_ends_when_a_condition_holds(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    redbox.put(Event("a"))
    readings = 0

    async def go_on(_: float) -> None:
        nonlocal readings
        readings += 1
        async with Box.open(redbox.url) as box:
            await box.put_many([Event("a") for _ in range(10)])
            await advance(box, seconds=0)

    monkeypatch.setattr("asyncio.sleep", go_on)
    lines = redbox.lines("stats", "--watch", "0.1", "--fail-if", "available>25", code=1)
    assert [line["phases"]["AVAILABLE"] for line in lines] == [1, 11, 21, 31]
    assert lines[0]["rates"]["put"] is None
    assert lines[1]["rates"]["put"] > 0
    assert lines[-1]["failed"] == ["available>25: 31 events are AVAILABLE"]
    blocks = redbox("stats", "--watch", "--fail-if", "available>35", code=1).stdout.split("\n\n")
    assert blocks[0].startswith("box default")
    assert "rates   put " in blocks[-2]
    assert "at least 0.1 s" in redbox.error("stats", "--watch", "0.01", code=2)


def test_watch_goes_on_when_the_store_is_away(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    redbox.put(Event("a"))
    read, calls = Box.stats, 0

    async def sometimes(self: Box) -> Stats:
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            raise StoreUnavailable("it is away")
        if calls == 5:
            raise KeyboardInterrupt
        return await read(self)

    monkeypatch.setattr(Box, "stats", sometimes)
    result = redbox("--json", "stats", "--watch", "0.1")
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.count("it is away; trying again every 0.1 s") == 2


@pytest.mark.req("RO-3", "LM-3")
def test_a_pause_is_shown_with_who_why_and_how_long():
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    pause = Pause("ada\x1b", "deploy", at - timedelta(minutes=2), at + timedelta(minutes=8))
    assert pauses(stats(paused=True, pause=pause, paused_keys=2, ramp_ends=timedelta(seconds=30))) == [
        "PAUSED: no event is claimed for 8 min more (by ada\\x1b, 2 min ago: deploy)",
        "2 paused ordering keys: `redbox resume --key KEY` resumes one",
        "RAMP: the rate of claims is limited for 30 s more",
    ]
    endless = Pause("ada", "", None, None)
    assert pauses(stats(paused=True, pause=endless)) == [
        "PAUSED: no event is claimed until the box is resumed (by ada)"
    ]
    assert pauses(stats()) == []


@pytest.mark.req("RO-3", "LM-1", "LM-2")
def test_limits_are_shown_with_whether_they_are_reached(redbox: Redbox):
    redbox.put(*(Event("a") for _ in range(4)))
    assert "limits" not in redbox("stats").stdout
    redbox("configure", "max_rate=1000/s", "max_in_flight=2", "--yes")
    assert "limits  max_rate 1000/s, max_in_flight 2 (0 now)\n" in redbox("stats").stdout
    redbox.within(lambda box: box.claim("relay-1", limit=1))
    redbox("configure", "max_rate=20/h", "max_burst=10", "--yes")
    redbox.within(lambda box: box.operate.configure(max_in_flight=1, who="ada", why="test"))
    found = redbox("stats").stdout
    assert "limits  max_rate 20/h with bursts of 10 (reached), max_in_flight 1 (reached: 1 now)\n" in found
    values = redbox.json("stats")
    assert values["limits_reached"] == ["max_rate", "max_in_flight"]
    assert (values["tokens"], values["settings"]["max_rate"], values["settings"]["max_in_flight"]) == (0, "20/h", 1)


@pytest.mark.req("RO-3", "LM-3")
def test_the_first_paused_keys_are_named(redbox: Redbox):
    async def pause(box: Box) -> None:
        await box.put(Event("a"))
        for number in range(5):
            await box.operate.pause(key=f"order-{number}", who="ada", why="wrong address", duration=60 * (number + 1))

    redbox.within(pause)
    lines = redbox("stats").stdout.splitlines()
    assert re.fullmatch(
        r"PAUSED KEY 'order-0': not claimed for (1 min|5\d s) more \(by ada, .* ago: wrong address\)", lines[1]
    )
    assert lines[3].startswith("PAUSED KEY 'order-2'")
    assert lines[4] == "2 more paused ordering keys: `redbox resume --key KEY` resumes one"
    found = redbox.json("stats")
    assert [key["key"] for key in found["first_paused_keys"]] == ["order-0", "order-1", "order-2"]
    assert found["paused_keys"] == 5
