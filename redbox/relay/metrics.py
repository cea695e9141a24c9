"""The metrics of relays and their boxes in Prometheus' text format 0.0.4."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from redbox.box import Box
from redbox.box.reports import Stats
from redbox.errors import MissingExtra, RedboxError
from redbox.relay.relay import Relay
from redbox.relay.report import BUCKETS, Histogram
from redbox.relay.series import add_boxes, add_relay
from redbox.telemetry import METRICS

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
except ImportError as error:
    raise MissingExtra("the metrics of a relay", "metrics") from error

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
STORE_SECONDS: Final = 2.0

_METRICS: Final = {metric.name: metric for metric in METRICS}
_FAMILIES: Final = {
    "counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily,
}  # fmt: skip


async def scrape(relays: Sequence[Relay]) -> str:
    """The metrics of these relays and their boxes; for a store that does not answer, only that it is down."""
    boxes = list(dict.fromkeys(relay.box for relay in relays))
    found = await asyncio.gather(*map(_stats, boxes))
    exposition = Exposition()
    for relay in relays:
        add_relay(exposition, relay)
    add_boxes(exposition, zip(boxes, found, strict=True))
    return exposition.text()


async def _stats(box: Box) -> Stats | None:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            return await box.stats()
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
