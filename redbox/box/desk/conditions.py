"""Conditions on a box, such as `oldest>60s` or `dead>0`: for checks by a script, a monitor or a service."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Final

import msgspec

from redbox.arguments import counted, shown
from redbox.box.reports import Stats
from redbox.durations import format_duration, parse_duration
from redbox.errors import UsageError
from redbox.events import Phase

_GRAMMAR: Final = re.compile(r"\s*([A-Za-z_]+)\s*(>=|<=|==|!=|>|<|=)\s*(\S.*?)\s*")
_OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
    "=": operator.eq, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_LONGEST: Final = 100
_DIGITS: Final = 15


class _Quantity(msgspec.Struct, frozen=True):
    """A value of a box. `words` follow the number and the noun, or precede the duration."""

    read: Callable[[Stats], float]
    words: str
    noun: str = "event"
    is_duration: bool = False


def _phase(*phases: Phase) -> Callable[[Stats], float]:
    return lambda stats: sum(stats.phases[phase] for phase in phases)


def _oldest(stats: Stats) -> float:
    return 0.0 if stats.oldest_available is None else stats.oldest_available.total_seconds()


def _relays(stats: Stats, *, silent: bool) -> int:
    return sum(relay.alive != silent for relay in stats.relays)


#: Name → value. `paused` is 1 for a paused box, and 1 for each paused ordering key.
QUANTITIES: Final = {
    "oldest": _Quantity(_oldest, "the oldest available event has waited for", is_duration=True),
    "dead": _Quantity(_phase(Phase.DEAD), "DEAD"),
    "available": _Quantity(_phase(Phase.AVAILABLE), "AVAILABLE"),
    "scheduled": _Quantity(_phase(Phase.SCHEDULED), "SCHEDULED"),
    "retrying": _Quantity(_phase(Phase.RETRY_SCHEDULED), "RETRY_SCHEDULED"),
    "in_flight": _Quantity(_phase(Phase.IN_FLIGHT), "IN_FLIGHT"),
    "pending": _Quantity(_phase(Phase.AVAILABLE, Phase.SCHEDULED, Phase.RETRY_SCHEDULED), "PENDING"),
    "waiting": _Quantity(lambda stats: stats.waiting, "waiting behind another of the same ordering key"),
    "blocked": _Quantity(lambda stats: stats.blocked, "blocked by a dead event", "ordering key"),
    "paused": _Quantity(lambda stats: stats.paused + stats.paused_keys, "in force", "pause"),
    "lost": _Quantity(lambda stats: stats.lost, "lost"),
    "overdue": _Quantity(lambda stats: stats.overdue, "overdue", "claim"),
    "relays": _Quantity(lambda stats: _relays(stats, silent=False), "alive", "relay"),
    "silent": _Quantity(lambda stats: _relays(stats, silent=True), "silent", "relay"),
}  # fmt: skip


class Condition(msgspec.Struct, frozen=True):
    """A comparison of one value of a box; durations are in seconds."""

    name: str
    comparison: str
    limit: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Condition:
        """A condition from NAME OP VALUE, where OP is one of > >= < <= = !=. Raises UsageError."""
        found = _GRAMMAR.fullmatch(text) if len(text) <= _LONGEST else None
        if found is None:
            raise UsageError(f"{shown(text)} is not a condition; write NAME>VALUE, such as oldest>60s or dead>0")
        name, comparison, value = found.groups()
        quantity = QUANTITIES.get(name.lower())
        if quantity is None:
            raise UsageError(f"{shown(name)}: there is no such value; there are {', '.join(QUANTITIES)}")
        if quantity.is_duration:
            try:
                limit = parse_duration(value).total_seconds()
            except ValueError as error:
                raise UsageError(f"{name}: {error}") from None
        elif value.isascii() and value.isdigit() and len(value) <= _DIGITS:
            limit = float(value)
        else:
            raise UsageError(f"{name}: must be compared with a whole number, not {shown(value)}")
        return cls(name.lower(), comparison, limit, f"{name.lower()}{comparison}{value}")

    def holds(self, stats: Stats) -> bool:
        return _OPERATORS[self.comparison](QUANTITIES[self.name].read(stats), self.limit)

    def explain(self, stats: Stats) -> str:
        """The value that the box has, as a sentence."""
        quantity = QUANTITIES[self.name]
        value = quantity.read(stats)
        if quantity.is_duration:
            return f"{self.text}: {quantity.words} {format_duration(value)}"
        verb = "is" if value == 1 else "are"
        return f"{self.text}: {counted(int(value), quantity.noun)} {verb} {quantity.words}"


def held(conditions: list[Condition], stats: Stats) -> list[str]:
    """A sentence for each condition that holds."""
    return [condition.explain(stats) for condition in conditions if condition.holds(stats)]
