"""The breaker's logic, with a clock of its own: RF-4."""

from __future__ import annotations

from typing import Any

import pytest

from redbox import Breaker, Reject, RetryLater, Unavailable, UsageError
from redbox.events import Claim
from redbox.relay import Circuit
from redbox.relay.outcomes.breaker import (
    FAILURES,
    LONGEST_PAUSE,
    MOST_PROBED,
    MOST_PROBED_AGAIN,
    PATIENCE,
    PAUSE,
    REJECTIONS,
    SAMPLE,
    UNAVAILABLE,
)  # fmt: skip
from redbox.testing.claims import new_claim

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
    return Breaker(clock=clock, random=lambda: 0.0)


def event(event_id: str = "one", event_type: str = "n") -> Claim:
    return new_claim(event_id=event_id, event_type=event_type)


def events(count: int, event_type: str = "n") -> list[Claim]:
    return [event(f"{event_type}-{number}", event_type) for number in range(count)]


def doubting(breaker: Breaker, error: Exception = DOWN) -> Breaker:
    for claim in events(max(UNAVAILABLE, FAILURES, REJECTIONS)):
        if breaker.failed(error, claim):
            break
    assert breaker.doubting
    return breaker


def opened(breaker: Breaker) -> Breaker:
    doubting(breaker).probe()
    assert breaker.sample_failed(0)
    return breaker


@pytest.mark.req("RF-4")
def test_probes_when_the_target_was_unavailable_five_times_in_a_row(breaker: Breaker):
    answers = [breaker.failed(DOWN, event()) for _ in range(5)]
    assert answers == [False] * 4 + [True]
    assert (breaker.circuit, breaker.doubting, breaker.wait(), breaker.opened) == (Circuit.PROBING, True, 0, 0)
    assert breaker.reason == "the target was unavailable 5 times in a row: connection refused"


@pytest.mark.req("RF-4")
def test_probes_when_twenty_different_events_failed_in_a_row(breaker: Breaker):
    answers = [breaker.failed(ERROR, claim) for claim in events(20)]
    assert answers == [False] * 19 + [True]
    assert breaker.reason == "20 events in a row failed, the last one with: RuntimeError: no"


def test_a_wish_to_wait_is_a_failure_like_others(breaker: Breaker):
    assert [breaker.failed(RetryLater(5), claim) for claim in events(FAILURES)][-1]


@pytest.mark.req("RF-4")
def test_one_event_that_fails_again_and_again_is_to_blame_itself(breaker: Breaker):
    assert not any(breaker.failed(ERROR, event()) for _ in range(100))
    assert breaker.closed


@pytest.mark.req("RF-4")
def test_probes_at_twenty_rejections_of_one_kind(breaker: Breaker):
    answers = [breaker.failed(Reject(f"no {claim.event_id}", kind="HTTP 401"), claim) for claim in events(20)]
    assert answers == [False] * 19 + [True]
    assert breaker.reason == "20 rejections in a row: HTTP 401"


def test_rejections_of_different_kinds_are_about_the_events(breaker: Breaker):
    assert not any(breaker.failed(Reject(f"bad field {claim.event_id}"), claim) for claim in events(200))
    assert breaker.closed


def test_rejections_and_failures_are_counted_apart(breaker: Breaker):
    for claim in events(REJECTIONS - 1):
        breaker.failed(Reject("no", kind="HTTP 401"), claim)
        breaker.failed(ERROR, claim)
    assert breaker.closed


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("error", [DOWN, ERROR, Reject("no")])
def test_a_success_starts_the_count_anew(breaker: Breaker, error: Exception):
    limit = UNAVAILABLE if error is DOWN else 20
    for _ in range(5):
        for claim in events(limit - 1):
            assert not breaker.failed(error, claim)
        assert not breaker.succeeded("n")
    assert breaker.closed


# --- in doubt ------------------------------------------------------------------------------------------------------


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("error", [DOWN, ERROR, Reject("no")])
def test_a_success_in_the_sample_closes_it_without_a_pause(breaker: Breaker, error: Exception):
    assert doubting(breaker, error).probe() == SAMPLE
    assert not breaker.failed(error, event("sample"))
    assert breaker.succeeded("n")
    assert (breaker.circuit, breaker.reason, breaker.opened) == (Circuit.CLOSED, "", 0)
    assert not breaker.sample_failed(SAMPLE)  # the sample that has just ended
    assert breaker.closed


@pytest.mark.req("RF-4")
def test_it_opens_at_once_when_the_whole_sample_found_the_target_down(breaker: Breaker):
    for claim in events(doubting(breaker).probe()):
        breaker.failed(DOWN, claim)
    assert breaker.sample_failed(SAMPLE)
    assert (breaker.circuit, breaker.wait(), breaker.opened) == (Circuit.OPEN, PAUSE, 1)


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("error", [ERROR, Reject("no")])
def test_while_the_target_answers_larger_samples_are_tried(breaker: Breaker, error: Exception):
    doubting(breaker, error)
    sizes, tried, done = [], 0, False
    while not done:
        sizes.append(breaker.probe())
        for claim in events(sizes[-1]):
            breaker.failed(error, claim)
        tried += sizes[-1]
        done = breaker.sample_failed(sizes[-1])
    assert sizes[:3] == [SAMPLE, 2 * SAMPLE, 4 * SAMPLE]
    assert tried == MOST_PROBED
    assert breaker.circuit is Circuit.OPEN


@pytest.mark.req("RF-4")
def test_it_opens_when_nothing_is_left_to_try(breaker: Breaker):
    doubting(breaker, ERROR).probe()
    assert breaker.sample_failed(0)


@pytest.mark.req("RF-4")
def test_a_doubt_takes_no_longer_than_ten_pauses(breaker: Breaker, clock: Clock):
    doubting(breaker, ERROR).probe()
    clock.now += PAUSE / 4
    assert breaker.patience() == PATIENCE * PAUSE - PAUSE / 4
    breaker.failed(ERROR, event())
    clock.now += PATIENCE * PAUSE
    assert breaker.patience() == 0
    assert breaker.sample_failed(SAMPLE)


def test_a_series_that_begins_beside_a_sample_waits_for_a_sample_of_its_own(breaker: Breaker):
    """The rest of a sample that closed the breaker may fail."""
    doubting(breaker).probe()
    breaker.succeeded("n")
    doubting(breaker)
    assert not breaker.sample_failed(SAMPLE)
    breaker.probe()
    breaker.failed(DOWN, event())
    assert breaker.sample_failed(SAMPLE)


def test_a_sample_of_which_no_event_was_tried_proves_nothing(breaker: Breaker):
    """They were too old, or damaged."""
    doubting(breaker).probe()
    assert not breaker.sample_failed(SAMPLE)
    opened(breaker).probe()
    assert not breaker.sample_failed(SAMPLE)
    assert breaker.opened == 1


def test_only_the_first_sample_of_a_probe_is_spread(breaker: Breaker):
    """Events that were tried become available later: the oldest are those that were not."""
    doubting(breaker, ERROR).probe()
    assert breaker.first_sample
    breaker.failed(ERROR, event())
    assert not breaker.sample_failed(SAMPLE)
    assert not breaker.first_sample
    breaker.probe()
    assert breaker.sample_failed(0)
    breaker.probe()
    assert breaker.first_sample


def test_a_doubt_can_be_given_up(breaker: Breaker):
    doubting(breaker).dismiss()
    assert (breaker.circuit, breaker.opened) == (Circuit.CLOSED, 0)
    assert not any(breaker.failed(DOWN, event()) for _ in range(UNAVAILABLE - 1))
    opened(breaker).dismiss()
    assert breaker.circuit is Circuit.OPEN


# --- open, and probing again -----------------------------------------------------------------------------------------


def test_while_it_is_open_it_waits_then_probes(breaker: Breaker, clock: Clock):
    opened(breaker)
    clock.now += PAUSE / 4
    assert breaker.wait() == PAUSE * 3 / 4
    clock.now += PAUSE
    assert breaker.wait() == 0
    assert breaker.probe() == SAMPLE
    assert (breaker.circuit, breaker.closed, breaker.wait()) == (Circuit.PROBING, False, 0)
    assert (breaker.doubting, breaker.patience()) == (False, None)


@pytest.mark.req("RF-4")
def test_a_probe_that_succeeds_closes_it(breaker: Breaker):
    opened(breaker).probe()
    assert breaker.succeeded("n")
    assert (breaker.circuit, breaker.closed, breaker.reason) == (Circuit.CLOSED, True, "")
    assert not breaker.succeeded("n")


@pytest.mark.req("RF-4")
def test_each_probe_that_fails_doubles_the_pause_up_to_the_longest(breaker: Breaker, clock: Clock):
    opened(breaker)
    reason, waits = breaker.reason, []
    for _ in range(8):
        clock.now += breaker.wait()
        assert breaker.probe() == SAMPLE
        breaker.failed(DOWN, event())
        assert breaker.sample_failed(1)
        waits.append(breaker.wait())
    assert waits == [2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    assert (breaker.reason, breaker.opened) == (reason, 9)


@pytest.mark.req("RF-4")
def test_pauses_are_shortened_at_random_by_up_to_a_tenth(clock: Clock):
    """Relays that lost their target together do not probe it together."""
    draws = iter([0.0, 0.5, 1.0, 0.25, 0.0, 0.75, 1.0])
    breaker = opened(Breaker(clock=clock, random=lambda: next(draws)))
    waits = [breaker.wait()]
    for _ in range(6):
        clock.now += breaker.wait()
        breaker.probe()
        breaker.failed(DOWN, event())
        assert breaker.sample_failed(1)
        waits.append(breaker.wait())
    assert waits == pytest.approx([1, 2 * 0.95, 4 * 0.9, 8 * 0.975, 16, 30 * 0.925, 30 * 0.9])


@pytest.mark.req("RF-4")
def test_two_breakers_that_open_at_once_probe_at_different_times(clock: Clock):
    waits = {opened(Breaker(clock=clock)).wait() for _ in range(20)}
    assert len(waits) > 1
    assert all(0.9 * PAUSE <= wait <= PAUSE for wait in waits)


def test_a_target_that_is_down_gets_small_samples(breaker: Breaker):
    opened(breaker)
    for _ in range(5):
        assert breaker.probe() == SAMPLE
        breaker.failed(DOWN, event())
        assert breaker.sample_failed(SAMPLE)


def test_a_target_that_answers_gets_larger_samples_in_the_same_probe(breaker: Breaker):
    opened(breaker)
    for size in (SAMPLE, 2 * SAMPLE, 4 * SAMPLE):
        assert breaker.probe() == size
        breaker.failed(ERROR, event())
        assert not breaker.sample_failed(size)


@pytest.mark.req("RF-4")
@pytest.mark.parametrize(("error", "most"), [(ERROR, MOST_PROBED_AGAIN), (Reject("no"), MOST_PROBED)])
def test_an_open_breaker_sends_few_events_to_a_target_that_fails(breaker: Breaker, error: Exception, most: int):
    """A target that answers 500 may fail because of its load; one that rejects looked at each event."""
    opened(breaker)
    tried, done = 0, False
    while not done:
        size = breaker.probe()
        for claim in events(size):
            breaker.failed(error, claim)
        tried += size
        done = breaker.sample_failed(size)
    assert tried == most


def test_after_it_closed_the_pause_is_short_again(breaker: Breaker):
    for _ in range(3):
        opened(breaker).probe()
        breaker.failed(DOWN, event())
        breaker.sample_failed(1)
        breaker.probe()
        breaker.succeeded("n")
        assert opened(breaker).wait() == PAUSE
        breaker.probe()
        breaker.succeeded("n")


def test_a_late_failure_while_it_is_open_changes_nothing(breaker: Breaker, clock: Clock):
    opened(breaker)
    clock.now += PAUSE / 2
    assert not any(breaker.failed(error, event()) for error in (DOWN, ERROR, Reject("no")) for _ in range(100))
    assert (breaker.wait(), breaker.opened) == (PAUSE / 2, 1)
    breaker.probe()
    breaker.succeeded("n")
    assert not any(breaker.failed(DOWN, event()) for _ in range(UNAVAILABLE - 1))


# --- types that keep failing -----------------------------------------------------------------------------------------


@pytest.mark.req("RF-4")
@pytest.mark.parametrize("error", [ERROR, Reject("no")])
def test_a_type_that_fails_while_another_succeeds_is_isolated(breaker: Breaker, clock: Clock, error: Exception):
    doubting(breaker, error).probe()
    breaker.succeeded("good")
    assert breaker.isolated == {"n"}
    assert not any(breaker.failed(error, claim) for claim in events(100))
    clock.now += LONGEST_PAUSE + 1  # and nothing has succeeded since
    assert any(breaker.failed(error, claim) for claim in events(100))


def test_an_isolated_type_counts_for_other_failures_and_after_a_success(breaker: Breaker):
    doubting(breaker, ERROR).probe()
    breaker.succeeded("good")
    assert any(breaker.failed(DOWN, claim) for claim in events(UNAVAILABLE))
    breaker.probe()
    breaker.succeeded("good")
    breaker.succeeded("n")
    assert breaker.isolated == frozenset()
    assert any(breaker.failed(ERROR, claim) for claim in events(FAILURES))


def test_other_types_still_open_it(breaker: Breaker):
    doubting(breaker, ERROR).probe()
    breaker.succeeded("good")
    assert any(breaker.failed(ERROR, claim) for claim in events(FAILURES, "good"))


def test_no_type_is_isolated_because_the_target_came_back_late_for_it(breaker: Breaker):
    doubting(breaker).probe()
    breaker.succeeded("good")
    opened(breaker).probe()
    breaker.failed(DOWN, event())
    breaker.succeeded("good")
    assert breaker.isolated == frozenset()


# --- odd input -------------------------------------------------------------------------------------------------------


def test_an_error_without_a_readable_text_counts_too(breaker: Breaker):
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("I have no words")

    answers = [breaker.failed(Mute(), claim) for claim in events(FAILURES)]
    assert answers[-1]
    assert "Mute" in breaker.reason


@pytest.mark.parametrize(
    "settings",
    [{"unavailable": 0}, {"failures": 0}, {"rejections": 0}, {"pause": 0}, {"pause": 2.0, "longest": 1.0}],
)
def test_what_cannot_be_right_is_refused(settings: Any):
    with pytest.raises(UsageError, match="breaker"):
        Breaker(**settings)


@pytest.mark.req("RO-4")
def test_the_time_since_it_opened_includes_its_probes(breaker: Breaker, clock: Clock):
    doubting(breaker)
    assert breaker.open_for is None
    breaker.probe()
    assert breaker.sample_failed(0)
    assert breaker.open_for == 0
    clock.now += 60
    breaker.probe()
    breaker.failed(DOWN, event())
    assert breaker.sample_failed(1)
    assert breaker.open_for == 60
    breaker.probe()
    breaker.succeeded()
    assert breaker.open_for is None


@pytest.mark.req("RO-4")
def test_an_outage_that_has_ended_is_remembered(breaker: Breaker, clock: Clock):
    doubting(breaker)
    breaker.probe()
    breaker.succeeded()
    assert breaker.last_outage is None, "it did not open"
    doubting(breaker)
    breaker.probe()
    assert breaker.sample_failed(0)
    clock.now += 60
    assert breaker.last_outage is None, "it has not ended"
    breaker.probe()
    breaker.succeeded()
    clock.now += 5
    assert breaker.last_outage == (65, 5)
    breaker.succeeded()
    assert breaker.last_outage == (65, 5)
