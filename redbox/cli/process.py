"""A long-running process: its event loop, its signals, and an exit that no thread can delay."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from redbox.cli.printing.failures import describe_failure
from redbox.cli.printing.output import printable
from redbox.durations import format_duration

logger = logging.getLogger("redbox.cli")

T = TypeVar("T")
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
CLOSE_SECONDS: Final = 1.0
BLOCKED_SECONDS: Final = 1.0  # after which an event loop that does not answer a signal counts as blocked
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


def freeze_objects() -> None:
    """Leaves the objects that exist now, such as modules, out of garbage collections for good. They stay as long as the
    process, and each full collection of them would stop the event loop for about 50 ms."""
    gc.freeze()


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


class Deadline(NamedTuple):
    """How long a process may take to end after a signal, and its last words if it takes longer."""

    seconds: float
    last_words: str


@contextmanager
def on_signal(stop: Callable[[signal.Signals], None], deadline: Deadline | None = None) -> Iterator[None]:
    """While the block runs, the first SIGTERM or SIGINT calls `stop` on the event loop; the second exits at once.

    The handlers are Python's and not the loop's, so that code that blocks the loop can delay neither the second signal
    nor the deadline. The deadline also holds after the block, and exits with 1.
    """
    loop = asyncio.get_running_loop()
    watchdog = None if deadline is None else _Watchdog(deadline)
    signalled = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal signalled
        if signalled:
            exit_now(128 + number)
        signalled = True
        loop.call_soon_threadsafe(begin, signal.Signals(number))
        if watchdog is not None:
            watchdog.start(signal.Signals(number))

    def begin(which: signal.Signals) -> None:
        if watchdog is not None:
            watchdog.loop_answered.set()
        stop(which)

    before = {each: signal.signal(each, handle) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        if watchdog is not None:
            watchdog.release()


class _Watchdog:
    """Ends the process at the deadline after a signal. Its thread runs before the signal: a handler that starts one can
    hang, since the code that it interrupts may be starting one, too."""

    def __init__(self, deadline: Deadline) -> None:
        self.loop_answered = threading.Event()
        self._deadline = deadline
        self._awake = threading.Event()
        self._which: signal.Signals | None = None
        threading.Thread(target=self._watch, name="redbox watchdog", daemon=True).start()

    def start(self, which: signal.Signals) -> None:
        """Starts the time. Safe in a signal handler."""
        self._which = which
        self._awake.set()

    def release(self) -> None:
        """Ends the thread, unless a signal has come."""
        self._awake.set()

    def _watch(self) -> None:
        self._awake.wait()
        if self._which is None:
            return
        ends = time.monotonic() + self._deadline.seconds
        if not self.loop_answered.wait(min(BLOCKED_SECONDS, self._deadline.seconds)):
            logger.warning(
                "%s: the event loop is blocked, so nothing can be finished; the process exits in %s; a second signal "
                "exits at once",
                self._which.name,
                format_duration(self._deadline.seconds),
            )
        time.sleep(max(0.0, ends - time.monotonic()))
        exit_now(1, self._deadline.last_words)
