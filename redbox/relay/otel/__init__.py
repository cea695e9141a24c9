"""OpenTelemetry: a span around each publish, and the metrics of relays. The modules are imported only if the
application has configured a provider."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redbox.publishers.base import Publisher


def uses_traces() -> bool:
    """Whether the application exports traces with OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")  # an application with a provider has imported it
    return trace is not None and _is_configured(trace.get_tracer_provider())


def uses_metrics() -> bool:
    """Whether the application exports metrics with OpenTelemetry."""
    metrics = sys.modules.get("opentelemetry.metrics")
    return metrics is not None and _is_configured(metrics.get_meter_provider())


def traced(publisher: Publisher, box: str, relay: str) -> Publisher:
    """The publisher with a span around each publish; the publisher itself if the application exports no traces."""
    if not uses_traces():
        return publisher
    from redbox.relay.otel.spans import TracedPublisher

    return TracedPublisher(publisher, box, relay)


def _is_configured(provider: object) -> bool:
    """Whether this is a provider of an SDK: those of the API itself export nothing."""
    return not type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))
