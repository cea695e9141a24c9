"""The handlers of all operations."""

from __future__ import annotations

from litestar.handlers import HTTPRouteHandler

from redbox.service.operations import boxes, events, jobs, reading


def operations() -> list[HTTPRouteHandler]:
    """All operations. Not a router: Litestar refuses two routers that share a path, and ingest posts to that of the
    listing."""
    return [*reading.HANDLERS, *boxes.HANDLERS, *events.HANDLERS, *jobs.HANDLERS]
