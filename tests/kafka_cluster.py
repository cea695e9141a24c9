"""The mock cluster of librdkafka, which speaks the real protocol on loopback ports and keeps its records in memory.

confluent-kafka only starts it; its controls, such as injected errors, are called in the library itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition

PRODUCE, INIT_PRODUCER_ID = 0, 22  # numbers of requests


def _library() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    (path,) = folder.glob("librdkafka-*.so*")
    found = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(found, name).restype = ctypes.c_void_p
    found.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return found


class KafkaCluster:
    """A mock cluster of one broker."""

    def __init__(self) -> None:
        self._library = _library()
        problem = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        self._library.rd_kafka_conf_set(conf, b"log_level", b"0", problem, len(problem))
        self._handle = ctypes.c_void_p(self._library.rd_kafka_new(0, conf, problem, len(problem)))
        assert self._handle, problem.value
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._handle, 1))
        self.servers: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    @property
    def url(self) -> str:
        return f"kafka://{self.servers}"

    @property
    def port(self) -> int:
        return int(self.servers.rpartition(":")[2])

    def create(self, topic: str, partitions: int = 1) -> None:
        assert not self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1)

    def fail_topic(self, topic: str, code: int) -> None:
        """Every metadata response has this error for the topic."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), code)

    def fail(self, *codes: int, request: int = PRODUCE) -> None:
        """The next requests of this kind fail with these errors."""
        found = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(codes)), found
        )

    def slow(self, milliseconds: int) -> None:
        """Every answer takes this long."""
        self._library.rd_kafka_mock_broker_set_rtt(self._cluster, 1, milliseconds)

    def down(self) -> None:
        self._library.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def up(self) -> None:
        self._library.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)

    def read(self, topic: str, partitions: int = 1) -> list[Any]:
        """All records of a topic, oldest first."""
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "test", "enable.auto.commit": False, "log_level": 0}
        )
        try:
            found: list[Any] = []
            for partition in range(partitions):
                _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
                consumer.assign([TopicPartition(topic, partition, 0)])
                records = []
                while len(records) < high:
                    records += consumer.consume(high - len(records), timeout=10)
                found += records
        finally:
            consumer.close()
        for record in found:
            assert record.error() is None, record.error()
        return sorted(found, key=lambda record: record.timestamp()[1])


@contextmanager
def kafka_cluster() -> Iterator[KafkaCluster]:
    cluster = KafkaCluster()
    try:
        yield cluster
    finally:
        cluster.close()
