"""How calls are cut into steps."""

from __future__ import annotations

from redbox import Event
from redbox.settings import MAX_PAYLOAD
from redbox.store.codec import encode_event
from redbox.store.scripts.steps import WORK, batches, by_work, first_step, put_work


def work_of(event: Event) -> int:
    return put_work(encode_event(event, MAX_PAYLOAD, {}))


def test_keys_make_an_event_dearer_and_long_ones_more_so():
    assert work_of(Event("t" * 255)) == 1
    assert 1 < work_of(Event("t", ordering_key="k")) < work_of(Event("t", ordering_key="k" * 255))
    assert WORK // work_of(Event("t", ordering_key="k" * 255, unique_key="u" * 255)) <= 100


def test_steps_by_work_keep_the_order_and_hold_at_least_one():
    assert list(by_work([])) == []
    assert list(by_work([("a", WORK), ("b", 1), ("c", WORK - 1), ("d", 2 * WORK), ("e", 1)])) == [
        ["a"], ["b", "c"], ["d"], ["e"],
    ]  # fmt: skip
    assert [len(step) for step in by_work((n, 3) for n in range(700))] == [333, 333, 34]


def test_the_first_step():
    assert first_step([], int) == []
    assert first_step([2 * WORK, 1], int) == [2 * WORK]
    assert first_step([WORK - 1, 1, 1], int) == [WORK - 1, 1]


def test_batches():
    assert [len(batch) for batch in batches(range(250))] == [100, 100, 50]
    assert list(batches([])) == []
