"""A span around each publish: a child of the span that called `put`, and the parent of what the publisher does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from redbox import __version__
from redbox.errors import Reject, RetryLater, Unavailable
from redbox.events import Claim
from redbox.publishers.base import Publisher, PublisherAround
from redbox.relay.outcomes.error_text import error_text
from redbox.telemetry import publishing, traceparent_of

_extract = TraceContextTextMapPropagator().extract


class TracedPublisher(PublisherAround):
    """Another publisher, with spans. In the publisher the span is active; for a call of many events, the span of the
    call is."""

    def __init__(self, publisher: Publisher, box: str, relay: str) -> None:
        super().__init__(publisher)
        self._tracer = trace.get_tracer("redbox", __version__)
        self._attributes: dict[str, Any] = {
            "messaging.system": "redbox",
            "messaging.operation.type": "send",
            "messaging.destination.name": publisher.target,
            "redbox.box": box,
            "redbox.relay": relay,
        }

    async def publish(self, claim: Claim) -> None:
        span = self._start(claim)
        token = publishing.set({claim.event_id: traceparent_of(span.get_span_context())})
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                await self._publisher.publish(claim)
        except BaseException as error:
            _end(span, error)
            raise
        else:
            _end(span, None)
        finally:
            publishing.reset(token)

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        spans = [self._start(claim) for claim in claims]
        call = self._tracer.start_span(
            "redbox publish many",
            kind=SpanKind.CLIENT,
            attributes={**self._attributes, "messaging.batch.message_count": len(claims)},
            links=[Link(span.get_span_context()) for span in spans],
        )
        contexts = {
            claim.event_id: traceparent_of(span.get_span_context()) for claim, span in zip(claims, spans, strict=True)
        }
        token = publishing.set(contexts)
        try:
            with trace.use_span(call, end_on_exit=True):
                outcomes = await self._publisher.publish_many(claims)
        except BaseException as error:
            for span in spans:
                _end(span, error)
            raise
        finally:
            publishing.reset(token)
        given = list(outcomes)
        for number, span in enumerate(spans):
            _end(span, given[number] if number < len(given) else None)
        return outcomes

    def _start(self, claim: Claim) -> Span:
        event = claim.event
        return self._tracer.start_span(
            "redbox publish",
            _extract(event.metadata),
            kind=SpanKind.PRODUCER,
            attributes={
                **self._attributes,
                "messaging.message.id": claim.event_id,
                "redbox.event_type": event.event_type,
                "redbox.attempt": claim.attempts,
            },
        )


def _end(span: Span, error: BaseException | None) -> None:
    """Ends the span with the outcome of the attempt."""
    if span.is_recording():
        span.set_attribute("redbox.outcome", _outcome(error))
        if error is not None:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(StatusCode.ERROR, error_text(error))
    span.end()


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "published"
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    for kind, outcome in ((Reject, "rejected"), (RetryLater, "retry_later"), (Unavailable, "unavailable")):
        if isinstance(error, kind):
            return outcome
    return "failed"
