"""A box inside a Spark process, where no event loop runs: it brings its own."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from redbox.box import Box
from redbox.box.receipts import chunks
from redbox.errors import UnknownBox
from redbox.pipeline.source.options import Address
from redbox.pipeline.source.patience import patiently
from redbox.store import connect
from redbox.store.codec import EncodedEvent
from redbox.store.durability import SERVER, Durability
from redbox.store.replies import PutReply
from redbox.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")


class Connection:
    """The store of a box, called without `await`; one that is away is asked again for `patience` seconds."""

    def __init__(self, at: Address, patience: float = 0.0) -> None:
        self.at = at
        self._patience = patience
        self.store = Store(connect.from_url(at.url), at.box)
        self._runner = asyncio.Runner()

    def run(self, ask: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
        return self._runner.run(patiently(self._patience, ask, *args, **options))

    def put(
        self, events: list[tuple[T, EncodedEvent]], durability: Durability = SERVER
    ) -> Iterator[tuple[T, PutReply]]:
        """Puts events in chunks that one script call may take; yields what came with each event, and its reply."""
        for chunk in chunks(events):
            replies = self.run(self.store.put, "each", [event for _, event in chunk], durability)
            yield from zip((item for item, _ in chunk), replies, strict=True)

    def close(self) -> None:
        try:
            self._runner.run(self.store.close())
        finally:
            self._runner.close()

    def require_box(self) -> None:
        """Reading never makes a box: one that is not there is an error that lists those that are."""
        if not self.run(self.store.meta):
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
    """A box, and what runs its coroutines."""
    with asyncio.Runner() as runner:
        box = Box.open(at.url, name=at.box, **options)
        try:
            yield box, runner.run
        finally:
            runner.run(box.aclose())


@contextmanager
def without_gc() -> Iterator[None]:
    """For a task: what is made for a row is gone with its step, and holds no cycles; there is nothing to look for."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
