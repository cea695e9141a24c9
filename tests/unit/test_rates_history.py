"""The rates of slots, from samples that are taken at any time within them."""

from __future__ import annotations

import random

import pytest

from redbox.box.desk.rates_history import RateSample, _samples, _Stored

STEP = 10_000


def stored(at: int, put: int, latencies: dict[float, int] | None = None) -> _Stored:
    return _Stored(at, {"put": put, "published": 0, "retried": 0, "dead": 0, "expired": 0}, latencies or {})


def samples(*known: _Stored) -> list[RateSample]:
    return list(_samples(known, STEP, 0, known[-1].at))


@pytest.mark.req("RO-5")
@pytest.mark.parametrize("seed", range(20))
def test_the_rates_add_up_to_the_growth_of_the_total(seed: int):
    """However irregular the samples are, and if some slots have none."""
    chance = random.Random(seed)
    slots = sorted(chance.sample(range(1, 50), 20))
    known, total = [stored(9_999, 0)], 0
    for slot in slots:
        total += chance.choice([0, 0, 1000, chance.randrange(10_000)])
        known.append(stored(slot * STEP + chance.randrange(STEP), total))
    known.append(stored(60 * STEP, total))  # the last slot has no width
    found = samples(*known)
    assert len(found) == 60
    assert sum((each.put or 0) * 10 for each in found) == pytest.approx(total, abs=1)


def test_a_slot_has_the_rates_before_and_after_its_sample_by_their_time():
    first, second, third = samples(stored(9_999, 0), stored(15_000, 50), stored(35_000, 250))
    assert (first.put, second.put, third.put) == (10, 10, 10)
    first, second = samples(stored(9_999, 0), stored(18_000, 0), stored(28_000, 100))
    assert (first.put, second.put) == (2, 10)


def test_a_lost_total_makes_only_the_rates_around_it_unknown():
    found = samples(stored(9_000, 0), stored(19_000, 50), stored(29_000, 10), stored(39_000, 20), stored(49_000, 30))
    assert [each.put for each in found] == [None, None, 1, 1]


def test_latencies_are_those_of_their_slot():
    found = samples(stored(9_000, 0), stored(19_000, 0, {10: 4}), stored(39_000, 0, {100: 4}))
    assert [each.p99_ms is None for each in found] == [False, True, False]
