"""Publishers by URL: redbox's own, those of other packages, and unknown ones."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from redbox.errors import InvalidURL, MissingExtra, UsageError
from redbox.publishers import registry
from redbox.publishers.base import Publisher
from redbox.publishers.null import NullPublisher
from redbox.publishers.registry import SCHEMES, open_expanded, open_publisher, secret_options

URLS = {
    "https": "https://shop.example/hook",
    "http": "HTTP://shop.example/hook",
    "redis+stream": "redis+stream://host:6379/0/shop",
    "rediss+stream": "rediss+stream://host:6379/0/shop",
    "amqps": "amqps://host/%2F/shop",
    "amqp": "amqp://host/%2F/shop",
    "nats": "nats://host:4222/shop",
    "tls": "tls://host:4222/shop",
    "nats+tls": "nats+tls://host/orders.{event_type}",
    "kafka": "kafka://host:9092,other/shop",
    "box": "box:billing",
    "box+redis": "box+redis://host:6379/0/billing",
    "box+rediss": "BOX+REDISS://host:6379/0/billing",
    "stdout": "stdout:",
    "null": "null:",
    "python": f"python:{__name__}:publish",
}


async def publish(event: Any) -> None:
    pass


class Acme(NullPublisher):
    secrets = frozenset({"token"})

    def __init__(self, url: str, *, token: str = "") -> None:
        super().__init__()
        self.url, self.token = url, token


def make_anything(url: str, **options: Any) -> Any:
    return options


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_opens(scheme: str):
    assert isinstance(open_publisher(URLS[scheme]), Publisher)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_unknown_option_is_refused_with_those_that_exist(scheme: str):
    with pytest.raises(UsageError, match=rf"{scheme.replace('+', '.')}: has no option 'colour'; it has \w+"):
        open_publisher(URLS[scheme], colour="red")


@pytest.mark.parametrize("url", ["sqs://host/topic", "ftp:x", "localhost:8080/hook", "://x"])
def test_an_unknown_scheme_is_refused_with_those_that_exist(url: str):
    with pytest.raises(InvalidURL, match=r"https://, http://, redis.stream://.*stdout:, null:, python:module:function"):
        open_publisher(url)


def test_text_that_is_not_a_url_is_not_repeated():
    with pytest.raises(InvalidURL, match="a target is a URL that begins with one of https://") as caught:
        open_publisher("hush")
    assert "hush" not in str(caught.value)


def test_the_secret_options_of_a_target():
    assert secret_options("https://shop.example/") == {"secret", "authorization"}
    assert secret_options("stdout:") == secret_options(f"python:{__name__}:publish") == frozenset()


@pytest.mark.parametrize("value", ["${HOOK_SECRET}", "Bearer ${HOOK_SECRET}", "file:secrets/hook"])
def test_placeholders_in_python_are_refused(value: str):
    """They would be taken literally: only the command line and redbox.toml replace them."""
    with pytest.raises(UsageError) as caught:
        open_publisher(URLS["https"], authorization=value)
    assert caught.value.argument == "authorization"
    expected = "in Python pass the value itself, such as os.environ['HOOK_SECRET']"
    assert str(caught.value).startswith("authorization: ")
    assert str(caught.value).endswith(expected if "$" in value else "in Python pass the content of the file")


def test_placeholders_in_other_options_and_urls_are_refused_too():
    with pytest.raises(UsageError, match=r"^source: \$\{SOURCE\} is replaced only on the command line and in"):
        open_publisher(URLS["https"], source="${SOURCE}")
    with pytest.raises(InvalidURL, match=r"\$\{PASSWORD\} is replaced only on the command line and in redbox.toml;"):
        open_publisher("https://me:${PASSWORD}@shop.example/")
    assert open_publisher(URLS["https"], source="file:x", authorization="costs $5 {x}")
    assert open_expanded(URLS["https"], authorization="Bearer ${as_it_is}")


@pytest.mark.parametrize(
    ("url", "extra", "package"),
    [
        ("https://shop.example/", "http", "aiohttp"),
        ("nats://host", "nats", "nats"),
        ("kafka://host/shop", "kafka", "confluent_kafka"),
    ],
)
def test_a_missing_extra_prints_the_pip_command(monkeypatch: pytest.MonkeyPatch, url: str, extra: str, package: str):
    for name in list(sys.modules):
        if name.startswith((f"{package}.", f"redbox.publishers.{extra}")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    scheme = url.partition("://")[0]
    with pytest.raises(MissingExtra, match=rf"the target {scheme}:// needs .*pip install 'redbox-outbox\[{extra}\]'"):
        open_publisher(url)


def test_a_publisher_is_imported_when_it_is_needed():
    program = "import sys, redbox.publishers.registry as r; r.open_publisher('null:'); print('aiohttp' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "False"


def test_every_factory_in_the_table_exists():
    for scheme in SCHEMES.values():
        assert callable(getattr(import_module(scheme.module), scheme.factory))


# --- publishers of other packages ------------------------------------------------------------------------------


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    here = __name__
    found = {
        "acme": f"{here}:Acme",
        "anything": f"{here}:make_anything",
        "broken": "redbox_nothing:Publisher",
        "null": f"{here}:Acme",
    }
    entries = [EntryPoint(name, value, registry.GROUP) for name, value in found.items()]
    monkeypatch.setattr(registry, "entry_points", lambda **which: EntryPoints(entries).select(**which))
    monkeypatch.setitem(sys.modules, here, sys.modules[here])


def test_a_publisher_of_another_package(others: None):
    publisher = open_publisher("acme://there", token="x")
    assert isinstance(publisher, Acme)
    assert (publisher.url, publisher.token) == ("acme://there", "x")
    assert secret_options("acme://there") == {"token"}
    with pytest.raises(UsageError, match="acme: has no option 'colour'; it has token"):
        open_publisher("acme://there", colour="red")
    with pytest.raises(InvalidURL, match="acme:, anything:, broken:"):
        open_publisher("nobody:")


def test_a_publisher_of_another_package_may_use_placeholders_of_its_own_except_in_secrets(others: None):
    assert open_publisher("acme://there/${event_type}")
    with pytest.raises(UsageError, match=r"^token: \$\{TOKEN\} is replaced only on the command line"):
        open_publisher("acme://there", token="${TOKEN}")


def test_redboxs_own_publishers_come_first(others: None):
    assert type(open_publisher("null:")) is NullPublisher


def test_broken_publishers_of_other_packages(others: None):
    with pytest.raises(UsageError, match=r"the publisher for broken: \(redbox_nothing:Publisher\) cannot be loaded"):
        open_publisher("broken:")
    with pytest.raises(UsageError, match="did not return a redbox Publisher"):
        open_publisher("anything:", colour="red")
