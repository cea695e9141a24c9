"""Targets on public addresses only: which addresses count, and that no connection to another one is made."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import aiohttp
import pytest

from redbox import open_publisher
from redbox.errors import NotPublished, Unavailable, UsageError
from redbox.publishers.http.addresses import is_public
from redbox.testing.claims import new_claim
from tests.publishers.conftest import opened
from tests.publishers.target import http_target

pytestmark = pytest.mark.req("SF-5")

PUBLIC = ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
PRIVATE = [
    "127.0.0.1", "127.8.9.10", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.0.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "100.127.255.255", "192.0.0.192", "192.0.2.1",
    "198.18.0.1", "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255", "168.63.129.16",
    "::1", "::", "fe80::1", "fe80::1%lo", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "100::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "2002:7f00:1::1", "2002:a00:1::",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2001:0:0:0:0:0:f5ff:fffe",
]  # fmt: skip


@pytest.mark.parametrize("text", PUBLIC)
def test_an_address_of_the_internet_is_public(text: str):
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PRIVATE)
def test_any_other_address_is_not(text: str):
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("deny", [True, "true"])
@pytest.mark.parametrize("host", ["localhost", "localhost."])
async def test_a_private_address_is_not_connected_to(redbox_runner, host: str, deny: Any):
    async with http_target() as target:
        url = f"http://{host}:{target.port}/hook"
        async with opened(url, deny_private=deny) as publisher:
            with pytest.raises(NotPublished, match=r"not public|cannot be resolved|not a canonical"):
                await publisher.publish(new_claim())
        assert not target.requests
        async with opened(target.url, deny_private=False) as publisher:
            await publisher.publish(new_claim())


@pytest.mark.parametrize("deny", [True, "true"])
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0"],
)
def test_a_url_with_a_private_address_is_refused_at_once(host: str, deny: Any):
    with pytest.raises(UsageError, match=r"is not public, .*; give a public address, or leave out deny_private"):
        open_publisher(f"http://{host}:8000/hook", deny_private=deny)
    open_publisher("http://1.1.1.1/hook", deny_private=deny)
    open_publisher(f"http://{host}:8000/hook")


async def test_a_name_that_changes_its_address_does_not_pass(redbox_runner, monkeypatch: pytest.MonkeyPatch):
    """The address is checked when it is connected to, not when the name is looked at first."""
    async with http_target() as target:
        answers = iter(["::ffff:127.0.0.1", "127.0.0.1"])

        async def resolve(_: Any, host: str, port: int = 0, family: int = 0) -> list[Any]:
            address = next(answers)
            kind = socket.AF_INET6 if ":" in address else socket.AF_INET
            return [
                {"hostname": host, "host": address, "port": port, "family": kind, "proto": 0, "flags": 0},
            ]  # fmt: skip

        monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", resolve)
        for _ in range(2):
            async with opened(f"http://hooks.example.com:{target.port}/hook", deny_private=True) as publisher:
                with pytest.raises(Unavailable, match="not public"):
                    await publisher.publish(new_claim())
        assert not target.requests


async def test_a_proxy_is_refused_since_it_resolves_the_name(redbox_runner, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128")
    with pytest.raises(UsageError, match="deny_private cannot be combined with a proxy"):
        async with opened("https://hooks.example.com/", deny_private=True):
            pass


async def test_the_option_is_true_or_false(redbox_runner):
    with pytest.raises(UsageError, match="deny_private"):
        async with opened("https://hooks.example.com/", deny_private="yes"):
            pass
