"""RO-5: the Grafana dashboard and docs/telemetry.md fit the metrics and the alerts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redbox import Backoff, Box, Event, Relay
from redbox.telemetry import METRICS
from tests.relay.steps import drained

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "docs/grafana/redbox.json").read_text())
DOCUMENT = (ROOT / "docs/telemetry.md").read_text()
ALERTS = ROOT / "redbox/relay/alerts"

pytestmark = [pytest.mark.req("RO-5"), pytest.mark.timeout(60)]


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        yield variable.get("definition", "")


async def exposition(box: Box) -> str:
    """The metrics of a relay that has published and retried events, and marked one DEAD."""

    def publish(event: Event) -> None:
        if event.event_type == "bad":
            raise ValueError("no")

    await box.put_many([Event("good"), Event("bad")])
    relay = Relay(box, publish, name="r1", backoff=Backoff.fixed(0), attempts=2, breaker=None)
    await drained(relay)
    return await relay.metrics_text()


async def test_every_series_of_the_dashboard_is_in_the_metrics_of_a_relay(redbox_box: Box):
    text = await exposition(redbox_box)
    found = {name for expression in expressions() for name in re.findall(r"\bredbox_[a-z_]+", expression)}
    assert len(found) > 20
    served = set(re.findall(r"^(redbox_[a-z_]+)\{", text, re.MULTILINE))
    assert found - served == set()


async def test_every_label_of_the_dashboard_exists(redbox_box: Box):
    await exposition(redbox_box)
    known = {metric.name: {*metric.labels, "le"} for metric in METRICS}
    for expression in expressions():
        for name, selector in re.findall(r"\b(redbox_[a-z_]+)\{([^}]*)\}", expression):
            labels = known.get(name) or known[re.sub("_(bucket|sum|count)$", "", name)]
            assert set(re.findall(r"([a-z_]+)=", selector)) <= labels, expression
        metric = re.search(r"\b(redbox_[a-z_]+)", expression)
        for names in re.findall(r"by \(([^)]*)\)", expression):
            assert metric is not None
            labels = known.get(metric[1]) or known[re.sub("_(bucket|sum|count)$", "", metric[1])]
            assert {name.strip() for name in names.split(",")} <= labels, expression


def test_every_metric_is_on_the_dashboard():
    shown = " ".join(expressions())
    assert [metric.name for metric in METRICS if metric.name not in shown] == []


def test_the_panels_of_the_dashboard_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at: dict[str, Any] = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.req("RO-7")
def test_the_document_lists_every_alert():
    source = "".join(path.read_text() for path in ALERTS.glob("*.py"))
    types = set(re.findall(r'"(redbox\.[a-z_]+\.[a-z_]+)"', source))
    assert len(types) == 11
    assert set(re.findall(r"`(redbox\.[a-z_]+\.[a-z_]+)`", DOCUMENT)) == types


def test_the_metrics_of_relays_in_an_application():
    fastapi = pytest.importorskip("fastapi")
    testclient = pytest.importorskip("fastapi.testclient")
    code = next(block for block in re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL) if "FastAPI" in block)
    names: dict[str, Any] = {}
    exec(code.replace("redis://localhost:6379/0", "memory:"), names)
    assert isinstance(names["app"], fastapi.FastAPI)
    with testclient.TestClient(names["app"]) as client:
        response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'redbox_store_up{box="orders",store="memory:"} 1.0' in response.text
