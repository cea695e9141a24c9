"""The contract of publishers, on every target of redbox itself.

A new kind: its case in kinds.py and in `open_case`, its name in the class whose contract fits its target.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from redbox.testing.publisher_contract import MinimalContract, Opener, PayloadContract, PublisherContract
from tests.publishers.kinds import (
    amqp_case,
    box_case,
    function_case,
    http_case,
    kafka_case,
    nats_case,
    null_case,
    redis_case,
    stdout_case,
)


@pytest.fixture
def open_case(request: pytest.FixtureRequest, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opener:
    if kind.startswith("http"):
        return lambda: http_case(kind)
    if kind == "redis-stream":
        url = request.getfixturevalue("redis_url")
        return lambda: redis_case(url)
    if kind == "amqp":
        port = request.getfixturevalue("rabbitmq").port
        return lambda: amqp_case(port)
    if kind == "nats":
        url = request.getfixturevalue("nats_url")
        return lambda: nats_case(url)
    if kind == "kafka":
        cluster = request.getfixturevalue("kafka")
        return lambda: kafka_case(cluster)
    if kind.startswith("box"):
        url = request.getfixturevalue("redis_url")
        return lambda: box_case(kind, url)
    if kind == "stdout":
        return lambda: stdout_case(tmp_path / "lines", monkeypatch)
    if kind == "null":
        return null_case
    return lambda: function_case(kind, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "kind", ["http", "http-structured", "http-batch", "redis-stream", "amqp", "nats", "kafka", "stdout"]
)
class TestTargets(PublisherContract):
    pass


@pytest.mark.parametrize("kind", ["python", "plain", "box", "box-elsewhere"])
class TestFunctions(PayloadContract):
    """A function gets the event itself, and so does a box."""


@pytest.mark.parametrize("kind", ["null"])
class TestNull(MinimalContract):
    """`null:` keeps nothing."""
