"""What an error of librdkafka or of a broker means for an event."""

# ruff: noqa: SLF001  # the codes of librdkafka itself begin with an underscore

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from redbox.errors import NotPublished, Reject, RetryLater, Unavailable
from redbox.publishers.base import growing_delay

ALL_DOWN: Final = KafkaError._ALL_BROKERS_DOWN

#: The cluster accepts nothing at the moment, or not from this client.
_UNAVAILABLE: Final = frozenset(
    {
        ALL_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._SSL, KafkaError._AUTHENTICATION,
        KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._QUEUE_FULL, KafkaError._FATAL,
        KafkaError._FENCED, KafkaError._STATE, KafkaError._DESTROY,
        KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.BROKER_NOT_AVAILABLE, KafkaError.NETWORK_EXCEPTION,
        KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.THROTTLING_QUOTA_EXCEEDED, KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    }
)  # fmt: skip
_NO_TOPIC: Final = frozenset(
    {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}
)
_NOT_ALLOWED: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
#: The second is for the other records of the batch.
_INVALID: Final = frozenset({KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD})
_TIMED_OUT: Final = frozenset({KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT})


class BatchRefused(Reject):
    """A broker refused a batch, for its size or for a record in it. Which record it was is not known."""


def failure(error: KafkaError, topic: str, down: str | None, attempts: int) -> NotPublished:
    """Returns the error to raise. `down` says why no broker is reachable, if that is known."""
    code, reason = error.code(), f"Kafka: {error.str()} ({error.name()})"
    if code in _NO_TOPIC:
        return Reject(f"Kafka has no topic {topic!r}; create it", kind="no topic", blames_target=True)
    if code in _NOT_ALLOWED:
        return Reject(f"{reason}: topic {topic!r}", kind="not allowed", blames_target=True)
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return BatchRefused(f"{reason}; see max.message.bytes of the topic {topic!r}", kind="too large")
    if code in _INVALID:
        return BatchRefused(f"{reason}: topic {topic!r}", kind="invalid record")
    if code == KafkaError.TOPIC_EXCEPTION:
        return Reject(f"{reason}: topic {topic!r}", kind="not for Kafka")
    if error.fatal() or code in _UNAVAILABLE or (down and code in _TIMED_OUT):
        return Unavailable(f"Kafka: {down}" if down else reason)
    if code in _TIMED_OUT:
        # The partition has no leader or too few replicas, or its broker is slow. That says nothing about the event; nor
        # is the cluster down, which other partitions show.
        return RetryLater(growing_delay(attempts), reason, excuse=True)
    return NotPublished(reason)
