"""The questions, measured in the same way for every library.

Each script in this directory says how its library puts and consumes events. It runs in the environment of the library,
answers one question, and prints its figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import string
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

from server import Stopwatch, used_memory

BYTES = 512
BATCH = 500
TASKS = 100
WARM_UP = 50  # latencies that do not count
PACE = 0.005  # seconds between two events when latency is measured

Payload = bytes | str
Handle = Callable[[Payload], None]
Figures = dict[str, Any]


class Contender:
    """One library, used as its documentation says and with its fast settings."""

    #: Distributions whose versions are part of the results.
    libraries: ClassVar[Sequence[str]] = ()
    #: The type of a payload: bytes, or str if the library encodes it as JSON.
    takes: ClassVar[type[bytes | str]] = bytes
    #: Time limit of one question, in seconds.
    patience: ClassVar[float] = 60.0

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.url: str = arguments.url
        self.beside: str = arguments.beside
        self.target: str = arguments.target
        self.variant: str = arguments.variant
        self.question: str = arguments.question

    # --- implemented by each library's script ----------------------------------------------------------------------

    async def open(self) -> None:
        """Connects."""

    async def close(self) -> None:
        """Closes what `open` opened."""

    async def put(self, payload: Any) -> None:
        """Puts one event, and returns when the server has it."""
        raise NotImplementedError

    async def put_many(self, payloads: Sequence[Any]) -> None:
        """Puts many events with the library's bulk call; by default, tasks put them one by one."""
        await self._by_tasks(payloads)

    async def consume(self, handle: Handle) -> None:
        """Passes every event to `handle` and acknowledges it, until it is cancelled."""
        raise NotImplementedError

    async def settled(self, events: int) -> None:
        """Waits until this many events are acknowledged, if the library reports that."""

    # --- the questions -------------------------------------------------------------------------------------------

    async def put_one(self, events: int) -> Figures:
        """One loop that awaits each put."""
        await self.put(self._payload())
        with Stopwatch(self.url) as watch:
            for _ in range(events):
                await self.put(self._payload())
        return watch.per(events)

    async def put_tasks(self, events: int) -> Figures:
        """A hundred tasks, each a loop that awaits each put."""
        await self._by_tasks([self._payload()] * TASKS)  # connects
        payloads = [self._payload()] * events
        with Stopwatch(self.url) as watch:
            await self._by_tasks(payloads)
        return watch.per(events)

    async def put_bulk(self, events: int) -> Figures:
        """The library's bulk call, with 500 events each."""
        await self.put(self._payload())
        with Stopwatch(self.url) as watch:
            await self._fill(events)
        return watch.per(events)

    async def drain(self, events: int) -> Figures:
        """Consumes events that were put before."""
        await self._fill(events)
        done, loop, seen = asyncio.Event(), asyncio.get_running_loop(), itertools.count(1)

        def handle(payload: Payload) -> None:  # noqa: ARG001  # it does nothing but count
            if next(seen) == events:  # one step of the interpreter: threads may call it too
                loop.call_soon_threadsafe(done.set)

        with Stopwatch(self.url) as watch:
            consuming = asyncio.create_task(self.consume(handle))
            await _unless_it_ends(done.wait(), consuming)
            await self.settled(events)
        await _cancelled(consuming)
        return watch.per(events)

    async def latency(self, events: int) -> Figures:
        """The time from a put in another process until the idle handler in this one runs."""
        waits: list[int] = []
        done, loop = asyncio.Event(), asyncio.get_running_loop()
        wanted = events + WARM_UP

        def handle(payload: Payload) -> None:
            waits.append(time.perf_counter_ns() - int(payload[:20]))
            if len(waits) >= wanted:
                loop.call_soon_threadsafe(done.set)

        consuming = asyncio.create_task(self.consume(handle))
        await asyncio.sleep(0.3)
        command = [sys.executable, sys.argv[0], "produce", "--url", self.url, "--events", str(wanted)]
        producer = subprocess.Popen([*command, "--variant", self.variant], stdout=subprocess.DEVNULL)  # noqa: ASYNC220, S603  # starts before anything is measured
        try:
            await _unless_it_ends(done.wait(), consuming)
            await asyncio.to_thread(producer.wait)
        finally:
            producer.kill()
        await _cancelled(consuming)
        counted = sorted(waits[WARM_UP:])
        return {
            "events": len(counted),
            "p50_ms": round(counted[len(counted) // 2] / 1e6, 3),
            "p99_ms": round(counted[len(counted) * 99 // 100] / 1e6, 3),
        }

    async def produce(self, events: int) -> Figures:
        """The other process of `latency`. Each payload starts with the time, on a clock that both processes share."""
        for _ in range(events):
            text = f"{time.perf_counter_ns():020}".ljust(BYTES, "x")
            await self.put(text if self.takes is str else text.encode())
            await asyncio.sleep(PACE)
        return {}

    async def memory(self, events: int) -> Figures:
        """The growth of the server's memory. Connections are closed before each look, because they take memory too."""
        await self.put_many([self._random()])
        await self.close()
        before = used_memory(self.url)
        await self.open()
        for start in range(0, events, BATCH):
            await self.put_many([self._random() for _ in range(start, min(start + BATCH, events))])
        await self.close()
        await asyncio.sleep(0.3)  # the server frees its buffers a moment later
        each = (used_memory(self.url) - before) / events
        await self.open()
        return {"events": events, "bytes": round(each, 1), "beyond_payload": round(each - BYTES, 1)}

    # --- internals -------------------------------------------------------------------------------------------------

    def _payload(self) -> Payload:
        return "x" * BYTES if self.takes is str else b"x" * BYTES

    def _random(self) -> Payload:
        if self.takes is str:
            return "".join(random.choices(string.ascii_letters + string.digits, k=BYTES))  # noqa: S311  # not a secret
        return random.randbytes(BYTES)  # noqa: S311  # same

    async def _by_tasks(self, payloads: Sequence[Payload]) -> None:
        left = iter(payloads)

        async def work() -> None:
            for payload in left:
                await self.put(payload)

        await asyncio.gather(*(work() for _ in range(TASKS)))

    async def _fill(self, events: int) -> None:
        for start in range(0, events, BATCH):
            await self.put_many([self._payload()] * min(BATCH, events - start))


def main(contender: type[Contender]) -> None:
    """Answers the question of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("question")
    parser.add_argument("--url", required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--variant", default="")
    parser.add_argument("--beside", default="", help="the URL of a second server")
    parser.add_argument("--target", default="", help="the URL to post to")
    arguments = parser.parse_args()

    async def answer() -> Figures:
        asked = contender(arguments)
        await asked.open()
        figures: Figures = await getattr(asked, arguments.question)(arguments.events)
        await asked.close()
        return figures

    figures = run(asyncio.wait_for(answer(), contender.patience))
    print(json.dumps({**figures, "versions": {name: version(name) for name in contender.libraries}}))


def run(main: Coroutine[Any, Any, Figures]) -> Figures:
    """Runs on uvloop, if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


async def _unless_it_ends(waiting: Coroutine[Any, Any, Any], consuming: asyncio.Task[None]) -> None:
    """Waits, but not for a consumer that has ended."""
    waiter = asyncio.ensure_future(waiting)
    await asyncio.wait((waiter, consuming), return_when=asyncio.FIRST_COMPLETED)
    if not waiter.done():
        waiter.cancel()
        await consuming
        raise RuntimeError("the consumer ended before it had consumed everything")


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,), timeout=5)
