"""The HTTP publisher with `batch`: one request for many events, and an outcome for each of them."""

from __future__ import annotations

import base64
import gzip
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redbox import Backoff, Box, Event, NotPublished, Reject, Relay, RetryLater, State, Unavailable, UsageError
from redbox.cli.options.placeholders import expand_options
from redbox.consumer import verify, verify_batch
from redbox.events import Claim
from redbox.publishers.http import batches, webhooks
from redbox.publishers.registry import open_publisher
from redbox.testing.publisher_contract import new_claim
from tests.publishers.conftest import opened
from tests.publishers.target import Reply, Target, http_target

pytestmark = pytest.mark.usefixtures("redbox_runner")

SECRET = "whsec_" + base64.b64encode(b"a" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"b" * 32).decode()
THIRD = "whsec_" + base64.b64encode(b"c" * 32).decode()


def claims(count: int, **fields: Any) -> list[Claim]:
    """Claims of a first attempt."""
    return [new_claim(number=number, attempts=1, **fields) for number in range(1, count + 1)]


def sent(target: Target) -> list[list[str]]:
    """The event ids of each request."""
    return [[document["id"] for document in json.loads(request.body)] for request in target.requests]


def ids(some: Sequence[Claim]) -> list[str]:
    return [claim.event_id for claim in some]


def refuse(poison: set[str], reply: Reply) -> Any:
    """A target that refuses every request with one of these events."""
    return lambda request: reply if poison & {each["id"] for each in json.loads(request.body)} else Reply()


def results(*each: Any) -> Reply:
    return Reply(207, body=json.dumps({"results": [*each]}).encode())


@pytest.mark.req("PC-3")
async def test_one_request_for_many_events():
    async with http_target() as target, opened(target.url, batch=100) as publisher:
        some = claims(100)
        assert list(await publisher.publish_many(some)) == [None] * 100
    assert sent(target) == [ids(some)]
    (request,) = target.requests
    assert request.header("content-type") == "application/cloudevents-batch+json; charset=utf-8"
    assert not [name for name, _ in request.headers if name.startswith((b"ce-", b"redbox-", b"webhook-"))]


async def test_what_a_batch_contains():
    claim = new_claim(
        b'{"id": 42}', number=7, attempts=1, headers={"X-Tenant": "ü"}, ordering_key="k", partition_key="p"
    )
    async with http_target() as target, opened(target.url, batch=10) as publisher:
        await publisher.publish(claim)
    (document,) = json.loads(target.requests[0].body)
    assert document.pop("time")
    assert document == {
        "specversion": "1.0",
        "id": claim.event_id,
        "type": "user.created",
        "source": "/redbox/orders",
        "partitionkey": "p",
        "redboxclaim": "7",
        "redboxattempt": "1",
        "redboxorderingkey": "k",
        "redboxheaders": '{"X-Tenant":"ü"}',
        "datacontenttype": "application/json",
        "data": {"id": 42},
    }
    assert b'"data":{"id": 42}' in target.requests[0].body


async def test_header_names_that_differ_in_case_are_one_in_a_batch():
    """As HTTP joins the values of a repeated header: a consumer that ignores case loses none."""
    claim = new_claim(headers={"X-A": "1", "x-b": "2", "x-a": "3", "X-a": ""})
    async with http_target() as target, opened(target.url, batch=10) as publisher:
        await publisher.publish(claim)
    (document,) = json.loads(target.requests[0].body)
    assert json.loads(document["redboxheaders"]) == {"X-A": "1, 3, ", "x-b": "2"}


async def test_a_relay_sends_batches(redbox_box: Box):
    async with http_target() as target:
        await redbox_box.put_many([Event("a", {"n": number}) for number in range(100)])
        summary = await Relay(redbox_box, target.url, options={"batch": "25"}, concurrency=100).drain()
        assert summary.published == 100
        assert sum(map(len, sent(target))) == 100
        assert max(map(len, sent(target))) == 25
        assert len(target.requests) < 20


# --- no event suffers from another one -------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 403, 413, 415, 422])
@pytest.mark.parametrize("poison", [[0], [17], [99], [3, 4], [0, 50, 99]])
async def test_a_rejected_batch_is_sent_in_halves(status: int, poison: list[int]):
    async with http_target() as target, opened(target.url, batch=100) as publisher:
        some = claims(100)
        target.reply = refuse({some[at].event_id for at in poison}, Reply(status, body=b"no"))
        outcomes = await publisher.publish_many(some)
    assert [at for at, outcome in enumerate(outcomes) if outcome is not None] == poison
    for at in poison:
        assert isinstance(outcomes[at], Reject)
        assert [some[at].event_id] in sent(target), "it was sent alone"
    assert len(target.requests) <= 1 + 14 * len(poison)


async def test_a_target_that_rejects_everything():
    async with http_target() as target, opened(target.url, batch=10) as publisher:
        target.reply = Reply(422)
        outcomes = await publisher.publish_many(claims(10))
        assert [type(outcome) for outcome in outcomes] == [Reject] * 10
    assert len(target.requests) == 19


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(500), NotPublished),
        (Reply(500, {"retry-after": "7"}), RetryLater),
        (Reply(503, {"retry-after": "7"}), Unavailable),
        (Reply(503, body=json.dumps({"results": [{"status": 422}] * 10}).encode()), Unavailable),
        (Reply(429), Unavailable),
        (Reply(302), NotPublished),
        (Reply(close=True), Unavailable),
        (Reply(raw=b"no http\r\n\r\n"), NotPublished),
    ],
)
async def test_a_failure_is_one_of_all_and_not_repeated(reply: Reply, expected: type[Exception]):
    async with http_target() as target, opened(target.url, batch=10) as publisher:
        target.reply = reply
        outcomes = await publisher.publish_many(claims(10))
        assert [type(outcome) for outcome in outcomes] == [expected] * 10
    assert len(target.requests) == 1


async def test_an_event_with_a_failure_is_sent_alone():
    """Else an event that makes its batches fail would use up the attempts of the others."""
    excused = msgspec.structs.replace(new_claim(attempts=3), excused=2)
    some = [*claims(3), new_claim(attempts=2), *claims(2), new_claim(attempts=5), excused]
    async with http_target() as target, opened(target.url, batch=10) as publisher:
        assert list(await publisher.publish_many(some)) == [None] * 8
    alone = [some[3].event_id], [some[6].event_id]
    together = ids([*some[:3], *some[4:6], some[7]])
    assert sorted(sent(target)) == sorted([*alone, together])


@pytest.mark.parametrize("status", [500, 422])
async def test_a_poison_event_kills_no_other(redbox_box: Box, status: int):
    async with http_target() as target:
        events = [Event("a", {"n": number}, event_id=f"event-{number}") for number in range(40)]
        await redbox_box.put_many(events)
        target.reply = refuse({"event-20"}, Reply(status))
        relay = Relay(
            redbox_box, target.url, options={"batch": 50}, attempts=3, backoff=Backoff.fixed(0), concurrency=100
        )
        summary = await relay.drain()
        assert (summary.published, summary.dead) == (39, 1)
        record = await redbox_box.get("event-20")
        assert record is not None
        assert record.state is State.DEAD


async def test_a_batch_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batches, "BATCH_BYTES", 1000)
    some = [
        new_claim(bytes(size), content_type="application/octet-stream", attempts=1) for size in (400, 600, 1, 5000, 2)
    ]
    async with http_target() as target, opened(target.url, batch=10) as publisher:
        assert list(await publisher.publish_many(some)) == [None] * 5
    assert sorted(sent(target)) == sorted([ids(some[:2]), ids(some[2:3]), ids(some[3:4]), ids(some[4:])])


# --- results of each event -------------------------------------------------------------------------------------


async def test_a_result_for_each_event():
    refused = {"status": "refused", "problem": {"status": 409, "detail": "another content"}}
    full = {"status": "refused", "problem": {"status": 429, "detail": "full", "retry_after": 9}}
    unknown = {"status": "unknown", "problem": {"status": 503, "detail": "lost"}}
    async with http_target() as target, opened(target.url, batch=10) as publisher:
        target.reply = results(
            {"status": "accepted"}, {"status": "repeated"}, refused, full, unknown, {"status": 204}, {"status": 500}
        )
        outcomes = await publisher.publish_many(claims(7))
    assert [type(each) for each in outcomes] == [
        type(None), type(None), Reject, Unavailable, NotPublished, type(None), NotPublished,
    ]  # fmt: skip
    assert str(outcomes[2]) == "HTTP 409 Conflict: another content"
    assert outcomes[3].delay == 9  # type: ignore[union-attr]
    assert "lost" in str(outcomes[4])
    assert len(target.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"fine",
        b"[]",
        b'{"results":[]}',
        b'{"results":[{"status":"accepted"}]}',
        b'{"results":[{"status":"accepted"},{}]}',
        b"\xff",
        b"[" * 100_000,
    ],
)
async def test_a_207_without_results_is_a_failure(body: bytes):
    async with http_target() as target, opened(target.url, batch=10) as publisher:
        target.reply = Reply(207, body=body)
        outcomes = await publisher.publish_many(claims(2))
    assert [type(each) for each in outcomes] == [NotPublished] * 2
    assert len(target.requests) == 1


@pytest.mark.parametrize("word", ["accepted", "perhaps"])
async def test_results_of_a_rejected_batch(word: str):
    """With a result for each event the batch is not sent again; but a rejection acknowledges nothing."""
    async with http_target() as target, opened(target.url, batch=10) as publisher:
        body = {"results": [{"status": "refused", "problem": {"status": 409}}, {"status": word}]}
        target.reply = Reply(409, body=json.dumps(body).encode())
        outcomes = await publisher.publish_many(claims(2))
    assert isinstance(outcomes[0], Reject)
    assert isinstance(outcomes[1], Reject if word == "accepted" else NotPublished)
    assert len(target.requests) == (3 if word == "accepted" else 1)


async def test_results_do_not_repeat_secrets():
    async with http_target() as target, opened(target.url, batch=10, secret=SECRET) as publisher:
        target.reply = results(
            {"status": "refused", "problem": {"status": 409, "detail": SECRET}},
            {"status": "unknown", "problem": {"detail": SECRET}},
        )
        outcomes = await publisher.publish_many(claims(2))
    assert [SECRET in str(each) or SECRET[6:] in str(each) for each in outcomes] == [False, False]


async def test_results_may_be_longer_than_the_body_of_an_error():
    async with http_target() as target, opened(target.url, batch=500) as publisher:
        target.reply = results(*[{"status": "accepted", "event_id": "x" * 100}] * 300)
        assert list(await publisher.publish_many(claims(300))) == [None] * 300


async def test_without_batch_a_207_is_an_acknowledgement():
    async with http_target() as target, opened(target.url) as publisher:
        target.reply = Reply(207)
        await publisher.publish(new_claim())


# --- signatures, rotation and gzip -----------------------------------------------------------------------------


async def test_a_batch_is_signed(redbox_box: Box):
    await redbox_box.put_many([Event("a", {"n": number}, ordering_key=f"k{number}") for number in range(3)])
    some = await redbox_box.claim("relay")
    async with http_target() as target, opened(target.url, batch=10, secret=SECRET, gzip=0) as publisher:
        await publisher.publish_many(some)
        await publisher.publish_many(some)
        await publisher.publish_many(some[:2])
    first, again, other = target.requests
    assert first.header("content-encoding") == "gzip"
    deliveries = verify_batch(first.headers, first.body, SECRET)
    assert ids(some) == [each.event_id for each in deliveries]
    assert [(each.claim, each.ordering_key, each.decode()) for each in deliveries] == [
        (claim.number, f"k{at}", {"n": at}) for at, claim in enumerate(some)
    ]
    assert first.header("webhook-id") == again.header("webhook-id") != other.header("webhook-id")


@pytest.mark.req("CK-1")
async def test_a_secret_is_rotated_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redbox_box: Box, caplog: pytest.LogCaptureFixture
):
    """Old; old and new; new. A file that cannot be used changes nothing."""
    caplog.set_level(logging.INFO)
    await redbox_box.put(Event("a"))
    (claim,) = await redbox_box.claim("relay")
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    options = expand_options({"secret": "file:secret"}, ["secret"], tmp_path)
    async with http_target() as target, opened(target.url, **options) as publisher:

        async def accepted_by() -> list[str]:
            await publisher.publish(claim)
            request = target.requests[-1]
            found = []
            for secret in (SECRET, OTHER):
                try:
                    verify(request.headers, request.body, secret)
                except Exception:
                    continue
                found.append(secret)
            return found

        assert await accepted_by() == [SECRET]
        file.write_text(f"{SECRET} {OTHER}\n")
        assert await accepted_by() == [SECRET], "the file is not read for every event"
        monkeypatch.setattr(webhooks, "RELOAD_SECONDS", 0.0)
        publisher._keys._next_look = 0.0
        assert await accepted_by() == [SECRET, OTHER]
        for broken in ("", "whsec_short", None):
            file.write_text(broken) if broken is not None else file.unlink()
            assert await accepted_by() == [SECRET, OTHER]
        assert "the secret is still the previous one" in caplog.text
        file.write_text(OTHER)
        assert await accepted_by() == [OTHER]
        target.reply = Reply(400, body=OTHER.encode())
        with pytest.raises(Reject) as rejected:
            await publisher.publish(claim)
        assert OTHER[6:] not in str(rejected.value)
    assert OTHER[6:] not in caplog.text


@pytest.mark.parametrize("options", [{}, {"cloudevents": "structured"}, {"batch": 5}])
async def test_gzip_above_a_size(options: dict[str, Any]):
    async with http_target() as target, opened(target.url, gzip=2000, **options) as publisher:
        await publisher.publish(new_claim(b'"' + b"a" * 3000 + b'"'))
        await publisher.publish(new_claim(b'"small"'))
    large, small = target.requests
    assert large.header("content-encoding") == "gzip"
    assert len(large.body) < 500
    assert b"a" * 3000 in gzip.decompress(large.body)
    assert small.header("content-encoding") is None
    assert b'"small"' in small.body


async def test_gzip_is_off_by_default_and_not_used_where_it_gains_nothing():
    noise = base64.b64decode("8J+YgA==") + bytes(range(256))
    async with http_target() as target, opened(target.url) as plain, opened(target.url, gzip=0) as packing:
        await plain.publish(new_claim(b" " * 100_000, content_type="text/plain"))
        await packing.publish(new_claim(noise, content_type="image/png"))
        own = {"Content-encoding": "br"}
        await packing.publish(new_claim(b" " * 1000, content_type="text/plain", headers=own))
    first, second, third = target.requests
    assert first.all("content-encoding") == second.all("content-encoding") == []
    assert third.all("content-encoding") == ["br"]
    assert third.body == b" " * 1000


# --- addresses and options -------------------------------------------------------------------------------------


async def test_deny_private_with_batches():
    async with http_target() as target:
        with pytest.raises(UsageError, match="is not public"):
            open_publisher(target.url, batch=5, deny_private=True)
        named = target.url.replace("127.0.0.1", "localhost")
        async with opened(named, batch=5, deny_private=True) as publisher:
            outcomes = await publisher.publish_many(claims(3))
            assert [type(each) for each in outcomes] == [Unavailable] * 3
            assert "is not public" in str(outcomes[0])
    assert target.requests == []


@pytest.mark.parametrize(
    "options", [{"batch": 0}, {"batch": 1001}, {"batch": "many"}, {"batch": 1.5}, {"gzip": -1}, {"gzip": "yes"}]
)
def test_options_are_checked(options: dict[str, Any]):
    with pytest.raises(UsageError, match=next(iter(options))):
        open_publisher("https://example.org", **options)


def test_what_a_publisher_with_batches_takes_at_once():
    publisher = open_publisher("https://example.org", batch="50", max_connections=3)
    assert (publisher.many, publisher.calls_at_once, publisher.at_once(1000)) == (50, 3, 150)
    assert open_publisher("https://example.org").many == 1
