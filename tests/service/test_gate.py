"""Web pages of others: a browser sends their requests, but they are refused. Every response has protecting headers."""

from __future__ import annotations

import pytest

from redbox import Box
from redbox.service.http.headers import SECURITY
from tests.service.exchange import EVENT, OPERATE, QUIET, Response, exchange, request, serving, tokens

pytestmark = [pytest.mark.req("SF-5"), pytest.mark.timeout(30), QUIET]


def assert_refused(response: Response, status: int) -> None:
    assert response.status == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json["status"] == status


async def test_a_name_that_was_pointed_here_is_refused(redbox_box: Box):
    """DNS rebinding: the name of a page resolves to this address, so that the page is of the same origin."""
    hosts = [
        "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]",
        "localhost@evil.example", "localhost:80@evil.example", "0.0.0.0",
    ]  # fmt: skip
    async with serving(redbox_box) as server:
        for host in hosts:
            assert_refused(await request(server, "POST", "/v1/events", EVENT, host=host), 421)
        for path in ("/v1", "/livez", "/metrics", "/schema", "/"):
            assert_refused(await request(server, "GET", path, host="evil.example"), 421)
    assert not await redbox_box.exists()


async def test_on_all_addresses_every_address_is_accepted_but_no_other_name(redbox_box: Box):
    async with serving(redbox_box, host_names=("0.0.0.0", "box.example")) as server:
        for host, status in (("10.1.2.3:80", 200), ("[fd00::7]", 200), ("box.example", 200), ("evil.example", 421)):
            assert (await request(server, "GET", "/v1", host=host)).status == status, host


async def test_a_request_has_one_host(redbox_box: Box):
    async with serving(redbox_box) as server:
        for hosts in (b"", b"Host: localhost\r\nHost: evil.example\r\n", b"Host: \r\n"):
            response = await exchange(server, b"GET /v1 HTTP/1.1\r\nConnection: close\r\n" + hosts + b"\r\n")
            assert response.status in (400, 421), hosts


FOREIGN: list[dict[str, str]] = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},  # another service of this machine
    {"origin": "http://localhost"},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"},  # a form
]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/json"])
async def test_a_page_of_another_origin_changes_nothing(redbox_box: Box, content_type: str):
    async with serving(redbox_box) as server:
        for headers in FOREIGN:
            for path, body in (("/v1/events", EVENT), ("/v1/boxes/test/pause", b'{"why": "a test"}')):
                response = await request(server, "POST", path, body, content_type=content_type, **headers)
                assert_refused(response, 403)
    assert not await redbox_box.exists()


async def test_the_dashboard_and_other_programs_change_what_they_may(redbox_box: Box):
    async with serving(redbox_box, tokens=tokens()) as server:
        login = {"authorization": f"Bearer {OPERATE}"}
        own = {"origin": f"http://127.0.0.1:{server.port}", "sec_fetch_site": "same-origin"}
        for headers in (own, {}, {"sec_fetch_site": "none"}):
            assert (await request(server, "POST", "/v1/events", EVENT, **login, **headers)).status == 202


async def test_a_page_may_link_here_and_nothing_else(redbox_box: Box):
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    async with serving(redbox_box) as server:
        assert (await request(server, "GET", "/v1", **link)).status == 200
        for changed in ({"sec_fetch_dest": "iframe"}, {"sec_fetch_mode": "no-cors"}, {"sec_fetch_mode": "cors"}):
            assert_refused(await request(server, "GET", "/v1", **{**link, **changed}), 403)


async def test_no_other_origin_is_permitted_to_read(redbox_box: Box):
    async with serving(redbox_box) as server:
        for method in ("GET", "HEAD", "OPTIONS"):
            response = await request(server, method, "/v1", origin="https://evil.example")
            assert response.status == 403
            assert not [name for name in response.headers if name.startswith("access-control-")]


async def test_a_page_of_the_service_may_read(redbox_box: Box):
    """Also behind a proxy that ends TLS: the scheme is not known here."""
    async with serving(redbox_box) as server:
        for scheme in ("http", "https"):
            assert (await request(server, "GET", "/v1", origin=f"{scheme}://127.0.0.1:{server.port}")).status == 200


async def test_every_response_has_the_headers(redbox_box: Box):
    requests = [
        ("GET", "/v1", 200), ("GET", "/nothing", 404), ("PUT", "/v1", 405), ("POST", "/v1/events", 422),
        ("GET", "/livez", 200), ("GET", "/metrics", 200), ("GET", "/schema", 200),
    ]  # fmt: skip
    async with serving(redbox_box) as server:
        for method, path, status in requests:
            response = await request(server, method, path)
            assert response.status == status, path
            assert_protected(response)
        for raw in (b"not HTTP\r\n\r\n", b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"):
            assert_protected(await exchange(server, raw))


def assert_protected(response: Response) -> None:
    for name, value in SECURITY:
        assert response.headers[name.decode()] == value.decode()
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
