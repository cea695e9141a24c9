"""kafka:// against the mock cluster of librdkafka: the real protocol, with errors on demand.

It has no log on disk, no replicas, no limits of size, no ACLs, no logins and no TLS.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time

import pytest
from confluent_kafka import KafkaError

from redbox.errors import NotPublished, Reject, RetryLater, Unavailable, UsageError
from redbox.publishers.kafka import failures
from redbox.publishers.kafka.producer import Producer
from redbox.publishers.registry import open_publisher, secret_options
from redbox.testing.claims import new_claim
from tests.kafka_cluster import INIT_PRODUCER_ID, KafkaCluster, kafka_cluster
from tests.publishers.conftest import opened

pytestmark = pytest.mark.timeout(60)


async def failure(publisher, **fields) -> NotPublished:
    with pytest.raises(NotPublished) as caught:
        await publisher.publish(new_claim(**fields))
    return caught.value


async def until(condition, complaint: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, complaint
        await asyncio.sleep(0.01)


# --- records ---------------------------------------------------------------------------------------------------


@pytest.mark.req("PC-1", "PC-2")
async def test_a_record(redbox_runner, kafka: KafkaCluster):
    claim = new_claim(b"\x00\xff", content_type="image/png", partition_key="p", ordering_key="o", headers={"X-A": "é"})
    kafka.create("record.user.created")
    async with opened(f"{kafka.url}/record.{{event_type}}") as publisher:
        await publisher.publish(claim)
        assert publisher.target == f"{kafka.url}/record.{{event_type}}"
    (record,) = kafka.read("record.user.created")
    assert (record.key(), record.value()) == (b"p", b"\x00\xff")
    assert dict(record.headers()) == {
        "ce_specversion": b"1.0",
        "ce_id": claim.event_id.encode(),
        "ce_type": b"user.created",
        "ce_source": b"/redbox/orders",
        "ce_time": b"2023-11-14T22:13:20.123Z",
        "ce_partitionkey": b"p",
        "content-type": b"image/png",
        "X-A": "é".encode(),
        "redbox-claim": b"7",
        "redbox-attempt": b"2",
        "redbox-ordering-key": b"o",
    }


async def test_the_key_of_a_record(redbox_runner, kafka: KafkaCluster):
    keys = [{"partition_key": "p", "ordering_key": "o"}, {"ordering_key": "o"}, {"partition_key": ""}, {}]
    kafka.create("keys")
    async with opened(f"{kafka.url}/keys", source="/shop") as publisher:
        for fields in keys:
            await publisher.publish(new_claim(**fields))
    records = kafka.read("keys")
    assert [record.key() for record in records] == [b"p", b"o", b"", None]
    assert {dict(record.headers())["ce_source"] for record in records} == {b"/shop"}


async def test_events_of_a_key_share_a_partition(redbox_runner, kafka: KafkaCluster):
    kafka.create("partitions", 4)
    claims = [new_claim(partition_key=f"k{number % 10}", number=number) for number in range(1, 101)]
    async with opened(f"{kafka.url}/partitions") as publisher:
        assert await publisher.publish_many(claims) == [None] * 100
    records = kafka.read("partitions", 4)
    assert len({record.partition() for record in records}) > 1
    for key in {record.key() for record in records}:
        of_key = sorted((each for each in records if each.key() == key), key=lambda each: each.offset())
        assert len({each.partition() for each in of_key}) == 1
        numbers = [int(dict(each.headers())["redbox-claim"]) for each in of_key]
        assert numbers == sorted(numbers)


@pytest.mark.req("PC-4")
@pytest.mark.parametrize("event_type", ["größe", "a/b", "a b", ".", "..", "x" * 250])
async def test_an_event_type_that_is_no_topic(redbox_runner, kafka: KafkaCluster, event_type: str):
    async with opened(f"{kafka.url}/{{event_type}}") as publisher:
        problem = await failure(publisher, event_type=event_type)
    assert isinstance(problem, Reject)
    assert (problem.kind, problem.blames_target) == ("not for Kafka", False)
    assert "is not the name of a topic" in str(problem)


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.req("PC-4")
async def test_a_topic_that_does_not_exist(redbox_runner, kafka: KafkaCluster):
    kafka.fail_topic("missing", KafkaError.UNKNOWN_TOPIC_OR_PART)
    properties = {"topic.metadata.propagation.max.ms": 100, "topic.metadata.refresh.fast.interval.ms": 100}
    async with opened(f"{kafka.url}/missing", **properties) as publisher:
        problem = await failure(publisher)
    assert isinstance(problem, Reject)
    assert (problem.kind, problem.blames_target) == ("no topic", True)
    assert str(problem) == "Kafka has no topic 'missing'; create it"


@pytest.mark.req("PC-4")
async def test_a_topic_that_is_not_allowed(redbox_runner, kafka: KafkaCluster):
    kafka.fail_topic("secret", KafkaError.TOPIC_AUTHORIZATION_FAILED)
    async with opened(f"{kafka.url}/secret") as publisher:
        problem = await failure(publisher)
    assert isinstance(problem, Reject)
    assert (problem.kind, problem.blames_target) == ("not allowed", True)


@pytest.mark.req("PC-4")
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Reject),
        (KafkaError.TOPIC_EXCEPTION, Reject),
        (KafkaError.POLICY_VIOLATION, NotPublished),
        (KafkaError.UNKNOWN, NotPublished),
    ],
)
async def test_each_permanent_error_of_a_broker(redbox_runner, kafka: KafkaCluster, code: int, kind: type):
    topic = f"error{abs(code)}"
    kafka.create(topic)
    async with opened(f"{kafka.url}/{topic}", **{"topic.metadata.refresh.interval.ms": 100}) as publisher:
        await publisher.publish(new_claim())
        kafka.fail(code)
        assert type(await failure(publisher)) is kind
        deadline = time.monotonic() + 20
        while (await publisher.publish_many([new_claim()]))[0] is not None:  # until librdkafka asks for the topic again
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
    assert len(kafka.read(topic)) == 2


@pytest.mark.req("PC-1")
@pytest.mark.parametrize("code", [KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_LEADER_FOR_PARTITION])
async def test_librdkafka_retries_within_the_attempt(redbox_runner, kafka: KafkaCluster, code: int):
    """With the idempotent producer a retry is no duplicate."""
    topic = f"retries{code}"
    kafka.create(topic)
    async with opened(f"{kafka.url}/{topic}") as publisher:
        await publisher.publish(new_claim())
        kafka.fail(code, code)
        await publisher.publish(new_claim())
    assert len(kafka.read(topic)) == 2


@pytest.mark.req("PC-4")
async def test_a_record_that_is_too_large_for_the_producer(redbox_runner, kafka: KafkaCluster):
    kafka.create("large")
    async with opened(f"{kafka.url}/large", **{"message.max.bytes": "2000"}) as publisher:
        outcomes = await publisher.publish_many([new_claim(), new_claim(bytes(2000)), new_claim()])
    assert [type(each) for each in outcomes] == [type(None), Reject, type(None)]
    assert outcomes[1].kind == "too large"
    assert "message.max.bytes" in str(outcomes[1])


@pytest.mark.req("PC-4")
@pytest.mark.parametrize(
    ("code", "kind"), [(KafkaError.MSG_SIZE_TOO_LARGE, "too large"), (KafkaError.INVALID_RECORD, "invalid record")]
)
async def test_a_batch_that_is_refused(redbox_runner, kafka: KafkaCluster, code: int, kind: str):
    """The broker refuses the batch for one record; only a record that it refuses by itself is rejected."""
    topic = f"batch{code}"
    kafka.create(topic)
    async with opened(f"{kafka.url}/{topic}", **{"linger.ms": 50}) as publisher:
        await publisher.publish(new_claim())
        kafka.fail(code, code)
        outcomes = await publisher.publish_many([new_claim() for _ in range(5)])
        assert sorted(type(each).__name__ for each in outcomes) == ["BatchRefused", *["NoneType"] * 4]
        (problem,) = filter(None, outcomes)
        assert isinstance(problem, Reject)
        assert problem.kind == kind
        assert await publisher.publish_many([new_claim() for _ in range(5)]) == [None] * 5
    assert len(kafka.read(topic)) == 1 + 4 + 5


@pytest.mark.req("PC-4")
async def test_a_full_queue(redbox_runner, kafka: KafkaCluster):
    kafka.create("queue")
    async with opened(f"{kafka.url}/queue", **{"queue.buffering.max.messages": 3, "linger.ms": 300}) as publisher:
        outcomes = await publisher.publish_many([new_claim() for _ in range(5)])
        assert [type(each) for each in outcomes] == [type(None)] * 3 + [Unavailable] * 2
        assert "queue.buffering.max.messages" in str(outcomes[4])
        assert outcomes[4].excuse


# --- outages ---------------------------------------------------------------------------------------------------


@pytest.mark.req("PC-4", "RF-4")
async def test_a_cluster_that_is_down_and_comes_back(redbox_runner, kafka: KafkaCluster):
    kafka.create("down")
    async with opened(f"{kafka.url}/down") as publisher:
        await publisher.publish(new_claim())
        kafka.down()
        began = time.monotonic()
        try:
            for _ in range(3):
                problem = await failure(publisher)
                assert isinstance(problem, Unavailable)
                assert "Kafka: " in str(problem)
            assert time.monotonic() - began < 25, "an outage is noticed before the time limit of a record"
        finally:
            kafka.up()
        await publisher.publish(new_claim())
    assert len(kafka.read("down")) == 2


@pytest.mark.req("PC-4", "RF-4")
async def test_an_outage_that_is_reported_once(redbox_runner, kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch):
    """librdkafka does not always repeat that all brokers are down: when it begins with its first addresses again."""
    report, reported = Producer._on_error, []

    def once(producer: Producer, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not reported:
            report(producer, error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            reported.append(error)

    monkeypatch.setattr(Producer, "_on_error", once)
    kafka.create("once")
    async with opened(f"{kafka.url}/once", timeout="20") as publisher:
        await publisher.publish(new_claim())
        kafka.down()
        try:
            for _ in range(3):
                began = time.monotonic()
                assert isinstance(await failure(publisher), Unavailable)
            assert time.monotonic() - began < 15, "the outage is noticed at the time limit of the record"
        finally:
            kafka.up()
        await publisher.publish(new_claim())
    assert reported
    assert len(kafka.read("once")) == 2


@pytest.mark.req("PC-4")
@pytest.mark.parametrize(
    ("where", "properties"),
    [
        ("127.0.0.1:1", {}),
        ("nobody.invalid", {}),
        ("{cluster}", {"security.protocol": "SSL"}),
        ("me:hush-hush@{cluster}", {"security.protocol": "SASL_PLAINTEXT"}),
        ("me:hush-hush@{cluster}", {}),
    ],
)
async def test_no_connection(redbox_runner, kafka: KafkaCluster, where: str, properties: dict[str, str]):
    async with opened(f"kafka://{where.format(cluster=kafka.servers)}/x", **properties) as publisher:
        problem = await failure(publisher)
        assert isinstance(problem, Unavailable)
        assert "hush" not in str(problem) + publisher.target
        assert len(str(problem)) > len("Kafka: ")


@pytest.mark.req("PC-4")
async def test_no_acknowledgement_in_time(redbox_runner):
    with kafka_cluster() as cluster:
        cluster.create("slow")
        async with opened(f"{cluster.url}/slow", timeout="3") as publisher:
            await publisher.publish(new_claim())
            cluster.slow(15000)
            problem = await failure(publisher, attempts=3)
            assert "_MSG_TIMED_OUT" in str(problem)
            assert type(problem) is RetryLater  # not Unavailable: the brokers of other partitions may work
            assert (problem.excuse, problem.delay) == (True, 4)


@pytest.mark.req("PC-1")
async def test_a_cancelled_call_may_still_be_delivered_once(redbox_runner):
    with kafka_cluster() as cluster:
        cluster.create("cancelled")
        async with opened(f"{cluster.url}/cancelled") as publisher:
            await publisher.publish(new_claim())
            cluster.slow(500)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await publisher.publish(new_claim(event_id="cancelled"))
            await publisher.publish(new_claim(event_id="later"))
        ids = [dict(each.headers())["ce_id"] for each in cluster.read("cancelled")]
    assert ids[1:] == [b"cancelled", b"later"]


@pytest.mark.req("PC-4")
async def test_a_fatal_error_costs_the_producer_and_not_the_publisher(redbox_runner):
    with kafka_cluster() as cluster:
        cluster.create("fatal")
        cluster.fail(KafkaError.CLUSTER_AUTHORIZATION_FAILED, request=INIT_PRODUCER_ID)
        async with opened(f"{cluster.url}/fatal") as publisher:
            problem = await failure(publisher)
            assert isinstance(problem, Unavailable)
            assert "Cluster authorization failed" in str(problem)
            await publisher.publish(new_claim())


# --- threads, loops and closing --------------------------------------------------------------------------------


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


async def test_closing_ends_all_threads(redbox_runner, kafka: KafkaCluster):
    kafka.create("threads")
    before, names = threads(), {each.name for each in threading.enumerate()}
    for _ in range(3):
        async with opened(f"{kafka.url}/threads") as publisher:
            await publisher.publish(new_claim())
            assert threads() > before
        await until(lambda: {each.name for each in threading.enumerate()} - names <= {"asyncio_0"}, "a thread is left")
    await until(lambda: threads() <= before + 1, "threads are left")


async def test_closing_does_not_wait_for_a_cluster_that_is_down(redbox_runner):
    async with opened("kafka://127.0.0.1:1/x") as publisher:
        task = asyncio.ensure_future(failure(publisher))
        await asyncio.sleep(0)
        began = time.monotonic()
        await publisher.aclose()
        assert time.monotonic() - began < 5
        assert isinstance(await task, Unavailable)
        with pytest.raises(UsageError, match="not open"):
            await publisher.publish(new_claim())


def test_another_event_loop(kafka: KafkaCluster):
    kafka.create("loops")
    publisher = open_publisher(f"{kafka.url}/loops")

    async def once(close: bool) -> None:
        await publisher.open("orders")
        await publisher.publish(new_claim())
        if close:
            await publisher.aclose()

    for close in (False, True):
        asyncio.run(once(close))
    assert len(kafka.read("loops")) == 2


def test_a_fork(kafka: KafkaCluster):
    """A publisher that was created before a fork, and opened after it."""
    kafka.create("fork")
    publisher = open_publisher(f"{kafka.url}/fork")

    async def once() -> None:
        await publisher.open("orders")
        await publisher.publish(new_claim())
        await publisher.aclose()

    child = os.fork()
    if child == 0:
        try:
            asyncio.run(once())
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    asyncio.run(once())
    assert len(kafka.read("fork")) == 2


async def test_the_log_of_librdkafka_is_for_debugging(redbox_runner, caplog: pytest.LogCaptureFixture, capfd):
    caplog.set_level(logging.DEBUG, "redbox.kafka")
    async with opened("kafka://127.0.0.1:1/x") as publisher:
        await failure(publisher)
    assert {record.levelno for record in caplog.records if record.name == "redbox.kafka"} == {logging.DEBUG}
    assert capfd.readouterr().err == ""


# --- arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "kafka://",
        "kafka://host",
        "kafka://host/",
        "kafka:///topic",
        "kafka://me:hush@host:port/x",
        "kafka://me:hush@host,,other/x",
        "kafka://me:hush@host/x?acks=1",
        "kafka://me:hush@host/x y",
        "kafka://me:hush@host/größe",
        "kafka://me:hush@host/{type}",
        "kafka://me:hush@host/{event_type",
    ],
)
def test_invalid_urls(url: str):
    with pytest.raises(UsageError) as caught:
        open_publisher(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("colour", "red", "kafka: has no option 'colour'; it has source, timeout and the properties of librdkafka"),
        ("linger.ms", "soon", 'kafka: Invalid value for configuration property "queue.buffering.max.ms"'),
        ("compression.type", "tar", "kafka: Invalid value"),
        ("max.in.flight", 100, "kafka: .*idempotence"),
        ("ssl.ca.location", "/nowhere.pem", "kafka: .*ssl.ca.location"),
        ("acks", "1", "acks cannot be set: it is always all"),
        ("bootstrap.servers", "x", "bootstrap.servers cannot be set: the URL names the brokers"),
        ("message.timeout.ms", 1, "use the option timeout, in seconds"),
        ("transactional.id", "x", "does not use transactions"),
        ("test.mock.num.brokers", 1, "loses its records"),
        ("error_cb", print, "error_cb must be text, a number or True or False"),
        ("timeout", "0", "timeout must be"),
        ("source", "a\nb", "source must be printable"),
    ],
)
def test_invalid_options(name: str, value: object, complaint: str):
    properties = {"security.protocol": "SSL"} if name.startswith("ssl.") else {}
    with pytest.raises(UsageError, match=complaint) as caught:
        open_publisher("kafka://me:hush-hush@host/x", **{name: value, **properties})
    assert "hush" not in str(caught.value)


def test_a_login_in_the_url_is_encrypted_unless_options_say_otherwise():
    config = open_publisher("kafka://me:p%40ss@host,[::1]:9093/x")._config
    assert (config["sasl.username"], config["sasl.password"]) == ("me", "p@ss")
    assert (config["security.protocol"], config["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert (config["bootstrap.servers"], config["acks"]) == ("host:9092,[::1]:9093", "all")
    config = open_publisher("kafka://me:p@host/x", **{"sasl.mechanism": "SCRAM-SHA-256"})._config
    assert config["sasl.mechanism"] == "SCRAM-SHA-256"
    assert "security.protocol" not in open_publisher("kafka://host/x")._config
    with pytest.raises(UsageError, match="either in the URL or as options"):
        open_publisher("kafka://me:hush@host/x", **{"sasl.password": "x"})


def test_secrets():
    secrets = {"sasl.password", "ssl.key.password", "sasl.oauthbearer.client.credentials.client.secret"}
    assert secrets <= secret_options("kafka://host/x")


@pytest.mark.req("PC-4")
@pytest.mark.parametrize("code", [KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD])
def test_the_records_beside_an_invalid_one_are_sent_again(code: int):
    assert isinstance(failures.failure(KafkaError(code), "orders", None, 1), failures.BatchRefused)
