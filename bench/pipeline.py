"""Measures the pipeline on Spark: `python -m bench.pipeline [--sizes N,N,...] [--rounds N] [--into DIR]`.

Each size has a session of its own, `local[*]`, and an embedded server of its own that shares the cores (append-only
file, always synced), with events of 512 random bytes: load, count, write to Parquet, drain and archive; and beside it
one plain Python loop that reads the same box into Parquet. Rates are net of starting Spark, which is told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
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

HERE = Path(__file__).parent
GOALS = {
    "load": 35_000,
    "count": 80_000,
    "parquet": 60_000,
    "drain": 25_000,
    "archive": 25_000,
}
MAIN_SIZE = 1_000_000
SIZES = f"{MAIN_SIZE},300000,3000000"
BOX = "bench"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--sizes", default=SIZES, help=f"numbers of events, the main one first; default {SIZES}")
    parser.add_argument("--rounds", type=int, default=3, help="of count, Parquet and the plain loop, for the main size")
    parser.add_argument("--into", type=Path, default=HERE / "results", help="where pipeline.json and pipeline.md go")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # this size, in this process
    parser.add_argument("--plain", nargs=2, metavar=("URL", "FILE"), help=argparse.SUPPRESS)  # the loop beside it
    arguments = parser.parse_args()
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
        results["sizes"].append(run(["--one", str(size), "--rounds", str(rounds if size == sizes[0] else 1)], 3600))
        text = told(results)
        (into / "pipeline.json").write_text(json.dumps(results, indent=1) + "\n")
        (into / "pipeline.md").write_text(text)
    print(f"\n{text}")


def run(arguments: list[str], seconds: float) -> dict[str, Any]:
    """This program in a process of its own; what it prints last."""
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
    from redbox.pipeline.archive import archive
    from redbox.pipeline.load import load
    from redbox.pipeline.options import Address
    from redbox.pipeline.streams import run_stream

    url = f"embedded:{directory / 'data'}"
    at = Address(url, BOX)
    answers: dict[str, Any] = {}
    results: dict[str, Any] = {"events": events, "rounds": rounds, "answers": answers}

    def ask(name: str, work: Callable[[], Any], times: int = 1) -> None:
        clocks = []
        for _ in range(times):
            with timed() as clock:
                work()
            clocks.append(clock)
        answers[name] = told_of(events, clocks)
        print(f"  {name}: {answers[name]['rate']:,.0f} per second", file=sys.stderr, flush=True)

    with held(at):
        began = time.monotonic()
        spark = pipeline.session()
        results["start_up"] = time.monotonic() - began
        source, lake = directory / "source.parquet", directory / "lake"
        make_source(spark, events, source)
        spark.read.parquet(str(source)).count()
        ask("load", lambda: load(spark, at, str(source)))

        table = spark.read.format("redbox").options(url=url, box=BOX).load()
        ask("first count", table.count)
        ask("count", table.count, rounds)
        ask("parquet", lambda: table.write.mode("overwrite").parquet(str(directory / "out.parquet")), rounds)
        alone = [run(["--plain", url, str(directory / "plain.parquet")], 900) for _ in range(rounds)]
        answers["plain loop"] = told_of(events, [Clock(done["seconds"], Counter(done["cpu"])) for done in alone])

        drained, archived = [], []
        ask("drain", lambda: drained.append(run_stream(spark, at, {"stream": "bench"}, str(directory / "sink")).rows))
        ask("archive", lambda: archived.append(archive(spark, at, str(lake)).removed))
        assert (drained, archived) == ([events], [events]), (drained, archived)
        results["peaks_mb"] = peaks_mb()
        spark.stop()
    return results


def told_of(events: int, clocks: list[Clock]) -> dict[str, Any]:
    """Rate by the median, and CPU by the sum."""
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
    """The most memory that the driver's Python and the JVM ever had."""
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
def held(at: Any) -> Iterator[None]:
    """Keeps the embedded server up."""
    from redbox.pipeline.connection import opened

    with opened(at) as (box, run):
        run(box.exists())
        yield


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
    print(json.dumps({"seconds": time.monotonic() - began, "cpu": {"tasks": time.process_time() - cpu}}))


# --- what is written about it ----------------------------------------------------------------------------------------


def told(results: dict[str, Any]) -> str:
    main_one, *others = results["sizes"]
    where = ", ".join(f"{name} {text}" for name, text in results["machine"].items())
    first = main_one["answers"]["first count"]["seconds"][0]
    about = (
        f"{where}; {results['date']}, commit {results['commit']}. Server, Spark and its Python processes share the "
        f"cores. Starting Spark took {main_one['start_up']:.1f} s, and a first count {first:.1f} s; the others are "
        f"without them. Medians of {main_one['rounds']}; load, drain and archive once."
    )
    lines = [f"# The pipeline: {main_one['events']:,} events of 512 random bytes", "", about, ""]
    lines += rates(main_one["answers"])
    if others:
        lines += growth(results["sizes"])
    return "\n".join([*lines, *on_paper(main_one["answers"])])


PARTS = ("server", "tasks", "JVM", "compiler", "collector", "driver")


def rates(answers: dict[str, Any]) -> list[str]:
    """The table, with the profile: where the CPU went."""
    lines = table("", "events/s", "goal", "CPU µs per event", *PARTS)
    for name, answer in answers.items():
        goal, spent = GOALS.get(name), answer["cpu_us"]
        mark = "" if goal is None else f"{goal:,}{'' if answer['rate'] >= goal else ', **not met**'}"
        parts = [f"{spent[part]:.1f}" if part in spent else "" for part in PARTS]
        lines.append(row(name, f"{answer['rate']:,}", mark, f"{sum(spent.values()):.1f}", *parts))
    ratio = spark_cpu(answers["parquet"]) / spark_cpu(answers["plain loop"])
    return [
        *lines,
        "",
        "`tasks` are Spark's Python processes; `compiler` and `collector` threads of the JVM.",
        "",
        f"CPU per event to Parquet without the server's, beside the plain loop: {ratio:.2f} × (goal 1.5).",
        "",
    ]


def growth(sizes: list[dict[str, Any]]) -> list[str]:
    ordered = sorted(sizes, key=lambda size: int(size["events"]))
    lines = table("µs per event", *[f"{size['events']:,}" for size in ordered])
    names = [name for name in ordered[0]["answers"] if name != "first count"]
    lines += [row(name, *[f"{1e6 / size['answers'][name]['rate']:.1f}" for size in ordered]) for name in names]
    for process in ("Python", "JVM"):
        peaks = [f"{size['peaks_mb'][process]:,.0f}" for size in ordered]
        lines.append(row(f"most memory of the driver's {process}, MB", *peaks))
    return ["## With the number of events", "", *lines, ""]


def table(*heads: str) -> list[str]:
    return [row(*heads), "|" + "---|" * len(heads)]


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def spark_cpu(answer: dict[str, Any]) -> float:
    return float(sum(cost for part, cost in answer["cpu_us"].items() if part != "server"))


def on_paper(answers: dict[str, Any]) -> list[str]:
    """One server has one thread; the rest is divided by the cores."""
    lines = table("events/s", "one server at its limit", "8 cores", "64 cores")
    for name in GOALS:
        server = 1e6 / answers[name]["cpu_us"]["server"]
        others = [f"{min(server, (cores - 1) * 1e6 / spark_cpu(answers[name])):,.0f}" for cores in (8, 64)]
        lines.append(row(name, f"{server:,.0f}", *others))
    about = (
        "From the costs above: the server has a core of its own, Spark the others; the smaller rate of the two counts."
    )
    return ["## On more cores, on paper", "", about, "", *lines, ""]


if __name__ == "__main__":
    main()
