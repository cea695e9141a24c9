"""A question of the benchmark: the contenders, the server, the figure that counts, and the goals of redbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Figures = dict[str, Any]
#: The best figures of each contender, by its name.
Answers = Mapping[str, Figures]
Kind = Literal["redbox", "floor", "peer"]

SETTINGS: dict[str, Any] = {"appendonly": "yes", "appendfsync": "everysec"}


@dataclass(frozen=True)
class Contender:
    """A script of `contenders/`, and the environment whose Python runs it.

    `name` is its row in the tables. `events` is chosen so that a measurement takes a second or two. By default the
    environment has the name of the script; "" is the Python that runs the benchmark, which has redbox.
    """

    name: str
    script: str
    events: int
    kind: Kind = "peer"
    variant: str = ""
    environment: str | None = None
    server: Literal["redis", "valkey"] = "redis"
    #: The method of the script that is called, if it does not have the name of the question.
    asked: str | None = None
    #: A name of `bench.target.TARGETS`: what is started for it, and handed to its script as a URL.
    target: str = ""

    @property
    def runs_in(self) -> str:
        return self.script.removeprefix("with_") if self.environment is None else self.environment


@dataclass(frozen=True)
class Goal:
    """A ratio to reach in one run. `measured` computes it, or raises KeyError if an answer is missing."""

    words: str
    measured: Callable[[Answers], float]
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "×"

    def is_met(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


def fastest(rounds: Sequence[Figures]) -> Figures:
    """The round with the highest rate."""
    return max(rounds, key=lambda figures: figures["rate"])


def lowest(rounds: Sequence[Figures]) -> Figures:
    """The lowest value of each figure over all rounds."""
    return {name: min(figures[name] for figures in rounds) for name in rounds[0]}


def rate_and_cpu(best: Figures) -> str:
    return f"{best['rate']:,.0f} ({best['server_us']:.1f})"


@dataclass(frozen=True)
class Question:
    """One question, and how its answers are shown.

    `cell` formats the cell of the overall table, for questions that all libraries answer. The other questions have a
    table of their own: `columns` are its columns, and `rows` the rows of one contender.
    """

    name: str
    title: str
    contenders: tuple[Contender, ...]
    best: Callable[[Sequence[Figures]], Figures] = fastest
    cell: Callable[[Figures], str] | None = None
    columns: Mapping[str, Callable[[Figures], str]] = field(default_factory=dict)
    rows: Callable[[str, Figures], list[tuple[str, Figures]]] = lambda name, best: [(name, best)]
    goals: Sequence[Goal] = ()
    settings: Mapping[str, Any] = field(default_factory=lambda: SETTINGS)
    pinned: bool = False  # server and client on one core
    beside: bool = False  # a second server, to compare with at the same time
    rounds: int | None = None  # the maximum, if fewer are enough
    patience: float = 120.0
    note: str = ""


def events_per_second(best: Figures) -> str:
    return f"{best['rate']:,.0f}"


def microseconds(figure: str) -> Callable[[Figures], str]:
    return lambda best: f"{best[figure]:.1f}"


def ratio(of: str, to: str, figure: str = "rate") -> Callable[[Answers], float]:
    """The ratio of one contender's figure to another's."""
    return lambda answers: float(answers[of][figure] / answers[to][figure])
