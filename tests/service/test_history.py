"""RO-5, SF-6: the history of rates over HTTP, recorded by the service where no relay runs."""

from __future__ import annotations

import asyncio

import pytest

from redbox import Event
from redbox.service import history
from redbox.service.boxes import Boxes
from redbox.service.history import record_once
from redbox.testing import advance
from tests.service.observing import observed

pytestmark = pytest.mark.usefixtures("redbox_runner")


@pytest.mark.req("RO-5")
async def test_a_service_without_a_relay_records_put_per_second(redis_url: str):
    async with observed(redis_url) as service:
        boxes = Boxes(service.box)
        await record_once(boxes)
        assert (await service.get("rates"))["samples"] == [], "a box that does not exist has no history"
        await service.box.put(Event("n"))
        await record_once(boxes)
        await advance(service.box, seconds=10)
        await service.box.put_many([Event("n") for _ in range(20)])
        await record_once(boxes)
        found = await service.get("rates")
        assert found["step"] == 10
        assert found["samples"][-1]["put"] == pytest.approx(2, rel=0.1)
        assert set(found["samples"][-1]) == {"at", "put", "published", "failed", "dead", "p50_ms", "p99_ms"}
        assert (await service.get("rates?window=24h"))["step"] == 300


@pytest.mark.req("RO-5")
async def test_a_box_that_cannot_be_recorded_is_logged_and_does_not_end_the_recording(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async with observed(redis_url) as service:
        recorded = asyncio.Event()
        calls = 0

        async def fail() -> bool:
            nonlocal calls
            calls += 1
            if calls == 2:
                recorded.set()
            raise ValueError("a defect")

        monkeypatch.setattr(service.box.desk, "record_rates", fail)
        monkeypatch.setattr(history, "RECORD_SECONDS", 0.0)
        async with asyncio.timeout(10), history.recording(Boxes(service.box)):
            await recorded.wait()
    logged = [record for record in caplog.records if record.levelname == "ERROR"]
    assert {record.getMessage() for record in logged} == {f"the rates of box {service.box.name} were not recorded"}
    assert str(logged[0].exc_info and logged[0].exc_info[1]) == "a defect"


async def test_an_unknown_window_is_a_problem(redis_url: str):
    async with observed(redis_url) as service:
        await service.box.put(Event("n"))
        assert (await service.get("rates?window=2h", 400))["status"] == 400
