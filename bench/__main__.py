"""Measures redbox beside its alternatives: `python -m bench [QUESTION ...] [--rounds N] [--quick]`."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench import environments, harness, machine, report
from bench.questions import ALL
from tests.servers import redis_binary, valkey_binary

HERE = Path(__file__).parent
RESULTS = HERE / "results"
ROUNDS = 3
QUICK = 0.1  # share of the events


def main() -> None:
    arguments = _arguments()
    if not shutil.which("redis-server"):
        sys.exit("redis-server is not installed: apt-get install redis-server")
    questions = [ALL[name] for name in arguments.questions or ALL]
    needed = {each.runs_in for question in questions for each in question.contenders if each.runs_in}
    if arguments.into:
        needed.add("plots")
    environments.build([name for name in environments.blocks() if name in needed])

    began = time.monotonic()
    rounds, share = (1, QUICK) if arguments.quick else (arguments.rounds, 1.0)
    plan = [(question, min(rounds, question.rounds or rounds)) for question in questions]
    progress = harness.Progress(plan)
    date, commit = machine.now(), machine.commit()
    results: report.Results = {
        "machine": machine.describe(),
        "servers": [machine.server_version(redis_binary()), machine.server_version(valkey_binary())],
        "questions": {
            question.name: {
                "title": question.title,
                "date": date,
                "commit": commit,
                "rounds": number,
                "answers": harness.ask(question, number, share, progress),
            }
            for question, number in plan
        },
    }
    print(f"\nmeasured in {(time.monotonic() - began) / 60:.1f} minutes\n\n{report.tables(results)}")
    if arguments.into:
        _write(results, arguments.into)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"default: all of {', '.join(ALL)}")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="number of rounds; the best one counts (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="one round with a tenth of the events; writes no results")
    parser.add_argument("--into", type=Path, help="directory for the results (default: bench/results)")
    arguments = parser.parse_args()
    for name in arguments.questions:
        if name not in ALL:
            parser.error(f"unknown question {name!r}; the questions are {', '.join(ALL)}")
    if arguments.into is None and not arguments.quick:
        arguments.into = RESULTS
    return arguments


def _write(results: report.Results, directory: Path) -> None:
    """Merges the results with earlier ones, and writes plots and tables of all of them."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "results.json"
    merged = report.merge(report.load(file), results)
    file.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n")
    painter = environments.python("plots")
    if painter:
        subprocess.run([str(painter), str(HERE / "plots.py"), str(file)], check=True)  # noqa: S603  # our own script
    else:
        print("no plots: matplotlib could not be installed")
    (directory / "README.md").write_text(report.page(merged, directory.glob("*.svg")))
    if directory == RESULTS:
        readme = HERE.parent / "README.md"
        readme.write_text(report.into_readme(readme.read_text(), merged))
    print(f"results written to {directory}")


if __name__ == "__main__":
    main()
