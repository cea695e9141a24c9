"""Where redbox meets tracing and metrics: the context of the span that called `put` travels with the event, and one
table says which signals a relay gives."""

from __future__ import annotations

import sys
from typing import Final, Literal, NamedTuple


class Signal(NamedTuple):
    """One metric: its name, kind, meaning, and the labels of each of its values."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...]


_RELAY: Final = ("box", "relay")
_BOX: Final = ("box", "store")

#: What a relay counts and measures, then what is asked of its box when somebody looks.
SIGNALS: Final = (
    Signal("redbox_claimed_total", "counter", "Events claimed.", _RELAY),
    Signal("redbox_events_total", "counter", "Claims settled, by what became of the event.", (*_RELAY, "outcome")),
    Signal("redbox_publish_failures_total", "counter", "Attempts to publish that failed.", _RELAY),
    Signal("redbox_in_flight", "gauge", "Claims that the relay holds: waiting in it, or under way.", _RELAY),
    Signal("redbox_breaker_open", "gauge", "1 while the breaker keeps events back, else 0.", _RELAY),
    Signal("redbox_breaker_opened_total", "counter", "Times the breaker opened.", _RELAY),
    Signal("redbox_delivery_seconds", "histogram", "From when an event was due until it was published.", _RELAY),
    Signal("redbox_publish_seconds", "histogram", "From when an event was claimed until it was published.", _RELAY),
    Signal("redbox_store_up", "gauge", "1 if the store answered, else 0; then the following are missing.", _BOX),
    Signal("redbox_phase", "gauge", "Events by phase; the phases add up to all events.", (*_BOX, "phase")),
    Signal("redbox_oldest_available_seconds", "gauge", "How long the longest due event waits to be claimed.", _BOX),
    Signal("redbox_waiting", "gauge", "Events behind the head of their line; their phase counts them too.", _BOX),
    Signal("redbox_suspects", "gauge", "Events that relays died with; they are given out alone.", _BOX),
    Signal("redbox_overdue", "gauge", "Claims whose lease has ended and that nobody has reaped.", _BOX),
    Signal("redbox_blocked", "gauge", "Ordering keys that a dead event at the head stops.", _BOX),
    Signal("redbox_paused", "gauge", "1 while the box is paused, else 0.", _BOX),
)  # fmt: skip


def current_traceparent() -> str | None:
    """The W3C traceparent of the active span, when the application uses OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")  # an application with a span has imported it
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
