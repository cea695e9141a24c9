"""Tracing and metrics: the trace context that an event takes from the span that called `put`, and the table of all
metrics of relays and boxes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final, Literal, NamedTuple

#: The traceparents of the events that the current task publishes, by event id; None if there are no spans.
publishing: ContextVar[Mapping[str, str] | None] = ContextVar("publishing", default=None)


class Metric(NamedTuple):
    """One metric: its name, kind, help text and labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...]


_RELAY: Final = ("box", "relay")
_BOX: Final = ("box", "store")

#: First the metrics that a relay counts and measures, then those that are read from its box at each scrape.
METRICS: Final = (
    Metric("redbox_claimed_total", "counter", "Events claimed.", _RELAY),
    Metric("redbox_events_total", "counter", "Claims settled, by outcome.", (*_RELAY, "outcome")),
    Metric("redbox_publish_failures_total", "counter", "Attempts to publish that failed.", _RELAY),
    Metric("redbox_in_flight", "gauge", "Claims that the relay holds: buffered or being published.", _RELAY),
    Metric("redbox_breaker_open", "gauge", "1 while the breaker is open, else 0.", _RELAY),
    Metric("redbox_breaker_opened_total", "counter", "Times the breaker opened.", _RELAY),
    Metric("redbox_retries_total", "counter", "Retries scheduled, by the attempt that failed.", (*_RELAY, "attempt")),
    Metric("redbox_retry_delay_seconds", "histogram", "Delay before the next attempt, as it was scheduled.", _RELAY),
    Metric("redbox_delivery_seconds", "histogram", "Time from when an event was due until it was published.", _RELAY),
    Metric("redbox_publish_seconds", "histogram", "Time from the claim of an event until it was published.", _RELAY),
    Metric("redbox_up", "gauge", "1 if the store replied for at least one box, else 0.", ("store",)),
    Metric("redbox_store_up", "gauge", "1 if the store replied, else 0 and the metrics below are missing.", _BOX),
    Metric("redbox_phase", "gauge", "Events by phase; the phases add up to all events.", (*_BOX, "phase")),
    Metric("redbox_oldest_available_seconds", "gauge", "How long the oldest due event has waited for its claim.", _BOX),
    Metric("redbox_oldest_dead_seconds", "gauge", "How long ago the oldest DEAD event died; 0 if there is none.", _BOX),
    Metric("redbox_waiting", "gauge", "Events behind the head of their line; also counted by phase.", _BOX),
    Metric("redbox_suspects", "gauge", "Events whose relays crashed repeatedly; they are claimed alone.", _BOX),
    Metric("redbox_overdue", "gauge", "Claims whose lease has ended and that were not reaped yet.", _BOX),
    Metric("redbox_blocked", "gauge", "Ordering keys whose line is blocked by a DEAD event at its head.", _BOX),
    Metric("redbox_lost", "gauge", "Lost events: incomplete, and never delivered.", _BOX),
    Metric("redbox_paused", "gauge", "1 while the box is paused, else 0.", _BOX),
    Metric("redbox_paused_keys", "gauge", "Paused ordering keys.", _BOX),
    Metric("redbox_max_rate", "gauge", "The limit max_rate, in events per second; 0 for none.", _BOX),
    Metric("redbox_max_in_flight", "gauge", "The limit max_in_flight, in events; 0 for none.", _BOX),
    Metric("redbox_limit_reached", "gauge", "1 while the limit holds back due events, else 0.", (*_BOX, "limit")),
    Metric("redbox_relays_alive", "gauge", "Relays with a heartbeat in the last 15 s.", _BOX),
    Metric("redbox_relays_silent", "gauge", "Relays without a heartbeat for 15 s, but with one in the last day.", _BOX),
    Metric("redbox_relays_breaker_open", "gauge", "Living relays whose breaker is open.", _BOX),
    Metric("redbox_box_events_total", "counter", "Events since the box exists, by step.", (*_BOX, "step")),
)  # fmt: skip


def current_traceparent() -> str | None:
    """Returns the W3C traceparent of the active span, if the application uses OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")  # an application with a span has imported it
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    return traceparent_of(context) or None


def traceparent_of(context: Any) -> str:
    """The W3C traceparent of an OpenTelemetry span context; empty if it is not valid."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
