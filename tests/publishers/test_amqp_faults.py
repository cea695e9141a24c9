"""amqp:// with a broker that is killed, low on memory, or hangs; and over TLS. These tests have their own broker."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from redbox import Backoff, Box, Breaker, Event, Relay, State, Unavailable
from redbox.publishers import Publisher
from redbox.publishers.amqp.connection import BLOCKED, BrokerConnection
from redbox.testing.claims import new_claim
from redbox.testing.plugin import new_box_name
from tests.publishers.conftest import opened
from tests.publishers.queues import shop_queue
from tests.rabbitmq import HOST, Broker, broker
from tests.relay.steps import running, states, until
from tests.servers import free_port

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def tls_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory, tls_port: int) -> Iterator[Broker]:
    """A broker that may be killed, with a TLS port."""
    trustme = pytest.importorskip("trustme")
    path, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    certificate = authority.issue_cert(HOST)
    authority.cert_pem.write_to_path(str(path / "ca.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(path / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(path / "key.pem"))
    config = [f"listeners.ssl.1 = {HOST}:{tls_port}"]
    config += [f"ssl_options.{name}file = {path}/{name}.pem" for name in ("cert", "key")]
    with broker(*config, f"ssl_options.cacertfile = {path}/ca.pem") as server:
        shutil.copy(path / "ca.pem", server.dir)
        yield server


def url_of(broker: Broker, exchange: str) -> str:
    return f"amqp://guest:guest@{broker.where}/%2F/{quote(exchange, safe='')}"


@pytest.mark.req("PC-1", "RF-4", "DS-1")
async def test_a_broker_killed_under_load_loses_nothing(redbox_runner, redis_url: str, frail: Broker):
    """It is killed twice. Every event is published, and every published event is in the durable queue."""
    kills, wave = 2, 1000
    total = (kills + 1) * wave
    async with shop_queue(frail.port, keep=True) as queue:
        pass  # its own connection would not survive either
    async with Box.open(redis_url, name=new_box_name()) as box:
        breaker = Breaker(pause=0.05, longest=0.5)
        relay = Relay(box, url_of(frail, queue.exchange), backoff=Backoff.fixed(0.05), attempts=5, breaker=breaker)
        ids: list[str] = []
        async with running(relay):
            for number in range(kills + 1):
                receipts = await box.put_many([Event("user.created", {"n": n}) for n in range(wave)])
                ids += [receipt.event_id for receipt in receipts]
                if number < kills:
                    some = number * wave + wave // 4
                    await until(lambda some=some: relay.summary().published >= some, "nothing is published")
                    frail.kill()  # in the middle of a wave: the relay does not get a turn before
                    assert relay.summary().published < (number + 1) * wave
                    await until(lambda: relay.summary().open, "the breaker does not open")
                    await asyncio.to_thread(frail.start)
            await until(lambda: relay.summary().published == total, "not all were published", 60)
        assert relay.summary().dead == 0
        assert await states(box) == {State.PUBLISHED: total}
    async with shop_queue(frail.port, queue.name) as queue:
        arrived = [each.event_id for each in await queue.arrived()]
    assert set(arrived) == set(ids)
    assert len(arrived) <= total + kills * 100  # only events in flight may arrive twice: the relay's `concurrency`


@pytest.mark.req("RF-4")
async def test_events_that_no_queue_gets_wait_for_one(redbox_runner, redis_url: str, frail: Broker):
    """Nobody has bound a queue yet: no event becomes DEAD, and all arrive once there is one."""
    async with (
        shop_queue(frail.port) as queue,
        Box.open(redis_url, name=new_box_name()) as box,
    ):
        url = f"amqp://{frail.where}/%2F?routing_key={queue.name}-later"
        await box.put_many([Event("user.created", {"n": n}) for n in range(300)])
        breaker = Breaker(pause=0.05, longest=0.2)
        relay = Relay(box, url, backoff=Backoff.fixed(0.01), attempts=3, breaker=breaker)
        async with running(relay):
            await until(lambda: breaker.opened > 3, "the breaker does not open")
            assert "NO_ROUTE" in relay.summary().open
            async with shop_queue(frail.port, f"{queue.name}-later") as later:
                await until(lambda: relay.summary().published == 300, "not all were published", 60)
                assert len(await later.arrived()) == 300
        assert await states(box) == {State.PUBLISHED: 300}


async def _unblocked(connection: BrokerConnection) -> bool:
    return not await connection.is_blocked()


@pytest.mark.req("PC-4", "RF-4")
async def test_a_broker_low_on_memory_blocks_and_recovers(redbox_runner, frail: Broker):
    async with (
        shop_queue(frail.port) as queue,
        opened(url_of(frail, queue.exchange), timeout=0.5) as publisher,
    ):
        await publisher.publish(new_claim())
        connection = publisher._connection
        frail.ctl("set_vm_memory_high_watermark", "0.0000001")
        try:
            outcomes = await publisher.publish_many([new_claim(), new_claim()])  # the broker says it when it gets one
            assert [type(each) for each in outcomes] == [Unavailable] * 2
            assert "low on memory or disk" in str(outcomes[0])
            began = time.monotonic()
            for _ in range(20):  # later ones are not sent, and do not wait
                with pytest.raises(Unavailable, match="blocked the connection") as caught:
                    await publisher.publish(new_claim())
                assert caught.value.excuse
            assert time.monotonic() - began < 0.5
        finally:
            frail.ctl("set_vm_memory_high_watermark", "0.8")
        publisher._timeout = 60
        await until(lambda: _unblocked(connection), "the connection stays blocked")
        await publisher.publish(new_claim())
        assert publisher._connection is connection  # it was kept
        assert len(await queue.arrived()) == 4  # the two that it had got, too
        assert not publisher._connection._unconfirmed


@pytest.mark.req("PC-4")
async def test_events_that_a_blocked_broker_has_not_received_are_never_sent(redbox_runner, frail: Broker):
    """Their outcome is a failure, so they must not be published later, when the broker accepts events again."""
    async with (
        shop_queue(frail.port) as queue,
        opened(url_of(frail, queue.exchange), timeout=1) as publisher,
    ):
        await publisher.publish(new_claim())
        claims = [new_claim(bytes(2**20)) for _ in range(48)]  # more than the buffers of the sockets hold
        frail.ctl("set_vm_memory_high_watermark", "0.0000001")
        try:
            outcomes = await publisher.publish_many(claims)
            assert {str(each) for each in outcomes} == {BLOCKED}
            with pytest.raises(Unavailable, match="blocked the connection"):
                await publisher.publish(new_claim())
        finally:
            frail.ctl("set_vm_memory_high_watermark", "0.8")
        publisher._timeout = 60
        await until(lambda: _published(publisher), "the broker stays blocked")
        await until(lambda: _connections(frail) == 1, "the broker still reads the old connection", 60)
        arrived = {each.event_id for each in await queue.arrived()}
        assert claims[-1].event_id not in arrived
        assert len(arrived & {claim.event_id for claim in claims}) < len(claims) // 2


async def _published(publisher: Publisher) -> bool:
    try:
        await publisher.publish(new_claim())
    except Unavailable:
        return False
    return True


def _connections(broker: Broker) -> int:
    found = broker.ctl("list_connections", "client_properties")
    return sum("redbox orders" in line for line in found.splitlines())


async def test_closing_while_the_broker_is_blocked(redbox_runner, frail: Broker):
    async with shop_queue(frail.port) as queue, opened(url_of(frail, queue.exchange), timeout=60) as publisher:
        await publisher.publish(new_claim())
        frail.ctl("set_vm_memory_high_watermark", "0.0000001")
        try:
            call = asyncio.ensure_future(publisher.publish(new_claim(bytes(2**24))))  # more than the sockets hold
            await until(publisher._connection.is_blocked, "the connection is not blocked")
            began = time.monotonic()
            await publisher.aclose()
            assert time.monotonic() - began < 8
            with pytest.raises(Unavailable):
                await call
        finally:
            frail.ctl("set_vm_memory_high_watermark", "0.8")


@pytest.mark.req("PC-4")
async def test_a_broker_that_hangs(redbox_runner, frail: Broker):
    async with (
        shop_queue(frail.port) as queue,
        opened(url_of(frail, queue.exchange), timeout=0.5) as publisher,
    ):
        await publisher.publish(new_claim())
        frail.pause()
        try:
            with pytest.raises(Unavailable, match="not confirmed"):
                await publisher.publish(new_claim())
        finally:
            frail.resume()
        publisher._timeout = 60
        await publisher.publish(new_claim())


@pytest.mark.req("PC-4")
async def test_tls_with_a_private_authority(redbox_runner, frail: Broker, tls_port: int):
    trusted = str(frail.dir / "ca.pem")
    async with shop_queue(frail.port) as queue:
        where = f"{tls_port}/%2F/{quote(queue.exchange, safe='')}"
        async with opened(f"amqps://{HOST}:{where}", ca_file=trusted) as publisher:
            await publisher.publish(new_claim())
            assert await publisher.publish_many([new_claim(bytes(2**16)) for _ in range(50)]) == [None] * 50
        assert len(await queue.arrived()) == 51
        async with opened(f"amqps://{HOST}:{where}") as publisher:
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await publisher.publish(new_claim())
        async with opened(f"amqps://localhost:{where}", ca_file=trusted) as publisher:
            with pytest.raises(Unavailable, match="certificate is not valid for 'localhost'"):
                await publisher.publish(new_claim())


def test_the_command_line(redis_url: str, frail: Broker, tmp_path: Path):
    """The password comes from the environment. A broker that refuses it or is down is reported without it."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "redbox", "--url", redis_url, "--box", box, *arguments],
            env={**os.environ, "RABBIT_PASSWORD": "hush-wrong"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    for where, reason in ((frail.where, "ACCESS_REFUSED"), (f"{HOST}:1", "Errno 111")):
        box = new_box_name()
        assert run("put", "user.created", '{"id":42}').returncode == 0
        done = run("relay", "--once", "--to", f"amqp://guest:${{RABBIT_PASSWORD}}@{where}")
        assert done.returncode == 1
        assert reason in done.stderr
        assert not re.search("hush|Traceback|aiormq", done.stdout + done.stderr)
    done = run("relay", "--once", "--to", "amqp://guest@host/a/b/c")
    assert done.returncode == 2
    assert "amqp://user:password@host:port/vhost/exchange" in " ".join(done.stderr.split())
