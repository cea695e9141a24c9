"""The metrics of relays as OpenTelemetry instruments: the series of the Prometheus text, under names that become the
same in an exporter for Prometheus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from redbox import __version__
from redbox.box.reports import Stats
from redbox.errors import RedboxError
from redbox.relay.relay import Relay
from redbox.relay.report import BUCKETS, Histogram
from redbox.relay.series import add_boxes, add_relay
from redbox.telemetry import METRICS, Metric

READ_EVERY: Final = 15.0
_METRICS: Final = {metric.name: metric for metric in METRICS}


class BoxReader:
    """A service of a relay: reads the stats of its box, since OpenTelemetry cannot wait for them."""

    every = READ_EVERY

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.stats: Stats | None = None
        self.was_read = False
        record_histograms(relay)
        instruments_of(metrics.get_meter_provider()).readers.add(self)

    async def run_once(self) -> None:
        try:
            self.stats = await self.relay.box.stats()
        except RedboxError:
            self.stats = None
            raise
        finally:
            self.was_read = True


class Instruments:
    """The instruments of one provider. They observe all relays that run."""

    def __init__(self, provider: MeterProvider) -> None:
        self.readers: WeakSet[BoxReader] = WeakSet()
        meter = provider.get_meter("redbox", __version__)
        self.histograms: dict[str, metrics.Histogram] = {}
        for metric in METRICS:
            name, unit = _name(metric)
            if metric.kind == "histogram":
                self.histograms[metric.name] = meter.create_histogram(
                    name, unit, metric.help, explicit_bucket_boundaries_advisory=list(BUCKETS)
                )
                continue
            create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            create(name, [self._observe(metric.name)], unit, metric.help)

    def _observe(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: self._read()[name]

    def _read(self) -> dict[str, list[Observation]]:
        series = _Observations()
        running = [reader for reader in list(self.readers) if reader.relay.running]
        for reader in running:
            add_relay(series, reader.relay)
        add_boxes(series, [(reader.relay.box, reader.stats) for reader in running if reader.was_read])
        return series.found


class _Observations:
    def __init__(self) -> None:
        self.found: dict[str, list[Observation]] = defaultdict(list)

    def add(self, name: str, value: float, *labels: str) -> None:
        self.found[name].append(Observation(value, dict(zip(_METRICS[name].labels, labels, strict=True))))

    def add_histogram(self, name: str, histogram: Histogram, *labels: str) -> None:
        """Histograms are recorded value by value."""


_instruments: WeakKeyDictionary[Any, Instruments] = WeakKeyDictionary()


def instruments_of(provider: MeterProvider) -> Instruments:
    """The instruments of a provider, made when they are first asked for."""
    if provider not in _instruments:
        _instruments[provider] = Instruments(provider)
    return _instruments[provider]


def record_histograms(relay: Relay) -> None:
    """Records the durations of a relay as they are measured."""
    attributes = {"box": relay.box.name, "relay": relay.name}
    found = instruments_of(metrics.get_meter_provider()).histograms
    for name, histogram in (
        ("redbox_retry_delay_seconds", relay.tally.retry_delays),
        ("redbox_delivery_seconds", relay.tally.since_due),
        ("redbox_publish_seconds", relay.tally.since_claimed),
    ):
        histogram.listener = _recorder(found[name], attributes)


def _recorder(instrument: metrics.Histogram, attributes: dict[str, str]) -> Callable[[float], None]:
    return lambda seconds: instrument.record(seconds, attributes)


def _name(metric: Metric) -> tuple[str, str]:
    """The name and unit of the instrument: an exporter for Prometheus adds the unit, and `_total` for counters."""
    name = metric.name.removesuffix("_total")
    return (name.removesuffix("_seconds"), "s") if name.endswith("_seconds") else (name, "")
