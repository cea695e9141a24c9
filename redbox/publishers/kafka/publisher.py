"""`kafka://host:port/topic`: one record per event, acknowledged by all in-sync replicas of its partition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final
from urllib.parse import quote, unquote

from confluent_kafka import KafkaException
from confluent_kafka import Producer as KafkaProducer

from redbox.arguments import invalid, shown
from redbox.durations import positive_duration
from redbox.errors import InvalidURL, Reject, UsageError
from redbox.events import Claim
from redbox.publishers.base import Publisher, closed, not_open, passed_on
from redbox.publishers.http.cloudevents import attributes
from redbox.publishers.kafka.failures import BatchRefused
from redbox.publishers.kafka.producer import Producer, Record
from redbox.publishers.options import header_text, parse_number
from redbox.publishers.redaction import redactor
from redbox.publishers.templates import Template
from redbox.urls import problem, read_host, read_url

URL_KIND: Final = "a valid kafka:// URL"
FORM: Final = "the URL of a topic is kafka://host:port/topic, with several hosts as kafka://host1:9092,host2:9092/topic"
TOPIC_KIND: Final = "the name of a topic: at most 249 letters, digits and . _ -"
PORT: Final = 9092
TIMEOUT: Final = 20.0

#: Unless options say otherwise.
DEFAULTS: Final[dict[str, Any]] = {
    "client.id": "redbox",
    "enable.idempotence": True,
    "linger.ms": 0,
    "reconnect.backoff.max.ms": 1000,  # so that an outage is noticed, and its end too
    "topic.metadata.refresh.interval.ms": 30_000,  # until then, a topic stays refused after it was allowed
    "topic.metadata.propagation.max.ms": 5000,  # how long a topic may be unknown
}
#: Properties that would break what the publisher promises, and why.
REFUSED: Final = {
    "bootstrap.servers": "the URL names the brokers",
    "metadata.broker.list": "the URL names the brokers",
    "acks": "it is always all",
    "request.required.acks": "it is always all",
    "message.timeout.ms": "use the option timeout, in seconds",
    "delivery.timeout.ms": "use the option timeout, in seconds",
    "transactional.id": "the publisher does not use transactions",
    "delivery.report.only.error": "every record needs its report",
    "test.mock.num.brokers": "a mock cluster loses its records with the process",
}

_is_topic = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}").fullmatch
_unknown = re.compile(r'No such configuration property: "(.*)"').search


class KafkaPublisher(Publisher):
    """Produces records with the idempotent producer of librdkafka, many in one call."""

    many: ClassVar[int] = 500
    secrets: ClassVar[frozenset[str]] = frozenset(
        {
            "sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password", "sasl.oauthbearer.config",
            "sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.private.key.pem",
        }
    )  # fmt: skip

    def __init__(
        self, url: str, *, source: str | None = None, timeout: float | str = TIMEOUT, **properties: Any
    ) -> None:
        parts = read_url(url, URL_KIND)
        login, _, where = parts.netloc.rpartition("@")
        hosts = [read_host(each, PORT, URL_KIND) for each in where.split(",")]
        topic = unquote(parts.path.removeprefix("/"))
        if not all(host for host, _ in hosts) or not topic:
            raise InvalidURL(FORM)
        if parts.query:
            raise problem(URL_KIND, "it takes no options after a ?; give them as options of the target")
        self._topic = Template("the topic", topic)
        if self._topic.constant is not None and not _is_topic(topic):
            raise problem(URL_KIND, f"its path is not {TOPIC_KIND}")
        self._target = f"{parts.scheme}://{where}/{topic}"
        self._source = None if source is None else header_text("source", source)
        seconds = positive_duration("timeout", parse_number(timeout))
        self._config = DEFAULTS | _login(login, properties) | _checked(properties)
        self._config |= {"acks": "all", "message.timeout.ms": max(1, round(seconds * 1000))}
        self._redact = redactor([str(self._config[name]) for name in self.secrets if name in self._config])
        _try_out(self._config, self._redact)
        self._config["bootstrap.servers"] = ",".join(
            f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in hosts
        )
        self._box: str | None = None
        self._producer: Producer | None = None
        self._single: Producer | None = None  # for records that a broker refused as part of a batch

    @property
    def target(self) -> str:
        return self._target

    async def open(self, box: str) -> None:
        self._box = box
        for producer in (self._producer, self._single):
            if producer is not None:
                producer.stop()  # it reports to another event loop
        self._producer = self._single = None
        self._event_source = self._source or f"/redbox/{quote(box, safe='')}"

    async def aclose(self) -> None:
        self._box = None
        producers = [each for each in (self._producer, self._single) if each is not None]
        self._producer = self._single = None
        for producer in producers:
            producer.stop()
        for producer in producers:
            await producer.close()

    async def publish(self, claim: Claim) -> None:
        (problem,) = await self.publish_many((claim,))
        if problem is not None:
            raise problem

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        if self._box is None:
            raise not_open()
        outcomes: list[BaseException | None] = [None] * len(claims)
        records: list[Record] = []
        for place, claim in enumerate(claims):
            try:
                records.append(self._record(place, claim, self._box))
            except Reject as error:
                outcomes[place] = error
        self._producer = self._usable(self._producer, {})
        await self._producer.send(records, outcomes)
        if again := [record for record in records if isinstance(outcomes[record.place], BatchRefused)]:
            if self._box is None:
                for record in again:
                    outcomes[record.place] = closed()
                return outcomes
            # Not stored, so sending them again makes no duplicates. Good events must not die with a bad one.
            self._single = self._usable(self._single, {"batch.num.messages": 1})
            await self._single.send(again, outcomes)
        return outcomes

    def _usable(self, producer: Producer | None, properties: dict[str, Any]) -> Producer:
        """Returns the producer, or a new one if there is none, or after a fatal error."""
        if producer is not None and producer.is_usable:
            return producer
        if producer is not None:
            producer.stop()
        return Producer(self._config | properties, self._redact)

    def _record(self, place: int, claim: Claim, box: str) -> Record:
        """Returns the record of one event; raises Reject for an event that Kafka cannot carry."""
        topic = self._topic.fill(claim, box)
        if self._topic.constant is None and not _is_topic(topic):
            raise Reject(
                f"this event cannot be sent to Kafka: {shown(topic)} is not {TOPIC_KIND}", kind="not for Kafka"
            )
        event = claim.event
        payload, content_type = event.encode()
        headers: list[tuple[str, str | bytes | None]]
        headers = [(f"ce_{name}", value.encode()) for name, value in attributes(claim, self._event_source).items()]
        headers.append(("content-type", content_type.encode()))
        headers += [(name, value.encode()) for name, value in passed_on(claim).items()]
        key = event.ordering_key if event.partition_key is None else event.partition_key
        return Record(place, topic, None if key is None else key.encode(), payload, headers, claim.attempts)


def _login(login: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Returns the properties for a login in the URL: encrypted, unless options say otherwise."""
    if not login:
        return {}
    if "sasl.username" in properties or "sasl.password" in properties:
        raise UsageError("give the login either in the URL or as options, not both")
    user, _, password = login.partition(":")
    found = {"sasl.username": unquote(user), "sasl.password": unquote(password)}
    return found | {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


def _checked(properties: dict[str, Any]) -> dict[str, Any]:
    """Checks the properties that librdkafka itself would accept."""
    for name, value in properties.items():
        if name in REFUSED:
            raise invalid(name, f"cannot be set: {REFUSED[name]}")
        if not isinstance(value, str | int | float):
            raise invalid(name, f"must be text, a number or True or False, not {type(value).__name__}")
        try:
            unusable = b"\0" in str(value).encode()
        except ValueError:  # text that is not UTF-8, or a number with too many digits
            unusable = True
        if unusable:  # not repeated, since it may be a secret
            raise invalid(name, "cannot be passed to librdkafka: it is not UTF-8, or contains a zero byte")
    return properties


def _try_out(config: dict[str, Any], redact: Any) -> None:
    """Raises UsageError for properties that librdkafka refuses. Connects to nothing."""
    try:
        KafkaProducer({**config, "log_level": 0}).close()
    except KafkaException as error:
        found = error.args[0].str()
        problem = UsageError(redact(f"kafka: {found}"))
        if unknown := _unknown(found):
            problem = UsageError(
                f"kafka: has no option {unknown[1]!r}; it has source, timeout and the properties of librdkafka, "
                "such as security.protocol"
            )
            problem.argument = unknown[1]
        raise problem from None
