"""What a measurement cost, and where: CPU seconds of the processes that took part, by what they do."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Threads of a JVM by the beginnings of their names.
COMPILER = re.compile(r"C[12] Compiler")
COLLECTOR = re.compile(r"(G1|GC|Shenandoah|ZGC|VM Thread)")
TICKS = os.sysconf("SC_CLK_TCK")


class Clock:
    """Seconds that passed, and CPU seconds by part: server, driver, tasks (Python), JVM, compiler, collector."""

    def __init__(self, seconds: float = 0.0, cpu: Counter[str] | None = None) -> None:
        self.seconds = seconds
        self.cpu = cpu or Counter()


@contextmanager
def timed() -> Iterator[Clock]:
    clock, before, began = Clock(), spent(), time.monotonic()
    yield clock
    clock.seconds, after = time.monotonic() - began, spent()
    clock.cpu = Counter({part: max(0.0, after[part] - before[part]) for part in after})


def spent() -> Counter[str]:
    """CPU seconds so far of this process, all that it started, and of embedded servers."""
    known = {pid: found for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if (found := _stat(f"{pid}"))}
    total: Counter[str] = Counter()
    for pid, (_, name, ticks) in known.items():
        if "valkey" in name:
            total["server"] += ticks
        elif pid == os.getpid():
            total["driver"] += ticks
        elif _is_ours(pid, known):
            if name == "java":
                compiler, collector = _threads(pid)
                total += Counter(compiler=compiler, collector=collector, JVM=ticks - compiler - collector)
            else:
                total["tasks"] += ticks
    return Counter({part: ticks / TICKS for part, ticks in total.items()})


def _is_ours(pid: int, known: dict[int, tuple[int, str, int]]) -> bool:
    while pid in known:
        if pid == os.getpid():
            return True
        pid = known[pid][0]
    return False


def _threads(pid: int) -> tuple[int, int]:
    """What the compiler and the collector of a JVM took."""
    compiler = collector = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        if found := _stat(f"{pid}/task/{thread}"):
            _, name, ticks = found
            compiler += ticks if COMPILER.match(name) else 0
            collector += ticks if COLLECTOR.match(name) else 0
    return compiler, collector


def _stat(of: str) -> tuple[int, str, int] | None:
    """Parent, name and ticks of a process, with those of its children that have ended, or of a thread."""
    try:
        text = (Path("/proc") / of / "stat").read_text()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return int(rest[1]), name, sum(map(int, rest[11:13] if "task" in of else rest[11:15]))
