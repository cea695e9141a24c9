"""A relay and its box as Prometheus reads them: the text format 0.0.4, written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from redbox.box.reports import Stats
from redbox.errors import RedboxError
from redbox.relay.relay import Relay
from redbox.relay.report import BUCKETS, Histogram
from redbox.telemetry import SIGNALS, Signal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OUTCOMES: Final = ("published", "retried", "dead", "released", "fenced", "unsettled")
STORE_SECONDS: Final = 2.0

_SIGNALS: Final = {signal.name: signal for signal in SIGNALS}


async def scrape(relays: Sequence[Relay]) -> str:
    """Everything about these relays and their boxes; of a store that does not answer, only that it does not."""
    found = await asyncio.gather(*(_ask(relay) for relay in relays))
    exposition = Exposition()
    for relay, stats in zip(relays, found, strict=True):
        add_relay(exposition, relay)
        add_box(exposition, relay, stats)
    return exposition.text()


async def _ask(relay: Relay) -> Stats | None:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            return await relay.box.stats()
    except (RedboxError, TimeoutError):
        return None


class Exposition:
    """Values, gathered by signal: the format wants all values of one signal together."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, value: float, *labels: str) -> None:
        """A value of the signal, with its labels in the order of the table."""
        self._line(name, name, value, _labels(_SIGNALS[name], labels))

    def add_histogram(self, name: str, histogram: Histogram, *labels: str) -> None:
        pairs = _labels(_SIGNALS[name], labels)
        counts = list(accumulate(histogram.counts))
        for bound, count in zip((*(f"{bound:g}" for bound in BUCKETS), "+Inf"), counts, strict=True):
            self._line(name, f"{name}_bucket", count, [*pairs, ("le", bound)])
        self._line(name, f"{name}_sum", histogram.total, pairs)
        self._line(name, f"{name}_count", counts[-1], pairs)

    def _line(self, name: str, sample: str, value: float, labels: Sequence[tuple[str, str]]) -> None:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        self._lines.setdefault(name, []).append(f"{sample}{{{shown}}} {value!r}")

    def text(self) -> str:
        lines = []
        for signal in SIGNALS:
            if signal.name in self._lines:
                lines += [f"# HELP {signal.name} {signal.help}", f"# TYPE {signal.name} {signal.kind}"]
                lines += self._lines[signal.name]
        return "\n".join([*lines, ""])


def add_relay(exposition: Exposition, relay: Relay) -> None:
    """What the relay itself counts."""
    tally, breaker = relay.tally, relay.breaker
    labels = (relay.box.name, relay.name)
    exposition.add("redbox_claimed_total", tally.claimed, *labels)
    for outcome in OUTCOMES:
        exposition.add("redbox_events_total", getattr(tally, outcome), *labels, outcome)
    exposition.add("redbox_publish_failures_total", tally.failed, *labels)
    exposition.add("redbox_in_flight", relay.in_flight, *labels)
    exposition.add("redbox_breaker_open", int(breaker is not None and not breaker.closed), *labels)
    exposition.add("redbox_breaker_opened_total", 0 if breaker is None else breaker.opened, *labels)
    exposition.add_histogram("redbox_delivery_seconds", tally.since_due, *labels)
    exposition.add_histogram("redbox_publish_seconds", tally.since_claimed, *labels)


def add_box(exposition: Exposition, relay: Relay, stats: Stats | None) -> None:
    """What the box says; None when it does not answer."""
    labels = (relay.box.name, relay.box.where)
    exposition.add("redbox_store_up", int(stats is not None), *labels)
    if stats is None:
        return
    for phase, count in stats.phases.items():
        exposition.add("redbox_phase", count, *labels, phase.value)
    oldest = stats.oldest_available
    exposition.add("redbox_oldest_available_seconds", 0.0 if oldest is None else oldest.total_seconds(), *labels)
    values: dict[str, Any] = {
        "waiting": stats.waiting, "suspects": stats.suspects, "overdue": stats.overdue, "blocked": stats.blocked,
        "paused": int(stats.paused),
    }  # fmt: skip
    for name, value in values.items():
        exposition.add(f"redbox_{name}", value, *labels)


def _labels(signal: Signal, values: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(signal.labels, values, strict=True))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
