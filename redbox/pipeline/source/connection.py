"""Calls of the store from a Spark process, where no event loop runs; an unreachable store is waited for."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar

from redbox.box import Box
from redbox.box.receipts import chunks
from redbox.errors import Effect, StoreUnavailable, UnknownBox
from redbox.pipeline.source.options import Address
from redbox.store import connect
from redbox.store.codec import EncodedEvent
from redbox.store.scripts.replies import PutReply
from redbox.store.server.durability import SERVER, Durability
from redbox.store.store import Store

logger = logging.getLogger("redbox")

P = ParamSpec("P")
T = TypeVar("T")
FIRST_PAUSE: Final = 0.1  # seconds
LONGEST_PAUSE: Final = 1.0  # seconds


async def patiently(seconds: float, call: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
    """Calls the store, and repeats the call for this many seconds while the store is unreachable.

    Every step of the pipeline may be repeated. The error that ends the wait does not say that nothing was changed: that
    is true of the last command, but not of the job.
    """
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
    while True:
        try:
            return await call(*args, **options)
        except StoreUnavailable as error:
            if error.effect is not Effect.UNKNOWN:
                error.with_effect(Effect.UNSAID)
            if time.monotonic() + pause > deadline:
                raise
            logger.warning("waiting for the store: %s", error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


class Connection:
    """The store of a box, called without `await`. An unreachable store is waited for, up to `patience` seconds."""

    def __init__(self, at: Address, patience: float = 0.0) -> None:
        self.at = at
        self._patience = patience
        self.store = Store(connect.from_url(at.url), at.box)
        self._runner = asyncio.Runner()

    def run(self, call: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
        return self._runner.run(patiently(self._patience, call, *args, **options))

    def put_each(self, encoded: list[tuple[T, EncodedEvent]], level: Durability = SERVER) -> list[PutReply]:
        """Puts encoded events, each paired with a label, one by one: a refused event does not affect the others.

        Makes as many script calls as the number and size of the events require; returns their replies in order.
        """
        replies: list[PutReply] = []
        for chunk in chunks(encoded):
            replies += self.run(self.store.put, "each", [event for _, event in chunk], level)
        return replies

    def close(self) -> None:
        try:
            self._runner.run(self.store.close())
        finally:
            self._runner.close()

    def require_box(self) -> None:
        """Raises UnknownBox, with the names of the boxes that exist, if there is no such box: reading creates none."""
        if not self.run(self.store.exists):
            names = self.run(self.store.boxes)
            there = f"there are: {', '.join(names)}" if names else "there is none yet"
            raise UnknownBox(f"there is no box {self.at.box!r} on {self.store.where}; {there}")


@contextmanager
def connected(at: Address, patience: float = 0.0) -> Iterator[Connection]:
    connection = Connection(at, patience)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def opened(at: Address, **options: Any) -> Iterator[tuple[Box, Any]]:
    """An open box, and a function that runs its coroutines."""
    with asyncio.Runner() as runner:
        box = Box.open(at.url, name=at.box, **options)
        try:
            yield box, runner.run
        finally:
            runner.run(box.aclose())


@contextmanager
def without_gc() -> Iterator[None]:
    """Turns the garbage collector off in a task: objects made for a row hold no cycles, so it would find nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
