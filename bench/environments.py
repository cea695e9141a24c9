"""Builds a virtual environment for each block of `requirements.txt` that is new or has changed."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE / ".environments"
AT_ONCE = 2
_HEADING = re.compile(r"^# \[(\w+)\]$", re.MULTILINE)


def blocks() -> dict[str, str]:
    """The requirements of each environment, by its name."""
    _, *parts = _HEADING.split((HERE / "requirements.txt").read_text())
    return {name: body.strip() + "\n" for name, body in zip(parts[::2], parts[1::2], strict=True)}


def python(name: str) -> Path | None:
    """The interpreter of an environment, or None if it was not built."""
    return ROOT / name / "bin" / "python" if _stamp(name).exists() else None


def build(names: Iterable[str]) -> None:
    """Builds missing environments. A failure is printed, and its contender is left out."""
    wanted = blocks()
    missing = [name for name in names if not _is_current(name, wanted[name])]
    if not missing:
        return
    print(f"building {len(missing)} environments: {', '.join(missing)}", flush=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, error in zip(missing, pool.map(lambda name: _build(name, wanted[name]), missing), strict=True):
            print(f"  {name}: " + (f"failed, left out: {error}" if error else "built"), flush=True)


def _build(name: str, requirements: str) -> str | None:
    """Builds one environment; returns the error, or None."""
    where = ROOT / name
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    (where / "requirements.txt").write_text(requirements)
    install = [str(where / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(where)], [*install, "-r", str(where / "requirements.txt")]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own requirements
        if done.returncode:
            return (done.stderr or done.stdout).strip().rpartition("\n")[2]
    _stamp(name).write_text(_hash(requirements))
    return None


def _is_current(name: str, requirements: str) -> bool:
    stamp = _stamp(name)
    return stamp.exists() and stamp.read_text() == _hash(requirements)


def _stamp(name: str) -> Path:
    return ROOT / name / "built-from"


def _hash(requirements: str) -> str:
    return hashlib.sha256(f"{sys.version}\n{requirements}".encode()).hexdigest()
