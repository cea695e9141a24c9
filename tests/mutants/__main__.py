"""Runs the tests once per mutant: `python -m tests.mutants [lua] [python] [NAME...]`. Exits with 1 if one survives.

The test that killed a mutant is remembered in `killers.json` and runs first the next time. If it passes, all tests of
the mutant run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.python import PYTHON_MUTANTS

ROOT = Path(__file__).resolve().parents[2]
KILLERS = Path(__file__).with_name("killers.json")
COPIED = ("redbox", "lua", "tests", "docs", "README.md", "pyproject.toml")
CATALOGUES = {"lua": MUTANTS, "python": PYTHON_MUTANTS}
WORKERS = 2
TEST_LIMIT = 60  # seconds for one test: a defect may make it hang
LIMIT = 600  # seconds for the tests of one mutant
TURNS = 3  # how often the tests run until a failure can be repeated
FAILED = 1  # pytest: tests ran, and some failed
NOT_FOUND = 4  # pytest: there is no such test, as when a remembered one was renamed


def copy_of_the_project(directory: Path, mutant: Mutant | None) -> None:
    """Everything that the tests need, with the one defect."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name)
        else:
            shutil.copy2(source, directory / name)
    if mutant is not None:
        path = directory / mutant.path
        text = path.read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(
                f"{mutant.name}: {mutant.old!r} occurs {text.count(mutant.old)} times in {mutant.path}, not once"
            )
        path.write_text(text.replace(mutant.old, mutant.new))


def killed_by(mutant: Mutant | None, tests: Sequence[str], killer: str | None = None) -> str | None:
    """The test that noticed the defect, or None if all passed. `killer` is tried first.

    It has to fail twice: a test that once took too long on a busy machine has noticed nothing.
    """
    with tempfile.TemporaryDirectory(prefix="redbox-mutant-") as name:
        directory = Path(name)
        copy_of_the_project(directory, mutant)
        if killer is not None and (directory / killer.partition("::")[0]).exists():
            failures = [first_failure(mutant, directory, [killer]) for _ in range(2)]
            if all(failures):
                return killer
        for _ in range(TURNS):
            failed = first_failure(mutant, directory, tests)
            if failed is None or first_failure(mutant, directory, [failed]) is not None:
                return failed
    return None


def first_failure(mutant: Mutant | None, directory: Path, tests: Sequence[str]) -> str | None:
    """The first test that fails, as pytest names it, without its parameters."""
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=no",
        f"--timeout={TEST_LIMIT}", "-m", "", *tests,  # campaigns too
    ]  # fmt: skip
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory)},  # also for processes that tests start
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode == 0 or (done.returncode == NOT_FOUND and len(tests) == 1):
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+?\.py(?:::\w+)+)", done.stdout, re.MULTILINE)
    if done.returncode != FAILED or found is None:
        raise SystemExit(f"{mutant and mutant.name}: the tests did not run:\n{done.stdout}\n{done.stderr}")
    return found[1]


def wanted(arguments: Sequence[str]) -> list[Mutant]:
    """All mutants, those of a catalogue, or those named."""
    everything = [mutant for catalogue in CATALOGUES.values() for mutant in catalogue]
    known = {mutant.name for mutant in everything} | set(CATALOGUES)
    if unknown := [name for name in arguments if name not in known]:
        raise SystemExit(f"no such mutant or catalogue: {', '.join(unknown)}")
    named = {mutant.name for name in arguments for mutant in CATALOGUES.get(name, ())} | set(arguments)
    return [mutant for mutant in everything if not arguments or mutant.name in named]


def main() -> int:
    mutants = wanted(sys.argv[1:])
    survivors = []
    started = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        suites = list(dict.fromkeys(mutant.tests for mutant in mutants))
        for tests, noticed in zip(suites, pool.map(lambda tests: killed_by(None, tests), suites), strict=True):
            if noticed is not None:
                print(f"{noticed} of {' '.join(tests)} fails without any mutant; mend that first")
                return 1
        killers = json.loads(KILLERS.read_text()) if KILLERS.exists() else {}
        running = {pool.submit(killed_by, mutant, mutant.tests, killers.get(mutant.name)): mutant for mutant in mutants}
        for count, future in enumerate(as_completed(running), 1):
            mutant, noticed = running[future], future.result()
            if noticed is None:
                survivors.append(mutant)
            else:
                killers[mutant.name] = noticed
                KILLERS.write_text(json.dumps(dict(sorted(killers.items())), indent=1) + "\n")
            outcome = "SURVIVED" if noticed is None else "killed  "
            by = "" if noticed is None else f"  by {noticed.rpartition('::')[2]}"
            print(f"{count:3}/{len(mutants)}  {outcome}  {mutant.name}{by}", flush=True)
    took = time.monotonic() - started
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants killed in {took:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
