"""The CPU seconds of a measurement, by process and part."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Threads of a JVM by the beginnings of their names.
COMPILER = re.compile(r"C[12] Compiler")
COLLECTOR = re.compile(r"(G1|GC|Shenandoah|ZGC|VM Thread)")
TICKS = os.sysconf("SC_CLK_TCK")
LOOKS = 0.5  # seconds between samples; CPU time after the last sample of a process that ends is not counted

Spent = dict[tuple[int, str], int]  # process and part, and its ticks


class Clock:
    """Elapsed seconds, and CPU seconds by part: server, driver, tasks (Python), JVM, compiler, collector."""

    def __init__(self, seconds: float = 0.0, cpu: Counter[str] | None = None) -> None:
        self.seconds = seconds
        self.cpu = cpu or Counter()


@contextmanager
def timed() -> Iterator[Clock]:
    """Measures the block. Processes may start and end during it."""
    clock, over = Clock(), threading.Event()
    before = _look()
    seen = dict(before)

    def watch() -> None:
        while not over.wait(LOOKS):
            seen.update(_look())

    watcher = threading.Thread(target=watch, daemon=True)
    began = time.monotonic()
    watcher.start()
    try:
        yield clock
    finally:
        clock.seconds = time.monotonic() - began
        over.set()
        watcher.join()
    seen.update(_look())
    for (process, part), ticks in seen.items():
        clock.cpu[part] += (ticks - before.get((process, part), 0)) / TICKS


def _look() -> Spent:
    """The CPU time so far of this process, its descendants, and embedded servers."""
    known = {pid: found for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if (found := _stat(f"{pid}"))}
    spent: Spent = {}
    for pid, (_, name, ticks) in known.items():
        if "valkey" in name:
            spent[pid, "server"] = ticks
        elif pid == os.getpid():
            spent[pid, "driver"] = ticks
        elif _is_ours(pid, known):
            if name == "java":
                compiler, collector = _threads(pid)
                spent[pid, "compiler"], spent[pid, "collector"] = compiler, collector
                spent[pid, "JVM"] = ticks - compiler - collector
            else:
                spent[pid, "tasks"] = ticks
    return spent


def _is_ours(pid: int, known: dict[int, tuple[int, str, int]]) -> bool:
    while pid in known:
        if pid == os.getpid():
            return True
        pid = known[pid][0]
    return False


def _threads(pid: int) -> tuple[int, int]:
    """The CPU time of a JVM's compiler and garbage collector."""
    compiler = collector = 0
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0, 0
    for thread in threads:
        if found := _stat(f"{pid}/task/{thread}"):
            _, name, ticks = found
            compiler += ticks if COMPILER.match(name) else 0
            collector += ticks if COLLECTOR.match(name) else 0
    return compiler, collector


def _stat(of: str) -> tuple[int, str, int] | None:
    """Parent, name and ticks of a process or a thread."""
    try:
        text = (Path("/proc") / of / "stat").read_text()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return int(rest[1]), name, int(rest[11]) + int(rest[12])
