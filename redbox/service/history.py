"""The history of rates: read over HTTP, and recorded while the service runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Final, Literal

import anyio
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from redbox.box.desk.rates_history import RatesHistory
from redbox.errors import RedboxError
from redbox.service.boxes import Boxes
from redbox.service.operations.routes import BoxName, get

logger = logging.getLogger("redbox.service")

RECORD_SECONDS: Final = 5.0


@get("/v1/boxes/{box:str}/rates", summary="Rates and latencies of the last hour or day")
async def get_rates(
    boxes: NamedDependency[Boxes],
    box: BoxName,
    window: Annotated[Literal["1h", "24h"], QueryParameter(description="The last hour, or the last day.")] = "1h",
) -> RatesHistory:
    """Events per second, and the time from when an event was due until it was published, one sample per `step`
    seconds."""
    return await (await boxes.get(box)).desk.rates_history(window=window)


async def record_once(boxes: Boxes) -> None:
    """Samples the totals of every open box."""
    for box in boxes.opened:
        try:
            await box.desk.record_rates()
        except RedboxError as error:  # the next sample has the mean rate of the time without one
            logger.debug("the rates of box %s were not recorded: %s", box.name, error)
        except Exception:  # a defect: the other boxes, and the next samples, are recorded
            logger.exception("the rates of box %s were not recorded", box.name)


@asynccontextmanager
async def recording(boxes: Boxes) -> AsyncIterator[None]:
    """Samples the totals of the open boxes while the block runs, so that they have a history without a relay, too."""

    async def run() -> None:
        while True:
            await record_once(boxes)
            await anyio.sleep(RECORD_SECONDS)

    task = asyncio.create_task(run(), name="redbox rates")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


HANDLERS: Final = [get_rates]
