"""Runs the suite once per mutant: `python -m tests.mutants [NAME...]`. Ends with 1 when a mutant survives."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
SUITE = ["--pyargs", "redbox.testing.conformance", "tests/unit/test_exact_times.py"]
WORKERS = 2
LIMIT = 300


def patched(mutant: Mutant, directory: Path) -> Path:
    """A copy of the scripts with the one defect."""
    lua = directory / "lua"
    shutil.copytree(ROOT / "lua", lua)
    script = lua / mutant.file
    text = script.read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(
            f"{mutant.name}: {mutant.old!r} stands {text.count(mutant.old)} times in {mutant.file}, not once"
        )
    script.write_text(text.replace(mutant.old, mutant.new))
    return lua


def killed_by(mutant: Mutant | None) -> str | None:
    """The test that noticed the defect, or None when none did."""
    with tempfile.TemporaryDirectory(prefix="redbox-mutant-") as directory:
        lua = patched(mutant, Path(directory)) if mutant else ROOT / "lua"
        command = [
            sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=no",
            "--redbox-lua", str(lua), *SUITE,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
        if done.returncode == 0:
            return None
        for line in done.stdout.splitlines():
            if line.startswith(("FAILED", "ERROR")):
                return line.split("::")[-1].split(" - ")[0]
        raise SystemExit(f"the suite did not run:\n{done.stdout}\n{done.stderr}")


def main() -> int:
    wanted = [mutant for mutant in MUTANTS if not sys.argv[1:] or mutant.name in sys.argv[1:]]
    if killed_by(None) is not None:
        print("the suite fails on the scripts as they are; mend that first")
        return 1
    survivors = []
    started = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        running = {pool.submit(killed_by, mutant): mutant for mutant in wanted}
        for count, future in enumerate(as_completed(running), 1):
            mutant, noticed = running[future], future.result()
            if noticed is None:
                survivors.append(mutant)
            print(f"{count:3}/{len(wanted)}  {'SURVIVED' if noticed is None else 'killed  '}  {mutant.name}"
                  f"{'' if noticed is None else f'  by {noticed}'}", flush=True)  # fmt: skip
    took = time.monotonic() - started
    print(f"{len(wanted) - len(survivors)} of {len(wanted)} mutants killed in {took:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
