"""The box for code that is not async: scripts, Django views, notebooks.

    from redbox.sync import Box

    with Box.open("redis://localhost:6379/0", name="orders") as box:
        box.put(Event("user.created", {"id": 42}))

One background thread runs the event loop; the box may be used from any number of threads, and their puts coalesce. A
process that was forked from one that used the box gets a loop and connections of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from redbox.box import Box as AsyncBox
from redbox.errors import UsageError
from redbox.events import Receipt, Record
from redbox.settings import PAGE_LIMIT


class Box:
    """A blocking view of a box: put, put_many, get and list."""

    def __init__(self, url: str | None, options: dict[str, Any]) -> None:
        self._url = url
        self._options = options
        self._box = AsyncBox.open(url, **options)
        self._closed = False
        self._fresh()

    def _fresh(self) -> None:
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._process = os.getpid()

    @classmethod
    def open(cls, url: str | None = None, **options: Any) -> Self:
        """As `redbox.Box.open`; no I/O happens yet."""
        return cls(url, options)

    def __enter__(self) -> Self:
        self._running()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits for what is under way and closes the connections."""
        with self._lock:
            self._closed = True
            if self._portal is not None and self._process == os.getpid():
                self._portal.call(self._box.aclose)
                self._stack.close()
            self._portal = None

    def put(self, event: Any, **options: Any) -> Receipt:
        return self._call("put", event, **options)  # type: ignore[no-any-return]

    def put_many(self, events: Iterable[Any], **options: Any) -> list[Receipt]:
        return self._call("put_many", events, **options)  # type: ignore[no-any-return]

    def get(self, event_id: str) -> Record | None:
        return self._call("get", event_id)  # type: ignore[no-any-return]

    def list(self, **filters: Any) -> Iterator[Record]:
        """As `redbox.Box.list`, a page at a time."""
        left, cursor = filters.pop("limit", None), None
        while left is None or left > 0:
            page = self._call("page", limit=min(left or PAGE_LIMIT, PAGE_LIMIT), cursor=cursor, **filters)
            yield from page.records
            cursor = page.cursor
            left = None if left is None else left - len(page.records)
            if cursor is None:
                return

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        portal = self._running()

        async def run() -> Any:
            return await getattr(self._box, method)(*args, **options)

        return portal.call(run)

    def _running(self) -> BlockingPortal:
        """The thread with the event loop, started when first needed."""
        if self._process != os.getpid():  # forked: the thread and the sockets stayed with the parent
            if self._url is None:
                raise UsageError("a box on a client of your own does not survive a fork; open it in the child")
            self._fresh()
            self._box = AsyncBox.open(self._url, **self._options)
        with self._lock:
            if self._closed:
                raise UsageError("this box was closed; open it again with Box.open")
            if self._portal is None:
                self._portal = self._stack.enter_context(start_blocking_portal("asyncio"))
            return self._portal
