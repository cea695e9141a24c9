"""https:// and http:// against a real server that behaves well or badly."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import socket
import ssl
import time
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from redbox import Box, Event, Relay
from redbox.errors import InvalidURL, NotPublished, Reject, RetryLater, Unavailable, UsageError
from redbox.events import HTTP_HEADERS
from redbox.publishers.http import connections
from redbox.publishers.registry import open_publisher
from redbox.testing.claims import new_claim
from tests.publishers.conftest import opened
from tests.publishers.target import Reply, Request, Target, http_target

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"another key, which is as good").decode()


async def failure(target: Target, reply: Reply, **options) -> NotPublished:
    """Returns the error that is raised for a reply. There is one request, whatever the reply."""
    target.reply = reply
    before = len(target.requests)
    async with opened(target.url, **options) as publisher:
        with pytest.raises(NotPublished) as caught:
            async with asyncio.timeout(20):
                await publisher.publish(new_claim())
    assert len(target.requests) == before + 1
    return caught.value


# --- from a relay in Python ---------------------------------------------------------------------------------------


async def test_a_relay_in_python_takes_the_options_of_its_targets(redbox_box: Box):
    """The same as `-o secret=...` and `--dead-option authorization=...` on the command line."""
    await redbox_box.put_many([Event("a", event_id="good"), Event("a", event_id="bad")])
    async with http_target() as target, http_target() as dead:
        target.reply = lambda request: Reply(400 if request.header("ce-id") == "bad" else 200)
        relay = Relay(
            redbox_box, target.url, options={"secret": SECRET, "timeout": 5}, breaker=None,
            dead_to=dead.url, dead_options={"authorization": "Bearer x"},
        )  # fmt: skip
        summary = await relay.drain()
    assert (summary.published, summary.dead) == (1, 1)
    assert all((request.header("webhook-signature") or "").startswith("v1,") for request in target.requests)
    assert [request.header("authorization") for request in dead.requests] == ["Bearer x"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"options": {"colour": "red"}}, "https: has no option 'colour'; it has cloudevents, source, secret"),
        ({"options": "secret"}, "options must be a mapping of option names to values"),
        ({"options": {1: "x"}}, "options must be a mapping of option names to values"),
        ({"options": {"timeout": "soon"}}, "timeout must be seconds or a timedelta, not 'soon'"),
        ({"dead_options": {"timeout": 1}}, "dead_options are for dead_to, which is not given"),
        ({"dead_to": "null:", "dead_options": ["a"]}, "dead_options must be a mapping"),
    ],
)
async def test_invalid_options_of_a_relay(redbox_box: Box, arguments: dict[str, Any], problem: str):
    with pytest.raises(UsageError, match=problem):
        Relay(redbox_box, "https://shop.example/hook", **arguments)


# --- requests --------------------------------------------------------------------------------------------------


@pytest.mark.req("PC-2")
async def test_binary_mode(redbox_runner):
    claim = new_claim(partition_key="p 7", event_id="id-1")
    async with http_target() as target, opened(target.url) as publisher:
        await publisher.publish(claim)
    (request,) = target.requests
    assert (request.method, request.path, request.body) == ("POST", "/hook", claim.event.payload)
    sent = {name: request.all(name) for name in ("ce-specversion", "ce-id", "ce-type", "ce-source", "ce-time")}
    assert sent == {
        "ce-specversion": ["1.0"],
        "ce-id": ["id-1"],
        "ce-type": ["user.created"],
        "ce-source": ["/redbox/orders"],
        "ce-time": ["2023-11-14T22:13:20.123Z"],
    }
    assert request.all("ce-partitionkey") == ["p%207"]
    assert request.all("content-type") == ["application/json"]
    assert request.all("content-length") == ["9"]
    assert request.all("host") == [f"127.0.0.1:{target.port}"]
    assert (request.header("user-agent") or "").startswith("redbox/")
    assert request.header("webhook-signature") is None
    assert request.header("authorization") is None


async def test_reserved_headers_that_an_earlier_version_stored_are_left_out(redbox_runner):
    """WSGI servers treat `_` and `-` as equal: an event could pretend to be another."""
    stored = {"ce_type": "forged", "Redbox_Claim": "99", "webhook_id": "forged", "Content_Length": "0", "x_own": "kept"}
    async with http_target() as target, opened(target.url) as publisher:
        await publisher.publish(new_claim(headers=stored))
    (request,) = target.requests
    folded = [name.decode().lower().replace("_", "-") for name, _ in request.headers]
    assert [folded.count(name) for name in ("ce-type", "redbox-claim", "content-length")] == [1, 1, 1]
    assert "webhook-id" not in folded
    assert (request.header("ce-type"), request.header("redbox-claim"), request.header("x_own")) == (
        "user.created", "7", "kept",
    )  # fmt: skip


async def test_structured_mode(redbox_runner):
    async with http_target() as target, opened(target.url, cloudevents="structured", source="urn:shop") as publisher:
        await publisher.publish(new_claim(event_id="id-1", partition_key="p 7", headers={"x-a": "1"}))
        await publisher.publish(new_claim(b"\xff", event_id="id-2", content_type="image/png"))
    first, second = target.requests
    assert first.all("content-type") == ["application/cloudevents+json; charset=utf-8"]
    assert first.header("x-a") == "1"
    assert first.header("redbox-claim") == "7"
    assert first.header("ce-id") is None
    expected = {
        "specversion": "1.0",
        "id": "id-1",
        "type": "user.created",
        "source": "urn:shop",
        "time": "2023-11-14T22:13:20.123Z",
        "partitionkey": "p 7",
        "datacontenttype": "application/json",
    }
    assert json.loads(first.body) == {**expected, "data": {"id": 42}}
    del expected["partitionkey"]
    assert json.loads(second.body) == {**expected, "id": "id-2", "datacontenttype": "image/png", "data_base64": "/w=="}


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_a_payload_is_encoded_once(redbox_runner, monkeypatch, mode: str):
    encode, calls = Event.encode, list[Event]()

    def counted(event: Event) -> tuple[bytes, str]:
        calls.append(event)
        return encode(event)

    monkeypatch.setattr(Event, "encode", counted)
    async with http_target() as target, opened(target.url, cloudevents=mode) as publisher:
        await publisher.publish(new_claim())
    assert len(calls) == 1


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_the_cloudevents_library_reads_both_modes(redbox_runner, mode: str):
    http = pytest.importorskip("cloudevents.v1.http")
    claim = new_claim(event_type="größe.geändert", partition_key='100% "ü"')
    async with http_target() as target, opened(target.url, cloudevents=mode) as publisher:
        await publisher.publish(claim)
    (request,) = target.requests
    event = http.from_http({name.decode(): value.decode() for name, value in request.headers}, request.body)
    assert (event["id"], event["source"], event.data) == (claim.event_id, "/redbox/orders", {"id": 42})
    if mode == "structured":  # the library does not decode percent-encoded headers
        assert (event["type"], event["partitionkey"]) == ("größe.geändert", '100% "ü"')


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize("secret", [SECRET, f"{SECRET} {OTHER}", f"{OTHER}  {SECRET}", SECRET.removeprefix("whsec_")])
async def test_signatures(redbox_runner, mode: str, secret: str):
    webhooks = pytest.importorskip("standardwebhooks.webhooks")
    claim = new_claim(b'{"price":"1\xe2\x82\xac"}', claimed_ms=int(time.time() * 1000))
    async with http_target() as target, opened(target.url, cloudevents=mode, secret=secret) as publisher:
        await publisher.publish(claim)
    (request,) = target.requests
    headers = {name.decode(): value.decode() for name, value in request.headers}
    webhooks.Webhook(SECRET).verify(request.body, headers)
    if OTHER in secret:
        webhooks.Webhook(OTHER).verify(request.body, headers)
    else:
        with pytest.raises(webhooks.WebhookVerificationError):
            webhooks.Webhook(OTHER).verify(request.body, headers)
    assert headers["webhook-id"] == claim.event_id


async def test_signatures_have_the_time_of_the_store(redbox_runner, monkeypatch):
    """Signatures of a relay whose clock is hours off would be refused, and its events would become DEAD."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    async with http_target() as target, opened(target.url, secret=SECRET) as publisher:
        await publisher.publish(new_claim(claimed_ms=2_000_000_000_500))
        await publisher.publish(new_claim(claimed_ms=2_000_000_000_500, ago=90.0))
    first, second = (int(request.header("webhook-timestamp") or "") for request in target.requests)
    assert 2_000_000_000 <= first <= 2_000_000_020
    assert 2_000_000_090 <= second <= 2_000_000_110


async def test_a_dead_letter_is_signed_too(redbox_box: Box):
    webhooks = pytest.importorskip("standardwebhooks.webhooks")
    await redbox_box.put(Event("a", {"id": 1}))
    async with http_target() as target, http_target() as dead:
        target.reply = Reply(400)
        relay = Relay(redbox_box, target.url, breaker=None, dead_to=dead.url, dead_options={"secret": SECRET})
        assert (await relay.drain()).dead == 1
    (request,) = dead.requests
    headers = {name.decode(): value.decode() for name, value in request.headers}
    webhooks.Webhook(SECRET).verify(request.body, headers)


def test_a_signature_by_hand():
    """A fixed example, so that signing and verifying cannot be wrong together."""
    from redbox.publishers.http.webhooks import read_secrets, signature_headers

    headers = signature_headers(
        read_secrets(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.req("EM-9")
async def test_headers_that_would_break_the_exchange_are_left_out(redbox_runner):
    names = [name.title() for name in HTTP_HEADERS]  # put refuses them, but an earlier version may have stored them
    async with http_target() as target, opened(target.url) as publisher:
        await publisher.publish(new_claim(headers={**dict.fromkeys(names, "chunked"), "x-kept": " \tspaces "}))
        await publisher.publish(new_claim(headers={"User-Agent": "shop/1"}, content_type="text/ä "))
    first, second = target.requests
    assert b"chunked" not in first.raw_head
    assert first.header("x-kept") == "spaces"
    assert second.all("user-agent") == ["shop/1"]
    assert second.all("content-type") == ["text/ä"]


async def test_header_names_that_differ_in_case_are_all_sent(redbox_runner):
    async with http_target() as target, opened(target.url) as publisher:
        await publisher.publish(new_claim(headers={"X-Tenant": "1", "x-tenant": "2", "ACCEPT-encoding": "br"}))
    (request,) = target.requests
    assert request.all("x-tenant") == ["1", "2"]
    assert request.all("accept-encoding") == ["br"]


@pytest.mark.req("PC-4")
@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {"x-note": "a\r\nx-forged: 1"}},
        {"headers": {"x note": "1"}},
        {"headers": {"x-note\r\nx-forged": "1"}},
        {"content_type": "text/plain\r\nx-forged: 1"},
        {"ordering_key": "a\r\nx-forged: 1"},
        {"ordering_key": "a\x00b", "headers": {"x-note": "1"}},
    ],
)
async def test_an_event_that_can_never_be_sent_is_rejected(redbox_runner, fields: dict[str, Any]):
    """`put` refuses it, but an earlier version may have stored it. It would fail in every attempt."""
    async with http_target() as target, opened(target.url) as publisher:
        with pytest.raises(Reject, match="this event cannot be sent by HTTP") as caught:
            await publisher.publish(new_claim(**fields))
        assert caught.value.kind == "not for HTTP"
        await publisher.publish(new_claim(event_id="next"))
    assert [request.header("ce-id") for request in target.requests] == ["next"]


async def test_the_authorization_header(redbox_runner):
    async with http_target() as target:
        async with opened(target.url, authorization="Bearer t0ken") as publisher:
            await publisher.publish(new_claim(headers={"Authorization": "the event's"}))
        async with opened(target.url.replace("//", "//us%40er:pa%3Ass@")) as publisher:
            await publisher.publish(new_claim())
        async with opened(target.url) as publisher:
            await publisher.publish(new_claim(headers={"Authorization": "the event's"}))
    found = [request.all("authorization") for request in target.requests]
    assert found == [["Bearer t0ken"], ["Basic " + base64.b64encode(b"us@er:pa:ss").decode()], ["the event's"]]


async def test_no_secret_is_shown(redbox_runner, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    async with http_target() as target:
        url = target.url.replace("//", "//user:hidden@") + "?token=hidden#hidden"
        async with opened(url, secret=SECRET) as publisher:
            await publisher.publish(new_claim())
            shown = publisher.target + repr(publisher)
        assert target.requests[0].path == "/hook?token=hidden"
        assert publisher.target == target.url
    assert "hidden" not in shown + caplog.text
    assert SECRET not in shown + caplog.text


async def test_no_secret_that_a_response_repeats_is_kept(redbox_box: Box, caplog: pytest.LogCaptureFixture):
    """Some targets repeat the request in the body of an error."""
    caplog.set_level(logging.DEBUG)
    await redbox_box.put(Event("a", b"x", event_id="one"))
    login, token = base64.b64encode(b"user:hidden@1").decode(), "hiddenHIDDENhidden0123"

    def repeat(request: Request) -> Reply:
        body = f"{request.raw_head.decode()} user:hidden@1 hidden%401 {SECRET} {login}"
        return Reply(400, body=body.encode(), phrase=f"No {token}")

    async with http_target() as target:
        target.reply = repeat
        url = target.url.replace("//", "//user:hidden%401@") + f"/{token}?key=hidden%2Fkey&k2=hidden+key"
        relay = Relay(redbox_box, url, options={"secret": SECRET}, breaker=None)
        assert (await relay.drain()).dead == 1
        assert target.requests[0].header("authorization") == f"Basic {login}"
        assert open_publisher(url).target == f"{target.url}/hid…"
    record = await redbox_box.get("one")
    assert record is not None
    kept = f"{record.last_error} {record.history} {caplog.text}"
    assert "HTTP 400 No [redacted]: POST /hook/[redacted]?key=[redacted]" in kept
    for secret in ("hidden", "HIDDEN", login, SECRET, SECRET.removeprefix("whsec_")):
        assert secret not in kept


async def test_no_credential_that_a_response_repeats_is_kept(redbox_runner):
    async with http_target() as target:
        problem = await failure(target, Reply(401, body=b"not t0ken, Bearer t0ken"), authorization="Bearer t0ken")
        assert str(problem) == "HTTP 401 Unauthorized: not [redacted], [redacted]"
        basic = "Basic " + base64.b64encode(b"user:hidden").decode()
        problem = await failure(target, Reply(401, body=b"user:hidden or hidden"), authorization=basic)
        assert str(problem) == "HTTP 401 Unauthorized: [redacted] or [redacted]"


async def test_a_query_without_a_name_is_a_secret(redbox_runner):
    async with http_target() as target, opened(f"{target.url}?flag%2Bsecret99&k=v4lue") as publisher:
        target.reply = Reply(400, body=b"/hook?flag%2Bsecret99&k=v4lue flag+secret99 flag%2bsecret99")
        with pytest.raises(Reject) as caught:
            await publisher.publish(new_claim())
    body = "/hook?[redacted]&k=[redacted] [redacted] [redacted]"
    assert str(caught.value) == f"HTTP 400 Bad Request: {body}"


# --- responses -------------------------------------------------------------------------------------------------


@pytest.mark.req("PC-1", "PC-4")
async def test_each_class_of_response(redbox_runner):
    async with http_target() as target:
        rejected = await failure(target, Reply(401, body=b"who are you"))
        assert isinstance(rejected, Reject)
        assert (str(rejected), rejected.kind) == ("HTTP 401 Unauthorized: who are you", "HTTP 401")
        assert isinstance(await failure(target, Reply(413)), Reject)
        down = await failure(target, Reply(503, {"retry-after": "7"}))
        assert isinstance(down, Unavailable)
        assert down.delay == 7
        later = await failure(target, Reply(500, {"Retry-After": "7"}))
        assert isinstance(later, RetryLater)
        assert later.delay == 7
        assert type(await failure(target, Reply(500))) is NotPublished


@pytest.mark.req("PC-1", "PC-4")
@pytest.mark.parametrize("status", [200, 201, 202, 204, 226, 299])
async def test_every_2xx_status_acknowledges(redbox_runner, status: int):
    async with http_target() as target, opened(target.url) as publisher:
        target.reply = Reply(status, {"retry-after": "9"}, body=b"" if status == 204 else b"whatever")
        await publisher.publish(new_claim())
        assert len(target.requests) == 1


@pytest.mark.req("PC-1")
async def test_redirects_are_not_followed(redbox_runner):
    async with http_target() as target:
        problem = await failure(target, Reply(307, {"location": target.url + "/elsewhere"}))
        assert type(problem) is NotPublished
        assert [request.path for request in target.requests] == ["/hook"]


@pytest.mark.req("PC-4")
async def test_a_target_that_is_not_reachable(redbox_runner):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        async with opened(f"http://127.0.0.1:{port}/") as publisher:
            with pytest.raises(Unavailable) as found:
                await publisher.publish(new_claim())
            assert str(found.value) == f"cannot connect to 127.0.0.1:{port}: Connection refused"
    async with opened("http://nobody.invalid/") as publisher:
        with pytest.raises(Unavailable, match=r"cannot connect: the host name nobody\.invalid cannot be resolved"):
            await publisher.publish(new_claim())


@pytest.mark.req("PC-4")
async def test_a_target_that_hangs_up(redbox_runner):
    async with http_target() as target:
        assert isinstance(await failure(target, Reply(close=True)), Unavailable)
        assert type(await failure(target, Reply(raw=b"SSH-2.0-OpenSSH\r\n\r\n"))) is NotPublished


@pytest.mark.req("PC-4")
async def test_an_untrusted_certificate(redbox_runner):
    trustme = pytest.importorskip("trustme")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    async with http_target(tls) as target, opened(target.url) as publisher:
        with pytest.raises(Unavailable, match="certificate"):
            await publisher.publish(new_claim())
        assert target.requests == []


async def test_a_certificate_of_a_private_authority(redbox_runner, monkeypatch, tmp_path):
    trustme = pytest.importorskip("trustme")
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with http_target(tls) as target, opened(target.url) as publisher:
        await publisher.publish(new_claim())
        assert len(target.requests) == 1


@pytest.mark.req("PC-4")
async def test_a_target_that_never_responds(redbox_runner):
    async with http_target() as target:
        problem = await failure(target, Reply(silent=True), timeout="0.05")
        assert type(problem) is NotPublished
        assert str(problem) == "no response within 0.05 seconds"
        await target.hung_up()


@pytest.mark.req("PC-1")
@pytest.mark.parametrize("status", [200, 500])
async def test_the_status_decides_whatever_happens_to_the_body(redbox_runner, monkeypatch, status: int):
    monkeypatch.setattr("redbox.publishers.http.connections.BODY_SECONDS", 0.05)
    replies = [
        Reply(status, body=b"x" * 1000, cut=10),
        Reply(status, {"content-length": "10"}, body=b"short"),  # and nothing more
        Reply(status, body=b"y" * 65536, endless=True),
        Reply(raw=b"HTTP/1.1 %d Internal Server Error\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n" % status),
    ]
    async with http_target() as target:
        for reply in replies:
            target.reply = reply
            async with asyncio.timeout(20), opened(target.url) as publisher:
                if status == 200:
                    await publisher.publish(new_claim())
                else:
                    with pytest.raises(NotPublished, match=r"^HTTP 500 Internal Server Error"):
                        await publisher.publish(new_claim())
        await target.hung_up()
        assert target.sent < 64 * 2**20


@pytest.mark.req("PC-1")
@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\nnull",
        b"HTTP/1.1 204 No Content\r\n\r\nnull",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\nnull",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok and more",
        b"HTTP/1.1 200 OK\r\nx-large: " + b"x" * 20_000 + b"\r\ncontent-length: 0\r\n\r\n",
    ],
)
async def test_an_unexpected_body_does_not_hide_the_status(redbox_runner, raw: bytes):
    async with http_target() as target, opened(target.url) as publisher:
        target.reply = Reply(raw=raw)
        await publisher.publish(new_claim())
        await publisher.publish(new_claim())
        assert len(target.requests) == 2


@pytest.mark.req("PC-1")
async def test_an_acknowledgement_does_not_wait_for_its_body(redbox_runner, monkeypatch):
    monkeypatch.setattr("redbox.publishers.http.connections.BODY_SECONDS", 60.0)
    async with http_target() as target:
        target.reply = Reply(headers={"content-length": "10"}, body=b"short")
        async with asyncio.timeout(10), opened(target.url, timeout=5) as publisher:
            await publisher.publish(new_claim())
        await target.hung_up()
        assert len(target.requests) == 1


@pytest.mark.req("PC-1")
async def test_the_time_limit_of_a_relay_does_not_cover_the_body_of_an_acknowledgement(redbox_box: Box, monkeypatch):
    monkeypatch.setattr("redbox.publishers.http.connections.BODY_SECONDS", 60.0)
    await redbox_box.put(Event("a"))
    async with http_target() as target:
        target.reply = Reply(headers={"content-length": "10"}, body=b"short")
        async with asyncio.timeout(20):
            summary = await Relay(redbox_box, target.url, time_limit=0.3, attempts=1).drain()
        assert (summary.published, len(target.requests)) == (1, 1)


@pytest.mark.req("PC-4")
async def test_a_timeout_in_the_body_of_a_refusal_does_not_hide_it(redbox_runner, monkeypatch):
    monkeypatch.setattr("redbox.publishers.http.connections.BODY_SECONDS", 60.0)
    async with http_target() as target:
        began = time.monotonic()
        problem = await failure(target, Reply(422, {"content-length": "10"}, body=b"short"), timeout=0.2)
        assert time.monotonic() - began < 15
        assert (str(problem), type(problem)) == ("HTTP 422 Unprocessable Entity: short", Reject)
        await target.hung_up()


@pytest.mark.req("PC-4")
async def test_a_cancellation_in_the_body_of_a_refusal_does_not_hide_it(redbox_runner, monkeypatch):
    monkeypatch.setattr("redbox.publishers.http.connections.BODY_SECONDS", 60.0)
    reading = asyncio.Event()

    async def read_start(*arguments: Any) -> bytes:
        reading.set()
        return await connections.read_start(*arguments)

    monkeypatch.setattr("redbox.publishers.http.publisher.read_start", read_start)
    async with http_target() as target, opened(target.url) as publisher:
        target.reply = Reply(422, {"content-length": "10"}, body=b"short")
        task = asyncio.ensure_future(publisher.publish(new_claim()))
        async with asyncio.timeout(10):
            await reading.wait()
            task.cancel()
            with pytest.raises(Reject, match="HTTP 422"):
                await task
        await target.hung_up()


async def test_a_compressed_reason_is_not_shown(redbox_runner):
    async with http_target() as target:
        problem = await failure(target, Reply(500, {"content-encoding": "gzip"}, body=b"\x1f\x8bxyz"))
        assert str(problem) == "HTTP 500 Internal Server Error"


# --- connections -----------------------------------------------------------------------------------------------


async def test_connections_are_used_again(redbox_runner):
    async with http_target() as target, opened(target.url) as publisher:
        for status in (200, 200, 500, 200):
            target.reply = Reply(status, body=b"short")
            try:
                await publisher.publish(new_claim())
            except NotPublished:
                assert status == 500
        assert target.connections == 1


@pytest.mark.req("PC-1", "PC-4")
@pytest.mark.parametrize("end", [Reply(close=True), Reply(reset=True)], ids=["closed", "reset"])
async def test_a_request_that_fails_on_a_kept_connection_is_repeated_on_a_new_one(redbox_runner, end: Reply):
    """The target may have closed the connection before it saw the request."""
    async with http_target() as target, opened(target.url) as publisher:
        target.replies.extend([Reply(), end])
        await publisher.publish(new_claim(event_id="first"))
        await publisher.publish(new_claim(event_id="second"))
        assert [request.header("ce-id") for request in target.requests] == ["first", "second", "second"]
        assert target.connections == 2


@pytest.mark.req("PC-1", "PC-4")
@pytest.mark.parametrize("end", [Reply(close=True), Reply(reset=True)], ids=["closed", "reset"])
async def test_a_request_is_repeated_only_once(redbox_runner, end: Reply):
    async with http_target() as target, opened(target.url) as publisher:
        target.replies.extend([Reply(), end, end])
        await publisher.publish(new_claim())
        with pytest.raises(Unavailable):
            await publisher.publish(new_claim())
        assert len(target.requests) == 3
        target.replies.append(end)
        with pytest.raises(Unavailable):  # on a new connection, so it is not repeated
            await publisher.publish(new_claim())
        assert len(target.requests) == 4


@pytest.mark.req("PC-4")
async def test_a_request_is_never_repeated_on_a_kept_connection(redbox_runner):
    async with http_target() as target, opened(target.url) as publisher:
        target.most = 1
        for _ in range(6):
            await publisher.publish(new_claim())
        assert len(target.requests) == 6


@pytest.mark.req("PC-1")
@pytest.mark.parametrize("raw", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 103 Early Hints\r\n\r\n"])
async def test_a_request_with_a_partial_response_is_not_repeated(redbox_runner, raw: bytes):
    async with http_target() as target, opened(target.url) as publisher:
        target.replies.extend([Reply(), Reply(raw=raw)])
        await publisher.publish(new_claim())
        with pytest.raises(Unavailable):
            await publisher.publish(new_claim())
        assert len(target.requests) == 2


@pytest.mark.req("PC-4")
async def test_a_target_that_closes_connections_without_announcing_it(redbox_box: Box):
    await redbox_box.put_many([Event("a", event_id=f"e{number}") for number in range(500)])
    async with http_target() as target:
        target.most = 10
        summary = await Relay(redbox_box, target.url, concurrency=20).drain()
    assert (summary.published, summary.retried, summary.dead) == (500, 0, 0)


@pytest.mark.req("PC-1")
@pytest.mark.parametrize("stray", [200, 400])
async def test_an_unsolicited_response_is_not_taken_for_the_next(redbox_runner, monkeypatch, stray: int):
    monkeypatch.setattr("redbox.publishers.http.connections.KEEP_SECONDS", 60.0)
    async with http_target() as target, opened(target.url) as publisher:
        await publisher.publish(new_claim())
        (writer,) = target.open
        writer.write(Reply(stray).head())
        with suppress(TimeoutError):
            await target.hung_up()
        target.reply = Reply(500)
        with pytest.raises(NotPublished, match="HTTP 500"):
            await publisher.publish(new_claim())
        assert (len(target.requests), target.connections) == (2, 2)


@pytest.mark.parametrize("number", [1, 20])
async def test_connections_that_the_target_has_closed_are_closed(redbox_runner, number: int):
    async with http_target() as target, opened(target.url) as publisher:
        await asyncio.gather(*(publisher.publish(new_claim()) for _ in range(number)))
        assert len(target.open) == number
        await target.end_idle()
        assert half_closed(target.port) == 0
        await publisher.publish(new_claim())


def half_closed(port: int) -> int:
    """Returns how many connections to a port wait for this side to close them (CLOSE_WAIT)."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(line[2].endswith(f":{port:04X}") and line[3] == "08" for line in lines)


async def test_idle_connections_are_closed_after_a_time(redbox_runner, monkeypatch):
    monkeypatch.setattr("redbox.publishers.http.connections.KEEP_SECONDS", 0.05)
    async with http_target() as target, opened(target.url) as publisher:
        await publisher.publish(new_claim())
        await target.hung_up()


def test_one_publisher_on_several_event_loops():
    publisher = open_publisher("http://127.0.0.1:1/")

    async def once() -> None:
        async with http_target() as target:
            publisher._url = publisher._url.with_port(target.port)  # type: ignore[attr-defined]
            await publisher.open("orders")
            await publisher.publish(new_claim())
            await publisher.aclose()
            await target.hung_up()

    for _ in range(2):
        asyncio.run(once())


@pytest.mark.req("PC-3")
async def test_the_number_of_connections_is_limited(redbox_runner):
    gate = asyncio.Event()
    async with http_target() as target, opened(target.url, max_connections="3") as publisher:
        target.reply = Reply(gate=gate)
        tasks = [asyncio.ensure_future(publisher.publish(new_claim())) for _ in range(10)]
        await target.received(3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (len(target.requests), target.connections) == (3, 3)
        gate.set()
        await asyncio.gather(*tasks)
        assert (len(target.requests), target.connections) == (10, 3)


@pytest.mark.req("PC-3")
async def test_cancelled_requests_close_their_connections_and_free_their_slots(redbox_runner):
    async with http_target() as target, opened(target.url, max_connections=3) as publisher:
        target.reply = Reply(silent=True)
        for round_ in range(1, 4):
            tasks = [asyncio.ensure_future(publisher.publish(new_claim())) for _ in range(5)]
            await target.received(3 * round_)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks)
            await target.hung_up()
        target.reply = Reply()
        await asyncio.gather(*(publisher.publish(new_claim()) for _ in range(5)))


@pytest.mark.req("PC-3")
async def test_a_response_keeps_its_slot_until_it_ends(redbox_runner, monkeypatch):
    monkeypatch.setattr("redbox.publishers.http.connections.BODY_SECONDS", 60.0)
    hold = asyncio.Event()
    async with http_target() as target, opened(target.url, max_connections=1) as publisher:
        target.replies.append(Reply(hold=hold, body=b"late"))
        await publisher.publish(new_claim())
        second = asyncio.ensure_future(publisher.publish(new_claim()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(target.requests) == 1
        hold.set()
        async with asyncio.timeout(10):
            await second
        assert (len(target.requests), target.connections) == (2, 1)


@pytest.mark.req("PC-3")
@pytest.mark.parametrize("reply", [Reply(body=b"y" * 65536, endless=True), Reply(headers={"content-length": "9"})])
async def test_a_response_that_does_not_end_frees_its_slot(redbox_runner, monkeypatch, reply: Reply):
    monkeypatch.setattr("redbox.publishers.http.connections.BODY_SECONDS", 0.05)
    async with http_target() as target, opened(target.url, max_connections=1) as publisher:
        target.reply = reply
        async with asyncio.timeout(10):
            for _ in range(3):
                await publisher.publish(new_claim())
        assert target.connections == 3


async def test_closing_ends_unread_responses_while_a_request_is_in_flight(redbox_runner, monkeypatch):
    monkeypatch.setattr("redbox.publishers.http.connections.BODY_SECONDS", 60.0)
    gate = asyncio.Event()
    async with http_target() as target, opened(target.url) as publisher:
        target.replies.extend([Reply(headers={"content-length": "10"}, body=b"short"), Reply(gate=gate)])
        await publisher.publish(new_claim())
        task = asyncio.ensure_future(publisher.publish(new_claim()))
        await target.received(2)
        await publisher.aclose()
        await target.hung_up(but=1)
        gate.set()
        await task
        await target.hung_up()


async def test_closing_while_a_response_arrives(redbox_runner, monkeypatch):
    monkeypatch.setattr("redbox.publishers.http.connections.BODY_SECONDS", 60.0)
    gate = asyncio.Event()
    async with http_target() as target, opened(target.url) as publisher:
        target.reply = Reply(headers={"content-length": "10"}, gate=gate, body=b"short")
        task = asyncio.ensure_future(publisher.publish(new_claim()))
        await target.received(1)
        await publisher.aclose()
        gate.set()
        await task
        await target.hung_up()


async def test_closing_while_requests_are_in_flight(redbox_runner):
    gate = asyncio.Event()
    async with http_target() as target, opened(target.url) as publisher:
        target.reply = Reply(gate=gate)
        task = asyncio.ensure_future(publisher.publish(new_claim()))
        await target.received(1)
        await publisher.aclose()
        gate.set()
        await task
        await target.hung_up()
        with pytest.raises(UsageError, match="not open"):
            await publisher.publish(new_claim())


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
async def test_the_environment_names_the_proxy(redbox_runner, monkeypatch, name: str):
    async with http_target() as proxy:
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with opened("http://shop.example/hook") as publisher:
            await publisher.publish(new_claim())
            proxy.reply = Reply(407)
            with pytest.raises(Unavailable):
                await publisher.publish(new_claim())
        assert [request.path for request in proxy.requests] == ["http://shop.example/hook"] * 2
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with http_target() as target, opened(target.url) as publisher:
            await publisher.publish(new_claim())
            assert (len(target.requests), len(proxy.requests)) == (1, 2)


async def test_a_login_at_the_proxy(redbox_runner, monkeypatch):
    async with http_target() as proxy:
        monkeypatch.setenv("http_proxy", f"http://me:pass%40word@127.0.0.1:{proxy.port}")
        async with opened("http://shop.example/hook", authorization="Bearer x") as publisher:
            await publisher.publish(new_claim())
            await publisher.publish(new_claim())
        for request in proxy.requests:
            expected = "Basic " + base64.b64encode(b"me:pass@word").decode()
            assert (request.all("proxy-authorization"), request.all("authorization")) == ([expected], ["Bearer x"])


async def test_a_target_that_accepts_no_connection(redbox_runner, monkeypatch):
    monkeypatch.setattr(connections, "_TIMEOUT", aiohttp.ClientTimeout(connect=0.05))
    with socket.socket() as listener, ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # they fill the queue of the listener
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        async with opened(f"http://127.0.0.1:{listener.getsockname()[1]}/hook") as publisher:
            with pytest.raises(Unavailable, match=rf"connecting to 127\.0\.0\.1:{listener.getsockname()[1]} timed out"):
                await asyncio.wait_for(publisher.publish(new_claim()), 5)


async def test_https_to_a_port_that_speaks_plain_http(redbox_runner):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        where = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with opened(f"https://{where}/") as publisher:
            with pytest.raises(Unavailable) as found:
                await publisher.publish(new_claim())
        assert str(found.value).startswith(f"cannot connect to {where}: ")
        assert str(found.value).endswith("; if the target speaks plain HTTP on this port, write http:// in its URL")


async def test_http_to_a_port_that_speaks_tls(redbox_runner):
    trustme = pytest.importorskip("trustme")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    async with http_target(tls) as target, opened(target.url.replace("https:", "http:")) as publisher:
        with pytest.raises(Unavailable) as found:
            await publisher.publish(new_claim())
        assert str(found.value) == (
            f"127.0.0.1:{target.port} closed the connection without a response; "
            "if the target speaks TLS on this port, write https:// in its URL"
        )


async def test_a_target_that_has_answered_speaks_the_right_protocol(redbox_runner):
    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if not answered:
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            answered.append(True)
        writer.close()

    answered: list[bool] = []
    async with await asyncio.start_server(answer_once, "127.0.0.1", 0) as server:
        where = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with opened(f"http://{where}/") as publisher:
            await publisher.publish(new_claim())
            with pytest.raises(Unavailable) as found:
                await publisher.publish(new_claim())
            assert str(found.value) == f"{where} closed the connection without a response"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_login_of_the_target_is_not_sent_to_the_proxy(redbox_runner, monkeypatch, scheme: str):
    async with http_target() as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://127.0.0.1:{proxy.port}")
        proxy.reply = Reply(502)
        async with opened(f"{scheme}://shop.example/hook", authorization="Bearer x") as publisher:
            for _ in range(2):
                with pytest.raises(Unavailable):
                    await publisher.publish(new_claim())
        expected = ["Bearer x"] if scheme == "http" else []
        for request in proxy.requests:
            assert (request.all("proxy-authorization"), request.all("authorization")) == ([], expected)


async def test_a_tunnel_through_a_proxy(redbox_runner, monkeypatch, tmp_path):
    trustme = pytest.importorskip("trustme")
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    heads: list[bytes] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        there = await asyncio.open_connection("127.0.0.1", target.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    async with http_target(tls) as target, await asyncio.start_server(tunnel, "127.0.0.1", 0) as proxy:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        monkeypatch.setenv("https_proxy", f"me:secret@127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        async with opened(target.url, authorization="Bearer x") as publisher:
            await publisher.publish(new_claim())
            await publisher.publish(new_claim())
        await target.hung_up()
    assert [request.path for request in target.requests] == ["/hook"] * 2
    (head,) = heads  # the tunnel is reused
    assert head.startswith(f"CONNECT 127.0.0.1:{target.port} HTTP/1.1\r\n".encode())
    assert base64.b64encode(b"me:secret") in head
    assert b"Bearer" not in head
    assert all(request.header("proxy-authorization") is None for request in target.requests)


async def test_a_proxy_that_refuses_a_tunnel(redbox_runner, monkeypatch):
    async with http_target() as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        for status in (407, 502):
            proxy.reply = Reply(status)
            async with opened("https://shop.example/hook") as publisher:
                with pytest.raises(Unavailable, match=f"the proxy returned HTTP {status}"):
                    await publisher.publish(new_claim())
        assert proxy.requests[0].path == "shop.example:443"


async def test_a_missing_file_of_authorities(redbox_runner, monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing.pem"))
    with pytest.raises(UsageError, match="SSL_CERT_FILE"):
        async with opened("https://shop.example/hook"):
            pass
    async with http_target() as target, opened(target.url) as publisher:
        await publisher.publish(new_claim())


async def test_a_proxy_that_is_unreachable_or_invalid(redbox_runner, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    async with opened("https://shop.example/hook") as publisher:
        with pytest.raises(Unavailable):
            await publisher.publish(new_claim())
    monkeypatch.setenv("https_proxy", "gopher://127.0.0.1:1")
    with pytest.raises(UsageError, match="proxy"):
        async with opened("https://shop.example/hook"):
            pass


# --- options ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cloudevents": "none"}, "cloudevents 'none': use 'binary' or 'structured'"),
        ({"secret": "whsec_hush*"}, "secret must be whsec_"),
        ({"secret": "whsec_"}, "secret must be whsec_"),
        ({"secret": "whsec_" + "c2VjcmV0" * 3}, "secret must have at least 24 bytes"),
        ({"secret": "plainsecret"}, "secret must have at least 24 bytes"),
        ({"secret": " "}, "secret must be whsec_"),
        ({"authorization": "Bearer hush\r\nx: y"}, "authorization must be printable text"),
        ({"timeout": "5s"}, "timeout must be seconds or a timedelta, not '5s'"),
        ({"timeout": 0}, "timeout must be at least a millisecond"),
        ({"max_connections": "0"}, "max_connections must be a whole number"),
        ({"source": ""}, "source must be printable text"),
    ],
)
def test_invalid_options(options: dict, message: str):
    with pytest.raises(UsageError, match=message) as caught:
        open_publisher("https://shop.example/", **options)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("timeout", [5, 2.5, "2.5", timedelta(seconds=5)])
def test_a_timeout_takes_any_duration(timeout: Any):
    open_publisher("https://shop.example/", timeout=timeout)


@pytest.mark.parametrize(
    "url", ["https://", "https:///x", "https://a:hush:c/", "https://h:99999/hush", "https://a..b/", "http:x"]
)
def test_invalid_urls(url: str):
    with pytest.raises(InvalidURL) as caught:
        open_publisher(url)
    assert "hush" not in str(caught.value)


def test_two_logins_are_refused():
    with pytest.raises(UsageError, match="not both"):
        open_publisher("https://a:hush@shop.example/", authorization="Bearer x")
