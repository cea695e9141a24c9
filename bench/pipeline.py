"""Measures the pipeline on Spark: `python -m bench.pipeline [--events N] [--rounds N] [--into DIR]`.

One session, `local[*]`, on an embedded server of its own that shares the cores (append-only file, always synced), and
events of 512 random bytes: load, count, write to Parquet, drain and archive; and beside it one plain Python loop that
reads the same box into Parquet. Rates are net of starting Spark, which is told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
GOALS = {
    "count": 80_000,
    "parquet": 60_000,
    "archive": 25_000,
    "load": 35_000,
    "drain": 25_000,
}
BOX = "bench"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--into", type=Path, default=HERE / "results", help="where pipeline.json and pipeline.md go")
    parser.add_argument("--plain", nargs=2, metavar=("URL", "FILE"), help=argparse.SUPPRESS)  # the loop beside it
    arguments = parser.parse_args()
    if arguments.plain:
        plain_loop(*arguments.plain)
        return
    with tempfile.TemporaryDirectory(prefix="redbox-bench-") as directory:
        results = measure(Path(directory), arguments.events, arguments.rounds)
    text = told(results)
    print(f"\n{text}")
    arguments.into.mkdir(parents=True, exist_ok=True)
    (arguments.into / "pipeline.json").write_text(json.dumps(results, indent=1) + "\n")
    (arguments.into / "pipeline.md").write_text(text)


def measure(directory: Path, events: int, rounds: int) -> dict[str, Any]:
    from redbox import pipeline
    from redbox.pipeline.archive import archive
    from redbox.pipeline.load import load
    from redbox.pipeline.options import Address
    from redbox.pipeline.streams import run_stream

    url = f"embedded:{directory / 'data'}"
    at = Address(url, BOX)
    results: dict[str, Any] = {"machine": machine.describe(), "commit": machine.commit(), "date": machine.now()}
    results |= {"events": events, "rounds": rounds, "answers": {}}
    answers = results["answers"]

    def tell(name: str, seconds: list[float], count: int, cpu: float) -> None:
        middle = statistics.median(seconds)
        answers[name] = {"seconds": seconds, "rate": count / middle, "cpu_us": cpu / count / len(seconds) * 1e6}
        print(f"{name}: {count / middle:,.0f} per second", file=sys.stderr, flush=True)

    with held(at):
        began = time.monotonic()
        spark = pipeline.session()
        results["start_up"] = time.monotonic() - began
        source = directory / "source.parquet"
        make_source(spark, events, source)
        spark.read.parquet(str(source)).count()
        with timed() as clock:
            load(spark, at, str(source))
        tell("load", [clock.seconds], events, clock.cpu)

        table = spark.read.format("redbox").options(url=url, box=BOX).load()
        with timed() as clock:
            table.count()
        answers["first query"] = {"seconds": [clock.seconds], "rate": events / clock.seconds}
        tell("count", *repeated(rounds, table.count, events))
        out = str(directory / "out.parquet")
        tell("parquet", *repeated(rounds, lambda: table.write.mode("overwrite").parquet(out), events))
        seconds, cpu = [], 0.0
        for _ in range(rounds):
            done = run_plain(url, directory / "plain.parquet")
            seconds.append(done["seconds"])
            cpu += done["cpu"]
        tell("plain loop", seconds, events, cpu)

        with timed() as clock:
            drained = run_stream(spark, at, {"stream": "bench"}, str(directory / "sink"))
        tell("drain", [clock.seconds], drained.rows, clock.cpu)
        with timed() as clock:
            done = archive(spark, at, str(directory / "lake"))
        tell("archive", [clock.seconds], done.removed, clock.cpu)
        results["driver_mb"] = peak_mb()
        spark.stop()
    return results


def make_source(spark: SparkSession, events: int, path: Path) -> None:
    """Rows of 512 random bytes."""
    piece = "unhex(sha2(cast(rand() as string), 512))"
    payload = f"concat({', '.join([piece] * 8)})"
    rows = spark.range(events).selectExpr("'user.created' as event_type", f"{payload} as payload")
    rows.write.parquet(str(path))


def repeated(rounds: int, work: Callable[[], Any], events: int) -> tuple[list[float], int, float]:
    seconds, cpu = [], 0.0
    for _ in range(rounds):
        with timed() as clock:
            work()
        seconds.append(clock.seconds)
        cpu += clock.cpu
    return seconds, events, cpu


class Clock:
    seconds = cpu = 0.0


@contextmanager
def timed() -> Iterator[Clock]:
    """Seconds, and the CPU of this process and of all that Spark started (not of the server)."""
    clock, before, began = Clock(), tree_cpu(), time.monotonic()
    yield clock
    clock.seconds, clock.cpu = time.monotonic() - began, tree_cpu() - before


def tree_cpu() -> float:
    """CPU seconds of this process and its descendants, but for servers, in which an embedded one is counted."""
    parents: dict[int, tuple[int, float, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
            ticks = sum(map(int, rest[11:15]))  # with those of its children that have ended
            parents[int(entry.name)] = (int(rest[1]), ticks / os.sysconf("SC_CLK_TCK"), name)
    ours, total = {os.getpid()}, 0.0
    changed = True
    while changed:
        found = {pid for pid, (parent, _, name) in parents.items() if parent in ours and "valkey" not in name} - ours
        changed = bool(found)
        ours |= found
    for pid in ours:
        total += parents[pid][1] if pid in parents else 0.0
    return total


def peak_mb() -> float:
    """The most memory that this process, the driver's Python, ever had."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def held(at: Any) -> Iterator[None]:
    """Keeps the embedded server up."""
    from redbox.pipeline.connection import opened

    with opened(at) as (box, run):
        run(box.exists())
        yield


def run_plain(url: str, path: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.pipeline", "--plain", url, str(path)]
    done = subprocess.run(  # noqa: S603 - our own
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def plain_loop(url: str, path: str) -> None:
    """One process that reads the box into Parquet, with the pipeline's own reader and without Spark."""
    import pyarrow.parquet as pq

    from redbox.pipeline.options import read_options
    from redbox.pipeline.reader import BoxReader
    from redbox.pipeline.schema import SCHEMA

    reader = BoxReader(read_options({"url": url, "box": BOX}), SCHEMA)
    parts = reader.partitions()
    began, cpu, writer = time.monotonic(), time.process_time(), None
    for part in parts:
        for batch in reader.read(part):
            writer = writer or pq.ParquetWriter(path, batch.schema)
            writer.write_batch(batch)
    if writer is not None:
        writer.close()
    print(json.dumps({"seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}))
    shutil.rmtree(path, ignore_errors=True)


def told(results: dict[str, Any]) -> str:
    answers = results["answers"]
    where = ", ".join(f"{name} {text}" for name, text in results["machine"].items())
    about = (
        f"{where}; {results['date']}, commit {results['commit']}. Starting Spark took {results['start_up']:.1f} s, the "
        f"first query {answers['first query']['seconds'][0]:.1f} s; both are not in the rates. Medians of "
        f"{results['rounds']}; load, drain and archive once. The driver's Python used at most "
        f"{results['driver_mb']:.0f} MB."
    )
    lines = [f"# The pipeline: {results['events']:,} events of 512 random bytes", "", about, ""]
    lines += ["| | events/s | goal | CPU µs per event, without the server's |", "|---|---|---|---|"]
    for name, answer in answers.items():
        if name == "first query":
            continue
        goal = GOALS.get(name)
        mark = "" if goal is None else f"{goal:,} {'met' if answer['rate'] >= goal else '**not met**'}"
        lines.append(f"| {name} | {answer['rate']:,.0f} | {mark} | {answer['cpu_us']:.1f} |")
    ratio = answers["parquet"]["cpu_us"] / answers["plain loop"]["cpu_us"]
    lines += ["", f"CPU per event to Parquet, beside the plain loop: {ratio:.2f} × (goal 1.5).", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
