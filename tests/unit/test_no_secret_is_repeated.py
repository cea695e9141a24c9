"""A mistyped URL may have a password anywhere: no error, traceback, log line, repr or output repeats it."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.exceptions import ResponseError

from redbox import Box, Event, Relay, open_publisher
from redbox.cli.app import cli
from redbox.cli.relay import config
from redbox.errors import RedboxError, StoreUnavailable
from redbox.publishers.http.publisher import HTTPPublisher
from redbox.publishers.redis_stream import _problem
from redbox.store import connect
from redbox.store.errors import translate
from tests.proxy import refusing_server

MARKER = "hunter2"

#: Schemes, as they are and as they are mistyped.
SCHEMES = [
    "redis", "rediss", "unix", "redis+cluster", "redis+sentinel", "rediss+sentinel", "redis+stream", "rediss+stream",
    "embedded", "memory", "https", "http", "rdis", "", "stdout", "null",
    "nats", "tls", "nats+tls", "kafka",
]  # fmt: skip
SLASHES = ["://", ":/", ":", "//", ":///", ": //"]
#: Where a login with the marker is followed by one of its mangled hosts.
LOGINS = [
    f":{MARKER}@", f"user:{MARKER}@", f":{MARKER}/x@", f":{MARKER}#x@", f":{MARKER}?x@", f":{MARKER}?x=y@",
    f"u:1/{MARKER}@", f"u:1#{MARKER}@", f"u:1?{MARKER}@", f"u:1?x={MARKER}@", f"u:{MARKER}:x@", f":[{MARKER}@",
    f":{MARKER}]@", f":\u2100{MARKER}@", f":{MARKER}%zz@", f":{MARKER}\n@", f":{MARKER} @", f":p@{MARKER}@",
    f"u:1/0/{MARKER}@", f"u:1/0?password={MARKER}&x@", f":${{{MARKER}@", f"\ud800:{MARKER}@", f":{MARKER}@@",
    f":{MARKER}\x00@", f":{MARKER}\x1b@",
]  # fmt: skip
HOSTS = [
    "db",
    "host:port:port",
    "host:99999",
    "db:6379",
    "[::1",
    "a..b",
    "x" * 70,
    "",
    ",",
    "h\u2100st",
    "db:6379,other:x",
]
TAILS = [
    "",
    "/0",
    "/x",
    "/0/stream",
    "/mymaster",
    "/mymaster/zero",
    "?nonsense=1",
    "/0?socket_timeout=soon",
    "/0?db=x",
    "#x",
    "/0?x",
]
OPTIONS = [
    "",
    f"?password={MARKER}",
    f"?pass={MARKER}",
    f"?{MARKER}=1",
    f"?socket_timeout={MARKER}",
    f"?db={MARKER}&password=x",
]

urls = st.builds(
    lambda *parts: "".join(parts),
    st.sampled_from(SCHEMES), st.sampled_from(SLASHES), st.sampled_from(LOGINS), st.sampled_from(HOSTS),
    st.sampled_from(TAILS), st.sampled_from(OPTIONS),
)  # fmt: skip
thorough = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def every_text(call: Callable[[], Any]) -> str:
    """Returns every text in which the result or the error of a call may be assert_no_secret."""
    try:
        return repr(call())
    except RedboxError as error:
        return f"{error} {error!r} {''.join(traceback.format_exception(error))}"


def assert_no_secret(text: str) -> None:
    __tracebackhide__ = True
    # A traceback prints the source line that made the URL, so that line must not contain the marker itself.
    assert MARKER not in text


@given(url=urls)
@thorough
def test_a_store_url_is_never_repeated(url: str):
    assert_no_secret(every_text(lambda: Box.open(url)))
    assert_no_secret(every_text(lambda: connect.describe(url)))


@pytest.mark.parametrize("scheme", ["redis://db/0", "unix:///run/redis.sock", "redis+cluster://db:6379"])
@pytest.mark.parametrize(
    "options", [f"{MARKER}=1", f"db=0&{MARKER}=1", f"socket_timeout={MARKER}", f"protocol={MARKER}"]
)
def test_an_option_of_a_store_url_is_never_repeated(scheme: str, options: str):
    """The text after a question mark may be the rest of a password."""
    text = every_text(lambda: Box.open(f"{scheme}?{options}"))
    assert "InvalidURL" in text
    assert_no_secret(text)


@given(url=urls)
@thorough
def test_a_target_is_never_repeated(url: str):
    def relay() -> object:
        publisher = open_publisher(url)
        if MARKER in urlsplit(publisher.target).path and url.startswith("http"):
            return None  # an @ may be part of a path, which is assert_no_secret
        return publisher, publisher.target, Relay(Box.open("memory:"), publisher)

    assert_no_secret(every_text(relay))


@given(url=urls)
@thorough
def test_an_option_of_the_data_source_is_never_repeated(url: str):
    pytest.importorskip("pyspark")
    from redbox.pipeline.source.options import read_options

    assert_no_secret(every_text(lambda: read_options({"url": url, "box": "orders"})))
    assert_no_secret(every_text(lambda: read_options({"url": url, "box": "orders", "slice": "many"})))


@given(
    url=urls,
    option=st.sampled_from(
        ["--url", "REDBOX_URL", "--to", "--dead-to", "--alerts-to", "url", "to", "dead_to", "alerts_to"]
    ),
)
@settings(thorough, max_examples=150)
def test_the_command_line_never_repeats_a_url(
    url: str, option: str, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    directory = tmp_path_factory.mktemp("cli")
    if option in ("url", "to", "dead_to", "alerts_to"):
        assert_no_secret(_from_file(directory / "redbox.toml", option, url))
        return
    store = ["--url", "memory:"] if option != "REDBOX_URL" else []
    if option == "--url":
        store = ["--url", url]
    # `relay --check` and other commands would connect: an invalid box name ends every call before that.
    command = ["--debug", *store, "--box", "no box", "relay", "--once"]
    command += [option, url] if option in ("--to", "--dead-to", "--alerts-to") else []
    command += ["--to", "null:"] if option != "--to" else []
    surrogates = any("\ud800" <= char <= "\udfff" or char == "\x00" for char in url)
    if option == "REDBOX_URL" and surrogates:
        return  # no environment holds it
    environment = {"REDBOX_URL": url if option == "REDBOX_URL" else None}
    result = CliRunner().invoke(cli, command, env=environment)
    assert result.exit_code == 2
    assert_no_secret(result.output + result.stderr + caplog.text)
    assert_no_secret("".join(traceback.format_exception(result.exception)) if result.exception else "")


def _from_file(path: Path, field: str, url: str) -> str:
    lines = {"to": "null:", field: url}
    path.write_text("[[relay]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items()))

    def load() -> object:
        found = config.load(path)
        return found, config.open_relays(path, found, lambda: "memory:")

    return every_text(load)


async def _unknown_to_the_server(url: str) -> RedboxError:
    async with Box.open(url) as box:
        try:
            await box.put(Event("a"))
        except RedboxError as error:
            return error
    raise AssertionError("the server takes no command")


@pytest.mark.parametrize("greets", [True, False])
def test_a_server_that_does_not_know_the_login_is_not_quoted(greets: bool, caplog: pytest.LogCaptureFixture):
    """Servers repeat the arguments of an unknown command."""
    caplog.set_level(logging.DEBUG)
    answer = f"ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'ada' '{MARKER}' ".encode()

    async def ask() -> RedboxError:
        async with refusing_server(answer, greets=greets) as url:
            return await _unknown_to_the_server(url.replace("redis://", f"redis://ada:{MARKER}@"))

    error = asyncio.run(ask())
    assert_no_secret(f"{''.join(traceback.format_exception(error))} {caplog.text}")
    for make in (lambda each: translate(each, where="redis://h", box="b", maybe=False), _problem):
        assert_no_secret(
            "".join(
                traceback.format_exception(
                    make(ResponseError(f"unknown command 'AUTH', with args beginning with: '{MARKER}'"))
                )
            )
        )


@pytest.mark.parametrize(
    "proxy", [f"http://u:{MARKER}@host:port", f"foo://u:{MARKER}@h", f"http://u:{MARKER}/x@h", f"u:{MARKER}@[h"]
)
def test_a_proxy_is_never_repeated(monkeypatch: pytest.MonkeyPatch, proxy: str):
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("HTTP_PROXY", proxy)

    def opened() -> None:
        publisher = HTTPPublisher("http://example.org/")
        asyncio.run(publisher.open("orders"))

    assert_no_secret(every_text(opened))


def test_an_invalid_host_is_refused_before_it_is_resolved():
    for host in ("a..b", "x" * 70):
        with pytest.raises(RedboxError, match="its host cannot be parsed"):
            Box.open(f"redis://{host}/0")


def test_an_unreachable_store_is_still_named():
    async def ask() -> RedboxError:
        return await _unknown_to_the_server(f"redis://ada:{MARKER}@127.0.0.1:1/0?socket_timeout=1")

    error = asyncio.run(ask())
    assert isinstance(error, StoreUnavailable)
    assert "redis://***@127.0.0.1:1/0?socket_timeout=1 cannot be reached" in str(error)
    assert_no_secret("".join(traceback.format_exception(error)))
