"""Where redbox meets tracing: the context of the span that called `put` travels with the event."""

from __future__ import annotations

import sys


def current_traceparent() -> str | None:
    """The W3C traceparent of the active span, when the application uses OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")  # an application with a span has imported it
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
