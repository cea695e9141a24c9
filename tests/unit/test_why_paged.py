"""What somebody who was paged reads first: headlines, suspects, heartbeats that are late, and commands: RO-4."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redbox import Phase, Situation, State
from redbox.box.reports import Pause
from redbox.box.why.box import explain_box
from redbox.box.why.event import explain_event
from redbox.box.why.explanation import Explanation
from redbox.box.why.obstacles import START_ANOTHER, START_RELAY, start_relay
from redbox.box.why.snapshot import Snapshot
from redbox.box.why.words import pace
from redbox.events import to_ms
from redbox.store.scripts.replies import Located, Sighting
from tests.unit.test_why import MINUTE, NOW, pending, relay, server_facts, snapshot, stats, text

pytestmark = pytest.mark.req("RO-4")
SECOND = timedelta(seconds=1)
FRESH_DEATHS = {"newest_dead": 3 * SECOND, "oldest_dead": MINUTE, "died_lately": 40, "published_lately": 90}


def commands(found: Explanation) -> list[str]:
    return [step.command() for step in found.next_steps]


# --- the headline ------------------------------------------------------------------------------------------------


def test_fresh_deaths_are_in_the_headline_of_a_box_that_flows():
    now = stats(**FRESH_DEATHS, phases={Phase.DEAD: 40, Phase.COMPLETED: 90}, relays=[relay(rate=9.0)])
    found = explain_box(snapshot(stats=now))
    assert found.situation is Situation.FLOWING
    assert found.headline == "box orders: flowing, but 40 events became DEAD in the last 13 s"
    assert found.sentences[0] == "In the last 13 s, 40 events became DEAD, and 90 were published."
    assert commands(found)[0] == "redbox dead list --by-error"


def test_fresh_deaths_are_in_the_headline_of_another_cause():
    now = stats(
        **FRESH_DEATHS, phases={Phase.DEAD: 40, Phase.COMPLETED: 90, Phase.AVAILABLE: 9}, oldest_available=MINUTE,
        relays=[relay(rate=9.0)],
    )  # fmt: skip
    found = explain_box(snapshot(stats=now))
    assert found.situation is Situation.BACKLOG
    assert found.headline == "box orders: backlog, and 40 events became DEAD in the last 13 s"


def test_a_cause_that_counts_the_deaths_does_not_repeat_them():
    now = stats(**(FRESH_DEATHS | {"published_lately": 0}), phases={Phase.DEAD: 40, Phase.COMPLETED: 1})
    assert explain_box(snapshot(stats=now)).headline == "box orders: failing"


def test_deaths_of_earlier_are_not_in_the_headline():
    now = stats(**(FRESH_DEATHS | {"newest_dead": 16 * MINUTE}), phases={Phase.DEAD: 40}, relays=[relay()])
    assert explain_box(snapshot(stats=now)).headline == "box orders: flowing"


def test_a_box_without_a_relay_does_not_flow_in_the_headline():
    found = explain_box(snapshot(stats=stats()))
    assert found.situation is Situation.FLOWING  # nothing is stuck
    assert found.headline == "box orders: nothing is stuck, but no relay is alive"
    died = explain_box(snapshot(stats=stats(**FRESH_DEATHS, phases={Phase.DEAD: 40, Phase.COMPLETED: 90})))
    assert died.headline == (
        "box orders: nothing is stuck, but no relay is alive, and 40 events became DEAD in the last 13 s"
    )


def test_the_headline_of_an_event():
    assert explain_event(snapshot(pending()), "e").headline == "event e of type order.paid: queued"


# --- suspects ----------------------------------------------------------------------------------------------------


def suspect(name: str, expiries: int, index: str = "suspect") -> Sighting:
    each = pending(index=index, expiries=expiries)
    assert each.record is not None
    record = msgspec.structs.replace(each.record, event_id=name, claimed_by="relay-1" if index == "claimed" else None)
    return each._replace(event_id=name, record=record)


def of_suspects(*sightings: Sighting, alone: str | None = None, **fields: Any) -> Explanation:
    due = sum("suspect" in each.scores for each in sightings)
    counts = {Phase.AVAILABLE: due, Phase.IN_FLIGHT: len(sightings) - due}
    now = stats(**{"phases": counts, "suspects": due, "relays": [relay()], **fields})
    return explain_box(Snapshot(located=Located(to_ms(NOW), alone, 0, list(sightings)), stats=now))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("alive", [True, False])
def test_events_that_were_only_held_together_are_not_accused(count: int, alive: bool):
    """After the culprit is killed, the others still have its history."""
    found = of_suspects(*(suspect(f"e{n}", 2) for n in range(count)), relays=[relay()] if alive else [])
    assert found.situation is Situation.SUSPECT
    assert not any("kill" in command for command in commands(found)), commands(found)
    assert "the next crash is likely" not in text(found)
    assert "relays claim a suspect alone" in text(found)
    if not alive:
        assert commands(found)[0] == "redbox relay --to URL"


@pytest.mark.parametrize("alive", [True, False])
def test_an_event_that_crashed_its_relay_alone_is_killed(alive: bool):
    found = of_suspects(suspect("e0", 2), suspect("culprit", 3), relays=[relay()] if alive else [])
    assert "Event culprit was held by 3 relays that died (3 expired leases in a row), by the last one alone" in text(
        found
    )
    assert "1 other event is a suspect too" in text(found)
    assert commands(found)[0] == "redbox kill culprit"


def test_a_suspect_that_is_tried_at_the_moment():
    found = of_suspects(suspect("e0", 2, "claimed"), suspect("e1", 2), alone="e0")
    assert "Relay relay-1 has claimed event e0" in text(found)
    assert not any("kill" in command for command in commands(found))


@pytest.mark.parametrize(("expiries", "kills"), [(2, False), (3, True)])
def test_one_suspect_is_killed_if_it_was_alone(expiries: int, kills: bool):
    for index in ("suspect", "claimed"):
        each = suspect("e", expiries, index)
        if index == "claimed":
            assert each.record is not None
            held = msgspec.structs.replace(
                each.record, state=State.CLAIMED, phase=Phase.IN_FLIGHT, lease_until=NOW + MINUTE
            )
            each = each._replace(record=held)
        found = explain_event(snapshot(each), "e")
        assert ("redbox kill e" in commands(found)) is kills, (index, text(found))


# --- relays ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (3, "1 relay is alive; 7 events were published so far."),
        (7, "1 relay is alive (last heartbeat 7 s ago); 7 events"),
        (12, "1 relay is alive (last heartbeat 12 s ago: it may have died); 7 events"),
    ],
)
def test_a_heartbeat_that_is_late_is_mentioned(seen: int, words: str):
    now = stats(relays=[relay(seen=seen * SECOND)], totals={"published": 7})
    assert words in text(explain_box(snapshot(stats=now)))


def test_the_newest_heartbeat_of_several_relays_counts():
    now = stats(relays=[relay("a", seen=9 * SECOND), relay("b", seen=12 * SECOND)])
    assert "2 relays are alive (last heartbeat 9 s ago: they may have died)" in text(explain_box(snapshot(stats=now)))
    now = stats(relays=[relay("a", seen=SECOND), relay("b", seen=12 * SECOND)])
    assert "2 relays are alive;" in text(explain_box(snapshot(stats=now)))


def test_a_backlog_of_a_relay_that_may_have_died():
    late = relay(seen=12 * SECOND, rate=7.62)
    counts = {"phases": {Phase.AVAILABLE: 9}, "oldest_available": MINUTE}
    found = text(explain_box(snapshot(stats=stats(**counts, relays=[late]))))
    assert "1 relay is alive (last heartbeat 12 s ago: it may have died) and published 7.6 events/s" in found


def test_the_relay_that_was_seen_last_may_not_be_the_last_one():
    """One that stops in order leaves no heartbeat."""
    gone = stats(relays=[relay("vm-1", seen=MINUTE, host="web-1")], phases={Phase.AVAILABLE: 1})
    found = text(explain_box(snapshot(pending(), stats=gone)))
    assert "No relay is alive: relay vm-1 on web-1 has been silent for 1 min" in found
    assert "a relay that stops in order leaves no heartbeat" in found
    assert "the last heartbeat came" not in found


@pytest.mark.parametrize(
    ("rate", "words"), [(1190.4, "1,190"), (7.61, "7.6"), (2.0, "2"), (0.04, "0.04"), (99.6, "100")]
)
def test_rates_are_easy_to_read(rate: float, words: str):
    assert pace(rate) == words


def test_a_paused_box_announces_no_probe():
    sick = relay(breaker="open", reason="HTTP 503", next_probe=5 * SECOND, breaker_since=MINUTE)
    now = stats(paused=True, relays=[sick], phases={Phase.AVAILABLE: 1})
    found = text(explain_box(snapshot(pending(), stats=now, pause=Pause("ada", "", NOW, None))))
    assert "the breaker of relay relay-1 has been open for 1 min: HTTP 503." in found
    assert "next try" not in found


def test_the_advice_comes_before_the_details_of_a_breaker():
    sick = relay(breaker="open", reason="HTTP 503", breaker_since=MINUTE)
    found = explain_box(snapshot(pending(), stats=stats(relays=[sick], phases={Phase.AVAILABLE: 1})))
    assert found.sentences[1].startswith("Repair the target; the breaker then closes by itself.")


@pytest.mark.parametrize("step", [START_RELAY, START_ANOTHER])
def test_the_purpose_of_a_step_fits_a_terminal(step: Any):
    found = start_relay(snapshot(stats=stats(relays=[relay()])), step)
    assert len(f"To {found.purpose}:") <= 80


# --- beside the cause --------------------------------------------------------------------------------------------


def test_remarks_begin_with_besides_once():
    now = stats(
        paused=True, relays=[relay(breaker="open", reason="HTTP 503")], phases={Phase.DEAD: 2}, oldest_dead=MINUTE,
        paused_keys=1,
    )  # fmt: skip
    found = snapshot(stats=now, pause=Pause("ada", "", NOW, None), first_paused=(("k", Pause("ada", "", NOW, None)),))
    assert text(explain_box(found)).count("Besides") == 1


def test_all_of_a_few_paused_keys_are_named():
    pause = Pause("ada", "wrong amounts", NOW, None)
    now = stats(relays=[relay()], paused_keys=2)
    found = explain_box(snapshot(stats=now, first_paused=(("a", pause), ("b", pause))))
    assert "2 ordering keys are paused: 'a' by ada (wrong amounts), 'b' by ada (wrong amounts)." in text(found)
    assert commands(found) == ["redbox resume --key=a", "redbox resume --key=b"]


def test_a_replica_needs_its_master_and_no_relay():
    facts = server_facts({"role": "slave", "slave_read_only": "1"})
    found = explain_box(snapshot(pending(), server=facts, stats=stats(phases={Phase.AVAILABLE: 1})))
    assert found.situation is Situation.STORE_REFUSES_WRITES
    assert "connect to its master" in text(found)
    assert commands(found) == ["redbox doctor"]
    assert "relay" not in text(found)
