"""A source whose processes die where a test says: each step of a drain has a name, before and after it.

A plan is a file with a step and how often it must have come; the process that comes to it kills itself as a power cut
would, and takes the plan with it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from redbox.pipeline.source.connection import connected
from redbox.pipeline.source.data_source import RedboxSource
from redbox.pipeline.source.drain import DrainReader
from redbox.pipeline.source.options import drain_options
from redbox.pipeline.source.stream_driver import StreamDriver

PLAN = "REDBOX_TEST_PLAN"  # the environment variable with the plan's path


def reach(step: str) -> None:
    """Dies if this is where the plan says so."""
    plan = Path(os.environ[PLAN])
    try:
        wanted, _, left = plan.read_text().partition(" ")
    except FileNotFoundError:
        return
    if wanted != step:
        return
    if int(left) > 1:
        plan.write_text(f"{step} {int(left) - 1}")
        return
    plan.unlink()
    os.kill(os.getpid(), signal.SIGKILL)


class DyingDriver(StreamDriver):
    async def _move(self, action: str, batch: int, before: str = "") -> None:
        reach(f"{action}:before")
        await super()._move(action, batch, before)
        reach(f"{action}:after")

    async def _claim(self, *arguments: Any) -> None:
        reach("claim:before")
        await super()._claim(*arguments)
        reach("claim:after")

    async def _settle_some(self, batch: int) -> int | None:
        reach("settle_some:before")
        done = await super()._settle_some(batch)
        reach("settle_some:after")
        return done

    async def _renew(self, members: list[Any]) -> list[Any]:
        reach("renew:before")
        done = await super()._renew(members)
        reach("renew:after")
        return done


class DyingReader(DrainReader):
    def _drive(self) -> StreamDriver:
        if self._driver is None:
            with connected(self._options.at) as connection:
                connection.require_box()
            self._driver = DyingDriver(self._options)
        return self._driver

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802 - Spark's name
        reach("latest:before")
        end = super().latestOffset(start, limit)
        reach("latest:after")
        return end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        reach("partitions:before")
        parts = super().partitions(start, end)
        reach("partitions:after")
        return parts

    def commit(self, end: dict[str, int]) -> None:
        reach("commit:before")
        super().commit(end)
        reach("commit:after")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        reach("read:before")
        for batch in super().read(partition):
            yield batch
            reach("read:after")


class DyingSource(RedboxSource):
    @classmethod
    def name(cls) -> str:
        return "redbox_dying"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return DyingReader(drain_options(self.options), schema)
