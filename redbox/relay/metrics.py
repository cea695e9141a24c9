"""The metrics of relays and their boxes in Prometheus' text format 0.0.4."""

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
    """The metrics of these relays and their boxes; for a store that does not answer, only that it is down."""
    found = await asyncio.gather(*(_stats(relay) for relay in relays))
    exposition = Exposition()
    for relay, stats in zip(relays, found, strict=True):
        add_relay(exposition, relay)
        add_box(exposition, relay, stats)
    return exposition.text()


async def _stats(relay: Relay) -> Stats | None:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            return await relay.box.stats()
    except (RedboxError, TimeoutError):
        return None


class Exposition:
    """Values by signal: the format requires all values of one signal together."""

    def __init__(self) -> None:
        self._samples: dict[str, list[str]] = {}

    def add(self, name: str, value: float, *labels: str) -> None:
        """Adds a value of a signal; `labels` are in the order of the signal's table."""
        self._add_sample(name, name, value, _labels(_SIGNALS[name], labels))

    def add_histogram(self, name: str, histogram: Histogram, *labels: str) -> None:
        pairs = _labels(_SIGNALS[name], labels)
        counts = list(accumulate(histogram.counts))
        for bound, count in zip((*(f"{bound:g}" for bound in BUCKETS), "+Inf"), counts, strict=True):
            self._add_sample(name, f"{name}_bucket", count, [*pairs, ("le", bound)])
        self._add_sample(name, f"{name}_sum", histogram.total, pairs)
        self._add_sample(name, f"{name}_count", counts[-1], pairs)

    def _add_sample(self, name: str, sample: str, value: float, labels: Sequence[tuple[str, str]]) -> None:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        self._samples.setdefault(name, []).append(f"{sample}{{{shown}}} {value!r}")

    def text(self) -> str:
        lines = []
        for signal in SIGNALS:
            if signal.name in self._samples:
                lines += [f"# HELP {signal.name} {signal.help}", f"# TYPE {signal.name} {signal.kind}"]
                lines += self._samples[signal.name]
        return "\n".join([*lines, ""])


def add_relay(exposition: Exposition, relay: Relay) -> None:
    """Adds the counts of the relay."""
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
    """Adds the counts of the box; `stats` is None if the store did not answer."""
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
