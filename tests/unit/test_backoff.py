"""How long a failed event waits: RF-1."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redbox import Backoff, Box, Event, Relay, UsageError
from redbox.backoff import BASE, CAP
from redbox.durations import LONGEST

EVENT = Event("n")
ERROR = RuntimeError("no")


def delays(backoff: Backoff, *attempts: int) -> list[float]:
    return [backoff(EVENT, attempt, ERROR) for attempt in attempts]


@pytest.mark.req("RF-1")
def test_exponential_without_jitter_is_exact():
    backoff = Backoff.exponential(3.0, cap=50.0, jitter=False)
    assert delays(backoff, 1, 2, 3, 4, 5, 6, 7) == [3.0, 6.0, 12.0, 24.0, 48.0, 50.0, 50.0]


@pytest.mark.req("RF-1")
def test_the_first_retry_waits_the_base_and_the_longest_the_cap():
    plain = Backoff.exponential(jitter=False)
    assert delays(plain, 1, 10_000) == [BASE, CAP]
    assert delays(Backoff.exponential(2.0, cap=2.0, jitter=False), 1, 9) == [2.0, 2.0]


@pytest.mark.req("RF-1")
def test_full_jitter_is_the_default_and_keeps_to_its_bounds():
    backoff = Backoff.exponential(1.0, cap=300.0)
    for attempts, most in ((1, 1.0), (4, 8.0), (30, 300.0)):
        drawn = delays(backoff, *[attempts] * 500)
        assert all(0 <= delay <= most for delay in drawn)
        assert min(drawn) < most / 4
        assert max(drawn) > most * 3 / 4
        assert len(set(drawn)) > 400


@pytest.mark.req("RF-1")
@pytest.mark.parametrize(("given", "wanted"), [(0, 0.0), (2.5, 2.5), (timedelta(minutes=10), 600.0)])
def test_fixed(given: Any, wanted: float):
    assert delays(Backoff.fixed(given), 1, 2, 100) == [wanted] * 3


@pytest.mark.req("RF-1")
def test_a_function_of_your_own():
    seen: list[Any] = []

    def delay(event: Event, attempts: int, error: BaseException) -> timedelta:
        seen.append((event, attempts, error))
        return timedelta(seconds=attempts)

    assert delays(Backoff(delay), 1, 7) == [1.0, 7.0]
    assert seen == [(EVENT, 1, ERROR), (EVENT, 7, ERROR)]


@pytest.mark.req("RF-1")
def test_retries_without_a_delay_need_a_limit_of_attempts():
    with pytest.raises(UsageError, match="retries without a delay need a limit of attempts"):
        Relay(Box.open("memory:"), print, backoff=Backoff.fixed(0), attempts=None, max_age=60)
    Relay(Box.open("memory:"), print, backoff=Backoff.fixed(0), attempts=3)
    Relay(Box.open("memory:"), print, backoff=Backoff.fixed(0.001), attempts=None)


def test_durations_may_be_timedeltas():
    backoff = Backoff.exponential(timedelta(milliseconds=500), cap=timedelta(seconds=2), jitter=False)
    assert delays(backoff, 1, 2, 3, 4) == [0.5, 1.0, 2.0, 2.0]


def test_repr():
    assert repr(Backoff.exponential(1.0, cap=60)) == "Backoff(exp:1s..60s)"
    assert repr(Backoff.fixed(600)) == "Backoff(fixed:600s)"
    assert repr(Backoff(lambda *_: 1.0)) == "Backoff(custom)"


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Backoff.exponential(0), "base must be positive"),
        (lambda: Backoff.exponential(10, cap=5), "cap not smaller than base"),
        (lambda: Backoff.exponential("soon"), "base must be seconds or a timedelta, not 'soon'"),
        (lambda: Backoff.exponential(1.0, cap=float("inf")), "cap must be seconds or a timedelta, not inf"),
        (lambda: Backoff.fixed(-1), "delay must be between 0 and"),
        (lambda: Backoff.fixed(float("nan")), "delay must be seconds or a timedelta, not nan"),
        (lambda: Backoff.fixed(LONGEST + 1), "delay must be between 0 and"),
        (lambda: Backoff.fixed(None), "delay must be seconds or a timedelta, not None"),
        (lambda: Backoff(5), "takes a function of"),
    ],
)
def test_what_cannot_be_right_is_refused(build: Any, words: str):
    with pytest.raises(UsageError, match=words):
        build()


@pytest.mark.parametrize("nonsense", [-1, None, "soon", float("nan"), float("inf")])
def test_the_result_of_a_function_is_checked(nonsense: Any):
    with pytest.raises(UsageError, match="delay must be"):
        Backoff(lambda *_: nonsense)(EVENT, 1, ERROR)
