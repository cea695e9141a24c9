"""The application: routes, errors and what they share."""

from __future__ import annotations

from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin

from redbox import __version__
from redbox.service import history, incidents, live
from redbox.service.access import provide_operator
from redbox.service.boxes import Boxes
from redbox.service.headers import Gate
from redbox.service.ingest.handlers import ingest
from redbox.service.ingest.intake import Intake
from redbox.service.jobs import Jobs
from redbox.service.operations.handlers import operations
from redbox.service.options import ServiceOptions
from redbox.service.pages import pages
from redbox.service.probes import probes
from redbox.service.problems import HANDLERS
from redbox.service.schema import StrictStructs
from redbox.service.strict import keep_slashes


def create_app(boxes: Boxes, options: ServiceOptions | None = None) -> Litestar:
    """The application that serves these boxes. To be closed with `app.state.jobs.aclose()`, before the boxes are."""
    known = ServiceOptions() if options is None else options
    jobs = Jobs(running=known.running_jobs, kept=known.kept_jobs)

    async def provide_boxes() -> Boxes:
        return boxes

    async def provide_jobs() -> Jobs:
        return jobs

    async def provide_options() -> ServiceOptions:
        return known

    app = Litestar(
        route_handlers=[
            *ingest(boxes, Intake(known)),
            *operations(),
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
        openapi_config=OpenAPIConfig(
            title="redbox",
            version=__version__,
            path="/schema",
            use_handler_docstrings=True,
            render_plugins=[JsonRenderPlugin(path=["/", "/openapi.json"]), YamlRenderPlugin(path="/openapi.yaml")],
        ),
        plugins=[StrictStructs()],
        request_max_body_size=known.max_body,
        logging_config=None,
        state=State({"jobs": jobs}),
    )
    app.state.censuses = incidents.Censuses()
    app.state.live = live.Live(boxes, jobs.list_own, count=app.state.censuses.ask)
    app.state.tokens = known.tokens
    app.asgi_handler = Gate(keep_slashes(app.asgi_handler), known.host_names)
    return app
