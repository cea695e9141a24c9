"""The same jobs on a real standalone Spark: a master, two workers, and a Redis cluster of three nodes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from redbox import Event
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import publish

from .conftest import ROOT, Played

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@contextmanager
def part(directory: Path, name: str, ready: str, *arguments: str) -> Iterator[str]:
    """A master or a worker, until the block ends; yields what the log says when it is ready."""
    log = directory / f"{name}.log"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment.pop("PYTHONPATH", None)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(SPARK_CLASS), *arguments], stdout=out, stderr=out, cwd=directory, env=environment
        )
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(ready, log.read_text(errors="replace"))):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.1)
        yield found[0]
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("cluster")
    deploy, here = "org.apache.spark.deploy", ("--host", "127.0.0.1", "--webui-port", "0")
    with part(directory, "master", r"spark://127\.0\.0\.1:\d+", f"{deploy}.master.Master", *here, "--port", "0") as url:
        worker = (f"{deploy}.worker.Worker", *here, "--cores", "1", "--memory", "1g", "--work-dir")
        ready = "Successfully registered with master"
        with (
            part(directory, "worker1", ready, *worker, str(directory / "1"), url),
            part(directory, "worker2", ready, *worker, str(directory / "2"), url),
        ):
            yield url


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """redbox as it goes to the workers: the package with its scripts, as in the wheel."""
    path = tmp_path_factory.mktemp("zip") / "redbox.zip"
    with zipfile.ZipFile(path, "w") as made:
        for source in (ROOT / "redbox").rglob("*.py"):
            made.write(source, Path("redbox") / source.relative_to(ROOT / "redbox"))
        for script in (ROOT / "lua").rglob("*.lua"):
            made.write(script, Path("redbox/_lua") / script.relative_to(ROOT / "lua"))
    return path


@pytest.mark.req("SP-10")
@pytest.mark.campaign
def test_archive_replay_and_drain_on_a_cluster(
    spark_cluster: str, zipped: Path, cluster_url: str, redbox_runner: object, tmp_path: Path
):
    played = Played(cluster_url, redbox_runner)  # type: ignore[arg-type]
    events = [Event(f"user.{number % 2}", {"n": number}, event_id=f"e{number:02}") for number in range(40)]
    played.run(publish(played.box, *events))
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.on_cluster", spark_cluster, str(zipped), cluster_url, played.name,
         str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert told["master"] == spark_cluster
    assert told["executors"] == 2
    assert all(path.endswith("redbox.zip/redbox/__init__.py") for path in told["redbox"]), told["redbox"]
    assert told["scripts"] == ["#!lua"]
    assert (told["archived"], told["replayed"], told["drained"], told["in the lake"]) == (40, 20, 20, 40)
    assert told["in the sink"] == [f"e{number:02}" for number in range(0, 40, 2)]
    assert played.run(check_invariants(played.box)) == []
    assert played.run(played.box.stats()).phases["COMPLETED"] == 20
    played.run(played.box.aclose())
