"""The sentences of explanations, from snapshots that the test writes: RO-4."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from redbox import Event, Phase, Record, Settings, Situation, State, Stats
from redbox.box.reports import Pause, RelayReport
from redbox.box.why.box import explain_box
from redbox.box.why.event import explain_event
from redbox.box.why.explanation import Step
from redbox.box.why.key import explain_line
from redbox.box.why.snapshot import Snapshot, Unindexed
from redbox.box.why.words import Clock, because, many, quoted, sentence
from redbox.events import to_ms
from redbox.relay.outcomes import breaker
from redbox.relay.report import PublishRate
from redbox.store.scripts.replies import EventLine, Located, Sighting
from redbox.store.server.server_facts import ServerFacts

pytestmark = pytest.mark.req("RO-4")
NOW = datetime(2026, 1, 31, 3, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FULL = {
    "used_memory": str(120 * 1024 * 1024), "maxmemory": str(100 * 1024 * 1024), "maxmemory_policy": "noeviction",
    "mem_not_counted_for_evict": "0",
}  # fmt: skip


def relay(name: str = "relay-1", **fields: Any) -> RelayReport:
    return RelayReport(name=name, **{"seen": timedelta(seconds=1), "target": "https://pay.example/", **fields})


def stats(**fields: Any) -> Stats:
    phases = dict.fromkeys(Phase, 0) | fields.pop("phases", {})
    ages = ("oldest_available", "next_due", "oldest_waiting", "first_lease_ends", "oldest_dead", "oldest_completed")
    counts = ("waiting", "waiting_due", "suspects", "overdue", "blocked", "lost", "layout")
    given = {
        **dict.fromkeys(ages), **dict.fromkeys(counts, 0), "box": "orders", "at": NOW, "phases": phases,
        "paused": False, "totals": {}, "settings": Settings(),
    } | fields  # fmt: skip
    return Stats(**given)


def pending(**fields: Any) -> Sighting:
    """A due event in its line, if it has one."""
    key = fields.pop("ordering_key", None)
    line = EventLine(key, 3, 0, None, "e", fields.pop("paused_until", None)) if key else None
    index = fields.pop("index", "pending")
    record = Record(
        event=Event("order.paid", event_id="e", ordering_key=key), event_id="e", state=State.PENDING,
        phase=Phase.AVAILABLE, created_at=NOW - 5 * MINUTE, available_at=NOW - 5 * MINUTE, **fields,
    )  # fmt: skip
    return Sighting("e", record, {index: to_ms(NOW - 5 * MINUTE)}, 7, line, False)


def snapshot(*sightings: Sighting, **fields: Any) -> Snapshot:
    at_hand = {"stats": stats(relays=[relay()], phases={Phase.AVAILABLE: len(sightings)}), **fields}
    return Snapshot(located=Located(to_ms(NOW), None, 3, list(sightings)), **at_hand)


def text(found: Any) -> str:
    return "\n".join(found.sentences)


# --- words -------------------------------------------------------------------------------------------------------


def test_times_are_relative_to_the_stores_clock():
    clock = Clock(NOW)
    assert clock.ago(NOW - 3 * MINUTE) == "3 min ago"
    assert clock.ago(None) == "at an unknown time"
    assert clock.ahead(NOW + timedelta(seconds=12)) == "in 12 s"
    assert clock.age(NOW + MINUTE) == "0 ms"
    assert clock.age(None) == "0 ms"


def test_words():
    assert quoted("a\x1bb") == "a\\x1bb"
    assert quoted("x" * 300) == "x" * 200 + "..."
    assert sentence("HTTP 503") == "HTTP 503."
    assert sentence("Why?") == "Why?"
    assert many(1, "event", "waits", "wait") == "1 event waits"
    assert many(2000, "event", "waits", "wait") == "2,000 events wait"
    assert because("ada", "it is down") == "by ada (it is down)"
    assert because("ada", "") == "by ada"
    assert because("", "") == "by an unknown operator"


def test_a_command_is_quoted_for_a_shell():
    step = Step("see it", ("list", "--key=it's; rm -rf"))
    assert step.command(("--box", "a b")) == """redbox --box 'a b' list '--key=it'"'"'s; rm -rf'"""


def test_a_publish_rate_is_measured_over_at_least_a_second():
    now = 10.0
    rate = PublishRate(lambda: now)
    now = 10.5
    assert rate.read(100) == 0
    now = 12.0
    assert rate.read(100) == 50
    now = 12.5
    assert rate.read(900) == 50
    now = 13.0
    assert rate.read(900) == 800


# --- pauses and ramps --------------------------------------------------------------------------------------------


def test_a_pause_that_ends_by_itself():
    pause = Pause("ada", "the provider is down", NOW - 3 * MINUTE, NOW + 7 * MINUTE)
    found = explain_event(snapshot(pending(), stats=stats(paused=True), pause=pause), "e")
    assert found.situation is Situation.PAUSED
    assert (
        "The box was paused 3 min ago by ada (the provider is down): no event is claimed until the pause ends in 7 min."
    ) in text(found)
    assert [step.arguments for step in found.next_steps] == [("resume",)]


def test_a_paused_box_without_a_relay():
    pause = Pause("ada", "", NOW - 3 * MINUTE, None)
    found = explain_box(snapshot(stats=stats(paused=True, relays=[relay(seen=9 * MINUTE)]), pause=pause))
    assert found.situation is Situation.PAUSED
    assert found.sentences[-1].startswith(
        "Besides, no relay is alive: relay relay-1 on an unknown host has been silent for 9 min"
    )
    assert [step.arguments[0] for step in found.next_steps] == ["resume", "relay"]
    assert "Besides" not in text(explain_box(snapshot(stats=stats(paused=True, relays=[relay()]), pause=pause)))


def test_a_pause_beside_a_full_server():
    pause = Pause("ada", "", NOW - 3 * MINUTE, None)
    found = explain_box(snapshot(server=server_facts(FULL), stats=stats(paused=True, relays=[relay()]), pause=pause))
    assert found.situation is Situation.STORE_REFUSES_WRITES
    assert found.sentences[-1].startswith("Besides, the box was paused 3 min ago by ada: no event is claimed")
    assert found.next_steps[-1].arguments == ("resume",)
    assert "Relays go on" not in text(found)


def test_a_pause_by_an_older_redbox():
    found = explain_box(
        snapshot(pending(), stats=stats(paused=True, phases={Phase.AVAILABLE: 1}), pause=Pause("", "", None, None))
    )
    assert "The box is paused, by an unknown operator: no event is claimed until it is resumed." in text(found)


RATED = Settings(max_rate="50/s", max_in_flight=5)


@pytest.mark.req("LM-1")
def test_an_event_that_waits_for_the_rate():
    now = stats(settings=RATED, limits_reached=["max_rate"], relays=[relay()])
    found = explain_event(snapshot(pending(), stats=now), "e")
    assert found.situation is Situation.LIMIT_REACHED
    assert "7 events are before it." in text(found)
    assert "The limit max_rate is reached: all relays together claim at most 50/s." in text(found)
    assert "At 50/s, its turn comes in about 160 ms." in text(found)
    assert [step.arguments for step in found.next_steps] == [("configure", "max_rate=100/s")]


@pytest.mark.req("LM-2")
def test_an_event_that_waits_for_a_place():
    now = stats(
        settings=RATED, limits_reached=["max_in_flight"], relays=[relay()], phases={Phase.IN_FLIGHT: 5},
        first_lease_ends=timedelta(seconds=12),
    )  # fmt: skip
    found = explain_event(snapshot(pending(), stats=now), "e")
    assert found.situation is Situation.LIMIT_REACHED
    assert (
        "The limit max_in_flight is reached: 5 events are claimed, and at most 5 may be at once. A place is free when "
        "one of them is settled, or its lease ends; the first ends in 12 s."
    ) in text(found)
    assert [step.arguments for step in found.next_steps] == [("configure", "max_in_flight=10")]


@pytest.mark.req("LM-1", "LM-2")
def test_a_box_whose_limits_are_reached():
    now = stats(
        settings=RATED, limits_reached=["max_rate", "max_in_flight"], relays=[relay(rate=40.0)],
        phases={Phase.AVAILABLE: 3000, Phase.IN_FLIGHT: 5}, oldest_available=5 * MINUTE,
    )  # fmt: skip
    found = explain_box(snapshot(pending(), stats=now))
    assert found.situation is Situation.LIMIT_REACHED
    assert "3,000 events are due" in text(found)
    assert "At 50/s, that takes 1 min, if no event is added." in text(found)
    assert [step.arguments[1] for step in found.next_steps] == ["max_rate=100/s", "max_in_flight=10"]


@pytest.mark.req("LM-1")
def test_a_box_at_its_limit_whose_events_wait_for_a_moment():
    now = stats(
        settings=RATED, limits_reached=["max_rate"], relays=[relay(rate=50.0)],
        phases={Phase.AVAILABLE: 90}, oldest_available=timedelta(seconds=2),
    )  # fmt: skip
    found = explain_box(snapshot(pending(), stats=now))
    assert found.situation is Situation.FLOWING
    assert found.headline == "box orders: flowing, at the limit max_rate"
    assert "The limit max_rate is reached: all relays together claim at most 50/s." in text(found)
    assert "90 events are due, the oldest for 2 s" in text(found)
    assert [step.arguments[-1] for step in found.next_steps] == ["max_rate=100/s"]


@pytest.mark.req("LM-1")
@pytest.mark.parametrize("obstacle", [{"paused": True}, {"relays": []}, {"ramp_ends": MINUTE}])
def test_other_obstacles_come_before_a_limit(obstacle: dict[str, Any]):
    now = stats(**{"settings": RATED, "limits_reached": ["max_rate"], "relays": [relay()], **obstacle})
    assert explain_event(snapshot(pending(), stats=now), "e").situation is not Situation.LIMIT_REACHED


@pytest.mark.parametrize("index", ["pending", "waiting"])
def test_a_paused_ordering_key(index: str):
    """Its head is in the index `waiting`, unless it was claimed when the key was paused."""
    paused = {"order-7": Pause("ada", "wrong amounts", NOW - 3 * MINUTE, None)}
    seen = snapshot(pending(ordering_key="order-7", index=index), paused_keys=paused)
    for found in (explain_event(seen, "e"), explain_line(seen, "order-7")):
        assert found.situation is Situation.KEY_PAUSED
        assert (
            "The ordering key 'order-7' was paused 3 min ago by ada (wrong amounts): none of its events is claimed "
            "until it is resumed."
        ) in text(found)
        assert [step.arguments for step in found.next_steps] == [("resume", "--key=order-7")]


def test_the_pause_of_an_ordering_key_is_over_and_nobody_has_reaped():
    found = explain_event(snapshot(pending(ordering_key="k", index="waiting")), "e")
    assert found.situation is Situation.KEY_PAUSED
    assert "the pause is over, and a relay makes it available within seconds" in text(found)


def behind_a_pause(**relays: Any) -> Snapshot:
    """All due events wait for the ordering key `order-7`, which is paused."""
    paused = {"order-7": Pause("ada", "wrong amounts", NOW - 3 * MINUTE, None)}
    counts: dict[str, Any] = {"waiting": 1467, "waiting_due": 1467, "paused_keys": 1, "oldest_waiting": MINUTE}
    now = stats(phases={Phase.AVAILABLE: 1467}, relays=[relay(**relays)], **counts)
    waiting = pending(ordering_key="order-7", index="waiting")
    return snapshot(
        waiting, stats=now, paused_keys=paused, first_paused=list(paused.items()), behind_paused=1467
    )  # fmt: skip


def test_a_paused_ordering_key_beside_others_that_flow():
    found = explain_box(behind_a_pause(rate=12.0))
    assert found.situation is Situation.FLOWING
    assert "No event can be claimed" not in text(found)
    assert "Nothing is stuck" not in text(found)
    assert "The other events flow: 0 events are due, and 0 in flight." in text(found)
    assert (
        "1 ordering key is paused; 1,467 events wait for it. It is 'order-7', paused by ada (wrong amounts)."
        in text(found)
    )


@pytest.mark.parametrize("silent", [{"rate": 0.0}, {"rate": 12.0, "seen": timedelta(seconds=12)}])
def test_a_paused_ordering_key_that_all_events_wait_for(silent: dict[str, Any]):
    found = explain_box(behind_a_pause(**silent))
    assert found.situation is Situation.KEY_PAUSED
    words = "their ordering key is paused, or an earlier event of it is not settled"
    assert f"No event can be claimed: 1,467 events are due, but {words}." in text(found)


# --- relays ------------------------------------------------------------------------------------------------------


def test_the_only_relay_has_just_crashed():
    """Nothing is due: its leases end one by one, and nobody is left to reap them."""
    silent = relay(rate=9.0, in_flight=20, seen=timedelta(seconds=12))
    counts: dict[str, Any] = {"phases": {Phase.IN_FLIGHT: 20}, "overdue": 20, "first_lease_ends": -timedelta(seconds=2)}
    found = explain_box(snapshot(stats=stats(relays=[silent], **counts)))
    assert found.situation is Situation.STALLED
    assert found.headline == "box orders: the only relay may have crashed: last heartbeat 12 s ago"
    assert "20 claims have expired" in text(found)
    assert [step.arguments[0] for step in found.next_steps] == ["stats", "relay"]
    both = explain_box(snapshot(stats=stats(relays=[silent, relay("b", seen=timedelta(seconds=14))], **counts)))
    assert both.headline == "box orders: all 2 relays may have crashed: last heartbeat 12 s ago"
    well = explain_box(snapshot(stats=stats(relays=[silent, relay("b")], **counts)))
    assert well.situation is Situation.FLOWING


def test_all_breakers_are_open():
    relays = [
        relay("a", breaker="open", reason="HTTP 401", breaker_since=2 * MINUTE),
        relay("b", breaker="probing", reason="HTTP 401", breaker_since=9 * MINUTE),
        relay("gone", seen=timedelta(hours=1)),
    ]
    found = explain_event(snapshot(pending(), stats=stats(relays=relays)), "e")
    assert found.situation is Situation.BREAKER_OPEN
    assert "The breakers of all 2 relays have been open for 9 min: HTTP 401." in text(found)


def test_a_relay_without_heartbeats_may_be_running():
    held = stats(phases={Phase.IN_FLIGHT: 3, Phase.AVAILABLE: 1}, overdue=1)
    found = explain_event(snapshot(pending(), stats=held), "e")
    assert "No relay sends a heartbeat, but 2 events are claimed: a relay has just died, or runs" in text(found)
    found = explain_event(snapshot(pending(), stats=stats(phases={Phase.IN_FLIGHT: 1}, overdue=1)), "e")
    assert "No relay is running: none is registered" in text(found)


def test_leases_that_have_just_ended_are_counted():
    now = stats(phases={Phase.IN_FLIGHT: 3}, overdue=2, first_lease_ends=-timedelta(seconds=2), relays=[relay()])
    assert "3 in flight, 2 of them with a lease that has just ended." in text(explain_box(snapshot(stats=now)))


def test_an_open_breaker_says_when_it_is_tried_next():
    relays = [
        relay("a", breaker="open", reason="HTTP 401", next_probe=timedelta(seconds=12)),
        relay("b", breaker="open", reason="HTTP 401", next_probe=timedelta(seconds=9)),
        relay("c", breaker="probing", reason="HTTP 401", breaker_since=MINUTE),
    ]
    found = explain_event(snapshot(pending(), stats=stats(relays=relays)), "e")
    assert "The next try is due in 9 s." in text(found)


@pytest.mark.parametrize(
    ("target", "known"),
    [
        ("https://pay.example/a;b", "https://pay.example/a;b"),
        ("redis://broker:6379/0/orders", "redis://broker:6379/0/orders"),
        ("https://ada:s3cret@pay.example/", "URL"),
        ("https://pay.example/?token=s3cret", "URL"),
        ("the function pub:send", "URL"),
        ("https://hooks.example/T0/xyz…", "URL"),
        ("https://pay.example/ --yes", "URL"),
        ("", "URL"),
    ],
)
def test_a_relay_is_started_with_the_last_known_target(target: str, known: str):
    """A heartbeat has it without secrets; one that was shortened is of no use."""
    gone = relay(seen=MINUTE, target=target)
    seen = snapshot(pending(), stats=stats(relays=[gone], phases={Phase.AVAILABLE: 1}))
    for found in (explain_event(seen, "e"), explain_box(seen)):
        (step,) = found.next_steps
        assert step.arguments == ("relay", "--to", known)
        assert ("add credentials, if needed" in step.purpose) is (known != "URL")


@pytest.mark.parametrize(
    ("reason", "words"),
    [("HTTP 403", "Repair the target: check its credentials."), ("HTTP 503 after 4013 ms", "Repair the target; the")],
)
def test_an_open_breaker_says_what_to_do(reason: str, words: str):
    found = explain_event(snapshot(pending(), stats=stats(relays=[relay(breaker="open", reason=reason)])), "e")
    assert words in text(found)
    overloaded = [("pause",)] if "503" in reason else []
    assert [step.arguments for step in found.next_steps] == [("stats",), *overloaded]


@pytest.mark.parametrize(
    ("reason", "error", "says", "dies"),
    [
        ("20 rejections in a row: HTTP 401", "HTTP 422: no amount", "HTTP 422: no amount.", True),
        ("cannot connect to pay:443: refused", "HTTP 400", "HTTP 400.", True),
        ("20 rejections in a row: HTTP 422", "cannot connect to pay:443", "cannot connect to pay:443.", False),
        ("20 rejections in a row: HTTP 422", "HTTP 422: no amount of event 7", "", True),
        ("cannot connect to pay:443: refused", "cannot connect to pay:443: refused", "", False),
        ("timeout after 3 s", "", "", False),
    ],
)
def test_an_open_breaker_says_why_its_probes_fail_now(reason: str, error: str, says: str, dies: bool):
    """The credentials were corrected, and now the target rejects the events themselves."""
    sick = relay(breaker="open", reason=reason, last_error=error)
    found = explain_event(snapshot(pending(), stats=stats(relays=[sick])), "e")
    assert f"has been open: {reason}." in text(found)
    assert (f"The latest attempt failed with: {says}" in text(found)) is bool(says)
    assert ("The latest attempt" in text(found)) is bool(says)
    assert ("check its credentials" in text(found)) is False
    assert ("each failed try makes one DEAD" in text(found)) is dies
    assert (found.next_steps[0].arguments == ("pause",)) is dies


@pytest.mark.parametrize(
    ("reason", "dies"),
    [("HTTP 400", True), ("HTTP 422: no amount", True), ("HTTP 401", False), ("HTTP 404", False), ("HTTP 429", False)],
)
def test_an_open_breaker_says_what_its_probes_cost(reason: str, dies: bool):
    found = explain_event(snapshot(pending(), stats=stats(relays=[relay(breaker="open", reason=reason)])), "e")
    assert f"8 events, and up to {breaker.MOST_PROBED_AGAIN} if the target answers with an error" in text(found)
    assert f"({breaker.MOST_PROBED} if it rejects all of them)" in text(found)
    assert f"at most {breaker.LONGEST_PAUSE:g} s apart" in text(found)
    assert ("each failed try makes one DEAD" in text(found)) is dies
    assert (found.next_steps[0].arguments == ("pause",)) is dies
    assert [step.arguments for step in found.next_steps].count(("pause",)) == (dies or reason == "HTTP 429")


def hanging(name: str = "relay-1", **fields: Any) -> RelayReport:
    return relay(name, **{"hanging": 100, "calls": 100, "rate": 0.0, **fields})


def test_a_relay_whose_calls_all_hang_is_restarted():
    """Its breaker is open too, and does not close by itself."""
    stuck = hanging(breaker="open", reason="timeout after 3 s", breaker_since=MINUTE)
    seen = snapshot(pending(), stats=stats(relays=[stuck], phases={Phase.AVAILABLE: 1}))
    for found in (explain_event(seen, "e"), explain_box(seen)):
        assert found.situation is Situation.STALLED
        assert "All 100 places of relay relay-1, the only one alive, are taken by calls that hang" in text(found)
        assert "Restart it" in text(found)
        assert "breaker" not in text(found)
    retrying = stats(relays=[stuck], phases={Phase.RETRY_SCHEDULED: 3})
    assert explain_box(snapshot(stats=retrying)).situation is Situation.STALLED
    both = explain_event(snapshot(pending(), stats=stats(relays=[hanging("a"), hanging("b")])), "e")
    assert "All places of all 2 relays are taken by calls that hang" in text(both)
    assert "Restart them" in text(both)
    one = explain_event(snapshot(pending(), stats=stats(relays=[hanging(hanging=1, calls=1)])), "e")
    assert "The only place of relay relay-1, the only one alive, is taken by a call that hangs" in text(one)


def test_a_relay_whose_calls_hang_beside_a_healthy_one():
    found = explain_box(snapshot(stats=stats(relays=[relay(rate=3.0), hanging("sick")])))
    assert found.situation is Situation.FLOWING
    words = "Besides, all 100 places of relay sick are taken by calls that hang. Restart it: it claims nothing before"
    assert words in found.sentences[-1]
    some = explain_box(snapshot(stats=stats(relays=[relay(hanging=99, calls=100, rate=3.0)])))
    assert "hang" not in text(some)


def test_an_open_breaker_beside_a_healthy_relay():
    sick = relay("sick", breaker="open", reason="HTTP 503", breaker_since=2 * MINUTE)
    found = explain_box(snapshot(stats=stats(relays=[relay(rate=3.0), sick])))
    assert found.situation is Situation.FLOWING
    assert found.sentences[-1] == "Besides, the breaker of relay sick has been open for 2 min: HTTP 503."
    assert [step.arguments for step in found.next_steps] == [("stats",)]


def test_one_closed_breaker_is_enough():
    relays = [relay("a", breaker="open", reason="HTTP 401"), relay("b", rate=3.5)]
    found = explain_event(snapshot(pending(), stats=stats(relays=relays)), "e")
    assert found.situation is Situation.QUEUED
    assert (
        "2 relays are alive and published 3.5 events/s before the last heartbeat: a relay claims it in about 2 s."
        in text(found)
    )


def test_a_breaker_that_has_not_opened_yet_is_not_open():
    assert not relay(breaker="probing").breaker_open
    assert relay(breaker="open").breaker_open  # of an older relay, which does not say since when


def test_queued_while_the_relay_fails():
    failing = relay(rate=0.0, failures_in_row=4, last_error="HTTP 500")
    found = explain_event(snapshot(pending(), stats=stats(relays=[failing])), "e")
    assert "1 relay is alive, but the last 4 attempts of relay relay-1 failed, the latest with: HTTP 500." in text(
        found
    )


# --- the server --------------------------------------------------------------------------------------------------


def server_facts(known: dict[str, str]) -> ServerFacts:
    settings = {name: value for name, value in known.items() if "-" in name}
    return ServerFacts({name: value for name, value in known.items() if name not in settings}, settings, ())


def test_a_full_server():
    full = stats(relays=[relay()], phases={Phase.COMPLETED: 7})
    found = explain_box(snapshot(server=server_facts(FULL), stats=full))
    assert found.situation is Situation.STORE_REFUSES_WRITES
    assert "it uses 120.0 MiB of maxmemory 100.0 MiB, with the policy noeviction." in text(found)
    assert "Puts and replays that need more than is left are refused. Relays go on" in text(found)
    assert "This box holds 7 delivered events, which a sweep can remove" in text(found)
    commands = ["redbox sweep --keep-published 0s --dry-run", "redbox boxes"]
    assert [step.command() for step in found.next_steps] == commands
    found = explain_box(snapshot(server=server_facts(FULL)))
    assert "This box holds no delivered event, so a sweep makes no room." in text(found)
    assert "Raise maxmemory, or look for other boxes" in text(found)
    assert "Otherwise" not in text(found)
    assert [step.command() for step in found.next_steps] == ["redbox boxes"]


def test_a_server_that_is_nearly_full_accepts_puts():
    """A sweep has made some room, but less than an event of the largest default size may need."""
    small = FULL | {"used_memory": str(5_976_883), "maxmemory": str(6 * 1024 * 1024)}
    found = explain_box(snapshot(server=server_facts(small)))
    assert found.situation is Situation.FLOWING
    assert (
        "Besides, the server is nearly full: it uses 5.7 MiB of maxmemory 6.0 MiB. "
        "A put that needs more than is left is refused."
    ) in text(found)
    assert found.next_steps[-1].command() == "redbox boxes"
    refusing = explain_box(snapshot(server=server_facts(small | {"used_memory": str(6 * 1024 * 1024 - 9_000)})))
    assert refusing.situation is Situation.STORE_REFUSES_WRITES


def test_a_full_server_without_a_relay():
    found = explain_box(snapshot(server=server_facts(FULL), stats=stats()))
    assert found.situation is Situation.STORE_REFUSES_WRITES
    assert "No relay is running" in text(found)
    assert "Relays go on" not in text(found)
    assert found.next_steps[-1].arguments == ("relay", "--to", "URL")


@pytest.mark.parametrize(
    "change",
    [{"maxmemory": "0"}, {"maxmemory_policy": "allkeys-lru"}, {"mem_not_counted_for_evict": str(30 * 1024 * 1024)}],
)
def test_a_server_that_has_memory_left(change: dict[str, str]):
    assert explain_box(snapshot(server=server_facts(FULL | change))).situation is Situation.FLOWING


@pytest.mark.parametrize(
    ("change", "evicts"),
    [({}, True), ({"maxmemory": "0"}, False), ({"maxmemory_policy": "volatile-lru"}, False)],
)
def test_a_server_that_evicts_keys(change: dict[str, str], evicts: bool):
    roomy = FULL | {"maxmemory_policy": "allkeys-lru", "used_memory": "1"} | change
    found = explain_box(snapshot(server=server_facts(roomy)))
    words = "Besides, the server evicts keys when it is full (maxmemory-policy allkeys-lru), and events with them."
    assert (words in text(found)) is evicts
    assert (("doctor",) in [step.arguments for step in found.next_steps]) is evicts


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"rdb_last_bgsave_status": "err", "stop-writes-on-bgsave-error": "yes"}, "its last snapshot failed"),
        ({"aof_last_write_status": "err"}, "its last write to the append-only file failed"),
        ({"role": "slave", "slave_read_only": "1"}, "The server refuses all writes: it is a read-only replica."),
    ],
)
def test_a_server_that_refuses_all_writes(server: dict[str, str], words: str):
    found = explain_box(snapshot(server=server_facts(server)))
    assert found.situation is Situation.STORE_REFUSES_WRITES
    assert words in text(found)


@pytest.mark.parametrize("server", [{}, {"rdb_last_bgsave_status": "err"}, {"role": "master"}])
def test_a_server_that_accepts_writes_or_does_not_say(server: dict[str, str]):
    assert explain_box(snapshot(server=server_facts(server))).situation is Situation.FLOWING


# --- the order of the causes of a box ----------------------------------------------------------------------------

#: Each adds a cause that comes before those of the earlier ones.
WORSE: tuple[tuple[Situation, dict[str, Any], dict[str, Any]], ...] = (
    (Situation.FLOWING, {}, {}),
    (Situation.LOST, {"lost": 1, "lost_ids": ["x"]}, {}),
    (Situation.BOX_FULL, {"settings": Settings(max_pending=1), "phases": {Phase.AVAILABLE: 1}}, {}),
    (Situation.STALLED, {"oldest_available": MINUTE, "relays": [relay(rate=0.0)]}, {}),
    (Situation.FAILING, {"relays": [relay(rate=0.0, failures_in_row=9, last_error="HTTP 500")]}, {}),
    (Situation.BREAKER_OPEN, {"relays": [relay(breaker="open", reason="HTTP 500", failures_in_row=9)]}, {}),
    (Situation.NO_RELAY, {"relays": []}, {}),
    (Situation.PAUSED, {"paused": True}, {"pause": Pause("ada", "", NOW, None)}),
    (Situation.STORE_REFUSES_WRITES, {}, {"server": server_facts(FULL)}),
)


def test_the_order_of_causes():
    of_stats: dict[str, Any] = {"relays": [relay(rate=0.0)]}
    others: dict[str, Any] = {}
    for situation, more, beside in WORSE:
        of_stats |= more
        others |= beside
        found = explain_box(snapshot(stats=stats(**{**of_stats, "phases": dict(of_stats.get("phases", {}))}), **others))
        assert found.situation is situation, text(found)
        assert ("1 event is lost, and never delivered: x." in text(found)) is ("lost" in of_stats)


def test_a_box_too_large_to_look_at_is_said_to_miss_events_by_its_totals():
    unseen = Unindexed(missing=7, found=0, complete=False)
    found = explain_box(snapshot(unindexed=unseen))
    assert found.situation is Situation.FLOWING
    assert "by the totals, 7 events were put, but are neither in an index nor removed" in text(found)
    assert [step.command() for step in found.next_steps] == ["redbox doctor --full"]
    assert "By the totals" not in text(explain_box(snapshot(unindexed=Unindexed(7, 0, complete=True))))
    torn = snapshot(unindexed=unseen, stats=stats(relays=[relay()], unreadable=["the total swept"]))
    assert "By the totals" not in text(explain_box(torn))
    some = text(explain_box(snapshot(unindexed=Unindexed(7, 1, complete=False))))
    assert "At least 1 event is stored, but in no index: no relay finds it, and it is not delivered." in some


@pytest.mark.parametrize("sick", [{"breaker": "open", "reason": "HTTP 401"}, {"rate": 2.0}])
def test_retries_do_not_hide_how_long_events_wait(sick: dict[str, Any]):
    """An event is due anew with each retry, and is not due before it."""
    counts: dict[str, Any] = {
        "phases": {Phase.AVAILABLE: 42, Phase.RETRY_SCHEDULED: 58},
        "oldest_available": 6 * MINUTE,
    }
    found = explain_box(snapshot(pending(attempts=3), stats=stats(relays=[relay(**sick)], **counts)))
    assert "42 events are due, the oldest for 6 min (put 5 min ago), and 58 more wait for a retry." in text(found)
    fresh = explain_box(snapshot(pending(), stats=stats(relays=[relay(**sick)], **counts)))
    assert "42 events are due, the oldest for 6 min, and 58 more wait for a retry." in text(fresh)


def test_relays_that_claim_nothing_may_have_died():
    """In the first seconds after a kill, the last heartbeat is still recent."""
    due: dict[str, Any] = {"phases": {Phase.AVAILABLE: 3}, "oldest_available": MINUTE}
    found = explain_box(snapshot(stats=stats(relays=[relay(rate=0.0)], **due)))
    assert "1 relay is alive, but claims nothing: its log says why." in text(found)
    found = explain_box(snapshot(stats=stats(relays=[relay(rate=0.0), relay("b", rate=0.0)], **due)))
    assert "2 relays are alive, but claim nothing: their logs say why." in text(found)
    silent = relay(rate=0.0, in_flight=2, seen=timedelta(seconds=12))
    gone = stats(relays=[silent], overdue=2, first_lease_ends=-timedelta(seconds=3), **due)
    found = explain_box(snapshot(stats=gone))
    assert "2 claims have expired" in text(found)
    assert "The last heartbeat of a relay came 12 s ago: it may have died." in text(found)
    assert "is slow, or hangs" not in text(found)


def test_a_silent_relay_that_holds_events_is_named():
    """A supervisor restarts a relay that crashes; its events wait for the end of their leases."""
    lease = NOW + timedelta(seconds=12)
    record = msgspec.structs.replace(
        pending().record, state=State.CLAIMED, claimed_by="gone", claimed_at=NOW - MINUTE, lease_until=lease,
        phase=Phase.IN_FLIGHT,
    )  # fmt: skip
    held = pending()._replace(record=record, scores={"claimed": to_ms(lease)})
    gone = relay("gone", seen=timedelta(seconds=9), rate=7.0)
    counts: dict[str, Any] = {"phases": {Phase.IN_FLIGHT: 95}, "first_lease_ends": timedelta(seconds=12)}
    found = explain_box(snapshot(held, stats=stats(relays=[relay(rate=0.0, in_flight=5), gone], **counts)))
    assert found.situation is Situation.STALLED
    words = "elay gone has been silent for 9 s, and holds up to 90 events: they return to PENDING when their leases end"
    assert f"R{words}, the first in 12 s." in text(found)
    found = explain_box(snapshot(held, stats=stats(relays=[relay(rate=3.0), gone], **counts)))
    assert found.situation is Situation.FLOWING
    assert f"Besides, r{words.replace('90', '95')}" in text(found)
    nobody = explain_box(snapshot(held, stats=stats(relays=[relay("gone", seen=MINUTE)], **counts)))
    assert nobody.situation is Situation.NO_RELAY
    assert "Relay gone has been silent for 1 min" in text(nobody)
    well = [relay(rate=0.0), relay("gone")]
    assert explain_box(snapshot(held, stats=stats(relays=well, **counts))).situation is Situation.FLOWING


def test_a_crash_loop_comes_before_the_relays_that_it_ended():
    poison = pending(index="suspect", expiries=3)
    found = explain_box(snapshot(poison, stats=stats(phases={Phase.AVAILABLE: 1}, suspects=1)))
    assert found.situation is Situation.SUSPECT
    assert found.sentences[0].startswith("Event e was held by 3 relays that died")
    assert "No relay is running" in text(found)
    commands = [step.command() for step in found.next_steps]
    assert commands[0] == "redbox kill e"
    assert commands.index("redbox relay --to URL") > 0
    paused = stats(phases={Phase.AVAILABLE: 1}, suspects=1, paused=True)
    assert explain_box(snapshot(poison, stats=paused)).situation is Situation.PAUSED


def test_of_several_suspects_only_the_likely_culprit_is_killed():
    culprit, innocent = (
        each._replace(event_id=name, record=msgspec.structs.replace(each.record, event_id=name))
        for name, each in (
            ("culprit", pending(index="claimed", expiries=3)),
            ("e", pending(index="suspect", expiries=2)),
        )
    )
    counts: dict[str, Any] = {"phases": {Phase.AVAILABLE: 1, Phase.IN_FLIGHT: 1}, "suspects": 1, "relays": [relay()]}
    found = explain_box(Snapshot(located=Located(to_ms(NOW), "culprit", 0, [innocent, culprit]), stats=stats(**counts)))
    assert found.situation is Situation.SUSPECT
    assert "probably innocent" in text(found)
    assert [step.command() for step in found.next_steps] == ["redbox kill culprit", "redbox why culprit"]


def test_dead_events_alone_are_a_second_sentence():
    found = explain_box(snapshot(stats=stats(phases={Phase.DEAD: 2}, oldest_dead=3 * MINUTE, relays=[relay()])))
    assert found.situation is Situation.FLOWING
    assert found.sentences[0] == "Nothing is stuck: no event is pending or claimed."
    assert found.sentences[-1] == "Besides, 2 events are DEAD, the oldest for 3 min."
    assert [step.arguments for step in found.next_steps] == [("dead", "list", "--by-error")]


DIED = {"newest_dead": timedelta(seconds=3), "oldest_dead": MINUTE, "relays": [relay(rate=9.0)]}


@pytest.mark.parametrize(
    ("fields", "dying"),
    [
        ({"died_lately": 200, "published_lately": 0}, True),
        ({"died_lately": 200, "published_lately": 200}, True),
        ({"died_lately": 200, "published_lately": 201}, False),
        ({"died_lately": 200, "published_lately": 0, "newest_dead": timedelta(minutes=16)}, False),
        ({"died_lately": 80, "deleted": True}, False),
        ({"died_lately": 200, "deleted": True}, True),
    ],
)
def test_events_that_die_are_no_flow(fields: dict[str, Any], dying: bool):
    """If published events are deleted, only the rate of the relays tells how many were published."""
    kept = {} if fields.get("deleted") else {Phase.COMPLETED: 1000}
    given = {name: value for name, value in fields.items() if name != "deleted"}
    found = explain_box(snapshot(stats=stats(**{**DIED, **given}, phases={Phase.DEAD: 5000, **kept})))
    assert (found.situation is Situation.FAILING) is dying, text(found)
    assert found.next_steps[0].arguments == ("dead", "list", "--by-error")
    assert len([each for each in found.sentences if "5,000 events are DEAD, the oldest for 1 min" in each]) == 1


def test_events_that_an_operator_killed_are_no_failures():
    counts: dict[str, Any] = {"phases": {Phase.DEAD: 3, Phase.AVAILABLE: 300}, "died_lately": 3, "published_lately": 0}
    of_box = stats(**DIED | {"relays": [relay(rate=0.0)]}, **counts)
    assert explain_box(snapshot(stats=of_box)).situation is Situation.FAILING
    found = explain_box(snapshot(stats=of_box, killed_lately=3))
    assert found.situation is Situation.FLOWING
    assert "became DEAD" not in found.headline
    assert ("pause",) not in [step.arguments for step in found.next_steps]
    found = explain_box(snapshot(stats=of_box, killed_lately=1))
    assert found.sentences[0] == "In the last 13 s, 2 events became DEAD, and none was published."


def test_events_that_die_in_a_box_that_holds_others():
    counts = {"phases": {Phase.DEAD: 200, Phase.AVAILABLE: 300, Phase.COMPLETED: 200}, "oldest_available": MINUTE}
    found = explain_box(snapshot(stats=stats(**DIED, **counts, died_lately=200, published_lately=200)))
    assert found.sentences[0] == "In the last 13 s, 200 events became DEAD, and 200 were published."
    assert [step.arguments[0] for step in found.next_steps] == ["dead", "pause"]


def test_failing_relays_come_before_heads_that_wait_for_a_retry():
    """Nothing can be claimed, because the heads of all lines have failed."""
    failing = relay(rate=0.0, failures_in_row=9, last_error="HTTP 500")
    counts = {"phases": {Phase.AVAILABLE: 1, Phase.RETRY_SCHEDULED: 1}, "waiting": 1, "waiting_due": 1}
    found = explain_box(snapshot(stats=stats(**counts, relays=[failing])))
    assert found.situation is Situation.FAILING


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({Phase.AVAILABLE: 4, Phase.RETRY_SCHEDULED: 1}, "and 1 event waits for a retry."),
        ({Phase.AVAILABLE: 4}, "and 4 events are due."),
    ],
)
def test_failing_relays_and_what_waits_for_them(counts: dict[Phase, int], says: str):
    """A retry that is due is no longer scheduled."""
    failing = relay(rate=0.0, failures_in_row=9, last_error="HTTP 500")
    found = explain_box(snapshot(stats=stats(phases=counts, relays=[failing])))
    assert says in text(found)


def test_earlier_failures_do_not_explain_scheduled_events():
    failing = relay(rate=0.0, failures_in_row=9, last_error="HTTP 500")
    found = explain_box(snapshot(stats=stats(phases={Phase.SCHEDULED: 1}, relays=[failing])))
    assert found.situation is Situation.SCHEDULED


def test_a_line_that_moves_is_not_stuck():
    """Events wait behind a head that a relay publishes at the moment."""
    claimed = msgspec.structs.replace(
        pending(ordering_key="k").record, state=State.CLAIMED, claimed_by="relay-1", claimed_at=NOW,
        lease_until=NOW + MINUTE, phase=Phase.IN_FLIGHT,
    )  # fmt: skip
    head = pending(ordering_key="k")._replace(record=claimed, scores={"claimed": to_ms(NOW + MINUTE)})
    line = EventLine("k", 2, 1, None, "e", None)
    behind = pending(ordering_key="k", index="waiting")._replace(event_id="f", line=line)
    counts = {"phases": {Phase.AVAILABLE: 1, Phase.IN_FLIGHT: 1}, "waiting": 1, "waiting_due": 1, "relays": [relay()]}
    for age, situation in ((timedelta(seconds=1), Situation.FLOWING), (MINUTE, Situation.WAITING)):
        found = explain_box(snapshot(head, behind, stats=stats(**counts, oldest_waiting=age)))
        assert found.situation is situation, text(found)
