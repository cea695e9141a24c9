"""The history of rates is written by a script and read in Python: both name the same rings, limits and totals."""

from __future__ import annotations

import re
from pathlib import Path

from redbox.box.desk import rates_history

SCRIPT = (Path(__file__).resolve().parents[2] / "lua/record_rates.lua").read_text()


def test_the_steps_of_the_rings_are_those_that_are_read():
    steps = [int(step) for step in re.findall(r"step = (\d+)", SCRIPT)]
    assert steps == [1000 * step for step in rates_history.STEPS.values()]


def test_each_ring_holds_its_window():
    rings = re.findall(r"step = (\d+), slots = (\d+)", SCRIPT)
    for (step, slots), window in zip(rings, rates_history._WINDOWS.values(), strict=True):
        assert int(step) * int(slots) / 1000 > window.total_seconds()


def test_both_limit_the_buckets_alike():
    assert re.findall(r"MOST_BUCKETS = (\d+)", SCRIPT) == [str(rates_history.MOST_BUCKETS)]


def test_the_totals_are_written_in_the_order_in_which_they_are_read():
    (names,) = re.findall(r'"HMGET", key\.counters, ([^)]*)\)', SCRIPT)
    assert tuple(re.findall(r'"(\w+)"', names)) == rates_history._TOTALS
    assert re.findall(r"for at = 1, (\d+) do", SCRIPT) == [str(len(rates_history._TOTALS))]
