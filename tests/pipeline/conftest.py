"""A real Spark, started once, and boxes on real servers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from redbox import Box, pipeline
from redbox.cli.app import cli
from redbox.errors import RedboxError
from redbox.pipeline.spark_session import check_java
from redbox.testing.plugin import new_box_name

from . import dying

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]
Command = Callable[..., Result]

# For every Java that these tests start: they are too short for its second compiler to pay.
os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1"


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
    session = pipeline.session("local[2,4]", {"spark.sql.shuffle.partitions": "2"})
    session.dataSource.register(dying.DyingSource)
    yield session
    session.stop()


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs `redbox` on a box in this process and in an empty directory, with the session that there is."""
    monkeypatch.setattr(pipeline, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.chdir(tmp_path)

    def run(played: Played, *arguments: str) -> Result:
        return CliRunner().invoke(cli, ["--url", played.url, "--box", played.name, *arguments])

    return run


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
