"""Metrics and health of a relay: Prometheus' text format, and the server."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from redbox import Backoff, Box, Breaker, Event, Relay, Unavailable
from redbox.box.desk.rates_history import MOST_BUCKETS
from redbox.errors import RedboxError, StoreUnavailable
from redbox.relay import Circuit, metrics
from redbox.relay.report import BUCKETS, Histogram
from redbox.service import health, monitor
from redbox.service.http.pool import Limits
from redbox.service.monitor import Monitor
from redbox.telemetry import METRICS
from redbox.testing import advance

pytestmark = pytest.mark.timeout(30)

LABEL = r'[a-z_]+="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"([a-z_]+)\{{({LABEL}(?:,{LABEL})*)\}} (-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)")


class Samples(dict[tuple[str, str], float]):
    """Samples by name and labels; the order of the labels does not count."""

    def __getitem__(self, key: tuple[str, str]) -> float:
        return super().__getitem__((key[0], in_order(key[1])))


def in_order(labels: str) -> str:
    return ",".join(sorted(re.findall(LABEL, labels)))


def parse(text: str) -> Samples:
    """Every sample of an exposition, by name and labels; fails on anything that is not in the format."""
    assert text.endswith("\n")
    found = Samples()
    typed: dict[str, str] = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            assert word in ("HELP", "TYPE")
            if word == "TYPE":
                assert name not in typed  # all values of one metric are together
                typed[name], current = rest, name
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        suffixes = ("_bucket", "_sum", "_count") if typed[current] == "histogram" else ("",)
        assert match[1] in [current + suffix for suffix in suffixes]
        key = (match[1], in_order(match[2]))
        assert key not in found
        found[key] = float(match[3])
    return found


async def publish(event: Event) -> None:
    if event.event_type == "bad":
        raise ValueError("no")


async def until(condition: Callable[[], bool]) -> None:
    """Lets other tasks run until the condition holds; the limit is the test's timeout."""
    while not condition():  # noqa: ASYNC110  # what changes it tells nobody
        await asyncio.sleep(0)


async def drained(box: Box, *types: str, **options: Any) -> Relay:
    await box.put_many([Event(each) for each in types])
    relay = Relay(box, publish, name="r1", backoff=Backoff.fixed(600), **options)
    await relay.drain()
    return relay


@pytest.mark.req("RO-5")
async def test_delivery_counts_from_when_it_was_due_and_publishing_from_the_claim(redbox_box: Box):
    await redbox_box.put(Event("good"))
    await advance(redbox_box, minutes=20)
    relay = await drained(redbox_box)
    assert relay.tally.since_due.total >= 1200
    assert relay.tally.since_claimed.total < 600


@pytest.mark.req("RO-5")
async def test_every_metric_of_the_table_is_there(redbox_box: Box):
    relay = await drained(redbox_box, "good", "good", "bad")
    samples = parse(await metrics.scrape([relay]))
    names = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name, _ in samples}
    assert names == {metric.name for metric in METRICS}
    ours, box = 'box="test",relay="r1"', 'box="test",store="memory:"'
    assert samples["redbox_claimed_total", ours] == 3
    assert samples["redbox_events_total", f'{ours},outcome="published"'] == 2
    assert samples["redbox_events_total", f'{ours},outcome="retried"'] == 1
    assert samples["redbox_publish_failures_total", ours] == 1
    assert samples["redbox_in_flight", ours] == 0
    assert samples["redbox_breaker_open", ours] == 0
    assert samples["redbox_retries_total", f'{ours},attempt="1"'] == 1
    assert samples["redbox_retry_delay_seconds_sum", ours] == 600
    assert samples["redbox_retry_delay_seconds_count", ours] == 1
    assert samples["redbox_up", 'store="memory:"'] == 1
    assert samples["redbox_relays_alive", box] == 0
    assert samples["redbox_box_events_total", f'{box},step="put"'] == 3
    assert samples["redbox_delivery_seconds_count", ours] == 2
    assert samples["redbox_publish_seconds_count", ours] == 2
    assert samples["redbox_store_up", box] == 1
    assert samples["redbox_phase", f'{box},phase="COMPLETED"'] == 2
    assert samples["redbox_phase", f'{box},phase="RETRY_SCHEDULED"'] == 1
    assert samples["redbox_oldest_available_seconds", box] == 0


def test_the_table_is_in_the_documentation():
    text = (Path(__file__).resolve().parents[2] / "docs" / "relay.md").read_text()
    for metric in METRICS:
        assert f"`{metric.name}`" in text


def test_a_histogram_adds_up():
    histogram = Histogram()
    for seconds in (0.0005, 0.001, 0.3, 1e6):
        histogram.add(seconds)
    exposition = metrics.Exposition()
    exposition.add_histogram("redbox_publish_seconds", histogram, "b", "r")
    samples = parse(exposition.text())
    buckets = [value for (name, _), value in samples.items() if name.endswith("_bucket")]
    assert len(buckets) == len(BUCKETS) + 1
    assert buckets == sorted(buckets)
    labels = 'box="b",relay="r"'
    assert samples["redbox_publish_seconds_bucket", f'{labels},le="0.001"'] == 2
    assert samples["redbox_publish_seconds_bucket", f'{labels},le="0.5"'] == 3
    assert samples["redbox_publish_seconds_bucket", f'{labels},le="86400"'] == 3
    assert samples["redbox_publish_seconds_bucket", f'{labels},le="+Inf"'] == 4
    assert samples["redbox_publish_seconds_count", labels] == 4
    assert samples["redbox_publish_seconds_sum", labels] == pytest.approx(1e6 + 0.3015)


def test_latencies_of_minutes_and_hours_are_told_apart():
    late = [bound for bound in BUCKETS if bound >= 60]
    assert {60, 300, 1800, 7200, 86400} <= set(late), "queries name them"
    assert all(after <= 3 * before for before, after in pairwise(late[:-1]))
    assert len(BUCKETS) < MOST_BUCKETS


def test_labels_are_escaped():
    exposition = metrics.Exposition()
    exposition.add("redbox_in_flight", 1, 'a"b\\c\nd', "r")
    assert 'box="a\\"b\\\\c\\nd",relay="r"' in exposition.text()
    assert len(parse(exposition.text())) == 1


async def test_without_a_store_only_the_counts_of_the_relay_are_shown(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    relay = await drained(redbox_box, "good")

    async def fail() -> None:
        raise StoreUnavailable

    monkeypatch.setattr(redbox_box, "stats", fail)
    samples = parse(await metrics.scrape([relay]))
    assert samples["redbox_store_up", 'box="test",store="memory:"'] == 0
    assert samples["redbox_claimed_total", 'box="test",relay="r1"'] == 1
    assert "redbox_phase" not in {name for name, _ in samples}

    async def hang() -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(redbox_box, "stats", hang)
    monkeypatch.setattr(metrics, "STORE_SECONDS", 0.01)
    assert parse(await metrics.scrape([relay]))["redbox_store_up", 'box="test",store="memory:"'] == 0


@pytest.mark.req("RO-5")
async def test_two_relays_of_a_box_show_its_counts_once(redbox_box: Box):
    relays = [await drained(redbox_box, "good"), Relay(redbox_box, publish, name="r2")]
    samples = parse(await metrics.scrape(relays))  # which refuses a series that is there twice
    assert samples["redbox_box_events_total", 'box="test",store="memory:",step="put"'] == 1
    assert samples["redbox_up", 'store="memory:"'] == 1
    assert {labels for name, labels in samples if name == "redbox_claimed_total"} == {
        'box="test",relay="r1"', 'box="test",relay="r2"',
    }  # fmt: skip


# --- the server ------------------------------------------------------------------------------------------------


async def ask(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in headers), body


async def get(port: int, path: str) -> tuple[int, dict[str, str], bytes]:
    return await ask(port, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())


async def test_requests(redbox_box: Box):
    relay = await drained(redbox_box, "good")
    async with Monitor([relay], 0) as served:
        assert served.url == f"http://127.0.0.1:{served.port}"
        status, headers, body = await get(served.port, "/metrics")
        assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert int(headers["content-length"]) == len(body)
        assert ("redbox_claimed_total", 'box="test",relay="r1"') in parse(body.decode())
        assert (await get(served.port, "/metrics?x=1"))[0] == 200
        assert (await get(served.port, "/"))[0] == 404
        status, headers, body = await ask(served.port, b"HEAD /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert (status, body) == (200, b"")
        assert int(headers["content-length"]) > 1000
        status, headers, _ = await ask(served.port, b"POST /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert (status, headers["allow"]) == (405, "GET, HEAD")
        assert (await ask(served.port, b"hello\r\n\r\n"))[0] == 400
        assert (await ask(served.port, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n"))[0] == 431


async def test_a_client_that_says_nothing_is_left_and_the_end_does_not_wait_for_it(
    redbox_box: Box, monkeypatch: pytest.MonkeyPatch
):
    relay = Relay(redbox_box, publish)
    monkeypatch.setattr(monitor, "LIMITS", Limits(head_seconds=0.01))
    async with Monitor([relay], 0) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /metr")
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()
        _, waiting = await asyncio.open_connection("127.0.0.1", served.port)
    waiting.close()


async def test_silent_clients_do_not_keep_others_out(redbox_box: Box):
    relay = Relay(redbox_box, publish)
    async with Monitor([relay], 0) as served:
        most = monitor.LIMITS.connections
        silent = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(most + 3)]
        for _ in range(2):
            assert (await get(served.port, "/livez"))[0] == 200
        closed = [await asyncio.wait_for(reader.read(), 3) for reader, _ in silent[:4]]
        assert closed == [b""] * 4  # the connections that were idle for longest
        for _, writer in silent:
            writer.close()


async def test_a_taken_port_is_one_sentence(redbox_box: Box):
    relay = Relay(redbox_box, publish)
    async with Monitor([relay], 0) as first:
        with pytest.raises(RedboxError, match=f"port {first.port}: address already in use; choose another"):
            async with Monitor([relay], first.port):
                pass


# --- health ----------------------------------------------------------------------------------------------------


async def test_healthy_while_it_runs_and_the_store_answers(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(health, "FRESH_SECONDS", 0.0)
    relay = Relay(redbox_box, publish, name="r1")
    async with Monitor([relay], 0) as served:
        status, _, body = await get(served.port, "/healthz")
        assert (status, json.loads(body)["relays"][0]["problem"]) == (503, "the relay is not running")
        async with relay:
            await until(lambda: relay.running)
            status, headers, body = await get(served.port, "/healthz")
            assert (status, headers["content-type"]) == (200, "application/json")
            report = json.loads(body)
            assert report["status"] == "ok"
            assert report["relays"][0] == {
                "box": "test", "relay": "r1", "target": relay.target, "problem": None, "breaker": "closed",
                "breaker_reason": None, "in_flight": 0,
            }  # fmt: skip

            async def fail() -> None:
                raise StoreUnavailable("the store has gone")

            monkeypatch.setattr(redbox_box, "stats", fail)
            status, _, body = await get(served.port, "/healthz")
            assert (status, json.loads(body)["relays"][0]["problem"]) == (503, "the store has gone")


async def test_a_process_whose_store_is_gone_is_alive_and_not_ready(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    """A restart would not bring the store back: so liveness is /livez, which never calls the store."""

    async def fail() -> None:
        raise StoreUnavailable("the store has gone")

    monkeypatch.setattr(health, "FRESH_SECONDS", 0.0)
    relay = Relay(redbox_box, publish, name="r1")
    async with Monitor([relay], 0) as served:
        assert (await get(served.port, "/livez"))[0] == 200  # it is starting, or ending
        async with relay:
            await until(lambda: relay.running)
            answers = [await get(served.port, path) for path in ("/livez", "/readyz", "/healthz")]
            assert [status for status, _, _ in answers] == [200, 200, 200]
            assert answers[1][2] == answers[2][2]
            monkeypatch.setattr(redbox_box, "stats", fail)
            answers = [await get(served.port, path) for path in ("/livez", "/readyz", "/healthz")]
    assert [status for status, _, _ in answers] == [200, 503, 503]
    assert json.loads(answers[0][2]) == {"status": "ok"}
    assert json.loads(answers[1][2])["relays"][0]["problem"] == "the store has gone"


@pytest.mark.req("RF-4")
async def test_an_open_breaker_is_reported_but_counts_as_healthy(redbox_box: Box):
    async def down(event: Event) -> None:
        raise Unavailable("connection refused")

    await redbox_box.put_many([Event("a") for _ in range(5)])
    relay = Relay(redbox_box, down, name="r1", breaker=Breaker(unavailable=2, pause=60, longest=60))
    async with relay, Monitor([relay], 0) as served:
        await until(lambda: relay.circuit is Circuit.OPEN)
        status, _, body = await get(served.port, "/healthz")
        report = json.loads(body)["relays"][0]
        assert (status, report["breaker"]) == (200, "open")
        assert "connection refused" in report["breaker_reason"]
        samples = parse((await get(served.port, "/metrics"))[2].decode())
        assert samples["redbox_breaker_open", 'box="test",relay="r1"'] == 1
        assert samples["redbox_breaker_opened_total", 'box="test",relay="r1"'] == 1


@pytest.mark.usefixtures("redbox_runner")
@pytest.mark.parametrize("host", ["nohost.invalid", "192.0.2.1"])
async def test_an_address_that_is_not_ours_is_blamed_on_the_host(host: str, monkeypatch: pytest.MonkeyPatch):
    def unknown(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if host == "nohost.invalid":
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(
        RedboxError, match=f"metrics cannot be served on {host} .*; choose another --metrics-host$"
    ) as e:
        async with Monitor([], 0, host):
            pass
    assert "Errno" not in str(e.value)
    assert "--metrics-port" not in str(e.value)
