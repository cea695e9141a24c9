"""RO-5: traces and metrics with OpenTelemetry."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
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
from redbox.relay.otel.instruments import BoxReader, _Observations
from redbox.relay.series import add_boxes
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


async def test_two_relays_of_a_box_count_its_events_once(
    redbox_box: Box, reader: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(BoxReader, "every", 0.02)
    await put(redbox_box, 5)
    pair = [Relay(redbox_box, Target(), name=name) for name in ("r1", "r2")]

    def counted() -> dict[str, list[float]]:
        steps: dict[str, list[float]] = {}
        for point in read(reader).get("redbox_box_events", ()):
            steps.setdefault(point.attributes["step"], []).append(point.value)
        return steps

    async with running(*pair):
        await until(lambda: sum(relay.summary().published for relay in pair) == 5, "not published")
        await until(lambda: counted().get("published") == [5], "not read, or counted twice")
        assert counted()["put"] == [5]
        assert [point.value for point in read(reader)["redbox_up"]] == [1]
        assert sum(point.value for point in read(reader)["redbox_claimed"]) == 5


async def test_of_two_readings_of_a_box_the_newer_is_shown(redbox_box: Box):
    """Two relays read the box at different times: a counter that showed either one could decrease."""
    stats = await redbox_box.stats()
    older, newer = (
        msgspec.structs.replace(stats, at=stats.at + timedelta(seconds=count), totals={"put": count})
        for count in (5, 6)
    )
    for found in ([older, newer, None], [None, newer, older]):
        series = _Observations()
        add_boxes(series, [(redbox_box, each) for each in found])
        assert [each.value for each in series.found["redbox_box_events_total"]] == [6]
        assert [each.value for each in series.found["redbox_up"]] == [1]


async def test_a_span_keeps_the_tracestate_of_a_cloudevent(
    redbox_box: Box, tracer: tuple[trace.Tracer, InMemorySpanExporter]
):
    metadata = {"traceparent": f"00-{7:032x}-{8:016x}-01", "tracestate": "vendor=a1,other=b2"}
    await redbox_box.put(Event("paid", metadata=metadata))
    await drained(Relay(redbox_box, Target()))
    [span] = named(tracer[1], "redbox publish")
    assert span.context is not None
    assert span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (7, 8)
    assert dict(span.context.trace_state) == {"vendor": "a1", "other": "b2"}


@pytest.mark.parametrize("metadata", [{}, {"tracestate": "a=b"}, {"traceparent": "?", "tracestate": "=,="}])
async def test_metadata_without_a_valid_trace_context_begins_a_trace(
    redbox_box: Box, tracer: tuple[trace.Tracer, InMemorySpanExporter], metadata: dict[str, str]
):
    await redbox_box.put(Event("paid", metadata=metadata))
    assert (await drained(Relay(redbox_box, Target()))).published == 1
    [span] = named(tracer[1], "redbox publish")
    assert span.parent is None


PUTS = """
import asyncio, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from redbox import Box, Event
trace.set_tracer_provider(TracerProvider())
async def main():
    async with Box.open(sys.argv[1], name=sys.argv[2]) as box:
        with trace.get_tracer("shop").start_as_current_span("checkout") as span:
            await box.put(Event("paid"))
        context = span.get_span_context()
        print(context.trace_id, context.span_id)
asyncio.run(main())
"""


@pytest.mark.usefixtures("redbox_runner")
async def test_a_publish_continues_the_trace_of_another_process(
    redis_url: str, tracer: tuple[trace.Tracer, InMemorySpanExporter]
):
    name = f"traces-{uuid4().hex[:8]}"
    arguments = [sys.executable, "-c", PUTS, redis_url, name]
    process = await asyncio.to_thread(subprocess.run, arguments, check=True, timeout=50, stdout=subprocess.PIPE)
    trace_id, span_id = map(int, process.stdout.split())
    async with Box.open(redis_url, name=name) as box:
        assert (await drained(Relay(box, Target()))).published == 1
    [span] = named(tracer[1], "redbox publish")
    assert span.context is not None
    assert span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (trace_id, span_id)
    assert span.parent.is_remote


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
