"""`redbox pipeline drain` and `follow` as commands: what they print, what they end with, and how they are stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from redbox import Event, Phase
from redbox.pipeline.jobs.streams import run_stream
from redbox.pipeline.source.options import Address
from redbox.testing import advance
from redbox.testing.conformance.steps import make_dead, publish
from tests import servers

from .conftest import ROOT, Command, Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-3")

SPARK = ("--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@dataclass
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str
    left: list[int]
    played: Played
    sink: Path


def of_session(session: int) -> list[int]:
    """The processes of a session that have not ended: a command that was started with its own, and all below it."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session, *_ = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_session) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found


@contextmanager
def started(played: Played, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a session of its own; nothing of it is left after the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "redbox", "--url", played.url, "--box", played.name, "pipeline", *arguments, *SPARK],
        cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        for each in of_session(process.pid):
            os.kill(each, signal.SIGKILL)
        process.communicate()


def stopped_by(
    played: Played, sink: Path, stop: Callable[[int], None], until: Callable[[], bool], *arguments: str
) -> Ended:
    """Runs a stream until a condition holds, and then stops it."""
    with started(played, *arguments, "--to", str(sink)) as process:
        servers.poll(lambda: until() or process.poll() is not None, "it did not come so far", 120)
        assert process.poll() is None, process.communicate()
        stop(process.pid)
        out, err = process.communicate(timeout=60)
        left: list[int] = []
        try:
            servers.poll(lambda: not of_session(process.pid), "processes are left over", 20)
        except AssertionError:
            left = of_session(process.pid)
        return Ended(process.returncode, out, err, left, played, sink)


def fill(played: Played, count: int) -> Counter[str]:
    ids = [f"e{number:03}" for number in range(count)]
    played.run(played.box.put_many([Event("n", {"id": each}, event_id=each) for each in ids]))
    return Counter(ids)


def rows(spark: SparkSession, sink: Path) -> Counter[str]:
    return Counter(row[0] for row in spark.read.parquet(str(sink)).select("event_id").collect())


@pytest.fixture(scope="module")
def module_played(redis_url: str) -> Iterator[Callable[[], Played]]:
    """Boxes that stay for the module."""
    with asyncio.Runner() as runner:
        made: list[Played] = []

        def make() -> Played:
            made.append(Played(redis_url, runner))
            return made[-1]

        yield make
        for each in made:
            runner.run(each.box.aclose())


def test_once_takes_what_is_there_and_ends(redis_played: Played, spark: SparkSession, command: Command, tmp_path: Path):
    ids = fill(redis_played, 30)
    drained, followed = tmp_path / "drained", tmp_path / "followed"
    drain = command(redis_played, "pipeline", "drain", "--to", str(drained), "--once", "--batch", "20")
    assert drain.exit_code == 0, drain.output
    assert drain.stdout.startswith(f"30 events in 2 micro-batches written to {drained} in ")
    assert "(starting Spark took " in drain.stdout
    assert drain.stderr.splitlines() == ["starting Spark ...", *progress(20, 30)]
    assert rows(spark, drained) == ids
    assert redis_played.run(redis_played.box.stats()).phases[Phase.COMPLETED] == 30

    redis_played.run(advance(redis_played.box, seconds=5))  # a stream that follows stays a second behind
    published = ("--to", str(followed), "--once", "--state", "published")
    follow = command(redis_played, "--json", "pipeline", "follow", *published)
    assert follow.exit_code == 0, follow.output
    told: dict[str, Any] = json.loads(follow.stdout)
    assert (told["rows"], told["batches"]) == (30, 1)
    assert told.keys() == {"rows", "batches", "seconds", "start_up_seconds"}
    assert rows(spark, followed) == ids

    nowhere = f"redis://127.0.0.1:{servers.free_port()}/0"
    unreachable = command(redis_played, "--url", nowhere, "pipeline", "drain", "--to", str(tmp_path / "no"), "--once")
    assert unreachable.exit_code == 3, unreachable.output
    assert unreachable.stderr.splitlines()[-1].startswith(f"error: {nowhere} cannot be reached")
    assert unreachable.stdout == ""


def progress(*counts: int) -> list[str]:
    return [
        f"{count} events in {number} micro-batch{'es'[: 2 * (number > 1)]}" for number, count in enumerate(counts, 1)
    ]


def test_a_box_is_moved_into_another(
    redis_played: Played, redbox_runner: asyncio.Runner, command: Command, tmp_path: Path
):
    ids = fill(redis_played, 5)
    other = Played(redis_played.url, redbox_runner)
    where = ["--to", "redbox", "--option", f"url={other.url}", "--option", f"box={other.name}"]
    without = command(redis_played, "pipeline", "drain", "--once", *where)
    assert without.exit_code == 2
    assert "redbox is a sink without a path; say where to keep the checkpoint" in without.stderr
    moved = command(redis_played, "pipeline", "drain", "--once", *where, "--checkpoint", str(tmp_path / "checkpoint"))
    assert moved.exit_code == 0, moved.stderr
    assert redis_played.run(other.box.stats()).phases[Phase.AVAILABLE] == len(ids)
    assert all(redis_played.run(other.box.get(event_id)) for event_id in ids)
    redis_played.run(other.box.aclose())


# --- until it is stopped -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interrupted(module_played: Callable[[], Played], tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A drain, stopped as a terminal does it: Ctrl-C goes to the whole group. Its only micro-batch is committed, and
    the next one is not due for a long time."""
    played, sink = module_played(), tmp_path_factory.mktemp("interrupted") / "sink"
    fill(played, 30)

    def drained() -> bool:
        return (sink / "_checkpoint" / "commits" / "0").exists()

    def stop(process: int) -> None:
        os.killpg(process, signal.SIGINT)

    return stopped_by(played, sink, stop, drained, "drain", "--every", "1 hour")


@pytest.mark.campaign
def test_control_c_ends_a_drain_with_its_summary(interrupted: Ended, spark: SparkSession):
    assert interrupted.code == 0, interrupted.err
    assert interrupted.out.startswith(f"30 events in 1 micro-batch written to {interrupted.sink} in ")
    assert interrupted.left == []
    assert rows(spark, interrupted.sink) == Counter(f"e{number:03}" for number in range(30))


@pytest.mark.campaign
def test_control_c_settles_what_is_committed(interrupted: Ended):
    played = interrupted.played
    assert played.run(played.box.stats()).phases[Phase.COMPLETED] == 30


@pytest.mark.campaign
def test_control_c_prints_no_traceback(interrupted: Ended):
    assert interrupted.err.splitlines() == ["starting Spark ...", *progress(30)]


@pytest.fixture(scope="module")
def terminated(module_played: Callable[[], Played], tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A follow, stopped as a supervisor does it: SIGTERM goes to the process that was started."""
    played, sink = module_played(), tmp_path_factory.mktemp("terminated") / "sink"
    played.run(publish(played.box, *[Event("n", event_id=f"p{number}") for number in range(20)]))
    played.run(make_dead(played.box, *[Event("n", event_id=f"d{number}") for number in range(5)]))

    def followed() -> bool:
        return (sink / "_checkpoint" / "commits" / "0").exists()

    def stop(process: int) -> None:
        os.kill(process, signal.SIGTERM)

    return stopped_by(played, sink, stop, followed, "follow", "--every", "200 milliseconds")


@pytest.mark.campaign
def test_a_terminated_follow_leaves_nothing_behind_and_can_go_on(terminated: Ended, spark: SparkSession):
    assert terminated.left == []
    played, expected = terminated.played, Counter([f"p{n}" for n in range(20)] + [f"d{n}" for n in range(5)])
    played.run(publish(played.box, Event("n", event_id="new")))
    at = Address(played.url, played.name)
    run_stream(spark, at, {"mode": "follow", "lag": "0"}, str(terminated.sink))
    assert rows(spark, terminated.sink) == expected + Counter(["new"])


@pytest.mark.campaign
def test_sigterm_ends_a_follow_with_its_summary(terminated: Ended):
    assert terminated.code == 0, (terminated.code, terminated.err)
    assert terminated.out.startswith(f"25 events in 1 micro-batch written to {terminated.sink} in ")
