"""What publishers of many events share: chunks of a call, and calls whose events are acknowledged one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def chunks(items: Iterable[Item], size_of: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Splits items, in order, into chunks of at most `most` bytes, so that the copy in memory stays small. A larger
    item is a chunk of its own."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        length = size_of(item)
        if chunk and size + length > most:
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += length
    if chunk:
        yield chunk


class Call:
    """The events of one call, and how many of them still wait for an acknowledgement. `done` is set when none does."""

    def __init__(self, outcomes: list[BaseException | None], waiting: int) -> None:
        self._outcomes = outcomes
        self._waiting = waiting
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, place: int, outcome: BaseException | None) -> None:
        """Sets the outcome of the event with this index in the call; None if the target acknowledged it."""
        self._outcomes[place] = outcome
        self._waiting -= 1
        if not self._waiting and not self.done.done():
            self.done.set_result(None)
