"""Several relay processes: the events that they publish together, and the CPU that they use.

The variant is the number of relays and the seconds of one publish: "2, 0.002" is two relays and 2 ms.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from contender import Figures, main
from server import cpu_seconds
from with_redbox import Redbox

from redbox import Event, Relay

PER_SECOND = 130_000  # more than relays can publish: the box must not become empty during the measurement


class Relays(Redbox):
    async def relays(self, events: int) -> Figures:
        """Fills the box, starts the relays at the same moment, and measures them for a while."""
        count = int(self.variant.split(",")[0])
        await self._fill(events)
        processes = [await self._start(events) for _ in range(count)]
        try:
            for process in processes:
                assert process.stdout is not None
                await process.stdout.readline()  # it is ready
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(b"go\n")
            warm_up, watched = _times(events)
            await asyncio.sleep(warm_up)
            began, before, ticks = time.perf_counter(), cpu_seconds(self.url), _ticks()
            await asyncio.sleep(watched)
            server = (cpu_seconds(self.url) - before) / (time.perf_counter() - began)
            busy, idle = (now - then for now, then in zip(_ticks(), ticks, strict=True))
            told = [json.loads((await process.communicate())[0]) for process in processes]
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
        if (await self.box.stats()).oldest_available is None:
            raise RuntimeError("the box ran dry while relays were watched: fill in more events")
        return {
            "rate": round(sum(each["rate"] for each in told), 1),
            "server_percent": round(server * 100),
            "client_percent": round(sum(each["percent"] for each in told) / count),
            "machine_percent": round(busy / max(busy + idle, 1) * 100),
            "cores": os.cpu_count(),
            "pause": float(self.variant.split(",")[1]),
        }

    async def relay(self, events: int) -> Figures:
        """One of the relay processes."""
        pause = float(self.variant.split(",")[1])

        async def publish(event: Event) -> None:  # noqa: ARG001  # it goes nowhere
            if pause:
                await asyncio.sleep(pause)

        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        warm_up, watched = _times(events)
        async with Relay(self.box, publish) as relay:
            await asyncio.sleep(warm_up)
            began, before, published = time.perf_counter(), time.process_time(), relay.summary().published
            await asyncio.sleep(watched)
            seconds = time.perf_counter() - began
            percent = (time.process_time() - before) / seconds * 100
            rate = (relay.summary().published - published) / seconds
        return {"rate": rate, "percent": percent}

    async def _start(self, events: int) -> Process:
        command = [sys.executable, sys.argv[0], "relay", "--url", self.url, "--events", str(events)]
        return await asyncio.create_subprocess_exec(*command, "--variant", self.variant, stdin=PIPE, stdout=PIPE)


def _times(events: int) -> tuple[float, float]:
    """Seconds of warm-up, and of measurement."""
    seconds = events / PER_SECOND
    return seconds / 5, seconds * 4 / 5


def _ticks() -> tuple[int, int]:
    """How long all cores were busy and idle, including other processes of the machine. Linux only."""
    file = Path("/proc/stat")
    if not file.exists():
        return 0, 0
    user, nice, system, idle, waiting, *others = (int(each) for each in file.read_text().split("\n")[0].split()[1:9])
    return user + nice + system + sum(others), idle + waiting


if __name__ == "__main__":
    main(Relays)
