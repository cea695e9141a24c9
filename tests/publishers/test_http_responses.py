"""The error that each HTTP response becomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import pytest

from redbox.errors import NotPublished, Reject, RetryLater, Unavailable
from redbox.publishers.http.responses import connection_error, response_error, retry_after
from redbox.publishers.redaction import redactor

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.mark.req("PC-4")
@pytest.mark.parametrize(
    ("status", "without", "with_delay"),
    [
        (101, NotPublished, RetryLater),
        (301, NotPublished, RetryLater),
        (304, NotPublished, RetryLater),
        (400, Reject, Reject),
        (401, Reject, Reject),
        (404, Reject, Reject),
        (407, Unavailable, Unavailable),
        (408, NotPublished, RetryLater),
        (410, Reject, Reject),
        (413, Reject, Reject),
        (422, Reject, Reject),
        (425, NotPublished, RetryLater),
        (429, Unavailable, Unavailable),
        (431, Reject, Reject),
        (499, Reject, Reject),
        (500, NotPublished, RetryLater),
        (501, NotPublished, RetryLater),
        (502, Unavailable, Unavailable),
        (503, Unavailable, Unavailable),
        (504, Unavailable, Unavailable),
        (599, NotPublished, RetryLater),
        (999, NotPublished, RetryLater),
    ],
)
def test_each_status_that_is_not_2xx(status: int, without: type, with_delay: type):
    problem = response_error(status, "", {}, b"", now=0.0)
    assert type(problem) is without
    assert str(problem).startswith(f"HTTP {status}")
    if isinstance(problem, Unavailable):
        assert problem.delay == 0
    if isinstance(problem, Reject):
        assert problem.kind == f"HTTP {status}"
        assert problem.blames_target is (status in (401, 403, 404, 405))
    later = response_error(status, "", {"retry-after": "9"}, b"", now=0.0)
    assert type(later) is with_delay
    if not isinstance(later, Reject):
        assert later.delay == 9


@pytest.mark.req("PC-4")
@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("120", 120.0),
        (" 5 ", 5.0),
        ("0", None),
        ("-5", None),
        ("999999", 3600.0),
        ("9" * 12, 3600.0),
        ("9" * 13, 3600.0),
        ("9" * 400, 3600.0),
        ("0" * 30, None),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
        ("", None),
        ("Wed, 99 Foo 2024 00:00:00 GMT", None),
        # With ids: all test processes must collect the same names.
        pytest.param(format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0, id="in 90 s"),
        pytest.param(format_datetime(NOW + timedelta(days=90), usegmt=True), 3600.0, id="in 90 days"),
        pytest.param(format_datetime(NOW - timedelta(seconds=90), usegmt=True), None, id="90 s ago"),
    ],
)
def test_retry_after(text: str, delay: float | None):
    assert retry_after({"retry-after": text, "date": format_datetime(NOW, usegmt=True)}, 0.0) == delay


def test_a_retry_date_without_a_date_header_is_compared_with_the_time_of_the_store():
    then = datetime(2031, 1, 1, tzinfo=UTC)
    found = retry_after({"retry-after": format_datetime(then, usegmt=True)}, then.timestamp() - 90)
    assert found == 90


@pytest.mark.parametrize(
    ("phrase", "body", "reason"),
    [
        ("Service Unavailable", b"", "HTTP 503 Service Unavailable"),
        ("", b"", "HTTP 503 Service Unavailable"),
        ("Out of\x1b[31m Tea", b"", "HTTP 503 Out of [31m Tea"),
        ("", b"no \x00 room\r\n\r\n here\xff", "HTTP 503 Service Unavailable: no room here�"),
        ("", "é".encode() * 600, "HTTP 503 Service Unavailable: " + "é" * 500),
    ],
)
def test_the_reason_is_readable_and_bounded(phrase: str, body: bytes, reason: str):
    assert str(response_error(503, phrase, {}, body, now=0.0)) == reason


def test_the_reason_of_a_redirect_names_its_location_without_the_query():
    def reason(location: str) -> str:
        return str(response_error(302, "Found", {"location": location}, b"<html>", now=0.0))

    start = "HTTP 302 Found: redirects are not followed (to "
    assert reason("https://login.example/sso?token=hush") == f"{start}https://login.example/sso)"
    assert reason("https://a:hush@login.example/sso#hush") == f"{start}https://login.example/sso)"
    assert reason("/services/T00000000/B00000000/hushHUSHhush0123") == f"{start}/services/T00…/B00…/hus…)"
    assert reason("http://[hush") == f"{start}[redacted])"
    assert reason("") == "HTTP 302 Found: redirects are not followed"


def test_secrets_that_a_response_repeats_are_redacted_before_it_is_cut():
    redact = redactor(["Bearer t0ken"])
    body = b"x" * 495 + b"Bearer t0ken"
    problem = response_error(401, "Not Bearer t0ken", {}, body, now=0.0, redact=redact)
    assert str(problem) == "HTTP 401 Not [redacted]: " + "x" * 495 + "[reda"


def test_the_message_of_a_client_error_is_redacted():
    problem = connection_error(aiohttp.ClientOSError(104, "reset by https://h/?token=hush"), redactor(["hush"]))
    assert str(problem) == "the connection broke: reset by https://h/?token=[redacted]"
    assert (
        str(connection_error(aiohttp.ClientPayloadError("hush"), redactor(["hush"])))
        == "ClientPayloadError: [redacted]"
    )
