"""Measures the pipeline on Spark: `python -m bench.pipeline [--sizes N,N,...] [--rounds N] [--into DIR]`.

Each size gets its own Spark session (`local[*]`) and its own embedded server (append-only file, synced after each
write), which share the cores. An event has 512 random bytes. A round loads a new box, counts it, writes it to Parquet,
reads it with one plain Python loop, drains it and archives it. The first round is cold: each job runs for the first
time in its session. The rounds after it are warm, and their median counts. Starting Spark is measured separately.

The rounds of all jobs alternate, so that a slow minute of the machine does not fall on one job alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import machine
from bench.spent import Clock, timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from redbox.pipeline.source.options import Address

HERE = Path(__file__).parent
GOALS = {
    "load": 35_000,
    "count": 80_000,
    "parquet": 60_000,
    "drain": 25_000,
    "archive": 25_000,
}
SIZES = "1000000,300000,3000000"
ENVIRONMENT = "REDBOX_BENCH_SIZES"
BOX = "bench"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument(
        "--sizes",
        default=os.environ.get(ENVIRONMENT) or SIZES,
        help=f"numbers of events, the main one first (default: ${ENVIRONMENT}, or {SIZES})",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="warm rounds for the main size; the others have one (default: 3)"
    )
    parser.add_argument(
        "--into", type=Path, default=HERE / "results", help="directory for pipeline.json and pipeline.md"
    )
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # this size, in this process
    parser.add_argument("--plain", nargs=3, metavar=("URL", "BOX", "FILE"), help=argparse.SUPPRESS)  # the plain loop
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds: at least one warm round is needed")
    if arguments.plain:
        plain_loop(*arguments.plain)
    elif arguments.one:
        with tempfile.TemporaryDirectory(prefix="redbox-bench-") as directory:
            print(json.dumps(measure(Path(directory), arguments.one, arguments.rounds)))
    else:
        measure_all([int(size) for size in arguments.sizes.split(",")], arguments.rounds, arguments.into)


def measure_all(sizes: list[int], rounds: int, into: Path) -> None:
    results: dict[str, Any] = {"machine": machine.describe(), "commit": machine.commit(), "date": machine.now()}
    results["sizes"] = []
    into.mkdir(parents=True, exist_ok=True)
    for size in sizes:
        print(f"{size:,} events", file=sys.stderr, flush=True)
        results["sizes"].append(run(["--one", str(size), "--rounds", str(rounds if size == sizes[0] else 1)], 7200))
        text = report(results)
        (into / "pipeline.json").write_text(json.dumps(results, indent=1) + "\n")
        (into / "pipeline.md").write_text(text)
    print(f"\n{text}")


def run(arguments: list[str], seconds: float) -> dict[str, Any]:
    """Runs this program in a process of its own; returns the JSON of its last line."""
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-m", "bench.pipeline", *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=seconds,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure(directory: Path, events: int, rounds: int) -> dict[str, Any]:
    from redbox import pipeline
    from redbox.pipeline.source.options import Address

    url = f"embedded:{directory / 'data'}"
    clocks: dict[str, list[Clock]] = {}
    with held(Address(url, BOX)):
        began = time.monotonic()
        spark = pipeline.session()
        start_up = time.monotonic() - began
        source = directory / "source.parquet"
        make_source(spark, events, source)
        spark.read.parquet(str(source)).count()
        for number in range(1 + rounds):
            for name, clock in run_round(
                spark, Address(url, f"{BOX}-{number}"), source, events, directory / str(number)
            ):
                clocks.setdefault(name, []).append(clock)
                print(f"  round {number}, {name}: {clock.seconds:.1f} s", file=sys.stderr, flush=True)
        peaks = peaks_mb()
        spark.stop()
    answers = {name: {"cold": cost(events, each[:1]), "warm": cost(events, each[1:])} for name, each in clocks.items()}
    return {"events": events, "rounds": rounds, "start_up": start_up, "peaks_mb": peaks, "answers": answers}


def run_round(
    spark: SparkSession, at: Address, source: Path, events: int, directory: Path
) -> Iterator[tuple[str, Clock]]:
    """Runs each job once, on a new box that is empty at the end."""
    from redbox.pipeline.archive.job import archive
    from redbox.pipeline.jobs.load import load
    from redbox.pipeline.jobs.streams import run_stream

    def ask(name: str, work: Callable[[], Any]) -> tuple[str, Clock]:
        with timed() as clock:
            answer = work()
        assert answer in (None, events), (name, answer)
        return name, clock

    directory.mkdir()
    yield ask("load", lambda: load(spark, at, str(source)).put)
    table = spark.read.format("redbox").options(url=at.url, box=at.box).load()
    yield ask("count", table.count)
    yield ask("parquet", lambda: table.write.parquet(str(directory / "out.parquet")))
    plain = run(["--plain", at.url, at.box, str(directory / "plain.parquet")], 1800)
    yield "plain loop", Clock(plain["seconds"], Counter(plain["cpu"]))
    yield ask("drain", lambda: run_stream(spark, at, {"stream": "bench"}, str(directory / "sink")).rows)
    yield ask("archive", lambda: archive(spark, at, str(directory / "lake")).removed)
    shutil.rmtree(directory)


def cost(events: int, clocks: list[Clock]) -> dict[str, Any]:
    """Seconds of each run, events per second by their median, and the mean CPU time per event by part."""
    cpu = sum((clock.cpu for clock in clocks), Counter[str]())
    return {
        "seconds": [round(clock.seconds, 2) for clock in clocks],
        "rate": round(events / statistics.median(clock.seconds for clock in clocks)),
        "cpu_us": {part: round(seconds / events / len(clocks) * 1e6, 2) for part, seconds in cpu.items()},
    }


def make_source(spark: SparkSession, events: int, path: Path) -> None:
    """Rows of 512 random bytes."""
    piece = "unhex(sha2(cast(rand() as string), 512))"
    payload = f"concat({', '.join([piece] * 8)})"
    rows = spark.range(events).selectExpr("'user.created' as event_type", f"{payload} as payload")
    rows.write.parquet(str(path))


def peaks_mb() -> dict[str, float]:
    """The peak memory of the driver's Python and of the JVM."""
    found = {}
    for process in (os.getpid(), *java_processes()):
        text = Path(f"/proc/{process}/status").read_text()
        kilobytes = re.search(r"VmHWM:\s+(\d+)", text)
        found["Python" if process == os.getpid() else "JVM"] = int(kilobytes[1]) / 1024 if kilobytes else 0.0
    return found


def java_processes() -> list[int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(child) for child in children if Path(f"/proc/{child}/comm").read_text() == "java\n"]


@contextmanager
def held(at: Address) -> Iterator[None]:
    """Keeps the embedded server running during the block."""
    from redbox.pipeline.source.connection import opened

    with opened(at) as (box, run):
        run(box.exists())
        yield


def plain_loop(url: str, box: str, path: str) -> None:
    """Reads the box into Parquet in one process, with the pipeline's reader and without Spark."""
    import pyarrow.parquet as pq

    from redbox.pipeline.source.options import read_options
    from redbox.pipeline.source.reader import BoxReader
    from redbox.pipeline.source.schema import SCHEMA

    reader = BoxReader(read_options({"url": url, "box": box}), SCHEMA)
    parts = reader.partitions()
    began, cpu, writer = time.monotonic(), time.process_time(), None
    for part in parts:
        for batch in reader.read(part):
            writer = writer or pq.ParquetWriter(path, batch.schema)
            writer.write_batch(batch)
    if writer is not None:
        writer.close()
    print(json.dumps({"seconds": time.monotonic() - began, "cpu": {"tasks": time.process_time() - cpu}}))


# --- the report ------------------------------------------------------------------------------------------------------

JOBS = {
    "load": "load: Parquet file → box",
    "count": "count: `table.count()`",
    "parquet": "parquet: box → Parquet file",
    "plain loop": "plain loop: box → Parquet file, one Python process without Spark",
    "drain": "drain: box → Parquet files, events PUBLISHED",
    "archive": "archive: box → verified archive, events removed",
}
PARTS = {
    "server": "server",
    "tasks": "Python tasks",
    "JVM": "JVM",
    "compiler": "JIT compiler",
    "collector": "garbage collector",
    "driver": "Python driver",
}


def report(results: dict[str, Any]) -> str:
    main_one, *others = results["sizes"]
    where = ", ".join(f"{name} {text}" for name, text in results["machine"].items())
    warm = f"the median of the {main_one['rounds']} rounds after it" if main_one["rounds"] > 1 else "the round after it"
    lines = [
        f"# The pipeline: {main_one['events']:,} events of 512 random bytes",
        "",
        f"{where}; {results['date']}, commit {results['commit']}.",
        "",
        "The server, Spark and its Python processes share the cores. Each round runs all jobs, one after the other, on",
        "a new box. **Cold** is the first round: each job runs for the first time in a new Spark session. **Warm** is",
        f"{warm}, in the same session. Starting Spark is not included; it took {main_one['start_up']:.1f} s.",
        "",
        "## Events per second",
        "",
        *rates(main_one),
        *profile(main_one["answers"]),
    ]
    if others:
        lines += growth(results["sizes"])
    return "\n".join([*lines, *on_paper(main_one["answers"])])


def rates(size: dict[str, Any]) -> list[str]:
    lines = table("job", "cold", "warm", "slowest and fastest warm round", "goal (warm)")
    for name, answer in size["answers"].items():
        goal, warm = GOALS.get(name), answer["warm"]
        mark = "" if goal is None else f"{goal:,}, {'met' if warm['rate'] >= goal else '**not met**'}"
        slowest, fastest = (size["events"] / seconds for seconds in (max(warm["seconds"]), min(warm["seconds"])))
        bounds = f"{slowest:,.0f} – {fastest:,.0f}"
        lines.append(row(JOBS[name], f"{answer['cold']['rate']:,}", f"{warm['rate']:,}", bounds, mark))
    return [*lines, ""]


def profile(answers: dict[str, Any]) -> list[str]:
    """The table of CPU times by part."""
    lines = table("job", "all, cold", "all, warm", *PARTS.values())
    for name, answer in answers.items():
        cold, warm = answer["cold"]["cpu_us"], answer["warm"]["cpu_us"]
        parts = [f"{warm[part]:.1f}" if part in warm else "" for part in PARTS]
        lines.append(row(name, f"{sum(cold.values()):.1f}", f"{sum(warm.values()):.1f}", *parts))
    ratio = spark_cpu(answers["parquet"]) / spark_cpu(answers["plain loop"])
    return [
        "## CPU time per event, in microseconds",
        "",
        "The sum of all processes; the parts are those of the warm rounds. Python tasks are the worker processes of",
        "Spark; JVM is without its compiler and its garbage collector.",
        "",
        *lines,
        "",
        f"Warm, `parquet` takes {ratio:.2f} times the CPU time of the plain loop (goal: at most 1.5), not counting the",
        "server, whose work is the same for both.",
        "",
    ]


def growth(sizes: list[dict[str, Any]]) -> list[str]:
    ordered = sorted(sizes, key=lambda size: int(size["events"]))
    lines = table("job", *[f"{size['events']:,} events" for size in ordered])
    for name in ordered[0]["answers"]:
        lines.append(row(name, *[f"{1e6 / size['answers'][name]['warm']['rate']:.1f}" for size in ordered]))
    memory = table("peak memory of the driver, in MB", *[f"{size['events']:,} events" for size in ordered])
    for process in ("Python", "JVM"):
        memory.append(row(process, *[f"{size['peaks_mb'][process]:,.0f}" for size in ordered]))
    about = "Warm: elapsed microseconds per event. A job that scales has the same figure in each column."
    return ["## By number of events", "", about, "", *lines, "", *memory, ""]


def table(*heads: str) -> list[str]:
    return [row(*heads), "|" + "---|" * len(heads)]


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def spark_cpu(answer: dict[str, Any]) -> float:
    """Microseconds per event, without the server, in the warm rounds."""
    return float(sum(cost for part, cost in answer["warm"]["cpu_us"].items() if part != "server"))


def on_paper(answers: dict[str, Any]) -> list[str]:
    """An estimate: the server has one thread; the rest is divided by the cores."""
    lines = table("job", "limit of one server", "8 cores", "64 cores")
    for name in GOALS:
        server = answers[name]["warm"]["cpu_us"].get("server", 0.0)
        limit = 1e6 / server if server else float("inf")
        others = [min(limit, (cores - 1) * 1e6 / spark_cpu(answers[name])) for cores in (8, 64)]
        lines.append(
            row(name, *["not measured" if rate == float("inf") else f"{rate:,.0f}" for rate in (limit, *others)])
        )
    about = (
        "Calculated, not measured, in events per second: the CPU times above, with one core for the server and the "
        "others for Spark. The slower of the two sets the rate."
    )
    return ["## Estimate for more cores", "", about, "", *lines, ""]


if __name__ == "__main__":
    main()
