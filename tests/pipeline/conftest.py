"""A real Spark, started once, and boxes on real servers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from redbox import Box
from redbox.errors import RedboxError
from redbox.pipeline.spark_session import check_java
from redbox.testing.plugin import new_box_name

from . import dying

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]


def java_is_missing() -> str:
    """Why Spark cannot run here; empty when it can."""
    try:
        check_java()
    except RedboxError as error:
        return error.message
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = java_is_missing()
    for item in items:
        if "tests/pipeline" in str(item.path):
            if missing:
                item.add_marker(pytest.mark.skip(reason=missing))
            item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))  # py4j leaves sockets to the end


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session in this process: two tasks at a time, each tried up to four times."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # For the processes that Spark starts: they import from here, and look there whether they are to die.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ[dying.PLAN] = str(tmp_path_factory.mktemp("dying") / "plan")
    from redbox import pipeline

    session = pipeline.session("local[2,4]", {"spark.sql.shuffle.partitions": "2"})
    session.dataSource.register(dying.DyingSource)
    yield session
    session.stop()


@pytest.fixture(params=["redis", "cluster"])
def box_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


class Played:
    """A box for a test that is not async: Spark's calls block."""

    def __init__(self, url: str, runner: asyncio.Runner) -> None:
        self.url, self.name = url, new_box_name()
        self.run = runner.run
        self.box = Box.open(url, name=self.name)

    def options(self, **further: Any) -> dict[str, Any]:
        return {"url": self.url, "box": self.name, **further}

    def read(self, spark: SparkSession, **options: Any) -> DataFrame:
        return spark.read.format("redbox").options(**self.options(**options)).load()


@pytest.fixture
def played(box_url: str, redbox_runner: asyncio.Runner) -> Iterator[Played]:
    made = Played(box_url, redbox_runner)
    yield made
    redbox_runner.run(made.box.aclose())


@pytest.fixture
def redis_played(redis_url: str, redbox_runner: asyncio.Runner) -> Iterator[Played]:
    made = Played(redis_url, redbox_runner)
    yield made
    redbox_runner.run(made.box.aclose())
