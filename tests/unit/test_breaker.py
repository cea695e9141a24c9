"""The breaker's logic, with a clock of its own: RF-4."""

from __future__ import annotations

from typing import Any

import pytest

from redbox import Breaker, Reject, RetryLater, Unavailable, UsageError
from redbox.relay import Circuit
from redbox.relay.breaker import FAILURES, LONGEST_PAUSE, PAUSE, REJECTIONS, UNAVAILABLE

DOWN = Unavailable("connection refused")
ERROR = RuntimeError("no")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock=clock)


def opened(breaker: Breaker) -> Breaker:
    for _ in range(UNAVAILABLE):
        breaker.failed(DOWN, "one")
    assert breaker.circuit is Circuit.OPEN
    return breaker


@pytest.mark.req("RF-4")
def test_opens_when_the_target_was_unavailable_five_times_in_a_row(breaker: Breaker):
    answers = [breaker.failed(DOWN, "one") for _ in range(5)]
    assert answers == [False] * 4 + [True]
    assert (breaker.circuit, breaker.wait(), breaker.opened) == (Circuit.OPEN, PAUSE, 1)
    assert breaker.reason == "the target was unavailable 5 times in a row: connection refused"


@pytest.mark.req("RF-4")
def test_opens_when_twenty_different_events_failed_in_a_row(breaker: Breaker):
    answers = [breaker.failed(ERROR, f"event-{number}") for number in range(20)]
    assert answers == [False] * 19 + [True]
    assert breaker.reason == "20 events in a row failed, the last one with: RuntimeError: no"


def test_a_wish_to_wait_is_a_failure_like_others(breaker: Breaker):
    assert [breaker.failed(RetryLater(5), f"event-{number}") for number in range(FAILURES)][-1]


@pytest.mark.req("RF-4")
def test_one_event_that_fails_again_and_again_is_to_blame_itself(breaker: Breaker):
    assert not any(breaker.failed(ERROR, "one") for _ in range(100))
    assert breaker.closed


@pytest.mark.req("RF-4")
def test_opens_at_twenty_rejections_of_one_kind(breaker: Breaker):
    answers = [breaker.failed(Reject(f"no {number}", kind="HTTP 401"), f"event-{number}") for number in range(20)]
    assert answers == [False] * 19 + [True]
    assert breaker.reason == "20 rejections in a row: HTTP 401"


def test_rejections_of_different_kinds_are_about_the_events(breaker: Breaker):
    assert not any(breaker.failed(Reject(f"bad field {number}"), f"event-{number}") for number in range(200))
    assert breaker.closed


def test_rejections_and_failures_are_counted_apart(breaker: Breaker):
    for number in range(REJECTIONS - 1):
        breaker.failed(Reject("no", kind="HTTP 401"), f"event-{number}")
        breaker.failed(ERROR, f"event-{number}")
    assert breaker.closed


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("error", [DOWN, ERROR, Reject("no")])
def test_a_success_starts_the_count_anew(breaker: Breaker, error: Exception):
    limit = UNAVAILABLE if error is DOWN else 20
    for _ in range(5):
        for number in range(limit - 1):
            assert not breaker.failed(error, f"event-{number}")
        assert not breaker.succeeded()
    assert breaker.closed


def test_while_it_is_open_it_waits_then_probes(breaker: Breaker, clock: Clock):
    opened(breaker)
    clock.now += PAUSE / 4
    assert breaker.wait() == PAUSE * 3 / 4
    clock.now += PAUSE
    assert breaker.wait() == 0
    breaker.probe()
    assert (breaker.circuit, breaker.closed, breaker.wait()) == (Circuit.PROBING, False, 0)


@pytest.mark.req("RF-4")
def test_a_probe_that_succeeds_closes_it(breaker: Breaker):
    opened(breaker).probe()
    assert breaker.succeeded()
    assert (breaker.circuit, breaker.closed, breaker.reason) == (Circuit.CLOSED, True, "")
    assert not breaker.succeeded()


@pytest.mark.req("RF-4")
def test_each_probe_that_fails_doubles_the_pause_up_to_the_longest(breaker: Breaker, clock: Clock):
    opened(breaker)
    reason, waits = breaker.reason, []
    for _ in range(8):
        clock.now += breaker.wait()
        breaker.probe()
        assert breaker.failed(ERROR, "one")
        waits.append(breaker.wait())
    assert waits == [2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    assert (breaker.reason, breaker.opened) == (reason, 9)


def test_after_it_closed_the_pause_is_short_again(breaker: Breaker):
    for _ in range(3):
        opened(breaker).probe()
        breaker.failed(DOWN, "one")
        breaker.probe()
        breaker.succeeded()
        assert opened(breaker).wait() == PAUSE
        breaker.probe()
        breaker.succeeded()


def test_what_fails_late_while_it_is_open_changes_nothing(breaker: Breaker, clock: Clock):
    opened(breaker)
    clock.now += PAUSE / 2
    assert not any(breaker.failed(error, "late") for error in (DOWN, ERROR, Reject("no")) for _ in range(100))
    assert (breaker.wait(), breaker.opened) == (PAUSE / 2, 1)
    breaker.probe()
    breaker.succeeded()
    assert not any(breaker.failed(DOWN, "one") for _ in range(UNAVAILABLE - 1))


def test_an_error_that_cannot_be_told_opens_it_all_the_same(breaker: Breaker):
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("I have no words")

    answers = [breaker.failed(Mute(), f"event-{number}") for number in range(FAILURES)]
    assert answers[-1]
    assert "Mute" in breaker.reason


@pytest.mark.parametrize(
    "settings",
    [{"unavailable": 0}, {"failures": 0}, {"rejections": 0}, {"pause": 0}, {"pause": 2.0, "longest": 1.0}],
)
def test_what_cannot_be_right_is_refused(settings: Any):
    with pytest.raises(UsageError, match="breaker"):
        Breaker(**settings)
