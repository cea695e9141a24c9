"""Fixtures for publishers. Tests do not use the proxy of the machine they run on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from redbox.publishers import Publisher
from redbox.publishers.registry import open_publisher
from tests.kafka_cluster import KafkaCluster, kafka_cluster
from tests.nats_server import nats_server
from tests.rabbitmq import Broker, broker


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[Broker]:
    """A broker that no test stops; it accepts events of at most 2 MiB."""
    with broker("max_message_size = 2097152") as server:
        yield server


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """Debian's nats-server, with JetStream."""
    with nats_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """The mock cluster of librdkafka."""
    with kafka_cluster() as cluster:
        yield cluster


@asynccontextmanager
async def opened(target: Any, **options: Any) -> AsyncIterator[Publisher]:
    """An open publisher."""
    publisher = open_publisher(target, **options)
    await publisher.open("orders")
    try:
        yield publisher
    finally:
        await publisher.aclose()
