"""Conditions on a box, and its rates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redbox import Phase, Settings, Stats, UsageError
from redbox.box.desk.conditions import QUANTITIES, Condition, held
from redbox.box.desk.rates import Rates, rates_between, reported_rates
from redbox.box.reports import RelayReport

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def stats(phases: dict[Phase, int] | None = None, **fields: Any) -> Stats:
    numbers = dict.fromkeys(("waiting", "waiting_due", "suspects", "overdue", "blocked", "lost"), 0)
    ages = dict.fromkeys(
        ("oldest_available", "next_due", "oldest_waiting", "first_lease_ends", "oldest_dead", "oldest_completed")
    )
    counts = dict.fromkeys(Phase, 0) | (phases or {})
    fixed = {"box": "orders", "at": NOW, "paused": False, "totals": {}, "settings": Settings(), "layout": 1}
    return Stats(**{"phases": counts, **fixed, **numbers, **ages, **fields})


def relay(seconds: float, **fields: Any) -> RelayReport:
    return RelayReport(name="r", seen=timedelta(seconds=seconds), **fields)


@pytest.mark.req("RO-5")
@pytest.mark.parametrize(
    ("text", "box", "sentence"),
    [
        ("dead>0", {"phases": {Phase.DEAD: 1}}, "dead>0: 1 event is DEAD"),
        (" DEAD  >= 2", {"phases": {Phase.DEAD: 2}}, "dead>=2: 2 events are DEAD"),
        ("available > 1000", {"phases": {Phase.AVAILABLE: 1001}}, "available>1000: 1,001 events are AVAILABLE"),
        ("scheduled!=0", {"phases": {Phase.SCHEDULED: 3}}, "scheduled!=0: 3 events are SCHEDULED"),
        ("retrying=1", {"phases": {Phase.RETRY_SCHEDULED: 1}}, "retrying=1: 1 event is RETRY_SCHEDULED"),
        ("in_flight<1", {}, "in_flight<1: 0 events are IN_FLIGHT"),
        (
            "pending>2",
            {"phases": {Phase.AVAILABLE: 1, Phase.SCHEDULED: 1, Phase.RETRY_SCHEDULED: 1}},
            "pending>2: 3 events are PENDING",
        ),
        ("oldest>60s", {"oldest_available": timedelta(seconds=61)},
         "oldest>60s: the oldest available event has waited for 1 min 1 s"),
        ("oldest>=1m", {"oldest_available": timedelta(seconds=60)},
         "oldest>=1m: the oldest available event has waited for 1 min"),
        ("waiting>0", {"waiting": 2}, "waiting>0: 2 events are waiting behind another of the same ordering key"),
        ("blocked>0", {"blocked": 1}, "blocked>0: 1 ordering key is blocked by a dead event"),
        ("paused>0", {"paused": True}, "paused>0: 1 pause is in force"),
        ("lost>0", {"lost": 1}, "lost>0: 1 event is lost"),
        ("overdue>0", {"overdue": 1}, "overdue>0: 1 claim is overdue"),
        ("relays<1", {"relays": [relay(60)]}, "relays<1: 0 relays are alive"),
        ("silent>0", {"relays": [relay(60), relay(1)]}, "silent>0: 1 relay is silent"),
    ],
)  # fmt: skip
def test_a_condition_that_holds_is_explained(text: str, box: dict[str, Any], sentence: str):
    assert held([Condition.parse(text)], stats(**box)) == [sentence]


@pytest.mark.parametrize("text", ["dead>0", "oldest>0s", "relays>0", "paused=1", "silent>0"])
def test_a_condition_that_does_not_hold(text: str):
    assert held([Condition.parse(text)], stats()) == []


def test_every_value_can_be_compared():
    for name, quantity in QUANTITIES.items():
        held([Condition.parse(f"{name}>{'1s' if quantity.is_duration else '1'}")], stats())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a condition; write NAME>VALUE"),
        ("dead", "is not a condition"),
        ("dead>", "is not a condition"),
        ("dead>>1", "must be compared with a whole number, not '>1'"),
        ("daed>1", "'daed': there is no such value; there are oldest, dead, available"),
        ("dead>1m", "must be compared with a whole number, not '1m'"),
        ("dead>-1", "must be compared with a whole number"),
        ("dead>" + "9" * 16, "must be compared with a whole number"),
        ("oldest>soon", "'soon' is not a duration"),
        ("dead>1" + " " * 200, "is not a condition"),
    ],
)
def test_an_invalid_condition(text: str, message: str):
    with pytest.raises(UsageError) as raised:
        Condition.parse(text)
    assert message in str(raised.value)


@pytest.mark.req("RO-5")
def test_rates_between_two_readings():
    before = stats(totals={"put": 10, "published": 5})
    totals = {"put": 30, "published": 6, "retried": 2, "dead": 1, "expired": 1}
    after = stats(totals=totals, at=NOW + timedelta(seconds=2))
    assert rates_between(before, after) == Rates(put=10.0, published=0.5, failed=2.0, seconds=2.0)
    assert rates_between(before, before) == Rates()
    lost = stats(totals={"put": 3, "published": 5}, at=NOW + timedelta(seconds=1))
    assert rates_between(before, lost) == Rates(put=None, published=0.0, failed=0.0, seconds=1.0)


@pytest.mark.req("RO-5")
def test_rates_that_relays_report():
    assert reported_rates(stats()) == Rates()
    assert reported_rates(stats(relays=[relay(1)])) == Rates()
    living = [relay(1, rate=2.5), relay(2, rate=1.5), relay(60, rate=9.0)]
    assert reported_rates(stats(relays=living)) == Rates(published=4.0)
