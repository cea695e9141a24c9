"""The application: routes, errors and what they share."""

from __future__ import annotations

from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide
from litestar.enums import HttpMethod
from litestar.routes import HTTPRoute

from redbox.service import history, incidents, live
from redbox.service.boxes import Boxes
from redbox.service.http.access import provide_operator
from redbox.service.http.error_handlers import HANDLERS
from redbox.service.http.headers import Gate
from redbox.service.http.strict import keep_slashes
from redbox.service.ingest.handlers import ingest
from redbox.service.ingest.intake import Intake
from redbox.service.jobs import Jobs
from redbox.service.operations import box, bulk, events, reading
from redbox.service.options import ServiceOptions
from redbox.service.pages import pages
from redbox.service.probes import probes
from redbox.service.schema import StrictStructs, openapi_config


def create_app(boxes: Boxes, options: ServiceOptions | None = None) -> Litestar:
    """The application that serves these boxes. To be closed with `app.state.jobs.aclose()`, before the boxes are."""
    known = ServiceOptions() if options is None else options
    jobs = Jobs(running=known.running_jobs, kept=known.kept_jobs, kept_bytes=4 * known.export_bytes)

    async def provide_boxes() -> Boxes:
        return boxes

    async def provide_jobs() -> Jobs:
        return jobs

    async def provide_options() -> ServiceOptions:
        return known

    app = Litestar(
        route_handlers=[
            *ingest(boxes, Intake(known)),
            # Not a router: Litestar refuses two routers that share a path, and ingest posts to that of the listing.
            *(handler for part in (reading, box, events, bulk) for handler in part.HANDLERS),
            *history.HANDLERS,
            *incidents.HANDLERS,
            *live.HANDLERS,
            pages(),
            probes(boxes, known),
        ],
        dependencies={
            "boxes": Provide(provide_boxes),
            "jobs": Provide(provide_jobs),
            "options": Provide(provide_options),
            "operator": Provide(provide_operator),
        },
        exception_handlers=HANDLERS,
        openapi_config=openapi_config(tokens=known.tokens is not None),
        plugins=[StrictStructs()],
        request_max_body_size=known.max_body,
        logging_config=None,
        state=State({"jobs": jobs}),
    )
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            _name_all_methods(route)
    app.state.censuses = incidents.Censuses()
    app.state.live = live.Live(boxes, jobs.list_own, count=app.state.censuses.ask)
    app.state.tokens = known.tokens
    app.asgi_handler = Gate(keep_slashes(app.asgi_handler), known.host_names)
    return app


def _name_all_methods(route: HTTPRoute) -> None:
    """Lets the answer to OPTIONS name all methods of a path: Litestar's names those of its first handler."""
    for handler in route.route_handlers:
        if handler.http_methods == {HttpMethod.OPTIONS}:
            handler._fn = route.create_options_handler(route.path).fn  # noqa: SLF001  # Litestar has no other way
