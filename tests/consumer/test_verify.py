"""verify: who sent a request, and what it delivers; whatever framework received it."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpHeaders
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from starlette.datastructures import Headers as StarletteHeaders

from redbox.consumer import (
    Delivery,
    DeliveryRefused,
    InvalidDelivery,
    NotVerified,
    WrongSignature,
    WrongTimestamp,
    read,
    read_batch,
    signatures,
    verify,
    verify_batch,
)
from redbox.errors import UsageError
from redbox.events import Claim
from redbox.publishers.http.webhooks import batch_id, read_secrets, signature_headers
from redbox.testing.claims import CREATED_MS, new_claim
from tests.publishers.conftest import opened
from tests.publishers.target import http_target

SECRET = "whsec_" + base64.b64encode(b"a" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"b" * 32).decode()
BODY = b'{"id":42}'
EVENT = "evt-1"

pytestmark = pytest.mark.req("CK-1")


def signed(body: bytes = BODY, secret: str = SECRET, *, event_id: str = EVENT, ago: float = 0, **more: str) -> Any:
    """The headers of a delivery, as redbox sends them."""
    headers = {
        "Content-Type": "application/json",
        "ce-specversion": "1.0",
        "ce-id": event_id,
        "ce-type": "user.created",
        "ce-source": "/redbox/orders",
        "redbox-claim": "7",
        "redbox-attempt": "2",
        **signature_headers(read_secrets(secret), event_id, int(time.time() - ago), body),
    }
    return {**headers, **{name.replace("_", "-"): value for name, value in more.items()}}


def test_a_signed_delivery_says_what_it_delivers():
    delivery = verify(signed(redbox_ordering_key="order-7", ce_partitionkey="p%201"), BODY, SECRET)
    assert (delivery.event_id, delivery.event_type, delivery.source) == (EVENT, "user.created", "/redbox/orders")
    assert (delivery.claim, delivery.attempt) == (7, 2)
    assert (delivery.ordering_key, delivery.partition_key) == ("order-7", "p 1")
    assert abs(delivery.timestamp - time.time()) < 5
    assert (delivery.payload, delivery.content_type) == (BODY, "application/json")
    assert delivery.decode() == {"id": 42}


SHAPES = {
    "dict": dict,
    "upper case": lambda headers: {name.upper(): value for name, value in headers.items()},
    "pairs": lambda headers: [*headers.items()],
    "bytes": lambda headers: [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    "starlette": StarletteHeaders,
    "META": lambda headers: meta(headers),  # noqa: PLW0108  # defined below
    "django": lambda headers: HttpHeaders(meta(headers)),
}


def meta(headers: dict[str, str]) -> dict[str, Any]:
    """The environment that WSGI servers make."""
    found: dict[str, Any] = {"wsgi.input": object(), "REQUEST_METHOD": "POST", "SERVER_PORT": "80"}
    for name, value in headers.items():
        key = name.upper().replace("-", "_")
        found[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_headers_of_any_framework(shape: str):
    delivery = verify(SHAPES[shape](signed()), BODY, SECRET)
    assert (delivery.event_id, delivery.claim, delivery.content_type) == (EVENT, 7, "application/json")


@pytest.mark.parametrize("body", [bytearray(BODY), memoryview(BODY)])
def test_any_bytes_are_a_body(body: Any):
    assert verify(signed(), body, SECRET).payload == BODY


def test_the_reference_implementation_accepts_what_redbox_signs():
    headers = signed()
    assert Webhook(SECRET).verify(BODY, headers) == {"id": 42}
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(BODY, headers)


def test_redbox_accepts_what_the_reference_implementation_signs():
    now = datetime.now(UTC)
    signature = Webhook(SECRET).sign(EVENT, now, BODY.decode())
    headers = {
        "webhook-id": EVENT,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature,
    }
    delivery = verify(headers, BODY, SECRET)
    assert (delivery.event_id, delivery.event_type, delivery.claim) == (EVENT, None, None)
    with pytest.raises(WrongSignature):
        verify(headers, BODY, OTHER)


@pytest.mark.parametrize("secret", [f"{OTHER} {SECRET}", [OTHER, SECRET], (SECRET, OTHER), [f"{SECRET} {OTHER}"]])
def test_a_consumer_may_have_several_secrets(secret: Any):
    assert verify(signed(), BODY, secret).event_id == EVENT


@pytest.mark.parametrize("secret", [SECRET, OTHER])
def test_a_request_may_have_several_signatures(secret: str):
    headers = signed(secret=f"{SECRET} {OTHER}")
    assert verify(headers, BODY, secret).event_id == EVENT
    headers["webhook-signature"] = f"v1a,abc v2,{'A' * 44} v1,% " + headers["webhook-signature"]
    assert verify(headers, BODY, secret).event_id == EVENT


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "evt-2"},
        {"webhook-timestamp": str(int(time.time()) + 60)},
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": "v2,AAAA"},
        {"webhook-signature": "v1,ü"},
    ],
)
def test_a_changed_request_is_refused(change: dict[str, str]):
    with pytest.raises(WrongSignature):
        verify({**signed(), **change}, BODY, SECRET)


def test_a_changed_body_is_refused():
    with pytest.raises(WrongSignature):
        verify(signed(), BODY + b" ", SECRET)


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_request_without_signature_is_refused(missing: str):
    headers = signed()
    del headers[missing]
    with pytest.raises(NotVerified, match=f"the header {missing} is missing"):
        verify(headers, BODY, SECRET)


@pytest.mark.parametrize("timestamp", ["soon", "-1", "1e9", "9" * 30, "٣"])
def test_a_timestamp_that_is_no_number_is_refused(timestamp: str):
    with pytest.raises(NotVerified):
        verify({**signed(), "webhook-timestamp": timestamp}, BODY, SECRET)


@pytest.mark.parametrize("ago", [-290, 0, 290])
def test_a_recent_request_is_accepted(ago: float):
    assert verify(signed(ago=ago), BODY, SECRET).event_id == EVENT


@pytest.mark.parametrize(("ago", "says"), [(310, "seconds ago"), (-310, "in the future")])
def test_an_old_request_and_one_of_the_future_are_refused(ago: float, says: str):
    with pytest.raises(WrongTimestamp, match=says):
        verify(signed(ago=ago), BODY, SECRET)
    assert verify(signed(ago=ago), BODY, SECRET, tolerance=timedelta(minutes=6)).event_id == EVENT


def test_an_old_request_with_a_wrong_signature_says_nothing_about_its_age():
    with pytest.raises(WrongSignature):
        verify(signed(ago=10**6), BODY, OTHER)


def test_a_header_that_is_given_twice_is_refused():
    """Else one might be checked, and another be used."""
    pairs = [*signed().items(), ("Webhook-Id", "evt-2")]
    with pytest.raises(NotVerified, match="more than once"):
        verify(pairs, BODY, SECRET)
    assert verify([*signed().items(), ("x-a", "1"), ("x-a", "2")], BODY, SECRET).event_id == EVENT


def test_the_id_of_the_event_is_the_signed_one():
    with pytest.raises(InvalidDelivery, match="webhook-id is not the id"):
        verify({**signed(), "ce-id": "evt-2"}, BODY, SECRET)


def test_every_error_has_the_status_that_makes_the_relay_do_the_right_thing():
    """A wrong secret must not make events DEAD: the relay keeps events that are answered with 401."""
    from redbox.publishers.http.responses import response_error

    assert {WrongSignature.status, WrongTimestamp.status, NotVerified.status} == {401}
    assert response_error(NotVerified.status, "", {}, b"", now=0).blames_target
    assert InvalidDelivery.status == 400
    assert issubclass(NotVerified, DeliveryRefused)


@pytest.mark.parametrize("secret", ["", [], "secret", b"whsec_abc", ["whsec_c2hvcnQ="], None, 5])
def test_an_unusable_secret_is_an_error_of_the_caller(secret: Any):
    with pytest.raises(UsageError, match="secret"):
        verify(signed(), BODY, secret)


@pytest.mark.parametrize(("headers", "body"), [(None, BODY), (["a"], BODY), ({1: "a"}, BODY), ({}, BODY.decode())])
def test_wrong_arguments_are_named(headers: Any, body: Any):
    with pytest.raises(UsageError, match=r"headers|body"):
        verify(headers, body, SECRET)


# --- the JSON format, batches and gzip -------------------------------------------------------------------------


def document(event_id: str = EVENT, **more: Any) -> dict[str, Any]:
    found = {"specversion": "1.0", "id": event_id, "type": "user.created", "source": "/redbox/orders"}
    return {**found, "datacontenttype": "application/json", "data": {"id": 42}, **more}


def test_a_delivery_in_the_json_format():
    body = json.dumps(document(partitionkey="p"), separators=(",", ":")).encode()
    headers = signed(body, **{"Content-Type": "application/cloudevents+json; charset=utf-8"})
    delivery = verify(headers, body, SECRET)
    assert (delivery.event_type, delivery.payload, delivery.claim) == ("user.created", b'{"id":42}', 7)
    assert delivery.partition_key == "p"
    binary = json.dumps({**document(), "datacontenttype": "text/plain", "data_base64": "AAE="})
    assert read(headers, binary.encode()).payload == b"\0\1"


def test_a_batch():
    events = [document("a", redboxclaim="3", redboxattempt="1", redboxorderingkey="k"), document("b", redboxclaim="4")]
    body = json.dumps(events).encode()
    batch = {"Content-Type": "application/cloudevents-batch+json"}
    headers = signed(body, event_id=batch_id(["a", "b"]), **batch)
    del headers["ce-id"]
    first, second = verify_batch(headers, body, SECRET)
    assert (first.event_id, first.claim, first.attempt, first.ordering_key) == ("a", 3, 1, "k")
    assert (second.event_id, second.claim, second.attempt, second.ordering_key) == ("b", 4, None, None)
    with pytest.raises(InvalidDelivery, match="verify_batch"):
        verify(headers, body, SECRET)


@pytest.mark.req("CK-1")
def test_the_payload_of_an_event_does_not_pass_for_a_batch():
    """Its content type is not signed, and its payload may be what a stranger wrote."""
    body = json.dumps([document("forged", redboxclaim="999")]).encode()
    headers = {**signed(body), "Content-Type": "application/cloudevents-batch+json"}
    with pytest.raises(InvalidDelivery, match="not that of these events"):
        verify_batch(headers, body, SECRET)


def test_verify_batch_accepts_a_single_event():
    assert [each.event_id for each in verify_batch(signed(), BODY, SECRET)] == [EVENT]
    with pytest.raises(InvalidDelivery):
        verify_batch({**signed(), "ce-id": "evt-2"}, BODY, SECRET)


def test_a_body_with_gzip_is_verified_as_it_came():
    packed = gzip.compress(BODY)
    headers = signed(packed, **{"Content-Encoding": "gzip"})
    assert verify(headers, packed, SECRET).payload == BODY


@pytest.mark.parametrize(
    "body",
    [b"no gzip", gzip.compress(BODY, mtime=0)[:-3], gzip.compress(BODY, mtime=0) + b"more"],
    ids=["plain", "cut", "longer"],
)
def test_a_body_that_is_not_gzip(body: bytes):
    with pytest.raises(InvalidDelivery, match="gzip"):
        read({**signed(body), "Content-Encoding": "gzip"}, body)


def test_a_small_body_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("redbox.consumer.deliveries.LARGEST", 1000)
    body = gzip.compress(bytes(1001))
    with pytest.raises(InvalidDelivery, match="at most 1,000 bytes"):
        read({**signed(body), "Content-Encoding": "gzip"}, body)
    exact = gzip.compress(bytes(1000))
    assert len(read({**signed(exact), "Content-Encoding": "gzip"}, exact).payload) == 1000


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/cloudevents+json", b"[]"),
        ("application/cloudevents+json", b"{"),
        ("application/cloudevents+json", b'{"id":5}'),
        ("application/cloudevents+json", b'{"id":""}'),
        ("application/cloudevents+json", b'{"type":"a"}'),
        ("application/cloudevents+json", b'{"id":"a","data_base64":"!"}'),
        ("application/cloudevents-batch+json", b"{}"),
        ("application/cloudevents-batch+json", b'[{"id":"a","redboxclaim":"x"}]'),
        ("application/cloudevents-batch+json", b'[{"id":"a","redboxclaim":5}]'),
        ("application/cloudevents-batch+json", b"[" * 100_000),
    ],
)
def test_a_body_that_is_no_cloud_event(content_type: str, body: bytes):
    with pytest.raises(InvalidDelivery):
        read_batch({"content-type": content_type}, body)


def test_a_delivery_that_is_not_signed_can_be_read():
    headers = {name: value for name, value in signed().items() if not name.startswith("webhook-")}
    assert read(headers, BODY) == read_batch(headers, BODY)[0]
    assert read(headers, BODY).event_id == EVENT
    del headers["ce-id"]
    with pytest.raises(InvalidDelivery, match="ce-id is missing"):
        read(headers, BODY)
    with pytest.raises(InvalidDelivery, match="redbox-claim"):
        read({**signed(), "redbox-claim": "-1"}, BODY)


def test_text_in_headers_is_utf8():
    headers = [(b"ce-id", b"a"), (b"redbox-ordering-key", "Ä".encode())]
    assert read(headers, b"").ordering_key == "Ä"
    assert read({"ce-id": "a", "redbox-ordering-key": "Ä€"}, b"").ordering_key == "Ä€"


def test_importing_the_kit_imports_no_extra_and_verify_needs_no_redis():
    code = (
        "import sys, redbox.consumer; early = set(sys.modules); redbox.consumer.verify;"
        "late = {'redis', 'aiohttp', 'litestar', 'opentelemetry', 'rich', 'click', 'pyspark'};"
        "assert not {each.partition('.')[0] for each in sys.modules} & late, sys.modules;"
        "assert 'msgspec' not in early; redbox.consumer.Guard; assert 'redis' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- what the publisher sends, and the consumer reads ----------------------------------------------------------


async def delivered(options: dict[str, Any], *claims: Claim) -> tuple[list[Delivery], list[Any]]:
    """What a consumer reads of events that were published over HTTP, and the requests themselves."""
    async with http_target() as target, opened(target.url, secret=SECRET, **options) as publisher:
        assert list(await publisher.publish_many(claims)) == [None] * len(claims)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(signatures, "time", SimpleNamespace(time=lambda: CREATED_MS / 1000))  # that of test claims
            found = [verify_batch(each.headers, each.body, SECRET) for each in target.requests]
        return [delivery for each in found for delivery in each], target.requests


MODES: dict[str, dict[str, Any]] = {
    "binary": {},
    "structured": {"cloudevents": "structured"},
    "batch": {"batch": 10},
    "gzip": {"gzip": 1},
    "structured gzip": {"cloudevents": "structured", "gzip": 1},
}


@pytest.mark.req("CK-2")
@pytest.mark.parametrize("mode", MODES)
async def test_ordering_keys_stay_apart(redbox_runner, mode: str):
    """HTTP strips the spaces around a value, so the key is percent-encoded in its header."""
    keys = ["a", " a", "a ", "  a", "a%20", "%20a", "größe", "größe", "100%", 'a"b']
    deliveries, _ = await delivered(MODES[mode], *[new_claim(ordering_key=key) for key in keys])
    assert [each.ordering_key for each in deliveries] == keys


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("coding", ["gzip", "br", "GZIP", "br, gzip"])
async def test_an_event_with_a_content_encoding_of_its_own(redbox_runner, mode: str, coding: str):
    """The payload is that of the event, byte for byte: only the compression by the publisher is undone."""
    payload = gzip.compress(bytes(3000))
    claim = new_claim(payload, content_type="text/plain", headers={"content-Encoding": coding})
    (delivery,), (request,) = await delivered(MODES[mode], claim)
    assert delivery.payload == payload
    if mode in {"binary", "gzip"}:
        assert request.body == payload
        assert request.header("content-encoding") == request.header("redbox-content-encoding") == coding
    elif mode != "batch":  # the document is not encoded so
        assert request.header("content-encoding") == ("gzip" if "gzip" in mode else None)
        assert request.header("redbox-content-encoding") == coding
