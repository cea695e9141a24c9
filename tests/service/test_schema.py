"""Requests that schemathesis makes from the OpenAPI document, valid and invalid ones, against a real server."""

from __future__ import annotations

import asyncio
import json
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from redbox import Box, Event
from redbox.service.app import create_app
from redbox.service.boxes import Boxes
from redbox.service.options import ServiceOptions
from tests.service.exchange import tokens
from tests.service.serving import make_dead, serving

pytestmark = [
    pytest.mark.req("SF-4", "SF-6"),
]


@pytest.fixture(scope="module")
def url(redis_url: str) -> Iterator[str]:
    """A service in a thread of its own, whose default box has an event in each state."""
    loop, started, found = asyncio.new_event_loop(), threading.Event(), list[str]()

    async def serve(ending: asyncio.Event) -> None:
        async with serving(redis_url, "default") as service:
            await make_dead(service.box, Event("a", ordering_key="k"))
            await service.box.put_many([Event("b", {"n": n}, unique_key=f"u{n}") for n in range(3)])
            await service.box.ack(await service.box.claim("r", limit=1))
            await service.box.claim("r", limit=1)
            found.append(service.url)
            started.set()
            await ending.wait()

    ending = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(ending)))
    thread.start()
    assert started.wait(20)
    yield found[0]
    loop.call_soon_threadsafe(ending.set)
    thread.join(20)
    loop.close()


def _document() -> dict[str, Any]:
    """The document, before a server runs: each of its operations is a test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        box = Box.open("memory:")
        return create_app(Boxes(box)).openapi_schema.to_schema()


@schemathesis.serializer("application/x-ndjson")
def _lines(_: Any, value: Any) -> bytes:
    return value.encode(errors="surrogatepass") if isinstance(value, str) else json.dumps(value).encode()


#: A request that the document permits may be refused with 422: the document cannot say that two fields exclude each
#: other, or what a duration is.
CONFIG = schemathesis.Config.from_dict(
    {
        "checks": {
            "positive_data_acceptance": {
                "expected-statuses": ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "5xx"]
            },
            "negative_data_rejection": {"expected-statuses": ["207", "4xx"]},
        }
    }
)
schema = schemathesis.openapi.from_dict(_document(), config=CONFIG)


@pytest.mark.campaign
@schema.parametrize()
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
def test_operations_answer_as_the_document_says(url: str, case: schemathesis.Case):
    case.call_and_validate(base_url=url)


def test_the_document_is_complete_and_fetches_nothing(url: str):
    answer = httpx.get(f"{url}/schema")
    assert answer.headers["content-type"].startswith("application/")
    document = answer.json()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert operation["summary"], path
            assert operation["description"], path
            if "ingest" in operation.get("tags", ()):
                assert {"401", "403"} <= set(operation["responses"]), path
            if path.startswith("/v1/"):
                assert {"404", "422", "503"} <= set(operation["responses"]) | {"404"}, path
            assert all(
                "$ref" in content["schema"] or content["schema"]
                for status, response in operation["responses"].items()
                for kind, content in response.get("content", {}).items()
                if kind != "text/event-stream"
            ), (path, method)
    for page in ("/schema/swagger", "/schema/redoc", "/schema/elements", "/schema/rapidoc", "/schema/scalar"):
        assert httpx.get(f"{url}{page}").status_code == 404
    assert httpx.get(f"{url}/schema/openapi.yaml").status_code == 200


@pytest.mark.parametrize("page", ["/schema", "/schema/openapi.yaml"])
def test_the_document_is_rendered_once(url: str, page: str, monkeypatch: pytest.MonkeyPatch):
    """No token is needed to ask for it, and nothing else is served meanwhile."""
    first = httpx.get(f"{url}{page}")
    assert first.status_code == 200

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("rendered again")

    monkeypatch.setattr("litestar.openapi.plugins.yaml.dump", refuse)
    monkeypatch.setattr("litestar.openapi.plugins.encode_json", refuse)
    again = httpx.get(f"{url}{page}")
    assert (again.content, again.headers["content-type"]) == (first.content, first.headers["content-type"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_document_has_the_probes_and_says_who_needs_a_token():
    box = Box.open("memory:")
    boxes = Boxes(box)
    document = create_app(boxes, ServiceOptions(tokens=tokens())).openapi_schema.to_schema()
    assert document["paths"].keys() >= {"/livez", "/readyz", "/healthz", "/metrics"}
    (name,) = document["components"]["securitySchemes"]
    assert document["components"]["securitySchemes"][name]["scheme"] == "bearer"
    assert document["security"] == [{name: []}]
    public = {path for path, item in document["paths"].items() if item.get("get", {}).get("security") == [{}]}
    assert public == {"/livez", "/readyz", "/healthz"}
    for path, item in document["paths"].items():
        assert set(item) <= {"get", "post", "patch", "delete"}, path
        for operation in item.values():
            assert operation.get("security") in (None, [{}]), path
    assert not create_app(boxes).openapi_schema.to_schema().get("security"), "without tokens nobody needs one"
