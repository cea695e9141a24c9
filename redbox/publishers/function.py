"""A function as a publisher: returning means published, and an exception says what went wrong."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from redbox.arguments import whole_number
from redbox.errors import NotPublished, UsageError
from redbox.events import Claim, Event
from redbox.publishers.base import Publisher
from redbox.publishers.options import parse_number

THREADS: Final = 40
_UNLIMITED: Final = float("inf")

#: A function that publishes, async or plain. It takes the event, or the event and its claim.
Handler = Callable[[Event], Any] | Callable[[Event, Claim], Any]


class FunctionPublisher(Publisher):
    """Calls a function with each event, and with its claim if the function takes a second argument.

    An async function runs on the event loop. A plain one runs in worker threads: at most `concurrency`, including
    threads that still run after their call was cancelled; by default the concurrency of the relay. If a plain function
    returns an awaitable, it is awaited.
    """

    def __init__(self, function: Callable[..., Any], *, concurrency: int | str | None = None) -> None:
        self._name = _name(function)
        self._function = function
        self._wants_claim = _takes_claim(function, self._name)
        self._concurrency = None if concurrency is None else whole_number("concurrency", parse_number(concurrency))
        self._thread_count = self._concurrency or THREADS
        self._async = _is_async(function)
        self._unfinished: WeakKeyDictionary[asyncio.Task[Any], asyncio.Future[None]] = WeakKeyDictionary()
        self._threads: anyio.CapacityLimiter | None = None
        self._unlimited: anyio.CapacityLimiter | None = None
        if self._async:
            # The caller then awaits the coroutine of the function directly.
            direct = _call_with_claim if self._wants_claim else _call_with_event
            self.publish = functools.partial(direct, function)  # type: ignore[method-assign]

    @property
    def target(self) -> str:
        return f"the function {self._name}"

    def at_once(self, concurrency: int) -> int:
        if self._async:
            return concurrency
        self._thread_count = min(self._concurrency or concurrency, concurrency)
        return self._thread_count

    def unfinished(self) -> asyncio.Future[None] | None:
        task = asyncio.current_task()
        return None if task is None else self._unfinished.pop(task, None)

    async def open(self, box: str) -> None:  # noqa: ARG002  # a function knows its target
        self._threads = anyio.CapacityLimiter(self._thread_count)
        self._unlimited = anyio.CapacityLimiter(_UNLIMITED)

    async def publish(self, claim: Claim) -> None:
        if self._threads is None:
            await self.open("")
        assert self._threads is not None
        call = _ThreadCall(self._threads, self._function, (claim.event, claim) if self._wants_claim else (claim.event,))
        await self._threads.acquire_on_behalf_of(call)
        try:
            result = await anyio.to_thread.run_sync(call.run, abandon_on_cancel=True, limiter=self._unlimited)
        finally:
            task = asyncio.current_task()
            if call.detach() and task is not None:
                self._unfinished[task] = call.ended
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            result.close() if inspect.isgenerator(result) else await result.aclose()
            raise TypeError(f"{self._name} returned a generator, so nothing was run: a publisher must not yield")
        if inspect.isawaitable(result):
            await result


class _ThreadCall:
    """One call in a worker thread. It keeps its slot until the thread ends, even if the caller was cancelled. Otherwise
    hanging threads would accumulate with each attempt."""

    def __init__(self, slots: anyio.CapacityLimiter, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._slots = slots
        self._function = function
        self._arguments = arguments
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._lock = threading.Lock()
        self._started = self._detached = False

    def run(self) -> Any:
        with self._lock:
            if self._detached:  # cancelled before its thread began
                return None
            self._started = True
        try:
            return self._function(*self._arguments)
        except GeneratorExit as error:  # would end the coroutine that awaits the thread
            raise NotPublished("the function raised GeneratorExit") from error
        finally:
            with suppress(RuntimeError):  # the loop may be closed by now, and the slots with it
                self._loop.call_soon_threadsafe(self._free)

    def detach(self) -> bool:
        """Ends the wait of the caller. Returns True if the thread still runs; it then frees the slot when it ends."""
        with self._lock:
            self._detached = True
            if not self._started:
                self._free()
        return not self.ended.done()

    def _free(self) -> None:
        self._slots.release_on_behalf_of(self)
        if not self.ended.done():
            self.ended.set_result(None)


def _call_with_event(function: Callable[..., Any], claim: Claim) -> Any:
    return function(claim.event)


def _call_with_claim(function: Callable[..., Any], claim: Claim) -> Any:
    return function(claim.event, claim)


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__qualname__"):
        function = type(function)
    module = getattr(function, "__module__", None)  # methods of Python's own types have none, or None
    return f"{module}.{function.__qualname__}" if module else str(function.__qualname__)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _takes_claim(function: Any, name: str) -> bool:
    """Whether the function also takes the claim. Refuses a function that cannot be a publisher."""
    if inspect.isclass(function):
        raise UsageError(f"{name} is a class; give an instance of it, or a function")
    if not callable(function):
        raise UsageError(f"{name} cannot be called; give a function")
    for each in (function, type(function).__call__):
        if inspect.isasyncgenfunction(each) or inspect.isgeneratorfunction(each):
            raise UsageError(f"{name} is a generator function; a publisher must not yield")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):  # some functions written in C have no signature
        return False
    wanted = [each for each in parameters if each.default is each.empty]
    named = [each.name for each in wanted if each.kind is each.KEYWORD_ONLY]
    positional = [each for each in wanted if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    takes_any = any(
        each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD, each.VAR_POSITIONAL) for each in parameters
    )
    if named or len(positional) > 2 or not takes_any:
        raise UsageError(f"{name} must take (event) or (event, claim), not {inspect.signature(function)}")
    second = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)][1:2]
    return len(positional) == 2 or second == ["claim"]
