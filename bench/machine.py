"""The machine and the commit of a run, for the results: without names of hosts or people, and without paths."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path


def describe() -> dict[str, str]:
    kilobytes = _find("/proc/meminfo", r"MemTotal:\s+(\d+)") or "0"
    return {
        "CPU": _find("/proc/cpuinfo", r"model name\s*: (.+)") or platform.machine(),
        "cores": str(len(cores())),
        "memory": f"{int(kilobytes) / 2**20:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
        "Python": platform.python_version(),
    }


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def pin(pid: int, core: int) -> None:
    """Keeps all threads of a process on one core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def can_pin() -> bool:
    return hasattr(os, "sched_setaffinity") and Path("/proc/self/task").exists()


def commit() -> str | None:
    """The current commit, with "-dirty" if files have changed since."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"],  # noqa: S607
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def server_version(binary: str) -> str:
    """For example "Redis 7.0.15"."""
    output = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout  # noqa: S603
    found = re.search(r"(\w+) server v=([\d.]+)", output)
    return f"{found[1]} {found[2]}" if found else output.strip()


def _find(path: str, pattern: str) -> str | None:
    try:
        found = re.search(pattern, Path(path).read_text())
    except OSError:
        return None
    return found[1].strip() if found else None
