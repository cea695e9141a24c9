"""The values of all metrics of a relay and its box, for the modules that export them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from redbox.box import Box
from redbox.box.reports import Stats
from redbox.rates import per_second
from redbox.relay.relay import Relay
from redbox.relay.report import MOST_ATTEMPTS, Histogram

OUTCOMES: Final = ("published", "retried", "dead", "released", "fenced", "unsettled")


class Series(Protocol):
    """Takes values of metrics; `labels` are in the order of the table `redbox.telemetry.METRICS`."""

    def add(self, name: str, value: float, *labels: str) -> None: ...
    def add_histogram(self, name: str, histogram: Histogram, *labels: str) -> None: ...


def add_relay(series: Series, relay: Relay) -> None:
    """Adds the counts of the relay."""
    tally, breaker = relay.tally, relay.breaker
    labels = (relay.box.name, relay.name)
    series.add("redbox_claimed_total", tally.claimed, *labels)
    for outcome in OUTCOMES:
        series.add("redbox_events_total", getattr(tally, outcome), *labels, outcome)
    series.add("redbox_publish_failures_total", tally.failed, *labels)
    series.add("redbox_in_flight", relay.in_flight, *labels)
    series.add("redbox_breaker_open", int(breaker is not None and not breaker.closed), *labels)
    series.add("redbox_breaker_opened_total", 0 if breaker is None else breaker.opened, *labels)
    for attempt, count in sorted(tally.retries_by_attempt.items()):
        label = str(attempt) if attempt < MOST_ATTEMPTS else f"{MOST_ATTEMPTS}+"
        series.add("redbox_retries_total", count, *labels, label)
    series.add_histogram("redbox_retry_delay_seconds", tally.retry_delays, *labels)
    series.add_histogram("redbox_delivery_seconds", tally.since_due, *labels)
    series.add_histogram("redbox_publish_seconds", tally.since_claimed, *labels)


def add_boxes(series: Series, found: Iterable[tuple[Box, Stats | None]]) -> None:
    """Adds the counts of each box once, however many of its relays read them, and whether each store answered."""
    newest: dict[tuple[str, str], Stats | None] = {}
    for box, stats in found:
        named = box.name, box.where
        known = newest.get(named)
        if known is None or (stats is not None and stats.at > known.at):  # else a counter could decrease
            newest[named] = stats
    up: dict[str, bool] = {}
    for (name, where), stats in newest.items():
        add_box(series, name, where, stats)
        up[where] = up.get(where, False) or stats is not None
    for where, answers in up.items():
        series.add("redbox_up", int(answers), where)


def add_box(series: Series, box: str, store: str, stats: Stats | None) -> None:
    """Adds the counts of the box; `stats` is None if the store did not answer."""
    labels = (box, store)
    series.add("redbox_store_up", int(stats is not None), *labels)
    if stats is None:
        return
    for phase, count in stats.phases.items():
        series.add("redbox_phase", count, *labels, phase.value)
    for name, oldest in (("available", stats.oldest_available), ("dead", stats.oldest_dead)):
        series.add(f"redbox_oldest_{name}_seconds", 0.0 if oldest is None else oldest.total_seconds(), *labels)
    alive, settings = [relay for relay in stats.relays if relay.alive], stats.settings
    values: dict[str, Any] = {
        "waiting": stats.waiting, "suspects": stats.suspects, "overdue": stats.overdue, "blocked": stats.blocked,
        "lost": stats.lost, "paused": int(stats.paused), "paused_keys": stats.paused_keys,
        "max_rate": per_second(settings.max_rate) if settings.max_rate else 0,
        "max_in_flight": settings.max_in_flight or 0,
        "relays_alive": len(alive), "relays_silent": len(stats.relays) - len(alive),
        "relays_breaker_open": sum(relay.breaker_open for relay in alive),
    }  # fmt: skip
    for name, value in values.items():
        series.add(f"redbox_{name}", value, *labels)
    for limit in ("max_rate", "max_in_flight"):
        series.add("redbox_limit_reached", int(limit in stats.limits_reached), *labels, limit)
    for step, count in stats.totals.items():
        series.add("redbox_box_events_total", count, *labels, step)
