"""The application: routes, errors and what they share."""

from __future__ import annotations

from litestar import Litestar
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig

from redbox import __version__
from redbox.service.boxes import Boxes
from redbox.service.ingest import ingest
from redbox.service.problems import HANDLERS

MAX_BODY = 8 * 1024 * 1024


def create_app(boxes: Boxes) -> Litestar:
    """The application that serves these boxes."""

    async def provide_boxes() -> Boxes:
        return boxes

    return Litestar(
        route_handlers=[ingest()],
        dependencies={"boxes": Provide(provide_boxes)},
        exception_handlers=HANDLERS,
        openapi_config=OpenAPIConfig(title="redbox", version=__version__),
        request_max_body_size=MAX_BODY,
        logging_config=None,
    )
