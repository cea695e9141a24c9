"""Who may do what: scopes, and the answers to callers without them."""

from __future__ import annotations

from typing import Any

import pytest
from litestar.routes import HTTPRoute

from redbox import Box
from redbox.service.app import create_app
from redbox.service.boxes import Boxes
from redbox.service.options import ServiceOptions
from tests.service.exchange import EVENT, INGEST, OPERATE, QUIET, READ, request, serving, tokens

pytestmark = [pytest.mark.req("SF-5"), pytest.mark.timeout(30), QUIET]

#: Everyone may ask these: they show nothing of the events.
PUBLIC = ("/livez", "/readyz", "/healthz", "/schema", "/static", "/favicon.ico")


#: They check the scope themselves: test_ingest_checks_the_scope_on_every_path.
INGEST_PATHS = {
    f"{below}/events{kind}": f"{below.replace('{box:str}', 'unknown')}/events{kind}"
    for below in ("/v1", "/v1/boxes/{box:str}")
    for kind in ("", ":batch")
}


async def test_every_other_route_has_a_guard(redbox_box: Box):
    app = create_app(Boxes(redbox_box), ServiceOptions())
    unguarded = {
        route.path
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        if not handler.resolve_guards() and handler.http_methods != {"OPTIONS"}
    }
    assert {path for path in unguarded if not path.startswith(PUBLIC)} <= {"/", *INGEST_PATHS}


async def test_no_guard_runs_in_a_thread(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a thread was used")

    async with serving(redbox_box, tokens=tokens()) as server:
        monkeypatch.setattr("litestar.utils.sync.sync_to_thread", refuse)
        monkeypatch.setattr("litestar.concurrency.sync_to_thread", refuse)
        found = await request(server, "GET", "/v1/boxes/test/stats", authorization=f"Bearer {READ}")
        assert found.status == 200
        assert (await request(server, "GET", "/v1/boxes/test/stats")).status == 401


async def test_the_answer_to_options_names_every_method(redbox_box: Box):
    async with serving(redbox_box) as server:
        for path, methods in (
            ("/v1/boxes/test/events", "GET, OPTIONS, POST"),
            ("/v1/boxes/test/jobs", "GET, OPTIONS, POST"),
            ("/v1/boxes/test/settings", "GET, OPTIONS, PATCH"),
            ("/v1/events", "OPTIONS, POST"),
        ):
            assert (await request(server, "OPTIONS", path)).headers["allow"] == methods
            refused = await request(server, "PUT", path)
            assert refused.status == 405
            assert sorted(refused.headers["allow"].split(", ")) == methods.split(", ")


async def test_ingest_checks_the_scope_on_every_path(redbox_box: Box):
    async with serving(redbox_box, tokens=tokens()) as server:
        for path in INGEST_PATHS.values():
            assert (await request(server, "POST", path, EVENT)).status == 401
            assert (await request(server, "POST", path, EVENT, authorization=f"Bearer {READ}")).status == 403


@pytest.mark.parametrize(
    ("token", "statuses"),
    [(INGEST, (202, 403, 403)), (READ, (403, 200, 403)), (OPERATE, (202, 200, 200)), (None, (401, 401, 401))],
)
async def test_a_scope_permits_its_routes_only(redbox_box: Box, token: str | None, statuses: tuple[int, ...]):
    login = {} if token is None else {"authorization": f"Bearer {token}"}
    async with serving(redbox_box, tokens=tokens()) as server:
        put = await request(server, "POST", "/v1/events", EVENT, **login)
        read = await request(server, "GET", "/v1/boxes/test/stats", **login)
        pause = await request(server, "POST", "/v1/boxes/test/pause", b'{"why": "a test"}', **login)
    assert (put.status, read.status, pause.status) == statuses
    for response, scope in ((put, "ingest"), (read, "read"), (pause, "operate")):
        if response.status == 403:
            assert response.json["detail"].endswith(f"does not have the scope {scope}")
            assert f'scope="{scope}"' in response.headers["www-authenticate"]
        if response.status == 401:
            assert response.headers["www-authenticate"] == 'Bearer realm="redbox"'
            assert "Authorization: Bearer TOKEN" in response.json["detail"]


async def test_anything_but_a_known_token_is_refused(redbox_box: Box):
    values = ["Bearer", "Bearer ", f"Bearer {READ}x", f"Basic {READ}", READ, f"Bearer {READ} {READ}", "Bearer \xff\xfe"]
    async with serving(redbox_box, tokens=tokens()) as server:
        for value in values:
            response = await request(server, "GET", "/v1", authorization=value)
            assert response.status == 401, value
            assert 'error="invalid_token"' in response.headers["www-authenticate"]
            assert READ not in response.body.decode()


async def test_a_token_in_the_url_is_refused(redbox_box: Box):
    async with serving(redbox_box, tokens=tokens()) as server:
        assert (await request(server, "GET", f"/v1?access_token={READ}")).status == 401


async def test_the_name_of_the_token_is_in_the_log(redbox_box: Box):
    async with serving(redbox_box, tokens=tokens()) as server:
        login = {"authorization": f"bearer {OPERATE}"}
        await request(server, "POST", "/v1/events", EVENT, **login)
        await request(server, "POST", "/v1/boxes/test/pause", b'{"why": "a test"}', **login)
        log = await request(server, "GET", "/v1/boxes/test/log", **login)
    assert [entry["who"] for entry in log.json["entries"]] == ["alice"]


async def test_without_tokens_everyone_may_do_everything(redbox_box: Box):
    async with serving(redbox_box) as server:
        assert (await request(server, "POST", "/v1/events", EVENT)).status == 202
        assert set((await request(server, "GET", "/v1")).json["scopes"]) == {"ingest", "read", "operate"}
