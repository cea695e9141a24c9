"""nats:// against a real server with JetStream, and against servers that say what a real one seldom does."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import nats
import pytest
from nats.js.api import DiscardPolicy, StreamConfig

from redbox.errors import InvalidURL, NotPublished, Reject, Unavailable, UsageError
from redbox.publishers.base import REASON_HEADER
from redbox.publishers.nats.connection import CONNECT_SECONDS
from redbox.publishers.nats.messages import LONGEST_SUBJECT
from redbox.publishers.nats.publisher import CHUNK_BYTES, TIMEOUT
from redbox.publishers.registry import open_publisher, secret_options
from redbox.relay.policy import TIME_LIMIT
from redbox.testing.claims import new_claim
from tests.nats_server import jetstream, nats_server, stored
from tests.proxy import proxy
from tests.publishers.conftest import opened
from tests.publishers.fake_nats import ack, fake_nats, reply

pytestmark = pytest.mark.timeout(60)


async def failure(publisher, **fields) -> NotPublished:
    with pytest.raises(NotPublished) as caught:
        await publisher.publish(new_claim(**fields))
    return caught.value


# --- messages --------------------------------------------------------------------------------------------------


@pytest.mark.req("PC-1", "PC-2")
async def test_a_message(redbox_runner, nats_url: str):
    claim = new_claim(b"\x00\xff", content_type="image/png", partition_key="p", ordering_key="o", headers={"X-A": "é"})
    async with jetstream(nats_url) as js, opened(f"{nats_url}/message.{{event_type}}") as publisher:
        await js.add_stream(name="message", subjects=["message.>"])
        await publisher.publish(claim)
        (message,) = await stored(js, "message")
    assert (message.subject, message.data) == ("message.user.created", b"\x00\xff")
    assert message.headers == {
        "Nats-Msg-Id": claim.event_id,
        "ce-specversion": "1.0",
        "ce-id": claim.event_id,
        "ce-type": "user.created",
        "ce-source": "/redbox/orders",
        "ce-time": "2023-11-14T22:13:20.123Z",
        "ce-partitionkey": "p",
        "ce-datacontenttype": "image/png",
        "X-A": "é",
        "redbox-claim": "7",
        "redbox-attempt": "2",
        "redbox-ordering-key": "o",
    }


async def test_the_subject_is_the_event_type_by_default(redbox_runner, nats_url: str):
    async with jetstream(nats_url) as js, opened(nats_url, source="/shop") as publisher:
        await js.add_stream(name="default", subjects=["default.>"])
        await publisher.publish(new_claim(event_type="default.größe"))
        (message,) = await stored(js, "default")
    assert (message.subject, message.headers["ce-source"]) == ("default.größe", "/shop")


async def test_all_fields_of_a_subject(redbox_runner, nats_url: str):
    url = f"{nats_url}/fields.{{box}}.{{partition_key}}.{{ordering_key}}.x-{{event_id}}-y"
    async with jetstream(nats_url) as js, opened(url) as publisher:
        await js.add_stream(name="fields", subjects=["fields.>"])
        await publisher.publish(new_claim(event_id="7", partition_key="p.q", ordering_key="o"))
        (message,) = await stored(js, "fields")
        assert message.subject == "fields.orders.p.q.o.x-7-y"
        problem = await failure(publisher, ordering_key="o")
    assert isinstance(problem, Reject)
    assert str(problem) == "the subject needs a partition_key, and this event has none"


@pytest.mark.req("PC-4")
@pytest.mark.parametrize(
    "event_type",
    ["order created", "order..created", ".order", "order.", "order.*", "order.>", "a\r\nPUB x 0\r\n", "a\x00b",
     "$JS.API.STREAM.DELETE.orders", "_INBOX.x", "_INBOX", "ü" * (LONGEST_SUBJECT // 2 + 1)],
)  # fmt: skip
async def test_an_event_type_that_is_no_subject(redbox_runner, nats_url: str, event_type: str):
    async with opened(nats_url) as publisher:
        problem = await failure(publisher, event_type=event_type)
    assert isinstance(problem, Reject)
    assert (problem.kind, problem.blames_target) == ("not for NATS", False)
    assert "is not a subject to publish to" in str(problem)


async def test_headers_that_a_server_would_obey_are_not_sent(redbox_runner, nats_url: str):
    """Nats-Rollup deletes the messages of a stream."""
    async with jetstream(nats_url) as js, opened(f"{nats_url}/rollup") as publisher:
        await js.add_stream(StreamConfig(name="rollup", subjects=["rollup"], allow_rollup_hdrs=True))
        await publisher.publish(new_claim())
        claim = new_claim(headers={"Nats-Rollup": "all", "nats-msg-id": "7", "Nats_x": "1", "X-Nats-Y": "2"})
        await publisher.publish(claim)
        _, second = await stored(js, "rollup")
    assert "Nats-Rollup" not in second.headers
    assert second.headers["Nats-Msg-Id"] == claim.event_id
    assert "nats-msg-id" not in second.headers
    assert (second.headers["Nats_x"], second.headers["X-Nats-Y"]) == ("1", "2")


@pytest.mark.req("PC-4")
async def test_a_header_that_nats_cannot_carry(redbox_runner, nats_url: str):
    """`put` refuses it, but an earlier version may have stored it."""
    async with jetstream(nats_url) as js, opened(f"{nats_url}/control") as publisher:
        await js.add_stream(name="control", subjects=["control"])
        claims = [new_claim(headers={"X-A": "a\r\nNats-Rollup: all"}), new_claim()]
        rejected, published = await publisher.publish_many(claims)
        assert len(await stored(js, "control")) == 1
    assert published is None
    assert isinstance(rejected, Reject)
    assert "its header 'X-A' contains control characters" in str(rejected)


# --- duplicates ------------------------------------------------------------------------------------------------


async def test_a_stream_stores_an_event_once(redbox_runner, nats_url: str, caplog: pytest.LogCaptureFixture):
    async with jetstream(nats_url) as js, opened(f"{nats_url}/once") as publisher:
        await js.add_stream(name="once", subjects=["once"])
        claim = new_claim(event_id="7 ", attempts=1)
        await publisher.publish(claim)
        assert (
            await publisher.publish_many([new_claim(event_id="7 ", attempts=2), new_claim(event_id="7")]) == [None] * 2
        )
        assert [each.headers["ce-id"] for each in await stored(js, "once")] == ["7%20", "7"]
        assert not caplog.records
        for _ in range(2):  # the warning comes once a minute
            await publisher.publish(claim)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("redbox.nats", logging.WARNING)
    assert "already held a message with the id of this event" in record.getMessage()


async def test_a_dead_letter_is_no_duplicate_of_its_event(redbox_runner, nats_url: str):
    async with jetstream(nats_url) as js, opened(f"{nats_url}/letters") as publisher:
        await js.add_stream(name="letters", subjects=["letters"])
        for headers in ({}, {REASON_HEADER: "it was refused"}, {REASON_HEADER: "it was refused"}):
            await publisher.publish(new_claim(event_id="7", headers=headers))
        assert [each.headers["Nats-Msg-Id"] for each in await stored(js, "letters")] == ["7", "7 dead"]


async def test_boxes_that_share_a_stream(redbox_runner, nats_url: str):
    options = {"msg_id": "{box}/{event_id}"}
    async with jetstream(nats_url) as js, opened(f"{nats_url}/shared", **options) as publisher:
        await js.add_stream(name="shared", subjects=["shared"])
        for box in ("billing", "search", "search"):
            await publisher.open(box)
            await publisher.publish(new_claim(event_id="7"))
            await publisher.aclose()
        assert [each.headers["Nats-Msg-Id"] for each in await stored(js, "shared")] == ["billing/7", "search/7"]


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.req("PC-4")
async def test_no_stream_takes_the_subject(redbox_runner, nats_url: str):
    async with jetstream(nats_url) as js, opened(f"{nats_url}/nobody.{{event_type}}") as publisher:
        problem = await failure(publisher)
        assert isinstance(problem, Reject)
        assert (problem.kind, problem.blames_target) == ("no stream", True)
        assert str(problem).startswith("no JetStream stream takes the subject 'nobody.user.created'; create it: nats ")
        assert "has no leader at present" in str(problem)
        await js.add_stream(name="nobody", subjects=["nobody.>"])
        await publisher.publish(new_claim())


@pytest.mark.req("PC-4")
async def test_no_jetstream(redbox_runner):
    with nats_server(jetstream=False) as plain:
        async with opened(plain.url) as publisher:
            problem = await failure(publisher)
    assert isinstance(problem, Unavailable)
    assert "JetStream is not enabled" in str(problem)


@pytest.mark.req("PC-4")
async def test_another_stream_than_expected(redbox_runner, nats_url: str):
    async with jetstream(nats_url) as js:
        await js.add_stream(name="expected", subjects=["expected"])
        async with opened(f"{nats_url}/expected", stream="expected") as publisher:
            await publisher.publish(new_claim())
        async with opened(f"{nats_url}/expected", stream="other") as publisher:
            problem = await failure(publisher)
    assert isinstance(problem, Reject)
    assert (problem.kind, problem.blames_target) == ("another stream", True)


@pytest.mark.req("PC-4")
async def test_a_full_stream(redbox_runner, nats_url: str):
    full = StreamConfig(name="full", subjects=["full"], max_msgs=2, discard=DiscardPolicy.NEW)
    async with jetstream(nats_url) as js, opened(f"{nats_url}/full") as publisher:
        await js.add_stream(full)
        outcomes = await publisher.publish_many([new_claim() for _ in range(3)])
        assert [type(each) for each in outcomes] == [type(None), type(None), Unavailable]
        assert "maximum messages exceeded" in str(outcomes[2])
        assert (outcomes[2].excuse, outcomes[2].delay) == (True, 2)
        await js.purge_stream("full")
        await publisher.publish(new_claim())


@pytest.mark.req("PC-4")
async def test_a_stream_that_is_full_for_one_subject(redbox_runner, nats_url: str):
    """Other subjects are accepted, so the target is not down."""
    async with jetstream(nats_url) as js, opened(f"{nats_url}/each.{{event_type}}") as publisher:
        config = {"name": "each", "subjects": ["each.>"], "max_msgs_per_subject": 1, "discard": "new"}
        request = {**config, "discard_new_per_subject": True, "max_msgs": 100, "num_replicas": 1, "storage": "memory"}
        request |= {"retention": "limits", "max_consumers": -1, "max_bytes": -1, "max_age": 0, "max_msg_size": -1}
        await js._api_request("$JS.API.STREAM.CREATE.each", json.dumps(request).encode())
        outcomes = await publisher.publish_many([new_claim(event_type=name) for name in ("a", "a", "b")])
    assert [type(each) for each in outcomes] == [type(None), NotPublished, type(None)]


@pytest.mark.req("PC-4")
async def test_an_event_that_is_too_large(redbox_runner, nats_url: str):
    async with jetstream(nats_url) as js, opened(f"{nats_url}/small") as publisher:
        await js.add_stream(StreamConfig(name="small", subjects=["small"], max_msg_size=1000))
        outcomes = await publisher.publish_many([new_claim(), new_claim(bytes(1000)), new_claim()])
        assert [type(each) for each in outcomes] == [type(None), Reject, type(None)]
        assert outcomes[1].kind == "too large"


@pytest.mark.req("PC-4")
@pytest.mark.parametrize("over", [0, 1])
async def test_the_limit_of_the_server_includes_the_headers(redbox_runner, over: int):
    """A server closes the connection if it is exceeded, and with it the calls of other events."""
    with nats_server(max_payload=10_000) as small:
        async with jetstream(small.url) as js, opened(f"{small.url}/limit") as publisher:
            await js.add_stream(name="limit", subjects=["limit"])
            await publisher.publish(new_claim(event_id="1"))
            (message,) = await stored(js, "limit")
            headers = sum(len(name) + len(value) + 4 for name, value in message.headers.items()) + 12
            claims = [new_claim(), new_claim(bytes(10_000 - headers + over), event_id="2"), new_claim()]
            outcomes = await publisher.publish_many(claims)
            assert [type(each) for each in outcomes] == [type(None), Reject if over else type(None), type(None)]
            if over:
                assert outcomes[1].kind == "too large"
                assert str(outcomes[1]).endswith(
                    "10,001 bytes with its headers; this NATS server accepts 10,000 (max_payload)"
                )


@pytest.mark.req("PC-4")
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b'{"error":{"code":503,"err_code":10008,"description":"no leader"}}', Unavailable),
        (b'{"error":{"code":503,"err_code":10023,"description":"insufficient resources"}}', Unavailable),
        (b'{"error":{"code":503,"err_code":10039,"description":"not enabled for account"}}', Unavailable),
        (b'{"error":{"code":400,"err_code":10002,"description":"resource limits exceeded for account"}}', Unavailable),
        (b'{"error":{"code":429,"err_code":10167,"description":"too many requests"}}', Unavailable),
        (b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence"}}', NotPublished),
        (b'{"error":{}}', NotPublished),
        (b"{}", NotPublished),
        (b'{"stream":"S","seq":0}', NotPublished),
        (b'{"stream":"S","seq":"1"}', NotPublished),
        (b'{"stream":7,"seq":1}', NotPublished),
        (b"[]", NotPublished),
        (b"hello", NotPublished),
        (b'{"stream":"\xff","seq":1}', NotPublished),
        (b"[" * 5000 + b"]" * 5000, NotPublished),
        (b"", NotPublished),
    ],
)
async def test_each_answer_that_is_no_acknowledgement(redbox_runner, answer: bytes, kind: type):
    async with fake_nats(lambda _, inbox: reply(inbox, answer)) as url, opened(url) as publisher:
        assert type(await failure(publisher)) is kind


@pytest.mark.req("PC-1")
async def test_a_service_that_is_not_jetstream(redbox_runner, nats_url: str):
    client = await nats.connect(nats_url)

    async def serve(message) -> None:
        await message.respond(b"thanks")

    await client.subscribe("service", cb=serve)
    await client.flush()
    async with opened(f"{nats_url}/service") as publisher:
        assert "was answered, but not by a JetStream stream" in str(await failure(publisher))
    await client.close()


# --- connections -----------------------------------------------------------------------------------------------


@pytest.mark.req("PC-4", "RF-4")
async def test_a_server_that_is_down_and_comes_back(redbox_runner):
    with nats_server() as own:
        async with jetstream(own.url) as js:
            await js.add_stream(name="all", subjects=["user.>"])
        async with opened(own.url) as publisher:
            await publisher.publish(new_claim())
            own.kill()
            assert isinstance(await failure(publisher), Unavailable)
            assert "Connect call failed" in str(await failure(publisher))
            outcomes = await publisher.publish_many([new_claim(), new_claim(event_type="a b")])
            assert [type(each) for each in outcomes] == [Unavailable, Reject]
            own.start()
            await publisher.publish(new_claim())
        async with jetstream(own.url) as js:
            assert len(await stored(js, "all")) == 2, "an event of the outage was sent later"


async def test_one_of_several_servers(redbox_runner, nats_url: str):
    async with jetstream(nats_url) as js:
        await js.add_stream(name="several", subjects=["several"])
        for _ in range(4):  # nats-py shuffles them
            async with opened(f"nats://127.0.0.1:1,{urlsplit(nats_url).netloc}/several") as publisher:
                await publisher.publish(new_claim())


@pytest.mark.req("PC-1")
async def test_a_lost_acknowledgement_is_a_failure_and_nothing_is_repeated(redbox_runner, nats_url: str):
    async with jetstream(nats_url) as js, proxy(urlsplit(nats_url).port or 0) as between:
        await js.add_stream(name="lost", subjects=["lost"])
        async with opened(f"nats://127.0.0.1:{between.port}/lost") as publisher:
            await publisher.publish(new_claim(event_id="1"))
            between.lose_reply_to(b"HPUB")
            assert isinstance(await failure(publisher, event_id="2"), Unavailable)
            assert (between.lost, (await js.stream_info("lost")).state.messages) == (1, 2)
            await publisher.publish(new_claim(event_id="2"))
            assert (await js.stream_info("lost")).state.messages == 2


@pytest.mark.req("PC-3")
async def test_events_that_were_acknowledged_before_the_connection_broke_are_published(redbox_runner):
    async with (
        fake_nats(lambda number, inbox: ack(inbox, number) if number < 3 else None) as url,
        opened(url) as publisher,
    ):
        outcomes = await publisher.publish_many([new_claim() for _ in range(4)])
    assert outcomes[:2] == [None, None]
    assert [type(outcome) for outcome in outcomes[2:]] == [Unavailable, Unavailable]


@pytest.mark.req("PC-1")
async def test_a_server_that_never_answers(redbox_runner):
    """The relay's time limit cancels the call; a late answer does not settle another event."""
    inboxes: list[str] = []

    def silent(number: int, inbox: str) -> bytes:
        inboxes.append(inbox)
        return b"" if number == 1 else ack(inboxes[0]) + ack(inboxes[1])

    async with fake_nats(silent) as url, opened(url) as publisher:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await publisher.publish(new_claim())
        await publisher.publish(new_claim())
    assert len(set(inboxes)) == 2


@pytest.mark.req("PC-1", "PC-3", "PC-4")
async def test_a_subject_that_nobody_acknowledges_costs_no_other_event(redbox_runner, nats_url: str):
    """It has subscribers, so that the server does not say that no stream takes it."""
    async with jetstream(nats_url) as js, opened(f"{nats_url}/heard.{{event_type}}", timeout=0.5) as publisher:
        await js.add_stream(name="heard", subjects=["heard.stored"])
        await js._nc.subscribe("heard.plain")
        await js._nc.flush()
        outcomes = await publisher.publish_many([new_claim(event_type=name) for name in ("stored", "plain", "stored")])
        assert [type(each) for each in outcomes] == [type(None), Unavailable, type(None)]
        assert "no acknowledgement for the subject 'heard.plain' within 0.5 s" in str(outcomes[1])
        assert "no stream takes it" in str(outcomes[1])


@pytest.mark.req("PC-3", "PC-4")
async def test_events_that_come_too_late_in_their_call_are_not_sent(redbox_runner):
    """A call of many bytes is sent in parts. That a part was not sent never counts against its events."""
    sent: list[int] = []

    def silent(number: int, _: str) -> bytes:
        sent.append(number)
        return b""

    async with fake_nats(silent, max_payload=2 * CHUNK_BYTES) as url, opened(url, timeout=0.5) as publisher:
        claims = [new_claim(bytes(CHUNK_BYTES - 1000)) for _ in range(3)]
        outcomes = await publisher.publish_many(claims)
    assert sent == [1]
    assert [(type(each), each.excuse) for each in outcomes] == [(Unavailable, False)] + 2 * [(Unavailable, True)]


@pytest.mark.req("PC-1", "PC-4")
async def test_a_server_that_hangs_is_down_before_the_time_limit_of_a_relay(redbox_runner):
    """Exceeding the time limit is a failure of the event, which counts."""
    assert TIMEOUT + CONNECT_SECONDS < TIME_LIMIT
    async with fake_nats(lambda *_: b"") as url, opened(url, timeout="0.2") as publisher:
        began = time.monotonic()
        outcomes = await publisher.publish_many([new_claim() for _ in range(3)])
        assert {type(each) for each in outcomes} == {Unavailable}
        assert time.monotonic() - began < 10
        connection = publisher._connection
        assert connection is not None
        assert not connection._waiting


@pytest.mark.req("PC-4")
async def test_a_wrong_or_missing_login(redbox_runner):
    with nats_server(authorization={"user": "me", "password": "p@ss/ :x"}) as server:
        where = f"127.0.0.1:{server.port}"
        async with jetstream(server.url, user="me", password="p@ss/ :x") as js:
            await js.add_stream(name="all", subjects=["user.>"])
        for login in ("", "me:wrong@", "token@"):
            async with opened(f"nats://{login}{where}") as publisher:
                problem = await failure(publisher)
                assert isinstance(problem, Unavailable)
                # The server closes the connection right after its error, which may cut it off.
                assert re.search("Authorization Violation|closed the connection during the login", str(problem))
        async with opened(f"nats://me:p%40ss%2F%20%3Ax@{where}") as publisher:
            await publisher.publish(new_claim())
            assert publisher.target == f"nats://{where}/{{event_type}}"
        async with opened(server.url, user="me", password="p@ss/ :x") as publisher:
            await publisher.publish(new_claim())


async def test_a_token(redbox_runner):
    with nats_server(authorization={"token": "hush/hush"}) as server:
        async with jetstream(server.url, token="hush/hush") as js:
            await js.add_stream(name="all", subjects=["user.>"])
        async with opened(f"nats://hush%2Fhush@127.0.0.1:{server.port}") as publisher:
            await publisher.publish(new_claim())
        async with opened(server.url, token="hush/hush") as publisher:
            await publisher.publish(new_claim())


@pytest.mark.req("PC-4")
async def test_permissions(redbox_runner):
    def user(name: str, **permissions: object) -> dict[str, object]:
        return {"user": name, "password": "x", "permissions": permissions}

    users = [
        {"user": "admin", "password": "x"},
        user("shop", publish=["shop.>"], subscribe=["_INBOX_shop.>"]),
    ]
    with nats_server(authorization={"users": users}) as server:
        async with jetstream(server.url, user="admin", password="x") as js:
            await js.add_stream(name="all", subjects=["shop.>", "Bank.>"])
        url = f"nats://shop:x@127.0.0.1:{server.port}"
        async with opened(url, inbox_prefix="_INBOX_shop") as publisher:
            async with asyncio.timeout(10):
                outcomes = await publisher.publish_many([new_claim(event_type=name) for name in ("shop.a", "Bank.b")])
            assert outcomes[0] is None
            assert type(outcomes[1]) is NotPublished
            assert "permissions violation" in str(outcomes[1]).lower()
        async with opened(url) as publisher:
            problem = await failure(publisher, event_type="shop.a")
            assert isinstance(problem, Unavailable)
            assert "permissions violation for subscription" in str(problem).lower()


async def test_errors_do_not_repeat_the_password(redbox_runner):
    greeting = b"-ERR 'user me with hush/hush'\r\n"
    async with (
        fake_nats(lambda _, inbox: ack(inbox), greeting=greeting) as url,
        opened(url, user="me", password="hush/hush") as publisher,
    ):
        assert str(await failure(publisher)) == "NATS: 'user me with [redacted]'"


@pytest.mark.req("PC-4")
async def test_tls(redbox_runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name in ("server", "client"):
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    pem, ca = str(tmp_path / "server.pem"), str(tmp_path / "ca.pem")
    with nats_server(tls={"cert_file": pem, "key_file": pem, "ca_file": ca, "verify": True}) as server:
        own = {"ca_file": ca, "cert_file": str(tmp_path / "client.pem")}
        for scheme in ("tls", "nats+tls", "nats"):
            async with opened(f"{scheme}://127.0.0.1:{server.port}/x", **own) as publisher:
                assert isinstance(await failure(publisher), Reject)  # connected: there is no stream
        async with opened(f"tls://127.0.0.1:{server.port}/x") as publisher:
            problem = await failure(publisher)
            assert isinstance(problem, Unavailable)
            assert "certificate" in str(problem).lower()


async def test_a_login_is_never_sent_without_tls_if_the_url_asks_for_it(redbox_runner, nats_url: str):
    port = urlsplit(nats_url).port
    for scheme in ("tls", "nats+tls"):
        async with opened(f"{scheme}://me:hush@127.0.0.1:{port}/x") as publisher:
            problem = await failure(publisher)
            assert isinstance(problem, Unavailable)
            assert "secure connection not available" in str(problem)


async def test_large_batches_are_sent_in_chunks(redbox_runner, nats_url: str):
    claims = [new_claim(bytes(2**20), number=number) for number in range(1, 11)]
    async with jetstream(nats_url) as js, opened(f"{nats_url}/large") as publisher:
        await js.add_stream(name="large", subjects=["large"])
        assert await publisher.publish_many(claims) == [None] * 10
        assert [each.headers["redbox-claim"] for each in await stored(js, "large")] == [str(n) for n in range(1, 11)]
        await js.delete_stream("large")


async def test_a_closed_publisher_says_so_and_leaves_no_task(redbox_runner, nats_url: str):
    publisher = open_publisher(f"{nats_url}/nobody")
    with pytest.raises(UsageError, match="not open"):
        await publisher.publish(new_claim())
    before = asyncio.all_tasks()
    await publisher.open("orders")
    await failure(publisher)
    await publisher.aclose()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    with pytest.raises(UsageError, match="not open"):
        await publisher.publish(new_claim())


@pytest.mark.req("PC-3")
async def test_a_call_that_is_cancelled_while_connecting_leaves_the_connection_to_others(redbox_runner, nats_url: str):
    async with jetstream(nats_url) as js, opened(f"{nats_url}/connecting") as publisher:
        await js.add_stream(name="connecting", subjects=["connecting"])
        first, second = (asyncio.ensure_future(publisher.publish(new_claim())) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()


async def test_closing_while_connecting(redbox_runner):
    """A server that accepts connections and says nothing."""
    hung_up = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        hung_up.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with opened(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}") as publisher:
        task = asyncio.ensure_future(failure(publisher))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            await publisher.aclose()
            assert "the publisher was closed" in str(await task)
            await hung_up.wait()
    server.close()


async def test_closing_does_not_wait_for_a_server_that_stopped_reading(redbox_runner):
    hung_up = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"headers":true,"max_payload":100000000,"jetstream":true}\r\n')
        while await reader.readline() != b"PING\r\n":
            pass
        writer.write(b"PONG\r\n")
        await closing.wait()
        with suppress(ConnectionError):
            while await reader.read(2**20):
                pass
        writer.close()
        hung_up.set()

    closing = asyncio.Event()
    server = await asyncio.start_server(deaf, "127.0.0.1", 0)
    async with opened(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}") as publisher:
        tasks = [asyncio.ensure_future(publisher.publish(new_claim(bytes(2**24)))) for _ in range(2)]
        await asyncio.wait(tasks, timeout=0.5)
        began = time.monotonic()
        await publisher.aclose()
        assert time.monotonic() - began < 5
        closing.set()
        async with asyncio.timeout(10):
            await hung_up.wait()
            assert [type(each) for each in await asyncio.gather(*tasks, return_exceptions=True)] == [Unavailable] * 2
    server.close()


def test_another_event_loop(nats_url: str):
    publisher = open_publisher(f"{nats_url}/loops")

    async def once() -> None:
        async with jetstream(nats_url) as js:
            await js.add_stream(name="loops", subjects=["loops"])
        await publisher.open("orders")
        await publisher.publish(new_claim())
        await publisher.aclose()

    for _ in range(2):
        asyncio.run(once())


# --- arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "nats://",
        "nats:host",
        "nats:///subject",
        "nats://me:hush@host:port/x",
        "nats://me:hush@host,:4222/x",
        "nats://me:hush@host/x?stream=y",
        "nats://me:hush@host/x y",
        "nats://me:hush@host/x.*",
        "nats://me:hush@host/%24JS.API",
        "nats://me:hush@host/x.{type}",
        "nats://me:hush@host/x.{event_type",
        "nats://me:hush@host/{}",
    ],
)
def test_invalid_urls(url: str):
    with pytest.raises(UsageError) as caught:
        open_publisher(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"msg_id": "7"}, r"msg_id must contain \{event_id\}"),
        ({"msg_id": "{event_type}"}, r"msg_id must contain \{event_id\}"),
        ({"msg_id": "{id}"}, "msg_id has no field of this name; its fields are event_type, box"),
        ({"timeout": "0"}, "timeout must be more than 0"),
        ({"timeout": "soon"}, "timeout must be"),
        ({"inbox_prefix": "x.*"}, "inbox_prefix must be a subject without wildcards"),
        ({"stream": "a\nb"}, "stream must be printable"),
        ({"user": "me"}, "user and password belong together"),
        ({"password": "hush"}, "user and password belong together"),
        ({"credentials": "/nowhere.creds"}, "credentials must be the path of a .creds file"),
        ({"credentials": __file__}, r"pip install 'nats-py\[nkeys\]'"),
        ({"ca_file": "/nowhere.pem"}, "ca_file, cert_file or key_file cannot be used"),
        ({"ca_file": __file__}, "ca_file, cert_file or key_file cannot be used"),
        ({"cert_file": __file__}, "ca_file, cert_file or key_file cannot be used"),
    ],
)
def test_invalid_options(options: dict[str, str], complaint: str):
    with pytest.raises(UsageError, match=complaint) as caught:
        open_publisher("nats://host", **options)
    assert "hush" not in str(caught.value)


def test_a_login_twice():
    with pytest.raises(UsageError, match="either in the URL or as options"):
        open_publisher("nats://me:hush@host", token="x")


def test_secrets_and_defaults():
    assert secret_options("nats://host") == {"password", "token"}
    assert open_publisher("NATS://[::1]/x").target == "nats://[::1]/x"
    assert isinstance(InvalidURL("x"), UsageError)
