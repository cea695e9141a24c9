"""Metrics and health of the service: `/metrics` needs the scope read, and so do the details of `/readyz`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec
from litestar import HttpMethod, Request, Response, Router, route
from litestar.datastructures import State
from litestar.openapi.datastructures import ResponseSpec

from redbox.relay.metrics import CONTENT_TYPE
from redbox.service.boxes import Boxes
from redbox.service.exporter import BoxHealth
from redbox.service.health import ALIVE, JSON, RelayHealth
from redbox.service.http.access import Scope, granted, require
from redbox.service.operations.routes import problems
from redbox.service.options import ServiceOptions

_METRICS: Final = CONTENT_TYPE.removesuffix("; charset=utf-8")  # Litestar adds it


class Alive(msgspec.Struct, kw_only=True):
    """The process is alive."""

    status: Literal["ok"]


class RelayReadiness(msgspec.Struct, kw_only=True):
    """A relay of the process. `problem`: why it does not deliver; `breaker_reason`: why its breaker is open."""

    box: str
    relay: str
    target: str
    problem: str | None
    breaker: str
    breaker_reason: str | None
    in_flight: int


class Readiness(msgspec.Struct, kw_only=True):
    """Whether the service is ready. `problem`: why the store accepts no events. A caller without the scope read gets
    `status` alone."""

    status: Literal["ok", "failing"]
    problem: str | None = None
    relays: list[RelayReadiness] | None = None


def _answer(kind: Any, description: str, media_type: str = JSON) -> ResponseSpec:
    return ResponseSpec(kind, description=description, media_type=media_type, generate_examples=False)


def probes(boxes: Boxes, options: ServiceOptions) -> Router:
    """The routes. The store is read at most once per second for each."""
    readings = BoxHealth(boxes, all_boxes=True, relays=options.relays)
    readiness = RelayHealth(options.relays, boxes.default)

    async def livez() -> Response[bytes]:
        """Answers as long as the process runs. The store is not asked: a restart would not bring it back."""
        return Response(ALIVE, media_type=JSON)

    async def readyz(request: Request[Any, Any, State]) -> Response[bytes]:
        """Asks the store whether it accepts events, at most once per second and without writing any, and looks whether
        every relay of the process runs."""
        healthy, report = await readiness.health()
        shown = report if Scope.READ in granted(request) else {"status": report["status"]}
        return Response(msgspec.json.encode(shown) + b"\n", status_code=200 if healthy else 503, media_type=JSON)

    async def show_metrics() -> Response[bytes]:
        """Metrics of all boxes and of the relays of the process, in the text format of Prometheus."""
        return Response((await readings.metrics()).encode(), media_type=_METRICS)

    open_to_all: dict[str, Any] = {"security": [{}]}
    return Router(
        "/",
        tags=["probes"],
        route_handlers=[
            *_routes(
                livez, "/livez", "Whether the process is alive",
                responses={200: _answer(Alive, "The process is alive.")}, **open_to_all,
            ),
            *_routes(
                readyz, ["/readyz", "/healthz"], "Whether the service is ready",
                responses={
                    200: _answer(Readiness, "The store accepts events, and all relays run."),
                    503: _answer(Readiness, "The store accepts no events, or a relay does not run."),
                }, **open_to_all,
            ),
            *_routes(
                show_metrics, "/metrics", "Metrics for Prometheus", guards=[require(Scope.READ)],
                responses={
                    200: _answer(str, "The metrics.", "text/plain"),
                    **problems(HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN),
                },
            ),
        ],
    )  # fmt: skip


def _routes(handler: Any, path: str | list[str], summary: str, **options: Any) -> list[Any]:
    """A handler for GET, and for HEAD, which the OpenAPI document does not repeat."""
    return [
        route(path, http_method=HttpMethod.GET, summary=summary, **options)(handler),
        route(path, http_method=HttpMethod.HEAD, include_in_schema=False, **options)(handler),
    ]
