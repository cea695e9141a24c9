"""A drain whose driver is killed, Java and all, and started anew: each event exactly once in the sink."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redbox import Phase
from redbox.testing.conformance.steps import expire
from tests import servers

from .conftest import ROOT, Played
from .test_drain import Drain, check_published, fill
from .test_stream_commands import ENVIRONMENT, of_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-3")

LEASE = 2
SECONDS = 120


def main(url: str, box: str, sink: str, checkpoint: str) -> None:
    """The drain that is killed: ten events in a micro-batch, and two tasks for them."""
    from redbox import pipeline

    spark = pipeline.session("local[2]")
    options: dict[str, str | int] = {"stream": "lake", "lease": LEASE, "maxEventsPerTrigger": 10, "partition_size": 5}
    read = spark.readStream.format("redbox").options(url=url, box=box, **options).load()
    write = read.writeStream.format("parquet").option("path", sink).option("checkpointLocation", checkpoint)
    write.start().awaitTermination()


class Victim:
    """A driver in a session of its own."""

    def __init__(self, drain: Drain) -> None:
        played, log = drain.played, drain.sink.parent / "log"
        where = [played.url, played.name, str(drain.sink), str(drain.checkpoint)]
        self._log = log
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.test_driver_killed", *where],
                cwd=ROOT, env=ENVIRONMENT, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip

    def _find(self, word: str) -> int | None:
        """Its process with this word in what it was called with."""
        return next((each for each in of_session(self._process.pid) if word in _called(each)), None)

    def stop_at(self, moment: Callable[[], bool]) -> int:
        """Stops Java in the middle of a moment, as often as it takes to meet it; its process id."""
        deadline = time.monotonic() + SECONDS
        servers.poll(lambda: self._find("streaming_source_runner") is not None, "the query did not start", SECONDS)
        java = self._find("SparkSubmit")
        assert java is not None
        while time.monotonic() < deadline:
            if not moment():
                time.sleep(0.001)
                continue
            os.kill(java, signal.SIGSTOP)
            servers.poll(lambda: _state(java) == "T", "Java was not stopped")
            if moment():
                return java
            os.kill(java, signal.SIGCONT)
        raise AssertionError(
            f"it did not come to this moment; it says\n{self._log.read_text(errors='replace')[-3000:]}"
        )

    def kill(self) -> None:
        """All of it, and at once."""
        for process in of_session(self._process.pid):
            os.kill(process, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """Until nothing is left of it."""
        self._process.wait(30)
        servers.poll(lambda: not of_session(self._process.pid), "processes are left over", 30)


def _called(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def _last(directory: Path) -> int:
    """The highest number of a log of Spark's; -1 when there is none."""
    try:
        return max((int(name) for name in os.listdir(directory) if name.isdecimal()), default=-1)
    except FileNotFoundError:
        return -1


@pytest.mark.campaign
def test_killed_at_any_moment_and_started_anew_each_event_comes_once(
    redis_played: Played, spark: SparkSession, tmp_path: Path
):
    ids = fill(redis_played, 400)
    drain = Drain(spark, redis_played, tmp_path, lease=LEASE, maxEventsPerTrigger=1000)
    planned, committed = (drain.checkpoint / name for name in ("offsets", "commits"))
    listed = drain.sink / "_spark_metadata"

    def a_batch_is_read() -> bool:
        """Its first file is there, and does not count yet."""
        return _last(planned) > _last(listed) and any(drain.sink.glob("*.parquet"))

    def the_files_count_and_spark_has_not_written_that_down() -> bool:
        return _last(listed) > _last(committed)

    def between_batches() -> bool:
        return _last(planned) == _last(committed) > 1

    victim = Victim(drain)
    try:
        java = victim.stop_at(a_batch_is_read)
        os.kill(java, signal.SIGKILL)
        victim.wait()  # the rest of it goes by itself
        assert len(redis_played.run(expire(redis_played.box))) >= 10  # given back, and taken back again
        for moment in (the_files_count_and_spark_has_not_written_that_down, between_batches):
            before = _last(committed)
            victim = Victim(drain)
            victim.stop_at(moment)
            victim.kill()
            assert moment()
            assert _last(listed) > before
    finally:
        victim.kill()
    stats = redis_played.run(redis_played.box.stats())
    assert 0 < stats.phases[Phase.COMPLETED] < 400
    drain.once()
    assert drain.rows() == ids
    check_published(redis_played, 400)


if __name__ == "__main__":
    main(*sys.argv[1:])
