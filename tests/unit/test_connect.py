"""URLs and clients: what is refused before anything is sent, in words that say what to do and keep secrets."""

from __future__ import annotations

import logging
import sys
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio

from redbox import Box
from redbox.errors import InvalidURL, MissingExtra, StoreUnavailable, UsageError
from redbox.store import connect
from redbox.sync import Box as SyncBox

pytestmark = pytest.mark.usefixtures("redbox_runner")

SECRET = "hunter2"


# --- URLs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost", "redis://localhost"),
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://localhost/", "redis://localhost/"),
        ("redis+cluster://a:1/0", "redis+cluster://a:1/0"),
        ("redis://:hunter2@localhost:6379/0", "redis://***@localhost:6379/0"),
        (
            "rediss://ada:hunter2@db.example:6380/2?ssl_ca_certs=/ca.pem",
            "rediss://***@db.example:6380/2?ssl_ca_certs=/ca.pem",
        ),
        ("redis://:p%40ss@word@localhost/0", "redis://***@localhost/0"),
        ("unix:///run/redis.sock?db=1&password=hunter2", "unix:///run/redis.sock?db=1&password=***"),
        ("unix:///run/redis.sock?password=hunter2&db=1", "unix:///run/redis.sock?password=***&db=1"),
        ("redis+cluster://ada:hunter2@a:1,b:2", "redis+cluster://***@a:1,b:2"),
        ("rediss+cluster://a:1,b:2", "rediss+cluster://a:1,b:2"),
        ("redis+sentinel://:hunter2@a:1,b:2,c/mymaster/3", "redis+sentinel://***@a:1,b:2,c/mymaster/3"),
        ("embedded:./data", "embedded:./data"),
        ("embedded:///var/lib/redbox", "embedded:/var/lib/redbox"),
        ("memory:", "memory:"),
        ("memory:shared", "memory:shared"),
    ],
)
def test_a_url_is_described_without_its_secrets(url: str, shown: str):
    endpoint = connect.from_url(url)
    assert endpoint.description == shown
    assert repr(endpoint) == f"Endpoint({shown})"


@pytest.mark.parametrize("url", ["localhost", "", None, 6379, b"redis://localhost"])
def test_an_invalid_url_names_the_valid_schemes(url: Any):
    with pytest.raises(InvalidURL, match=r"is not a store URL; use one of redis://, .*embedded:<dir>, memory:"):
        connect.from_url(url)


@pytest.mark.parametrize("url", ["http://localhost", "mysql://u:hunter2@db/x", "cluster://a:1"])
def test_an_unknown_scheme_lists_the_known_ones(url: str):
    with pytest.raises(InvalidURL, match=r"this is not a store URL; use one of redis://, .*memory:"):
        connect.from_url(url)


@pytest.mark.parametrize("url", ["redis:db.example:6379/0", "rediss:db.example", "unix:/run/redis.sock"])
def test_a_url_without_its_slashes_is_refused_and_does_not_mean_localhost(url: str):
    with pytest.raises(InvalidURL):
        connect.from_url(url)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("redis://localhost:port", "valid store URL"),
        ("redis://localhost:99999", "valid store URL"),
        ("redis+cluster://", "a host is missing"),
        ("redis+cluster://a:1,,b:2", "a host is missing"),
        ("redis+sentinel://a:1", "redis+sentinel://host:port/service/db"),
        ("redis+sentinel://a:1/mymaster/zero", "the database must be a whole number"),
        ("redis+sentinel://a:1/mymaster/-1", "the database must be a whole number"),
        ("redis://localhost/x", "the database must be a whole number, such as redis://host:6379/0"),
        ("rediss://localhost/x", "the database must be a whole number"),
        ("redis://localhost/x?db=1", "the database must be a whole number"),
        ("redis://localhost/1/2", "the database must be a whole number"),
        ("redis://localhost/-1", "the database must be a whole number"),
        ("redis://localhost/\u00b2", "the database must be a whole number"),
        ("redis://:a/b@localhost/0", "%2F for /"),
        ("redis+cluster://a:1/1", "a cluster has only database 0"),
        ("redis+cluster://a:1/x", "a cluster has only database 0"),
        ("redis://localhost?foo=1", "refused an option after the ?"),
        ("redis+cluster://localhost?foo=1", "refused an option after the ?"),
        ("redis+sentinel://localhost/mymaster?foo=1", "refused an option after the ?"),
        ("unix:///s?foo=1", "refused an option after the ?"),
        ("embedded:", "embedded:./data"),
        ("redis+cluster://a:port", "valid store URL"),
    ],
)
def test_a_url_that_cannot_be_right_is_refused_when_the_box_is_opened(url: str, hint: str):
    with pytest.raises(InvalidURL) as caught:
        Box.open(url)
    assert hint in str(caught.value)
    assert "__init__" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2@localhost:port/0",
        "redis://ada:hunter2@localhost:99999/0",
        "redis+cluster://ada:hunter2@:1",
        "redis+cluster://ada:hunter2@a:port",
        "redis+sentinel://ada:hunter2@a:1",
        "redis+sentinel://ada:hunter2@a:1/mymaster/zero",
        "gopher://ada:hunter2@a",
        "unix:///s?db=zero&password=hunter2",
        "redis://ada:hunter2@localhost/x",
        "redis://ada:a/hunter2@localhost/0",
        "redis://localhost/0?pass=hunter2",
        "redis://localhost/0?socket_timeout=soon&password=hunter2",
    ],
)
def test_no_error_about_a_url_holds_its_password(url: str):
    with pytest.raises(InvalidURL) as caught:
        Box.open(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None  # a traceback shows causes too
    assert caught.value.__context__ is None or caught.value.__suppress_context__


async def test_an_unreachable_server_is_named_without_its_password(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    box = Box.open(f"redis://ada:{SECRET}@127.0.0.1:1/0", name="orders")
    assert repr(box) == "Box('orders' on redis://***@127.0.0.1:1/0)"
    async with box:
        with pytest.raises(StoreUnavailable) as caught:
            await box.stats()
    assert "redis://***@127.0.0.1:1/0 cannot be reached" in str(caught.value)
    chain: BaseException | None = caught.value
    while chain is not None:
        assert SECRET not in f"{chain!r} {chain}"
        chain = chain.__cause__ or chain.__context__
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("netloc", "hosts"),
    [
        ("a", [("a", 6379)]),
        ("a:1", [("a", 1)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        ("ada:pw@a:1,b", [("a", 1), ("b", 6379)]),
        ("[::1]:1,b:2", [("::1", 1), ("b", 2)]),
    ],
)
def test_hosts(netloc: str, hosts: list[tuple[str, int]]):
    assert connect._hosts(netloc, 6379) == hosts


@pytest.mark.parametrize(
    ("netloc", "username", "password"),
    [
        ("ada:pw@a", "ada", "pw"),
        (":pw@a", None, "pw"),
        ("ada:p%40%3A@a:1,b:2", "ada", "p@:"),
        ("ada:p@w@a", "ada", "p@w"),
    ],
)
def test_credentials(netloc: str, username: str | None, password: str):
    assert connect._credentials(netloc) == {"username": username, "password": password}


def test_without_credentials_there_are_none():
    assert connect._credentials("a:1,b:2") == {}


def test_options_after_the_question_mark():
    options = connect._options("socket_timeout=2.5&ssl_ca_certs=/ca.pem&client_name=7")
    assert options == {"socket_timeout": 2.5, "ssl_ca_certs": "/ca.pem", "client_name": "7"}


async def test_opening_a_box_does_no_io():
    async with Box.open("redis://127.0.0.1:1/0") as box:
        assert box.name == "default"


def test_memory_without_fakeredis_prints_the_pip_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "fakeredis", None)
    with pytest.raises(MissingExtra, match=r"pip install 'redbox-outbox\[testing\]'"):
        connect.from_url("memory:")


# --- clients ---------------------------------------------------------------------------------------------------


def test_a_client_that_blocks_is_refused():
    with redis.Redis() as client, pytest.raises(UsageError, match=r"redis\.asyncio client, not redis\.client\.Redis"):
        Box.open(client=client)


@pytest.mark.parametrize("client", ["redis://localhost", object()])
def test_an_object_that_is_not_a_client_is_refused(client: Any):
    with pytest.raises(UsageError, match=r"must be a redis\.asyncio client"):
        Box.open(client=client)


async def test_a_client_that_decodes_is_refused():
    client = redis.asyncio.Redis(decode_responses=True)
    with pytest.raises(UsageError, match="decode_responses=True"):
        Box.open(client=client)
    await client.aclose()


async def test_a_cluster_client_that_decodes_is_refused():
    client = redis.asyncio.RedisCluster("127.0.0.1", 1, decode_responses=True)
    with pytest.raises(UsageError, match="decode_responses=True"):
        Box.open(client=client)
    await client.aclose()


async def test_the_description_of_a_client_has_no_secrets():
    client = redis.asyncio.Redis(password=SECRET)
    assert repr(Box.open(client=client)) == "Box('default' on the application's Redis client)"
    await client.aclose()


@pytest.mark.parametrize("max_payload", [0, -1, 8 * 1024 * 1024 + 1])
def test_max_payload_is_bounded(max_payload: int):
    with pytest.raises(UsageError, match="max_payload"):
        Box.open("memory:", max_payload=max_payload)


# --- the environment -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Box, SyncBox])
def test_without_a_url_the_environment_names_the_store(kind: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REDBOX_URL", "redis://:hunter2@db.example:6380/2")
    assert "redis://***@db.example:6380/2" in repr(kind.open(name="orders"))
    assert "memory:" in repr(kind.open("memory:"))
    assert "FakeRedis" in repr(kind.open(client=fakeredis.FakeAsyncRedis()))
    with pytest.raises(UsageError, match=r"give either a URL .* or client=your_redis, not both"):
        kind.open("memory:", client=fakeredis.FakeAsyncRedis())


@pytest.mark.parametrize("kind", [Box, SyncBox])
@pytest.mark.parametrize("value", [None, ""])
def test_without_any_url_the_error_names_the_variable(kind: Any, value: str | None, monkeypatch: pytest.MonkeyPatch):
    if value is None:
        monkeypatch.delenv("REDBOX_URL", raising=False)
    else:
        monkeypatch.setenv("REDBOX_URL", value)
    with pytest.raises(UsageError, match=r"give a URL .* or set the environment variable REDBOX_URL"):
        kind.open()


@pytest.mark.parametrize("url", ["embedded:a\0b", "embedded:\0", "embedded:/tmp/\ud800"])
def test_an_embedded_directory_that_cannot_exist(url: str):
    with pytest.raises(InvalidURL, match="embedded: does not name a directory"):
        connect.from_url(url)
