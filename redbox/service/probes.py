"""Metrics and health of the service: `/metrics` needs the scope read, and so do the details of `/readyz`."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from litestar import HttpMethod, Request, Response, Router, route
from litestar.datastructures import State

from redbox.relay.metrics import CONTENT_TYPE
from redbox.service.access import Scope, granted, require
from redbox.service.boxes import Boxes
from redbox.service.exporter import BoxHealth
from redbox.service.health import ALIVE, JSON, StoreCheck, health
from redbox.service.options import ServiceOptions

_METRICS: Final = CONTENT_TYPE.removesuffix("; charset=utf-8")  # Litestar adds it
_READ: Final = [HttpMethod.GET, HttpMethod.HEAD]


def probes(boxes: Boxes, options: ServiceOptions) -> Router:
    """The routes. The store is read at most once per second for each."""
    readings = BoxHealth(boxes.default, all_boxes=True, relays=options.relays)
    store = StoreCheck(boxes.default)

    @route("/livez", http_method=_READ, sync_to_thread=False)
    def livez() -> Response[bytes]:
        return Response(ALIVE, media_type=JSON)

    @route(["/readyz", "/healthz"], http_method=_READ)
    async def readyz(request: Request[Any, Any, State]) -> Response[bytes]:
        """Runs a script on the store, and asks every relay of the process."""
        problem = await store.problem()
        running, report = await health(options.relays)
        healthy = running and not problem
        shown: dict[str, Any] = {"status": "ok" if healthy else "failing"}
        if Scope.READ in granted(request):
            shown |= {"problem": problem or None, "relays": report["relays"]}
        return Response(msgspec.json.encode(shown) + b"\n", status_code=200 if healthy else 503, media_type=JSON)

    @route("/metrics", http_method=_READ, guards=[require(Scope.READ)])
    async def show_metrics() -> Response[bytes]:
        return Response((await readings.metrics()).encode(), media_type=_METRICS)

    return Router("/", route_handlers=[livez, readyz, show_metrics], include_in_schema=False)
