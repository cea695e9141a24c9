"""A long-running process: its event loop, its signals, and an exit that no thread can delay."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

from redbox.cli.failures import describe_failure
from redbox.cli.output import printable

T = TypeVar("T")
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
CLOSE_SECONDS: Final = 1.0
_THREADS: Final = ("AnyIO worker thread", "asyncio_")


def run(work: Coroutine[Any, Any, T], finish: Callable[[T], int]) -> int:
    """Runs `work`, on uvloop if it is installed. `finish` reports the result and returns the exit code.

    Threads that hang do not delay the exit: their events have been released by then.
    """
    runner = asyncio.Runner(loop_factory=_loop_factory())
    try:
        code = finish(runner.run(work))
    except Exception as error:
        failure = describe_failure(error)
        _close(runner, failure.exit_code, f"error: {printable(failure.message)}")
        raise
    _close(runner, code)
    return code


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _close(runner: asyncio.Runner, code: int, last_words: str = "") -> None:
    """Closes the loop. Exits at once if a thread hangs, since both the loop and the interpreter would wait for it."""
    watchdog = exit_after(CLOSE_SECONDS, code, last_words)
    runner.close()
    watchdog.cancel()
    deadline = time.monotonic() + CLOSE_SECONDS
    for thread in threading.enumerate():
        if thread.name.startswith(_THREADS):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                exit_now(code, last_words)


def exit_now(code: int, last_words: str = "") -> NoReturn:
    """Ends the process without waiting for anything."""
    with suppress(OSError, ValueError, RuntimeError):  # the stream is closed, or the interrupted code was writing to it
        if last_words:
            print(last_words, file=sys.stderr)
        sys.stderr.flush()
        sys.stdout.flush()
    os._exit(code)


def exit_after(seconds: float, code: int, last_words: str) -> threading.Timer:
    """Ends the process after `seconds`, unless it has ended by itself."""
    timer = threading.Timer(seconds, exit_now, [code, last_words])
    timer.daemon = True
    timer.start()
    return timer


@contextmanager
def on_signal(stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """While the block runs, the first SIGTERM or SIGINT calls `stop` on the event loop; the second exits at once.

    The handlers are Python's and not the loop's, so that a publisher that blocks the loop cannot delay the second.
    """
    loop = asyncio.get_running_loop()
    signalled = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal signalled
        if signalled:
            exit_now(128 + number)
        signalled = True
        loop.call_soon_threadsafe(stop, signal.Signals(number))

    before = {each: signal.signal(each, handle) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
