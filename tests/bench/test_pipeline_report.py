"""The report of the pipeline's benchmark: cold and warm apart, warm by the median, and no figure that is not there."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bench.pipeline import GOALS, JOBS, cost, report
from bench.spent import Clock


def size(events: int, *seconds: float) -> dict[str, Any]:
    """A size at which each job took these seconds: the cold round first."""
    clocks = [Clock(each, Counter(server=each / 4, tasks=each / 2)) for each in seconds]
    answer = {"cold": cost(events, clocks[:1]), "warm": cost(events, clocks[1:])}
    return {
        "events": events,
        "rounds": len(seconds) - 1,
        "start_up": 8.0,
        "peaks_mb": {"Python": 80.0, "JVM": 1300.0},
        "answers": dict.fromkeys(JOBS, answer),
    }


def results(*sizes: dict[str, Any]) -> dict[str, Any]:
    return {"machine": {"cores": "2"}, "date": "today", "commit": "abc", "sizes": list(sizes)}


def rows(text: str, heading: str) -> list[list[str]]:
    part = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| ")
    ]


def test_cold_and_warm_are_told_apart():
    text = report(results(size(100_000, 50.0, 4.0, 1.0, 2.0)))
    head, *told = rows(text, "Events per second")
    assert head == ["job", "cold", "warm", "slowest and fastest warm round", "goal (warm)"]
    assert [line[0] for line in told] == list(JOBS.values())
    assert {tuple(line[1:4]) for line in told} == {("2,000", "50,000", "25,000 – 100,000")}
    marks = {name: line[4] for name, line in zip(JOBS, told, strict=True)}
    assert (marks["load"], marks["count"], marks["plain loop"]) == ("35,000, met", "80,000, **not met**", "")
    assert "Warm** is\nthe median of the 3 rounds after it" in text
    head, *spent = rows(text, "CPU time per event, in microseconds")
    assert spent[0][:5] == ["load", "375.0", "17.5", "5.8", "11.7"]


def test_sizes_are_compared_warm():
    text = report(results(size(100_000, 9.0, 2.0), size(50_000, 9.0, 2.0)))
    head, load, *_ = rows(text, "By number of events")
    assert (head, load) == (["job", "50,000 events", "100,000 events"], ["load", "40.0", "20.0"])


def test_a_part_that_was_too_short_to_measure_is_no_figure():
    short = size(10, 1.0, 1.0)
    for answer in short["answers"].values():
        answer["warm"]["cpu_us"] = {"tasks": 5.0}
    _, *told = rows(report(results(short)), "Estimate for more cores")
    assert [line[:2] for line in told] == [[name, "not measured"] for name in GOALS]
