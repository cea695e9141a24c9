"""amqp:// against a real RabbitMQ, and against brokers that refuse, hang, or are not there."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest
from aiormq.exceptions import ChannelAccessRefused
from pamqp.commands import Basic

from redbox.errors import InvalidURL, NotPublished, Reject, Unavailable, UsageError
from redbox.ids import new_id
from redbox.publishers import Publisher
from redbox.publishers.amqp import answers
from redbox.publishers.amqp import publisher as amqp
from redbox.publishers.amqp.answers import problem_of
from redbox.publishers.amqp.messages import Message, message_of
from redbox.publishers.registry import open_publisher
from redbox.testing.claims import CREATED_MS, new_claim
from redbox.testing.publisher_contract import cancelled_after
from tests.proxy import Proxy, proxy
from tests.publishers.conftest import opened
from tests.publishers.queues import Queue, shop_queue
from tests.publishers.target import http_target
from tests.rabbitmq import Broker
from tests.relay.steps import until

REFUSED = "ACCESS_REFUSED - write access to topic '{}' in vhost '/' refused for user 'shop'"
BASIC_ACK = bytes([0, 60, 0, 80])  # class and method


def amqp_url(port: int, exchange: str = "", login: str = "") -> str:
    return f"amqp://{login}127.0.0.1:{port}/%2F/{quote(exchange, safe='')}"


async def failure(url: str, **options: object) -> NotPublished:
    """The error of one attempt."""
    async with opened(url, **options) as publisher:
        with pytest.raises(NotPublished) as caught:
            await publisher.publish(new_claim())
        return caught.value


# --- what arrives ----------------------------------------------------------------------------------------------


@pytest.mark.req("PC-2")
async def test_the_properties_of_a_message(redbox_runner, rabbitmq: Broker):
    claim = new_claim(b"\x00\xff", content_type="image/png", partition_key="p", ordering_key="o", headers={"X-A": "é"})
    async with shop_queue(rabbitmq.port) as queue, opened(amqp_url(rabbitmq.port, queue.exchange)) as publisher:
        await publisher.publish(claim)
        await queue.read()
        (message,) = queue.messages
    properties = message.header.properties
    assert message.body == b"\x00\xff"
    assert message.delivery.routing_key == "user.created"
    assert properties.content_type == "image/png"
    assert (properties.message_id, properties.message_type) == (claim.event_id, "user.created")
    assert (properties.delivery_mode, properties.app_id) == (2, "redbox")
    assert properties.timestamp == datetime.fromtimestamp(CREATED_MS // 1000, tz=UTC)
    assert properties.headers == {
        "X-A": "é",
        "redbox-claim": "7",
        "redbox-attempt": "2",
        "redbox-ordering-key": "o",
        "redbox-partition-key": "p",
    }


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("fixed", "fixed"),
        ("shop.{event_type}", "shop.user.created"),
        ("{partition_key}", "p"),
        ("{event_type}/{partition_key}", "user.created/p"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("in_url", [False, True])
async def test_the_routing_key(redbox_runner, rabbitmq: Broker, template: str, key: str, in_url: bool):
    async with shop_queue(rabbitmq.port) as queue:
        url = amqp_url(rabbitmq.port, queue.exchange)
        options = {} if in_url else {"routing_key": template}
        async with opened(f"{url}?routing_key={quote(template)}" if in_url else url, **options) as publisher:
            await publisher.publish(new_claim(partition_key="p"))
        await queue.read()
        assert [message.delivery.routing_key for message in queue.messages] == [key]


async def test_the_default_exchange_reaches_a_queue_by_its_name(redbox_runner, rabbitmq: Broker):
    async with shop_queue(rabbitmq.port) as queue:
        for url in (f"amqp://127.0.0.1:{rabbitmq.port}", f"amqp://127.0.0.1:{rabbitmq.port}/"):
            async with opened(url, routing_key=queue.name) as publisher:
                await publisher.publish(new_claim())
        assert len(await queue.arrived()) == 2


async def test_transient_events(redbox_runner, rabbitmq: Broker):
    async with shop_queue(rabbitmq.port) as queue:
        async with opened(amqp_url(rabbitmq.port, queue.exchange), persistent="false") as publisher:
            await publisher.publish(new_claim())
        await queue.read()
        assert queue.messages[0].header.properties.delivery_mode == 1


# --- what the broker answers -----------------------------------------------------------------------------------


@pytest.mark.req("PC-1", "PC-3", "PC-4")
async def test_an_event_that_no_queue_gets_is_not_published(redbox_runner, rabbitmq: Broker):
    async with (
        shop_queue(rabbitmq.port) as queue,
        opened(amqp_url(rabbitmq.port), routing_key="{event_type}") as publisher,
    ):
        found = await publisher.publish_many(
            [new_claim(event_type=name) for name in (queue.name, "nobody", queue.name, "nobody")]
        )
        assert [type(each) for each in found] == [type(None), Reject, type(None), Reject]
        problem = found[1]
        assert isinstance(problem, Reject)
        assert (problem.kind, problem.blames_target) == ("NO_ROUTE", True)  # retried: a queue may be declared later
        assert "NO_ROUTE" in str(problem)
        assert "'nobody'" in str(problem)
        assert len(await queue.arrived()) == 2


@pytest.mark.req("PC-4")
async def test_an_unknown_exchange_and_then_its_declaration(redbox_runner, rabbitmq: Broker):
    async with shop_queue(rabbitmq.port) as queue:
        await queue.delete()
        async with opened(amqp_url(rabbitmq.port, queue.exchange)) as publisher:
            found = await publisher.publish_many([new_claim() for _ in range(500)])  # some are not sent at all
            for problem in found:
                assert isinstance(problem, Reject)
                assert (problem.kind, problem.blames_target) == ("NOT_FOUND", True)
                assert "no exchange" in str(problem)
            await queue.declare()
            await publisher.publish(new_claim())
        assert len(await queue.arrived()) == 1


@pytest.mark.req("PC-4")
async def test_a_channel_that_one_event_closed_is_not_used_again(redbox_runner, rabbitmq: Broker):
    async with shop_queue(rabbitmq.port) as queue:
        await queue.delete()
        async with opened(amqp_url(rabbitmq.port, queue.exchange)) as publisher:
            with pytest.raises(Reject, match="NOT_FOUND"):
                await publisher.publish(new_claim())
            await queue.declare()
            await publisher.publish(new_claim())


@pytest.mark.req("PC-4")
async def test_an_exchange_without_permission(redbox_runner, rabbitmq: Broker):
    problem = await failure(amqp_url(rabbitmq.port, "amq.rabbitmq.log"), routing_key="x")
    assert isinstance(problem, Reject)
    assert problem.blames_target
    assert problem.kind in {"ACCESS_REFUSED", "NOT_FOUND"}
    rabbitmq.ctl("add_user", "reader", "reads")
    rabbitmq.ctl("set_permissions", "reader", "", "", ".*")
    problem = await failure(amqp_url(rabbitmq.port, "amq.topic", login="reader:reads@"))
    assert isinstance(problem, Reject)
    assert (problem.kind, problem.blames_target) == ("ACCESS_REFUSED", True)


@pytest.mark.req("PC-4")
async def test_a_payload_that_the_broker_refuses(redbox_runner, rabbitmq: Broker):
    """The broker closes the channel. Other events of the batch are retried, and harmed only once."""
    async with shop_queue(rabbitmq.port) as queue, opened(amqp_url(rabbitmq.port, queue.exchange)) as publisher:
        claims = [new_claim(), new_claim(bytes(2**21 + 1)), new_claim()]
        first, problem, last = await publisher.publish_many(claims)
        assert isinstance(problem, Reject)
        assert (problem.kind, problem.blames_target) == ("too large", False)
        assert "2,097,153 bytes" in str(problem)
        for other in (first, last):  # the broker has not judged it, so its attempt does not count
            assert other is None or (isinstance(other, Unavailable) and other.excuse)
        assert last is not None
        again = await publisher.publish_many(claims)
        assert [type(each) for each in again] == [type(None), Reject, type(None)]
        arrived = [each.event_id for each in await queue.arrived()]
        assert claims[1].event_id not in arrived
        assert {claims[0].event_id, claims[2].event_id} <= set(arrived)


def test_the_publisher_forgets_the_limit_of_the_broker(monkeypatch: pytest.MonkeyPatch):
    """It forgets, because the limit of a restarted broker may be another."""
    now = 1000.0
    monkeypatch.setattr(answers.time, "monotonic", lambda: now)
    limit = answers.Refusals()
    limit.check(11, "a")
    limit.learn(ValueError("PRECONDITION_FAILED - message size 11 is larger than configured max size 10"), "a")
    limit.learn(ChannelAccessRefused(REFUSED.format("a' in exchange 'x")), "a")
    limit.check(10, "b")
    now += 59
    with pytest.raises(Reject, match="11 bytes"):
        limit.check(11, "b")
    with pytest.raises(Reject, match="ACCESS_REFUSED"):
        limit.check(10, "a")
    now += 2
    limit.check(11, "a")


def test_refused_routing_keys_are_remembered_within_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(answers, "REMEMBERED_KEYS", 2)
    refusals = answers.Refusals()
    for key in "abc":
        refusals.learn(ChannelAccessRefused(REFUSED.format(f"{key}' in exchange 'x")), key)
    refusals.check(1, "a")
    for key in "bc":
        with pytest.raises(Reject):
            refusals.check(1, key)


@pytest.mark.req("PC-4")
@pytest.mark.parametrize("key", ["secret.a", "it's 'quoted' in exchange 'x", "x" * 250])
async def test_a_routing_key_without_permission_blames_its_event_alone(redbox_runner, rabbitmq: Broker, key: str):
    """The broker closes the channel. The other events in flight are retried, and no attempt counts against them."""
    rabbitmq.ctl("add_user", user := f"u{new_id()}", "hush")
    rabbitmq.ctl("set_permissions", user, ".*", ".*", ".*")
    async with shop_queue(rabbitmq.port) as queue:
        rabbitmq.ctl("set_topic_permissions", user, queue.exchange, "^user", ".*")
        url = amqp_url(rabbitmq.port, queue.exchange, f"{user}:hush@")
        async with opened(url, routing_key="{partition_key}") as publisher:
            claims = [new_claim(partition_key=f"user.{number}") for number in range(300)]
            claims[150:150] = [refused := new_claim(partition_key=key)]
            for turn in range(2):
                outcomes = await publisher.publish_many(claims)
                problem = outcomes[150]
                assert isinstance(problem, Reject)
                assert (problem.kind, problem.blames_target) == ("ACCESS_REFUSED", True)
                others = [each for each in outcomes if each not in (None, problem)]
                assert {(type(each), each.excuse) for each in others} <= {(Unavailable, True)}
                assert bool(others) == (turn == 0)  # the second time, the refused key is known, and not sent
        arrived = {each.event_id for each in await queue.arrived()}
    assert arrived == {claim.event_id for claim in claims} - {refused.event_id}


@pytest.mark.req("PC-4")
async def test_a_full_queue_is_unavailable(redbox_runner, rabbitmq: Broker):
    async with (
        shop_queue(rabbitmq.port, x_max_length=1, x_overflow="reject-publish") as queue,
        opened(amqp_url(rabbitmq.port, queue.exchange)) as publisher,
    ):
        await publisher.publish(new_claim())
        for attempts, delay in ((1, 1), (4, 8), (500, 60)):
            with pytest.raises(Unavailable, match="nack") as caught:
                await publisher.publish(new_claim(attempts=attempts))
            assert (caught.value.excuse, caught.value.delay) == (True, delay)
        await queue.read()
        await publisher.publish(new_claim())


@pytest.mark.req("PC-4")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"headers": {"x" * 129: "1"}}, "header name"),
        ({"headers": {"CC": "other"}}, "CC"),
        ({"headers": {"BCC": "other"}}, "BCC"),
        ({"event_type": "ü" * 128}, "routing key"),
    ],
)
async def test_what_amqp_cannot_carry_is_rejected_alone(redbox_runner, rabbitmq: Broker, fields: dict, reason: str):
    async with shop_queue(rabbitmq.port) as queue, opened(amqp_url(rabbitmq.port, queue.exchange)) as publisher:
        found = await publisher.publish_many([new_claim(), new_claim(**fields), new_claim()])
        assert [type(each) for each in found] == [type(None), Reject, type(None)]
        assert reason in str(found[1])
        assert len(await queue.arrived()) == 2


@pytest.mark.req("EM-9")
async def test_the_longest_headers_arrive(redbox_runner, rabbitmq: Broker):
    headers = {f"{number:0128}": "é" * 100 for number in range(90)}
    async with shop_queue(rabbitmq.port) as queue, opened(amqp_url(rabbitmq.port, queue.exchange)) as publisher:
        await publisher.publish(new_claim(headers=headers))
        (arrived,) = await queue.arrived()
    assert headers.items() <= arrived.headers.items()


def test_headers_that_do_not_fit_into_a_frame():
    claim = new_claim(headers={f"{number}": "é" * 100 for number in range(20)})
    message_of(claim, "key", delivery_mode=2, frame_max=8192)
    message_of(claim, "key", delivery_mode=2, frame_max=0)
    with pytest.raises(Reject, match=r"frame of 4,096 bytes"):
        message_of(claim, "key", delivery_mode=2, frame_max=4096)


# --- no connection ---------------------------------------------------------------------------------------------


@pytest.mark.req("PC-4", "RF-4")
@pytest.mark.parametrize("login", ["guest:hush-wrong@", "nobody:hush-wrong@"])
async def test_refused_credentials_are_unavailable_and_never_shown(
    redbox_runner, rabbitmq: Broker, login: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    problem = await failure(amqp_url(rabbitmq.port, "shop", login))
    assert type(problem) is Unavailable
    assert "ACCESS_REFUSED" in str(problem)
    assert "hush" not in f"{problem!r} {problem.__cause__!r} {caplog.text}"


@pytest.mark.req("PC-4")
async def test_an_unknown_vhost(redbox_runner, rabbitmq: Broker):
    problem = await failure(f"amqp://127.0.0.1:{rabbitmq.port}/nowhere/shop")
    assert type(problem) is Unavailable
    assert "nowhere" in str(problem)


@pytest.mark.req("PC-4")
async def test_a_vhost_by_its_name(redbox_runner, rabbitmq: Broker):
    name = "a b/ü?%2F"
    rabbitmq.ctl("add_vhost", name)
    rabbitmq.ctl("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
    async with opened(f"amqp://127.0.0.1:{rabbitmq.port}/{quote(name, safe='')}/amq.topic") as publisher:
        with pytest.raises(Reject, match="NO_ROUTE"):
            await publisher.publish(new_claim())


@pytest.mark.req("PC-4")
@pytest.mark.parametrize("url", ["amqp://nowhere.invalid/%2F/shop", "amqp://127.0.0.1:1/%2F/shop"])
async def test_no_broker(redbox_runner, url: str):
    problem = await failure(url)
    assert type(problem) is Unavailable
    assert str(problem).startswith("no connection to the broker: ")


@pytest.mark.req("PC-4")
async def test_a_server_that_does_not_speak_amqp(redbox_runner):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    problem = await failure(amqp_url(server.sockets[0].getsockname()[1]))
    server.close()
    assert type(problem) is Unavailable


@pytest.mark.req("PC-4")
async def test_a_server_that_never_answers(redbox_runner, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(amqp, "CONNECT_SECONDS", 0.2)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read(8) == b"AMQP\x00\x00\x09\x01"
        assert await reader.read() == b""  # the publisher hangs up
        writer.close()
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    problem = await failure(amqp_url(server.sockets[0].getsockname()[1]))
    assert type(problem) is Unavailable
    assert "within 0.2 s" in str(problem)
    async with asyncio.timeout(10):
        await ended.wait()
    server.close()


@pytest.mark.req("PC-4")
async def test_a_connection_lost_while_it_connects(redbox_runner, rabbitmq: Broker):
    """At any of its steps: the outcome is an error, never a cancellation."""
    for replies in range(6):
        async with proxy(rabbitmq.port) as between:
            between.lose_reply_to(b"AMQP", after=replies)
            async with opened(amqp_url(between.port, "nowhere")) as publisher:
                with pytest.raises(NotPublished) as caught:
                    await publisher.publish(new_claim())
                if between.lost:
                    assert type(caught.value) is Unavailable


@pytest.mark.req("PC-4")
async def test_an_untrusted_certificate(redbox_runner):
    trustme = pytest.importorskip("trustme")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    async with http_target(tls) as target:
        problem = await failure(f"amqps://127.0.0.1:{target.port}/%2F/shop")
    assert type(problem) is Unavailable
    assert "certificate verify failed" in str(problem)


# --- broken connections, slow brokers, cancelled calls ---------------------------------------------------------


@asynccontextmanager
async def through_proxy(rabbitmq: Broker) -> AsyncIterator[tuple[Queue, Proxy, Publisher]]:
    """A publisher that has published one event through a proxy."""
    async with (
        shop_queue(rabbitmq.port) as queue,
        proxy(rabbitmq.port) as between,
        opened(amqp_url(between.port, queue.exchange)) as publisher,
    ):
        await publisher.publish(new_claim())
        yield queue, between, publisher


@pytest.mark.req("PC-1")
async def test_a_lost_confirm_is_not_an_acknowledgement_and_nothing_is_repeated(redbox_runner, rabbitmq: Broker):
    async with through_proxy(rabbitmq) as (queue, between, publisher):
        between.lose_reply_to(queue.exchange.encode())
        with pytest.raises(Unavailable):
            await publisher.publish(new_claim())
        assert (between.lost, len(await queue.arrived())) == (1, 2)
        await publisher.publish(new_claim())
        assert len(await queue.arrived()) == 3


@pytest.mark.req("PC-1", "PC-3")
async def test_a_connection_cut_in_the_middle_of_a_batch(redbox_runner, rabbitmq: Broker):
    """The broker has confirmed events of the first quarter, and no others, when the connection breaks."""
    claims = [new_claim(bytes(16 * 1024), number=number) for number in range(1, 401)]
    async with through_proxy(rabbitmq) as (queue, between, publisher):
        between.cut_after(100 * 16 * 1024, BASIC_ACK)
        outcomes = await publisher.publish_many(claims)
        assert {type(each) for each in outcomes} == {type(None), Unavailable}
        assert {type(each) for each in outcomes[100:]} == {Unavailable}
        assert between.lost == 1
        published = {claim.event_id for claim, each in zip(claims, outcomes, strict=True) if each is None}
        rest = [claim for claim in claims if claim.event_id not in published]
        assert await publisher.publish_many(rest) == [None] * len(rest)
        arrived = Counter(each.event_id for each in await queue.arrived())
        assert {claim.event_id for claim in claims} <= arrived.keys()
        assert {arrived[event_id] for event_id in published} == {1}
        assert max(arrived.values()) <= 2


@pytest.mark.req("PC-1")
async def test_a_broker_that_does_not_confirm_in_time(redbox_runner, rabbitmq: Broker):
    async with through_proxy(rabbitmq) as (queue, between, publisher):
        publisher._timeout, before = 0.3, publisher._connection
        async with between.silence():
            with pytest.raises(Unavailable, match=r"not confirmed the event within 0\.3 s") as caught:
                await publisher.publish(new_claim(attempts=3))
            assert (caught.value.excuse, caught.value.delay) == (True, 4)
        publisher._timeout = 60
        await publisher.publish(new_claim())
        assert publisher._connection is not before
        assert len(await queue.arrived()) == 3


@pytest.mark.req("PC-3")
async def test_a_cancelled_publish_ends_at_its_own_time_limit(redbox_runner, rabbitmq: Broker):
    """The caller has left, but a broker that does not confirm is still noticed."""
    async with through_proxy(rabbitmq) as (_, between, publisher):
        publisher._timeout, before = 0.3, publisher._connection
        async with between.silence():
            await cancelled_after(20, publisher.publish(new_claim()))
            await until(lambda: not before.is_ready, "the silent connection is kept")
        await until(lambda: not publisher._calls, "the call goes on")


@pytest.mark.req("PC-3")
async def test_cancelled_calls_leave_no_channel_and_no_connection_behind(redbox_runner, rabbitmq: Broker):
    async with shop_queue(rabbitmq.port) as queue, opened(amqp_url(rabbitmq.port, queue.exchange)) as publisher:
        for turns in range(60):
            call = publisher.publish_many([new_claim() for _ in range(5)])
            await cancelled_after(turns, call)
        await publisher.publish(new_claim())
        assert len(publisher._connection._connection.channels) == 1
        assert not publisher._calls
        assert not publisher._connection._unconfirmed
        found = rabbitmq.ctl("list_connections", "client_properties", "channels")
        assert len([line for line in found.splitlines() if "redbox orders" in line]) == 1


@pytest.mark.req("PC-3")
async def test_the_return_of_a_cancelled_publish_belongs_to_no_other(redbox_runner, rabbitmq: Broker):
    async with shop_queue(rabbitmq.port) as queue, opened(amqp_url(rabbitmq.port)) as publisher:
        await publisher.publish(new_claim(event_type=queue.name))
        for turns in range(30):
            task = asyncio.ensure_future(publisher.publish(new_claim(event_type="nobody")))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            good = [new_claim(event_type=queue.name) for _ in range(3)]
            assert await publisher.publish_many(good) == [None] * 3
            await asyncio.wait([task])
        assert len(await queue.arrived()) == 91


async def test_closing_while_it_connects(redbox_runner):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    connected = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with opened(amqp_url(server.sockets[0].getsockname()[1])) as publisher:
        task = asyncio.ensure_future(publisher.publish(new_claim()))
        await connected.wait()
        await publisher.aclose()
        with pytest.raises(Unavailable, match="the publisher was closed"):
            await task
    server.close()


async def test_closing_during_a_publish(redbox_runner, rabbitmq: Broker):
    async with through_proxy(rabbitmq) as (_, between, publisher), between.silence():
        task = asyncio.ensure_future(publisher.publish(new_claim()))
        for _ in range(20):
            await asyncio.sleep(0)
        began = time.monotonic()
        await publisher.aclose()
        assert time.monotonic() - began < 8  # less than the time limit of the publish
        with pytest.raises(Unavailable):
            await task


# --- URLs and options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("amqp://host", "amqp://host/%2F/"),
        ("amqp://host/", "amqp://host/%2F/"),
        ("amqp://host//shop", "amqp://host/%2F/shop"),
        ("amqp://host/%2F/shop", "amqp://host/%2F/shop"),
        ("amqp://host/%2f/a%2Fb?routing_key=hush", "amqp://host/%2F/a%2Fb"),
        ("amqp://user:hush@[::1]:5673/sales/shop", "amqp://[::1]:5673/sales/shop"),
        ("AMQPS://user:hush@host:5673/sales", "amqps://host:5673/sales/"),
    ],
)
def test_the_target_shows_no_secrets(url: str, target: str):
    assert open_publisher(url).target == target


def test_login_and_vhost_are_decoded():
    publisher = open_publisher("amqp://us%40er:p%3Ass%2F%25@host/a%2Fb/shop")
    assert (publisher._url.user, publisher._url.password, publisher._vhost) == ("us@er", "p:ss/%", "a/b")
    publisher = open_publisher("amqp://host")
    assert (publisher._url.user, publisher._url.password, publisher._url.port) == ("guest", "guest", 5672)
    assert open_publisher("amqps://host")._url.port == 5671


@pytest.mark.parametrize(
    "url",
    [
        "amqp://",
        "amqp:host",
        "amqp://user:hush@host:port/%2F/shop",
        "amqp://user:hush@host/%2F/shop/more",
        "amqp://user:hush/1@host/%2F/shop",
        "amqp://user:hush@host/%2F/shop?heartbeat=5",
        "amqp://user:hush@host/%2F/shop?routing_key=a&routing_key=b",
        "amqp://user:hush@host/%2F/shop#hush",
        f"amqp://host/%2F/{'x' * 256}",
        "amqp://host/a%00b/shop",
    ],
)
def test_invalid_urls(url: str):
    with pytest.raises(InvalidURL) as caught:
        open_publisher(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("routing_key", "{nonsense}"),
        ("routing_key", "{event_type"),
        ("routing_key", "{}"),
        ("routing_key", 7),
        ("timeout", "0"),
        ("timeout", "soon"),
        ("heartbeat", "-1"),
        ("heartbeat", "1.5"),
        ("persistent", "perhaps"),
        ("ca_file", "/nowhere/ca.pem"),
        ("ca_file", __file__),
    ],
)
def test_invalid_options(name: str, value: object):
    with pytest.raises(UsageError, match=name):
        open_publisher("amqps://host/%2F/shop", **{name: value})


def test_a_ca_file_is_for_tls_only(tmp_path: Path):
    with pytest.raises(UsageError, match="ca_file is for amqps"):
        open_publisher("amqp://host/%2F/shop", ca_file=str(tmp_path))


@pytest.mark.req("PC-4", "RF-4")
def test_a_confirm_that_ends_without_a_reason_was_lost_with_its_connection():
    """aiormq ends all that wait with a bare Exception, if the socket is closed while its queue is full."""
    message = Message(bytes(7), Basic.Properties(), "a", 1)
    assert isinstance(problem_of(Exception(), message), Unavailable)
    assert not isinstance(problem_of(ValueError("x"), message), Unavailable)
