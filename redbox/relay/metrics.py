"""The metrics of relays and their boxes in Prometheus' text format 0.0.4."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from redbox.box.reports import Stats
from redbox.errors import MissingExtra, RedboxError
from redbox.relay.relay import Relay
from redbox.relay.report import BUCKETS, MOST_ATTEMPTS, Histogram
from redbox.telemetry import METRICS

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
except ImportError as error:
    raise MissingExtra("the metrics of a relay", "metrics") from error

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OUTCOMES: Final = ("published", "retried", "dead", "released", "fenced", "unsettled")
STORE_SECONDS: Final = 2.0

_METRICS: Final = {metric.name: metric for metric in METRICS}
_FAMILIES: Final = {
    "counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily,
}  # fmt: skip


async def scrape(relays: Sequence[Relay]) -> str:
    """The metrics of these relays and their boxes; for a store that does not answer, only that it is down."""
    found = await asyncio.gather(*(_stats(relay) for relay in relays))
    exposition = Exposition()
    up: dict[str, bool] = {}
    for relay, stats in zip(relays, found, strict=True):
        add_relay(exposition, relay)
        add_box(exposition, relay.box.name, relay.box.where, stats)
        up[relay.box.where] = up.get(relay.box.where, False) or stats is not None
    for where, answers in up.items():
        exposition.add("redbox_up", int(answers), where)
    return exposition.text()


async def _stats(relay: Relay) -> Stats | None:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            return await relay.box.stats()
    except (RedboxError, TimeoutError):
        return None


class Exposition:
    """The values of all metrics, in the text format."""

    def __init__(self) -> None:
        self._families: dict[str, Any] = {}

    def add(self, name: str, value: float, *labels: str) -> None:
        """Adds a value of a metric; `labels` are in the order of the metric's table."""
        self._family(name).add_metric(labels, value)

    def add_histogram(self, name: str, histogram: Histogram, *labels: str) -> None:
        bounds = (*(f"{bound:g}" for bound in BUCKETS), "+Inf")
        buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
        self._family(name).add_metric(labels, buckets=buckets, sum_value=histogram.total)

    def _family(self, name: str) -> Any:
        if name not in self._families:
            metric = _METRICS[name]
            self._families[name] = _FAMILIES[metric.kind](name, metric.help, labels=metric.labels)
        return self._families[name]

    def collect(self) -> Iterator[Any]:
        """The metrics with values, in the order of the table; prometheus-client calls this."""
        return (self._families[metric.name] for metric in METRICS if metric.name in self._families)

    def text(self) -> str:
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry).decode()


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
    for attempt, count in sorted(tally.retries_by_attempt.items()):
        label = str(attempt) if attempt < MOST_ATTEMPTS else f"{MOST_ATTEMPTS}+"
        exposition.add("redbox_retries_total", count, *labels, label)
    exposition.add_histogram("redbox_retry_delay_seconds", tally.retry_delays, *labels)
    exposition.add_histogram("redbox_delivery_seconds", tally.since_due, *labels)
    exposition.add_histogram("redbox_publish_seconds", tally.since_claimed, *labels)


def add_box(exposition: Exposition, box: str, store: str, stats: Stats | None) -> None:
    """Adds the counts of the box; `stats` is None if the store did not answer."""
    labels = (box, store)
    exposition.add("redbox_store_up", int(stats is not None), *labels)
    if stats is None:
        return
    for phase, count in stats.phases.items():
        exposition.add("redbox_phase", count, *labels, phase.value)
    for name, oldest in (("available", stats.oldest_available), ("dead", stats.oldest_dead)):
        exposition.add(f"redbox_oldest_{name}_seconds", 0.0 if oldest is None else oldest.total_seconds(), *labels)
    alive = [relay for relay in stats.relays if relay.alive]
    values: dict[str, Any] = {
        "waiting": stats.waiting, "suspects": stats.suspects, "overdue": stats.overdue, "blocked": stats.blocked,
        "lost": stats.lost, "paused": int(stats.paused), "paused_keys": stats.paused_keys,
        "relays_alive": len(alive), "relays_silent": len(stats.relays) - len(alive),
        "relays_breaker_open": sum(relay.breaker_open for relay in alive),
    }  # fmt: skip
    for name, value in values.items():
        exposition.add(f"redbox_{name}", value, *labels)
    for step, count in stats.totals.items():
        exposition.add("redbox_box_events_total", count, *labels, step)
