"""RO-5: traces and metrics with OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redbox import Backoff, Box, Event, Publisher, Reject, Relay
from redbox.events import Claim
from redbox.publishers.base import passed_on
from redbox.relay.otel.instruments import BoxReader
from redbox.telemetry import METRICS, current_traceparent
from tests.relay.steps import Target, drained, put, running, until

pytestmark = [pytest.mark.timeout(60), pytest.mark.req("RO-5")]


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> tuple[trace.Tracer, InMemorySpanExporter]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return provider.get_tracer("test"), exporter


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    yield reader
    provider.shutdown()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


@pytest.mark.parametrize("plain", [False, True])
async def test_put_publish_and_the_calls_of_the_publisher_are_one_trace(
    redbox_box: Box, tracer: tuple[trace.Tracer, InMemorySpanExporter], plain: bool
):
    ours, exporter = tracer
    passed: list[tuple[str | None, str | None]] = []

    def publish(event: Event, claim: Claim) -> None:
        passed.append((current_traceparent(), passed_on(claim)["traceparent"]))
        with ours.start_as_current_span("call"):
            pass

    async def publish_async(event: Event, claim: Claim) -> None:
        publish(event, claim)

    with ours.start_as_current_span("checkout"):
        await redbox_box.put(Event("paid", event_id="e1"))
    await drained(Relay(redbox_box, publish if plain else publish_async, name="r1"))
    [checkout], [published], [call] = (named(exporter, name) for name in ("checkout", "redbox publish", "call"))
    assert checkout.context is not None
    assert published.context is not None
    assert call.context is not None
    assert published.parent is not None
    assert call.parent is not None
    assert {span.context.trace_id for span in (published, call) if span.context} == {checkout.context.trace_id}
    assert published.parent.span_id == checkout.context.span_id
    assert call.parent.span_id == published.context.span_id
    [(active, header)] = passed
    assert active == header
    assert f"{published.context.span_id:016x}" in str(header)
    attributes = dict(published.attributes or {})
    assert attributes["redbox.outcome"] == "published"
    assert attributes["messaging.message.id"] == "e1"
    assert (attributes["redbox.box"], attributes["redbox.relay"], attributes["redbox.attempt"]) == ("test", "r1", 1)


@pytest.mark.parametrize(
    ("error", "outcome"), [(Reject("HTTP 422"), "rejected"), (ValueError("no"), "failed"), (None, "published")]
)
async def test_the_span_has_the_outcome(
    redbox_box: Box, tracer: tuple[trace.Tracer, InMemorySpanExporter], error: Exception | None, outcome: str
):
    await put(redbox_box, 1)
    await drained(Relay(redbox_box, Target(raises=error), breaker=None, backoff=Backoff.fixed(60)))
    [span] = named(tracer[1], "redbox publish")
    assert dict(span.attributes or {})["redbox.outcome"] == outcome
    assert span.status.is_ok is (error is None)


async def test_a_call_of_many_events_is_a_span_with_a_link_to_each(
    redbox_box: Box, tracer: tuple[trace.Tracer, InMemorySpanExporter]
):
    class Many(Publisher):
        target = "many"
        many = 10

        async def publish(self, claim: Claim) -> None: ...

        async def publish_many(self, claims: Any) -> Any:
            headers.extend(passed_on(claim)["traceparent"] for claim in claims)
            return [ValueError("no") if claim.event_id == "e1" else None for claim in claims]

    headers: list[str] = []
    await put(redbox_box, 3)
    await drained(Relay(redbox_box, Many(), breaker=None, backoff=Backoff.fixed(60)))
    spans, [call] = named(tracer[1], "redbox publish"), named(tracer[1], "redbox publish many")
    outcomes = [dict(span.attributes or {})["redbox.outcome"] for span in spans]
    assert outcomes == ["published", "failed", "published"]
    assert [link.context.span_id for link in call.links] == [span.context.span_id for span in spans if span.context]
    assert [header.split("-")[2] for header in headers] == [f"{link.context.span_id:016x}" for link in call.links]


def read(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


async def test_the_series_are_those_of_prometheus(
    redbox_box: Box, reader: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(BoxReader, "every", 0.02)
    await redbox_box.put_many([Event("n") for _ in range(3)])
    await redbox_box.put(Event("bad"))
    target = Target(raises=lambda event: ValueError("no") if event.event_type == "bad" else None)
    relay = Relay(redbox_box, target, name="r1", backoff=Backoff.fixed(60))
    async with running(relay):
        await until(lambda: relay.summary().published == 3 and relay.summary().retried == 1, "not published")
        await until(lambda: "redbox_phase" in read(reader), "the box was not read")
        found = read(reader)
        text = await relay.metrics_text()
    for metric in METRICS:
        assert metric.name.removesuffix("_total").removesuffix("_seconds") in found, metric.name
        assert f"# TYPE {metric.name} " in text, metric.name
    relay_is = {"box": "test", "relay": "r1"}
    assert [(each.value, dict(each.attributes)) for each in found["redbox_claimed"]] == [(4, relay_is)]
    [delivery] = found["redbox_delivery"]
    assert (delivery.count, dict(delivery.attributes)) == (3, relay_is)
    [delay] = found["redbox_retry_delay"]
    assert (delay.count, delay.sum) == (1, 60)
    assert [each.value for each in found["redbox_store_up"]] == [1]
    assert all(not points for points in read(reader).values() if not hasattr((points or [None])[0], "count")), (
        "a relay that has ended is not observed any more"
    )


@pytest.mark.parametrize("installed", [False, True])
def test_without_a_provider_nothing_is_added_to_the_way_of_an_event(installed: bool):
    code = f"""
import asyncio, sys
if not {installed}:
    sys.modules["opentelemetry"] = None
from redbox import Box, Event, Relay
async def main():
    async with Box.open("memory:") as box:
        await box.put(Event("n"))
        await Relay(box, "null:").drain()
asyncio.run(main())
assert not [name for name in sys.modules if name.startswith("redbox.relay.otel.")]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
