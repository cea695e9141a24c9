"""The files of the dashboard: how they are served, and rules that they keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from redbox.service.pages import assets, pages

pytestmark = pytest.mark.req("SF-6")

FOLDER: Final = Path(__file__).parents[2] / "redbox" / "service" / "dashboard"
MODULES: Final = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.js"))
FIRST_PAINT: Final = 70_000  # bytes, compressed as every browser takes them; 150,000 are the limit of SF-6
#: Ways to turn text into markup or code, and to load from elsewhere.
FORBIDDEN: Final = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser|https?://(?!www\.w3\.org)"
)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    with TestClient(Litestar(route_handlers=[pages()], openapi_config=None)) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/static/main.js", "text/javascript; charset=utf-8"),
        ("/static/views/overview.js", "text/javascript; charset=utf-8"),
        ("/static/style.css", "text/css; charset=utf-8"),
        ("/static/icon.svg", "image/svg+xml"),
    ],
)
def test_each_file_has_its_type_and_forbids_what_it_does_not_need(client: TestClient[Any], path: str, media_type: str):
    response = client.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == media_type
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"


def test_a_file_that_has_not_changed_is_not_sent_again(client: TestClient[Any]):
    first = client.get("/static/main.js")
    again = client.get("/static/main.js", headers={"if-none-match": f'"other", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert client.get("/static/main.js", headers={"if-none-match": '"other"'}).status_code == 200


def test_files_are_compressed_for_clients_that_take_it(client: TestClient[Any]):
    small = client.get("/static/style.css", headers={"accept-encoding": "gzip"})
    plain = client.get("/static/style.css", headers={"accept-encoding": "identity"})
    assert small.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert small.content == plain.content == (FOLDER / "style.css").read_bytes()


def test_head_answers_like_get_without_a_body(client: TestClient[Any]):
    response = client.head("/")
    assert (response.status_code, response.content) == (200, b"")
    assert "etag" in response.headers


@pytest.mark.parametrize("path", ["nothing.js", "../pages.py", "..%2fpages.py", "%2e%2e/pages.py", "views", "views/"])
def test_nothing_but_the_files_of_the_dashboard_is_served(client: TestClient[Any], path: str):
    assert client.get(f"/static/{path}").status_code == 404


def test_the_first_paint_is_small():
    assert sum(len(asset.compressed) for asset in assets().values()) < FIRST_PAINT


def test_the_page_preloads_every_module():
    html = (FOLDER / "index.html").read_text()
    loaded = re.findall(r'"static/([\w/]+\.js)"', html)
    assert sorted(loaded) == MODULES


def test_the_page_has_no_inline_script_style_or_handler():
    html = (FOLDER / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", html)


@pytest.mark.parametrize("module", MODULES)
def test_no_module_turns_text_into_markup(module: str):
    found = FORBIDDEN.search((FOLDER / module).read_text())
    assert found is None, f"{module} uses {found[0]}"


def test_charts_stay_small():
    assert len((FOLDER / "chart.js").read_text().splitlines()) < 200
