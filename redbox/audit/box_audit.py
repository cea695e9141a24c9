"""Audits a whole box from one process, in bounded steps, while it is in use.

First the keys of the box are scanned: every event is read with all that belongs to it at one moment, and so is every
line and unique key. Then the indexes are walked for ids without an event. Only problems are remembered, so that none is
reported twice: the audit of a large box takes no more memory than that of a small one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Final

from redbox import keys
from redbox.audit.rules import Problem
from redbox.audit.walk import READ_COUNT, Auditor, IndexRange, Name, ReadBatch
from redbox.box import Box
from redbox.settings import BATCH_COUNT
from redbox.store.scripts.steps import batches
from redbox.store.store import Store

#: Called with the number of events checked so far, and about how many there are.
Progress = Callable[[int, int], None]

#: Steps that are sent before the reply to the first has come: enough to keep the server busy while replies are checked,
#: and few enough that other clients of the server wait a few milliseconds.
IN_FLIGHT: Final = 3
SAMPLE: Final = 1000


def audit_box(
    box: Box, *, sample: int | None = None, bodies: bool = True, progress: Progress | None = None
) -> BoxAudit:
    """Checks a box against RULES: iterate over the result for its problems. Changes nothing.

    `sample` checks only the first and the last events of each index, that number of each, with their lines and unique
    keys.
    `bodies=False` does not read the bodies, and so leaves out the rules `damaged` and `newer`.
    """
    return BoxAudit(store_of(box), sample=sample, bodies=bodies, progress=progress)


def store_of(box: Box) -> Store:
    """The store of a box: the audit reads, and the repair writes, below the public methods of the box."""
    return box._store  # noqa: SLF001


class BoxAudit:
    """An audit; to be iterated over once. The counts are complete when the iteration has ended."""

    def __init__(
        self,
        store: Store,
        *,
        sample: int | None = None,
        bodies: bool = True,
        progress: Progress | None = None,
    ) -> None:
        self.events = 0  # events checked
        self.keys = 0  # lines and unique keys checked
        self.by_rule: Counter[str] = Counter()  # problems
        self._store = store
        self._auditor = Auditor(store, bodies=bodies)
        self._sample = sample
        self._progress = progress
        self._total = 0
        self._found: set[Problem] = set()

    @property
    def problems(self) -> int:
        """How many problems were found so far."""
        return self.by_rule.total()

    async def __aiter__(self) -> AsyncIterator[Problem]:
        self._store.ensure_open()
        of_box = await self._auditor.check_box()
        if self._progress is not None:
            sizes = await self._store.index_sizes(self._auditor.name_kinds().keys() & set(keys.INDEXES))
            self._total = sum(sizes)
        batches_of_names = self._everything() if self._sample is None else self._sampled(self._sample)
        steps, batches_ahead = _Steps(IN_FLIGHT), _ahead(batches_of_names)
        try:
            for problem in self._fresh(of_box):
                yield problem
            async for found in batches_ahead:
                names = self._auditor.checkable(found)
                if not names:
                    continue
                batch = await steps.add(self._auditor.read_batch(names))
                self._count(names)
                if batch is not None:
                    for problem in self._fresh(await self._auditor.check_batch(batch)):
                        yield problem
            while steps:
                for problem in self._fresh(await self._auditor.check_batch(await steps.oldest())):
                    yield problem
        finally:
            await batches_ahead.aclose()
            await steps.cancel()

    def _fresh(self, problems: Iterable[Problem]) -> Iterator[Problem]:
        for problem in problems:
            if problem not in self._found:
                self._found.add(problem)
                self.by_rule[problem.rule] += 1
                yield problem

    def _count(self, names: list[Name]) -> None:
        if names[0].kind != "event":
            self.keys += len(names)
            return
        self.events += len(names)
        if self._progress is not None:
            self._progress(self.events, max(self.events, self._total))

    @property
    def without_body(self) -> set[str]:
        """The ids of the DEAD events that a repair has marked, because their body is missing."""
        return self._auditor.without_body

    # --- names ---------------------------------------------------------------------------------------------------

    async def _everything(self) -> AsyncIterator[list[Name]]:
        """All names of the box, in batches of one kind: events, or keys."""
        events, others = _Batch(), _Batch()
        cursor, first = 0, True
        while cursor or first:
            step, first = await self._auditor.scan_sorted(cursor), False
            cursor = step.cursor
            for batch in (*events.add(step.events), *others.add(step.keys)):
                yield batch
            for batch in events.add(await self._auditor.without_event(step.leftovers)):
                yield batch
        for index, kind in self._auditor.name_kinds().items():
            async for names in self._members(index):
                wanted = names
                if kind == "event":
                    wanted = await self._auditor.without_event([name.raw for name in names])
                for batch in (events if kind == "event" else others).add(wanted):
                    yield batch
        for left in (events.left, others.left):
            if left:
                yield left

    async def _members(self, index: str) -> AsyncIterator[list[Name]]:
        for part in await self._auditor.split(index, BATCH_COUNT):
            rest: IndexRange | None = part
            while rest is not None:
                names, rest = await self._auditor.read(rest)
                yield names

    async def _sampled(self, count: int) -> AsyncIterator[list[Name]]:
        ids: dict[Name, None] = {}
        lines: dict[Name, None] = {}
        for index, kind in self._auditor.name_kinds().items():
            for raw in await self._store.index_ends(index, count):
                (ids if kind == "event" else lines)[Name(kind, raw)] = None
        for names in batches(ids, READ_COUNT):
            yield names
            lines.update(dict.fromkeys(await self._auditor.keys_of(names)))
        for names in batches(lines, READ_COUNT):
            yield names


class _Batch:
    """Collects names into batches of READ_COUNT."""

    def __init__(self) -> None:
        self.left: list[Name] = []

    def add(self, names: list[Name]) -> Iterator[list[Name]]:
        self.left += names
        while len(self.left) >= READ_COUNT:
            batch, self.left = self.left[:READ_COUNT], self.left[READ_COUNT:]
            yield batch


class _Steps:
    """Steps in flight, at most `limit`; their results come in order."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: deque[asyncio.Task[ReadBatch]] = deque()

    def __len__(self) -> int:
        return len(self._tasks)

    async def add(self, step: Coroutine[Any, Any, ReadBatch]) -> ReadBatch | None:
        """Starts a step; returns the result of the oldest one if there are too many."""
        self._tasks.append(asyncio.create_task(step))
        await asyncio.sleep(0)  # so that it is sent before results are checked
        return await self.oldest() if len(self._tasks) > self._limit else None

    async def oldest(self) -> ReadBatch:
        return await self._tasks.popleft()

    async def cancel(self) -> None:
        """Ends the steps in flight of an audit that was not iterated to its end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _ahead(batches_of_names: AsyncIterator[list[Name]]) -> AsyncGenerator[list[Name], None]:
    """The same batches; each is looked for while the one before it is read and checked."""

    async def following() -> list[Name] | None:
        return await anext(batches_of_names, None)

    task = asyncio.create_task(following())
    try:
        while (batch := await task) is not None:
            task = asyncio.create_task(following())
            yield batch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def all_problems(store: Store) -> BoxAudit:
    """Checks the whole box of a store."""
    return BoxAudit(store)
